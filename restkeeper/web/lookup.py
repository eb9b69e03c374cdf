"""The record of a request's credential, and in the same query what the request reads first if that is valid."""

from collections.abc import Callable
from typing import Any, NamedTuple

from flask import Flask, Request, has_request_context

from restkeeper.clock import Clock
from restkeeper.storage.base import Store
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.interface import Found, Key, Record
from restkeeper.web import current_request

_READ = "restkeeper.read"  # in the WSGI environment: the _Read of the request


class _Read(NamedTuple):
    """What was read with the credential: nothing if `key` is None. `seconds`: how long that took."""

    key: Key | None
    found: Found
    seconds: float


class Lookup:
    """Reads the record of a credential with what the request will read.

    That is an item, for routes that read one; the change token of a collection, for its list; and what the
    `plans` say: each returns a key, given the request and the id of its caller, or None.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._resources: dict[str | None, Any] = {}  # by the endpoint of an item, or of the list
        self.plans: list[Callable[[Request, str], Key | None]] = []

    def register(self, app: Flask) -> None:
        """Note which routes read an item of a collection, or read its list."""
        for rule in app.url_map.iter_rules():
            view: Any = app.view_functions[rule.endpoint]
            of = getattr(view, "__self__", None)
            items = getattr(of, "parents", getattr(of, "items", None))
            is_read = rule.arguments <= {"id"} and "GET" in (rule.methods or ())
            if items is not None and is_read and getattr(view, "needs", "") == "read":
                self._resources[rule.endpoint] = items.resource

    def credential(self, collection: str, id: str, caller: str) -> Record:
        """The record of the current request's credential, which is of this caller. Raises RecordNotFound."""
        began = self._clock.monotonic()
        served = current_request()
        if resource := self._resources.get(served.endpoint):
            arguments = served.view_args
            key: Key | None = (resource.name, resource.key(arguments["id"])) if arguments else resource.name
        else:
            key = next((key for plan in self.plans if (key := plan(served, caller)) is not None), None)
        first, *rest = self._store.look_up([(collection, id), key] if key is not None else [(collection, id)])
        seconds = self._clock.monotonic() - began
        served.environ[_READ] = _Read(key, rest[0] if rest else None, seconds)
        if not isinstance(first, Record):
            raise RecordNotFound("there is no such record")
        return first


def find(store: Store, key: Key) -> Found:
    """What has a key, as it was read with the credential, which is used once, or now. It is None if there is none."""
    environ = current_request().environ
    read: _Read | None = environ.get(_READ)
    if read and read.key == key:
        environ[_READ] = _Read(None, None, read.seconds)
        return read.found
    return store.look_up([key])[0]


def seconds() -> float:
    """The seconds that reading took the current request, if there is one: it shall wait less afterwards."""
    read: _Read | None = current_request().environ.get(_READ) if has_request_context() else None
    return read.seconds if read else 0.0

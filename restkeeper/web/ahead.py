"""What a request needs from the store, read together with its credential: a database is asked once instead of twice."""

from collections.abc import Callable
from typing import Any, NamedTuple

from flask import Flask, Request, has_request_context, request

from restkeeper.clock import Clock
from restkeeper.storage.contract import Found, Key, Record, Store
from restkeeper.storage.errors import RecordNotFound

_READ = "restkeeper.read"  # in the WSGI environment: the _Read
_SECONDS = "restkeeper.read_seconds"  # likewise: for which it was read

_READING = {"GET", "PUT", "PATCH", "DELETE"}  # methods that first read the item, or the revision of the list


class _Read(NamedTuple):
    key: Key
    found: Found


class Ahead:
    """Reads the record of a credential, and what the request that has it will read if it is valid.

    That is an item, for routes that read or change one; the revision of a collection, for its list; and what the
    `plans` say: each returns a key, given the request and the id of its caller, or None.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._collections: dict[str | None, str] = {}  # by the endpoint of an item, or of the list
        self.plans: list[Callable[[Request, str], Key | None]] = []

    def learn(self, app: Flask) -> None:
        """Learn which routes read or change an item of a collection, or read its list."""
        for rule in app.url_map.iter_rules():
            view: Any = app.view_functions[rule.endpoint]
            is_read = rule.arguments <= {"id"} and not _READING.isdisjoint(rule.methods or ())
            if is_read and getattr(view, "needs", "") in ("read", "write"):
                self._collections[rule.endpoint] = getattr(getattr(view, "__self__", None), "name", "")

    def read(self, collection: str, id: str, caller: str) -> Record:
        """A record that shows whether the current request is of this caller. Raises RecordNotFound."""
        key, start = self._key(request, caller), self._clock.monotonic()
        first, *rest = self._store.look_up([(collection, id), key] if key is not None else [(collection, id)])
        request.environ[_SECONDS] = self._clock.monotonic() - start
        if key is not None:
            request.environ[_READ] = _Read(key, rest[0])
        if not isinstance(first, Record):
            raise RecordNotFound("there is no such record")
        return first

    def _key(self, request: Request, caller: str) -> Key | None:
        if collection := self._collections.get(request.endpoint):
            return (collection, request.view_args["id"]) if request.view_args else collection
        return next((key for plan in self.plans if (key := plan(request, caller)) is not None), None)


def find(store: Store, key: Key) -> Found:
    """What has a key, as it was read ahead, or now. It is None if there is none.

    What was read ahead is used once.
    """
    read: _Read | None = request.environ.pop(_READ, None)
    return read.found if read and read.key == key else store.look_up([key])[0]


def seconds() -> float:
    """The seconds that reading ahead took for the current request: if it waited then, it shall wait less afterwards."""
    taken: float = request.environ.get(_SECONDS, 0.0) if has_request_context() else 0.0
    return taken


def forget() -> None:
    """Forget what was read ahead for the current request, if there is one: it has waited, and that may have changed."""
    if has_request_context():
        request.environ.pop(_READ, None)

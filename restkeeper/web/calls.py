"""The call of the current request: what collections know of it, and what is read together with its credential."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from flask import Flask, Request

from restkeeper.clock import Clock
from restkeeper.hook import Hook
from restkeeper.resources.call import NOBODY, Ahead, Call
from restkeeper.resources.parameters import Arguments
from restkeeper.storage.base import Store
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.interface import Key, Record
from restkeeper.web import current_request
from restkeeper.web.application import address_of
from restkeeper.web.auth import CALL, CALLER
from restkeeper.web.preconditions import conditions_of

LARGE = 16 * 1024  # bytes of a body, from which on it takes milliseconds to load its items
AHEAD = "restkeeper.ahead"  # in the WSGI environment: what was read with the credential
_VERSION = re.compile(r"/api/v\d+(?=/)")
NO_ARGUMENTS: Mapping[str, list[str]] = {}


def current_call() -> Call:
    """The call of the current request, whose caller and version are known when a handler asks for it first."""
    environ = current_request().environ
    call: Call | None = environ.get(CALL)
    if call is None:
        call = environ[CALL] = Call(environ.get(CALLER, NOBODY), conditions_of(environ), environ.pop(AHEAD, None))
    return call


def shown_in(request: Request) -> set[str]:
    """The collections whose items are in the response, if they are not that of the path alone."""
    call: Call | None = request.environ.get(CALL)
    return call.shown_collections if call else set()


def api_address() -> str:
    """The address before the paths of collections, in the version of the current request."""
    request = current_request()
    version = _VERSION.match(request.path)  # an item of a collection called `api` is in none
    return address_of(version[0] if version else "")


def arguments() -> Arguments:
    """The parameters of the current request."""
    request = current_request()
    return request.args.to_dict(flat=False) if request.query_string else NO_ARGUMENTS


def is_large() -> bool:
    """Whether the body of the current request takes milliseconds to load, so that others like it wait meanwhile."""
    request = current_request()
    return (request.content_length or 0) >= LARGE or "HTTP_TRANSFER_ENCODING" in request.environ  # in chunks


class Lookup:
    """Reads the record of a credential, together with the record that the request will read.

    That is an item, for routes that read one; the change token of a collection, for its list; and what the
    features read `ahead`: each says a key, given the request and the id of its caller, or None.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._resources: dict[str | None, Any] = {}  # by the endpoint of an item, or of the list
        self.ahead: Hook[Callable[[Request, str], Key | None]] = Hook()

    def register(self, app: Flask) -> None:
        """Note which routes read an item of a collection, or read its list."""
        for rule in app.url_map.iter_rules():
            view: Any = app.view_functions[rule.endpoint]
            of = getattr(view, "__self__", None)
            items = getattr(of, "parents", getattr(of, "items", None))
            is_read = rule.arguments <= {"id"} and "GET" in (rule.methods or ())
            if items is not None and is_read and getattr(view, "needs", "") == "read":
                self._resources[rule.endpoint] = items.resource

    def credential_and_ahead(self, collection: str, id: str, caller: str) -> Record:
        """The record of the current request's credential, which is of this caller. Raises RecordNotFound."""
        began = self._clock.monotonic()
        served = current_request()
        if resource := self._resources.get(served.endpoint):
            arguments = served.view_args
            key: Key | None = (resource.name, resource.key(arguments["id"])) if arguments else resource.name
        else:
            key = next((key for plan in self.ahead.functions if (key := plan(served, caller)) is not None), None)
        credential, *rest = self._store.look_up([(collection, id), key] if key is not None else [(collection, id)])
        seconds = self._clock.monotonic() - began
        served.environ[AHEAD] = Ahead(key, rest[0] if rest else None, seconds)
        if not isinstance(credential, Record):
            raise RecordNotFound("there is no such record")
        return credential

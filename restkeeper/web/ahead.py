"""What a request needs from the store, read together with its credential: a database is asked once instead of twice."""

from collections.abc import Callable
from typing import Any, NamedTuple

from flask import Flask, Request, request

from restkeeper.storage.contract import Key, Record, Store, StoredResponse
from restkeeper.storage.errors import RecordNotFound

_READ = "restkeeper.read"  # in the WSGI environment: the _Read


class _Read(NamedTuple):
    key: Key
    found: Record | StoredResponse | None


class Ahead:
    """Reads the record of a credential, and what the request that has it will read if it is valid.

    That is an item, for routes that read one, and what the `plans` say: each returns a key, given the request and the
    id of its caller, or None.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._collections: dict[str | None, str] = {}  # by the endpoint that reads an item
        self.plans: list[Callable[[Request, str], Key | None]] = []

    def learn(self, app: Flask) -> None:
        """Learn which routes read an item of a collection."""
        for rule in app.url_map.iter_rules():
            view: Any = app.view_functions[rule.endpoint]
            if rule.arguments == {"id"} and "GET" in (rule.methods or ()) and getattr(view, "needs", "") == "read":
                self._collections[rule.endpoint] = view.__self__.name

    def read(self, collection: str, id: str, caller: str) -> Record:
        """A record that shows whether the current request is of this caller. Raises RecordNotFound."""
        key = self._key(request, caller)
        first, *rest = self._store.look_up([(collection, id), key] if key is not None else [(collection, id)])
        if key is not None:
            request.environ[_READ] = _Read(key, rest[0])
        if not isinstance(first, Record):
            raise RecordNotFound("there is no such record")
        return first

    def _key(self, request: Request, caller: str) -> Key | None:
        if (collection := self._collections.get(request.endpoint)) is not None and request.view_args:
            return collection, request.view_args["id"]
        return next((key for plan in self.plans if (key := plan(request, caller)) is not None), None)


def look_up(store: Store, key: Key) -> Record | StoredResponse | None:
    """The record or response of a key, as it was read ahead, or now. It is None if there is none.

    What was read ahead is used once.
    """
    read: _Read | None = request.environ.pop(_READ, None)
    return read.found if read and read.key == key else store.look_up([key])[0]

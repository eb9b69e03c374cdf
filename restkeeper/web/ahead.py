"""What a request needs from the store besides its credential: one query reads both.

It reads the credential, and the item that the path names or the revision of the list. A create, and a list that does
not compare the revision first, skip it: they presume that the credential has not changed since this process read it, at
most a minute ago. A create also presumes that no response is stored for its idempotency key. The transaction of the
create, or the query of the page, checks what is presumed. If that is wrong, nothing is changed and no page is returned.

A response is sent only if the store has confirmed what its request presumed; otherwise the request is executed
again, and reads first. So a revoked key is refused by the next request, and every refusal is the same as without
presuming. Two kinds of server errors are sent at once: an error after the transaction was tried (its change may be
stored), and a 503 (the request has waited already, and must not wait twice).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from flask import Flask, Request, Response, has_request_context, request

from restkeeper.clock import Clock
from restkeeper.storage.contract import Found, Key, Page, Query, Record, Store, Transaction
from restkeeper.storage.errors import RecordNotFound

View = TypeVar("View", bound=Callable[..., Any])

PRESUMED_SECONDS = 60.0  # after a credential was read
MOST_PRESUMED = 4096  # credentials that each process caches

_STATE = "restkeeper.ahead"  # in the WSGI environment: the _State of the request

_READ_FIRST = {"GET", "PUT", "PATCH", "DELETE"}  # methods that begin with the item, or the revision of the list


@runtime_checkable
class ListedItems(Protocol):
    """The items of a collection, as `resources.items.Items`."""

    name: str

    def needs_revision_first(self) -> bool:
        """Whether the list that the current request asks for compares the revision of the collection first."""


class _Recent(NamedTuple):
    """The record of a credential, and when it was read, by time.monotonic."""

    collection: str
    record: Record
    at: float


class _State:
    """What one request has read ahead and not used yet, and the credential that it may presume."""

    def __init__(self, began: float, *, seconds: float = 0.0, is_repeated: bool = False) -> None:
        self.began = began  # by time.monotonic
        self.seconds = seconds  # that its reading, or its first execution, took
        self.is_repeated = is_repeated
        self.read: tuple[Key, Found] | None = None
        self.digest = ""
        self.recent: _Recent | None = None  # None if the request never presumes it
        self.presumed: tuple[str, Record] | None = None  # its collection and record, if `recent` comes from the cache
        self.presumes_new = False  # likewise: no response is stored for the idempotency key
        self.was_tried = False  # by a transaction, which may be committed, whatever the response says
        self.is_confirmed = False  # by a transaction that is committed, or by the query of a page


def may_presume(view: View) -> View:
    """Declare that the requests to a handler may presume their credential.

    The handler has to confirm it; otherwise each such request is executed twice. A create does so by one transaction,
    which calls `require_presumed`, and then calls `confirm`. A list reads its page by `find_page`; if it compares the
    revision first, nothing is presumed.
    """
    view.may_presume = True  # type: ignore[attr-defined]
    return view


class Ahead:
    """Reads the record of a credential, and what the request that has it will read if it is valid.

    That is an item, for routes that read or change one; the revision of a collection, for its list, if that needs
    it first; and what the `plans` say: each returns a key, given the request and the id of its caller, or None.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._items: dict[str | None, ListedItems] = {}  # by the endpoint of an item, or of the list
        self._presuming: set[str | None] = set()  # endpoints whose handlers declare it with `may_presume`
        self._recent: dict[str, _Recent] = {}  # confirmed credentials, by their digests
        self.plans: list[Callable[[Request, str], Key | None]] = []

    def learn(self, app: Flask) -> None:
        """Learn which routes read or change an item of a collection, or read its list, and which may presume."""
        for rule in app.url_map.iter_rules():
            view: Any = app.view_functions[rule.endpoint]
            items = getattr(getattr(view, "__self__", None), "items", None)
            is_read = rule.arguments <= {"id"} and not _READ_FIRST.isdisjoint(rule.methods or ())
            if is_read and isinstance(items, ListedItems) and getattr(view, "needs", "") in ("read", "write"):
                self._items[rule.endpoint] = items
            if getattr(view, "may_presume", False):
                self._presuming.add(rule.endpoint)

    def credential(self, collection: str, id: str, caller: str, digest: str) -> Record:
        """A record that shows whether the current request, whose credential has this `digest`, is of this caller.

        It may be up to PRESUMED_SECONDS old: then the request presumes it. Raises RecordNotFound.
        """
        now = self._clock.monotonic()
        state: _State = request.environ.setdefault(_STATE, _State(now))
        items = self._items.get(request.endpoint)
        key = _first_of(items) if items else None
        presumes = request.endpoint in self._presuming and key is None and request.method != "OPTIONS"
        if presumes and not state.is_repeated and (recent := self._recent.get(digest)):
            if recent.collection == collection and now - recent.at < PRESUMED_SECONDS:
                state.digest, state.recent = digest, recent
                state.presumed, state.presumes_new = (collection, recent.record), True
                return recent.record
        if items is None:
            key = next((key for plan in self.plans if (key := plan(request, caller)) is not None), None)
        first, *rest = self._store.look_up([(collection, id), key] if key is not None else [(collection, id)])
        state.seconds += self._clock.monotonic() - now
        if key is not None:
            state.read = key, rest[0]
        if not isinstance(first, Record):
            raise RecordNotFound("there is no such record")
        if presumes:
            state.digest, state.recent = digest, _Recent(collection, first, now)
        return first

    def settle(self, request: Request, response: Response) -> bool:
        """Remember or forget the credential of a request that may presume; return whether to execute it again."""
        state: _State | None = request.environ.get(_STATE)
        if state is None or state.recent is None:
            return False
        if state.is_confirmed:
            self._remember(state.digest, state.recent)
            return False
        self._recent.pop(state.digest, None)
        if state.presumed is None or response.status_code == 503 or (state.was_tried and response.status_code >= 500):
            return False
        taken = self._clock.monotonic() - state.began
        request.environ[_STATE] = _State(state.began, seconds=taken, is_repeated=True)
        return True

    def _remember(self, digest: str, recent: _Recent) -> None:
        if digest not in self._recent and len(self._recent) >= MOST_PRESUMED:
            self._recent.clear()
        self._recent[digest] = recent


def find(store: Store, key: Key) -> Found:
    """What has a key, as it was read ahead, or now. It is None if there is none; or a response, if that is presumed.

    What was read ahead is used once, and a response is presumed to be missing once.
    """
    if state := _state():
        read, state.read = state.read, None
        if read and read[0] == key:
            return read[1]
        if state.presumes_new and isinstance(key, bytes):
            state.presumes_new = False
            return None
    return store.look_up([key])[0]


def find_page(store: Store, collection: str, query: Query, max_bytes: int) -> Page:
    """The page of a query. Raises ConditionFailed if the request presumes what is wrong."""
    state = _state()
    page = store.page(collection, query, max_bytes, required_body=state.presumed if state else None)
    confirm()
    return page


def is_presuming() -> bool:
    """Whether the current request presumes something that is not confirmed, so that it may be executed again."""
    state = _state()
    return state is not None and state.presumed is not None and not state.is_confirmed


def require_presumed(transaction: Transaction) -> None:
    """Let the transaction change nothing if its request presumes what is wrong."""
    if (state := _state()) and state.presumed:
        state.was_tried = True
        transaction.require_body(*state.presumed)


def confirm() -> None:
    """Note that the store has confirmed what the request presumes: its change is committed, or its page was read."""
    if state := _state():
        state.is_confirmed = True


def seconds() -> float:
    """The seconds that the current request has waited: it shall wait less afterwards."""
    state = _state() if has_request_context() else None
    return state.seconds if state else 0.0


def forget() -> None:
    """Forget what was read ahead for the current request, if there is one: it has waited, and that may have changed."""
    if has_request_context() and (state := _state()):
        state.read = None


def _first_of(items: ListedItems) -> Key | None:
    """What the current request reads of a collection first, if it is known: an item, or the revision of the list."""
    if request.view_args:
        return items.name, request.view_args["id"]
    return items.name if items.needs_revision_first() else None


def _state() -> _State | None:
    state: _State | None = request.environ.get(_STATE)
    return state

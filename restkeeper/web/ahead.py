"""What a request needs from the store, read together with its credential: a database is asked once instead of twice.

A create reads nothing before. It presumes what holds nearly always: that its credential is as this process read it
within the last minute, and that no response is stored for its idempotency key. Its transaction checks both, and changes
nothing unless they hold. Unless a change has confirmed them, no response goes out: the request is executed again, and
then reads first. So a credential that was revoked or changed counts at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from flask import Flask, Request, Response, has_request_context, request

from restkeeper.clock import Clock
from restkeeper.storage.contract import Found, Key, Record, Store, Transaction
from restkeeper.storage.errors import RecordNotFound

View = TypeVar("View", bound=Callable[..., Any])

PRESUMED_SECONDS = 60.0  # after a credential was read
CREDENTIALS = 4096  # that each process caches

_READ = "restkeeper.read"  # in the WSGI environment: the _Read
_SECONDS = "restkeeper.read_seconds"  # likewise: for which it was read
_CREDENTIAL = "restkeeper.credential"  # likewise: the _Credential of a request that creates
_IS_REPEATED = "restkeeper.repeated"  # likewise, of a request that is executed again

_READING = {"GET", "PUT", "PATCH", "DELETE"}  # methods that first read the item, or the revision of the list


class _Read(NamedTuple):
    key: Key
    found: Found


class _Recent(NamedTuple):
    """The record of a credential, and when it was read, by time.monotonic."""

    collection: str
    record: Record
    at: float


class _Credential:
    """The credential of one request: `recent`, which `is_presumed`, or was read for this request."""

    def __init__(self, cache: dict[str, _Recent], digest: str, recent: _Recent, *, is_presumed: bool) -> None:
        self.cache = cache
        self.digest = digest
        self.recent = recent
        self.is_presumed = is_presumed
        self.presumes_new = is_presumed  # that no response is stored


def presumes(view: View) -> View:
    """Declare that a handler creates by a transaction with `require`, and calls `confirm` after it."""
    view.presumes = True  # type: ignore[attr-defined]
    return view


class Ahead:
    """Reads the record of a credential, and what the request that has it will read if it is valid.

    That is an item, for routes that read or change one; the revision of a collection, for its list; and what the
    `plans` say: each returns a key, given the request and the id of its caller, or None.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._collections: dict[str | None, str] = {}  # by the endpoint of an item, or of the list
        self._creating: set[str | None] = set()  # endpoints whose handlers declare it with `presumes`
        self._recent: dict[str, _Recent] = {}  # of confirmed credentials, by their digests
        self.plans: list[Callable[[Request, str], Key | None]] = []

    def learn(self, app: Flask) -> None:
        """Learn which routes read or change an item of a collection, or read its list, and which create."""
        for rule in app.url_map.iter_rules():
            view: Any = app.view_functions[rule.endpoint]
            is_read = rule.arguments <= {"id"} and not _READING.isdisjoint(rule.methods or ())
            if is_read and getattr(view, "needs", "") in ("read", "write"):
                self._collections[rule.endpoint] = getattr(getattr(view, "__self__", None), "name", "")
            if getattr(view, "presumes", False):
                self._creating.add(rule.endpoint)

    def read(self, collection: str, id: str, caller: str, digest: str) -> Record:
        """A record that shows whether the current request, whose credential has this `digest`, is of this caller.

        Raises RecordNotFound.
        """
        environ, start = request.environ, self._clock.monotonic()
        creates = request.endpoint in self._creating
        if creates and _IS_REPEATED not in environ and (recent := self._recent.get(digest)):
            if recent.collection == collection and start - recent.at < PRESUMED_SECONDS:
                environ[_CREDENTIAL] = _Credential(self._recent, digest, recent, is_presumed=True)
                return recent.record
        key = self._key(request, caller)
        first, *rest = self._store.look_up([(collection, id), key] if key is not None else [(collection, id)])
        environ[_SECONDS] = self._clock.monotonic() - start
        if key is not None:
            environ[_READ] = _Read(key, rest[0])
        if not isinstance(first, Record):
            raise RecordNotFound("there is no such record")
        if creates:
            recent = _Recent(collection, first, start)
            environ[_CREDENTIAL] = _Credential(self._recent, digest, recent, is_presumed=False)
        return first

    def must_repeat(self, request: Request, response: Response) -> bool:
        """Whether to execute a request again, because its response depends on what it presumes and did not confirm.

        After an error of the server the change may be stored, so that it is not repeated.
        """
        credential: _Credential | None = request.environ.pop(_CREDENTIAL, None)
        if credential is None or not credential.is_presumed:
            return False
        self._recent.pop(credential.digest, None)
        request.environ[_IS_REPEATED] = True
        return response.status_code < 500

    def _key(self, request: Request, caller: str) -> Key | None:
        if collection := self._collections.get(request.endpoint):
            return (collection, request.view_args["id"]) if request.view_args else collection
        return next((key for plan in self.plans if (key := plan(request, caller)) is not None), None)


def find(store: Store, key: Key) -> Found:
    """What has a key, as it was read ahead, or now. It is None if there is none, or if that is presumed.

    What was read ahead is used once.
    """
    environ = request.environ
    read: _Read | None = environ.pop(_READ, None)
    if read and read.key == key:
        return read.found
    if (credential := environ.get(_CREDENTIAL)) and credential.presumes_new:
        credential.presumes_new = False
        return None
    return store.look_up([key])[0]


def is_presuming() -> bool:
    """Whether the current request has presumed anything that is not confirmed, so that it may be executed again."""
    credential: _Credential | None = request.environ.get(_CREDENTIAL)
    return credential is not None and credential.is_presumed


def require(transaction: Transaction) -> None:
    """Let a transaction change something only if its request has presumed what is right."""
    credential: _Credential | None = request.environ.get(_CREDENTIAL)
    if credential and credential.is_presumed:
        transaction.presume(credential.recent.collection, credential.recent.record)


def confirm() -> None:
    """Note that the transaction of `require` is committed: further requests can presume the same for some time."""
    if credential := request.environ.pop(_CREDENTIAL, None):
        if len(credential.cache) >= CREDENTIALS:
            credential.cache.clear()
        credential.cache[credential.digest] = credential.recent


def seconds() -> float:
    """The seconds that reading ahead took for the current request: if it waited then, it shall wait less afterwards."""
    taken: float = request.environ.get(_SECONDS, 0.0) if has_request_context() else 0.0
    return taken


def forget() -> None:
    """Forget what was read ahead for the current request, if there is one: it has waited, and that may have changed."""
    if has_request_context():
        request.environ.pop(_READ, None)

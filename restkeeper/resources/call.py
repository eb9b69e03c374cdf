"""A request, or a program, as collections know it: who calls, on which conditions, and how long it may take."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from restkeeper.clock import Clock
from restkeeper.errors import Forbidden, PreconditionFailed, PreconditionRequired
from restkeeper.storage.base import Store
from restkeeper.storage.interface import Filter, Found, Key

ADMIN = "admin"  # the scope that holds all others
PUBLIC = "public"  # needs no credential
KNOWN = "known"  # needs a known caller; the handler decides what that caller may see
SCOPE = "[A-Za-z0-9_.~%-]+:[A-Za-z][A-Za-z0-9_-]*"  # any other than ADMIN
ROLE = "[a-z0-9_-]+"  # the name of a role, other than ADMIN: never a scope
ANONYMOUS = "anonymous"  # the id of callers without credentials
REALM = 'realm="restkeeper"'

CHANGE_SECONDS = 5.0  # for which a change waits for others and is retried, before it returns 503


class Caller(NamedTuple):
    """A caller: `id` identifies it, also in logs; `scopes` are its permissions.

    It reaches the items of its `owners`; several callers can have the same owners. Only NOBODY has none.
    """

    id: str
    scopes: frozenset[str]
    owners: tuple[str, ...]

    @property
    def owner_id(self) -> str | None:
        """The owner of the items that it creates: the first of its owners, if there is one."""
        return next(iter(self.owners), None)

    def may(self, scope: str) -> bool:
        """Whether the caller holds a scope."""
        return scope in self.scopes or ADMIN in self.scopes


NOBODY = Caller(ANONYMOUS, frozenset(), ())
EVERYBODY = Caller(ANONYMOUS, frozenset({ADMIN}), (ANONYMOUS,))
# An import, a command, or the data of a test: items that it creates have no owner.
PROGRAM = Caller("program", frozenset({ADMIN}), ())


def lacking(scope: str, what: str = "this") -> Forbidden:
    """A refusal for a missing scope, which `what` needs (RFC 6750, section 3.1)."""
    challenge = f'Bearer {REALM}, error="insufficient_scope", scope="{scope}"'
    return Forbidden(f"{what} needs the scope {scope}", headers={"WWW-Authenticate": challenge})


class Tags(Protocol):
    """The ETags of a condition."""

    star_tag: bool

    def contains(self, tag: str, /) -> bool:
        """Whether one of them is this one, by the strong comparison: a weak tag never is."""

    def contains_weak(self, tag: str, /) -> bool:
        """Whether one of them is this one, by the weak comparison."""


class Conditions(NamedTuple):
    """The state for which a request is meant: RFC 9110, section 13, in the order of its section 13.2.2.

    A date has whole seconds, and an item can change several times in a second. So the date of an item is the first
    second after its last change, and it is compared with the exact time of this change: a client with this date has
    seen all changes before it (section 8.8.2.2). A malformed date is None (section 13.1.3). The conditions of a list
    are about the items `of` these filters.
    """

    if_match: Tags | None = None
    if_none_match: Tags | None = None
    if_modified_since: datetime | None = None
    if_unmodified_since: datetime | None = None
    of: tuple[Filter, ...] = ()

    def require(self, tag: str | None, updated_at: str = "", *, must_say: bool = False, reads: bool = False) -> None:
        """Raises PreconditionFailed when the request was meant for another state than this one.

        `tag` is the current strong ETag without its quotes, None if there is no such item; `updated_at` is the time of
        the last change (RFC 3339). With `must_say`, a request without `If-Match`, and without `If-None-Match: *`,
        raises PreconditionRequired (RFC 6585, section 3). If it only `reads`, `If-None-Match` asks for a 304.
        """
        if must_say and self.if_match is None and not (self.if_none_match and self.if_none_match.star_tag):
            raise PreconditionRequired("send the ETag that you read as If-Match, or to create an item If-None-Match: *")
        if tag is None:
            if self.if_match is not None:
                raise PreconditionFailed("there is no such item")
            return
        headers = {"ETag": f'"{tag}"'}
        if self.if_match is not None:
            if not self.if_match.contains(tag):
                raise PreconditionFailed(f'the ETag is now "{tag}"', headers=headers)
        elif updated_at and self.if_unmodified_since:
            if datetime.fromisoformat(updated_at) >= self.if_unmodified_since:
                raise PreconditionFailed(f"the last change was at {updated_at}", headers=headers)
        if not reads and self.if_none_match is not None and self.if_none_match.contains_weak(tag):
            raise PreconditionFailed(f'the ETag is "{tag}"', headers=headers)

    def are_held(self, tag: str, updated_at: str = "") -> bool:
        """Whether the client has this state already, so that a GET or HEAD returns 304."""
        if self.if_none_match is not None:
            return self.if_none_match.contains_weak(tag)
        since = self.if_modified_since
        return bool(since and updated_at) and datetime.fromisoformat(updated_at) < since  # type: ignore[operator]


NONE = Conditions()


class Ahead(NamedTuple):
    """What was read with the credential, before the call began: nothing if `key` is None; and how long it took."""

    key: Key | None = None
    found: Found = None
    seconds: float = 0.0


class Call:
    """A request after its caller and its version are known, or the work of a program.

    `shown_collections` are the collections with items in the response, if it has embedded items. `dependents` are the
    collections whose items the request deletes with the item that they refer to, although `on_delete` is "null".
    """

    __slots__ = ("_ahead", "_deadline", "caller", "conditions", "dependents", "shown_collections")

    def __init__(self, caller: Caller, conditions: Conditions = NONE, ahead: Ahead | None = None) -> None:
        self.caller = caller
        self.conditions = conditions
        self.shown_collections: set[str] = set()
        self.dependents: Collection[str] = ()
        self._ahead = ahead
        self._deadline: float | None = None

    @property
    def is_program(self) -> bool:
        """Whether it is no request: its work has no bounds."""
        return self.caller is PROGRAM

    def deadline(self, clock: Clock) -> float:
        """Until when a change waits: CHANGE_SECONDS from the first call of this, less the time of reading `ahead`."""
        if self._deadline is None:
            self._deadline = clock.monotonic() + CHANGE_SECONDS - (self._ahead.seconds if self._ahead else 0.0)
        return self._deadline

    def read_ahead_or_now(self, store: Store, key: Key) -> Any:
        """The value of a key, read now, or for the first call with the credential. It is None if there is none.

        The key of an item is its collection and its id; the key of a collection's change token is its name.
        """
        if self._ahead and self._ahead.key == key:
            value, self._ahead = self._ahead.found, self._ahead._replace(key=None, found=None)
            return value
        return store.look_up([key])[0]


def of_program() -> Call:
    """The call of a program: it sees everything, and the items that it creates have no owner."""
    return Call(PROGRAM)

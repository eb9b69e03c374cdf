"""What a store promises of events and of their delivery: the part of `contract` by which others learn what has changed.

An event is recorded in the transaction of its change. Events have one order, that of the commits. A subscription goes
through them at its own pace: what it wants is queued for it, and each delivery is leased to one worker at a time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

EVENT_ID = r"evt_[0-9a-f]{8}_(0|[1-9a-f][0-9a-f]{0,14})"  # as an expression: which store's, and which of it

LOOKED_AT = 2000  # events that one search looks at: some milliseconds
PAGE_BYTES = 1024 * 1024  # of events in one page, but for the last of them

# Seconds from now that a time can be ahead, of any configuration: what is beyond was written by a clock that was wrong.
LONGEST_LEASE = 3600.0  # a try takes a minute at most
LONGEST_PAUSE = 86_400.0  # that an endpoint may ask for (Retry-After)
LONGEST_DELAY = 10 * 86_400.0  # to the next try: a week, and a fifth of it by chance


def is_event_id(text: str) -> bool:
    """Whether a text could be the id of an event."""
    return re.fullmatch(EVENT_ID, text) is not None


class Event(NamedTuple):
    """One change. `data` is JSON, `at` RFC 3339 in UTC."""

    type: str  # such as product.created
    collection: str
    item: str  # its id
    at: str
    data: bytes
    owner: str | None = None  # of the item


class StoredEvent(NamedTuple):
    """An event as it was recorded. No other event has its `id`, of whatever store."""

    id: str
    type: str
    at: str
    data: bytes


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events. `types` may end with `*`, which stands for anything.

    All of the `collections` count, and of those in `own` just what happened to items of `owner`.
    """

    collections: tuple[str, ...]
    types: tuple[str, ...] = ("*",)
    own: tuple[str, ...] = ()
    owner: str | None = None


class Events(NamedTuple):
    """A stretch of events in their order. `last` is the id of the last that was looked at, be it among them or not.

    `more` says whether there were others behind that one.
    """

    events: list[StoredEvent]
    last: str
    more: bool


class Secret(NamedTuple):
    """What deliveries are signed with, until a time in seconds since 1970, or for good."""

    value: str
    until: float | None = None


class Subscription(NamedTuple):
    """A webhook with something to do: events to queue (it is `behind`), or deliveries that are `due`.

    Of one that is not `open`, because it is paused or its endpoint asked for a pause, only what was asked for by hand.
    """

    webhook: str
    secrets: tuple[Secret, ...]
    behind: bool
    due: bool
    open: bool


class Delivery(NamedTuple):
    """A delivery that was leased. One that was `asked` for by hand is tried once, outside of any order."""

    id: int
    lease: int
    webhook: str
    asked: bool
    attempts: int  # before this one
    event: StoredEvent


class Attempt(NamedTuple):
    """How it went. It ended `at` a time, and took `seconds`; `status` is None where nobody answered.

    Unless it `succeeded`, it is to be repeated at the time `next`, or if that is None, never. Until the time `hold`
    nothing else is to be sent there either. All times in seconds since 1970.
    """

    delivery: Delivery
    at: float
    succeeded: bool
    status: int | None
    seconds: float
    excerpt: str
    next: float | None = None
    hold: float = 0.0

    @property
    def is_final(self) -> bool:
        """Whether it failed, and is not to be repeated."""
        return not self.succeeded and self.next is None


class Logged(NamedTuple):
    """A delivery as the log has it: `state` is pending, delivered or failed; the rest is of the last try.

    `due` is when to try next; None while somebody has it or another of its item comes first, and at the end.
    """

    id: int
    event: str
    type: str
    state: str
    attempts: int
    due: float | None
    attempted: float | None
    status: int | None
    seconds: float | None
    excerpt: str | None


class OutboxTransaction(Protocol):
    """What can be done with events and deliveries inside `Store.write`."""

    def record(self, event: Event) -> str:
        """Record an event, behind all others; its id."""

    def sweep_events(self, before: str, limit: int, *, latest: str = "9999") -> int:
        """Delete at most `limit` events from before a time, with their deliveries; how many.

        The oldest go first, as far as there is none from after that time among them; the newest stays whatever its age.
        One that is dated after the time `latest` counts as expired: a clock was wrong.
        """

    def subscribe(self, webhook: str, secrets: Sequence[Secret]) -> None:
        """Queue what happens from now on for a webhook."""

    def set_secrets(self, webhook: str, secrets: Sequence[Secret]) -> None:
        """Sign deliveries with these from now on."""

    def secrets(self, webhook: str) -> tuple[Secret, ...]:
        """What deliveries are signed with. Raises RecordNotFound."""

    def resume(self, webhook: str, now: float) -> None:
        """End the pause that an endpoint asked for: what waits for another try, and nobody has, is due now.

        Nobody has what is leased for longer than LONGEST_LEASE.
        """

    def unsubscribe(self, webhook: str) -> None:
        """Deliver nothing more to a webhook. What its log has goes with the events."""

    def queue(self, webhook: str, filter: EventFilter, now: float, limit: int) -> int:
        """Look at so many further events, and queue those that the filter leaves; an item's events one after the other.

        Returns how many there were to look at.
        """

    def lease(self, webhook: str, now: float, until: float, limit: int, *, asked_only: bool = False) -> list[Delivery]:
        """Take at most `limit` deliveries that are due, the earliest first; nobody else has them `until` that time.

        Also due is what a clock that was ahead has put beyond LONGEST_LEASE or LONGEST_DELAY from now. Never two of one
        item at once. `asked_only`: just what was asked for by hand.
        """

    def settle(self, attempt: Attempt) -> bool:
        """Note how an attempt went; whether that still mattered: the lease may be another's by now."""

    def ask(self, webhook: str, event: str) -> int:
        """Queue one event by its id, to be tried once, at once; the delivery's id. Raises RecordNotFound."""

    def logged(self, webhook: str, id: int) -> Logged:
        """A delivery of this webhook. Raises RecordNotFound."""


class OutboxStore(Protocol):
    """What can be read of events and deliveries, each as of one moment."""

    def last_event(self) -> str:
        """The id of the newest event; before the first one, that of their beginning. Costs next to nothing."""

    def events(self, after: str, filter: EventFilter, limit: int) -> Events:
        """Events behind the one with the id `after` (empty: all that are stored), at most `limit`.

        Looks at LOOKED_AT of them at most, and ends with the one that brings their data over PAGE_BYTES. Raises
        EventsExpired where that one, or what came right after it, is not (any more) in this store.
        """

    def subscriptions(self, active: Sequence[str], now: float) -> list[Subscription]:
        """Those that have something to do: of webhooks that are not `active`, what was asked for by hand.

        A pause that an endpoint asked for counts up to LONGEST_PAUSE from now.
        """

    def deliveries(self, webhook: str, before: int | None, limit: int, state: str | None = None) -> list[Logged]:
        """The log of a webhook, the newest first, from before the delivery with that id."""

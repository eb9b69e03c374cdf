"""Events and their delivery: the part of the store's interface that other services learn about changes from.

An event is recorded in the transaction of its change. All events have one order, that of the commits. Events are queued
for each webhook that subscribes to them, and each delivery is leased to one worker at a time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

EVENT_ID = r"evt_[0-9a-f]{8}_(0|[1-9a-f][0-9a-f]{0,14})"  # a regular expression: the store's epoch, and the position

MOST_EXAMINED = 2000  # events that one search reads, in some milliseconds
PAGE_BYTES = 1024 * 1024  # of events in one page, without the last one

# The longest times from now, in seconds, in any configuration. A later time was written by a wrong clock.
LONGEST_LEASE = 3600.0  # an attempt takes at most a minute
LONGEST_PAUSE = 86_400.0  # that an endpoint can request (Retry-After)
LONGEST_DELAY = 10 * 86_400.0  # to the next attempt: a week, and a random fifth of it


def is_event_id(text: str) -> bool:
    """Whether a text has the form of an event's id."""
    return re.fullmatch(EVENT_ID, text) is not None


def id_of(position: int, origin: str) -> str:
    """The id of the event at a position; its origin is the epoch of the store that wrote it."""
    return f"evt_{origin}_{position:x}"


def parse_id(id: str) -> tuple[int, str]:
    """The position and origin in an event's id; those of no event for any other text."""
    if not is_event_id(id):
        return -1, ""
    _, origin, position = id.split("_")
    return int(position, 16), origin


class Event(NamedTuple):
    """A change of an item. `data` is JSON, `at` is RFC 3339 in UTC.

    `fingerprint` is of the schema of `data`, and `removed` as in a `Record`; both are empty for data without a schema.
    """

    type: str  # such as product.created
    collection: str
    item: str  # its id
    at: str
    data: bytes
    owner: str | None = None  # of the item
    fingerprint: str = ""
    removed: bytes | None = None


class StoredEvent(NamedTuple):
    """An event as it is stored, see `Event`. Its `id` is unique among all stores."""

    id: str
    type: str
    at: str
    data: bytes
    collection: str = ""
    fingerprint: str = ""
    removed: bytes | None = None


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A filter of events: all events of `collections`, and those of `own` whose item belongs to `owner`.

    In `types`, `*` stands for any text.
    """

    collections: tuple[str, ...]
    types: tuple[str, ...] = ("*",)
    own: tuple[str, ...] = ()
    owner: str | None = None


class Events(NamedTuple):
    """A page of events in order. `last` is the id of the last event that was examined, whether it matches or not.

    `more` is true if there are events after it.
    """

    events: list[StoredEvent]
    last: str
    more: bool


class Secret(NamedTuple):
    """A secret for signatures. It is valid until a time in seconds since 1970, or without limit."""

    value: str
    until: float | None = None


class Subscription(NamedTuple):
    """A webhook that has work: events to queue (it is `behind`), or deliveries that are `due`.

    If it is not `open`, because it or its endpoint is paused, only manual deliveries are sent.
    """

    webhook: str
    secrets: tuple[Secret, ...]
    behind: bool
    due: bool
    open: bool


class Delivery(NamedTuple):
    """A leased delivery. A `manual` one, which a user requested, is attempted once and outside of the order."""

    id: int
    lease: int
    webhook: str
    manual: bool
    attempts: int  # before this one
    event: StoredEvent


class Attempt(NamedTuple):
    """The result of an attempt. It ended at the time `at` and took `seconds`; without a response `status` is None.

    After a failure, `next` is the time of the next attempt, or None if it was the last one. Until the time `hold`
    nothing else is sent to the endpoint. All times are in seconds since 1970.
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
        """Whether it failed and is not repeated."""
        return not self.succeeded and self.next is None


class LogEntry(NamedTuple):
    """An entry of the delivery log. `state` is pending, delivered or failed. The last fields are of the last attempt.

    `due` is the time of the next attempt. It is None while the delivery is leased or waits for another one of the same
    item, and at the end.
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
    """Events and deliveries inside `Store.write`."""

    def record(self, event: Event) -> None:
        """Record an event after all others."""

    def sweep_events(self, before: str, limit: int, *, latest: str = "9999") -> int:
        """Delete at most `limit` events from before a time, with their deliveries; return how many.

        The oldest are deleted, up to the first that is not expired; the newest event is always left. An event from
        after the time `latest` counts as expired: a clock was wrong.
        """

    def subscribe(self, webhook: str, secrets: Sequence[Secret]) -> None:
        """Subscribe a webhook to all events from now on."""

    def set_secrets(self, webhook: str, secrets: Sequence[Secret]) -> None:
        """Set the secrets that deliveries are signed with."""

    def secrets(self, webhook: str) -> tuple[Secret, ...]:
        """Return the secrets that deliveries are signed with. Raises RecordNotFound."""

    def resume(self, webhook: str, now: float) -> None:
        """End the pause of the endpoint: all deliveries that wait for another attempt are due now.

        Those that are leased stay leased, for LONGEST_LEASE at most.
        """

    def unsubscribe(self, webhook: str) -> None:
        """Delete the subscription of a webhook. Its log is deleted with the events."""

    def queue(self, webhook: str, filter: EventFilter, now: float, limit: int) -> int:
        """Examine at most `limit` further events, and queue those that match; return how many were examined.

        The events of one item are delivered in order.
        """

    def lease(self, webhook: str, now: float, until: float, limit: int, *, manual_only: bool = False) -> list[Delivery]:
        """Lease at most `limit` deliveries that are due, the earliest first, until a time; at most one of each item.

        A delivery whose time is beyond LONGEST_LEASE or LONGEST_DELAY from now is due too: a clock was wrong.
        """

    def settle(self, attempt: Attempt) -> bool:
        """Store the result of an attempt. Returns False if the lease had ended, and stores nothing."""

    def queue_manually(self, webhook: str, event: str | Event) -> int:
        """Queue one event for one attempt now; return the delivery's id.

        It is a stored one by its id, or a new one, which is recorded. Raises RecordNotFound.
        """

    def find_delivery(self, webhook: str, id: int) -> LogEntry:
        """Return a delivery of this webhook. Raises RecordNotFound."""


class OutboxStore(Protocol):
    """Events and deliveries for reading. Each method sees one moment."""

    def last_event(self) -> str:
        """Return the id of the newest event; without events, the id before the first. It is cheap."""

    def events(self, after: str, filter: EventFilter, limit: int) -> Events:
        """Return at most `limit` events after the one with the id `after`; if it is empty, from the oldest on.

        It examines at most MOST_EXAMINED events, and ends with the one that brings their data over PAGE_BYTES. Raises
        EventsExpired if this store does not have that event, or the one after it (any more).
        """

    def subscriptions(self, active: Sequence[str], now: float) -> list[Subscription]:
        """Return the subscriptions that have work; of webhooks that are not `active`, manual deliveries only.

        A pause that an endpoint requested ends after LONGEST_PAUSE at most.
        """

    def deliveries(self, webhook: str, before: int | None, limit: int, state: str | None = None) -> list[LogEntry]:
        """Return the log of a webhook, the newest first, from before the delivery with that id."""

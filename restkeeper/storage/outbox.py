"""Events and their delivery: the part of the store's interface that other services learn about changes from.

An event is recorded in the transaction of its change. All events have one order, that of the commits. Events are queued
for each webhook that subscribes to them, and each delivery is leased to one worker at a time.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

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

    In `types`, `*` stands for any text. With `item`, only those of items with this id.
    """

    collections: tuple[str, ...]
    types: tuple[str, ...] = ("*",)
    own: tuple[str, ...] = ()
    owner: str | None = None
    item: str | None = None


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

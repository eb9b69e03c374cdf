"""The feed of events: what is recorded of changes, and read in the order of their commits.

An event is recorded in the transaction of its change. All events have one order, that of the commits. Readers continue
after the last event that they have seen. Only features and commands load this module, and with it the part of it that
each backend has.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from restkeeper.storage.base import Store
from restkeeper.storage.errors import EpochMissing, EventsExpired
from restkeeper.storage.sql import DELETED, Database, Row
from restkeeper.storage.transactions import Transaction

EVENT_ID = r"evt_[0-9a-f]{8}_(0|[1-9a-f][0-9a-f]{0,14})"  # a regular expression: the store's epoch, and the position
MOST_EXAMINED = 2000  # events that one search reads, in some milliseconds
PAGE_BYTES = 1024 * 1024  # of events in one page, without the last one

_SELECT_NEWEST = """\
SELECT
    {is_unnumbered},
    {epoch},
    {newest},
    (SELECT origin FROM events WHERE position = {newest})
FROM {store}"""

# The oldest events up to the first that is not expired, so that the rest has no gaps.
_EXPIRED = """\
WITH oldest AS (SELECT position, at FROM events WHERE position IS NOT NULL ORDER BY position LIMIT :limit)
SELECT max(position) FROM oldest
WHERE position < (SELECT max(position) FROM events) AND position < coalesce(
    (SELECT min(position) FROM oldest WHERE at >= :before AND at <= :latest),
    9223372036854775807
)"""

# The subscriptions whose deliveries a sweep changes, and those that could queue a swept event.
_LOCK_SWEPT = """\
SELECT 1 FROM subscriptions
WHERE position < :last OR webhook IN (SELECT webhook FROM deliveries WHERE event <= :last AND state = 'pending')
ORDER BY webhook {for_update}"""

# The next delivery of each item that waits for one that will be deleted.
_RELEASE_SWEPT = """\
UPDATE deliveries SET due = 0
WHERE due IS NULL AND id IN (
    SELECT (
        SELECT min(later.id) FROM deliveries AS later
        WHERE later.webhook = swept.webhook AND later.item = swept.item AND later.state = 'pending'
            AND later.event > :last
    )
    FROM (
        SELECT DISTINCT webhook, item FROM deliveries {by_event}
        WHERE event <= :last AND state = 'pending' AND item IS NOT NULL
    ) AS swept
)"""

_SWEEP = """\
DELETE FROM events
WHERE position IN (SELECT position FROM events WHERE position <= :last ORDER BY position {for_update})
RETURNING 1"""


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


class StoredEvent(NamedTuple):
    """An event as it is stored, see `Event`. Its `id` is unique among all stores; its `type` can be for a reader."""

    id: str
    type: str
    at: str
    data: bytes
    collection: str = ""
    fingerprint: str = ""
    removed_fields: bytes | None = None
    owner: str | None = None
    former: str | None = None

    @property
    def is_for_former_owner(self) -> bool:
        """Whether it is for the former owner of an item that was given to another one: the `data` is not."""
        return self.former is not None and self.type.endswith(DELETED)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A filter of events: all events of `collections`, and of `owned_collections` those of the `owners`' items.

    An event that has given an item to another owner is found for both, and its type ends in `CREATED` for who has the
    item only since, and in `DELETED` for who has it no more. In `types`, `*` stands for any text. With `item`, only
    those of items with this id.
    """

    collections: tuple[str, ...]
    types: tuple[str, ...] = ("*",)
    owned_collections: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    item: str | None = None


class Events(NamedTuple):
    """A page of events in order. `last` is the id of the last event that was examined, whether it matches or not.

    `more` is true if there are events after it.
    """

    events: list[StoredEvent]
    last: str
    more: bool


class Feed(ABC):
    """What a backend does with the events of its database, inside of a transaction or of a read."""

    def __init__(self, database: Any) -> None:
        self.database = database

    @abstractmethod
    def find(self, after: str, filter: EventFilter, limit: int) -> Events:
        """See `find_events`."""

    def pattern(self, type: str) -> str:
        """A type of events, in which `*` stands for any text, as the database compares it."""
        return type

    def number(self) -> None:  # noqa: B027 - an event can have its position from the beginning
        """Give all committed events their positions, outside of a transaction."""

    def number_inside(self) -> None:  # noqa: B027 - likewise
        """Give all committed events their positions, and those that this transaction has recorded."""

    def parameters(self, filter: EventFilter) -> dict[str, Any]:
        """The parameters of the part `wanted` of a dialect."""
        lists = {"collections": [*filter.collections], "own": [*filter.owned_collections], "owners": [*filter.owners]}
        return {**lists, "types": [*map(self.pattern, filter.types)], "item": filter.item}


def feed_of(user: Store | Transaction, database: Database) -> Feed:
    """The feed in the database that a store or a transaction uses."""
    module, _, name = user.feed.partition(":")
    feed: Feed = getattr(import_module(module), name)(database)
    return feed


def sweep_events(transaction: Transaction, before: str, limit: int, *, latest: str = "9999") -> int:
    """Delete at most `limit` events from before a time, with their deliveries; return how many.

    The oldest are deleted, up to the first that is not expired; the newest event is always left. An event from after
    the time `latest` counts as expired: a clock was wrong.
    """
    database = transaction.database
    ((last,),) = database.rows(_EXPIRED, {"before": before, "latest": latest, "limit": limit})
    if last is None:
        return 0
    database.change(_LOCK_SWEPT, {"last": last})
    database.change(_RELEASE_SWEPT, {"last": last})
    return len(database.rows(_SWEEP, {"last": last}))


def last_event(store: Store) -> str:
    """Return the id of the newest event; without events, the id before the first. It is cheap.

    All events that are committed now have positions afterwards.
    """
    return store.read_with(_newest_id, store)


def _newest_id(database: Database, store: Store) -> str:
    ((is_unnumbered, epoch, newest, origin),) = database.rows(_SELECT_NEWEST, {})
    if is_unnumbered:
        feed_of(store, database).number()
        ((_, epoch, newest, origin),) = database.rows(_SELECT_NEWEST, {})
    if not epoch:
        raise EpochMissing
    return id_of(newest, origin or epoch)


def find_events(store: Store, after: str, filter: EventFilter, limit: int) -> Events:
    """Return at most `limit` events after the one with the id `after`; if it is empty, from the oldest on.

    It examines at most MOST_EXAMINED events, and ends with the one that brings their data over PAGE_BYTES. Raises
    EventsExpired if this store does not have that event, or the one after it (any more).
    """
    return store.read_with(lambda database: feed_of(store, database).find(after, filter, limit))


def events_of(
    bounds: Sequence[Any], after: str, rows: Sequence[Row], end: int | None = None, end_origin: str | None = None
) -> Events:
    """See `find_events`. The `rows` are those of a `stored_event`, of a search that ended with the last of them.

    Or it ended with the position `end`, of the event with that origin. `bounds` are the oldest and newest position of
    the feed at that moment, the epoch of the store, and the origin of the event to start after.
    """
    position, origin = parse_id(after)
    oldest, newest, epoch, start_origin = bounds
    if not epoch:
        raise EpochMissing
    swept = position == oldest - 1 and (origin == epoch or not position)  # or it is 0
    if after and not swept and (not oldest <= position <= newest or start_origin != origin):
        raise EventsExpired(
            "the events after this cursor are deleted, or it is of another service", resume=id_of(oldest - 1, epoch)
        )
    if end is None:
        end, end_origin, *_ = rows[-1]
    return Events([stored_event(*row) for row in rows], id_of(end, end_origin or epoch), end < newest)


def stored_event(position: int, origin: str, *rest: Any) -> StoredEvent:
    """The event of a row: its position, its origin, and the rest of a StoredEvent."""
    return StoredEvent(id_of(position, origin), *rest)

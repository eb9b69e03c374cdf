"""The feed: events in order, for readers that continue after the last one that they have seen."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from restkeeper.storage.errors import EventsExpired
from restkeeper.storage.outbox import Events, StoredEvent, id_of, parse_id
from restkeeper.storage.records import EpochMissing
from restkeeper.storage.sql import Database, Row

_SELECT_NEWEST = """\
SELECT
    {is_unnumbered},
    {epoch},
    {newest},
    (SELECT origin FROM events WHERE position = {newest})
FROM {store}"""


class Stretch(NamedTuple):
    """A part of the feed that was searched, at one moment: the events after the position that was asked for.

    `oldest` and `newest` are the bounds of the feed, and `epoch` is that of the store. The search ended with the
    position `end`, of the event with the origin `end_origin`. `start_origin` is that of the event to start after.
    """

    oldest: int
    newest: int
    epoch: str
    start_origin: str | None
    end: int
    end_origin: str | None
    rows: Sequence[Row]  # see `stored_event`


def newest_id(database: Database, number: Callable[[], None] = lambda: None) -> str:
    """See `outbox.OutboxStore.last_event`. `number` gives committed events that have no position theirs."""
    ((is_unnumbered, epoch, newest, origin),) = database.rows(_SELECT_NEWEST, {})
    if is_unnumbered:
        number()
        ((_, epoch, newest, origin),) = database.rows(_SELECT_NEWEST, {})
    if not epoch:
        raise EpochMissing
    return id_of(newest, origin or epoch)


def events_of(stretch: Stretch, after: str, load_schemas: Callable[[str, str], None]) -> Events:
    """See `outbox.OutboxStore.events`. `load_schemas` gets the collection and the fingerprint of each event."""
    position, origin = parse_id(after)
    oldest, newest, epoch, start_origin, end, end_origin, rows = stretch
    if not epoch:
        raise EpochMissing
    swept = position == oldest - 1 and (origin == epoch or not position)  # or it is 0
    if after and not swept and (not oldest <= position <= newest or start_origin != origin):
        raise EventsExpired(
            "the events after this cursor are deleted, or it is of another service", resume=id_of(oldest - 1, epoch)
        )
    found = [stored_event(*row) for row in rows]
    for event in found:
        load_schemas(event.collection, event.fingerprint)
    return Events(found, id_of(end, end_origin or epoch), end < newest)


def stored_event(position: int, origin: str, *rest: Any) -> StoredEvent:
    """The event of a row: its position, its origin, and the rest of a StoredEvent."""
    return StoredEvent(id_of(position, origin), *rest)

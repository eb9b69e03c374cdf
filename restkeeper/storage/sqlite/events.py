"""Events in SQLite: the half of `outbox` that is about what has happened."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TypeVar

import orjson

from restkeeper.storage.errors import EventsExpired
from restkeeper.storage.outbox import LOOKED_AT, PAGE_BYTES, Event, EventFilter, Events, StoredEvent, is_event_id
from restkeeper.storage.sqlite.identity import EPOCH, epoch_of

T = TypeVar("T")

_RECORD = """\
INSERT INTO events
    (origin, type, collection, item, owner, at, data)
VALUES (?, ?, ?, ?, ?, ?, ?)"""

# Of the events between two positions, those that are filter.
WANTED = """\
position > :after AND position <= :until
    AND (
        collection IN (SELECT value FROM json_each(:collections))
        OR (owner = :owner AND collection IN (SELECT value FROM json_each(:own)))
    )
    AND EXISTS (SELECT 1 FROM json_each(:types) WHERE events.type GLOB value)"""

_SELECT = f"""\
SELECT
    position,
    origin,
    type,
    at,
    CAST(data AS BLOB)
FROM events
WHERE {WANTED}
ORDER BY position
LIMIT :limit"""  # noqa: S608 - constant conditions

# The epoch and the newest event, which there may not be.
_NEWEST = f"""\
SELECT
    {EPOCH},
    position,
    origin
FROM store, pragma_schema_version
    LEFT JOIN events ON position = (SELECT max(position) FROM events)"""  # noqa: S608 - a constant expression


class EventLog:
    """See `outbox.OutboxTransaction`."""

    _connection: sqlite3.Connection
    _epoch: str

    def record(self, event: Event) -> str:
        type, collection, item, at, data, owner = event
        row = (self._epoch, type, collection, item, owner, at, data.decode())
        return id_of(self._connection.execute(_RECORD, row).lastrowid or 0, self._epoch)


class EventReader:
    """See `outbox.OutboxStore`."""

    def _identified(self, read: Callable[[sqlite3.Connection], T | None]) -> T:
        raise NotImplementedError

    def _reader(self) -> AbstractContextManager[sqlite3.Connection]:
        raise NotImplementedError

    def last_event(self) -> str:
        return self._identified(_newest_id)

    def events(self, after: str, filter: EventFilter, limit: int) -> Events:
        return self._identified(partial(_find_events, after, filter, limit))


def _find_events(after: str, filter: EventFilter, limit: int, connection: sqlite3.Connection) -> Events | None:
    """See `outbox.OutboxStore.events`; None where the epoch is missing."""
    with snapshot(connection):
        if not (epoch := epoch_of(connection)):
            return None
        oldest, newest = oldest_of(connection), newest_of(connection)
        begin = _place(connection, after, oldest, newest, epoch) if after else oldest - 1
        until = min(begin + LOOKED_AT, newest)
        parameters = parameters_of(begin, until, filter) | {"limit": limit}
        found, size, end = [], 0, until
        for row in connection.execute(_SELECT, parameters):
            found.append(recorded(*row))
            size += len(row[-1])
            if len(found) == limit or size > PAGE_BYTES:
                end = row[0]
                break
        return Events(found, _id_at(connection, end, epoch), end < newest)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Whatever is read is of one moment; inside a transaction it is anyhow."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def id_of(position: int, origin: str) -> str:
    """The id of an event."""
    return f"evt_{origin}_{position:x}"


def parse_id(id: str) -> tuple[int, str]:
    """Position and origin in an event's id; those of no event in what is none."""
    if not is_event_id(id):
        return -1, ""
    _, origin, position = id.split("_")
    return int(position, 16), origin


def newest_of(connection: sqlite3.Connection) -> int:
    """The position of the newest event; 0 before the first."""
    return int(connection.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()[0])


def oldest_of(connection: sqlite3.Connection) -> int:
    """The position of the oldest event that is stored, or of the first there will be."""
    return int(connection.execute("SELECT coalesce(min(position), 1) FROM events").fetchone()[0])


def origin_of(connection: sqlite3.Connection, position: int) -> str | None:
    """The epoch of the store that wrote the event at a position; None where there is none."""
    row = connection.execute("SELECT origin FROM events WHERE position = ?", (position,)).fetchone()
    return row[0] if row else None


def _newest_id(connection: sqlite3.Connection) -> str:
    """The id of the newest event, or of the beginning; empty where the epoch is missing."""
    epoch, position, origin = connection.execute(_NEWEST).fetchone()
    return id_of(position or 0, origin or epoch) if epoch else ""


def _id_at(connection: sqlite3.Connection, position: int, epoch: str) -> str:
    """The id of the event at a position; before the first one that is stored, an id all the same."""
    return id_of(position, origin_of(connection, position) or epoch)


def _place(connection: sqlite3.Connection, id: str, oldest: int, newest: int, epoch: str) -> int:
    """The position of an event that is stored, or that came right before those. Raises EventsExpired."""
    position, origin = parse_id(id)
    if oldest <= position <= newest and origin_of(connection, position) == origin:
        return position
    if position == oldest - 1 and (origin == epoch or not position):  # it was swept, or is the beginning
        return position
    raise EventsExpired(
        "what came after this cursor is not kept any more, or it is another service's", resume=id_of(oldest - 1, epoch)
    )


def parameters_of(after: int, until: int, filter: EventFilter) -> dict[str, int | str | None]:
    """What WANTED takes."""
    return {
        "after": after,
        "until": until,
        "collections": orjson.dumps(filter.collections).decode(),
        "own": orjson.dumps(filter.own).decode(),
        "owner": filter.owner,
        "types": orjson.dumps(filter.types).decode(),
    }


def recorded(position: int, origin: str, type: str, at: str, data: bytes) -> StoredEvent:
    """A row as an event."""
    return StoredEvent(id_of(position, origin), type, at, data)

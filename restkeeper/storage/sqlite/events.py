"""Events in SQLite: reading the feed."""

import sqlite3

import orjson

from restkeeper.storage.errors import EventsExpired
from restkeeper.storage.eventid import id_of, parse_id
from restkeeper.storage.outbox import MOST_EXAMINED, PAGE_BYTES, EventFilter, Events
from restkeeper.storage.rows import stored_event
from restkeeper.storage.sqlite.connection import snapshot
from restkeeper.storage.sqlite.identity import EPOCH, epoch_of
from restkeeper.storage.sqlite.schemas import SqliteRegistry

# The events between two positions that match a filter.
MATCHES = """\
position > :after AND position <= :until
    AND (
        collection IN (SELECT value FROM json_each(:collections))
        OR (owner = :owner AND collection IN (SELECT value FROM json_each(:own)))
    )
    AND EXISTS (SELECT 1 FROM json_each(:types) WHERE events.type GLOB value)"""

# The columns of a stored event, for `stored_event`.
EVENT = """\
position,
    origin,
    type,
    at,
    CAST(data AS BLOB),
    collection,
    fingerprint,
    CAST(older AS BLOB)"""

_SELECT = f"""\
SELECT
    {EVENT}
FROM events
WHERE {MATCHES}
ORDER BY position
LIMIT :limit"""  # noqa: S608 - constant conditions

# The epoch, and the newest event, or nulls.
_NEWEST = f"""\
SELECT
    {EPOCH},
    position,
    origin
FROM store, pragma_schema_version
    LEFT JOIN events ON position = (SELECT max(position) FROM events)"""  # noqa: S608 - a constant expression


def find_events(
    connection: sqlite3.Connection, after: str, filter: EventFilter, limit: int, registry: SqliteRegistry
) -> Events | None:
    """See `outbox.OutboxStore.events`; None if the epoch is missing."""
    with snapshot(connection):
        if not (epoch := epoch_of(connection)):
            return None
        oldest, newest = oldest_of(connection), newest_of(connection)
        start = _position_of(connection, after, oldest, newest, epoch) if after else oldest - 1
        end = min(start + MOST_EXAMINED, newest)
        parameters = parameters_of(filter) | {"after": start, "until": end, "limit": limit}
        found, size = [], 0
        for row in connection.execute(_SELECT, parameters):
            found.append(event := stored_event(*row))
            registry.learn(connection, event.collection, event.fingerprint)
            size += len(event.data) + len(event.older or b"")
            if len(found) == limit or size > PAGE_BYTES:
                end = row[0]
                break
        return Events(found, id_of(end, origin_of(connection, end) or epoch), end < newest)


def newest_of(connection: sqlite3.Connection) -> int:
    """The position of the newest event; 0 before the first."""
    return int(connection.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()[0])


def oldest_of(connection: sqlite3.Connection) -> int:
    """The position of the oldest event; 1 before the first."""
    return int(connection.execute("SELECT coalesce(min(position), 1) FROM events").fetchone()[0])


def origin_of(connection: sqlite3.Connection, position: int) -> str | None:
    """The epoch of the store that wrote the event at a position; None without an event."""
    row = connection.execute("SELECT origin FROM events WHERE position = ?", (position,)).fetchone()
    return row[0] if row else None


def newest_id(connection: sqlite3.Connection) -> str:
    """The id of the newest event, or of position 0; empty if the epoch is missing."""
    epoch, position, origin = connection.execute(_NEWEST).fetchone()
    return id_of(position or 0, origin or epoch) if epoch else ""


def _position_of(connection: sqlite3.Connection, id: str, oldest: int, newest: int, epoch: str) -> int:
    """The position of a stored event, or of the one before the oldest. Raises EventsExpired."""
    position, origin = parse_id(id)
    if oldest <= position <= newest and origin_of(connection, position) == origin:
        return position
    if position == oldest - 1 and (origin == epoch or not position):  # it was swept, or is 0
        return position
    raise EventsExpired(
        "the events after this cursor are deleted, or it is of another service", resume=id_of(oldest - 1, epoch)
    )


def parameters_of(filter: EventFilter) -> dict[str, str | int | None]:
    """The parameters of MATCHES, besides `after` and `until`."""
    return {
        "collections": orjson.dumps(filter.collections).decode(),
        "own": orjson.dumps(filter.own).decode(),
        "owner": filter.owner,
        "types": orjson.dumps(filter.types).decode(),
    }

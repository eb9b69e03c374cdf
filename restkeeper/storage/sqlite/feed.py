"""The feed of events in SQLite, where they have their positions from the beginning. See `storage.feed`."""

from functools import partial

from restkeeper.storage.feed import Stretch, events_of
from restkeeper.storage.outbox import MOST_EXAMINED, PAGE_BYTES, EventFilter, Events, parse_id
from restkeeper.storage.records import Registry
from restkeeper.storage.sqlite.connection import EPOCH, EVENT, WANTED, SqliteConnection, snapshot

_SELECT_BOUNDS = f"""\
SELECT
    (SELECT coalesce(min(position), 1) FROM events),
    (SELECT coalesce(max(position), 0) FROM events),
    {EPOCH},
    (SELECT origin FROM events WHERE position = ?)
FROM store, pragma_schema_version"""  # noqa: S608 - a constant expression

_SELECT = f"""\
SELECT
    {EVENT}
FROM events
WHERE position > :after AND position <= :until AND {WANTED}
ORDER BY position
LIMIT :limit"""  # noqa: S608 - constant conditions


def find_events(
    connection: SqliteConnection, after: str, filter: EventFilter, limit: int, registry: Registry
) -> Events:
    """See `feed.events_of`."""
    with snapshot(connection):
        position, _ = parse_id(after)
        oldest, newest, epoch, start_origin = connection.execute(_SELECT_BOUNDS, (position,)).fetchone()
        start = position if after else oldest - 1
        end = min(start + MOST_EXAMINED, newest)
        rows, size = [], 0
        wanted = {**connection.parameters_of(filter), "after": start, "until": end, "limit": limit}
        for row in connection.execute(_SELECT, wanted):
            rows.append(row)
            size += len(row[4]) + len(row[7] or b"")
            if len(rows) == limit or size > PAGE_BYTES:
                end = row[0]
                break
        end_origin = connection.execute("SELECT origin FROM events WHERE position = ?", (end,)).fetchone()
        stretch = Stretch(oldest, newest, epoch, start_origin, end, end_origin and end_origin[0], rows)
        return events_of(stretch, after, partial(registry.load_schemas, connection))

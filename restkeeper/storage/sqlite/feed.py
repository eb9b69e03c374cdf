"""The feed of events in SQLite. What it has in all databases is in `storage/feed.py`."""

from restkeeper.storage.feed import MOST_EXAMINED, PAGE_BYTES, EventFilter, Events, Feed, events_of, parse_id
from restkeeper.storage.sqlite.connection import EPOCH, SqliteConnection, snapshot

_SELECT_BOUNDS = f"""\
SELECT
    (SELECT coalesce(min(position), 1) FROM events),
    (SELECT coalesce(max(position), 0) FROM events),
    {EPOCH},
    (SELECT origin FROM events WHERE position = ?)
FROM store, pragma_schema_version"""  # noqa: S608 - a constant expression

_SELECT_ORIGIN = "SELECT (SELECT origin FROM events WHERE position = ?)"

_SELECT_EVENTS = """\
SELECT
    {event_for_readers}
FROM events
WHERE position > :after AND position <= :until AND {wanted}
ORDER BY position
LIMIT :limit"""


class SqliteFeed(Feed):
    """See `feed.Feed`. An event has its position from the beginning."""

    database: SqliteConnection

    def find(self, after: str, filter: EventFilter, limit: int) -> Events:
        with snapshot(self.database):
            position, _ = parse_id(after)
            bounds = self.database.execute(_SELECT_BOUNDS, (position,)).fetchone()
            oldest, newest, *_ = bounds
            start = position if after else oldest - 1
            end = min(start + MOST_EXAMINED, newest)
            rows, size = [], 0
            values = {**self.parameters(filter), "after": start, "until": end, "limit": limit}
            for row in self.database.select(_SELECT_EVENTS, values):
                rows.append(row)
                size += len(row[4]) + len(row[7] or b"")
                if len(rows) == limit or size > PAGE_BYTES:
                    return events_of(bounds, after, rows)
            (end_origin,) = self.database.execute(_SELECT_ORIGIN, (end,)).fetchone()
            return events_of(bounds, after, rows, end, end_origin)

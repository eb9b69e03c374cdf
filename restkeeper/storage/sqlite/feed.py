"""Events in SQLite, where they have their positions from the beginning: how they are recorded, and read.

What the outbox has in all databases is in `storage/deliveries.py` and `storage/feed.py`.
"""

import sqlite3
from collections.abc import Callable

from restkeeper.storage.deliveries import Deliveries
from restkeeper.storage.errors import RecordNotFound, StoreError
from restkeeper.storage.feed import Stretch, events_of
from restkeeper.storage.outbox import MOST_EXAMINED, PAGE_BYTES, Event, EventFilter, Events, parse_id
from restkeeper.storage.schemas import Registry
from restkeeper.storage.sqlite.connection import snapshot
from restkeeper.storage.sqlite.dialect import EVENT, WANTED, SqliteDatabase
from restkeeper.storage.sqlite.identity import EPOCH

_RECORD = """\
INSERT INTO events
    (origin, type, collection, item, owner, at, data, fingerprint, older)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""

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
    connection: sqlite3.Connection, after: str, filter: EventFilter, limit: int, learn: Callable[[str, str], None]
) -> Events | None:
    """See `feed.events_of`; None if the epoch is missing."""
    with snapshot(connection):
        position, _ = parse_id(after)
        oldest, newest, epoch, start_origin = connection.execute(_SELECT_BOUNDS, (position,)).fetchone()
        if not epoch:
            return None
        start = position if after else oldest - 1
        end = min(start + MOST_EXAMINED, newest)
        rows, size = [], 0
        wanted = {**SqliteDatabase(connection).parameters_of(filter), "after": start, "until": end, "limit": limit}
        for row in connection.execute(_SELECT, wanted):
            rows.append(row)
            size += len(row[4]) + len(row[7] or b"")
            if len(rows) == limit or size > PAGE_BYTES:
                end = row[0]
                break
        end_origin = connection.execute("SELECT origin FROM events WHERE position = ?", (end,)).fetchone()
        stretch = Stretch(oldest, newest, epoch, start_origin, end, end_origin and end_origin[0], rows)
        return events_of(stretch, after, learn)


class Outbox(Deliveries):
    """See `outbox.OutboxTransaction`."""

    def __init__(self, connection: sqlite3.Connection, epoch: str, registry: Registry) -> None:
        self._connection = connection
        self._database = SqliteDatabase(connection)
        self._epoch = epoch
        self._registry = registry
        self._failure: StoreError | None = None

    def require_success(self) -> None:
        """Raises the exception of a change that has ended the transaction, or the innermost savepoint."""
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: StoreError) -> StoreError:
        """The exception of a change, to be raised."""
        self._failure = error
        return error

    def record(self, event: Event) -> None:
        self._record_now(event)

    def _record_now(self, event: Event) -> tuple[int, str]:
        type, collection, item, at, data, owner, fingerprint, older = event
        texts = data.decode(), fingerprint, None if older is None else older.decode()
        row = (self._epoch, type, collection, item, owner, at, *texts)
        return self._connection.execute(_RECORD, row).lastrowid or 0, self._epoch

    def queue_manually(self, webhook: str, event: str | Event) -> int:
        try:
            return super().queue_manually(webhook, event)
        except RecordNotFound as error:
            raise self._failed(error) from None

    def _number_all(self) -> None:
        """See `Deliveries`: they have their positions from the beginning."""

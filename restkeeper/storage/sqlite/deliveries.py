"""Deliveries in SQLite: what differs, see `storage/deliveries.py`; and the recording of events."""

import sqlite3

from restkeeper.storage.deliveries import Deliveries
from restkeeper.storage.errors import RecordNotFound, StoreError
from restkeeper.storage.outbox import Event
from restkeeper.storage.schemas import Registry
from restkeeper.storage.sqlite.dialect import SqliteDatabase

_RECORD = """\
INSERT INTO events
    (origin, type, collection, item, owner, at, data, fingerprint, older)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""


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

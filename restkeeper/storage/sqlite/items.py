"""Items and responses in SQLite."""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from math import inf
from time import thread_time
from typing import Any

import orjson

from restkeeper.storage.errors import (
    DuplicateValue,
    RecordNotFound,
    ReferenceMissing,
    ResponseStored,
    RevisionDiffers,
    SearchTooLong,
    StoreError,
)
from restkeeper.storage.interface import Collection, Record, StoredResponse
from restkeeper.storage.sqlite.connection import DIALECT, SqliteConnection, interrupt_after
from restkeeper.storage.sqlite.migrations import fields_of
from restkeeper.storage.transactions import INSERT, NOT_FOUND, Transaction, values_of

_TOUCH = "UPDATE counters SET changes = changes + 1, items = items + ? WHERE collection = ? AND revision = ?"

_SET_ASIDE = """\
UPDATE items SET collection = :aside
WHERE collection = :collection
    AND id IN (SELECT id FROM items WHERE collection = :collection ORDER BY id LIMIT :most)"""
SET_ASIDE_TOGETHER = 100  # items

_ABSENT = """\
SELECT value
FROM json_each(?)
WHERE NOT EXISTS (SELECT 1 FROM items WHERE collection = ? AND id = value)
ORDER BY key LIMIT 1"""

_INSERT_RESPONSE = "INSERT INTO responses (id, stored_at, body) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING"

_DELETE_EXPIRED = "DELETE FROM responses WHERE id = ? AND stored_at < ?"

_SWEEP = """\
DELETE FROM responses
WHERE rowid IN (SELECT rowid FROM responses ORDER BY rowid LIMIT ?) AND NOT stored_at BETWEEN ? AND ?"""


class SqliteTransaction(Transaction):
    """See `base.Transaction`. It has the only lock, on the whole file: a record need not be locked."""

    feed = "restkeeper.storage.sqlite.feed:SqliteFeed"
    database: SqliteConnection

    def __init__(self, connection: SqliteConnection, collections: Mapping[str, Collection]) -> None:
        self.database = connection
        self._collections = collections
        self._failure: StoreError | None = None

    def require_success(self) -> None:
        """Raises the exception of a change that has ended the transaction, or the innermost savepoint."""
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: StoreError) -> StoreError:
        """The exception of a change, to be raised."""
        self._failure = error
        return error

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        before, self._failure = self._failure, None
        self.database.execute("SAVEPOINT changes")
        try:
            yield
            self.require_success()
        except BaseException:
            if self.database.in_transaction:  # SQLite itself ends it after some errors, such as of a full disk
                self.database.execute("ROLLBACK TO changes")
            raise
        finally:
            self._failure = before
            if self.database.in_transaction:
                self.database.execute("RELEASE changes")

    @contextmanager
    def _limit(self, seconds: float | None) -> Iterator[None]:
        if seconds is None:
            yield
            return
        error = partial(self._failed, SearchTooLong(seconds))  # the whole transaction is of others, too, and goes on
        now = thread_time  # which no other process makes longer
        with self._timed(now), interrupt_after(self.database, seconds, now, error):
            yield

    def require_present(self, collection: str, ids: Sequence[str], missing: Callable[[str], ReferenceMissing]) -> None:
        for (absent,) in self.database.execute(_ABSENT, (orjson.dumps(ids).decode(), collection)).fetchall():
            raise self._failed(missing(absent))

    def store_response(self, id: bytes, response: StoredResponse, *, expired_before: float) -> None:
        if self.database.execute(_INSERT_RESPONSE, (id, *response)).rowcount:
            return
        if not self.database.execute(_DELETE_EXPIRED, (id, expired_before)).rowcount:
            raise self._failed(ResponseStored("the response to this request is stored"))
        self.database.execute(_INSERT_RESPONSE, (id, *response))

    def sweep_responses(self, before: float, limit: int, *, latest: float = inf) -> int:
        return self.database.execute(_SWEEP, (limit, before, latest)).rowcount

    def insert_all(self, collection: str, records: Sequence[Record]) -> None:
        """Inserts all records by one statement, which opens the indexes once."""
        insert, values, row = DIALECT[INSERT].partition("VALUES ")
        names = re.findall(r":(\w+)", row)
        rows = [[values[name] for name in names] for values in (values_of(collection, record) for record in records)]
        marks = ", ".join([f"({', '.join('?' * len(names))})"] * len(rows))
        try:
            self.database.execute(f"{insert}{values}{marks}", [*chain(*rows)])
        except sqlite3.IntegrityError as error:
            raise self._failed(DuplicateValue(*fields_of(error))) from None
        self._touch(collection, len(records))

    def _change(
        self, statement: str, item: Mapping[str, Any], of: Record | None = None, *, adds: int = 0, counts: bool = True
    ) -> None:
        try:
            cursor = self.database.execute(DIALECT[statement], item)
        except sqlite3.IntegrityError as error:
            raise self._failed(DuplicateValue(*fields_of(error), collection=item["collection"], of=of)) from None
        if cursor.rowcount == 0:
            raise self._failed(RecordNotFound(NOT_FOUND))
        if counts:
            self._touch(item["collection"], adds)

    def set_aside(self, collection: str) -> str:
        """Moves the items in parts: a statement has a copy of each page that it changes in memory."""
        values = {"collection": collection, "aside": f"{collection}!", "most": SET_ASIDE_TOGETHER}
        while self.database.execute(_SET_ASIDE, values).rowcount:
            pass
        return str(values["aside"])

    def _touch(self, collection: str, adds: int) -> None:
        revision = self._collections[collection].revision
        if not self.database.execute(_TOUCH, (adds, collection, revision)).rowcount:
            raise self._failed(RevisionDiffers(collection, revision, self.revision(collection)))

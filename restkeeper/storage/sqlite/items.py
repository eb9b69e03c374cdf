"""Items and responses in SQLite."""

import re
import sqlite3
from math import inf
from typing import Any

from restkeeper.storage.contract import Record, StoredResponse
from restkeeper.storage.errors import DuplicateValue, RecordNotFound
from restkeeper.storage.sqlite import sql
from restkeeper.storage.sqlite.deliveries import Outbox
from restkeeper.storage.sqlite.identity import revision
from restkeeper.storage.sqlite.schemas import Registry

_READ = f"""\
SELECT
{sql.COLUMNS}
FROM items
WHERE collection = ? AND id = ?"""  # noqa: S608 - constant columns

_INSERT = """\
INSERT INTO items
    (collection, id, version, updated_at, fingerprint, body, owner, older)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""

_UPDATE = """\
UPDATE items SET
    version = ?,
    updated_at = ?,
    fingerprint = ?,
    body = ?,
    owner = ?,
    older = ?
WHERE collection = ? AND id = ?"""

_DELETE = "DELETE FROM items WHERE collection = ? AND id = ?"

_TOUCH = "UPDATE collections SET revision = revision + 1, items = items + ? WHERE name = ?"

_SWEEP = """\
DELETE FROM answers
WHERE rowid IN (SELECT rowid FROM answers ORDER BY rowid LIMIT ?) AND NOT given BETWEEN ? AND ?"""

_NOT_FOUND = "there is no such item"


class SqliteTransaction(Outbox):
    """See `contract.Transaction`. The file keeps its `epoch` while the transaction is open."""

    def read(self, collection: str, id: str) -> Record:
        return read_item(self._connection, collection, id, self._registry)

    def revision(self, collection: str) -> str:
        statement = "SELECT revision FROM collections WHERE name = ?"
        (number,) = self._connection.execute(statement, (collection,)).fetchone()
        return revision(self._epoch, number)

    def other_fingerprints(self, collection: str) -> list[str]:
        return self._registry.others(self._connection, collection)

    def insert(self, collection: str, record: Record) -> None:
        self._execute(_INSERT, (collection, record.id, *_columns(record)))
        self._connection.execute(_TOUCH, (1, collection))

    def update(self, collection: str, record: Record) -> None:
        self._execute(_UPDATE, (*_columns(record), collection, record.id))
        self._connection.execute(_TOUCH, (0, collection))

    def delete(self, collection: str, id: str) -> None:
        self._execute(_DELETE, (collection, id))
        self._connection.execute(_TOUCH, (-1, collection))

    def find_response(self, id: bytes) -> StoredResponse | None:
        return find_response(self._connection, id)

    def store_response(self, id: bytes, response: StoredResponse) -> None:
        self._connection.execute("REPLACE INTO answers (id, given, body) VALUES (?, ?, ?)", (id, *response))

    def sweep_responses(self, before: float, limit: int, *, latest: float = inf) -> int:
        return self._connection.execute(_SWEEP, (limit, before, latest)).rowcount

    def _execute(self, statement: str, parameters: tuple[Any, ...]) -> None:
        try:
            cursor = self._connection.execute(statement, parameters)
        except sqlite3.IntegrityError as error:
            index = re.search(r"index '(.+)'", str(error))
            raise DuplicateValue(sql.field_of(index[1]) if index else "id") from None
        if cursor.rowcount == 0:
            raise RecordNotFound(_NOT_FOUND)


def _columns(record: Record) -> tuple[Any, ...]:
    """The values of a record in the order of _INSERT and _UPDATE, without its id."""
    _, version, updated_at, fingerprint, body, owner, older = record
    return version, updated_at, fingerprint, body.decode(), owner, None if older is None else older.decode()


def read_item(connection: sqlite3.Connection, collection: str, id: str, registry: Registry) -> Record:
    """See `contract.ItemStore.read`."""
    row = connection.execute(_READ, (collection, id)).fetchone()
    if row is None:
        raise RecordNotFound(_NOT_FOUND)
    record = Record._make(row)
    registry.require(connection, collection, record.fingerprint)
    return record


def find_response(connection: sqlite3.Connection, id: bytes) -> StoredResponse | None:
    """See `contract.Store.find_response`."""
    row = connection.execute("SELECT given, body FROM answers WHERE id = ?", (id,)).fetchone()
    return StoredResponse._make(row) if row else None

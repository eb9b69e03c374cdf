"""The registry of schemas in SQLite: which schemas items were stored with, and in which order they came."""

import sqlite3

from restkeeper.storage.contract import MOST_SCHEMAS, Collection, StoredSchema
from restkeeper.storage.errors import StoreUnavailable

_SELECT = """\
SELECT
    fingerprint,
    revision,
    oldest,
    fields
FROM schemas
WHERE collection = ?
ORDER BY place"""

_INSERT = """\
INSERT INTO schemas
    (collection, fingerprint, revision, oldest, fields)
VALUES (?, ?, ?, ?, ?)"""

# All but the newest ones.
_LIMIT = """\
DELETE FROM schemas
WHERE collection = :collection AND place NOT IN (
    SELECT place FROM schemas WHERE collection = :collection ORDER BY place DESC LIMIT :most
)"""

_IS_USED = """\
SELECT EXISTS (SELECT 1 FROM items WHERE collection = :collection)
    OR EXISTS (SELECT 1 FROM events WHERE collection = :collection)"""


def read_schemas(connection: sqlite3.Connection, collection: str) -> list[StoredSchema]:
    """See `contract.ItemStore.schemas`."""
    return list(map(StoredSchema._make, connection.execute(_SELECT, (collection,))))


def is_registered(connection: sqlite3.Connection, collection: Collection) -> bool:
    """Whether the schema of a collection is registered, if it has one."""
    if collection.schema is None:
        return True
    query = "SELECT 1 FROM schemas WHERE collection = ? AND fingerprint = ?"
    return connection.execute(query, (collection.name, collection.schema.fingerprint)).fetchone() is not None


def register(connection: sqlite3.Connection, collection: Collection) -> None:
    """Register the schema of a collection, in the transaction that is open.

    Raises StoreUnavailable if it cannot follow those that are registered.
    """
    if collection.schema is None or is_registered(connection, collection):
        return
    if connection.execute(_IS_USED, {"collection": collection.name}).fetchone()[0]:
        try:
            collection.require_successor(read_schemas(connection, collection.name))
        except ValueError as error:
            raise StoreUnavailable(str(error)) from None
    else:
        connection.execute("DELETE FROM schemas WHERE collection = ?", (collection.name,))
    connection.execute(_INSERT, (collection.name, *collection.schema))
    connection.execute(_LIMIT, {"collection": collection.name, "most": MOST_SCHEMAS})

"""The registry of schemas in SQLite: which schemas items were stored with, and in which order they came."""

import sqlite3

from restkeeper.storage.contract import MOST_SCHEMAS, Collection, StoredSchema
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.registry import Registry
from restkeeper.storage.statements import select_other_fingerprints

_SELECT = """\
SELECT
    fingerprint,
    revision,
    oldest,
    fields
FROM schemas
WHERE collection = ?
ORDER BY number"""

_INSERT = """\
INSERT INTO schemas
    (collection, fingerprint, revision, oldest, fields)
VALUES (?, ?, ?, ?, ?)"""

# All but the newest ones.
_LIMIT = """\
DELETE FROM schemas
WHERE collection = :collection AND number NOT IN (
    SELECT number FROM schemas WHERE collection = :collection ORDER BY number DESC LIMIT :most
)"""

_IS_USED = """\
SELECT EXISTS (SELECT 1 FROM items WHERE collection = :collection AND fingerprint = :fingerprint)
    OR EXISTS (SELECT 1 FROM events WHERE collection = :collection AND fingerprint = :fingerprint)"""


class SqliteRegistry(Registry):
    """See `registry.Registry`."""

    def learn(self, connection: sqlite3.Connection, collection: str, *fingerprints: str) -> None:
        """As `require`, of the schemas in the store."""
        self.learn_of(collection, fingerprints, lambda: read_schemas(connection, collection))

    def others(self, connection: sqlite3.Connection, collection: str) -> list[str]:
        """See `contract.ItemTransaction.other_fingerprints`."""
        if (declared := self.collections.get(collection)) is None:
            return []
        found = [fingerprint for (fingerprint,) in connection.execute(select_other_fingerprints(declared))]
        self.learn(connection, collection, *found)
        return found


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

    Raises StoreUnavailable if stored items do not fit it.
    """
    if collection.schema is None or is_registered(connection, collection):
        return
    for schema in reversed(read_schemas(connection, collection.name)):  # what the newest does not fit is the cause
        used = {"collection": collection.name, "fingerprint": schema.fingerprint}
        if (conflict := collection.conflict(schema)) and connection.execute(_IS_USED, used).fetchone()[0]:
            raise StoreUnavailable(conflict)
    connection.execute(_INSERT, (collection.name, *collection.schema))
    connection.execute(_LIMIT, {"collection": collection.name, "most": MOST_SCHEMAS})

"""The registry of schemas: which schemas the items of a store have, and in which order they came."""

from collections.abc import Iterable, Sequence

from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import MOST_SCHEMAS, Collection, Record, StoredSchema
from restkeeper.storage.sql import Database, of_other_revision

_SELECT = """\
SELECT
    fingerprint,
    revision,
    oldest,
    fields
FROM schemas
WHERE collection = :collection
ORDER BY number"""

_IS_REGISTERED = "SELECT 1 FROM schemas WHERE collection = :collection AND fingerprint = :fingerprint"

_INSERT = """\
INSERT INTO schemas
    (collection, fingerprint, revision, oldest, fields)
VALUES (:collection, :fingerprint, :revision, :oldest, :fields)"""

# All but the newest ones.
_LIMIT = """\
DELETE FROM schemas
WHERE collection = :collection AND number NOT IN (
    SELECT number FROM schemas WHERE collection = :collection ORDER BY number DESC LIMIT :most
)"""

_IS_USED = """\
SELECT EXISTS (SELECT 1 FROM items WHERE collection = :collection AND fingerprint = :fingerprint)
    OR EXISTS (SELECT 1 FROM events WHERE collection = :collection AND fingerprint = :fingerprint)"""


_OF_FINGERPRINTS = """\
SELECT
{item}
FROM items
WHERE {is_of_fingerprints}"""


class Registry:
    """The registered schemas that the collections of a process have.

    Each collection gets all registered ones before it gets an item of a new one, see `interface.Collection`.
    """

    def __init__(self, collections: Iterable[Collection]) -> None:
        self.collections = {each.name: each for each in collections if each.schema}
        self._loaded: dict[str, set[str]] = {name: set() for name in self.collections}

    def load_schemas(self, database: Database, collection: str, *fingerprints: str) -> None:
        """Give the collection all registered schemas, if it does not have these."""
        loaded = self._loaded.get(collection)
        if loaded is None or loaded.issuperset(fingerprints):
            return
        schemas = read_schemas(database, collection)
        self.collections[collection].on_schemas(schemas)
        if len(loaded) > 2 * MOST_SCHEMAS:
            loaded.clear()
        loaded.update(fingerprints, [schema.fingerprint for schema in schemas])


def read_schemas(database: Database, collection: str) -> list[StoredSchema]:
    """See `interface.ItemStore.schemas`."""
    return list(map(StoredSchema._make, database.rows(_SELECT, {"collection": collection})))


def find_others(database: Database, collection: Collection, fingerprints: Sequence[str], limit: int) -> list[Record]:
    """See `interface.ItemStore.of_fingerprints`."""
    statement = f"{_OF_FINGERPRINTS} AND {of_other_revision(collection)} LIMIT :limit"
    return list(map(Record._make, database.rows(statement, {"fingerprints": list(fingerprints), "limit": limit})))


def is_registered(database: Database, collection: Collection) -> bool:
    """Whether the schema of a collection is registered, if it has one."""
    if collection.schema is None:
        return True
    wanted = {"collection": collection.name, "fingerprint": collection.schema.fingerprint}
    return bool(database.rows(_IS_REGISTERED, wanted))


def register(database: Database, collection: Collection) -> None:
    """Register the schema of a collection, in the transaction that is open.

    Raises StoreUnavailable if stored items do not fit it.
    """
    if collection.schema is None or is_registered(database, collection):
        return
    for schema in reversed(read_schemas(database, collection.name)):  # what the newest does not fit is the cause
        used = {"collection": collection.name, "fingerprint": schema.fingerprint}
        if (conflict := collection.conflict(schema)) and database.rows(_IS_USED, used)[0][0]:
            raise StoreUnavailable(conflict)
    database.change(_INSERT, {"collection": collection.name, **collection.schema._asdict()})
    database.change(_LIMIT, {"collection": collection.name, "most": MOST_SCHEMAS})

"""The registry of schemas in PostgreSQL: which schemas items were stored with, and in which order they came."""

from restkeeper.storage.contract import MOST_SCHEMAS, Collection, StoredSchema
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.postgresql.session import Session

_SELECT = """\
SELECT
    fingerprint,
    revision,
    oldest,
    fields
FROM schemas
WHERE collection = %s
ORDER BY number"""

_INSERT = """\
INSERT INTO schemas
    (collection, fingerprint, revision, oldest, fields)
VALUES (%s, %s, %s, %s, %s)"""

# All but the newest ones.
_LIMIT = """\
DELETE FROM schemas
WHERE collection = %(collection)s AND number NOT IN (
    SELECT number FROM schemas WHERE collection = %(collection)s ORDER BY number DESC LIMIT %(most)s
)"""

_IS_USED = """\
SELECT EXISTS (SELECT 1 FROM items WHERE collection = %(collection)s AND fingerprint = %(fingerprint)s)
    OR EXISTS (SELECT 1 FROM events WHERE collection = %(collection)s AND fingerprint = %(fingerprint)s)"""


def read_schemas(session: Session, collection: str) -> list[StoredSchema]:
    """See `contract.ItemStore.schemas`."""
    return list(map(StoredSchema._make, session.rows(_SELECT, (collection,))))


def is_registered(session: Session, collection: Collection) -> bool:
    """Whether the schema of a collection is registered, if it has one."""
    if collection.schema is None:
        return True
    query = "SELECT 1 FROM schemas WHERE collection = %s AND fingerprint = %s"
    return session.row(query, (collection.name, collection.schema.fingerprint)) is not None


def register(session: Session, collection: Collection) -> None:
    """Register the schema of a collection, in the transaction that is open.

    Raises StoreUnavailable if stored items do not fit it.
    """
    if collection.schema is None or is_registered(session, collection):
        return
    for schema in reversed(read_schemas(session, collection.name)):  # what the newest does not fit is the cause
        used = {"collection": collection.name, "fingerprint": schema.fingerprint}
        if (conflict := collection.conflict(schema)) and session.rows(_IS_USED, used) == [(True,)]:
            raise StoreUnavailable(conflict)
    session.change(_INSERT, (collection.name, *collection.schema))
    session.change(_LIMIT, {"collection": collection.name, "most": MOST_SCHEMAS})

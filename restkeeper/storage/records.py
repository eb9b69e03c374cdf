"""What stores read in the same way in all databases: by keys, change tokens, and registered schemas."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from restkeeper.storage.errors import GONE, EpochMissing, StoreUnavailable
from restkeeper.storage.interface import Collection, Found, Key, Record, StoredResponse, StoredSchema
from restkeeper.storage.sql import Database, change_token, require_revision

_STATE = """\
SELECT
    (SELECT {epoch} FROM {store}),
    CAST(sum(changes) AS bigint),
    CAST(sum(items) AS bigint),
    max(revision)
FROM counters
WHERE collection = :collection"""

_STORED = """\
SELECT collection, max(revision), CAST(sum(items) AS bigint), max(converted_at)
FROM counters
GROUP BY collection"""

# Each row has the number of its key, of a response the time, and the columns of a record.
_ITEM = """\
SELECT
    NUMBER,
    CAST(NULL AS double precision),
    {item}
FROM items
WHERE collection = :collectionNUMBER AND id = :keyNUMBER"""

_RESPONSE = """\
SELECT NUMBER, stored_at, NULL, NULL, NULL, NULL, body, NULL, NULL
FROM responses
WHERE id = :keyNUMBER"""

_CHANGES = """\
SELECT
    NUMBER,
    NULL,
    (SELECT {epoch} FROM {store}),
    CAST(sum(changes) AS bigint),
    NULL, NULL, NULL, NULL, NULL
FROM counters
WHERE collection = :keyNUMBER"""

_OF_KIND: dict[type, str] = {tuple: _ITEM, bytes: _RESPONSE, str: _CHANGES}

_SCHEMAS = """\
SELECT fingerprint, revision, fields
FROM schemas
WHERE collection = :collection
ORDER BY number"""

_IS_REGISTERED = "SELECT 1 FROM schemas WHERE collection = :collection AND fingerprint = :fingerprint"

_REGISTER = """\
INSERT INTO schemas
    (collection, fingerprint, revision, fields)
VALUES (:collection, :fingerprint, :revision, :fields)"""

_UNREGISTER = "DELETE FROM schemas WHERE collection = :collection AND fingerprint = :fingerprint"

# Whether there are items of a schema's revision or a former one; whether some, and then events, can be of the schema. A
# "+" is behind the fingerprint of one that has members which its writer does not know: they can be of each schema.
_USE = """\
SELECT
    present.items > 0 AND present.revision <= :revision,
    EXISTS (
        SELECT 1 FROM items
        WHERE present.revision = :revision AND collection = :collection
            AND (fingerprint = :fingerprint OR rtrim(fingerprint, '+') <> fingerprint)
    ),
    EXISTS (SELECT 1 FROM events WHERE collection = :collection AND rtrim(fingerprint, '+') = :fingerprint)
FROM (
    SELECT coalesce(sum(items), 0) AS items, max(abs(revision)) AS revision FROM counters WHERE collection = :collection
) AS present"""


class StoredState(NamedTuple):
    """What a store knows of a collection: the revision of its items, their number, and when they were converted last.

    On PostgreSQL it is the former one, negated, while they are converted. The time is RFC 3339; empty if they were not.
    """

    revision: int
    items: int
    converted_at: str


def read_schemas(database: Database, collection: str) -> list[StoredSchema]:
    """The registered schemas of a collection, in the order of their registration."""
    return list(map(StoredSchema._make, database.rows(_SCHEMAS, {"collection": collection})))


def is_registered(database: Database, collection: Collection) -> bool:
    """Whether the schema of a collection is registered, if it has one."""
    if collection.schema is None:
        return True
    values = {"collection": collection.name, "fingerprint": collection.schema.fingerprint}
    return bool(database.rows(_IS_REGISTERED, values))


def register(database: Database, collection: Collection) -> None:
    """Register the schema of a collection, in the transaction that is open.

    Raises StoreUnavailable if stored items do not fit it, or those that a program can store which has stored none yet;
    without items the schema of such a program is deleted, so that its next start is compared with what there is then.
    Raises it also for a collection that is GONE.
    """
    if collection.schema is None or is_registered(database, collection):
        return
    if (stored := stored_states(database).get(collection.name)) and stored.revision == GONE:
        remedy = "update this program. For a new collection with this name, first let a program that does not serve it"
        remedy += f" run `restkeeper forget {collection.name}`, which leaves the items that have another name"
        raise StoreUnavailable(f"{collection.name} has another name now, or is being deleted: {remedy}")
    for schema in reversed(read_schemas(database, collection.name)):  # what the newest does not fit is the cause
        if not (conflict := collection.conflict(schema, False)):
            continue
        values = {"collection": collection.name, "fingerprint": schema.fingerprint, "revision": schema.revision}
        ((has_items, in_items, in_events),) = database.rows(_USE, values)
        if in_items or in_events or (has_items and (conflict := collection.conflict(schema, True))):
            raise StoreUnavailable(conflict)
        if schema.revision == collection.revision and not has_items:
            database.change(_UNREGISTER, {"collection": collection.name, "fingerprint": schema.fingerprint})
    database.change(_REGISTER, {"collection": collection.name, **collection.schema._asdict()})


def epoch_of(database: Database) -> str:
    """The epoch of the store; empty if it is missing."""
    return str(database.rows("SELECT {epoch} FROM {store}", {})[0][0])


def require_epoch(database: Database) -> str:
    """The epoch of the store. Raises EpochMissing."""
    if epoch := epoch_of(database):
        return epoch
    raise EpochMissing


def state_of(database: Database, collection: Collection) -> tuple[str, int]:
    """The change token of a collection, and the number of its items. Raises EpochMissing and RevisionDiffers."""
    ((epoch, changes, items, revision),) = database.rows(_STATE, {"collection": collection.name})
    require_revision(collection, revision)
    return change_token(epoch, changes), items or 0


def stored_states(database: Database) -> dict[str, StoredState]:
    """See `base.Store.stored`."""
    return {name: StoredState._make(row) for name, *row in database.rows(_STORED, {})}


def look_up(database: Database, keys: Sequence[Key]) -> list[Found]:
    """See `base.Store.look_up`."""
    parameters: dict[str, Any] = {}
    for n, key in enumerate(keys):
        if isinstance(key, tuple):
            parameters[f"collection{n}"], parameters[f"key{n}"] = key
        else:
            parameters[f"key{n}"] = key
    results: list[Found] = [None] * len(keys)
    for number, stored_at, *row in database.rows(_statement(tuple(map(type, keys))), parameters):
        key = keys[number]
        if isinstance(key, tuple):
            results[number] = Record._make(row)
        elif isinstance(key, bytes):
            results[number] = StoredResponse(stored_at, row[4])
        else:
            results[number] = change_token(row[0], row[1])
    return results


@lru_cache(maxsize=16)  # of an item, a response and a change token, two at most
def _statement(kinds: tuple[type, ...]) -> str:
    return "\nUNION ALL\n".join(_OF_KIND[kind].replace("NUMBER", str(n)) for n, kind in enumerate(kinds))

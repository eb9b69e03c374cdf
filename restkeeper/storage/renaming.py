"""Collections that get another name, or go: all that a store has of them, in both databases.

The former name keeps a row of counters: programs that serve it read there that it is GONE.
"""

from restkeeper.storage.errors import GONE
from restkeeper.storage.interface import LAST_IDS
from restkeeper.storage.sql import MIGRATIONS, Database, require_usable
from restkeeper.storage.transactions import Transaction

_LAST_IDS = f"collection = '{LAST_IDS.name}' AND id IN (:old, :new)"

# What the new name has without items was of its schemas and its indexes at most: the next start makes these again. Its
# change token goes on, and of two last ids the greater one. The end of a type, such as .created, has 8 characters.
_RENAME = (
    "DELETE FROM schemas WHERE collection = :new",
    """\
UPDATE counters SET
    changes = changes + 1 + (SELECT CAST(coalesce(sum(changes), 0) AS bigint) FROM counters WHERE collection = :new)
WHERE collection = :old""",
    "DELETE FROM counters WHERE collection = :new",
    *(f"UPDATE {table} SET collection = :new WHERE collection = :old" for table in ("items", "counters", "schemas")),  # noqa: S608 - constants
    "INSERT INTO counters (collection, revision) VALUES (:old, :gone)",
    """\
UPDATE events SET
    collection = :new,
    type = CAST(:singular AS text) || substr(type, length(type) - 7)
WHERE collection = :old""",
    f"""\
DELETE FROM items
WHERE {_LAST_IDS} AND id <> (SELECT id FROM items WHERE {_LAST_IDS} ORDER BY version DESC LIMIT 1)""",  # noqa: S608 - a constant
    f"UPDATE items SET id = :new WHERE {_LAST_IDS}",  # noqa: S608 - likewise
)

# A singleton has the name as its id.
_RENAME_SINGLETON = (
    "UPDATE items SET id = :new WHERE collection = :new AND id = :old",
    "UPDATE events SET item = :new WHERE collection = :new AND item = :old",
)

# The items of deliveries; those of one item are in order: see `deliveries._QUEUE`.
_RENAME_DELIVERIES = """\
UPDATE deliveries SET item = (SELECT collection || '/' || events.item FROM events WHERE position = event)
WHERE item IS NOT NULL AND event IN (SELECT position FROM events WHERE collection = :new)"""

_SOME_EVENTS = """\
SELECT position FROM events
WHERE collection = :collection AND position IS NOT NULL
ORDER BY position
LIMIT :limit"""

_MARK_GONE = """\
UPDATE counters SET changes = changes + 1, revision = :gone, converted_at = :now
WHERE collection = :collection"""

_FORGET_ITEMS = """\
DELETE FROM items
WHERE collection = :collection
    AND id IN (SELECT id FROM items WHERE collection = :collection ORDER BY id LIMIT :limit)
RETURNING 1"""

_UNCOUNT = "UPDATE counters SET items = items - :deleted WHERE collection = :collection AND shard = 0"

_FORGET_EVENTS = (
    """\
DELETE FROM deliveries
WHERE event IN (SELECT position FROM events WHERE collection = :collection AND position BETWEEN :first AND :last)""",
    """\
UPDATE events SET collection = '', type = '', item = '', owner = NULL, data = '{{}}', fingerprint = '',
    removed_fields = NULL
WHERE collection = :collection AND position BETWEEN :first AND :last""",
)

_FORGET_REST = (
    f"DELETE FROM items WHERE collection = '{LAST_IDS.name}' AND id = :collection",  # noqa: S608 - a constant
    "DELETE FROM schemas WHERE collection = :collection",
    "DELETE FROM counters WHERE collection = :collection",
)


def rename(database: Database, old: str, new: str, singular: str, *, is_singleton: bool) -> None:
    """Give all that a store has of a collection to a `new` one without items, in the transaction that is open.

    Nobody else uses the store, and none of the two has an index. Types of events begin with the `singular` then. Raises
    StoreUnavailable as `require_usable`.
    """
    require_usable(database, len(MIGRATIONS))
    names = {"old": old, "new": new, "singular": singular, "gone": GONE}
    for statement in (*_RENAME, *(_RENAME_SINGLETON if is_singleton else ()), _RENAME_DELIVERIES):
        database.change(statement, names)


def mark_gone(transaction: Transaction, collection: str, now: str) -> None:
    """Let programs that serve a collection read and write nothing of it."""
    transaction.database.change(_MARK_GONE, {"collection": collection, "now": now, "gone": GONE})


def forget(transaction: Transaction, collection: str, limit: int) -> int:
    """Delete at most `limit` items or events of a collection that is GONE; return how many.

    An event leaves its position, so that cursors stay valid. With the last one all else is deleted.
    """
    database, values = transaction.database, {"collection": collection, "limit": limit}
    if deleted := len(database.rows(_FORGET_ITEMS, values)):
        database.change(_UNCOUNT, {"collection": collection, "deleted": deleted})
        return deleted
    if positions := [position for (position,) in database.rows(_SOME_EVENTS, values)]:
        within = {"collection": collection, "first": positions[0], "last": positions[-1]}
        for statement in _FORGET_EVENTS:
            database.change(statement, within)
        return len(positions)
    for statement in _FORGET_REST:
        database.change(statement, values)
    return 0

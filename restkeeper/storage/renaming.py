"""Collections that have another name now, or go: all that a store has of them beside their items, in both databases.

The counters of the former one stay: programs that serve it read there that it is GONE.
"""

from collections.abc import Iterator, Mapping

from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import GONE, LAST_IDS, Collection
from restkeeper.storage.records import elsewhere, stored_states, unfit
from restkeeper.storage.sql import Database

EVENTS_TOGETHER = 1000  # that one statement moves

_EVENT_TYPES = "SELECT DISTINCT type FROM events WHERE collection = :collection"

_POSITIONS = "SELECT min(position), max(position) FROM events WHERE collection = :collection"

_SOME_EVENTS = """\
SELECT position FROM events
WHERE collection = :collection AND position IS NOT NULL
ORDER BY position
LIMIT :limit"""

# What is named after a collection, when its items are moved to another one.
_MOVE_ID = (
    "UPDATE items SET id = :id WHERE collection = :collection AND id = :source",
    "UPDATE events SET item = :id WHERE collection = :source AND item = :source",
)

_MOVE_EVENTS = """\
UPDATE events SET
    collection = :collection,
    type = :named
WHERE collection = :source AND type = :type AND position BETWEEN :first AND :last"""

# The items of deliveries, which are in the order of each: see `deliveries._QUEUE`.
_MOVE_DELIVERIES = """\
UPDATE deliveries SET item = (SELECT collection || '/' || events.item FROM events WHERE position = event)
WHERE state = 'pending' AND item IS NOT NULL AND substr(item, 1, :length) = CAST(:source AS text) || '/'"""

_MOVE_SCHEMAS = (
    """\
DELETE FROM schemas
WHERE collection = :source AND fingerprint IN (SELECT fingerprint FROM schemas WHERE collection = :collection)""",
    "UPDATE schemas SET collection = :collection WHERE collection = :source",
)

_LAST_IDS = f"collection = '{LAST_IDS.name}' AND id IN (:source, :collection)"
_MOVE_LAST_ID = (  # the greater one of two
    f"""\
DELETE FROM items
WHERE {_LAST_IDS} AND id <> (SELECT id FROM items WHERE {_LAST_IDS} ORDER BY version DESC LIMIT 1)""",  # noqa: S608 - a constant
    f"UPDATE items SET id = :collection WHERE {_LAST_IDS}",  # noqa: S608 - likewise
)

_MOVE_COUNTERS = """\
UPDATE counters SET
    items = counters.items + former.items,
    changes = counters.changes + former.changes + 1,
    revision = :revision,
    converted_at = :now
FROM (SELECT shard, items, changes FROM counters WHERE collection = :source) AS former
WHERE collection = :collection AND counters.shard = former.shard"""

_MARK_GONE = """\
UPDATE counters SET changes = changes + 1, revision = :gone, converted_at = :now
WHERE collection = :source"""

_NOTE_CHANGE = "UPDATE counters SET changes = changes + 1 WHERE collection = :collection AND shard = 0"

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
UPDATE events SET collection = '', type = '', item = '', owner = NULL, data = '{{}}', fingerprint = '', removed = NULL
WHERE collection = :collection AND position BETWEEN :first AND :last""",
)

_FORGET_REST = (
    f"DELETE FROM items WHERE collection = '{LAST_IDS.name}' AND id = :collection",  # noqa: S608 - a constant
    "DELETE FROM schemas WHERE collection = :collection",
    "DELETE FROM counters WHERE collection = :collection",
)


class Renaming:
    """The part of a `base.Transaction` with the names of collections."""

    _database: Database
    _collections: Mapping[str, Collection]

    def note_change(self, collection: str) -> None:
        """Give a collection another change token, of whatever revision its items are."""
        self._database.change(_NOTE_CHANGE, {"collection": collection})

    def elsewhere(self) -> dict[str, int]:
        """Return the collections whose items are in another one, and their revisions."""
        return elsewhere(self._database)

    def event_types(self, collection: str) -> list[str]:
        """Return the types of a collection's stored events."""
        return [type for (type,) in self._database.rows(_EVENT_TYPES, {"collection": collection})]

    def require_fitting(self, collection: str, source: str) -> None:
        """Raises StoreUnavailable for what cannot become items of a collection, or if that has items already."""
        if items := stored_states(self._database)[collection].items:
            remedy = f"delete these, or let it have no former name and run `restkeeper forget {source}`"
            raise StoreUnavailable(
                f"{collection} has {items} items, so that those of {source} cannot be moved: {remedy}"
            )
        for _ in unfit(self._database, self._collections[collection], source):
            pass

    def take_over(self, collection: str, source: str, types: Mapping[str, str], now: str, *, id: str = "") -> None:
        """Let a collection have all else that a store has of its `source`, whose items are converted, and then is GONE.

        Its events get other `types`. Of a singleton it is the `id`, too.
        """
        both = {"collection": collection, "source": source, "now": now, "gone": GONE, "id": id}
        change, rows = self._database.change, self._database.rows
        for statement in _MOVE_ID if id else ():
            change(statement, both)
        for type, named in types.items():
            for part in self._parts_of_events(source):
                change(_MOVE_EVENTS, both | part | {"type": type, "named": named})
        rows("SELECT 1 FROM subscriptions ORDER BY webhook {for_update}", {})  # nobody else queues deliveries
        change(_MOVE_DELIVERIES, both | {"length": len(source) + 1})
        for statement in (*_MOVE_SCHEMAS, *_MOVE_LAST_ID):
            change(statement, both)
        change(_MOVE_COUNTERS, both | {"revision": self._collections[collection].revision})
        change("UPDATE counters SET items = 0 WHERE collection = :source", both)
        self.mark_gone(source, now)

    def _parts_of_events(self, collection: str) -> Iterator[dict[str, int]]:
        """The positions of a collection's events, in parts: SQLite has what a statement changes in memory."""
        ((first, last),) = self._database.rows(_POSITIONS, {"collection": collection})
        for start in range(first or 0, (last or -1) + 1, EVENTS_TOGETHER):
            yield {"first": start, "last": start + EVENTS_TOGETHER - 1}

    def mark_gone(self, collection: str, now: str) -> None:
        """Let programs that serve a collection read and write nothing of it."""
        self._database.change(_MARK_GONE, {"source": collection, "now": now, "gone": GONE})

    def forget(self, collection: str, limit: int) -> int:
        """Delete at most `limit` items or events of a collection that is GONE; return how many.

        An event leaves its position, so that cursors stay valid. With the last one all else is deleted.
        """
        wanted = {"collection": collection, "limit": limit}
        if deleted := len(self._database.rows(_FORGET_ITEMS, wanted)):
            self._database.change(_UNCOUNT, {"collection": collection, "deleted": deleted})
            return deleted
        if positions := [position for (position,) in self._database.rows(_SOME_EVENTS, wanted)]:
            within = {"collection": collection, "first": positions[0], "last": positions[-1]}
            for statement in _FORGET_EVENTS:
                self._database.change(statement, within)
            return len(positions)
        for statement in _FORGET_REST:
            self._database.change(statement, wanted)
        return 0

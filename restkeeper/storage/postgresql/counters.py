"""The numbers of items and changes of each collection, without a row that all writers would wait for.

Each is the sum of some rows. A connection changes one of them last in a transaction, so that it locks the row briefly;
with more connections than rows, some share one. A sum of changes grows with every commit, and one statement sees one
sum: no two states of a collection have the same.
"""

from collections import Counter

from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.sql import change_token

SHARDS = 16  # rows of each collection

_STATE = """\
SELECT
    (SELECT epoch FROM store),
    sum(changes)::bigint,
    sum(items)::bigint
FROM counters
WHERE collection = %s"""

_ADD = f"""\
INSERT INTO counters
    (collection, shard, items, changes)
SELECT %s, pg_backend_pid() %% {SHARDS}, %s, %s
ON CONFLICT (collection, shard) DO UPDATE SET
    items = counters.items + excluded.items,
    changes = counters.changes + excluded.changes"""  # noqa: S608 - a constant

_LOCK = "SELECT 1 FROM counters WHERE collection = %s ORDER BY shard FOR UPDATE"

CREATE = f"""\
INSERT INTO counters (collection, shard)
SELECT %s, shard FROM generate_series(0, {SHARDS - 1}) AS shard
ON CONFLICT DO NOTHING"""  # noqa: S608 - a constant


class Counters:
    """The changes that a transaction makes, which are stored at its end, in the order of the collections."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._items: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()

    @property
    def has_changes(self) -> bool:
        """Whether a change was counted that is not stored yet."""
        return bool(self._changes)

    def add(self, collection: str, items: int = 0) -> None:
        """Count a change of an item, which adds so many items."""
        self._items[collection] += items
        self._changes[collection] += 1

    def copy(self) -> tuple[Counter[str], Counter[str]]:
        """What is counted and not stored yet, for `restore`."""
        return self._items.copy(), self._changes.copy()

    def restore(self, counted: tuple[Counter[str], Counter[str]]) -> None:
        """Undo what was counted since `copy`."""
        self._items, self._changes = counted

    def send(self) -> None:
        """Store what was counted."""
        for collection in sorted(self._changes):
            counted = (collection, self._items[collection], self._changes[collection])
            self._session.queue(_ADD, counted)
        self._items.clear()
        self._changes.clear()

    def lock(self, collection: str) -> None:
        """Store what was counted, and lock the collection: nobody else changes it until this transaction ends."""
        self._session.queue(_LOCK, (collection,))
        self.send()
        self._session.flush()


def change_token_of(session: Session, collection: str) -> str:
    """See `interface.ItemStore.change_token`."""
    epoch, changes, _ = state_of(session, collection)
    return change_token(epoch, changes)


def state_of(session: Session, collection: str) -> tuple[str, int, int]:
    """The epoch, and the numbers of changes and items of a collection, at one moment."""
    row = session.row(_STATE, (collection,))
    assert row is not None  # noqa: S101 - an aggregate has a row
    epoch, changes, items = row
    return epoch, changes or 0, items or 0

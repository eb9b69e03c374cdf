"""A transaction in a store: what callers can do inside `base.Store.write`, and what is the same in all databases."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from math import inf
from typing import Any, ClassVar, NamedTuple

from restkeeper.clock import WRITE_TURN_SECONDS
from restkeeper.storage.errors import GONE, RecordNotFound, ReferenceMissing, RevisionDiffers
from restkeeper.storage.interface import ALL, Collection, Group, Index, Page, Query, Record, StoredResponse
from restkeeper.storage.planning import count_items, find_ids
from restkeeper.storage.plans import is_indexed, wanted_indexes
from restkeeper.storage.records import state_of, stored_states
from restkeeper.storage.sql import Database

NOT_FOUND = "there is no such item"

_READ = """\
SELECT
    {item}
FROM items
WHERE collection = :collection AND id = :id"""
_READ_LOCKED = _READ + " {for_change}"
_READ_LOCKED_NOW = _READ_LOCKED + " NOWAIT"

INSERT = """\
INSERT INTO items
    (collection, id, version, updated_at, fingerprint, body, owner, removed_fields{own_columns})
VALUES (:collection, :id, :version, :updated_at, :fingerprint, :body, :owner, :removed_fields{own_values})"""

_UPDATE = """\
UPDATE items SET
    version = :version,
    updated_at = :updated_at,
    fingerprint = :fingerprint,
    body = :body,
    owner = :owner,
    removed_fields = :removed_fields{own_changes}
WHERE collection = :collection AND id = :id"""

# The items of a collection that are still to be converted are in one of no program, so that no unique value is twice.
_SET_ASIDE = "UPDATE items SET collection = :aside WHERE collection = :collection"
_UNCONVERTED = """\
SELECT
    {item}
FROM items
WHERE collection = :source AND id > :after
ORDER BY id
LIMIT :limit"""
_CONVERT = _UPDATE.replace("SET\n", "SET\n    collection = :collection,\n").replace(":collection AND", ":source AND")

_SET_REVISION = """\
UPDATE counters SET revision = :revision, changes = changes + 1, converted_at = :now
WHERE collection = :collection AND revision = :old_revision
RETURNING revision"""

_DELETE = "DELETE FROM items WHERE collection = :collection AND id = :id"


# In PostgreSQL an event has no position and no origin yet: see `feed`.
_ADD_EVENT = """\
INSERT INTO events
    (origin, type, collection, item, at, data, owner, fingerprint, removed_fields, former)
VALUES ({origin}, :type, :collection, :item, :at, :data, :owner, :fingerprint, :removed_fields, :former)"""


class Event(NamedTuple):
    """A change of an item. `data` is JSON, `at` is RFC 3339 in UTC.

    `fingerprint` is of the schema of `data`, and `removed_fields` as in a `Record`; data without a schema has neither.
    """

    type: str  # such as product.created
    collection: str
    item: str  # its id
    at: str
    data: bytes
    owner: str | None = None  # of the item
    fingerprint: str = ""
    removed_fields: bytes | None = None
    former: str | None = None  # the owner before, if the change has given it to another one: empty if nobody was it


class LockPlan(dict[str, bool]):
    """What an attempt of a write remembers for the next one: the collections that this locks first, in one order.

    They are those that the write changes, and that a former attempt has locked, or wanted to. The value is whether it
    has the collection alone, as by `lock_collection`, and not shared, as by a change of an item: where a former attempt
    has wanted that, or would have waited for an item out of the order; after a deadlock, everywhere.
    """


class Transaction(ABC):
    """The operations inside `Store.write`: all are committed, or none. Changes of items raise RevisionDiffers.

    An exception, but RecordNotFound of a read, ends the transaction: nothing of it is stored, also if `work` catches
    it. That of a change is raised by that call, by a later one, or by `write`, so that a backend can send several
    changes to its server together.
    """

    turn_seconds: float = WRITE_TURN_SECONDS  # for which it computes before other requests have their turn
    search_seconds = 0.0  # for which the last search with a limit has worked
    feed: ClassVar[str]  # of the backend: see `feed.feed_of`
    database: Database
    _collections: Mapping[str, Collection]

    @abstractmethod
    def _change(
        self, statement: str, item: Mapping[str, Any], of: Record | None = None, *, adds: int = 0, counts: bool = True
    ) -> None:
        """Change an item, which has to be there unless this `adds` it, and count the change unless it `counts` not.

        `of` is its new record.
        """

    def find(self, collection: str, query: Query, limit: int) -> list[str]:
        """Return the ids of at most so many records of a query, of this transaction and of all that are committed."""
        return find_ids(self.database, self._collections[collection], query, limit)

    def page(
        self, collection: str, query: Query, max_bytes: int | None = None, *, seconds: float | None = None
    ) -> Page:
        """As `Store.page`, with the changes of this transaction, but without `change_token` and `total`.

        Raises SearchTooLong if it takes more than so many seconds.
        """
        with self._limit(seconds):
            page = self.database.page(self._collections[collection], query, max_bytes, bounded=True)
        return page._replace(change_token="", total=None)

    def count(self, collection: str, query: Query = ALL, *, most: int, seconds: float | None = None) -> int:
        """As `Store.count`, with the changes of this transaction. Raises SearchTooLong as `page`."""
        with self._limit(seconds):
            return count_items(self.database, self._collections[collection], query, most)

    def groups(self, collection: str, query: Query, most: int, *, seconds: float | None = None) -> list[Group]:
        """As `Store.groups`, with the changes of this transaction. Raises SearchTooLong as `page`."""
        groups_of = import_module("restkeeper.storage.groups").groups_of
        with self._limit(seconds):
            groups: list[Group] = groups_of(self.database, self._collections[collection], query, most)
            return groups

    def is_indexed(self, collection: str, query: Query) -> bool:
        """Whether an index has the items that one of the filters selects, or without filters their order."""
        return is_indexed(self._collections[collection], query)

    def explain(self, collection: str, query: Query) -> str:
        """Return how the database finds the items of a query, in its own words."""
        return "; ".join(self.database.explain(self._collections[collection], query))

    def wanted_indexes(self, collection: str, query: Query) -> list[Index]:
        """Return the indexes that a collection has not, each of which would serve a query."""
        return wanted_indexes(self._collections[collection], query)

    @contextmanager
    def _timed(self, now: Callable[[], float]) -> Iterator[None]:
        """Note the `search_seconds` of what is done meanwhile."""
        begin = now()
        try:
            yield
        finally:
            self.search_seconds = now() - begin

    @abstractmethod
    def _limit(self, seconds: float | None) -> AbstractContextManager[None]:
        """A context whose reads each work for so many seconds at most. Raises SearchTooLong."""

    def lock_collection(self, collection: str, *, shared: bool = False) -> None:  # noqa: B027 - no store has to
        """Let no other transaction change items of a collection until this one ends: what is read after it stays so.

        A `shared` lock, which each change of an item takes, excludes only locks that are not shared. Transactions wait
        for such a lock in the order in which they come. With one writer at a time there is nothing to lock.
        """

    def flush(self) -> None:  # noqa: B027 - no store has to
        """Raise what earlier changes are refused for, and a store that sends several together has not raised yet."""

    def insert(self, collection: str, record: Record) -> None:
        """Add a record. Raises DuplicateValue if its id or a unique value exists.

        RecordChanged is for an id that did not exist when this transaction has looked for it by `read`.
        """
        self._change(INSERT, values_of(collection, record), record, adds=1)

    def insert_all(self, collection: str, records: Sequence[Record]) -> None:
        """Add 1 to 1,000 records, which is quicker than one by one. Raises as `insert`."""
        for record in records:
            self.insert(collection, record)

    def update(self, collection: str, record: Record) -> None:
        """Replace the record with this id. Raises DuplicateValue and RecordNotFound."""
        self._change(_UPDATE, values_of(collection, record), record)

    def delete(self, collection: str, id: str) -> None:
        """Delete the record. Raises RecordNotFound."""
        self._change(_DELETE, {"collection": collection, "id": id}, adds=-1)

    def read(self, collection: str, id: str, *, lock: bool = True) -> Record:
        """Return a record; with `lock` it is locked until this transaction ends.

        Raises RecordNotFound, after which the transaction continues. With one writer at a time nothing is locked.
        """
        return read_item(self.database, collection, id)

    def read_all(self, collection: str, ids: Sequence[str], *, to_delete: bool = False) -> list[Record]:
        """Return those of at most 1,000 records that exist, in the order of their ids, each locked as by `read`.

        What is `to_delete` is locked as by `lock_to_delete`.
        """
        records = []
        for id in sorted(ids):
            with suppress(RecordNotFound):
                records.append(read_item(self.database, collection, id))
        return records

    @abstractmethod
    def require_present(self, collection: str, ids: Sequence[str], missing: Callable[[str], ReferenceMissing]) -> None:
        """Lock records in this order against deletion, but not against changes, until this transaction ends.

        Raises what `missing` returns for the id of the first one that does not exist.
        """

    def lock_to_delete(self, collection: str, id: str) -> None:  # noqa: B027 - no store has to
        """Lock a record that is to be deleted: `require_present` of another transaction waits until this one ends.

        With one writer at a time there is nothing to lock.
        """

    def change_token(self, collection: str) -> str:
        """As `Store.change_token`, with the changes of this transaction.

        The collection is locked until this transaction ends, so a precondition on a list can compare it.
        """
        return state_of(self.database, self._collections[collection])[0]

    def set_aside(self, collection: str) -> str:
        """Move all items of a collection that is converted to another one, and return the name of that.

        So none of them has a unique value that is that of another one afterwards.
        """
        aside = f"{collection}!"  # which is the name of none
        self.database.change(_SET_ASIDE, {"collection": collection, "aside": aside})
        return aside

    def unconverted(self, source: str, after: str, limit: int) -> list[Record]:
        """Return at most so many items of a collection, or of those set aside, in order of id after one."""
        values = {"source": source, "after": after, "limit": limit}
        return list(map(Record._make, self.database.rows(_UNCONVERTED, values)))

    def store_converted(self, collection: str, source: str, record: Record) -> None:
        """Store a converted item, which was read from that source. Raises DuplicateValue."""
        self._change(_CONVERT, values_of(collection, record) | {"source": source}, counts=False)

    def revision(self, collection: str) -> int:
        """Return the revision of a collection's items, see `StoredState`; GONE if nothing is known of it any more."""
        state = stored_states(self.database).get(collection)
        return state.revision if state else GONE

    def set_revision(self, collection: str, old_revision: int, revision: int, now: str) -> None:
        """Note that items are of another revision since now. Raises RevisionDiffers unless it was `old_revision`."""
        values = {"collection": collection, "old_revision": old_revision, "revision": revision, "now": now}
        if not self.database.rows(_SET_REVISION, values):
            declared = self._collections.get(collection)
            raise RevisionDiffers(collection, declared.revision if declared else old_revision)

    @abstractmethod
    def store_response(self, id: bytes, response: StoredResponse, *, expired_before: float) -> None:
        """Store the response to the request with this id; one that was stored before `expired_before` is replaced.

        Raises ResponseStored if there is another one; it waits for other transactions that store one. So it comes
        before changes that a repetition could be refused for, such as of a unique value.
        """

    @abstractmethod
    def sweep_responses(self, before: float, limit: int, *, latest: float = inf) -> int:
        """Delete at most `limit` responses that were stored before a time, the oldest first; return how many.

        One that was stored after the time `latest` is deleted too: a clock was wrong. The cost does not depend on
        the number of stored responses.
        """

    def add_event(self, event: Event) -> None:
        """Record an event after all others."""
        removed_fields = event.removed_fields and event.removed_fields.decode()
        self.database.change(
            _ADD_EVENT, event._asdict() | {"data": event.data.decode(), "removed_fields": removed_fields}
        )

    @abstractmethod
    def savepoint(self) -> AbstractContextManager[None]:
        """A context: an exception inside undoes the changes made inside, and the transaction continues.

        Exceptions of the changes inside are raised in it, or at its end. It can be nested.
        """


def values_of(collection: str, record: Record) -> dict[str, Any]:
    """The values of a record by the names of their columns, with texts in place of bytes."""
    values = record._asdict()
    removed_fields = record.removed_fields and record.removed_fields.decode()
    return {**values, "collection": collection, "body": record.body.decode(), "removed_fields": removed_fields}


def read_item(database: Database, collection: str, id: str, *, lock: bool = False, waits: bool = True) -> Record:
    """See `base.Store.read`."""
    statement = _READ if not lock else _READ_LOCKED if waits else _READ_LOCKED_NOW
    rows = database.rows(statement, {"collection": collection, "id": id})
    if not rows:
        raise RecordNotFound(NOT_FOUND)
    return Record._make(rows[0])

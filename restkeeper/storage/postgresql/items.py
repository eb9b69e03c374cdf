"""Items, responses and counters in PostgreSQL."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any

import psycopg

from restkeeper.clock import TURN_SECONDS
from restkeeper.storage.errors import (
    DuplicateValue,
    RecordChanged,
    RecordNotFound,
    ReferenceMissing,
    ResponseStored,
    RevisionDiffers,
    StoreContended,
    StoreError,
    StoreUnavailable,
)
from restkeeper.storage.interface import ALL, Collection, Query, Record, StoredResponse
from restkeeper.storage.postgresql.dialect import COLUMNS, DIALECT, query_columns, without_nul
from restkeeper.storage.postgresql.failures import OTHERS, log_rarely, store_error
from restkeeper.storage.postgresql.queries import clean
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.sql import BETWEEN_FIELDS
from restkeeper.storage.transactions import NOT_FOUND, LockPlan, Transaction, read_item

# The numbers of a collection's items and changes are the sums of some rows, so that no row has all writers wait for it.
# A connection changes one of them last in a transaction, and locks it briefly; with more connections than rows, some
# share one. The sum of changes grows with every commit, and one statement sees one sum.
SHARDS = 16

BUSY = 10  # times as long as it works, a search may take on a server on which others work, too
SEARCH_SECONDS = 0.5  # but no longer: others wait for it

_IDS = "items_pkey"  # the constraint

# A change keeps the id, so that it and what refers to the item do not wait for each other; a deletion and that do.
# The locks of a reference and of a deletion, which exclude each other.
_EXISTS = "SELECT 1 FROM items WHERE collection = %s AND id = %s"
_PRESENT = f"{_EXISTS} FOR KEY SHARE"
_LOCK_TO_DELETE = f"{_EXISTS} FOR UPDATE"

_READ_ALL = f"""\
SELECT
    {COLUMNS}
FROM items
WHERE collection = %s AND id = ANY(%s::text[])
ORDER BY id
"""  # noqa: S608 - constant columns

# The advisory locks of a collection in this store: each change has the shared one. A work that is repeated waits for
# those of its plan, or else for one, before it has locked anything; then it tries to get them.
_KEY = "'items'::regclass::oid::int, hashtext(%s)"
_COLLECTION_LOCK = {False: f"advisory_xact_lock_shared({_KEY})", True: f"advisory_xact_lock({_KEY})"}

_STORE_RESPONSE = """\
INSERT INTO responses
    (id, stored_at, body)
VALUES (%s, %s, %s)
ON CONFLICT (id) DO UPDATE SET stored_at = excluded.stored_at, body = excluded.body
WHERE responses.stored_at < %s"""

_SWEEP = """\
DELETE FROM responses
WHERE id = ANY((
    ARRAY(
        SELECT id FROM responses
        WHERE stored_at < %(before)s ORDER BY stored_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
    || ARRAY(
        SELECT id FROM responses
        WHERE stored_at > %(latest)s ORDER BY stored_at DESC LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
)[1:%(limit)s])"""

CREATE_COUNTERS = f"""\
INSERT INTO counters (collection, shard, revision)
SELECT %s, shard, %s FROM generate_series(0, {SHARDS - 1}) AS shard
ON CONFLICT DO NOTHING"""  # noqa: S608 - a constant

_STORE_COUNTERS = f"""\
UPDATE counters SET items = items + %s, changes = changes + %s
WHERE collection = %s AND shard = pg_backend_pid() %% {SHARDS} AND revision = %s"""  # noqa: S608 - a constant


class PostgresTransaction(Transaction):
    """See `base.Transaction`. Changes are made together, before the next read or at the end."""

    feed = "restkeeper.storage.postgresql.feed:PostgresFeed"
    turn_seconds = TURN_SECONDS  # several are computed at a time, in turns
    database: Session

    def __init__(
        self,
        session: Session,
        collections: Mapping[str, Collection],
        unique: Mapping[str, Sequence[str]],
        plan: LockPlan | None = None,
    ) -> None:
        self.database = session
        self._collections = collections
        self._unique = unique
        self._counted: dict[str, tuple[int, int]] = {}  # new items and changes of collections, stored at the end
        self._locked: set[tuple[str, str]] = set()  # items that this transaction has read: they exist
        self._absent: set[tuple[str, str]] = set()  # those that it has not found
        self._collections_locked: dict[str, bool] = {}  # by this transaction, whether exclusively
        self._waits = True  # whether it may wait for a collection
        self._last = "", ""  # of the items that it has locked
        self._plan: LockPlan | None = None  # until then it may wait for all
        for collection, is_exclusive in sorted((plan or {}).items()):
            self.lock_collection(collection, shared=not is_exclusive)
        self._plan = plan

    @contextmanager
    def _limit(self, seconds: float | None) -> Iterator[None]:
        if seconds is None:
            yield
            return
        with self.database.limit(seconds, min(BUSY * seconds, SEARCH_SECONDS)), self._timed(time.monotonic):
            yield

    def count(self, collection: str, query: Query = ALL, *, most: int, seconds: float | None = None) -> int:
        """Adds the items that this transaction has counted and not stored yet."""
        new, _ = (0, 0) if query.narrows else self._counted.get(collection, (0, 0))
        return min(super().count(collection, query, most=most, seconds=seconds) + new, most)

    def lock_collection(self, collection: str, *, shared: bool = False) -> None:
        """Takes the advisory lock of the collection, as others can write at the same time."""
        is_exclusive, held = not shared, self._collections_locked.get(collection)
        if held is not None and held >= is_exclusive:
            return
        if self._plan is not None:
            self._plan[collection] = is_exclusive or self._plan.get(collection, False)
        lock = _COLLECTION_LOCK[is_exclusive]
        if self._waits or self._plan is None:
            self.database.queue(f"SELECT pg_{lock}", (collection,))
        else:
            self.database.queue(f"SELECT 1 WHERE pg_try_{lock}", (collection,), refusal=StoreContended(OTHERS))
        self._collections_locked[collection], self._waits = is_exclusive, False

    def read(self, collection: str, id: str, *, lock: bool = True) -> Record:
        """Locks the record, as others can write at the same time."""
        if lock:
            self.lock_collection(collection, shared=True)
        waits = not lock or self._may_wait(collection, id)
        try:
            record = read_item(self.database, collection, id, lock=lock, waits=waits)
        except psycopg.errors.LockNotAvailable:
            if waits:
                raise
            raise StoreContended(OTHERS, collection) from None
        except RecordNotFound:
            self._absent.add((collection, id))
            raise
        if lock:
            self._locked.add((collection, id))
        return record

    def read_all(self, collection: str, ids: Sequence[str], *, to_delete: bool = False) -> list[Record]:
        """Reads and locks all records in one round trip."""
        self.lock_collection(collection, shared=True)
        waits = all([self._may_wait(collection, id) for id in sorted(ids)])  # a list: each is the last one then
        statement = _READ_ALL + ("FOR UPDATE" if to_delete else "FOR NO KEY UPDATE")
        statement = statement if waits else f"{statement} NOWAIT"
        try:
            rows = self.database.fetch_together(statement, (collection, [*map(clean, ids)]))
        except psycopg.errors.LockNotAvailable:
            if waits:
                raise
            raise StoreContended(OTHERS, collection) from None
        self._locked.update((collection, id) for id, *_ in rows)
        return [*map(Record._make, rows)]

    def _may_wait(self, collection: str, id: str) -> bool:
        """Whether it may wait for an item, which it locks next: one after those that it has locked, or the last.

        Or one of a collection that it has alone: only who refers to that can have it, and waits for no collection.
        """
        before, item = self._last, (collection, clean(id))
        self._last = max(before, item)
        return self._plan is None or item >= before or self._collections_locked.get(collection, False)

    def require_present(self, collection: str, ids: Sequence[str], missing: Callable[[str], ReferenceMissing]) -> None:
        for id in ids:
            if (collection, id) not in self._locked:
                item, self._waits = (collection, clean(id)), False
                if self._may_wait(*item):
                    self.database.queue(_PRESENT, item, refusal=missing(id))
                else:  # who deletes it may wait for an item that this transaction has
                    self.database.queue(_EXISTS, item, refusal=missing(id))
                    self.database.queue(f"{_PRESENT} SKIP LOCKED", item, refusal=StoreContended(OTHERS, collection))

    def flush(self) -> None:
        """Sends the queued changes, and raises their errors."""
        self.database.flush()

    def lock_to_delete(self, collection: str, id: str) -> None:
        """Locks the record against those who refer to it, as others can write at the same time."""
        self.lock_collection(collection, shared=True)
        item = collection, clean(id)
        # Who refers to the item may wait for the weaker lock of `read`, unless the collection is locked alone.
        is_safe = item not in self._locked or self._collections_locked[collection]
        if self._plan is None or (self._may_wait(collection, id) and is_safe):
            return self.database.queue(_LOCK_TO_DELETE, item)
        self.database.queue(f"{_LOCK_TO_DELETE} SKIP LOCKED", item, refusal=StoreContended(OTHERS, collection))

    def change_token(self, collection: str) -> str:
        """Locks the collection and stores the counted changes first, as others can write at the same time."""
        self.lock_collection(collection)
        self._store_counters()
        return super().change_token(collection)

    def _change(
        self, statement: str, item: Mapping[str, Any], of: Record | None = None, *, adds: int = 0, counts: bool = True
    ) -> None:
        """See `Transaction`. An item that this transaction has locked is there.

        A conversion, whose changes do not count, locks no collection: nobody else can change it meanwhile.
        """
        if counts:
            self.lock_collection(item["collection"], shared=True)
        values = without_nul(item)
        if "body" in item:
            values["fields"], values["folded"] = query_columns(item["body"])
        key = item["collection"], item["id"]
        refusal = None if adds > 0 or key in self._locked else RecordNotFound(NOT_FOUND)
        duplicate = partial(_duplicate, self._unique, was_absent=key in self._absent, collection=key[0], of=of)
        self._absent.discard(key)
        self.database.queue(DIALECT[statement], values, refusal=refusal, duplicate=duplicate)
        if adds < 0:
            self._locked.discard(key)
        if counts:
            counted, changes = self._counted.get(key[0], (0, 0))
            self._counted[key[0]] = counted + adds, changes + 1

    def store_response(self, id: bytes, response: StoredResponse, *, expired_before: float) -> None:
        refusal = ResponseStored("the response to this request is stored")
        self.database.queue(_STORE_RESPONSE, (id, *response, expired_before), refusal=refusal)

    def sweep_responses(self, before: float, limit: int, *, latest: float = inf) -> int:
        return self.database.apply(_SWEEP, {"before": before, "limit": limit, "latest": latest})

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        counted, locked, collections = self._counted.copy(), self._locked.copy(), self._collections_locked.copy()
        try:
            with self.database.savepoint():
                yield
        except BaseException as error:
            self._counted, self._locked, self._collections_locked = counted, locked, collections
            if isinstance(error, psycopg.Error):
                raise change_error(error, self._unique) from None
            raise

    def finish(self) -> None:
        """Commit. The counters come last: nobody waits for them for longer than a commit."""
        self._store_counters()
        self.database.commit()

    def _store_counters(self) -> None:
        """Store what was counted, in the order of the collections, in which all transactions lock their rows."""
        for collection, counted in sorted(self._counted.items()):
            revision = self._collections[collection].revision
            refusal = RevisionDiffers(collection, revision)
            self.database.queue(_STORE_COUNTERS, (*counted, collection, revision), refusal=refusal)
        self._counted.clear()


def change_error(error: psycopg.Error, unique: Mapping[str, Sequence[str]]) -> StoreError:
    """The error of a change: a duplicate, or as `store_error`.

    `unique` has the fields of the unique indexes.
    """
    if isinstance(error, psycopg.errors.UniqueViolation):
        return _duplicate(unique, error)
    if isinstance(error, psycopg.errors.QueryCanceled):  # no change works for long: it has waited for several locks
        reason = "a change has waited for several locks, together for too long"
        log_rarely("waits", "requests get 503: %s", reason)
        return StoreUnavailable(OTHERS, reason=reason)
    return store_error(error)


def _duplicate(
    unique: Mapping[str, Sequence[str]], error: psycopg.Error, *, was_absent: bool = False, **written: Any
) -> DuplicateValue | RecordChanged:
    """See `change_error`; `written` is the collection and the record, if they are known.

    RecordChanged is for an id that the transaction has looked for, when it `was_absent`.
    """
    name = error.diag.constraint_name or ""
    if was_absent and name == _IDS:
        return RecordChanged("the item was created meanwhile")
    parts = name.split(".")  # of an index that another program has declared; those of an operator have no field
    other = parts[2].split(BETWEEN_FIELDS) if len(parts) == 4 else ["value"]
    return DuplicateValue(*(["id"] if name == _IDS else unique.get(name, other)), **written)

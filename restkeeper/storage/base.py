"""A store, and a transaction in it: what callers can do with them, and what is the same in all databases.

They know records and queries, and no requests. `storage.errors` has their exceptions.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from functools import partial
from math import inf
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Concatenate, ParamSpec, TypeVar

import orjson

from restkeeper.clock import WRITE_TURN_SECONDS, YIELD_SECONDS, Clock
from restkeeper.storage.deliveries import Deliveries, find_subscriptions, newest_id, read_log
from restkeeper.storage.errors import (
    RecordChanged,
    RecordNotFound,
    ReferenceMissing,
    RevisionDiffers,
    StoreBusy,
    StoreContended,
    StoreDamaged,
    StoreDeadlocked,
    StoreError,
    StoreFailing,
    StoreFull,
    StoreUnavailable,
    StoreUnopened,
)
from restkeeper.storage.groups import groups_of
from restkeeper.storage.interface import (
    ALL,
    GONE,
    POSITION,
    Collection,
    Event,
    EventFilter,
    Events,
    Found,
    Group,
    Index,
    Key,
    LogEntry,
    Page,
    Query,
    Record,
    Related,
    StoredResponse,
    StoredState,
    Subscription,
)
from restkeeper.storage.planning import count_items, find_ids
from restkeeper.storage.plans import Plan, is_indexed, wanted_indexes
from restkeeper.storage.records import look_up, read_item, require_epoch, state_of, stored_states
from restkeeper.storage.renaming import Renaming
from restkeeper.storage.sql import (
    Database,
    conditions,
    is_search,
    is_sorted,
    literal,
    order_of,
    parameters,
    require_revision,
)

T = TypeVar("T")
P = ParamSpec("P")

WAIT_SECONDS = 5.0  # for which a use waits for another one that opens the store
CONTENDED_SECONDS = 0.05  # before a write is done again that the store had to end
SPOOL_BYTES = 1024 * 1024  # of a scan in memory

INSERT = """\
INSERT INTO items
    (collection, id, version, updated_at, fingerprint, body, owner, removed{own_columns})
VALUES (:collection, :id, :version, :updated_at, :fingerprint, :body, :owner, :removed{own_values})"""

_UPDATE = """\
UPDATE items SET
    version = :version,
    updated_at = :updated_at,
    fingerprint = :fingerprint,
    body = :body,
    owner = :owner,
    removed = :removed{own_changes}
WHERE collection = :collection AND id = :id"""

# A row as of `Column.of_each`, of version 0, if the items are of another revision.
_DIFFERING = """\
SELECT DISTINCT {number}, '""', '', 0, '', CAST(revision AS text), '', NULL, NULL
FROM counters WHERE collection = {collection} AND revision <> {revision}"""

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

SCAN = """\
SELECT
    {item}
FROM items
WHERE collection = :collection
ORDER BY id"""

_DELETE = "DELETE FROM items WHERE collection = :collection AND id = :id"


class LockPlan(dict[str, bool]):
    """What an attempt of a write remembers for the next one: the collections that this locks first, in one order.

    They are those that the write changes, and that a former attempt has locked, or wanted to. The value is whether it
    has the collection alone, as by `lock_collection`, and not shared, as by a change of an item: where a former attempt
    has wanted that, or would have waited for an item out of the order; after a deadlock, everywhere.
    """


class Transaction(Deliveries, Renaming):
    """The operations inside `Store.write`: all are committed, or none. Changes of items raise RevisionDiffers.

    An exception, but RecordNotFound of a read, ends the transaction: nothing of it is stored, also if `work` catches
    it. That of a change is raised by that call, by a later one, or by `write`, so that a backend can send several
    changes to its server together.
    """

    turn_seconds: float = WRITE_TURN_SECONDS  # for which it computes before other requests have their turn
    search_seconds = 0.0  # for which the last search with a limit has worked
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
        return find_ids(self._database, self._collections[collection], query, limit)

    def page(
        self, collection: str, query: Query, max_bytes: int | None = None, *, seconds: float | None = None
    ) -> Page:
        """As `Store.page`, with the changes of this transaction, but without `change_token` and `total`.

        Raises SearchTooLong if it takes more than so many seconds.
        """
        with self._limit(seconds):
            page = self._database.page(self._collections[collection], query, max_bytes, bounded=True)
        return page._replace(change_token="", total=None)

    def count(self, collection: str, query: Query = ALL, *, most: int, seconds: float | None = None) -> int:
        """As `Store.count`, with the changes of this transaction. Raises SearchTooLong as `page`."""
        with self._limit(seconds):
            return count_items(self._database, self._collections[collection], query, most)

    def groups(self, collection: str, query: Query, most: int, *, seconds: float | None = None) -> list[Group]:
        """As `Store.groups`, with the changes of this transaction. Raises SearchTooLong as `page`."""
        with self._limit(seconds):
            return groups_of(self._database, self._collections[collection], query, most)

    def is_indexed(self, collection: str, query: Query) -> bool:
        """Whether an index has the items that one of the filters selects, or without filters their order."""
        return is_indexed(self._collections[collection], query)

    def explain(self, collection: str, query: Query) -> str:
        """Return how the database finds the items of a query, in its own words."""
        return "; ".join(self._database.explain(self._collections[collection], query))

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

    def lock_collection(self, collection: str, *, shared: bool = False) -> None:
        """Let no other transaction change items of a collection until this one ends.

        It waits for those that have begun to, and the changes of others then wait for this one: first come, first
        served. What is found after it stays so. If it is `shared`, it does what the first change of an item does: it
        keeps out those who lock the collection otherwise. Where there can be several writers at a time, a store
        overrides this: it locks nothing.
        """

    def flush(self) -> None:
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

        Raises RecordNotFound, after which the transaction continues. Where there can be several writers at a time, a
        store overrides this and `change_token`: these lock nothing.
        """
        return read_item(self._database, collection, id)

    def read_all(self, collection: str, ids: Sequence[str], *, to_delete: bool = False) -> list[Record]:
        """Return those of at most 1,000 records that exist, in the order of their ids, each locked as by `read`.

        What is `to_delete` is locked as by `lock_to_delete`.
        """
        records = []
        for id in sorted(ids):
            with suppress(RecordNotFound):
                records.append(read_item(self._database, collection, id))
        return records

    @abstractmethod
    def require_present(self, collection: str, ids: Sequence[str], missing: Callable[[str], ReferenceMissing]) -> None:
        """Lock records in this order against deletion, but not against changes, until this transaction ends.

        Raises what `missing` returns for the id of the first one that does not exist.
        """

    def lock_to_delete(self, collection: str, id: str) -> None:
        """Lock a record that is to be deleted: `require_present` of another transaction waits until this one ends.

        Where there can be several writers at a time, a store overrides this: it locks nothing.
        """

    def change_token(self, collection: str) -> str:
        """As `Store.change_token`, with the changes of this transaction.

        The collection is locked until this transaction ends, so a precondition on a list can compare it.
        """
        return state_of(self._database, self._collections[collection])[0]

    def set_aside(self, collection: str) -> str:
        """Move all items of a collection that is converted to another one, and return the name of that.

        So none of them has a unique value that is that of another one afterwards.
        """
        aside = f"{collection}!"  # which is the name of none
        self._database.change(_SET_ASIDE, {"collection": collection, "aside": aside})
        return aside

    def unconverted(self, source: str, after: str, limit: int) -> list[Record]:
        """Return at most so many items of a collection, or of those set aside, in order of id after one."""
        values = {"source": source, "after": after, "limit": limit}
        return list(map(Record._make, self._database.rows(_UNCONVERTED, values)))

    def store_converted(self, collection: str, source: str, record: Record) -> None:
        """Store a converted item, which was read from that source. Raises DuplicateValue."""
        self._change(_CONVERT, values_of(collection, record) | {"source": source}, counts=False)

    def revision(self, collection: str) -> int:
        """Return the revision of a collection's items, see `StoredState`; GONE if nothing is known of it any more."""
        state = stored_states(self._database).get(collection)
        return state.revision if state else GONE

    def set_revision(self, collection: str, old_revision: int, revision: int, now: str) -> None:
        """Note that items are of another revision since now. Raises RevisionDiffers unless it was `old_revision`."""
        values = {"collection": collection, "old_revision": old_revision, "revision": revision, "now": now}
        if not self._database.rows(_SET_REVISION, values):
            declared = self._collections.get(collection)
            raise RevisionDiffers(collection, declared.revision if declared else old_revision)

    @abstractmethod
    def store_response(self, id: bytes, response: StoredResponse, *, expired_before: float) -> None:
        """Store the response to the request with this id; one that was stored before `expired_before` is replaced.

        Raises ResponseStored if there is another one. If another transaction stores a response to the same request, it
        waits until that has ended. So it comes before all changes that a repeated request could be refused for, such
        as a unique value: the repetition then finds the first response, and no conflict.
        """

    @abstractmethod
    def sweep_responses(self, before: float, limit: int, *, latest: float = inf) -> int:
        """Delete at most `limit` responses that were stored before a time, the oldest first; return how many.

        One that was stored after the time `latest` is deleted too: a clock was wrong. The cost does not depend on
        the number of stored responses.
        """

    @abstractmethod
    def savepoint(self) -> AbstractContextManager[None]:
        """A context: an exception inside undoes the changes made inside, and the transaction continues.

        Exceptions of the changes inside are raised in it, or at its end. It can be nested.
        """


class Opening:
    """Lets one use at a time open the store.

    Others wait for the first attempt. After a failure they get the same at once while another attempt is under way, and
    for as long as the failed one took, at least `pause` seconds: of a hundred requests one waits. In a process that
    does not create a store, as a worker, a failure may heal; it is a StoreUnopened, whose cause is for the log.
    """

    def __init__(self, clock: Clock, *, creates: bool, pause: float = 0.0) -> None:
        self._clock = clock
        self._creates = creates
        self._pause = pause
        self._lock = threading.Lock()  # which gevent may have replaced since this module was imported
        self._failure: StoreError | None = None  # of the last attempt, or that it takes too long
        self._until = 0.0  # by the clock: when the next attempt may begin

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the right to open the store, if it is not open yet. Raises the failure of the attempt before."""
        if not self._lock.acquire(timeout=0 if self._failure else WAIT_SECONDS):
            failure = self._failure = self._failure or StoreUnavailable("the store is still being opened")
            raise _again(failure)  # not `self._failure`: another use may have opened the store at this moment
        try:
            begin = self._clock.monotonic()
            if self._failure and begin < self._until:
                raise _again(self._failure)
            try:
                yield
                self._failure = None
            except (StoreError, OSError) as error:
                failure, now = self._shown(error), self._clock.monotonic()
                self._failure = _again(failure)
                self._until = now + min(max(now - begin, self._pause), WAIT_SECONDS)
                raise failure from failure.__cause__
        finally:
            self._lock.release()

    def _shown(self, error: StoreError | OSError) -> StoreError:
        if isinstance(error, OSError):
            error = StoreUnavailable(f"the store cannot be opened: {error.strerror}")
        if self._creates or type(error) not in (StoreUnavailable, StoreBusy, StoreFull, StoreFailing, StoreDamaged):
            return error
        failure = StoreUnopened("the store cannot be opened")
        failure.__cause__ = copy(error)  # without its traceback, which would keep connections of the attempt
        return failure


def _again(error: StoreError) -> StoreError:
    again = copy(error)
    again.__cause__ = error.__cause__
    return again


class Store(ABC):
    """The store of some collections. Safe for threads and greenlets; several processes may share one.

    A process opens it when it first uses it; a process that is forked after that cannot use it. Every method raises
    StoreUnavailable if the store does not respond in time, cannot be opened, or was written by a newer program
    that this one cannot work with. Each that reads sees one moment.
    """

    _clock: Clock
    _opening: Opening
    _opened: Any = None  # what the process has open of it
    initial_content: Any = None  # of a new MemoryStore: what another one with the same collections has `saved`

    def __init__(self, collections: Iterable[Collection]) -> None:
        self._collections = {collection.name: collection for collection in collections}

    def open(self, *, alone: bool = False, indexed: bool = True) -> None:
        """Open the store; create and migrate it, create missing indexes and register new schemas, if necessary.

        If that needs space that a disk has not, a process that soon ends can open it `alone`: no other one can then.
        One that scans it or makes a backup, and nothing else, needs no index, and so it can be not `indexed`. Raises
        StoreUnavailable for a schema that cannot follow those that are registered, and for items whose values are to be
        unique and are not.
        """
        with self._opening.lock():
            self._opened = self._opened or self._open(alone, indexed)

    @property
    def _parts(self) -> Any:
        """What is open of the store. Raises StoreUnavailable."""
        while (opened := self._opened) is None:
            self.open()
        return opened

    @abstractmethod
    def _open(self, alone: bool, indexed: bool) -> Any: ...

    @abstractmethod
    def _read(self, read: Callable[Concatenate[Any, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """The result of `read` with a database that no other caller uses meanwhile."""

    @abstractmethod
    def _search(self, find: Callable[[Any], T], collection: Collection, query: Query, *, reads_all: bool = True) -> T:
        """As `_read`, for what can read many items of a query, or unless it `reads_all` of them one page."""

    @abstractmethod
    def _spooled(self, collection: str) -> IO[bytes]:
        """All records of a collection at one moment, in order of id, as `spool` writes them."""

    @property
    def epoch(self) -> str:
        return self._read(require_epoch)

    def read(self, collection: str, id: str) -> Record:
        """Return a record. Raises RecordNotFound."""
        return self._read(read_item, collection, id)

    def look_up(self, keys: Sequence[Key]) -> list[Found]:
        """Return what has these keys, and None for each that does not exist, at one moment.

        A database with a server is asked once.
        """
        return self._read(look_up, keys)

    def count(self, collection: str, query: Query = ALL, *, most: int | None = None) -> int:
        """Count the records of a query, at most so many.

        The cost depends on the number of those that are counted, but not for a query that selects all.
        """
        if not query.narrows:  # the order does not matter
            return self._read(state_of, self._collections[collection])[1]
        declared = self._collections[collection]
        return self._search(partial(count_items, collection=declared, query=query, most=most), declared, query)

    def find(self, collection: str, query: Query, limit: int) -> list[str]:
        """Return the ids of at most so many records of a query."""
        return self._read(find_ids, self._collections[collection], query, limit)

    def groups(self, collection: str, query: Query, most: int) -> list[Group]:
        """Return the groups of the query's records, at most so many, those with the most records first."""
        declared = self._collections[collection]
        return self._search(partial(groups_of, collection=declared, query=query, most=most), declared, query)

    def related(self, requests: Sequence[Related], max_bytes: int) -> list[tuple[int, str | int, Record]]:
        """Return the records of all that is `wanted`, each with the number of the part and the value it is found by.

        One statement finds all of them. If they have more than `max_bytes`, the last one is that which exceeds it.
        """
        queries = [(self._collections[request.collection], request.query) for request in requests]
        slowest = max(queries, key=lambda search: is_search(*search))
        return self._search(partial(self._find_related, requests, max_bytes), *slowest)

    def _find_related(
        self, requests: Sequence[Related], max_bytes: int, database: Database
    ) -> list[tuple[int, str | int, Record]]:
        parts, values, placeholder = list[str](), dict[str, Any](), database.columns.parameter.format
        for n, request in enumerate(requests):
            kind, collection = database.columns, self._collections[request.collection]
            column = kind.of(collection, request.field)
            query, plan = (
                kind.exact(collection, Query(request.filters, owners=request.owners)),
                Plan(frozenset(), by_owners=True),
            )
            where = conditions(collection, query, kind, plan, f"r{n}_")
            where += f" AND {column.condition(request.query.filters[0], column.json_value)}"
            values |= parameters(collection, query, kind, f"r{n}_")
            values[f"values{n}"] = [orjson.dumps(value).decode() for value in request.values]
            # "+": not by the index of all items
            order, source = f"+{POSITION}" if request.in_order else "id DESC", "items WHERE {}"
            if request.sort:
                keys = [(kind.of(collection, key.field).order, key.descending) for key in order_of(request.query)]
                order = ", ".join(f"{key}{' DESC' * is_down}" for key, is_down in keys)
                source = kind.apart
            terms = {"source": source.format(where), "order": order, "most": request.most}
            parts.append(column.of_each.format(number=n, values=placeholder(f"values{n}"), **terms))
            if request.field != "id":  # by which an item shows its revision itself
                name = literal(request.collection)
                parts.append(_DIFFERING.format(number=n, collection=name, revision=collection.revision))
        records, size = list[tuple[int, str | int, Record]](), 0
        for number, value, *row in database.records("\nUNION ALL\n".join(parts), values, max_bytes):
            record = Record._make(row)
            if not record.version:
                require_revision(self._collections[requests[number].collection], int(record.fingerprint))
            records.append((number, orjson.loads(value), record))
            size += len(record.body) + len(record.removed or b"")
            if size > max_bytes:
                break
        return records

    def change_token(self, collection: str) -> str:
        """Return a token that changes with each change of the collection. Two stores never have the same token.

        This holds also for copies of a file, and after a restore into one that is in use; in PostgreSQL it needs
        `restkeeper restore`.
        """
        return self._read(state_of, self._collections[collection])[0]

    def scan(self, collection: str) -> Iterator[Record]:
        """Yield every record in order of id. A slow reader blocks no other caller."""
        with self._spooled(collection) as file:
            for line in file:
                id, version, updated_at, fingerprint, body, owner, removed = orjson.loads(line)
                yield Record(id, version, updated_at, fingerprint, body.encode(), owner, removed and removed.encode())

    def deliveries(self, webhook: str, before: int | None, limit: int, state: str | None = None) -> list[LogEntry]:
        """Return the log of a webhook, the newest first, from before the delivery with that id."""
        return self._read(read_log, webhook, before, limit, state)

    def page(self, collection: str, query: Query, max_bytes: int | None = None) -> Page:
        """Return the page of a query.

        Its bodies and what is stored as `removed` have at most `max_bytes` together, except that it has at least one
        item. A backward query has the items nearest to its start.
        """
        declared = self._collections[collection]

        def find(database: Database) -> Page:
            return database.page(declared, query, max_bytes)

        return self._search(find, declared, query, reads_all=is_sorted(declared, query))

    def last_event(self) -> str:
        """Return the id of the newest event; without events, the id before the first. It is cheap."""
        return self._read(newest_id)

    @abstractmethod
    def events(self, after: str, filter: EventFilter, limit: int) -> Events:
        """Return at most `limit` events after the one with the id `after`; if it is empty, from the oldest on.

        It examines at most MOST_EXAMINED events, and ends with the one that brings their data over PAGE_BYTES. Raises
        EventsExpired if this store does not have that event, or the one after it (any more).
        """

    def subscriptions(self, active: Sequence[str], now: float) -> list[Subscription]:
        """Return the subscriptions that have work; of webhooks that are not `active`, manual deliveries only.

        A pause that an endpoint requested ends after LONGEST_PAUSE at most.
        """
        return self._read(find_subscriptions, active, now)

    def write(
        self,
        work: Callable[[Transaction], T],
        *,
        collections: Iterable[str] = (),
        wait: bool = True,
        use_reserve: bool = False,
        deadline: float | None = None,
    ) -> T:
        """Run `work` in one transaction, and return its result once it is durable.

        With a `deadline` (of time.monotonic) `work` can run several times, each time in a new transaction: after
        RecordChanged, and when the store had to end it because of others. So it has no other effects. Each attempt
        begins with the locks of the `collections` that it changes, and of what the former one has wanted. Without a
        deadline `work` runs at most once.

        If other callers write, it waits until the deadline, by default some seconds, or without `wait` not at all; then
        it raises StoreUnavailable. Raises StoreFull if the disk has no space, or less than is reserved; work that
        deletes, or that the service depends on, may `use_reserve`.

        An exception of `work` rolls back its changes and is raised here. It runs in a copy of the caller's context
        (contextvars), possibly on another thread: several callers can share one commit. See also `Transaction`.
        """
        plan = None if deadline is None else LockPlan(dict.fromkeys(collections, False))
        while True:
            try:
                return self._write(work, plan, wait=wait, use_reserve=use_reserve, deadline=deadline)
            except (RecordChanged, StoreContended) as error:
                if plan is None or deadline is None:
                    raise
                if self._clock.monotonic() >= deadline:
                    raise StoreContended("others change this item at the same time; try again") from None
                pause = YIELD_SECONDS
                if isinstance(error, StoreContended):
                    alone = [*plan] if isinstance(error, StoreDeadlocked) else filter(None, [error.collection])
                    plan.update(dict.fromkeys(alone, True))
                    pause = CONTENDED_SECONDS
            self._clock.sleep(pause)

    @abstractmethod
    def _write(
        self,
        work: Callable[[Transaction], T],
        plan: LockPlan | None,
        *,
        wait: bool,
        use_reserve: bool,
        deadline: float | None,
    ) -> T:
        """An attempt of `write`, whose locks are as in the plan; one that is not repeated has none."""

    @abstractmethod
    def convert(
        self, collections: Sequence[str], work: Callable[[Transaction], object], now: str, *, keeps: bool = False
    ) -> None:
        """Run `work`, which converts the items of collections to their revisions, in one transaction of any length.

        It stores each by `store_converted`. If another program has done it meanwhile, nothing is done.

        Until it has ended, others read the former items, or get RevisionDiffers, and their writes are refused. An
        exception, or the end of the process, changes nothing. If it `keeps` the items, a file has a backup beside it
        first. Raises StoreFull before it begins.
        """

    def _left(self, stored: Mapping[str, StoredState], collections: Iterable[str]) -> dict[str, int]:
        """Those of the collections whose items are to be converted, and the revisions of these."""
        revisions = {name: stored[name].revision for name in collections}
        return {name: revision for name, revision in revisions.items() if revision < self._collections[name].revision}

    def stored(self) -> dict[str, StoredState]:
        """Return the state of each collection."""
        return self._read(stored_states)

    def differing(self) -> list[RevisionDiffers]:
        """Return why some collections of this program can not be read now."""
        return [
            RevisionDiffers(name, declared.revision, stored.revision)
            for name, stored in self.stored().items()
            if (declared := self._collections.get(name)) and declared.revision != stored.revision
        ]

    @abstractmethod
    def tidy(self, *gone: str) -> list[str]:
        """Delete the indexes of these collections that are not declared (any more), and return their names.

        Those are the store's own ones, or the ones that are `gone`, of which no index is declared.

        Until then they serve older programs that use the same store, and unique ones refuse duplicates. After it such a
        program can have StoreUnavailable for filters of a field with several values.
        """

    @abstractmethod
    def backup(self, target: Path, *, replace: bool = False) -> None:
        """Write a consistent copy to a new file, while other callers read and write.

        With `replace` a former backup can have that name, until the new one is complete. Raises FileExistsError, and
        StoreUnavailable for what is no backup, or if the database needs a tool of its own, which it names.
        """

    @abstractmethod
    def check(self) -> None:
        """Raises StoreUnavailable if the store cannot be used, or this program cannot work with its migrations."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""


class MemoryStore(Store):
    """A store in memory, which can return to an earlier state, and whose content can also be elsewhere."""

    @abstractmethod
    def attach(self, before: Callable[[], object], after: Callable[[Transaction], object]) -> None:
        """Call `before` each transaction, and `after` its works, with the transaction that is then committed.

        Meanwhile no other caller uses the store. `before` can write, and what a StoreUnavailable of `after` ends is
        rolled back.
        """

    @abstractmethod
    def saved(self) -> Any:
        """Return all that it holds at this moment."""

    @abstractmethod
    def load(self, saved: Any) -> None:
        """Hold what was `saved`, of a store of the same collections, and nothing else. All change tokens are new."""


def values_of(collection: str, record: Record) -> dict[str, Any]:
    """The values of a record by the names of their columns, with texts in place of bytes."""
    values = record._asdict()
    removed = record.removed and record.removed.decode()
    return {**values, "collection": collection, "body": record.body.decode(), "removed": removed}


def row_of(event: Event) -> tuple[str | None, ...]:
    """The values of an event's columns, in the order of its fields."""
    return tuple(value.decode() if isinstance(value, bytes) else value for value in event)


def spool(rows: Iterable[tuple[str | int | bytes | None, ...]], folder: str | None = None) -> IO[bytes]:
    """Write records to a temporary file in a folder, by default in the system's, which may be in memory."""
    file = SpooledTemporaryFile(SPOOL_BYTES, dir=folder)
    try:
        for row in rows:
            file.write(orjson.dumps(row, default=bytes.decode, option=orjson.OPT_APPEND_NEWLINE))
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file

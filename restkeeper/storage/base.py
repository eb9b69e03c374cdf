"""A store: what callers can do with it, and what is the same in all databases. `errors` has the exceptions.

It knows records and queries, and no requests.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, ClassVar, Concatenate, ParamSpec, TypeVar

import orjson

from restkeeper.clock import YIELD_SECONDS, Clock
from restkeeper.hook import Hook
from restkeeper.storage.errors import RecordChanged, RevisionDiffers, StoreContended, StoreDeadlocked
from restkeeper.storage.interface import ALL, Collection, Found, Group, Key, Page, Query, Record, Related
from restkeeper.storage.opening import OpenGate
from restkeeper.storage.planning import count_items, find_ids
from restkeeper.storage.plans import is_search, is_sorted
from restkeeper.storage.records import StoredState, look_up, require_epoch, state_of, stored_states
from restkeeper.storage.sql import Database
from restkeeper.storage.transactions import LockPlan, Transaction, read_item

__all__ = ["MemoryStore", "Store", "Transaction"]

T = TypeVar("T")
P = ParamSpec("P")

CONTENDED_SECONDS = 0.05  # before a write is done again that the store had to end
SPOOL_BYTES = 1024 * 1024  # of a scan in memory

SCAN = """\
SELECT
    {item}
FROM items
WHERE collection = :collection
ORDER BY id"""


_beginning: ContextVar["Store | None"] = ContextVar("_beginning", default=None)  # the store whose hooks are called


class Store(ABC):
    """The store of some collections. Safe for threads and greenlets; several processes may share one.

    A process opens it when it first uses it; a process that is forked after that cannot use it. Every method raises
    StoreUnavailable if the store does not respond in time, cannot be opened, or was written by a newer program
    that this one cannot work with. Each that reads sees one moment.

    `beginning` are called before each transaction that can write, except before those in which they write themselves;
    `committing` before the commit, which can be that of several writes, when the store has accepted all changes. They
    read there, and do not write. A StoreUnavailable that one raises is the outcome of these writes.
    """

    feed: ClassVar[str]  # of the backend: see `feed.feed_of`
    _clock: Clock
    _opening: OpenGate
    _opened: Any = None  # what the process has open of it
    initial_content: Any = None  # of a new MemoryStore: what another one with the same collections has `saved`

    def __init__(self, collections: Iterable[Collection]) -> None:
        self._collections = {collection.name: collection for collection in collections}
        self.beginning: Hook[Callable[[], object]] = Hook()
        self.committing: Hook[Callable[[Transaction], object]] = Hook()

    def open(self, *, alone: bool = False, indexed: bool = True) -> None:
        """Open the store; create and migrate it, create missing indexes and register new schemas, if necessary.

        `alone` needs less space of the disk: no other process can use the store then. Scans and backups need it not
        `indexed`. Raises StoreUnavailable for a schema that does not follow those before, and for duplicate values.
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
    def read_with(self, read: Callable[Concatenate[Any, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """Return the result of `read` with a database that no other caller uses meanwhile."""

    @abstractmethod
    def _search(self, find: Callable[[Any], T], collection: Collection, query: Query, *, reads_all: bool = True) -> T:
        """As `read_with`, for what can read many items of a query, or unless it `reads_all` of them one page."""

    @abstractmethod
    def _spooled(self, collection: str) -> IO[bytes]:
        """All records of a collection at one moment, in order of id, as `spool` writes them."""

    @property
    def epoch(self) -> str:
        """A random text that changes with the history of the store. Raises EpochMissing."""
        return self.read_with(require_epoch)

    def read(self, collection: str, id: str) -> Record:
        """Return a record. Raises RecordNotFound."""
        return self.read_with(read_item, collection, id)

    def look_up(self, keys: Sequence[Key]) -> list[Found]:
        """Return what has these keys, and None for each that does not exist, at one moment.

        A database with a server is asked once.
        """
        return self.read_with(look_up, keys)

    def count(self, collection: str, query: Query = ALL, *, most: int | None = None) -> int:
        """Count the records of a query, at most so many.

        The cost depends on the number of those that are counted, but not for a query that selects all.
        """
        if not query.narrows:  # the order does not matter
            return self.read_with(state_of, self._collections[collection])[1]
        declared = self._collections[collection]
        return self._search(partial(count_items, collection=declared, query=query, most=most), declared, query)

    def find(self, collection: str, query: Query, limit: int) -> list[str]:
        """Return the ids of at most so many records of a query."""
        return self.read_with(find_ids, self._collections[collection], query, limit)

    def groups(self, collection: str, query: Query, most: int) -> list[Group]:
        """Return the groups of the query's records, at most so many, those with the most records first."""
        declared, groups_of = self._collections[collection], import_module("restkeeper.storage.groups").groups_of
        return self._search(partial(groups_of, collection=declared, query=query, most=most), declared, query)

    def related(self, requests: Sequence[Related], max_bytes: int) -> list[tuple[int, str | int, Record]]:
        """Return the records of all `requests`: the number of the request, the value of its field, and the record.

        One statement finds all of them. The records end with the one that exceeds `max_bytes`.
        """
        queries = [(self._collections[request.collection], request.query) for request in requests]
        slowest = max(queries, key=lambda search: is_search(*search))
        find_related = import_module("restkeeper.storage.related").find_related
        find = partial(find_related, collections=self._collections, requests=requests, max_bytes=max_bytes)
        return self._search(find, *slowest)

    def change_token(self, collection: str) -> str:
        """Return a token that changes with each change of the collection. Two stores never have the same token.

        This holds also for copies of a file, and after a restore into one that is in use; in PostgreSQL it needs
        `restkeeper restore`.
        """
        return self.read_with(state_of, self._collections[collection])[0]

    def scan(self, collection: str) -> Iterator[Record]:
        """Yield every record in order of id. A slow reader blocks no other caller."""
        with self._spooled(collection) as file:
            for line in file:
                id, version, updated_at, fingerprint, body, owner, removed_fields = orjson.loads(line)
                yield Record(
                    id,
                    version,
                    updated_at,
                    fingerprint,
                    body.encode(),
                    owner,
                    removed_fields and removed_fields.encode(),
                )

    def page(self, collection: str, query: Query, max_bytes: int | None = None) -> Page:
        """Return the page of a query.

        Its bodies and `removed_fields` have at most `max_bytes` together, except that it has at least one item. A
        backward query has the items nearest to its start.
        """
        declared = self._collections[collection]

        def find(database: Database) -> Page:
            return database.page(declared, query, max_bytes)

        return self._search(find, declared, query, reads_all=is_sorted(declared, query))

    def write(
        self,
        work: Callable[[Transaction], T],
        *,
        collections: Iterable[str] = (),
        wait: bool = True,
        use_reserve: bool = False,  # for work that deletes, or that the service depends on
        deadline: float | None = None,
    ) -> T:
        """Run `work` in one transaction, and return its result once it is durable. Raises what `work` raises.

        It locks the `collections` first. Raises StoreUnavailable at the `deadline` (of time.monotonic; by default after
        some seconds), or at once without `wait`, and StoreFull if the disk has less space than is reserved.
        """
        # With a deadline, `work` is repeated in new transactions, after RecordChanged and when the store had to end it
        # because of others, so it has no other effects. An attempt also locks what the one before wanted to lock.
        plan = None if deadline is None else LockPlan(dict.fromkeys(collections, False))
        while True:
            try:
                return self._write(work, plan, deadline, wait, use_reserve)
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

    def _begin(self) -> None:
        """Call what is `beginning`, unless this is a write of one of them."""
        if not self.beginning.functions or _beginning.get() is self:
            return
        token = _beginning.set(self)
        try:
            for begin in self.beginning.functions:
                begin()
        finally:
            _beginning.reset(token)

    @abstractmethod
    def _write(
        self, work: Callable[[Transaction], T], plan: LockPlan | None, deadline: float | None, wait: bool, reserve: bool
    ) -> T:
        """Attempt to `write` with the locks of the plan; an attempt that is not repeated has no plan."""

    @abstractmethod
    def convert(
        self, collections: Sequence[str], work: Callable[[Transaction], object], now: str, *, keeps: bool = False
    ) -> None:
        """Run `work`, which stores converted items of collections by `store_converted`, in one transaction.

        It does nothing if another program has done it. Meanwhile others read the items as they were, or get
        RevisionDiffers, and cannot write. If it `keeps` the items, a file has a backup first. Raises StoreFull.
        """

    def _unconverted(self, stored: Mapping[str, StoredState], collections: Iterable[str]) -> dict[str, int]:
        """The collections whose items are still to be converted, and the revisions of these items."""
        revisions = {name: stored[name].revision for name in collections}
        return {name: revision for name, revision in revisions.items() if revision < self._collections[name].revision}

    def stored(self) -> dict[str, StoredState]:
        """Return the state of each collection."""
        return self.read_with(stored_states)

    def differing(self) -> list[RevisionDiffers]:
        """Return why some collections of this program can not be read now."""
        return [
            RevisionDiffers(name, declared.revision, stored.revision)
            for name, stored in self.stored().items()
            if (declared := self._collections.get(name)) and declared.revision != stored.revision
        ]

    @abstractmethod
    def tidy(self, *gone: str) -> list[str]:
        """Delete the indexes that are not declared, or all indexes of collections that are `gone`; return their names.

        Older programs that use the store can then get StoreUnavailable for filters of a field with several values.
        """

    @abstractmethod
    def backup(self, target: Path, *, replace: bool = False) -> None:
        """Write a consistent copy to a new file, while other callers read and write; `replace` an older backup.

        Raises FileExistsError, and StoreUnavailable for a file that is no backup, and where a tool of the database
        makes backups.
        """

    @abstractmethod
    def check(self) -> None:
        """Raises StoreUnavailable if the store cannot be used, or this program cannot work with its migrations."""

    def require_file(self) -> None:  # noqa: B027 - not every store is a file
        """Raises StoreUnavailable if the store is a file that is missing or was replaced, which no read notices."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""


class MemoryStore(Store):
    """A store in memory, which can return to an earlier state."""

    @abstractmethod
    def saved(self) -> Any:
        """Return all that it holds at this moment."""

    @abstractmethod
    def load(self, saved: Any) -> None:
        """Hold what was `saved`, of a store of the same collections, and nothing else. All change tokens are new."""


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

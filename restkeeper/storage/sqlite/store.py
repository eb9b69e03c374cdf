"""The store in SQLite: a file in WAL mode, or memory with one connection and a lock.

The writers of a process share commits (`writer.py`). Each reader has its own connection; searches are interrupted
regularly, so that other requests continue (`search.py`).
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from restkeeper.clock import Clock
from restkeeper.storage.contract import ALL, Collection, Page, Query, Record, StoredResponse, Transaction
from restkeeper.storage.errors import StoreFull, StoreUnavailable
from restkeeper.storage.outbox import EventFilter, Events, LogEntry, Subscription
from restkeeper.storage.sqlite import health, sql
from restkeeper.storage.sqlite import search as sqlite_search
from restkeeper.storage.sqlite.connection import connect, snapshot, store_error, translated
from restkeeper.storage.sqlite.deliveries import find_subscriptions, read_log
from restkeeper.storage.sqlite.events import find_events, newest_id
from restkeeper.storage.sqlite.files import (
    LogLimit,
    create_private,
    forget_identity,
    free_space_of,
    spooled,
)
from restkeeper.storage.sqlite.identity import epoch_of, revision_of, secret_of, state_of
from restkeeper.storage.sqlite.items import find_response, read_item
from restkeeper.storage.sqlite.lockfile import LockFile
from restkeeper.storage.sqlite.migrations import MIGRATIONS, declare, migrate
from restkeeper.storage.sqlite.search import find_page, is_search, time_limit
from restkeeper.storage.sqlite.writer import Writer

T = TypeVar("T")

OLDEST_SQLITE = (3, 37, 0)  # STRICT tables

SEARCHES = 8  # at the same time in each process

_SCAN = f"""\
SELECT
{sql.COLUMNS}
FROM items
WHERE collection = ?
ORDER BY id"""  # noqa: S608 - constant columns


class SqliteStore:
    """See `contract.Store`. The path ":memory:" means a store in memory, which has no `min_free_space`."""

    def __init__(
        self,
        path: str,
        collections: Iterable[Collection],
        *,
        synchronous: str = "full",
        min_free_space: int = 0,
        clock: Clock = time,
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreUnavailable(f"SQLite is {sqlite3.sqlite_version}; at least 3.37 is needed")
        self._path = path
        self._connect = partial(connect, path, synchronous, clock)
        self._clock = clock
        self._in_memory = path == ":memory:"
        self._collections = {collection.name: collection for collection in collections}
        self._min_free_space = min_free_space
        self._free_space = None if self._in_memory else partial(free_space_of, os.path.dirname(os.path.realpath(path)))
        self._idle: list[sqlite3.Connection] = []
        self._searches = threading.BoundedSemaphore(SEARCHES)
        self._search_turn = threading.Lock()
        self._readers = 0  # connections of readers, idle or in use
        self._log_limit = LogLimit(path, clock)
        self._lock = None if self._in_memory else LockFile(path)
        self._file = self._lock and health.opened_file(path, self._lock)
        with translated(f"the store {path!r} cannot be opened"):
            if not self._in_memory:
                with suppress(OSError):  # it exists, or SQLite raises the reason
                    create_private(path)
            connection = self._connect()
            migrate(connection)
            declare(connection, self._collections.values())
            self.secret = secret_of(connection)
            connection.execute("PRAGMA busy_timeout = 0")  # `execute_waiting` waits
            connection.execute("PRAGMA temp_store = MEMORY")  # for savepoints; the default is a file at each commit
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if self._lock:
            self._file = self._file or health.StoreFile(path)
            self._file.has_log = mode == "wal"
        self._writer = Writer(
            connection,
            lock=self._lock,
            require_file=self._require_file,
            after_commit=partial(self._log_limit.apply, connection),
            clock=clock,
        )

    @property
    def epoch(self) -> str:
        return self._read_with_epoch(epoch_of)

    def read(self, collection: str, id: str) -> Record:
        with self._reader() as connection:
            return read_item(connection, collection, id)

    def page(self, collection: str, query: Query, max_bytes: int | None = None) -> Page:
        declared = self._collections[collection]
        with self._searching(declared, query):
            return self._read_with_epoch(partial(self._find_page, declared, query, max_bytes))

    def _find_page(
        self, collection: Collection, query: Query, max_bytes: int | None, connection: sqlite3.Connection
    ) -> Page | None:
        """The page and its revision in one snapshot; None if the epoch is missing."""
        with snapshot(connection), self._time_limit(collection, query, connection):
            revision, items = state_of(connection, collection.name)
            if not revision:
                return None
            page = find_page(connection, collection, query, max_bytes)
            return page._replace(revision=revision, total=None if query.narrows else items)

    def count(self, collection: str, query: Query = ALL) -> int:
        if not query.narrows:  # the order does not matter
            with self._reader() as connection:
                return state_of(connection, collection)[1]
        declared = self._collections[collection]
        with (
            self._searching(declared, query),
            self._reader() as connection,
            self._time_limit(declared, query, connection),
        ):
            (number,) = connection.execute(*sql.select_count(declared, query)).fetchone()
        return int(number)

    def revision(self, collection: str) -> str:
        return self._read_with_epoch(lambda connection: revision_of(connection, collection))

    def last_event(self) -> str:
        return self._read_with_epoch(newest_id)

    def events(self, after: str, filter: EventFilter, limit: int) -> Events:
        return self._read_with_epoch(partial(find_events, after, filter, limit))

    def subscriptions(self, active: Sequence[str], now: float) -> list[Subscription]:
        self._require_file()  # a process that only reads would not notice that the file was replaced
        with self._reader() as connection:
            return find_subscriptions(connection, active, now)

    def deliveries(self, webhook: str, before: int | None, limit: int, state: str | None = None) -> list[LogEntry]:
        with self._reader() as connection:
            return read_log(connection, webhook, before, limit, state)

    def _read_with_epoch(self, read: Callable[[sqlite3.Connection], T | None]) -> T:
        """The result of `read`, which is empty or None if the file has no epoch; then one is created first."""
        with self._reader() as connection:
            if result := read(connection):
                return result
        self._writer.write(lambda transaction: None)  # creates the epoch
        with self._reader() as connection:
            if result := read(connection):
                return result
        raise StoreUnavailable("the store was restored at this moment")

    def find_response(self, id: bytes) -> StoredResponse | None:
        with self._reader() as connection:
            return find_response(connection, id)

    def write(
        self,
        work: Callable[[Transaction], T],
        *,
        wait: bool = True,
        use_reserve: bool = False,
        deadline: float | None = None,
    ) -> T:
        if not use_reserve and (shortage := self._shortage()):
            raise StoreFull(shortage)
        return self._writer.write(work, wait=wait, deadline=deadline)

    def _shortage(self) -> str:
        """A message if the disk has too little free space, or an empty text."""
        if self._free_space is None:
            return ""
        try:
            free = self._free_space()
        except OSError as error:
            raise StoreUnavailable(f"the free space of the store's disk cannot be read: {error.strerror}") from error
        if free >= self._min_free_space:
            return ""
        return f"the disk of the store has {free} free bytes, and {self._min_free_space} of them are reserved"

    def scan(self, collection: str) -> Iterator[Record]:
        with self._reader() as connection:
            records = spooled(connection.execute(_SCAN, (collection,)), self._path)
            first = next(records, None)
        if first is not None:
            yield first
            yield from records

    def backup(self, target: Path) -> None:
        if target.exists():
            raise FileExistsError(f"{target} exists")
        failure = f"no backup at {str(target)!r}"
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            create_private(str(partial))
        except OSError as error:
            raise StoreUnavailable(f"{failure}: {error.strerror}") from error
        try:
            with self._reader() as connection, translated(failure):
                connection.execute("VACUUM INTO ?", (str(partial),))
                forget_identity(str(partial))
            with partial.open("rb") as written:
                os.fsync(written.fileno())
            partial.rename(target)  # only a complete backup that is on the disk has this name
        finally:
            partial.unlink(missing_ok=True)

    def check(self) -> None:
        if self._file:
            self._file.check()
        if self._lock and (damage := self._lock.note):
            raise StoreUnavailable(f"the store is damaged: {damage}")
        known = self.epoch
        with self._reader() as connection:
            connection.execute("PRAGMA shrink_memory")  # the next statements read from the file
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            epoch = epoch_of(connection)
            connection.execute("SELECT 1 FROM items LIMIT 1").fetchone()
        if version != len(MIGRATIONS):
            raise StoreUnavailable(f"the store has migration {version}, this program needs {len(MIGRATIONS)}")
        if epoch != known:
            raise StoreUnavailable("the file has another store than the one that was opened")
        if shortage := self._shortage():
            raise StoreUnavailable(shortage)

    def close(self) -> None:
        with self._writer.in_turn():
            for connection in (self._writer.connection, *self._idle):
                connection.close()
            if self._file and len(self._idle) == self._readers:  # none is in use: see `StoreFile`
                self._file.close()
            if self._lock:
                self._lock.close()
            self._idle.clear()
            self._file = None

    def _require_file(self) -> None:
        """Raises StoreGone if the file was moved, deleted or replaced."""
        if self._file:
            self._file.require()

    @contextmanager
    def _searching(self, collection: Collection, query: Query) -> Iterator[None]:
        """Limit the number of searches at the same time: each can take long and needs a connection."""
        if not is_search(collection, query):
            yield
            return
        if self._file:  # the log can be truncated when no search reads from it
            self._log_limit.wait(sqlite_search.READ_SECONDS, self._truncate_log)
        if not self._searches.acquire(timeout=sqlite_search.READ_SECONDS):
            raise StoreUnavailable(f"{SEARCHES} searches are under way; narrow yours by a field with an index")
        try:
            yield
        finally:
            self._searches.release()

    def _truncate_log(self) -> None:
        with suppress(StoreUnavailable, StoreFull):  # another writer truncates it
            self._writer.write(lambda transaction: None, wait=False)

    def _time_limit(
        self, collection: Collection, query: Query, connection: sqlite3.Connection
    ) -> AbstractContextManager[None]:
        """The time limit of a search; other queries have none."""
        if not is_search(collection, query):
            return nullcontext()
        is_log_full = partial(self._log_limit.has_reached, self._log_limit.next_end())
        return time_limit(sqlite_search.READ_SECONDS, connection, self._clock, self._search_turn, is_log_full)

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """A connection that no other caller uses meanwhile; in memory, the only one."""
        connection = None
        try:
            if self._in_memory:
                with self._writer.in_turn():
                    yield self._writer.connection
                return
            try:
                connection = self._idle.pop()
            except IndexError:
                self._require_file()  # the log of this file would damage another one
                connection = self._connect()
                self._readers += 1
            yield connection
        except sqlite3.Error as error:
            raise store_error("the store does not answer", error) from error
        finally:
            if connection is not None:
                self._idle.append(connection)

"""SQLite: one file in WAL mode, or memory behind one lock.

Writers of one process share commits (`writer.py`). Readers have connections of their own, and searches let others work
meanwhile (`search.py`).
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from restkeeper.clock import Clock
from restkeeper.storage.contract import ALL, Collection, Page, Query, Record, StoredResponse, Transaction
from restkeeper.storage.errors import StoreFull, StoreUnavailable
from restkeeper.storage.sqlite import health, sql, waiting
from restkeeper.storage.sqlite import search as sqlite_search
from restkeeper.storage.sqlite.deliveries import OutboxReader
from restkeeper.storage.sqlite.errors import store_error, translated
from restkeeper.storage.sqlite.events import snapshot
from restkeeper.storage.sqlite.files import (
    LOG_BYTES,
    LogLimit,
    create_private,
    forget_identity,
    free_space_beside,
    spooled,
)
from restkeeper.storage.sqlite.identity import epoch_of, required, revision_of, secret_of
from restkeeper.storage.sqlite.items import find_item, find_response, missing
from restkeeper.storage.sqlite.lockfile import LockFile
from restkeeper.storage.sqlite.migrations import MIGRATIONS, declare, migrate
from restkeeper.storage.sqlite.search import find_page, within
from restkeeper.storage.sqlite.waiting import patiently
from restkeeper.storage.sqlite.writer import Writer

T = TypeVar("T")

OLDEST_SQLITE = (3, 37, 0)  # STRICT tables

SEARCHES = 8  # that each process runs at once
STATEMENTS = 32  # that each connection keeps prepared

_SCAN = f"""\
SELECT
{sql.COLUMNS}
FROM items
WHERE collection = ?
ORDER BY id"""  # noqa: S608 - constant columns


class SqliteStore(OutboxReader):
    """See `contract.Store`. `synchronous` is SQLite's: "full" or "normal".

    `free_space` returns the bytes that are free on the store's disk; while they are fewer than `min_free_space`, writes
    fail. A store in memory has no disk, and needs `free_space` to have that bound.
    """

    def __init__(
        self,
        path: str,
        collections: Iterable[Collection],
        *,
        synchronous: str = "full",
        min_free_space: int = 0,
        free_space: Callable[[], int] | None = None,
        clock: Clock = time,
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreUnavailable(f"SQLite is {sqlite3.sqlite_version}; at least 3.37 is needed")
        self._path = path
        self._synchronous = synchronous
        self._clock = clock
        self._in_memory = path == ":memory:"
        self._collections = {collection.name: collection for collection in collections}
        self._min_free_space = min_free_space
        self._free_space = free_space or (None if self._in_memory else free_space_beside(path))
        self._idle: list[sqlite3.Connection] = []
        self._searches = threading.BoundedSemaphore(SEARCHES)
        self._search_turn = threading.Lock()
        self._readers = 0  # connections for reading, idle or in use
        self._log_limit = LogLimit(path, clock)
        self._lock = None if self._in_memory else LockFile(path)
        self._file = self._lock and health.opened_file(path, self._lock)
        with translated(f"the store {path!r} cannot be opened"):
            if not self._in_memory:
                with suppress(OSError):  # there is one, or none can be made, and SQLite says why
                    create_private(path)
            connection = self._connect(timeout=waiting.BUSY_SECONDS)
            migrate(connection)
            declare(connection, self._collections.values())
            self.secret = secret_of(connection)
            connection.execute("PRAGMA busy_timeout = 0")  # `patiently` does the waiting
            connection.execute("PRAGMA temp_store = MEMORY")  # for what savepoints copy, else a file at each commit
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if self._lock:
            self._file = self._file or health.StoreFile(path)
            self._file.has_log = mode == "wal"
        self._writer = Writer(
            connection, lock=self._lock, require_file=self._require_file, after_commit=self._after_commit, clock=clock
        )

    @property
    def epoch(self) -> str:
        return self._identified(epoch_of)

    def read(self, collection: str, id: str) -> Record:
        with self._reader() as connection:
            if (record := find_item(connection, collection, id)) is None:
                raise missing()
        return record

    def page(self, collection: str, query: Query, max_bytes: int | None = None) -> Page:
        with self._searching(query):
            return self._identified(partial(self._find_page, self._collections[collection], query, max_bytes))

    def _find_page(
        self, collection: Collection, query: Query, max_bytes: int | None, connection: sqlite3.Connection
    ) -> Page | None:
        """The page and its revision in one snapshot, None where the epoch is missing."""
        with snapshot(connection), self._bounded(query, connection):
            if not (revision := revision_of(connection, collection.name)):
                return None
            return find_page(connection, collection, query, max_bytes)._replace(revision=revision)

    def count(self, collection: str, query: Query = ALL) -> int:
        if query.narrows:
            statement, parameters = sql.select_count(self._collections[collection], query)
        else:  # whatever its order
            query = ALL
            statement, parameters = "SELECT items FROM collections WHERE name = :name", {"name": collection}
        with self._searching(query), self._reader() as connection, self._bounded(query, connection):
            (number,) = connection.execute(statement, parameters).fetchone()
        return int(number)

    def revision(self, collection: str) -> str:
        return self._identified(lambda connection: revision_of(connection, collection))

    def _identified(self, read: Callable[[sqlite3.Connection], T | None]) -> T:
        """What `read` returns of a file with an epoch; where that is missing, it returns nothing, and one is made."""
        with self._reader() as connection:
            if found := read(connection):
                return found
        self._writer.write(lambda transaction: None)  # which makes it
        with self._reader() as connection:
            return required(read(connection))

    def find_response(self, id: bytes) -> StoredResponse | None:
        with self._reader() as connection:
            return find_response(connection, id)

    def write(
        self,
        work: Callable[[Transaction], T],
        *,
        patient: bool = True,
        use_reserve: bool = False,
        deadline: float | None = None,
    ) -> T:
        if not use_reserve and (lack := self._lack_of_space()):
            raise StoreFull(lack)
        return self._writer.write(work, patient=patient, deadline=deadline)

    def _lack_of_space(self) -> str:
        """What is to be said of the disk while it has too little space; else nothing."""
        if self._free_space is None:
            return ""
        try:
            free = self._free_space()
        except OSError as error:
            raise StoreUnavailable(f"the disk of the store cannot be asked: {error.strerror}") from error
        if free >= self._min_free_space:
            return ""
        return f"the disk of the store has {free} free bytes, and {self._min_free_space} of them are reserved"

    def _after_commit(self) -> None:
        if self._file:
            self._log_limit.apply(self._writer.connection)

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
            partial.rename(target)  # it has its name only once it is whole and on the disk
        finally:
            partial.unlink(missing_ok=True)

    def check(self) -> None:
        if self._file:
            self._file.check()
        if self._lock and (damage := self._lock.note):
            raise StoreUnavailable(f"the store is damaged: {damage}")
        known = self.epoch
        with self._reader() as connection:
            connection.execute("PRAGMA shrink_memory")  # so that what follows is read from the file
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            epoch = epoch_of(connection)
            connection.execute("SELECT 1 FROM items LIMIT 1").fetchone()
        if version != len(MIGRATIONS):
            raise StoreUnavailable(f"migration {version} is in force, this program needs {len(MIGRATIONS)}")
        if epoch != known:
            raise StoreUnavailable("the store's file holds another store than the one that was opened")
        if lack := self._lack_of_space():
            raise StoreUnavailable(lack)

    def close(self) -> None:
        with self._writer.in_turn():
            for connection in (self._writer.connection, *self._idle):
                connection.close()
            if self._file and len(self._idle) == self._readers:  # else some are in use: see `StoreFile`
                self._file.close()
            if self._lock:
                self._lock.close()
            self._idle.clear()
            self._file = None

    def _require_file(self) -> None:
        """Raises StoreGone when writes would go to a file that no name leads to, or that holds something else."""
        if self._file:
            self._file.require()

    def _connect(self, timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS
        )
        connection.create_function("fold", 1, sql.fold, deterministic=True)
        connection.create_function("full_text", -1, sql.full_text, deterministic=True)
        deadline = self._clock.monotonic() + waiting.BUSY_SECONDS
        patiently(connection, "PRAGMA journal_mode = WAL", deadline, self._clock)  # which does not wait by itself
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    @contextmanager
    def _searching(self, query: Query) -> Iterator[None]:
        """One of the few searches at a time: each may take long, and has a connection of its own.

        What is no search, a page in the order of ids, waits for none.
        """
        if not _is_search(query):
            yield
            return
        if self._file:  # its log becomes short once all searches that read from it have ended
            self._log_limit.wait(sqlite_search.READ_SECONDS, self._shorten_log)
        if not self._searches.acquire(timeout=sqlite_search.READ_SECONDS):
            raise StoreUnavailable(f"{SEARCHES} searches are under way; narrow yours by a field with an index")
        try:
            yield
        finally:
            self._searches.release()

    def _shorten_log(self) -> None:
        with suppress(StoreUnavailable, StoreFull):  # somebody writes, and shortens it
            self._writer.write(lambda transaction: None, patient=False)

    def _bounded(self, query: Query, connection: sqlite3.Connection) -> AbstractContextManager[None]:
        """The bound in time of a search; what is no search needs none, and waits for nobody's turn."""
        if not _is_search(query):
            return nullcontext()
        end = self._log_limit.next_end()
        return within(
            sqlite_search.READ_SECONDS,
            connection,
            self._clock,
            self._search_turn,
            lambda: self._log_limit.has_reached(end),
        )

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """A connection for this caller alone; in memory, the one there is."""
        connection = None
        try:
            if self._in_memory:
                with self._writer.in_turn():
                    yield self._writer.connection
                return
            try:
                connection = self._idle.pop()
            except IndexError:
                self._require_file()  # another file must never meet the log of this one
                connection = self._connect(timeout=waiting.BUSY_SECONDS)
                self._readers += 1
            yield connection
        except sqlite3.Error as error:
            raise _unanswered(error) from error
        finally:
            if connection is not None:
                self._idle.append(connection)


def _is_search(query: Query) -> bool:
    return bool(query.narrows or query.sort or query.offset)


def _unanswered(error: sqlite3.Error) -> Exception:
    return store_error("the store does not answer", error)

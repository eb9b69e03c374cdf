"""The store in SQLite: a file in WAL mode, or memory with one connection and a lock.

The writers of a process share commits (`writer.py`). Each reader has its own connection; searches have limits and are
interrupted regularly, so that other requests continue (`search.py`).
"""

import atexit
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from math import inf
from pathlib import Path
from shutil import disk_usage
from typing import IO, TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from restkeeper.clock import YIELD_SECONDS
from restkeeper.storage.base import SCAN, Store, spool
from restkeeper.storage.errors import EpochMissing, StoreDamaged, StoreFailing, StoreFull, StoreGone, StoreUnavailable
from restkeeper.storage.interface import Collection, Query
from restkeeper.storage.location import DEFAULTS, Options, size_of
from restkeeper.storage.opening import OpenGate
from restkeeper.storage.plans import is_search
from restkeeper.storage.records import epoch_of, stored_states
from restkeeper.storage.sql import MIGRATIONS, is_breaking, require_usable
from restkeeper.storage.sqlite.connection import APPLICATION_ID, DIALECT, SqliteConnection, connect
from restkeeper.storage.sqlite.failures import is_disk_full, is_full, store_error, translated
from restkeeper.storage.sqlite.items import SqliteTransaction
from restkeeper.storage.sqlite.migrations import drop_undeclared, migrate, version_of
from restkeeper.storage.sqlite.search import Searches
from restkeeper.storage.sqlite.writer import LogLimit, Writer
from restkeeper.storage.transactions import LockPlan, Transaction

if TYPE_CHECKING:
    from restkeeper.storage.sqlite.file import LockFile, StoreFile

T = TypeVar("T")
P = ParamSpec("P")

OLDEST_SQLITE = (3, 37, 0)  # STRICT tables
GROWS = 2  # times the size of a file that a conversion of all items needs: the log, and what the file becomes
CACHE, CONVERSION_CACHE = 2000, 128 * 1024  # KiB of pages in memory: SQLite's default, and while items are converted
SPACE_SECONDS = 0.1  # between two readings of a disk's free space: what is written meanwhile is less than is reserved
CLOSE_SECONDS = 2.0  # for which `close` waits for a write of this process, and again for readers of the log
KILLED_SECONDS = 0.2  # for which it looks whether it is the last one: a process that was killed needs some time to end


@dataclass
class _Opened:
    """What a process has open of a store: the writer, the idle readers, and of a file the lock and the descriptor.

    `readers` is the number of connections for reading, idle or in use.
    """

    writer: Writer
    connect: Callable[[], SqliteConnection]
    lock: "LockFile | None"
    file: "StoreFile | None"
    idle: list[SqliteConnection] = field(default_factory=list)
    readers: int = 0


_stores: weakref.WeakSet["SqliteStore"] = weakref.WeakSet()
_inherited: dict[str, list[object]] = {}  # what a forked process must not use, and not close, by the file
_abandoned: list[object] = []  # connections to a file that was replaced, which must not be closed


def _forget_connections() -> None:
    for store in _stores:
        store.forget_connections()


def _close_stores() -> None:
    """After a process has ended properly, the last one of all, the store is one file."""
    for store in list(_stores):
        with suppress(StoreUnavailable):  # nothing is lost: the next start reads the log, as after a crash
            store.close()


@lru_cache(maxsize=1)
def _register_ends() -> None:
    """With its first store, let a process close its stores, and its children forget them."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=_forget_connections)
    atexit.register(_close_stores)


class SqliteStore(Store):
    """The path ":memory:" means a store in memory, which has no `min_free_space`."""

    feed = SqliteTransaction.feed

    def __init__(self, path: str, collections: Iterable[Collection], options: Options = DEFAULTS) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreUnavailable(f"SQLite is {sqlite3.sqlite_version}; at least 3.37 is needed")
        super().__init__(collections)
        self._path = path
        self._clock = clock = options.clock
        self._connect = partial(connect, path, options.synchronous, clock)
        self._in_memory = path == ":memory:"
        self._creates = options.creates or self._in_memory
        self._min_free_space = options.min_free_space
        self._folder = folder = os.path.dirname(os.path.realpath(path))
        self._free_space = None if self._in_memory else lambda: disk_usage(folder).free
        self._log_limit = LogLimit(path, clock)
        self._searches = Searches(clock, self._log_limit, self._truncate_log)
        self._roomy_until = 0.0  # the disk has enough free space, as it was measured not long ago
        self._refusal = ""  # why the last write failed, if the disk is full or fails
        self._damage = ""  # why a read failed likewise
        self._opening = OpenGate(clock, creates=self._creates)
        _stores.add(self)
        _register_ends()

    def forget_connections(self) -> None:
        """In a forked process: refuse a file that the parent had opened.

        SQLite's own state of the file is inherited, too: it would take no locks in this process
        (https://sqlite.org/howtocorrupt.html, section 2.6).
        """
        self._opening = OpenGate(self._clock, creates=self._creates)
        if self._opened and not self._in_memory:
            _inherited.setdefault(os.path.realpath(self._path), []).append(self._opened)
            self._opened = None

    def _open(self, alone: bool, indexed: bool) -> _Opened:
        if os.path.realpath(self._path) in _inherited:
            raise StoreUnavailable("the store was opened before this process was forked: open it in each process")
        if not self._creates and not size_of(self._path):  # before the lock file, which would be a new file
            raise StoreGone("the store's file is missing") from FileNotFoundError(f"{self._path}: is missing")
        with translated(f"the store {self._path!r} cannot be opened", self._path), ExitStack() as stack:
            lock = None if self._in_memory else stack.enter_context(closing(_files().LockFile(self._path)))
            file = _files().opened_file(self._path, lock) if lock else None
            if file:
                stack.callback(file.close)
            if self._creates and not self._in_memory:
                with suppress(OSError):  # it exists, or SQLite raises the reason
                    _files().create_store(self._path)
            connect, connection = self._first_connection(alone)
            stack.enter_context(closing(connection))
            if self.initial_content:
                self.initial_content.backup(connection)
            else:
                with lock.exclusive() if lock and is_breaking(version_of(connection)) else nullcontext():
                    migrate(connection, list(self._collections.values()), indexed=indexed)
            connection.execute("PRAGMA busy_timeout = 0")  # `execute_waiting` waits
            connection.execute("PRAGMA temp_store = MEMORY")  # for savepoints; the default is a file at each commit
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if lock:
                file = file or _files().StoreFile(self._path, lock)
                file.has_log = mode == "wal"
            stack.pop_all()
        hooks = self._begin, self.committing
        writer = Writer(connection, lock, file, self._log_limit, self._collections, self._clock, *hooks)
        return _Opened(writer, connect, lock, file)

    def _first_connection(self, alone: bool) -> tuple[Callable[[], SqliteConnection], SqliteConnection]:
        """How to open connections, and one: on a disk without space for `-shm` only `alone`."""
        try:
            return self._connect, self._connect()
        except sqlite3.Error as error:
            if not (alone and is_full(error, self._path)):
                raise
        connect = partial(self._connect, system="unix-excl")
        return connect, connect()

    @property
    def _writer(self) -> Writer:
        writer: Writer = self._parts.writer
        return writer

    def _search(
        self, find: Callable[[SqliteConnection], T], collection: Collection, query: Query, *, reads_all: bool = True
    ) -> T:
        indexed = not is_search(collection, query)
        if indexed and not (query.narrows or query.sort):  # one page in order of id
            return self.read_with(find)
        return self._searches.answer(self.read_with, find, indexed=indexed)

    def read_with(
        self, read: Callable[Concatenate[SqliteConnection, P], T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        try:
            return self._read_once(read, *arguments, **options)
        except EpochMissing:
            self._writer.write(lambda transaction: None)  # creates one
            return self._read_once(read, *arguments, **options)

    def _read_once(
        self, read: Callable[Concatenate[SqliteConnection, P], T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """The result of `read` with an idle connection or a new one; in memory, with the only one."""
        try:
            opened = self._opened or self._parts
            if self._in_memory:
                with opened.writer.exclusively():
                    return read(opened.writer.connection, *arguments, **options)
            try:
                connection = opened.idle.pop()
            except IndexError:
                self.require_file()  # the log of this file would damage another one
                connection = opened.connect()
                opened.readers += 1
            try:
                return read(connection, *arguments, **options)
            finally:
                if connection.in_transaction:  # else its next reads would be of this moment
                    connection.execute("ROLLBACK")
                opened.idle.append(connection)
        except sqlite3.Error as error:
            failure = store_error("the store does not answer", error, self._path)
            if isinstance(failure, StoreFailing):
                self._damage = failure.detail
            raise failure from error

    def _write(
        self, work: Callable[[Transaction], T], plan: LockPlan | None, deadline: float | None, wait: bool, reserve: bool
    ) -> T:
        if not reserve and self._clock.monotonic() >= self._roomy_until:
            self._require_space()
            self._roomy_until = self._clock.monotonic() + SPACE_SECONDS
        try:
            result = self._writer.write(work, wait=wait, deadline=deadline)
        except (StoreFull, StoreFailing) as error:
            self._refusal = error.detail
            if isinstance(error, StoreDamaged):
                self._damage = error.detail
            raise
        self._refusal = ""
        return result

    def convert(
        self, collections: Sequence[str], work: Callable[[Transaction], object], now: str, *, keeps: bool = False
    ) -> None:
        connection = self._writer.connection

        def convert(transaction: Transaction) -> None:
            unconverted = self._unconverted(stored_states(connection), collections)
            if not unconverted:
                return  # another program was first
            full = [name for name in unconverted if transaction.unconverted(name, "", 1)]
            if keeps and full and not self._in_memory:  # what nobody changes before the conversion
                self.backup(Path(f"{self._path}.{full[0]}-{unconverted[full[0]]}"), replace=True)
            work(transaction)
            for name, revision in unconverted.items():
                transaction.set_revision(name, revision, self._collections[name].revision, now)

        stored = self.stored()
        if any(stored[name].items for name in self._unconverted(stored, collections)):
            self._require_space((GROWS + keeps) * size_of(self._path))
        connection.execute(f"PRAGMA cache_size = -{CONVERSION_CACHE}")  # the indexes change in an order of their own
        try:
            self._writer.write(convert, deadline=inf)
        finally:
            connection.execute(f"PRAGMA cache_size = -{CACHE}")
            connection.execute("PRAGMA shrink_memory")

    def _require_space(self, size: int = 0) -> None:
        """Raises StoreFull if the disk has not so many free bytes, besides the reserved ones."""
        if self._free_space is None:
            return
        try:
            free = self._free_space()
        except FileNotFoundError as error:
            raise StoreGone("the store's file is missing") from error
        except OSError as error:
            raise StoreUnavailable(f"the free space of the store's disk cannot be read: {error.strerror}") from error
        if free < (least := size + self._min_free_space):
            raise StoreFull(f"the disk of the store has {free} free bytes, and {least} are needed or reserved")

    def _spooled(self, collection: str) -> IO[bytes]:
        return self.read_with(_spool_items, collection, self._folder)

    def tidy(self, *gone: str) -> list[str]:
        writer, dropped = self._writer, list[str]()
        collections = [Collection(name, {}) for name in gone] or [*self._collections.values()]
        while name := writer.write(lambda _: drop_undeclared(writer.connection, collections)):
            dropped.append(name)  # one in each transaction: others write meanwhile
        return dropped

    def backup(self, target: Path, *, replace: bool = False) -> None:
        """See `base.Store`. What writes backups is loaded now: most processes of a service make none."""
        copying = import_module("restkeeper.storage.sqlite.copying")
        copying.write_backup(self.read_with, Path(self._path), target, replace=replace)

    def saved(self) -> sqlite3.Connection:
        """See `base.MemoryStore`."""
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        self.read_with(lambda connection: connection.backup(copy))
        return copy

    def load(self, saved: sqlite3.Connection) -> None:
        """See `base.MemoryStore`. The backup API leaves it without an epoch, and the next use gives it another."""
        with self._writer.exclusively():
            saved.backup(self._writer.connection)

    def check(self) -> None:
        if (file := self._parts.file) and (lock := self._parts.lock):
            file.require()
            if self._refusal or file.is_cut or not os.access(self._path, os.W_OK):
                self._require_writes()
            if self._damage:
                self._require_whole()
            file.check()
            if damage := lock.note:
                raise StoreDamaged(f"the store is damaged: {damage}")
        epoch = self.epoch
        if self.read_with(_checked_epoch) != epoch:
            raise StoreUnavailable("the file has another store than the one that was opened")
        self._require_space()

    def close(self) -> None:
        if not (opened := self._opened):
            return
        with opened.writer.exclusively(CLOSE_SECONDS):
            self._opened = None
            connections = [opened.writer.connection, *opened.idle]
            try:
                if opened.file:
                    opened.file.require()
            except StoreUnavailable:  # SQLite would write to another file, or delete the log of that
                _abandoned.extend(connections)
                connections.clear()
            if connections and opened.lock and opened.lock.try_exclusive(KILLED_SECONDS):
                self._log_limit.end(opened.writer.connection, CLOSE_SECONDS)
            for connection in connections:
                connection.close()
            if opened.file and len(opened.idle) == opened.readers:  # none is in use: see `StoreFile`
                opened.file.close()
            if opened.lock:
                opened.lock.close()

    def require_file(self) -> None:
        """See `base.Store`. A file that was deleted or replaced is noticed."""
        if file := self._parts.file:
            file.require()

    def _require_writes(self) -> None:
        """Raises StoreUnavailable unless a write succeeds: it writes the first page, as it is.

        What of the log a full disk has cut is completed before.
        """
        if is_disk_full(self._path):
            raise StoreFull(self._refusal or "the store cannot grow: its disk is full")
        connection = self._writer.connection
        with suppress(StoreUnavailable), self._writer.exclusively(0):
            self._log_limit.end(connection, 0)
        self.write(lambda _: connection.execute(f"PRAGMA application_id = {APPLICATION_ID}"), use_reserve=True)

    def _require_whole(self) -> None:
        """Raises StoreDamaged unless SQLite finds no damage. Other requests continue meanwhile."""

        def now() -> float:
            self._clock.sleep(YIELD_SECONDS)
            return self._clock.monotonic()

        damage = _files().find_damage(self._path, now=now)
        if damage != "":
            raise StoreDamaged(f"the store is damaged: {damage or self._damage}")
        self._damage = ""

    def _truncate_log(self) -> None:
        with suppress(StoreUnavailable):  # another writer truncates it
            self._writer.write(lambda transaction: None, wait=False)


def _files() -> Any:
    """The module for files, which a store in memory does not load."""
    return import_module("restkeeper.storage.sqlite.file")


def _spool_items(connection: SqliteConnection, collection: str, folder: str) -> IO[bytes]:
    scan = partial(connection.execute, DIALECT[SCAN], {"collection": collection})
    with suppress(OSError):  # the disk of the store, which usually has space, is full; other folders may be in memory
        return spool(scan(), folder)
    return spool(scan())


def _checked_epoch(connection: SqliteConnection) -> str:
    """The epoch as it is in the file. Raises StoreUnavailable if this program cannot work with its migrations."""
    connection.execute("PRAGMA shrink_memory")  # the next statements read from the file
    require_usable(connection, len(MIGRATIONS), complete=True)
    connection.execute("SELECT 1 FROM items LIMIT 1").fetchone()
    return epoch_of(connection)

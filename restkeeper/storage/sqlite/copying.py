"""Backups, restores and copies of a SQLite store. Only commands and conversions load this module.

A backup is a copy of the file, which has no log and gets an epoch of its own.
"""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, lockf
from pathlib import Path

from restkeeper.clock import Clock
from restkeeper.storage.copying import Copy, Restored, Table
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection
from restkeeper.storage.location import size_of
from restkeeper.storage.sql import MIGRATIONS, Row, require_known
from restkeeper.storage.sqlite.connection import SqliteConnection, connect
from restkeeper.storage.sqlite.failures import translated
from restkeeper.storage.sqlite.file import (
    MAGIC,
    SHARED_FIRST,
    SHARED_SIZE,
    LockFile,
    StoreFile,
    create_private,
    damage_of,
    give_to_owner_of,
    log_size,
    opened_file,
    require_regular,
)
from restkeeper.storage.sqlite.migrations import drop_undeclared, migrate, require_layout_of, run_missing

_CONTENT = """\
SELECT collection, count(*), max(updated_at)
FROM items
GROUP BY collection
ORDER BY collection"""

_FAILED = "the store cannot be copied"


class SqliteCopy(Copy):
    """See `location.Copy`. A new one has its `file`."""

    database: SqliteConnection
    file = Path()

    def rows(self, table: Table) -> Iterator[Row]:
        yield from self.database.execute(table.query)

    def drop_indexes(self, *collections: str) -> None:
        while drop_undeclared(self.database, [Collection(name, {}) for name in collections]):
            pass

    def add(self, table: Table, rows: Iterable[Row]) -> None:
        values = ", ".join("?" * len(table.columns))
        statement = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({values})"  # noqa: S608
        self.database.executemany(statement, rows)

    def finish(self) -> None:
        self.database.execute("COMMIT")
        self.database.close()
        try:
            sync(self.file)
        except OSError as error:
            raise StoreUnavailable(f"{_FAILED}: {error.strerror}") from error


def _require_nothing(target: Path) -> None:
    if size_of(str(target)) or log_size(str(target)):
        raise StoreUnavailable(f"{target} has a store already: name a file that does not exist")


def write_backup(read: Callable[..., object], store: Path, target: Path, *, replace: bool) -> None:
    """Write a copy of a store, which has the name of the target when it is complete. Raises as `Store.backup`."""
    if target.exists():
        if not replace:
            raise FileExistsError(f"{target} exists: name another file, or use --replace")
        require_backup(target, store)
    failure, target = f"no backup at {str(target)!r}", Path(os.path.realpath(target))
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        create_private(str(partial))
    except OSError as error:
        raise StoreUnavailable(f"{failure}: {error.strerror}") from error
    try:
        read(_copy_into, str(partial), failure)
        sync(partial)
        partial.rename(target)  # only a complete backup that is on the disk has this name
        sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def _copy_into(connection: SqliteConnection, path: str, failure: str) -> None:
    with translated(failure, path):
        connection.execute("VACUUM INTO ?", (path,))
        forget_identity(path)


def require_backup(backup: Path, store: Path) -> None:
    """Raises StoreUnavailable for a file that cannot be a backup, also for one of another program."""
    require_regular(backup)
    require_regular(store)
    if store.exists() and backup.samefile(store):  # to open and close that would release its locks
        raise StoreUnavailable(f"{backup} is the store itself")
    with backup.open("rb") as opened:
        magic = opened.read(len(MAGIC))
    if magic != MAGIC:
        raise StoreUnavailable(f"{backup} is no SQLite file")
    with closing(StoreFile(str(backup))) as file:
        file.require_ours()
    if log_size(str(backup)):
        raise StoreUnavailable(
            f"{backup} is a store in use, or one that was not closed: {backup}-wal has its last changes"
        )


def forget_identity(path: str) -> None:
    """Delete the epoch from a copy, which gets a new one when it is opened."""
    with closing(sqlite3.connect(path, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = MEMORY")  # no -wal file
        copy.execute("UPDATE store SET epoch = ''")


def sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def require_unused(target: Path, lock: LockFile) -> Iterator[None]:
    """Lock the store for this process. Raises StoreUnavailable if it is open anywhere."""
    if not lock.try_exclusive():
        raise StoreUnavailable(f"{target} is in use: stop the service, its delivery workers and all commands first")
    if not target.exists():
        yield
        return
    with target.open("r+b") as file:
        try:
            lockf(file, LOCK_EX | LOCK_NB, SHARED_SIZE, SHARED_FIRST)
        except OSError:
            raise StoreUnavailable(f"{target} is in use: another program has it open") from None
        yield


def restore(path: str, backup: Path | None, *, discard: bool) -> Restored:
    """See `location.Location`. The copy gets a new epoch when it is opened."""
    if backup is None:
        raise StoreUnavailable("name the backup: restkeeper restore FILE")
    target = Path(os.path.realpath(path))
    require_backup(backup, target)
    with closing(LockFile(str(target))) as lock, require_unused(target, lock):
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".restore", dir=target.parent)
        os.close(descriptor)
        copy = Path(name)
        try:
            shutil.copyfile(backup, copy)
            items, newest = _prepare(copy, backup)
            give_to_owner_of(copy, target if target.exists() else target.parent)
            sync(copy)
            replaced = None
            if target.exists() and not discard:  # with its log, so that an interruption loses nothing
                now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
                replaced = target.with_name(f"{target.name}.before-restore-{now}")
                os.link(target, replaced)
                with suppress(FileNotFoundError):
                    os.link(f"{target}-wal", f"{replaced}-wal")
            copy.rename(target)
            for name in (f"{target}-wal", f"{target}-shm"):  # until then no start uses it, see `require_own_log`
                Path(name).unlink(missing_ok=True)
            sync(target.parent)
            lock.note = ""
        finally:
            copy.unlink(missing_ok=True)
    return Restored(items, newest, replaced)


@contextmanager
def alone(path: str, clock: Clock) -> Iterator[Copy]:
    with closing(LockFile(path)) as lock:
        file = opened_file(path, lock)
        if file is None:
            raise StoreUnavailable(f"there is no store at {path!r}")
        failure = f"the store {path!r} cannot be used"
        with closing(file), require_unused(Path(path), lock), translated(failure, path):
            if damage := lock.note:
                raise StoreUnavailable(f"the store is damaged: {damage}")
            with closing(connect(path, "full", clock)) as connection:
                if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'store'").fetchone():
                    raise StoreUnavailable(f"{path} has no store")
                require_layout_of(connection, "the store")
                (moved_to,) = connection.execute("SELECT moved_to FROM store").fetchone()
                if not moved_to:
                    migrate(connection)
                connection.execute("BEGIN IMMEDIATE")
                yield SqliteCopy(connection, moved_to)


@contextmanager
def as_target(path: str) -> Iterator[Copy]:
    """See `location.Location`. The copy gets its name when it is complete, and on the disk."""
    target = Path(os.path.realpath(path))
    _require_nothing(target)
    with closing(LockFile(path)) as lock, require_unused(target, lock):
        _require_nothing(target)
        copy = target.with_name(f".{target.name}.copy")
        copy.unlink(missing_ok=True)  # of a copy that was interrupted
        try:
            create_private(str(copy))
            give_to_owner_of(copy, target if target.exists() else target.parent)
            with translated(_FAILED, path), closing(SqliteConnection(copy, isolation_level=None)) as new:
                new.execute("PRAGMA journal_mode = OFF")
                new.execute("PRAGMA synchronous = OFF")
                new.execute("BEGIN")
                run_missing(new)
                database_copy = SqliteCopy(new)
                database_copy.file = copy
                yield database_copy
            copy.rename(target)
            sync(target.parent)
        finally:
            copy.unlink(missing_ok=True)


def _prepare(copy: Path, backup: Path) -> tuple[dict[str, int], str | None]:
    """Check a copy and delete its epoch; return its items by collection, and the time of the newest."""
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA journal_mode = MEMORY")  # no -wal file
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if not version or not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'store'").fetchone():
                raise StoreUnavailable(f"{backup} is no backup of this service: it has no store in it")
            require_layout_of(connection, str(backup))
            (oldest,) = connection.execute("SELECT oldest FROM store").fetchone()
            require_known(version, oldest, len(MIGRATIONS), str(backup))
            if damage := damage_of(connection):
                raise StoreUnavailable(f"{backup} is damaged: {damage}")
            connection.execute("UPDATE store SET epoch = '', moved_to = ''")
            rows = connection.execute(_CONTENT).fetchall()
    except sqlite3.DatabaseError as error:
        raise StoreUnavailable(f"{backup} is damaged: {error}") from error
    return {name: count for name, count, _ in rows}, max((newest for *_, newest in rows), default=None)

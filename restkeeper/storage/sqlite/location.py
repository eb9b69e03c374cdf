"""The locations of SQLite: a file, which a backup can replace, or the memory of one process."""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from restkeeper.clock import Clock
from restkeeper.storage.base import Store
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection
from restkeeper.storage.location import Copy, Options, Restored, Table
from restkeeper.storage.sql import MIGRATIONS, Row, require_known
from restkeeper.storage.sqlite.backup import require_backup
from restkeeper.storage.sqlite.connection import SqliteConnection, connect
from restkeeper.storage.sqlite.failures import translated
from restkeeper.storage.sqlite.file import (
    LockFile,
    create_private,
    damage_of,
    give_to_owner_of,
    log_size,
    opened_file,
    require_unused,
    size_of,
    sync,
)
from restkeeper.storage.sqlite.migrations import drop_undeclared, migrate, require_layout_of, run_missing
from restkeeper.storage.sqlite.store import SqliteStore

_SCHEME = "sqlite:///"

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


class SqliteFile:
    """A SQLite file. See `location.Location`."""

    pattern: ClassVar[str] = "sqlite:///FILE (four slashes for an absolute path, no ?parameters)"
    temporary: ClassVar[bool] = False
    shared: ClassVar[bool] = False

    def __init__(self, url: str) -> None:
        self.name = url
        self._path = url.removeprefix(_SCHEME)
        is_path = self._path not in ("", ":memory:") and "?" not in self._path and not self._path.startswith("file:")
        if not url.startswith(_SCHEME) or not is_path:
            raise ValueError(url)

    @property
    def folder(self) -> str | None:
        return os.path.dirname(os.path.realpath(self._path))

    def store(self, collections: Iterable[Collection], options: Options) -> Store:
        return SqliteStore(self._path, collections, options)

    def require(self) -> None:
        if not self.size():
            named = f"DATABASE_URL={self.name!r} names it, and the first start creates it"
            raise StoreUnavailable(f"there is no store at {self._path!r}; {named}")

    def size(self) -> int:
        return size_of(self._path) + log_size(self._path)

    def restore(self, backup: Path | None, *, discard: bool) -> Restored:
        """See `location.Location`. The copy gets a new epoch when it is opened."""
        if backup is None:
            raise StoreUnavailable("name the backup: restkeeper restore FILE")
        target = Path(os.path.realpath(self._path))
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
    def alone(self, clock: Clock) -> Iterator[Copy]:
        path = self._path
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
    def as_target(self, clock: Clock) -> Iterator[Copy]:
        """See `location.Location`. The copy gets its name when it is complete, and on the disk."""
        target = Path(os.path.realpath(self._path))
        _require_nothing(target)
        with closing(LockFile(self._path)) as lock, require_unused(target, lock):
            _require_nothing(target)
            copy = target.with_name(f".{target.name}.copy")
            copy.unlink(missing_ok=True)  # of a copy that was interrupted
            try:
                create_private(str(copy))
                give_to_owner_of(copy, target if target.exists() else target.parent)
                with translated(_FAILED, self._path), closing(SqliteConnection(copy, isolation_level=None)) as new:
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


class SqliteMemory(SqliteFile):
    """The memory of this process. Each call of `store` returns another store. See `location.Location`."""

    pattern: ClassVar[str] = "memory://"
    temporary: ClassVar[bool] = True
    shared: ClassVar[bool] = False

    def __init__(self, url: str) -> None:
        self.name = url
        self._path = ":memory:"
        if url != self.pattern:
            raise ValueError(url)

    @property
    def folder(self) -> None:
        return None

    def restore(self, backup: Path | None, *, discard: bool) -> Restored:
        raise StoreUnavailable(f"{self.name} cannot be restored: it ends with its process")


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

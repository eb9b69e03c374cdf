"""A store in SQLite that is copied, or that is a copy. See `storage.copying`."""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from restkeeper.clock import Clock
from restkeeper.storage.copying import Row, Table
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.records import epoch_of
from restkeeper.storage.sqlite.connection import connect, make_epoch, note_schema, translated
from restkeeper.storage.sqlite.file import create_private, log_size, opened_file, size_of, sync
from restkeeper.storage.sqlite.lockfile import LockFile, give_to_owner_of, require_unused
from restkeeper.storage.sqlite.migrations import migrate, run_missing

_FAILED = "the store cannot be copied"


class SqliteCopyable:
    """See `copying.Copyable`. A transaction is open."""

    def __init__(self, connection: sqlite3.Connection, epoch: str, moved_to: str = "") -> None:
        self._connection = connection
        self.epoch = epoch
        self.moved_to = moved_to

    def count(self, table: Table) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0])  # noqa: S608

    def rows(self, table: Table) -> Iterator[Row]:
        statement = f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {table.order}"  # noqa: S608
        for row in self._connection.execute(statement):
            if table.name == "deliveries":  # an endpoint can respond with U+0000, which PostgreSQL does not store
                yield *row[:-1], row[-1] and row[-1].replace("\0", "\ufffd")
            else:
                yield row

    def end(self, moved_to: str) -> None:
        self._connection.execute("UPDATE store SET moved_to = ?", (moved_to,))
        self._connection.execute("COMMIT")


class SqliteCopy(SqliteCopyable):
    """See `copying.Copy`. `file` is that of the connection, `like` has its future owner."""

    def __init__(self, connection: sqlite3.Connection, epoch: str, file: Path, like: Path) -> None:
        super().__init__(connection, epoch)
        self._file, self._like = file, like

    def add(self, table: Table, rows: Iterable[Row]) -> None:
        values = ", ".join("?" * len(table.columns))
        statement = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({values})"  # noqa: S608
        self._connection.executemany(statement, rows)

    def finish(self) -> None:
        self._connection.execute("UPDATE store SET epoch = ?", (self.epoch,))
        note_schema(self._connection)
        self._connection.execute("COMMIT")
        self._connection.close()
        try:
            give_to_owner_of(self._file, self._like)
            sync(self._file)
        except OSError as error:
            raise StoreUnavailable(f"{_FAILED}: {error.strerror}") from error


@contextmanager
def as_source(path: str, clock: Clock) -> Iterator[SqliteCopyable]:
    """See `location.Location`."""
    with closing(LockFile(path)) as lock:
        file = opened_file(path, lock)
        if file is None:
            raise StoreUnavailable(f"there is no store at {path!r}")
        with closing(file), require_unused(Path(path), lock), translated(_FAILED):
            if damage := lock.note:
                raise StoreUnavailable(f"the store is damaged: {damage}")
            with closing(connect(path, "full", clock)) as connection:
                if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'store'").fetchone():
                    raise StoreUnavailable(f"{path} has no store")
                (moved_to,) = connection.execute("SELECT moved_to FROM store").fetchone()
                if not moved_to:
                    migrate(connection)
                connection.execute("BEGIN IMMEDIATE")
                if not epoch_of(connection):
                    make_epoch(connection)
                yield SqliteCopyable(connection, epoch_of(connection), moved_to)


@contextmanager
def as_target(path: str, epoch: str) -> Iterator[SqliteCopy]:
    """See `location.Location`. The copy gets its name when it is complete, and on the disk."""
    target = Path(os.path.realpath(path))
    _require_nothing(target)
    with closing(LockFile(path)) as lock, require_unused(target, lock):
        _require_nothing(target)
        copy = target.with_name(f".{target.name}.copy")
        copy.unlink(missing_ok=True)  # of a copy that was interrupted
        try:
            create_private(str(copy))
            with translated(_FAILED), closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = OFF")
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("BEGIN")
                run_missing(connection)
                yield SqliteCopy(connection, epoch, copy, target if target.exists() else target.parent)
            copy.rename(target)
            sync(target.parent)
        finally:
            copy.unlink(missing_ok=True)


def _require_nothing(target: Path) -> None:
    if size_of(str(target)) or log_size(str(target)):
        raise StoreUnavailable(f"{target} has a store already: name a file that does not exist")

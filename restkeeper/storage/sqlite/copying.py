"""A store in SQLite that is copied, or that is a copy. See `storage.copying`."""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from restkeeper.clock import Clock
from restkeeper.storage.copying import Copy, Copyable, Table
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.records import epoch_of
from restkeeper.storage.sql import Row
from restkeeper.storage.sqlite.connection import SqliteConnection, connect, make_epoch, note_schema, translated
from restkeeper.storage.sqlite.file import create_private, log_size, opened_file, size_of, sync
from restkeeper.storage.sqlite.lockfile import LockFile, give_to_owner_of, require_unused
from restkeeper.storage.sqlite.migrations import migrate, run_missing

_FAILED = "the store cannot be copied"


class SqliteCopyable(Copyable):
    """See `copying.Copyable`."""

    _database: SqliteConnection

    def rows(self, table: Table) -> Iterator[Row]:
        for row in self._database.execute(table.query):
            if table.name == "deliveries":  # an endpoint can respond with U+0000, which PostgreSQL does not store
                yield *row[:-1], row[-1] and row[-1].replace("\0", "\ufffd")
            else:
                yield row

    def end(self, moved_to: str) -> None:
        self._database.execute("UPDATE store SET moved_to = ?", (moved_to,))
        self._database.execute("COMMIT")


class SqliteCopy(SqliteCopyable, Copy):
    """See `copying.Copy`. `file` is that of the connection, `like` has its future owner."""

    def __init__(self, database: SqliteConnection, epoch: str, file: Path, like: Path) -> None:
        super().__init__(database, epoch)
        self._file, self._like = file, like

    def add(self, table: Table, rows: Iterable[Row]) -> None:
        values = ", ".join("?" * len(table.columns))
        statement = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({values})"  # noqa: S608
        self._database.executemany(statement, rows)

    def finish(self) -> None:
        self._database.execute("UPDATE store SET epoch = ?", (self.epoch,))
        note_schema(self._database)
        self._database.execute("COMMIT")
        self._database.close()
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
            with translated(_FAILED), closing(SqliteConnection(copy, isolation_level=None)) as connection:
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

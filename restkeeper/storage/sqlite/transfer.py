"""A store in SQLite as a source or a target of a copy. See `transfer.Transfer`."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from restkeeper.clock import Clock
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.sqlite.connection import connect, execute_waiting, translated
from restkeeper.storage.sqlite.files import create_private, size_of
from restkeeper.storage.sqlite.health import StoreFile, opened_file
from restkeeper.storage.sqlite.identity import epoch_of, make_epoch
from restkeeper.storage.sqlite.lockfile import LockFile
from restkeeper.storage.sqlite.migrations import create, mark_of, migrate, set_mark
from restkeeper.storage.transfer import PARTS, Mark, Part, Row, cleaned

FREEZE_SECONDS = 60.0  # for which it waits until other programs do not write

# Where the rows are, if they have not the names of their part.
_PLACES = {
    "counters": "(SELECT name AS collection, items, revision AS changes FROM collections)",
    "numbers": "(SELECT name, seq AS last FROM sqlite_sequence WHERE name = 'deliveries')",
}
_TARGETS = {"counters": "collections (name, items, revision)", "numbers": "sqlite_sequence (name, seq)"}

_FAILED = "the store cannot be copied"


class SqliteTransfer:
    """See `transfer.Transfer`."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock: LockFile | None = None
        self._file: StoreFile | None = None
        self._opened: sqlite3.Connection | None = None

    @property
    def _connection(self) -> sqlite3.Connection:
        """The connection. The lock file is locked as for each store that is open."""
        if self._opened is None:
            self._lock = LockFile(self._path)
            self._file = opened_file(self._path, self._lock)
            if damage := self._lock.note:
                raise StoreUnavailable(f"the store is damaged: {damage}")
            with translated(_FAILED):
                self._opened = connect(self._path, "full", self._clock)
        return self._opened

    @property
    def epoch(self) -> str:
        if not size_of(self._path):
            return ""
        with translated(_FAILED):
            has_store = self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'store'").fetchone()
            return epoch_of(self._connection) if has_store else ""

    @property
    def mark(self) -> Mark | None:
        with translated(_FAILED):
            return mark_of(self._connection)

    def freeze(self, mark: Mark) -> None:
        with translated(_FAILED):
            if self.mark is None:
                migrate(self._connection)
            with self._writing():
                if not epoch_of(self._connection):
                    make_epoch(self._connection)
                set_mark(self._connection, mark)

    def release(self, *, renew: bool = False) -> None:
        with self._writing():
            set_mark(self._connection, None)
            if renew:
                make_epoch(self._connection)

    def create(self, epoch: str, mark: Mark) -> None:
        if not os.path.exists(self._path):
            create_private(self._path)
        with translated(_FAILED):
            create(self._connection, epoch, mark)

    def clear(self, mark: Mark) -> None:
        with self._writing():
            for part in reversed(PARTS):
                self._connection.execute(f"DELETE FROM {_table(part)}")  # noqa: S608 - a constant name
            set_mark(self._connection, mark)

    def count(self, part: Part) -> int:
        with translated(_FAILED):
            return int(self._connection.execute(f"SELECT count(*) FROM {_place(part)}").fetchone()[0])  # noqa: S608

    def read(self, part: Part, after: Row = ()) -> Iterator[Row]:
        columns, key = ", ".join(part.columns), ", ".join(part.key)
        condition = f"WHERE ({key}) > ({', '.join('?' * len(after))})" if after else ""
        statement = f"SELECT {columns} FROM {_place(part)} {condition} ORDER BY {key}"  # noqa: S608 - constant names
        with translated(_FAILED):
            yield from cleaned(self._connection.execute(statement, after))

    def last(self, part: Part) -> Row:
        order = ", ".join(f"{each} DESC" for each in part.key)
        statement = f"SELECT {', '.join(part.key)} FROM {_place(part)} ORDER BY {order} LIMIT 1"  # noqa: S608
        with translated(_FAILED):
            return self._connection.execute(statement).fetchone() or ()

    def write(self, part: Part, rows: Sequence[Row]) -> None:
        target = _TARGETS.get(part.name, f"{part.name} ({', '.join(part.columns)})")
        statement = f"INSERT INTO {target} VALUES ({', '.join('?' * len(part.columns))})"  # noqa: S608 - constant names
        with self._writing():
            if part.name == "numbers":
                self._connection.execute("DELETE FROM sqlite_sequence WHERE name = 'deliveries'")
            self._connection.executemany(statement, rows)

    def close(self) -> None:
        if self._opened:
            self._opened.close()
        if self._file:
            self._file.close()
        if self._lock:
            self._lock.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction, for which it waits like other programs."""
        connection = self._connection
        deadline = self._clock.monotonic() + FREEZE_SECONDS
        with translated(_FAILED):
            connection.execute("PRAGMA busy_timeout = 0")  # `execute_waiting` waits
            try:
                execute_waiting(connection, "BEGIN IMMEDIATE", deadline, self._clock)
                yield
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")


def _place(part: Part) -> str:
    """What the rows are read from."""
    return _PLACES.get(part.name, part.name)


def _table(part: Part) -> str:
    """The table with the rows."""
    return _TARGETS.get(part.name, part.name).partition(" ")[0]

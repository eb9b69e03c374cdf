"""Connections of SQLite: their settings, their errors, and waiting for locks of other processes."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote

from restkeeper.clock import Clock
from restkeeper.storage.errors import StoreBusy, StoreFull, StoreUnavailable
from restkeeper.storage.sqlite.dialect import SqliteConnection
from restkeeper.storage.sqlite.queries import fold, is_found

BUSY_SECONDS = 5.0  # for which a write waits, from its call on
RETRY_SECONDS = 0.0005  # about one durable commit on a fast disk
LOG_BYTES = 16 * 1024 * 1024  # of the -wal file; SQLite restarts it every 4 MiB unless a reader needs it
STATEMENTS = 32  # prepared statements that each connection caches

_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)  # by ENOSPC, EDQUOT or EFBIG
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def connect(path: str, synchronous: str, clock: Clock, *, system: str = "unix") -> SqliteConnection:
    """Open a connection in WAL mode that any thread can use. `synchronous` is SQLite's setting, `system` its VFS.

    The file must exist: SQLite would create one with other permissions, also when a disk is not mounted.
    """
    name = path if path == ":memory:" else f"file://{quote(os.path.realpath(path))}?mode=rw&vfs={system}"
    connection = sqlite3.connect(
        name,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
        uri=True,
        factory=SqliteConnection,
    )
    connection.create_function("fold", 1, fold, deterministic=True)
    connection.create_function("is_found", -1, is_found, deterministic=True)
    deadline = clock.monotonic() + BUSY_SECONDS
    try:
        execute_waiting(connection, "PRAGMA journal_mode = WAL", deadline, clock)  # it ignores the busy time-out
    except sqlite3.Error:
        connection.close()  # its locks
        raise
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def execute_waiting(
    connection: sqlite3.Connection,
    statement: str,
    deadline: float,
    clock: Clock,
    when_busy: Callable[[], None] = lambda: None,
) -> None:
    """Execute a statement that needs a lock; repeat it until the lock is free or the deadline has passed.

    It calls `when_busy` before each repetition, and does not wait inside SQLite, so that other requests continue.
    """
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_busy or clock.monotonic() >= deadline:
                raise
        when_busy()
        clock.sleep(RETRY_SECONDS)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """All reads see one moment, as they do inside a transaction."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


@contextmanager
def translated(failure: str) -> Iterator[None]:
    """Raise SQLite's errors as `store_error`."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(failure, error) from error


def store_error(failure: str, error: sqlite3.Error) -> StoreUnavailable:
    """The error of a store: what failed, and SQLite's reason."""
    if is_full(error):
        return StoreFull(f"{failure}: its disk is full, or a quota or limit of file sizes is reached ({error})")
    kind = StoreBusy if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _LOCKED else StoreUnavailable
    return kind(f"{failure}: {error}")


def is_full(error: sqlite3.Error) -> bool:
    """Whether a file cannot become larger."""
    return getattr(error, "sqlite_errorcode", None) in _FULL

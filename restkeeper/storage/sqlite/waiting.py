"""Waiting for a lock of another process, outside of SQLite so that other requests continue."""

import sqlite3
from collections.abc import Callable

from restkeeper.clock import Clock

BUSY_SECONDS = 5.0  # for which a write waits, from its call on
RETRY_SECONDS = 0.0005  # about one durable commit on a fast disk


def execute_waiting(
    connection: sqlite3.Connection,
    statement: str,
    deadline: float,
    clock: Clock,
    when_busy: Callable[[], None] = lambda: None,
) -> None:
    """Execute a statement that needs a lock; repeat it until the lock is free or the deadline has passed.

    It calls `when_busy` before each repetition.
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

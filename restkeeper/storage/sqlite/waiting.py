"""Waiting for a lock that another process may hold, without waiting inside SQLite."""

import sqlite3
from collections.abc import Callable

from restkeeper.clock import Clock

BUSY_SECONDS = 5.0  # how long a write waits, from its call on, before it is given up
RETRY_SECONDS = 0.0005  # about one durable commit on a fast disk


def patiently(
    connection: sqlite3.Connection,
    statement: str,
    deadline: float,
    clock: Clock,
    when_busy: Callable[[], None] = lambda: None,
) -> None:
    """Execute what needs a lock that another process may have, again and again until it has it or time is over.

    It calls `when_busy` each time that another process has it.
    """
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or clock.monotonic() >= deadline:
                raise
        when_busy()
        clock.sleep(RETRY_SECONDS)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

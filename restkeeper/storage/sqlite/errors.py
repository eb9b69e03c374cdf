"""SQLite's errors as those of `errors`."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from restkeeper.errors import InsufficientStorage, Unavailable


@contextmanager
def translated(failure: str) -> Iterator[None]:
    """SQLite's own errors as Unavailable, or InsufficientStorage: what failed, and why."""
    try:
        yield
    except sqlite3.Error as error:
        raise problem_of(failure, error) from error


def problem_of(failure: str, error: sqlite3.Error) -> Unavailable | InsufficientStorage:
    """What an error of SQLite's is to callers."""
    kind = InsufficientStorage if _is_full(error) else Unavailable
    return kind(f"{failure}: {error}")


def _is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL

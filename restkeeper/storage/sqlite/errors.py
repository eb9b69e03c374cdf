"""SQLite's errors as those of `storage.errors`."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from restkeeper.storage.errors import StoreFull, StoreUnavailable


@contextmanager
def translated(failure: str) -> Iterator[None]:
    """SQLite's own errors as StoreUnavailable, or StoreFull: what failed, and why."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(failure, error) from error


def store_error(failure: str, error: sqlite3.Error) -> StoreUnavailable | StoreFull:
    """An error of SQLite's as one of `storage.errors`, to be raised from it."""
    kind = StoreFull if _is_full(error) else StoreUnavailable
    return kind(f"{failure}: {error}")


def _is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL

"""SQLite's errors as those of `storage.errors`."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from restkeeper.storage.errors import StoreFull, StoreUnavailable


@contextmanager
def translated(failure: str) -> Iterator[None]:
    """Raise SQLite's errors as `store_error`."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(failure, error) from error


def store_error(failure: str, error: sqlite3.Error) -> StoreUnavailable | StoreFull:
    """The error of a store: what failed, and SQLite's reason."""
    is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return (StoreFull if is_full else StoreUnavailable)(f"{failure}: {error}")

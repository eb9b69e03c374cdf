"""Errors of SQLite as those of a store, and whether the disk of a store is full."""

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from restkeeper.storage.errors import StoreBusy, StoreDamaged, StoreFailing, StoreFull, StoreUnavailable

GROWTH = 256 * 1024  # bytes, more than an item with its event takes by default: so much more space heals a full store

# By ENOSPC; and by EDQUOT or EFBIG, but also by a disk that fails.
MAY_BE_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_KINDS: Mapping[int, type[StoreUnavailable]] = {
    sqlite3.SQLITE_BUSY: StoreBusy,
    sqlite3.SQLITE_LOCKED: StoreBusy,
    sqlite3.SQLITE_PROTOCOL: StoreBusy,
    sqlite3.SQLITE_IOERR: StoreFailing,
    sqlite3.SQLITE_READONLY: StoreFailing,
    sqlite3.SQLITE_CORRUPT: StoreDamaged,  # also by EIO while it reads
    sqlite3.SQLITE_NOTADB: StoreDamaged,
}


@contextmanager
def translated(failure: str, path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(failure, error, path) from error


def store_error(failure: str, error: sqlite3.Error, path: str) -> StoreUnavailable:
    """The error of a store at `path`: what failed, and SQLite's reason."""
    if is_full(error, path):
        return StoreFull(f"{failure}: its disk is full, or a quota or limit of file sizes is reached ({error})")
    return _KINDS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, StoreUnavailable)(f"{failure}: {error}")


def is_full(error: sqlite3.Error, path: str) -> bool:
    """Whether an error is that of a full disk. Of some SQLite does not say it: a file beside the store does."""
    code = getattr(error, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_FULL or (code in MAY_BE_FULL and is_disk_full(path))


def is_disk_full(path: str) -> bool:
    """Whether a file beside a store cannot have some bytes more than the store and than its log."""
    path = os.path.realpath(path)
    size = max((os.path.getsize(file) for file in (path, f"{path}-wal") if os.path.exists(file)), default=0)
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(path)) as probe:
            return os.pwrite(probe.fileno(), bytes(GROWTH), size) < GROWTH
    except OSError as error:
        return error.errno in _NO_SPACE

"""Backups of a SQLite store: copies of its file, which have no log and get an epoch of their own."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.sqlite.connection import SqliteConnection
from restkeeper.storage.sqlite.failures import translated
from restkeeper.storage.sqlite.file import MAGIC, StoreFile, create_private, log_size, require_regular, sync


def write_backup(read: Callable[..., object], target: Path) -> None:
    """Write a copy of a store, which has the name of the target when it is complete. Raises StoreUnavailable."""
    failure, target = f"no backup at {str(target)!r}", Path(os.path.realpath(target))
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        create_private(str(partial))
    except OSError as error:
        raise StoreUnavailable(f"{failure}: {error.strerror}") from error
    try:
        read(_copy_into, str(partial), failure)
        sync(partial)
        partial.rename(target)  # only a complete backup that is on the disk has this name
        sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def _copy_into(connection: SqliteConnection, path: str, failure: str) -> None:
    with translated(failure, path):
        connection.execute("VACUUM INTO ?", (path,))
        forget_identity(path)


def require_backup(backup: Path, store: Path) -> None:
    """Raises StoreUnavailable for a file that cannot be a backup, also for one of another program."""
    require_regular(backup)
    require_regular(store)
    if store.exists() and backup.samefile(store):  # to open and close that would release its locks
        raise StoreUnavailable(f"{backup} is the store itself")
    with backup.open("rb") as opened:
        magic = opened.read(len(MAGIC))
    if magic != MAGIC:
        raise StoreUnavailable(f"{backup} is no SQLite file")
    with closing(StoreFile(str(backup))) as file:
        file.require_ours()
    if log_size(str(backup)):
        raise StoreUnavailable(
            f"{backup} is a store in use, or one that was not closed: {backup}-wal has its last changes"
        )


def forget_identity(path: str) -> None:
    """Delete the epoch from a copy, which gets a new one when it is opened."""
    with closing(sqlite3.connect(path, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = MEMORY")  # no -wal file
        copy.execute("UPDATE store SET epoch = ''")

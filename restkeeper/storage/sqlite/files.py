"""The files of a SQLite store: their permissions, the free space of their disk, and the size of the log."""

import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from restkeeper.clock import Clock

LOG_BYTES = 16 * 1024 * 1024  # of the -wal file; SQLite restarts it every 4 MiB unless a reader needs it
LOG_FULL = 4 * LOG_BYTES  # at each multiple all searches end, so that the log can be restarted
CHECKPOINT_SECONDS = 0.1  # between two checks of its size
GROWTH = 256 * 1024  # bytes, more than an item with its event takes by default: so much more space heals a full store
PINNED_SECONDS = 60.0  # without another wait, after a wait without effect: another program reads from the log

_TRUNCATE = "PRAGMA wal_checkpoint(TRUNCATE)"  # its first value is 1 if others prevent it


def create_private(path: str) -> None:
    """Create an empty file that only its owner can read; SQLite copies its mode. Raises OSError."""
    os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def free_space_of(folder: str) -> int:
    """The free bytes on the disk of a folder. Raises OSError."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def can_grow(path: str) -> bool:
    """Whether a file beside a store can have some bytes more than the store and than its log."""
    path = os.path.realpath(path)
    size = max(size_of(path), size_of(f"{path}-wal"))
    with suppress(OSError), tempfile.TemporaryFile(dir=os.path.dirname(path)) as probe:
        return os.pwrite(probe.fileno(), bytes(GROWTH), size) == GROWTH
    return False


class LogLimit:
    """Truncates a store's log that is longer than LOG_BYTES, once no reader needs it."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._log = f"{os.path.realpath(path)}-wal"
        self._clock = clock
        self._next = 0.0
        self._pinned_until = 0.0

    def apply(self, connection: sqlite3.Connection) -> None:
        """Truncate the log if necessary. It must not wait: `connection` needs a busy time-out of 0."""
        if (now := self._clock.monotonic()) < self._next:
            return
        self._next = now + CHECKPOINT_SECONDS
        if self.size() <= LOG_BYTES:
            return
        with suppress(sqlite3.OperationalError):  # a reader needs it; the next commit tries again
            connection.execute(_TRUNCATE).fetchall()

    def reuse(self, connection: sqlite3.Connection) -> None:
        """Move the log into the store, so that the next write replaces it and needs no space. It does not wait."""
        with suppress(sqlite3.OperationalError):  # as above, or a full disk has no space for it either
            connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()

    def end(self, connection: sqlite3.Connection, seconds: float) -> None:
        """Move all of the log into the store, so that this is one file. It waits some seconds for those who read it."""
        end = self._clock.monotonic() + seconds
        with suppress(sqlite3.Error):  # the disk is full: the log stays
            while connection.execute(_TRUNCATE).fetchone()[0] and self._clock.monotonic() < end:
                self._clock.sleep(CHECKPOINT_SECONDS)

    def wait(self, seconds: float, truncate: Callable[[], object]) -> None:
        """Wait until the log is short, at most for some seconds; call `truncate` repeatedly."""
        end = self._clock.monotonic() + seconds
        while self.size() > LOG_BYTES and (now := self._clock.monotonic()) >= self._pinned_until:
            if now >= end:
                self._pinned_until = now + PINNED_SECONDS
            truncate()
            self._clock.sleep(CHECKPOINT_SECONDS)

    def next_end(self) -> int:
        """The size of the log at which a search that starts now must end."""
        return LOG_FULL * (1 + self.size() // LOG_FULL)

    def has_reached(self, end: int) -> bool:
        """Whether a search must end. Then the next searches wait for a short log again."""
        if self.size() < end:
            return False
        self._pinned_until = 0.0
        return True

    def size(self) -> int:
        """The size of the log in bytes."""
        return size_of(self._log)


def size_of(path: str) -> int:
    """The size of a file in bytes; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget_identity(path: str) -> None:
    """Delete the epoch from a copy, which gets a new one when it is opened."""
    with closing(sqlite3.connect(path, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = MEMORY")  # no -wal file
        copy.execute("UPDATE store SET epoch = ''")

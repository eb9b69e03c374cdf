"""Whether a store's file is the one that was opened, and whole.

What is asked at each call costs the same at any size: the file's identity, its size, and its header
(https://sqlite.org/fileformat2.html, section 1.3). The whole file is looked through once, after an unclean end.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing

from restkeeper.storage.errors import StoreGone, StoreUnavailable
from restkeeper.storage.sqlite.lockfile import LockFile

CHECK_SECONDS = 5.0  # for which the first start after an unclean end may look through the file
STEPS = 100_000  # of SQLite's machine, some milliseconds: how often that looks at the clock
HEADER = 100  # bytes
MAGIC = b"SQLite format 3\0"
WITH_LOG = 2  # the version of a file in WAL mode, in two bytes at 18

_lock = threading.Lock()
_open: dict[tuple[int, int], int] = {}  # descriptors by device and inode
_users: dict[int, int] = {}  # of each descriptor


class StoreFile:
    """The SQLite file of a store, by a descriptor of its own. It must exist.

    Close it when no connection of this process is open any more: closing any descriptor of a file ends all the POSIX
    locks that the process has on it, SQLite's too. All who use the same file share one.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = _open_shared(path)
        status = os.fstat(self._descriptor)
        self._identity = status.st_dev, status.st_ino
        self.has_log = True  # that it is in WAL mode; not every file system allows it

    def require(self) -> None:
        """Raises StoreGone when the path leads to another file by now, or the file holds something else."""
        if not self._is_same():
            cause = FileNotFoundError(f"{self._path}: is not the file that was opened")  # for the log, not for callers
            raise StoreGone("the store's file is not the one that was opened") from cause

    def _is_same(self) -> bool:
        try:
            status = os.stat(self._path)
        except OSError:
            return False
        header = self._header()
        is_store = header[:16] == MAGIC and (header[18] == WITH_LOG or not self.has_log)
        return is_store and (status.st_dev, status.st_ino) == self._identity

    def check(self) -> None:
        """Raises StoreGone as `require`, and StoreUnavailable for a header or a size that cannot be."""
        self.require()
        page, size = self.page_size, os.fstat(self._descriptor).st_size
        if not page or size % page:
            raise StoreUnavailable(f"the store is damaged: {size} bytes are no whole number of pages of {page}")
        if not any(_is_consistent(self._header()) for _ in range(3)):  # one may be read in the middle of a write
            raise StoreUnavailable("the store is damaged: its header contradicts itself")

    @property
    def page_size(self) -> int:
        """Bytes of a page; 0 for a size that cannot be."""
        size = int.from_bytes(self._header()[16:18])
        size = 65536 if size == 1 else size
        return size if 512 <= size and not size & (size - 1) else 0

    def require_own_log(self) -> None:
        """Raises StoreUnavailable when the file `-wal` is not this file's, which it would damage.

        A file that was not in WAL mode when it was last closed, as no backup is, cannot have one.
        """
        header = self._header()
        if header[:16] == MAGIC and header[18] != WITH_LOG and log_size(self._path):
            raise StoreUnavailable(
                f"{self._path}-wal has the last changes of another file than {self._path}: it looks as if a backup "
                "was copied or moved over the store; nothing was changed; use: restkeeper restore BACKUP"
            )

    def close(self) -> None:
        """Give the descriptor back."""
        _close_shared(self._descriptor)

    def _header(self) -> bytes:
        return os.pread(self._descriptor, HEADER, 0).ljust(HEADER, b"\0")


def opened_file(path: str, lock: LockFile) -> StoreFile | None:
    """The file that a store is about to open, if there is one already; looks through it after an unclean end.

    Raises StoreUnavailable when the log beside it is another file's.
    """
    alone = lock.try_alone()
    lock.share()
    if not os.path.exists(path):
        return None
    file = StoreFile(path)
    try:
        file.require_own_log()
    except StoreUnavailable:
        file.close()
        raise
    if alone and (log_size(path) or lock.note):  # nobody has it open, and who had it did not close it
        damage = find_damage(path)
        lock.note = lock.note if damage is None else damage
    return file


def log_size(path: str) -> int:
    """Bytes of the store's write-ahead log; 0 where there is none."""
    try:
        return os.stat(f"{os.path.realpath(path)}-wal").st_size
    except FileNotFoundError:
        return 0


def find_damage(path: str, seconds: float = CHECK_SECONDS, now: Callable[[], float] = time.monotonic) -> str | None:
    """As `damage_of`, of the file at `path`; None too when it is not through in so many seconds."""
    deadline = now() + seconds
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.set_progress_handler(lambda: now() > deadline, STEPS)
        return damage_of(connection)


def damage_of(connection: sqlite3.Connection) -> str | None:
    """The first damage that SQLite finds, in one line; empty when it is sound, None when it was interrupted."""
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY):
            return None
        found = error
    return "" if found == "ok" else " ".join(str(found).split())


def _is_consistent(header: bytes) -> bool:
    """Whether the two counters of changes agree."""
    return header[24:28] == header[92:96]


def _open_shared(path: str) -> int:
    with _lock:
        status = os.stat(path)
        descriptor = _open.get((status.st_dev, status.st_ino))
        if descriptor is None:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            status = os.fstat(descriptor)
            descriptor = _open.setdefault((status.st_dev, status.st_ino), descriptor)
        _users[descriptor] = _users.get(descriptor, 0) + 1
        return descriptor


def _close_shared(descriptor: int) -> None:
    with _lock:
        _users[descriptor] -= 1
        if not _users[descriptor]:
            del _users[descriptor]
            for known in [known for known, each in _open.items() if each == descriptor]:
                del _open[known]
            os.close(descriptor)

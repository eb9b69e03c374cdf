"""The files of a SQLite store: whether its file is the one that was opened, and not damaged; permissions and space.

Each open store holds the lock file STORE-lock shared, and a restore or a copy holds it exclusively. It is a separate
file, with `flock`: closing a descriptor of the SQLite file itself would release SQLite's locks. It detects every
process of this program on this machine. It also stores the damage that was found in the store. A POSIX lock of its
first byte, which is independent of `flock`, shows that a process waits to write.

The checks of each call cost the same at any size: the file's identity, its size, and its header
(https://sqlite.org/fileformat2.html, section 1.3). The whole file is checked once, after a crash.
"""

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote

from restkeeper.storage.errors import StoreBusy, StoreDamaged, StoreFailing, StoreGone, StoreUnavailable
from restkeeper.storage.location import is_mount, size_of
from restkeeper.storage.sqlite.connection import APPLICATION_ID
from restkeeper.storage.sqlite.failures import MAY_BE_FULL

SHARE_SECONDS = 5.0  # for which the opening of a store waits for one of these
LOCK_RETRY_SECONDS = 0.01
LONGEST_NOTE = 300  # bytes
CHECK_SECONDS = 5.0  # that the check of the whole file may take, at the first start after a crash
CHECK_STEPS = 100_000  # of SQLite's virtual machine between two reads of the clock, some milliseconds
LOOKS = 5  # at a file that seems to be cut, before it counts as damaged
HEADER = 100  # bytes
MAGIC = b"SQLite format 3\0"
WITH_LOG = 2  # the version of a file in WAL mode, in two bytes at 18

# The bytes that SQLite locks in an open file (https://sqlite.org/src/file/src/os.h, SHARED_FIRST and SHARED_SIZE).
SHARED_FIRST, SHARED_SIZE = 0x40000002, 510

_lock = threading.Lock()
_open: dict[tuple[int, int], list[int]] = {}  # by device and inode: the descriptor of a file, and how many use it


def _fcntl() -> Any:
    """The locks of files. Raises StoreUnavailable where there are none: a store in memory needs none."""
    try:
        return import_module("fcntl")
    except ImportError:
        raise StoreUnavailable("a store in a file needs the file locks of Unix, which Windows has not") from None


class LockFile:
    """The lock file of the store at `path`, open and not locked yet.

    Raises StoreUnavailable, also for the file of another program.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._shows = False  # that this process waits to write
        self._fcntl = _fcntl()
        require_regular(path)
        require_only_name(path)
        try:
            if size_of(path):
                with closing(StoreFile(path)) as file:
                    file.require_ours()
            self._descriptor = _open_lock(os.path.realpath(path))
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError)  # the file would be created
            reason = "its folder does not exist" if is_missing else error.strerror
            raise StoreUnavailable(f"the store {path!r} cannot be opened: {reason}") from error
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._close.atexit = False  # the end of the process closes the store first

    def try_exclusive(self, seconds: float = 0.0) -> bool:
        """Lock it exclusively. Returns False if the store is open anywhere else; then no lock of this object is left.

        Of several processes that close the store, the last one succeeds. One that was killed has its lock briefly.
        """
        end = time.monotonic() + seconds
        while not (is_locked := self._try(self._fcntl.LOCK_EX)) and time.monotonic() < end:
            time.sleep(LOCK_RETRY_SECONDS)
        return is_locked

    def share(self) -> None:
        """Lock it shared. Raises StoreUnavailable if it stays locked exclusively."""
        deadline = time.monotonic() + SHARE_SECONDS
        while not self._try(self._fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                raise StoreBusy(f"the store {self._path!r} is being restored or moved, or a collection of it renamed")
            time.sleep(LOCK_RETRY_SECONDS)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock it exclusively meanwhile. Raises StoreBusy if the store is open anywhere else."""
        if not self.try_exclusive(SHARE_SECONDS):
            self.share()
            raise StoreBusy(f"the store {self._path!r} must be migrated: stop all that uses it with a former program")
        try:
            yield
        finally:
            self.share()

    def show_waiting(self) -> None:
        """Show other processes that this one waits to write, until `hide_waiting`."""
        if not self._shows:
            with suppress(OSError):  # another process calls `others_wait` at this moment; the next call succeeds
                self._fcntl.lockf(self._descriptor, self._fcntl.LOCK_SH | self._fcntl.LOCK_NB, 1)
                self._shows = True

    def hide_waiting(self) -> None:
        if self._shows:
            self._shows = False
            self._fcntl.lockf(self._descriptor, self._fcntl.LOCK_UN, 1)

    def others_wait(self) -> bool:
        """Whether another process waits to write, unless this one does."""
        if self._shows:
            return False
        try:
            self._fcntl.lockf(self._descriptor, self._fcntl.LOCK_EX | self._fcntl.LOCK_NB, 1)
        except OSError:
            return True
        self._fcntl.lockf(self._descriptor, self._fcntl.LOCK_UN, 1)
        return False

    @property
    def note(self) -> str:
        """The damage that was found, or an empty text."""
        return _begin_of(self._descriptor, LONGEST_NOTE).decode(errors="replace")

    @note.setter
    def note(self, text: str) -> None:
        data = text.encode()[:LONGEST_NOTE]
        os.ftruncate(self._descriptor, len(data))
        os.pwrite(self._descriptor, data, 0)

    def close(self) -> None:
        self._close()

    def _try(self, kind: int) -> bool:
        try:
            self._fcntl.flock(self._descriptor, kind | self._fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def require_regular(path: str | Path) -> None:
    """Raises StoreUnavailable for a folder, a device or a pipe."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise StoreUnavailable(f"{path} is no regular file")


def require_only_name(path: str) -> None:
    """Raises StoreUnavailable for a file with several names: the log beside one of them is not found by another."""
    target = os.path.realpath(path)
    if is_mount(target):
        raise StoreUnavailable(
            f"{path} is a mount of its own: its last changes are in files beside it, which would be lost: mount the "
            f"folder {os.path.dirname(target)}"
        )
    if os.path.exists(target) and os.stat(target).st_nlink > 1:
        raise StoreUnavailable(
            f"{path} has another name, too (a hard link): its last changes can be in a file beside one of them: keep "
            "the name that has a file NAME-wal, or either if none has, and delete the other one"
        )


def give_to_owner_of(path: str | Path, like: str | Path) -> None:
    """Give a file that root has created the owner of another file, as SQLite does with its own files."""
    if os.geteuid() == 0:
        status = os.stat(like)
        os.chown(path, status.st_uid, status.st_gid)


def _open_lock(path: str) -> int:
    file = f"{path}-lock"
    try:
        return os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_to_owner_of(file, path if os.path.exists(path) else os.path.dirname(path))
    return descriptor


class StoreFile:
    """The SQLite file of a store, which must exist, by a descriptor besides those of SQLite.

    All objects for the same file share one descriptor. Close them after the last connection of this process: closing
    any descriptor of a file releases all POSIX locks of the process on it, also SQLite's.
    """

    def __init__(self, path: str, lock: LockFile | None = None) -> None:
        self._path, self._lock = path, lock
        with _lock:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) not in _open:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                status = os.fstat(descriptor)
                _open.setdefault((status.st_dev, status.st_ino), [descriptor, 0])
            self._identity = status.st_dev, status.st_ino
            _open[self._identity][1] += 1
            self._descriptor = _open[self._identity][0]
        self.longest: float = self._size
        self.has_log = True  # whether it is in WAL mode; some file systems do not support that

    def require(self) -> None:
        """Raises StoreGone for a path to another file, or for other contents; StoreDamaged for a file that was cut.

        While a log is moved into it, also by one that was interrupted, it is as long as it was, at least. VACUUM makes
        it shorter, and the next log longer again: that is looked at several times.
        """
        for _ in range(LOOKS):
            size, header = self._size, self._header()  # in this order: it can get shorter at this moment
            is_store = header[:16] == MAGIC and (header[18] == WITH_LOG or not self.has_log)
            if not is_store or self._identity != _identity_of(self._path):
                cause = FileNotFoundError(f"{self._path}: is not the file that was opened")  # clients see no path
                raise StoreGone("the store's file is not the one that was opened") from cause
            whole = int.from_bytes(header[28:32]) * _page_size_in(header) if header[24:28] == header[92:96] else 0
            if size >= min(whole, self.longest):
                self.longest = size if 0 < whole <= size else self.longest
                return
            time.sleep(LOCK_RETRY_SECONDS)
        damage = f"it was cut to {size} of {whole} bytes"
        if self._lock:  # the end of the last connection moves the log into it, and makes it whole
            with suppress(OSError):
                self._lock.note = damage
        raise StoreDamaged(f"the store is damaged: {damage}")

    def check(self) -> None:
        """As `require`; also raises StoreUnavailable for an impossible header or size."""
        self.require()
        if self.is_cut:
            size = self._size
            raise StoreUnavailable(
                f"the store is damaged: {size} bytes are no whole number of pages of {_page_size_in(self._header())}"
            )
        headers = (self._header() for _ in range(3))  # a write can be under way
        if not any(header[24:28] == header[92:96] for header in headers):  # the two counters of changes
            raise StoreUnavailable("the store is damaged: its header contradicts itself")

    @property
    def _size(self) -> int:
        return os.fstat(self._descriptor).st_size

    @property
    def is_cut(self) -> bool:
        """Whether it is no whole number of pages: it is damaged, or the log could not be moved to a full disk."""
        page = _page_size_in(self._header())
        return not page or self._size % page > 0

    def require_ours(self) -> None:
        """Raises StoreUnavailable for a file of another program. It changes nothing, and nothing beside the file.

        An empty database has no number of ours: its tables have never changed, and it has no log.
        """
        header = self._header()
        if header[:16] != MAGIC or (number := int.from_bytes(header[68:72])) == APPLICATION_ID:
            return
        if number:
            raise StoreUnavailable(
                f"{self._path} is a file of another program (application_id {number}): name another one"
            )
        if any(header[40:44]) or log_size(self._path):
            raise StoreUnavailable(
                f"{self._path} is a file of another program, or made by a version before 1.0: name another one, or "
                "export its items there, and import them here"
            )

    def require_own_log(self) -> None:
        """Raises StoreUnavailable if the file `-wal` belongs to another file: it would damage this one.

        A file that is not in WAL mode, as every backup, cannot have one.
        """
        header = self._header()
        if header[:16] == MAGIC and header[18] != WITH_LOG and log_size(self._path):
            raise StoreUnavailable(
                f"{self._path}-wal has the last changes of another file than {self._path}: it looks as if a backup "
                "was copied or moved over the store; nothing was changed; use: restkeeper restore BACKUP"
            )

    def close(self) -> None:
        """Close the descriptor when no other object uses it."""
        with _lock:
            _open[self._identity][1] -= 1
            if not _open[self._identity][1]:
                del _open[self._identity]
                os.close(self._descriptor)

    def _header(self) -> bytes:
        return _begin_of(self._descriptor, HEADER).ljust(HEADER, b"\0")


def _identity_of(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return None


def _page_size_in(header: bytes) -> int:
    """The bytes of a page; 0 if that is impossible."""
    size = int.from_bytes(header[16:18])
    size = 65536 if size == 1 else size
    return size if 512 <= size and not size & (size - 1) else 0


def _begin_of(descriptor: int, size: int) -> bytes:
    """The first bytes of a file. Raises StoreFailing."""
    try:
        return os.pread(descriptor, size, 0)
    except OSError as error:
        raise StoreFailing(f"the store's file cannot be read: {error.strerror}") from error


def opened_file(path: str, lock: LockFile) -> StoreFile | None:
    """Return the file that a store is about to open, or None; lock it, and check it after a crash.

    Raises StoreUnavailable if its log belongs to another file.
    """
    is_alone = lock.try_exclusive()
    lock.share()
    if not os.path.exists(path):
        return None
    file = StoreFile(path, lock)
    try:
        file.require_own_log()
    except StoreUnavailable:
        file.close()
        raise
    if is_alone and (log_size(path) or lock.note):  # no process has it open, and the last one did not close it
        damage = find_damage(path)
        lock.note = lock.note if damage is None else damage
    if lock.note:
        file.longest = inf
    return file


def log_size(path: str) -> int:
    return size_of(f"{os.path.realpath(path)}-wal")


def find_damage(path: str, seconds: float = CHECK_SECONDS, now: Callable[[], float] = time.monotonic) -> str | None:
    """As `damage_of`, for the file at `path`; None also if the time is not enough."""
    deadline = now() + seconds
    name = f"file://{quote(os.path.realpath(path))}?mode=ro"  # its end moves no log into a file that was cut
    with closing(sqlite3.connect(name, isolation_level=None, uri=True)) as connection:
        connection.set_progress_handler(lambda: now() > deadline, CHECK_STEPS)
        return damage_of(connection)


def damage_of(connection: sqlite3.Connection) -> str | None:
    """The first damage that SQLite finds, in one line; empty without damage, None if it was not found out."""
    try:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY, *MAY_BE_FULL):
            return None
        result = error
    return "" if result == "ok" else " ".join(str(result).split())


def create_private(path: str) -> None:
    """Create an empty file that only its owner can read; SQLite copies its mode. Raises OSError."""
    os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def create_store(path: str) -> None:
    """Create a file without tables, as `create_private`. It has our number before it has a log."""
    create_private(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # nothing is stored yet
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")

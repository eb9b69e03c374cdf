"""The lock file STORE-lock: each open store holds it shared, and a restore or a copy holds it exclusively.

It is a separate file, with `flock`: closing a descriptor of the SQLite file itself would release SQLite's locks. It
detects every process of this program on this machine. It also stores the damage that was found in the store. A POSIX
lock of its first byte, which is independent of `flock`, shows that a process waits to write.
"""

import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from restkeeper.storage.errors import StoreBusy, StoreUnavailable

SHARE_SECONDS = 5.0  # for which the opening of a store waits for one of these
RETRY_SECONDS = 0.01
LONGEST_NOTE = 300  # bytes

# The bytes that SQLite locks in an open file (https://sqlite.org/src/file/src/os.h, SHARED_FIRST and SHARED_SIZE).
SHARED_FIRST, SHARED_SIZE = 0x40000002, 510


class LockFile:
    """The lock file of the store at `path`, open and not locked yet. Raises StoreUnavailable."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_waiting = False
        require_regular(path)
        try:
            self._descriptor = _open(os.path.realpath(path))
        except OSError as error:
            raise StoreUnavailable(f"the store {path!r} cannot be opened: {error.strerror}") from error
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._close.atexit = False  # the end of the process closes the store first

    def try_exclusive(self) -> bool:
        """Lock it exclusively. Returns False if the store is open anywhere else; then no lock of this object is left.

        So of several that call it before they close the store, the last one succeeds.
        """
        return self._try(fcntl.LOCK_EX)

    def share(self) -> None:
        """Lock it shared. Raises StoreUnavailable if it stays locked exclusively."""
        deadline = time.monotonic() + SHARE_SECONDS
        while not self._try(fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                raise StoreBusy(f"the store {self._path!r} is being restored or moved")
            time.sleep(RETRY_SECONDS)

    def start_waiting(self) -> None:
        """Show other processes that this one waits to write, until `stop_waiting`."""
        if not self._is_waiting:
            with suppress(OSError):  # another process calls `others_wait` at this moment; the next call succeeds
                fcntl.lockf(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1)
                self._is_waiting = True

    def stop_waiting(self) -> None:
        """This process does not wait to write any more."""
        if self._is_waiting:
            self._is_waiting = False
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1)

    def others_wait(self) -> bool:
        """Whether another process waits to write. This process must not wait itself."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            return True
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1)
        return False

    @property
    def note(self) -> str:
        """The damage that was found, or an empty text."""
        return os.pread(self._descriptor, LONGEST_NOTE, 0).decode(errors="replace")

    @note.setter
    def note(self, text: str) -> None:
        data = text.encode()[:LONGEST_NOTE]
        os.ftruncate(self._descriptor, len(data))
        os.pwrite(self._descriptor, data, 0)

    def close(self) -> None:
        """Unlock and close it."""
        self._close()

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def require_unused(target: Path, lock: LockFile) -> Iterator[None]:
    """Lock the store for this process. Raises StoreUnavailable if it is open anywhere."""
    if not lock.try_exclusive():
        raise StoreUnavailable(f"{target} is in use: stop the service, its delivery workers and all commands first")
    if not target.exists():
        yield
        return
    with target.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, SHARED_SIZE, SHARED_FIRST)
        except OSError:
            raise StoreUnavailable(f"{target} is in use: another program has it open") from None
        yield


def require_regular(path: str | Path) -> None:
    """Raises StoreUnavailable for a folder, a device or a pipe."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise StoreUnavailable(f"{path} is no regular file")


def give_to_owner_of(path: str | Path, like: str | Path) -> None:
    """Give a file that root has created the owner of another file, as SQLite does with its own files."""
    if os.geteuid() == 0:
        status = os.stat(like)
        os.chown(path, status.st_uid, status.st_gid)


def _open(path: str) -> int:
    file = f"{path}-lock"
    try:
        return os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_to_owner_of(file, path if os.path.exists(path) else os.path.dirname(path))
    return descriptor

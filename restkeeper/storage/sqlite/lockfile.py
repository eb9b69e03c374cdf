"""Who uses a store: the file STORE-lock, which every store holds shared while it is open, and a restore holds alone.

It is a file of its own, with `flock`: closing a descriptor of the SQLite file itself would end SQLite's locks. It
detects every process of this program on this machine. It also carries a note: the damage that was found in the store;
and by a POSIX lock of its first byte, which knows nothing of `flock`, who waits to write.
"""

import fcntl
import os
import time
import weakref
from contextlib import suppress
from pathlib import Path

from restkeeper.storage.errors import StoreUnavailable

SHARE_SECONDS = 5.0  # how long an opening waits for a restore
RETRY_SECONDS = 0.01
LONGEST_NOTE = 300  # bytes


class LockFile:
    """The lock file of the store at `path`, open, not locked yet. Raises StoreUnavailable when it cannot be opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._asks = False
        require_regular(path)
        try:
            self._descriptor = _open(os.path.realpath(path))
        except OSError as error:
            raise StoreUnavailable(f"the store {path!r} cannot be opened: {error.strerror}") from error
        self._close = weakref.finalize(self, os.close, self._descriptor)

    def try_alone(self) -> bool:
        """Lock it for this process alone; False when any other store is open."""
        return self._try(fcntl.LOCK_EX)

    def share(self) -> None:
        """Lock it together with others. Raises StoreUnavailable when somebody has it alone for long."""
        deadline = time.monotonic() + SHARE_SECONDS
        while not self._try(fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"the store {self._path!r} is being restored")
            time.sleep(RETRY_SECONDS)

    def ask_for_write(self) -> None:
        """Let other processes know that this one waits to write, until `stop_asking`."""
        if not self._asks:
            with suppress(OSError):  # somebody looks at this moment; the next try asks again
                fcntl.lockf(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1)
                self._asks = True

    def stop_asking(self) -> None:
        """This process does not wait to write any more."""
        if self._asks:
            self._asks = False
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1)

    def others_ask(self) -> bool:
        """Whether another process waits to write. To be called by one that does not."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            return True
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1)
        return False

    @property
    def note(self) -> str:
        """The damage that was found, or nothing."""
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


def require_regular(path: str | Path) -> None:
    """Raises StoreUnavailable for a folder, a device or a pipe."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise StoreUnavailable(f"{path} is no regular file")


def give_to_owner_of(path: str | Path, like: str | Path) -> None:
    """Let a file that root has made belong to the owner of another, as SQLite does with its own."""
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

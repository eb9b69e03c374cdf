"""Whether anything in a SQLite file has changed, seen without asking SQLite.

In WAL mode the processes that share a database agree on its state in a file that all of them map, `-shm`. It begins
with a header that SQLite's own readers compare to tell whether what they know is still so; a commit is there once the
header says so (https://sqlite.org/walformat.html, section 2.1). Comparing it here costs no system call, and spares
those that a read transaction makes for its locks.
"""

import os
import threading
from mmap import MAP_SHARED, PROT_READ, mmap

_HEADER = 48  # bytes: counter of changes, frames, their checksum, salts, its own checksum. A second copy follows

_lock = threading.Lock()
_open: dict[tuple[int, int], "WalIndex"] = {}  # by device and inode


class WalIndex:
    """The header of one `-shm` file. Get one by `open_index`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mapped = mmap(descriptor, 2 * _HEADER, MAP_SHARED, PROT_READ)
        self._users = 0

    def state(self) -> bytes:
        """What differs after each commit of any process."""
        return self._mapped[:_HEADER]

    def join(self) -> "WalIndex":
        """One more who uses it."""
        self._users += 1
        return self

    def leave(self) -> bool:
        """One less; whether that was the last, and the file has been let go of."""
        self._users -= 1
        if not self._users:
            self._mapped.close()
            os.close(self._descriptor)
        return not self._users


def open_index(path: str) -> WalIndex | None:
    """The index of the database at `path`, which this process has open; None where there is none to map.

    It must be given back by `close_index`, and that when no connection of this process is open any more: closing any
    descriptor of a file ends all the POSIX locks that the process has on it, SQLite's too. All who use the same file
    share one.
    """
    with _lock:
        try:
            file = f"{os.path.realpath(path)}-shm"
            status = os.stat(file)
            known = (status.st_dev, status.st_ino)
            if known not in _open:
                _open[known] = WalIndex(os.open(file, os.O_RDONLY | os.O_CLOEXEC))
        except (OSError, ValueError):  # no such file, or one that is too short
            return None
        return _open[known].join()


def close_index(index: WalIndex) -> None:
    """Give an index back."""
    with _lock:
        if index.leave():
            for known in [known for known, each in _open.items() if each is index]:
                del _open[known]

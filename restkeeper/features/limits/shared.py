"""The table of counters that the processes of a server share.

The server's master creates the table before it forks, and its workers inherit it. It is in memory and has no name that
others could open; it ends with the last of these processes.
"""

import os
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_UN, lockf

from restkeeper.features.limits.counters import SLOTS, CounterTable


class SharedTable(CounterTable):
    """The table, shared with processes that this one forks later. `locked` has the lock, of all of them.

    The lock is one of the system's on a file without a name: it belongs to a process, so that a forked one does not
    have its parent's, and it is released when the process ends, however that happens.
    """

    def __init__(self, slots: int = SLOTS) -> None:
        super().__init__(slots)
        # In memory where that is possible: a container may have no folder to write to.
        file = open(os.memfd_create("limits"), "wb") if sys.platform == "linux" else tempfile.TemporaryFile()
        weakref.finalize(self, file.close)
        self._descriptor = file.fileno()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Have the lock of all processes, and of their threads."""
        with super().locked():  # the file's lock is of the whole process
            lockf(self._descriptor, LOCK_EX)
            try:
                yield
            finally:
                lockf(self._descriptor, LOCK_UN)

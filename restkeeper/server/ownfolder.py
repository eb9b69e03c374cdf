"""Temporary folders of a process. A killed process cannot delete its folder; the next process deletes it."""

import os
import shutil
import tempfile
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path


def make_folder(prefix: str, parent: str | None = None) -> Path:
    """A new folder, locked until this process and all its forks have ended.

    Folders with the same prefix that are not locked any more are deleted.
    """
    where = Path(parent or tempfile.gettempdir())
    for each in where.glob(f"{prefix}*"):
        _delete_abandoned(each)
    while True:  # another process may delete the folder before it is locked
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        with suppress(FileNotFoundError):
            flock(os.open(folder, os.O_RDONLY | os.O_CLOEXEC), LOCK_EX)  # never closed: the lock ends with the process
            if folder.exists():
                return folder


def _delete_abandoned(folder: Path) -> None:
    with suppress(OSError):  # another user's, in use, or deleted by another process at this moment
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                flock(descriptor, LOCK_EX | LOCK_NB)
                shutil.rmtree(folder)
        finally:
            os.close(descriptor)

"""The locations of stores, of which each backend has a class."""

import os
import re
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from restkeeper.clock import Clock
from restkeeper.storage.base import Store
from restkeeper.storage.interface import Collection

MOUNTS = Path("/proc/self/mountinfo")  # of Linux


class Options(NamedTuple):
    """How a process uses a store.

    If `synchronous` is "full", a commit survives a loss of power; if it is "normal", the end of the process. Writes
    raise StoreFull while a local disk has less than `min_free_space` free bytes. `connections` is how many this process
    has to a database server at most, 2 or more. Unless it `creates` a missing store, each use of that raises StoreGone.
    """

    synchronous: str = "full"
    min_free_space: int = 0
    connections: int = 10
    creates: bool = True
    clock: Clock = time


DEFAULTS = Options()


class Location(Protocol):
    """The location of a store. The constructor touches no file; it raises ValueError if the URL has not the `pattern`.

    `name` is the URL without any password. A `temporary` store belongs to one process and ends with it. Other programs
    may use a `shared` one at the same time, so that no start of one converts the items. `folder` is
    a folder on the disk of the store, or None if that disk is not of this machine.
    """

    pattern: ClassVar[str]
    temporary: ClassVar[bool]
    shared: ClassVar[bool]

    def __init__(self, url: str) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> str | None: ...

    def store(self, collections: Iterable[Collection], options: Options) -> Store:
        """The store, which is not open yet."""

    def require(self) -> None:
        """Raises StoreUnavailable if the store does not exist."""

    def size(self) -> int:
        """The size of the store in bytes."""

    def restore(self, backup: Path | None, *, discard: bool) -> Any:
        """Replace the store by a copy of `backup`; or without one, note that a tool of the database has done it.

        Returns a `copying.Restored`. The former store is renamed, or with `discard` deleted. Raises StoreUnavailable,
        and changes nothing, if the store is in use, if the file is no backup, or if it is of a kind with the other way.
        """

    def alone(self, clock: Clock) -> AbstractContextManager[Any]:
        """The store as a `copying.Copy`, which nobody else can use meanwhile. What is not committed is undone.

        Raises StoreUnavailable if somebody uses it, or if it is missing or damaged.
        """

    def as_target(self, clock: Clock) -> AbstractContextManager[Any]:
        """A new store without rows, as a `copying.Copy`; without an exception it exists from the end of the context on.

        Raises StoreUnavailable if there is a store.
        """


def is_mount(path: str | Path) -> bool:
    """Whether a file is a mount of its own, as a single file in a container is: no other file can take its place.

    Its device is no sign of that: on overlayfs that of a file differs from that of its folder.
    """
    target = os.fsencode(os.path.realpath(path))
    with suppress(OSError):
        for line in MOUNTS.read_bytes().splitlines():
            if target == re.sub(rb"\\(\d{3})", lambda code: bytes([int(code[1], 8)]), line.split(b" ")[4]):
                return True
    return False


def size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0

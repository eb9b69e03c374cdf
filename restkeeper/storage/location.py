"""The locations of stores. Each backend has a class of them."""

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from restkeeper.clock import Clock
from restkeeper.storage.copying import Copy, Copyable
from restkeeper.storage.interface import Collection, Store


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


class Restored(NamedTuple):
    """The result of a restore: items by collection, the time of the newest, and the path of the replaced store."""

    items: dict[str, int]
    newest: str | None
    replaced: Path | None


class Location(Protocol):
    """The location of a store. The constructor touches no file; it raises ValueError if the URL has not the `pattern`.

    `name` is the URL without any password. A `temporary` store belongs to one process and ends with it. `folder` is
    a folder on the disk of the store, or None if that disk is not of this machine.
    """

    pattern: ClassVar[str]
    temporary: ClassVar[bool]

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

    def restore(self, backup: Path | None, *, discard: bool) -> Restored:
        """Replace the store by a copy of `backup`; or without one, note that a tool of the database has done it.

        The former store is renamed, or with `discard` deleted. Raises StoreUnavailable, and changes nothing, if the
        store is in use, if the file is no backup, or if it is of a kind with the other way.
        """

    def as_source(self, clock: Clock) -> AbstractContextManager[Copyable]:
        """The store, to be copied. Nobody else can use it meanwhile.

        Raises StoreUnavailable if somebody does, or if it is missing or damaged.
        """

    def as_target(self, epoch: str, clock: Clock) -> AbstractContextManager[Copy]:
        """A new store without rows, and with this epoch; without an exception it exists from the end of the context on.

        Raises StoreUnavailable if there is a store.
        """

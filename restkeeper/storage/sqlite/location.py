"""The locations of SQLite: a file, or the memory of one process."""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from restkeeper.clock import Clock
from restkeeper.storage.copying import Copy, Copyable
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection, Store
from restkeeper.storage.location import Options, Restored
from restkeeper.storage.sqlite import copying
from restkeeper.storage.sqlite.file import log_size, size_of
from restkeeper.storage.sqlite.restore import restore
from restkeeper.storage.sqlite.store import SqliteStore

_SCHEME = "sqlite:///"


class SqliteFile:
    """A SQLite file. See `location.Location`."""

    pattern: ClassVar[str] = "sqlite:///FILE (four slashes for an absolute path, no ?parameters)"
    temporary: ClassVar[bool] = False

    def __init__(self, url: str) -> None:
        self.name = url
        self._path = url.removeprefix(_SCHEME)
        is_path = self._path not in ("", ":memory:") and "?" not in self._path and not self._path.startswith("file:")
        if not url.startswith(_SCHEME) or not is_path:
            raise ValueError(url)

    @property
    def folder(self) -> str | None:
        return os.path.dirname(os.path.realpath(self._path))

    def store(self, collections: Iterable[Collection], options: Options) -> Store:
        return SqliteStore(self._path, collections, options)

    def require(self) -> None:
        if not self.size():
            raise StoreUnavailable(f"there is no store at {self._path!r}; DATABASE_URL={self.name!r} names it")

    def size(self) -> int:
        return size_of(self._path) + log_size(self._path)

    def restore(self, backup: Path | None, *, discard: bool) -> Restored:
        if backup is None:
            raise StoreUnavailable("name the backup: restkeeper restore FILE")
        return restore(self._path, backup, discard=discard)

    def as_source(self, clock: Clock) -> AbstractContextManager[Copyable]:
        return copying.as_source(self._path, clock)

    def as_target(self, epoch: str, clock: Clock) -> AbstractContextManager[Copy]:
        return copying.as_target(self._path, epoch)


class SqliteMemory(SqliteFile):
    """The memory of this process. Each call of `store` returns another store. See `location.Location`."""

    pattern: ClassVar[str] = "memory://"
    temporary: ClassVar[bool] = True

    def __init__(self, url: str) -> None:
        self.name = url
        self._path = ":memory:"
        if url != self.pattern:
            raise ValueError(url)

    @property
    def folder(self) -> None:
        return None

    def require(self) -> None:
        raise StoreUnavailable(f"there is no store at {self.name} before it is opened")

    def size(self) -> int:
        return 0

    def restore(self, backup: Path | None, *, discard: bool) -> Restored:
        raise StoreUnavailable(f"{self.name} cannot be restored: it ends with its process")

"""The locations of SQLite: a file, which a backup can replace, or the memory of one process."""

import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from restkeeper.clock import Clock
from restkeeper.storage.base import Store
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection
from restkeeper.storage.location import Options, size_of
from restkeeper.storage.sqlite.store import SqliteStore

_SCHEME = "sqlite:///"


class SqliteFile:
    """A SQLite file. See `location.Location`."""

    pattern: ClassVar[str] = "sqlite:///FILE (four slashes for an absolute path, no ?parameters)"
    temporary: ClassVar[bool] = False
    shared: ClassVar[bool] = False

    def __init__(self, url: str) -> None:
        self.name = url
        self._path = url.removeprefix(_SCHEME)
        is_path = self._path not in ("", ":memory:") and "?" not in self._path and not self._path.startswith("file:")
        if not url.startswith(_SCHEME) or not is_path:
            raise ValueError(url)
        import_module("restkeeper.storage.sqlite.file")  # which a store in memory does not need

    @property
    def folder(self) -> str | None:
        return os.path.dirname(os.path.realpath(self._path))

    def store(self, collections: Iterable[Collection], options: Options) -> Store:
        return SqliteStore(self._path, collections, options)

    def require(self) -> None:
        if not self.size():
            named = f"DATABASE_URL={self.name!r} names it, and the first start creates it"
            raise StoreUnavailable(f"there is no store at {self._path!r}; {named}")

    def size(self) -> int:
        log_size = import_module("restkeeper.storage.sqlite.file").log_size
        return size_of(self._path) + int(log_size(self._path))

    def restore(self, backup: Path | None, *, discard: bool) -> Any:
        return _copying().restore(self._path, backup, discard=discard)

    def alone(self, clock: Clock) -> Any:
        return _copying().alone(self._path, clock)

    def as_target(self, clock: Clock) -> Any:
        return _copying().as_target(self._path)


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
        """See `location.Location`: there is none."""
        return None

    def restore(self, backup: Path | None, *, discard: bool) -> Any:
        raise StoreUnavailable(f"{self.name} cannot be restored: it ends with its process")


def _copying() -> Any:
    """The module for restores and copies, which a service does not load."""
    return import_module("restkeeper.storage.sqlite.copying")

"""The location of a store in PostgreSQL. It does not import psycopg, which may not be installed."""

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import parse_qs, urlsplit

from restkeeper.clock import Clock
from restkeeper.storage.base import Store
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection
from restkeeper.storage.location import Options


class PostgresLocation:
    """A database of PostgreSQL. See `location.Location`."""

    pattern: ClassVar[str] = "postgresql://USER:PASSWORD@HOST/DATABASE"
    temporary: ClassVar[bool] = False
    shared: ClassVar[bool] = True

    def __init__(self, url: str) -> None:
        self._url = url
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "postgres") or not parts.path.strip("/") or "@" in parts.path:
            raise ValueError(url)
        host = parts.netloc.rpartition("@")[2] or "".join(parse_qs(parts.query).get("host", []))
        self.name = f"postgresql://{f'{parts.username}@' if parts.username else ''}{host}{parts.path}"

    @property
    def folder(self) -> None:
        return None

    def store(self, collections: Iterable[Collection], options: Options) -> Store:
        return cast(Store, _backend().PostgresStore(self._url, collections, options))

    def require(self) -> None:
        if _backend().size_of(self._url) is None:
            raise StoreUnavailable(f"there is no store in the database {self.name}: the first start creates it")

    def size(self) -> int:
        return int(_backend().size_of(self._url) or 0)

    def restore(self, backup: Path | None, *, discard: bool) -> Any:
        if backup:
            tools = "pg_restore, or a restore to a point in time"
            raise StoreUnavailable(f"PostgreSQL has its own tools: {tools}; then run: restkeeper restore, without FILE")
        return _backend().renewed(self._url)

    def alone(self, clock: Clock) -> Any:
        return _backend().alone(self._url, clock)

    def as_target(self, clock: Clock) -> Any:
        return _backend().as_target(self._url, clock)


def _backend() -> Any:
    """The module of the store. Raises StoreUnavailable if psycopg is not installed."""
    try:
        return importlib.import_module("restkeeper.storage.postgresql.store")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("psycopg", "psycopg_pool"):
            raise
        raise StoreUnavailable(f"{error.name} is not installed: pip install 'restkeeper[postgresql]'") from error

"""Stores of items. `locate` and `open_store` are the only entries.

No module outside this package knows a backend, or SQL.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from restkeeper.storage.base import Store
from restkeeper.storage.interface import Collection
from restkeeper.storage.location import DEFAULTS, Location, Options
from restkeeper.storage.postgresql.location import PostgresLocation
from restkeeper.storage.sqlite.location import SqliteFile, SqliteMemory

__all__ = ["Location", "Options", "Store", "locate", "open_store"]

# By the scheme of a URL; some platforms write the last one.
BACKENDS: Mapping[str, type[Location]] = {
    "memory": SqliteMemory,
    "sqlite": SqliteFile,
    "postgresql": PostgresLocation,
    "postgres": PostgresLocation,
}


def locate(url: str) -> Location:
    """The location that a URL names. Raises ValueError, which lists the forms of a URL."""
    with suppress(KeyError, ValueError):
        return BACKENDS[url.partition("://")[0]](url)
    raise ValueError(" or ".join(dict.fromkeys(backend.pattern for backend in BACKENDS.values())))


def open_store(url: str, collections: Iterable[Collection], options: Options = DEFAULTS) -> Store:
    """Open the store that a URL names. See `Store.open`."""
    store = locate(url).store(collections, options)
    store.open()
    return store

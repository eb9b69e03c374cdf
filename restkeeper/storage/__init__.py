"""Stores of items. `locate` and `open_store` are the only entries.

No module outside this package knows a backend, or SQL.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module

from restkeeper.storage.base import Store
from restkeeper.storage.interface import Collection
from restkeeper.storage.location import DEFAULTS, Location, Options

__all__ = ["Location", "Options", "Store", "locate", "open_store"]

# By the scheme of a URL, as "module:class", so that a service loads one; some platforms write the last scheme.
BACKENDS: Mapping[str, str] = {
    "memory": "restkeeper.storage.sqlite.location:SqliteMemory",
    "sqlite": "restkeeper.storage.sqlite.location:SqliteFile",
    "postgresql": "restkeeper.storage.postgresql.location:PostgresLocation",
    "postgres": "restkeeper.storage.postgresql.location:PostgresLocation",
}


def locate(url: str) -> Location:
    """The location that a URL names. Raises ValueError, which lists the forms of a URL."""
    with suppress(KeyError, ValueError):
        return _loaded(BACKENDS[url.partition("://")[0]])(url)
    raise ValueError(" or ".join(dict.fromkeys(_loaded(backend).pattern for backend in BACKENDS.values())))


def _loaded(backend: str) -> type[Location]:
    module, _, name = backend.partition(":")
    location: type[Location] = getattr(import_module(module), name)
    return location


def open_store(url: str, collections: Iterable[Collection], options: Options = DEFAULTS) -> Store:
    """Open the store that a URL names. See `Store.open`."""
    store = locate(url).store(collections, options)
    store.open()
    return store

"""Where items are stored. `locate` is the only way in; nothing outside this package knows a backend, or SQL."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import cast

from restkeeper.clock import Clock
from restkeeper.storage.contract import Collection, Store
from restkeeper.storage.lazy import LazyStore
from restkeeper.storage.location import Location
from restkeeper.storage.sqlite.location import SqliteFile, SqliteMemory

__all__ = ["Location", "Store", "locate", "open_store"]

BACKENDS: Mapping[str, type[Location]] = {"memory": SqliteMemory, "sqlite": SqliteFile}  # by the scheme of a URL


def locate(url: str) -> Location:
    """Where the store at `url` is. Raises ValueError, with the forms that a URL can have."""
    with suppress(KeyError, ValueError):
        return BACKENDS[url.partition("://")[0]](url)
    raise ValueError(" or ".join(backend.form for backend in BACKENDS.values()))


def open_store(
    location: Location | str,
    collections: Iterable[Collection],
    *,
    synchronous: str = "full",
    min_free_space: int = 0,
    lazily: bool = False,
    clock: Clock = time,
) -> Store:
    """The store at a location or URL, as `Location.open`, now or `lazily` when it is first used."""
    location = locate(location) if isinstance(location, str) else location
    opening = partial(location.open, collections, synchronous=synchronous, min_free_space=min_free_space, clock=clock)
    return cast(Store, LazyStore(opening)) if lazily else opening()

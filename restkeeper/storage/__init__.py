"""Stores of items. `locate` is the only entry: no module outside this package knows a backend, or SQL."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

from restkeeper.clock import Clock
from restkeeper.storage.contract import Collection, Store
from restkeeper.storage.location import Location
from restkeeper.storage.sqlite.location import SqliteFile, SqliteMemory

__all__ = ["Location", "Store", "locate", "open_store"]

BACKENDS: Mapping[str, type[Location]] = {"memory": SqliteMemory, "sqlite": SqliteFile}  # by the scheme of a URL


def locate(url: str) -> Location:
    """The location that a URL names. Raises ValueError, which lists the forms of a URL."""
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
    """Open the store at a location or URL, as `Location.open`; with `lazily`, when it is first used."""
    location = locate(location) if isinstance(location, str) else location
    opening = partial(location.open, collections, synchronous=synchronous, min_free_space=min_free_space, clock=clock)
    return cast(Store, _LazyStore(opening)) if lazily else opening()


class _LazyStore:
    """A store that is opened once, when it is first used: commands are loaded, and check their input, before."""

    def __init__(self, opening: Callable[[], Store]) -> None:
        self._opening = opening
        self._store: Store | None = None
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._store is None:
                self._store = self._opening()
        return getattr(self._store, name)

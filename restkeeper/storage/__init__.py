"""Where items are kept. `open_store` is the only way in; nothing outside this package knows SQL."""

import os
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import cast

from restkeeper.clock import Clock
from restkeeper.storage.contract import Collection, Store
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.lazy import LazyStore
from restkeeper.storage.sqlite.restore import Restored, restore
from restkeeper.storage.sqlite.store import SqliteStore

__all__ = ["Restored", "Store", "open_store", "require_store", "restore_store", "size_of"]


def open_store(
    url: str,
    collections: Iterable[Collection],
    *,
    synchronous: str = "full",
    min_free_space: int = 0,
    lazily: bool = False,
    clock: Clock = time,
) -> Store:
    """The store at `url`, migrated and ready: `sqlite:///FILE` or `memory://`.

    Of the disk's bytes, `min_free_space` stay free: below, writes raise StoreFull. Raises StoreUnavailable when
    the store cannot be opened, or was written by a newer program; `lazily` when it is first used.
    """
    path = _path_of(url)
    opening = partial(
        SqliteStore, path, collections, synchronous=synchronous, min_free_space=min_free_space, clock=clock
    )
    return cast(Store, LazyStore(opening)) if lazily else opening()


def require_store(url: str) -> None:
    """Raises StoreUnavailable when there is no store at `url` yet."""
    if url != "memory://" and not size_of(url):
        raise StoreUnavailable(f"there is no store at {_path_of(url)!r}; DATABASE_URL={url!r} names it")


def restore_store(url: str, backup: Path, *, discard: bool = False) -> Restored:
    """See `storage.restore.restore`."""
    return restore(_path_of(url), backup, discard=discard)


def size_of(url: str) -> int:
    """Bytes that the store at `url` takes on the disk."""
    path = os.path.realpath(_path_of(url))
    return sum(os.stat(file).st_size for file in (path, f"{path}-wal") if os.path.exists(file))


def _path_of(url: str) -> str:
    return ":memory:" if url == "memory://" else url.removeprefix("sqlite:///")

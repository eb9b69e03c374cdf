"""Where items are kept. `open_store` is the only way in; nothing outside this package knows SQL."""

from collections.abc import Iterable

from storage.contract import Collection, Store
from storage.sqlite import SqliteStore

__all__ = ["Store", "open_store"]


def open_store(
    url: str, collections: Iterable[Collection], *, synchronous: str = "full", min_free_space: int = 0
) -> Store:
    """The store at `url`, migrated and ready: `sqlite:///FILE` or `memory://`.

    Of the disk's bytes, `min_free_space` stay free: below, writes raise InsufficientStorage. Raises Unavailable when
    the store cannot be opened, or was written by a newer program.
    """
    path = ":memory:" if url == "memory://" else url.removeprefix("sqlite:///")
    return SqliteStore(path, collections, synchronous=synchronous, min_free_space=min_free_space)

"""What a backend offers: a class of locations, one of which is where a store is, or could be made."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from restkeeper.clock import Clock
from restkeeper.storage.contract import Collection, Store


class Restored(NamedTuple):
    """What a backup had: items by collection, and the time of the newest; and where the replaced store is now."""

    items: dict[str, int]
    newest: str | None
    replaced: Path | None


class Location(Protocol):
    """Where the store at a URL is. Making one touches nothing; it raises ValueError for a URL of another `form`.

    `name` is the URL as it may be shown, without any password. A store that is `temporary` is one process's own, and
    gone with that. `folder` is on the disk of the store, None where that is not of this machine.
    """

    form: ClassVar[str]
    temporary: ClassVar[bool]

    def __init__(self, url: str) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> str | None: ...

    def open(self, collections: Iterable[Collection], *, synchronous: str, min_free_space: int, clock: Clock) -> Store:
        """The store, made if need be, migrated and ready.

        What is written survives a loss of power where `synchronous` is "full", and the end of a process where it is
        "normal". Of the bytes of a disk of this machine, `min_free_space` stay free: below, writes raise StoreFull.
        Raises StoreUnavailable when the store cannot be opened, or was written by a newer program.
        """

    def require(self) -> None:
        """Raises StoreUnavailable when no store is there yet."""

    def size(self) -> int:
        """Bytes that the store takes."""

    def restore(self, backup: Path, *, discard: bool) -> Restored:
        """Put a copy of `backup` in the place of the store.

        The former store is renamed, or with `discard` deleted. Raises StoreUnavailable when that is in use, or the
        backup is none, or the database has a tool of its own for that; then nothing has changed.
        """

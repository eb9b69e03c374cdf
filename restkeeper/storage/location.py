"""The locations of stores, of which each backend has a class, and the copy of a store from one to another."""

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import orjson

from restkeeper.clock import Clock
from restkeeper.storage.base import Store
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import POSITION, Collection
from restkeeper.storage.sql import Database, Row

MOUNTS = Path("/proc/self/mountinfo")  # of Linux
STEP = 1000  # rows of a copy, after which its progress is shown


class Options(NamedTuple):
    """How a process uses a store.

    If `synchronous` is "full", a commit survives a loss of power; if it is "normal", the end of the process. Writes
    raise StoreFull while a local disk has less than `min_free_space` free bytes. `connections` is how many this process
    has to a database server at most, 2 or more. Unless it `creates` a missing store, each use of that raises StoreGone.
    """

    synchronous: str = "full"
    min_free_space: int = 0
    connections: int = 10
    creates: bool = True
    clock: Clock = time


DEFAULTS = Options()


class Restored(NamedTuple):
    """The result of a restore: items by collection, the time of the newest, and the path of the replaced store."""

    items: dict[str, int]
    newest: str | None
    replaced: Path | None


class Table(NamedTuple):
    """A table of both databases, with texts, numbers and bytes. The first `keys` of its `columns` order the rows."""

    name: str
    columns: tuple[str, ...]
    keys: int = 1

    @property
    def source(self) -> str:
        """The rows: of the counters one for each collection."""
        return _COUNTERS if self.name == "counters" else self.name

    @property
    def query(self) -> str:
        """The statement of all rows in order; no two have the same values in the columns of the order."""
        columns, order = ", ".join(self.columns), ", ".join(self.columns[: self.keys])
        return f"SELECT {columns} FROM {self.source} ORDER BY {order}"  # noqa: S608 - constants


# A copy has another epoch: the feed of events begins anew, and so do deliveries and the numbers of changes.
TABLES = (
    Table("counters", ("collection", "items", "revision", "converted_at")),
    Table("schemas", ("number", "collection", "fingerprint", "revision", "fields")),
    Table(
        "items",
        ("collection", "id", "owner", "version", "updated_at", "fingerprint", "body", "removed", POSITION),
        keys=2,
    ),
    Table("responses", ("stored_at", "id", "body"), keys=2),
    Table("subscriptions", ("webhook", "secrets")),
)

_COUNTERS = """\
(
    SELECT
        collection,
        CAST(sum(items) AS bigint) AS items,
        max(revision) AS revision,
        max(converted_at) AS converted_at
    FROM counters
    GROUP BY collection
) AS counters"""

_UNSENT = """\
SELECT count(*) FROM subscriptions
WHERE {is_unnumbered} OR position < {newest} OR EXISTS (
    SELECT 1 FROM deliveries WHERE deliveries.webhook = subscriptions.webhook AND state = 'pending'
)"""


class Copy(ABC):
    """A store that nobody else uses, in an open transaction of its `database`; of a copy, one of the two.

    `moved_to` names the store that it was moved to.
    """

    def __init__(self, database: Database, moved_to: str = "") -> None:
        self.database = database
        self.moved_to = moved_to

    def unsent(self) -> int:
        """The number of webhooks that were not sent all events."""
        return int(self.database.rows(_UNSENT, {})[0][0])

    def count(self, table: Table) -> int:
        return int(self.database.fetch(f"SELECT count(*) FROM {table.source}", {})[0][0])  # noqa: S608 - constants

    @abstractmethod
    def rows(self, table: Table) -> Iterator[Row]:
        """All rows in order. Read them to the end before any other call."""

    def end(self, moved_to: str) -> None:
        """From now on no program opens the store: it was moved."""
        self.database.change("UPDATE store SET moved_to = :moved_to", {"moved_to": moved_to})
        self.database.commit()

    @abstractmethod
    def drop_indexes(self, *collections: str) -> None:
        """Delete the indexes of these collections."""

    @abstractmethod
    def add(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows."""

    @abstractmethod
    def finish(self) -> None:
        """Do all that can fail but what makes the copy appear, which the end of the context does."""


class Location(Protocol):
    """The location of a store. The constructor touches no file; it raises ValueError if the URL has not the `pattern`.

    `name` is the URL without any password. A `temporary` store belongs to one process and ends with it. Other programs
    may use a `shared` one at the same time, so that no start of one converts the items. `folder` is
    a folder on the disk of the store, or None if that disk is not of this machine.
    """

    pattern: ClassVar[str]
    temporary: ClassVar[bool]
    shared: ClassVar[bool]

    def __init__(self, url: str) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> str | None: ...

    def store(self, collections: Iterable[Collection], options: Options) -> Store:
        """The store, which is not open yet."""

    def require(self) -> None:
        """Raises StoreUnavailable if the store does not exist."""

    def size(self) -> int:
        """The size of the store in bytes."""

    def restore(self, backup: Path | None, *, discard: bool) -> Restored:
        """Replace the store by a copy of `backup`; or without one, note that a tool of the database has done it.

        The former store is renamed, or with `discard` deleted. Raises StoreUnavailable, and changes nothing, if the
        store is in use, if the file is no backup, or if it is of a kind with the other way.
        """

    def alone(self, clock: Clock) -> AbstractContextManager[Copy]:
        """The store, which nobody else can use meanwhile. What is not committed is undone.

        Raises StoreUnavailable if somebody uses it, or if it is missing or damaged.
        """

    def as_target(self, clock: Clock) -> AbstractContextManager[Copy]:
        """A new store without rows; without an exception it exists from the end of the context on.

        Raises StoreUnavailable if there is a store.
        """


class Copied(NamedTuple):
    """What was copied of a table."""

    table: str
    rows: int
    digest: str


Progress = Callable[[str, int], AbstractContextManager[Any]]  # a label and a length to what has `update(step)`


def copy(source: Location, target: Location, progress: Progress, clock: Clock, *, discard: bool) -> list[Copied]:
    """Move a store to where there is none yet, and compare what was written with what was read.

    The copy has another epoch and no events. Only one of the two may change afterwards: no program opens the source any
    more, from a moment before the copy exists. The copy appears at once, complete; after an interruption there is none.

    Raises StoreUnavailable, and changes nothing, if a program uses one of the two, or the target has a store; or unless
    it may `discard` them, if events were not sent to all webhooks.
    """
    with source.alone(clock) as old:
        if old.moved_to not in ("", target.name):  # that copy was interrupted at its end
            raise StoreUnavailable(f"{source.name} was moved to {old.moved_to} already")
        if (unsent := old.unsent()) and not discard:
            raise StoreUnavailable(
                f"webhooks that were not sent all events: {unsent}; run `restkeeper deliver --once`, or with --discard "
                "leave those events behind"
            )
        with target.as_target(clock) as new:
            length = sum(map(old.count, TABLES))
            with progress("copying", length) as bar:
                read = [_copied(old, table, bar.update, new.add) for table in TABLES]
            with progress("comparing", length) as bar:
                written = [_copied(new, table, bar.update) for table in TABLES]
            for one, other in zip(read, written, strict=True):
                if one != other:
                    raise StoreUnavailable(
                        f"the copy of {one.table} differs from its source ({other.rows} of {one.rows} rows, digest "
                        f"{other.digest} and not {one.digest}): nothing was moved"
                    )
            new.finish()
            old.end(target.name)
    return read


def _copied(
    store: Copy,
    table: Table,
    advance: Callable[[int], None],
    add: Callable[[Table, Iterable[Row]], None] = lambda table, rows: [*rows].clear(),
) -> Copied:
    """Read all rows of a table, and let `add` have them."""
    digest, count = blake2b(digest_size=8), 0

    def noted() -> Iterator[Row]:
        nonlocal count
        for row in store.rows(table):
            digest.update(orjson.dumps(row, default=bytes.hex) + b"\n")
            count += 1
            if count % STEP == 0:
                advance(STEP)
            yield row

    add(table, noted())
    advance(count % STEP)
    return Copied(table.name, count, digest.hexdigest())


def is_mount(path: str | Path) -> bool:
    """Whether a file is a mount of its own, as a single file in a container is: no other file can take its place.

    Its device is no sign of that: on overlayfs that of a file differs from that of its folder.
    """
    target = os.fsencode(os.path.realpath(path))
    with suppress(OSError):
        for line in MOUNTS.read_bytes().splitlines():
            if target == re.sub(rb"\\(\d{3})", lambda code: bytes([int(code[1], 8)]), line.split(b" ")[4]):
                return True
    return False

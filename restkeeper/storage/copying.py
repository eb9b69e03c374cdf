"""The copy of a store from one location to another, and the result of a restore. Only commands load this module."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from restkeeper.clock import Clock
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import POSITION
from restkeeper.storage.location import Location
from restkeeper.storage.sql import Database, Row

STEP = 1000  # rows of a copy, after which its progress is shown


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
        ("collection", "id", "owner", "version", "updated_at", "fingerprint", "body", "removed_fields", POSITION),
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

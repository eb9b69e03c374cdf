"""A copy of a whole store to where there is none yet, while nobody uses either of the two.

The copy has the epoch, the numbers of changes and the positions of its source, so that all ETags, cursors and ids of
events stay valid in it. So only one of the two may change afterwards: no program opens the source any more, from a
moment before the copy exists. The copy appears at once, complete; after an interruption there is none.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import orjson

from restkeeper.clock import Clock
from restkeeper.storage.errors import StoreUnavailable

Row = tuple[Any, ...]
STEP = 1000  # rows, after which the progress is shown


class Table(NamedTuple):
    """A table of both databases, with texts, numbers and bytes. The first `keys` of its `columns` order the rows."""

    name: str
    columns: tuple[str, ...]
    keys: int = 1

    @property
    def order(self) -> str:
        """The columns that order the rows; no two rows have the same values in them."""
        return ", ".join(self.columns[: self.keys])


# In the order of the copy: deliveries refer to events.
TABLES = (
    Table("counters", ("collection", "items", "changes")),
    Table("schemas", ("number", "collection", "fingerprint", "revision", "oldest", "fields")),
    Table("items", ("collection", "id", "owner", "version", "updated_at", "fingerprint", "body", "removed"), keys=2),
    Table("responses", ("stored_at", "id", "body"), keys=2),
    Table(
        "events",
        ("position", "origin", "type", "collection", "item", "owner", "at", "data", "fingerprint", "removed"),
    ),
    Table("subscriptions", ("webhook", "position", "paused_until", "secrets")),
    Table(
        "deliveries",
        ("id", "webhook", "event", "item", "state", "due", "lease", "leased", "attempts", "attempted", "status")
        + ("seconds", "excerpt"),
    ),
)


class Copyable(Protocol):
    """A store that nobody else uses, as tables."""

    @property
    def epoch(self) -> str:
        """The epoch of the store."""

    @property
    def moved_to(self) -> str:
        """The name of the store that it was moved to, or an empty text."""

    def count(self, table: Table) -> int:
        """The number of rows."""

    def rows(self, table: Table) -> Iterator[Row]:
        """All rows in order. Read them to the end before any other call."""

    def end(self, moved_to: str) -> None:
        """From now on no program opens the store: it was moved."""


class Copy(Copyable, Protocol):
    """A copy that is being made."""

    def add(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows."""

    def finish(self) -> None:
        """Do all that can fail but what makes the copy appear, which the end of the context does."""


class Side(Protocol):
    """The part of `location.Location` that a copy needs."""

    @property
    def name(self) -> str: ...

    def as_source(self, clock: Clock) -> AbstractContextManager[Copyable]: ...

    def as_target(self, epoch: str, clock: Clock) -> AbstractContextManager[Copy]: ...


class Copied(NamedTuple):
    """What was copied of a table."""

    table: str
    rows: int
    digest: str


Progress = Callable[[str, int], AbstractContextManager[Any]]  # a label and a length to what has `update(step)`


def copy(source: Side, target: Side, progress: Progress, clock: Clock) -> list[Copied]:
    """Move a store, and compare what was written with what was read.

    Raises StoreUnavailable, and changes nothing, if a program uses one of the two, or the target has a store.
    """
    with source.as_source(clock) as old:
        if old.moved_to not in ("", target.name):  # that copy was interrupted at its end
            raise StoreUnavailable(f"{source.name} was moved to {old.moved_to} already")
        with target.as_target(old.epoch, clock) as new:
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
    store: Copyable,
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

"""A store as tables, for a copy of all of it to where there is none yet. See `location.copy`."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from restkeeper.storage.sql import Database, Row


class Table(NamedTuple):
    """A table of both databases, with texts, numbers and bytes. The first `keys` of its `columns` order the rows."""

    name: str
    columns: tuple[str, ...]
    keys: int = 1

    @property
    def source(self) -> str:
        """The rows: of the counters one for each collection."""
        if self.name != "counters":
            return self.name
        sums = ", ".join(f"CAST(sum({each}) AS bigint) AS {each}" for each in self.columns[1:])
        return f"(SELECT collection, {sums} FROM counters GROUP BY collection) AS counters"  # noqa: S608 - constants

    @property
    def query(self) -> str:
        """The statement of all rows in order; no two have the same values in the columns of the order."""
        columns = ", ".join("CAST(leased AS integer)" if each == "leased" else each for each in self.columns)
        return f"SELECT {columns} FROM {self.source} ORDER BY {', '.join(self.columns[: self.keys])}"  # noqa: S608


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


class Copyable(ABC):
    """A store that nobody else uses, in an open transaction. `moved_to` names the store that it was moved to."""

    def __init__(self, database: Database, epoch: str, moved_to: str = "") -> None:
        self._database = database
        self.epoch = epoch
        self.moved_to = moved_to

    def count(self, table: Table) -> int:
        """The number of rows."""
        return int(self._database.fetch(f"SELECT count(*) FROM {table.source}", {})[0][0])  # noqa: S608 - constants

    @abstractmethod
    def rows(self, table: Table) -> Iterator[Row]:
        """All rows in order. Read them to the end before any other call."""

    @abstractmethod
    def end(self, moved_to: str) -> None:
        """From now on no program opens the store: it was moved."""


class Copy(Copyable):
    """A copy that is being made."""

    @abstractmethod
    def add(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows."""

    @abstractmethod
    def finish(self) -> None:
        """Do all that can fail but what makes the copy appear, which the end of the context does."""

"""SQL that is written once: the dialect of each database, names, the queries that an index answers, and migrations.

The first line of a migration is `-- oldest: N`: a program that has the first N migrations can work with the store after
this one, too. Old and new programs can then use it at the same time.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection, Op, Query
from restkeeper.storage.outbox import EventFilter

Row = tuple[Any, ...]

MIGRATIONS = sorted((Path(__file__).parent / "migrations").glob("[0-9]*.sql"))

SKIPPED = 1000  # items before a page that an index skips in less than a millisecond


class Dialect(dict[str, str]):
    """Statements as a database understands them, by their general form; `name` is the name of the database.

    `parameter` is how it writes a parameter, where they have `:name`. `parts` are what stands for the names in braces.
    """

    def __init__(self, name: str, parameter: str, **parts: str) -> None:
        super().__init__()
        self._name = name
        self._parameter = parameter.format(r"\1")
        self._parts = parts

    def __missing__(self, statement: str) -> str:
        self[statement] = re.sub(r":(\w+)", self._parameter, statement).format_map(self._parts)
        return self[statement]

    def script(self, migration: Path) -> str:
        """The statements of a migration, in which a line can end with the name of the only database that it is for."""
        of_another = rf"(?m)^.* -- (?!{self._name})\w+ only\n"
        return re.sub(of_another, "", migration.read_text(encoding="utf-8")).format_map(self._parts)


class Database(Protocol):
    """A connection that executes statements of any dialect. `columns` is its class of `queries.Column`."""

    columns: ClassVar[type[Any]]

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        """The rows of a statement in the database's own words."""

    def records(self, statement: str, parameters: Mapping[str, Any], max_bytes: int) -> Iterable[Row]:
        """The rows of parts `of_each`, at least until their records have more bytes."""

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        """The rows of a statement. A list among the parameters is for a part of the dialect."""

    def change(self, statement: str, parameters: Mapping[str, Any]) -> None:
        """Make a change, now or before the next statement."""

    def parameters_of(self, filter: EventFilter) -> dict[str, Any]:
        """The parameters of the part `wanted`."""


def literal(name: str) -> str:
    """A checked name as an SQL string literal."""
    if not name.replace("_", "").isalnum() or not name.isascii():
        raise ValueError(f"{name!r}: names of collections and fields are ASCII letters, digits and underscores")
    return f"'{name}'"


def path_of(name: str) -> list[str]:
    """The names on the path of a field, each checked."""
    names = name.split(".")
    for each in names:
        literal(each.replace("-", "_"))
    return names


def of_other_revision(collection: Collection) -> str:
    """The condition for items of another revision than the collection's; an empty text if it has no schema.

    Its index is empty when all items are in the present form, so that it costs nothing.
    """
    if collection.schema is None:
        return ""
    start = f"{collection.schema.revision}-"
    is_other = f"substr(fingerprint, 1, {len(start)}) <> '{start}'"
    if collection.schema.revision == 1:  # whose fingerprints have no dash
        is_other = "replace(fingerprint, '-', '') <> fingerprint"
    return f"collection = {literal(collection.name)} AND {is_other}"


def select_other_fingerprints(collection: Collection) -> str:
    """The statement that returns the fingerprints of items of other revisions, each once: one step in the index each.

    It is an empty text if the collection has no schema.
    """
    if not (condition := of_other_revision(collection)):
        return ""
    least = f"SELECT min(fingerprint) AS fingerprint FROM items WHERE {condition}"  # noqa: S608 - declared names only
    return (
        f"WITH RECURSIVE found AS (\n    {least}\n    UNION ALL\n"  # noqa: S608 - likewise
        f"    SELECT ({least} AND fingerprint > found.fingerprint) FROM found WHERE fingerprint IS NOT NULL\n"
        ")\nSELECT fingerprint FROM found WHERE fingerprint IS NOT NULL"
    )


def change_token(epoch: str, changes: int) -> str:
    """The change token of a collection with this number of changes."""
    return f"{epoch}-{changes:x}"


def is_sorted(collection: Collection, query: Query) -> bool:
    """Whether the items of a page are sorted although an index has them: it has several values, in another order."""
    order = query.sort[0].field if query.sort else "id"
    return any(
        (each.op is not Op.EQ or collection.field(each.field).is_many) and each.field != order for each in query.filters
    )


def is_search(collection: Collection, query: Query, *, reads_all: bool = False) -> bool:
    """Whether a query can examine or sort many items: no index has its items, or them in its order.

    If it `reads_all` that it finds, it is one although an index has these, unless they have unique values.
    """
    operators = {Op.NE if each[1:3] == (Op.IS, False) else each.op for each in query.filters}
    if query.search or query.offset > SKIPPED or Op.LIKE in operators or any(each.group for each in query.filters):
        return True
    unique = {index.field for index in collection.indexes if index.unique} | {"id"}
    if any(each.op in (Op.EQ, Op.IN) and each.field in unique for each in query.filters):
        return False  # one item for each value
    if reads_all:
        return True
    fields = ({each.field for each in query.filters} | {each.field for each in query.sort}) - {"id"}
    if query.owner is not None:
        fields.add("owner")
    indexed = {index.field for index in collection.indexes if not index.unique} | {"owner"}
    return Op.NE in operators or len(fields) > 1 or not fields <= indexed


def oldest_of(script: str) -> int:
    """The number in the first line of a migration. Raises ValueError."""
    if not (found := re.match(r"-- oldest: (\d+)\n", script)):
        raise ValueError("the first line of a migration is: -- oldest: N")
    return int(found[1])


def require_known(migration: int, oldest: int, known: int, name: str = "the store") -> None:
    """Raises StoreUnavailable if the store needs a program that has more migrations than the `known` ones."""
    if oldest > known:
        raise StoreUnavailable(
            f"{name} is of a newer program (migration {migration} of {known}): use one that has migration {oldest}"
        )


def require_current(moved_to: str) -> None:
    """Raises StoreUnavailable if a store was moved to another one, of this name."""
    if moved_to:
        raise StoreUnavailable(
            f"the store was moved to {moved_to}: set DATABASE_URL to that one, or if that copy did not end, repeat it"
        )

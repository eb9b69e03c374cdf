"""Queries, as far as all databases have the same: fields as expressions, conditions, orders, and pages of rows.

Names come from the declaration only; values are always parameters.
"""

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from restkeeper.storage.interface import Collection, Field, Filter, Kind, Op, Page, Query, Scalar, Sort
from restkeeper.storage.sql import Database, Row, literal

_OWN_COLUMN = {"id", "version", "updated_at"}  # fields that have a column, besides being in the body


@dataclass(frozen=True)
class Column:
    """A field of a collection, as expressions over a row of the table of items.

    `folds` says whether texts are compared without case, `is_indexed` and `is_unique` whether there are such indexes.
    `parameter` is how the database writes a parameter. `lowest` are the sort keys of null: below every value of a kind.
    `of_each` selects what one part of `Related` finds: its number, a value, and the record.
    """

    field: Field
    collection: str
    folds: bool
    is_indexed: bool
    is_unique: bool

    parameter: ClassVar[str]
    of_each: ClassVar[str]
    lowest: ClassVar[Mapping[Kind, str]]

    @classmethod
    def of(cls, collection: Collection, name: str) -> Self:
        """The column of a field."""
        of_field = [index for index in collection.indexes if index.field == name]
        return cls(
            collection.field(name),
            collection.name,
            folds=any(index.fold for index in of_field),
            is_indexed=any(not index.unique for index in of_field),
            is_unique=any(index.unique for index in of_field),
        )

    @property
    def is_own(self) -> bool:
        """Whether the table has a column for it."""
        return self.field.name in _OWN_COLUMN

    @property
    def order(self) -> str:
        """What an index and an order have."""
        return self.key

    @property
    @abstractmethod
    def value(self) -> str:
        """The value, which can be null."""

    @property
    def folded(self) -> str:
        """The value, folded if texts are compared without case."""
        return f"lower({self.value})" if self.folds else self.value

    @property
    def key(self) -> str:
        """What is compared and sorted: never null, also if an item of an older schema does not have the field."""
        lowest = self.lowest.get(self.field.kind, "''")
        return self.folded if self.is_own else f"coalesce({self.folded}, {lowest})"

    @abstractmethod
    def condition(self, filter: Filter, given: str) -> str:
        """The condition of a filter of this field, whose value is the parameter `given`. See `interface.Op`."""

    def is_null(self, filter: Filter) -> str:
        """The condition of a filter by IS. An index has null as the lowest key, which of a text is also the empty."""
        if not filter.value:
            return f"{self.value} IS NOT NULL"
        lowest = self.lowest.get(self.field.kind, "''")
        return f"({self.order} = {lowest} AND {self.value} IS NULL)"

    @property
    @abstractmethod
    def each(self) -> str:
        """A value in `of_each`, which is a JSON text, as the parameter of the filter EQ."""

    @classmethod
    def exact(cls, collection: Collection, query: Query) -> Query:
        """The query with filters that have the same result although the database compares numbers otherwise."""
        return query

    @staticmethod
    @abstractmethod
    def given(field: Field, filter: Filter) -> Any:
        """A filter's value as a parameter."""

    @staticmethod
    def text(text: str) -> str:
        """A text as a parameter."""
        return text

    @staticmethod
    @abstractmethod
    def plain(key: Any) -> Any:
        """A sort key as it is in a position, which is JSON."""

    @classmethod
    @abstractmethod
    def found(cls, columns: Sequence[Self], given: str) -> str:
        """The condition that one of some texts, or an element of a list, contains a folded text."""


def conditions(collection: Collection, query: Query, kind: type[Column]) -> str:
    """The condition for the items of a query, from all of which a page is chosen.

    Its parameters are `owner`, `f0`, `f1` … for the filters, and `search`.
    """
    found = [f"collection = {literal(collection.name)}"]
    if query.owner is not None:
        found.append(f"owner = {kind.parameter.format('owner')}")
    groups: dict[int, list[str]] = {}
    for n, each in enumerate(query.filters):
        condition = kind.of(collection, each.field).condition(each, kind.parameter.format(f"f{n}"))
        groups.setdefault(each.group or -n - 1, []).append(condition)
    found += [f"({' OR '.join(group)})" if len(group) > 1 else group[0] for group in groups.values()]
    if query.search:
        searched = [kind.of(collection, name) for name in collection.search]
        found.append(kind.found(searched, kind.parameter.format("search")))
    return " AND ".join(found)


def parameters(collection: Collection, query: Query, kind: type[Column]) -> dict[str, Any]:
    """The parameters of `conditions`."""
    values = {f"f{n}": kind.given(collection.field(each.field), each) for n, each in enumerate(query.filters)}
    if query.owner is not None:
        values["owner"] = kind.text(query.owner)
    if query.search:
        values["search"] = kind.text(query.search.casefold())
    return values


def count_groups(database: Database, collection: Collection, query: Query, most: int) -> list[tuple[Any, int]]:
    """See `base.Store.groups`."""
    value = database.columns.of(collection, query.sort[0].field).value
    statement = f"SELECT {value}, count(*) {{items}} GROUP BY 1 ORDER BY 2 DESC, 1 NULLS FIRST LIMIT {{most}}"
    return [(database.columns.plain(each), n) for each, n in rows_about(database, statement, collection, query, most)]


def rows_about(database: Database, statement: str, collection: Collection, query: Query, most: int | None) -> list[Row]:
    """The rows of a statement about the items of a query."""
    kind = database.columns
    query = kind.exact(collection, query)
    items = f"FROM items WHERE {conditions(collection, query, kind)}"
    values = {**parameters(collection, query, kind), "most": sys.maxsize if most is None else most}
    return database.fetch(statement.format(items=items, most=kind.parameter.format("most")), values)


def order_of(query: Query) -> list[Sort]:
    """The sort keys, the id last; reversed for a backward query."""
    sort = (*query.sort, Sort("id", bool(query.sort) and query.sort[-1].descending))
    sort = sort[: [key.field for key in sort].index("id") + 1]  # the id is unique
    return [Sort(key.field, key.descending is not query.backward) for key in sort]


def outline(
    query: Query, value: Callable[[Filter], Scalar] = lambda filter: None, *, limit: int | None = None, offset: int = 0
) -> Query:
    """The query without the values of its parameters: queries with the same outline have the same statement.

    `value`, `limit` and `offset` are what the statement depends on.
    """
    filters = tuple(each._replace(value=each.value if each.op is Op.IS else value(each)) for each in query.filters)
    owner = None if query.owner is None else "?"
    return Query(
        filters, query.search and "?", query.sort, limit, offset, query.after and ("?",), query.backward, owner
    )


def page_of(rows: Iterable[Row], query: Query, max_bytes: int | None, kind: type[Column]) -> Page:
    """The page of a query, without its change token, of rows in its order. It takes one row more, if there are more.

    A row has id, fingerprint, body, removed, and the sort keys without the id.
    """
    most_bytes = sys.maxsize if max_bytes is None else max_bytes
    chosen: list[Row] = []
    size, limit = 0, query.limit
    more = cut = False
    for row in rows:
        size += len(row[2]) + len(row[3] or b"")
        if len(chosen) == limit:
            more = True
            break
        if size > most_bytes and chosen:
            more = cut = True
            break
        chosen.append(row)
    if not chosen:
        return Page([], [], [])
    if query.backward:
        chosen.reverse()
    _, fingerprints, bodies, removed, *_ = zip(*chosen, strict=True)
    first, last = ((*map(kind.plain, row[4:]), row[0]) for row in (chosen[0], chosen[-1]))
    return Page(list(bodies), list(fingerprints), list(removed), more, first, last, cut)

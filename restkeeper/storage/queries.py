"""Queries as SQL, which is written once: the columns of a collection, the conditions of a query, and its page."""

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from restkeeper.storage.interface import (
    EQUALITY,
    POSITION,
    Collection,
    Field,
    Filter,
    Kind,
    Op,
    Page,
    Query,
    Scalar,
    SemiJoin,
    Sort,
)
from restkeeper.storage.joins import Joins
from restkeeper.storage.plans import ANY_PLAN, Plan, equality_plans
from restkeeper.storage.sql import Row, literal

_EMPTY = "''"
_OWN_COLUMN = {"id", "version", "updated_at", POSITION}  # fields that have a column


@dataclass(frozen=True)
class Column(Joins):
    """A field of a collection, as expressions over a row of the table of items.

    `folds` says whether texts are compared without case, `is_indexed` whether an index begins with it, `is_part`
    whether it is in one, and `is_unique` whether it is alone in a unique one. What is `around` it selects it in another
    item.
    `parameter` is how the database writes a parameter, `unindexed` a condition that fits no index, and `one_of` a list
    of texts. `lowest` are the sort keys of null: below every value of a kind. `related_rows` selects what one part of
    `Related` finds: its number, a value, and the record, and `unsorted_items` its items before the sort. `sum` is
    the exact sum of a `number`, and `compared` how it is compared. `as_it_is` ends a query inside another one that is
    to be executed so.
    """

    field: Field
    collection: str
    folds: bool
    is_indexed: bool
    is_unique: bool
    is_part: bool
    around: tuple[str, str] | None = None

    parameter: ClassVar[str]
    unindexed: ClassVar[str]
    one_of: ClassVar[str]
    related_rows: ClassVar[str]
    unsorted_items: ClassVar[str]
    lowest: ClassVar[Mapping[Kind, str]]
    sum: ClassVar[str] = "sum({})"
    compared: ClassVar[str] = "{}"
    as_it_is: ClassVar[str] = ""

    @classmethod
    def of(cls, collection: Collection, name: str) -> Self:
        """The column of a field."""
        indexes = [index for index in collection.indexes if name in index.fields]
        return cls(
            collection.field(name),
            collection.name,
            folds=any(bool(index.fold) for index in indexes),
            is_indexed=any(not index.unique and index.field == name for index in indexes),
            is_unique=any(index.unique and index.fields == (name,) for index in indexes),
            is_part=any(not index.unique for index in indexes),
        )

    @classmethod
    def by(cls, collection: Collection, key: Sort, number: int) -> Self:
        """The column that the sort key with a number has, which can be one of the item that an item refers to."""
        if not key.join:
            return cls.of(collection, key.field)
        around = cls.of(collection, key.field).referred(key.join, f"k{number}_", conditions)
        return replace(cls.of(key.join.collection, key.by), around=around)

    @property
    def sorted(self) -> str:
        """What an order has: `order`, or that of another item; null if there is none."""
        if not self.around:
            return self.order
        before, behind = self.around
        return f"coalesce({before}{self.order}{behind}, {self.lowest.get(self.field.kind, _EMPTY)})"

    @property
    def is_own(self) -> bool:
        """Whether the table has a column for it."""
        return self.field.name in _OWN_COLUMN and not self.field.in_body

    def by_owner(self, filter: Filter) -> bool:
        """Whether the index of the owners has what a filter selects."""
        return self.field.is_owner and not self.is_indexed and filter.op in (Op.EQ, Op.IN)

    @property
    def order(self) -> str:
        """What an index and an order have."""
        return self.key

    @property
    @abstractmethod
    def value(self) -> str:
        """The value, which can be null."""

    @property
    def counted(self) -> str:
        """The value where it is counted: of kind JSON a number, or a JSON text."""
        return self.value

    @property
    @abstractmethod
    def number(self) -> str:
        """The value where it is summed, exactly; null if it is no number."""

    @property
    @abstractmethod
    def written(self) -> str:
        """A value of kind JSON that is a text, as it is sorted; null if it is none. Of another kind, the value."""

    @abstractmethod
    def local(self, zone: str) -> str:
        """The time as a text that begins with the date in a time zone, and a date as it is; null if it is neither."""

    @property
    def folded(self) -> str:
        """The value, folded if texts are compared without case."""
        return f"lower({self.value})" if self.folds else self.value

    @property
    def key(self) -> str:
        """What is compared and sorted: never null, also if an item of another schema does not have the field."""
        if self.is_own or self.field.default is not None:
            return self.folded
        return f"coalesce({self.folded}, {self.lowest.get(self.field.kind, _EMPTY)})"

    def or_default(self, value: str, form: Callable[[str], str] = str) -> str:
        """The value, or the default of the field, of a text this form."""
        if (default := self.field.default) is None:
            return value
        return f"coalesce({value}, {self.quoted(form(default)) if isinstance(default, str) else +default})"

    @staticmethod
    @abstractmethod
    def quoted(text: str) -> str:
        """A text as a literal, which has no character of the text itself."""

    @abstractmethod
    def condition(self, filter: Filter, parameter: str) -> str:
        """The condition of a filter of this field, whose value is the `parameter`. See `interface.Op`."""

    def is_null(self, filter: Filter) -> str:
        """The condition of a filter by IS. An index has null as the lowest key, which of a text is also the empty."""
        if not filter.value:
            return f"{self.value} IS NOT NULL"
        lowest = self.lowest.get(self.field.kind, _EMPTY)
        return f"({self.order} = {lowest} AND {self.value} IS NULL)"

    @property
    @abstractmethod
    def json_value(self) -> str:
        """A value in `related_rows`, which is a JSON text, as the parameter of the filter EQ."""

    @classmethod
    def exact(cls, collection: Collection, query: Query) -> Query:
        """The query with filters that have the same result although the database compares numbers otherwise."""
        return query

    @staticmethod
    @abstractmethod
    def parameter_of(field: Field, filter: Filter) -> Any:
        """A filter's value as a parameter."""

    @staticmethod
    def outlined(filter: Filter) -> Scalar:
        """What a statement depends on of the value of a filter."""
        return None

    @staticmethod
    def text(text: str) -> str:
        """A text as a parameter."""
        return text

    @staticmethod
    @abstractmethod
    def texts(texts: Sequence[str]) -> Any:
        """Some texts as the parameter of `one_of`."""

    @classmethod
    def owner_condition(cls, owners: Sequence[str], name: str) -> tuple[str, Any]:
        """The condition for items of these owners, and the value of their parameter: one owner needs no sorting."""
        parameter = cls.parameter.format(name)
        if len(owners) == 1:
            return f"owner = {parameter}", cls.text(owners[0])
        return f"owner {cls.one_of.format(parameter)}", cls.texts(owners)

    @staticmethod
    @abstractmethod
    def plain(key: Any) -> Any:
        """A sort key as it is in a position, which is JSON."""

    @classmethod
    @abstractmethod
    def search_condition(cls, columns: Sequence[Self], parameter: str) -> str:
        """The condition that one of some texts, or an element of a list, contains a folded text."""


def conditions(
    collection: Collection, query: Query, kind: type[Column], plan: Plan = ANY_PLAN, prefix: str = ""
) -> str:
    """The condition for the items of a query, from all of which a page is chosen.

    Its parameters are `owners`, `f0`, `f1` … for the filters, and `s0`, `s1` … for what is searched, all after the
    `prefix`. What the plan does not use fits no index.
    """
    terms, is_any = [f"collection = {literal(collection.name)}"], plan.filters is None
    if query.owners is not None:
        owned = kind.owner_condition(query.owners, f"{prefix}owners")[0]
        terms.append(owned if is_any or plan.by_owners else kind.unindexed.format(owned))
    groups: dict[int, list[str]] = {}
    best = next(iter(equality_plans(collection, query)), ANY_PLAN)
    for n, filter in enumerate(query.filters):
        column = kind.of(collection, filter.field)
        is_of_unique = best.is_unique and n in best.used and not column.is_own  # whose index has it as it is
        column = replace(column, is_unique=True) if is_of_unique else column
        if filter.join:
            condition = column.joined(filter.join, f"{prefix}f{n}_", conditions)
        else:
            condition = column.condition(filter, kind.parameter.format(f"{prefix}f{n}"))
        if _has_null(filter):
            is_null = column.condition(Filter(filter.field, Op.IS, filter.op is not Op.NE), "")
            condition = f"({condition} {'AND' if filter.op is Op.NE else 'OR'} {is_null})"
        condition = f"({condition}) IS NOT TRUE" if filter.negated else condition
        condition = condition if is_any or n in plan.used else kind.unindexed.format(condition)
        groups.setdefault(filter.group or -n - 1, []).append(condition)
    terms += [f"({' OR '.join(group)})" if len(group) > 1 else group[0] for group in groups.values()]
    if query.search:
        searched = [kind.of(collection, name) for name in collection.search]
        terms += [kind.search_condition(searched, kind.parameter.format(f"s{n}")) for n in range(len(query.search))]
    return " AND ".join(terms)


def _has_null(filter: Filter) -> bool:
    """Whether null is one of the values of a filter."""
    return filter.op in EQUALITY and isinstance(filter.value, tuple) and None in filter.value


def parameters(collection: Collection, query: Query, kind: type[Column], prefix: str = "") -> dict[str, Any]:
    """The parameters of `conditions`."""
    values = dict[str, Any]()
    for n, filter in enumerate(query.filters):
        if filter.join:
            values |= parameters(filter.join.collection, filter.join.query, kind, f"{prefix}f{n}_")
        else:
            values[f"{prefix}f{n}"] = kind.parameter_of(collection.field(filter.field), filter)
    for n, key in enumerate(query.sort):
        values |= parameters(key.join.collection, key.join.query, kind, f"{prefix}k{n}_") if key.join else {}
    if query.owners is not None:
        values[f"{prefix}owners"] = kind.owner_condition(query.owners, "owners")[1]
    values |= {f"s{n}": kind.text(text.casefold()) for n, text in enumerate(query.search)}
    return values


def order_of(query: Query) -> list[Sort]:
    """The sort keys, the id last; reversed for a backward query."""
    sort = (*query.sort, Sort("id", bool(query.sort) and query.sort[-1].descending))
    sort = sort[: [key.name for key in sort].index("id") + 1]  # the id is unique
    return [key._replace(descending=key.descending is not query.backward) for key in sort]


def outline(
    query: Query, value: Callable[[Filter], Scalar] = Column.outlined, *, limit: int | None = None, offset: int = 0
) -> Query:
    """The query without the values of its parameters: queries with the same outline have the same statement.

    `value`, `limit` and `offset` are what the statement depends on.
    """
    filters = tuple(_outlined(filter, value) for filter in query.filters)
    owners = None if query.owners is None else ("?",) * min(len(query.owners), 2)
    sort = tuple(key._replace(join=key.join and _outlined_join(key.join, value)) for key in query.sort)
    return Query(
        filters, ("?",) * len(query.search), sort, limit, offset, query.after and ("?",), query.backward, owners
    )


def _outlined(filter: Filter, value: Callable[[Filter], Scalar]) -> Filter:
    if filter.join:
        return filter._replace(join=_outlined_join(filter.join, value))
    return filter._replace(
        value=filter.value if filter.op is Op.IS else (None,) if _has_null(filter) else value(filter)
    )


def _outlined_join(join: SemiJoin, value: Callable[[Filter], Scalar]) -> SemiJoin:
    inner = outline(join.query, value)
    return replace(join, filters=inner.filters, owners=inner.owners)


def page_of(rows: Iterable[Row], query: Query, max_bytes: int | None, kind: type[Column]) -> Page:
    """The page of a query, without its change token, of rows in its order. It takes one row more, if there are more.

    A row has id, fingerprint, body, removed_fields, owner, and the sort keys without the id.
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
        return Page([], [], [], [])
    if query.backward:
        chosen.reverse()
    _, fingerprints, bodies, removed_fields, owners, *_ = zip(*chosen, strict=True)
    first, last = ((*map(kind.plain, row[5:]), row[0]) for row in (chosen[0], chosen[-1]))
    return Page(list(bodies), list(fingerprints), list(removed_fields), owners, more, first, last, cut)

"""SQL that is written once: the dialect of each database, queries, which of them an index answers, and migrations.

Names in statements come from the declaration only; values are always parameters.

The first line of a migration is `-- oldest: N`: a program that has the first N migrations can work with the store after
this one, too. Old and new programs can then use it at the same time.
"""

import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import orjson

from restkeeper.storage.errors import EpochMissing, RevisionDiffers, StoreUnavailable
from restkeeper.storage.interface import (
    CREATED,
    DELETED,
    FREE_NAME,
    POSITION,
    UPDATED,
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

Row = tuple[Any, ...]

MIGRATIONS = sorted((Path(__file__).parent / "migrations").glob("[0-9]*.sql"))

LAYOUT = "layout_3"  # a column whose name changes with the tables of the first migration, which stay from 1.0 on
_EVER = ("collection", "id", "owner", "version", "updated_at", "body")  # columns of items in every layout

_NAME, _FREE_NAME = re.compile(r"\w+", re.ASCII), re.compile(FREE_NAME)

BETWEEN_FIELDS = "+"  # between the fields of one index, in its name
MOST_NAMED = 10  # items that have a value that is to be unique
MOST_SHOWN = 80  # characters of that
SKIPPED = 1000  # items before a page that an index skips in less than a millisecond


def record_columns(as_bytes: str) -> str:
    """The columns of a record. `as_bytes` is how a database returns a text as bytes."""
    return f"id, version, updated_at, fingerprint, {as_bytes.format('body')}, owner, {as_bytes.format('removed')}"


def event_columns(as_bytes: str, type: str = "events.type") -> str:
    """The columns of a stored event, for `stored_event`."""
    data, removed = as_bytes.format("data"), as_bytes.format("removed")
    return f"position, origin, {type}, at, {data}, collection, fingerprint, {removed}, owner, former"


def event_type(in_all: str, has: str, had: str) -> str:
    """The type of an event for the readers of an `EventFilter`, by conditions of these."""
    return f"""\
CASE
    WHEN former IS NULL OR {in_all} OR ({has} AND {had}) THEN events.type
    WHEN {has} THEN replace(events.type, '{UPDATED}', '{CREATED}')
    ELSE replace(events.type, '{UPDATED}', '{DELETED}')
END"""


class Dialect(dict[str, str]):
    """Statements as a database understands them, by their general form; `name` is the name of the database.

    `parameter` is how it writes a parameter, where they have `:name`. `parts` are what stands for the names in braces.
    `as_bytes`, `is_in` and `is_like` are how it returns a text as bytes, and compares with texts, and with patterns.
    """

    def __init__(self, name: str, parameter: str, *, as_bytes: str, is_in: str, is_like: str, **parts: str) -> None:
        super().__init__()
        self._name = name
        self._parameter = parameter.format(r"\1")
        in_all, in_own = (f"collection {is_in.format(each)}" for each in ("collections", "own"))
        has, had = (f"{each} {is_in.format('owners')}" for each in ("owner", "former"))
        type = event_type(in_all, has, had)
        self._parts = parts | {
            "layout": LAYOUT,
            "item": record_columns(as_bytes),
            "event": event_columns(as_bytes),
            "event_for_readers": event_columns(as_bytes, type),
            "wanted": f"({in_all} OR (({has} OR {had}) AND {in_own}))"
            f" AND {is_like.format(type)} AND (item = :item OR CAST(:item AS text) IS NULL)",
        }

    def __missing__(self, statement: str) -> str:
        self[statement] = re.sub(r"(?<!:):(\w+)", self._parameter, statement.format_map(self._parts))
        return self[statement]

    def script(self, migration: Path) -> str:
        """The statements of a migration, in which a line can end with the name of the only database that it is for."""
        of_another = rf"(?m)^.* -- (?!{self._name})\w+ only\n"
        return re.sub(of_another, "", migration.read_text(encoding="utf-8")).format_map(self._parts)


class Database(Protocol):
    """A connection that executes statements of any dialect. `columns` is its class of `Column`."""

    columns: ClassVar[type[Any]]

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        """The rows of a statement in the database's own words."""

    def records(self, statement: str, parameters: Mapping[str, Any], max_bytes: int) -> Iterable[Row]:
        """The rows of parts `related_rows`, at least until their records have more bytes."""

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        """The rows of a statement. A list among the parameters is for a part of the dialect."""

    def page(self, collection: Collection, query: Query, max_bytes: int | None, *, bounded: bool = False) -> Page:
        """See `base.Store.page`. If it is `bounded`, it reads what an equality has, not an order in search of it."""

    def explain(self, collection: Collection, query: Query) -> list[str]:
        """How the items of a query are found in a transaction, in the database's own words."""

    def change(self, statement: str, parameters: Mapping[str, Any]) -> None:
        """Make a change, now or before the next statement."""

    def commit(self) -> None:
        """End the transaction; all its changes are stored."""

    def pattern(self, type: str) -> str:
        """A type of events, in which `*` stands for any text, as the database compares it."""


def literal(name: str) -> str:
    """A checked name as an SQL string literal."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r}: names of collections and fields are ASCII letters, digits and underscores")
    return f"'{name}'"


def path_of(name: str) -> list[str]:
    """The names on the path of a field, each checked."""
    names = name.split(".")
    if wrong := [name for name in names if not _FREE_NAME.fullmatch(name)]:
        raise ValueError(f"{wrong[0]!r} is no name of a field")
    return names


_SELECT_DUPLICATES = """\
WITH taken AS (SELECT {named}, count(*) AS items FROM items WHERE {where} GROUP BY {values} HAVING count(*) > 1)
SELECT id, body, (SELECT sum(items) FROM taken), {values}
FROM items
WHERE {where} AND ({values}) IN (SELECT {names} FROM taken)
ORDER BY {values}, id
LIMIT {most}"""


def not_unique(database: Database, collection: Collection, fields: Sequence[str]) -> StoreUnavailable:
    """Why fields cannot become unique: the first items that share their values, and how many more there are."""
    values = [database.columns.of(collection, name).folded for name in fields]
    where = " AND ".join([f"collection = {literal(collection.name)}", *(f"{value} IS NOT NULL" for value in values)])
    rows = database.fetch(
        _SELECT_DUPLICATES.format(
            values=", ".join(values),
            named=", ".join(f"{value} AS v{n}" for n, value in enumerate(values)),
            names=", ".join(f"v{n}" for n in range(len(values))),
            where=where,
            most=MOST_NAMED,
        ),
        {},
    )
    conflicts = []
    for _, same in groupby(rows, key=itemgetter(slice(3, None))):  # of folded values, which the first one shows
        items = [{"id": id} | orjson.loads(body) for id, body, *_ in same]
        text = ", ".join(orjson.dumps(items[0].get(name)).decode() for name in fields)
        text = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
        conflicts.append(f"{text}: {', '.join(str(item['id']) for item in items)}")
    conflicts += [f"and {more} more items" for _, _, total, *_ in rows[-1:] if (more := total - len(rows))]
    reason = "; ".join([*conflicts, "change or delete them with the former program"])
    return StoreUnavailable(
        f"some items of {collection.name} have the same {' and '.join(fields)}, which must be unique", reason=reason
    )


def change_token(epoch: str, changes: int | None) -> str:
    """The change token of a collection with this number of changes. Raises EpochMissing."""
    if not epoch:
        raise EpochMissing
    return f"{epoch}-{changes or 0:x}"


def is_sorted(collection: Collection, query: Query) -> bool:
    """Whether more than a page is read although an index has it: it has several values, in another order.

    So it is where items are those that others refer to: these are looked for beside each item, or all of them first.
    """
    order = query.sort[0].name if query.sort else "id"
    return len(query.owners or ()) > 1 or any(
        (filter.op is not Op.EQ or filter.negated or collection.field(filter.field).is_many)
        and (filter.field != order or filter.join)
        for filter in query.filters
    )


def is_search(collection: Collection, query: Query, *, reads_all: bool = False) -> bool:
    """Whether a query can examine or sort many items: no index has its items, or them in its order.

    If it `reads_all` that it finds, it is one although an index has these, unless they have unique values.
    """
    if not (query.narrows or query.sort or reads_all or query.groups):  # in order of id
        return query.offset > SKIPPED
    if any(key.join for key in query.sort):
        return True
    if any(is_search(join.collection, join.query, reads_all=not join.filters) for join in query.joins):
        return True  # no index has what is joined
    operators = {Op.NE if filter.negated or filter[1:3] == (Op.IS, False) else filter.op for filter in query.filters}
    has_alternatives = any(filter.group for filter in query.filters)
    if query.search or query.offset > SKIPPED or has_alternatives or {Op.LIKE, Op.ENDS} & operators:
        return True
    best = next(iter(equality_plans(collection, query)), ANY_PLAN)
    if best.is_unique:
        return False  # one item for each value
    if reads_all or query.groups:
        return True
    if best.is_ordered and best.size == len(query.filters) + (query.owners is not None) > 0:
        return False  # all that an index finds, in its order
    fields = ({filter.field for filter in query.filters} | {key.field for key in query.sort}) - {"id"}
    by_owners = query.owners is not None
    indexed = {index.field for index in collection.indexes if not index.unique and len(index.fields) == 1}
    if collection.has_owner_index and {Op.EQ, Op.IN} >= operators:  # a filter by the owner uses it, an order its own
        names = {filter.field for filter in query.filters} - indexed
        owner_fields = {name for name in names if collection.field(name).is_owner}
        if owner_fields and owner_fields.isdisjoint(key.field for key in query.sort):
            fields, by_owners = fields - owner_fields, True
    return Op.NE in operators or len(fields) + by_owners > 1 or not fields <= indexed


def oldest_of(script: str) -> int:
    """The number in the first line of a migration. Raises ValueError."""
    if not (match := re.match(r"-- oldest: (\d+)\n", script)):
        raise ValueError("the first line of a migration is: -- oldest: N")
    return int(match[1])


def is_breaking(present: int) -> bool:
    """Whether a store with so many migrations, if it has some, cannot be used by its programs after the others."""
    missing = MIGRATIONS[present:] if present else ()
    return any(oldest_of(migration.read_text(encoding="utf-8")) > present for migration in missing)


def require_known(migration: int, oldest: int, available: int, name: str = "the store") -> None:
    """Raises StoreUnavailable if the store needs a program that has more migrations than the `available` ones."""
    if oldest > available:
        raise StoreUnavailable(
            f"{name} is of a newer program (migration {migration} of {available}): use one that has migration {oldest}"
        )


def require_layout(columns: Container[str], name: str) -> None:
    """Raises StoreUnavailable unless columns of `items` and `store` are those that the migrations continue."""
    if not all(column in columns for column in _EVER):
        raise StoreUnavailable(f"{name} has the tables of another program: name another one")
    if LAYOUT not in columns:
        remedy = "export its items there, and import them here"
        raise StoreUnavailable(f"{name} has tables made by a version before 1.0: {remedy}")


def require_usable(database: Database, available: int, *, complete: bool = False) -> None:
    """Raises StoreUnavailable if a program with so many `available` migrations cannot use the store, or it was moved.

    If it must be `complete`, it has all of these.
    """
    if not (rows := database.rows("SELECT {migration}, oldest, moved_to FROM store", {})):
        raise StoreUnavailable("the store is being restored: its tables are there, and not its rows")
    ((migration, oldest, moved_to),) = rows
    if complete and migration < available:
        raise StoreUnavailable(f"the store has migration {migration}, this program needs {available}")
    require_known(migration, oldest, available)
    if moved_to:
        raise StoreUnavailable(
            f"the store was moved to {moved_to}: set DATABASE_URL to that one, or if that copy did not end, repeat it"
        )


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
        """The condition of a filter of this field, whose value is the parameter `given`. See `interface.Op`."""

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
    return filter.op in (Op.EQ, Op.NE, Op.IN) and isinstance(filter.value, tuple) and None in filter.value


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


def require_revision(collection: Collection, revision: int | None) -> None:
    """Raises RevisionDiffers for another revision of its items than the collection's; None is that of none."""
    if revision not in (collection.revision, None):
        raise RevisionDiffers(collection.name, collection.revision, revision)


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

    A row has id, fingerprint, body, removed, owner, and the sort keys without the id.
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
    _, fingerprints, bodies, removed, owners, *_ = zip(*chosen, strict=True)
    first, last = ((*map(kind.plain, row[5:]), row[0]) for row in (chosen[0], chosen[-1]))
    return Page(list(bodies), list(fingerprints), list(removed), owners, more, first, last, cut)

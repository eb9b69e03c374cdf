"""What stores and their callers exchange: records, the declarations of collections, queries and pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum, StrEnum
from functools import cached_property
from typing import Any, NamedTuple

Scalar = str | int | Decimal | bool | None
ANY = "*"  # the name of the field that stands for all that no other one is
FREE_NAME = r"[\w$@ :/-]+"  # a regular expression: a name of a field of kind JSON, or on its path
POSITION = "_position"  # the field of the order in which items were stored; names of others begin with a letter
MOST_INDEXED = 4  # fields of an index
DATE_PARTS = {"year": 4, "month": 7, "day": 10}  # the first characters of a date, or a time, that are this part of it

Position = tuple[str | int | float | None, ...]  # JSON that clients receive and send back; integers have 64 bits


class Record(NamedTuple):
    """One item as stored. `body` is its complete JSON representation, byte for byte as it is sent.

    `removed_fields` is a JSON object with what an older revision shows and `body` no longer has; None if there is none.
    """

    id: str
    version: int  # 0: it is not stored yet, as a singleton at first
    updated_at: str  # RFC 3339, UTC, microseconds: sorts as text
    fingerprint: str  # of the schema of `body`
    body: bytes
    owner: str | None = None
    removed_fields: bytes | None = None


class Kind(Enum):
    """How a field's values are compared."""

    TEXT = "text"  # by code point
    TIME = "time"  # as TEXT: every time has one canonical form
    INTEGER = "integer"  # of 64 bits
    SERIAL = "serial"  # as TEXT: an integer id, as `serial` returns it
    NUMBER = "number"  # an integer of 64 bits, a decimal of up to 15 digits, or a double; compared exactly
    BOOLEAN = "boolean"
    LIST = "list"  # of texts; EQ and IN compare its elements
    JSON = "json"  # of any kind: compared with values of its kind only; sorted as null, numbers (false is 0), texts


def serial(number: int) -> str:
    """An integer of 64 bits, from 0, as a text: texts have the order of the numbers."""
    return f"{number:016}" if number < 10**16 else f"A{number:019}"


@dataclass(frozen=True, slots=True)
class Field:
    """A field that queries can use. If it has `choices`, it has no other values.

    `read` returns what is stored of a value in a filter, such as "12:00:00" of "12:00"; it raises ValueError for what
    can be none. If not every text is one, `expected` says what is, such as "a date like 2026-01-31". Stored values have
    the order of what they mean, unless they are not `is_ordered`.

    The name of one inside others is a path, such as "lines.sku". On a path, a list stands for each of its elements: the
    field can have several values, and a filter needs one that satisfies it. Of kind JSON, "attributes.*" stands for
    all paths that begin so, and "*" (ANY) for all names and paths that are no other field. Objects and arrays are
    sorted as null, and texts by their first SORTED characters.
    """

    name: str
    kind: Kind
    nullable: bool = False
    sortable: bool = True
    choices: tuple[Scalar, ...] = ()
    listed: bool = False  # the field has a list of such values, and is not of kind LIST
    read: Callable[[Any], Any] | None = field(default=None, compare=False)
    expected: str = ""
    is_ordered: bool = True
    in_body: bool = False  # also if the records have an attribute of this name
    default: Scalar = None  # of items that do not have it, as another program of their revision stored them
    is_owner: bool = False  # it is the owner of the record
    is_dated: bool = False  # its texts are dates, or times, and begin with the digits of a date
    places: int | None = None  # decimals that its numbers can have, if that is fixed

    @property
    def is_many(self) -> bool:
        return self.kind in (Kind.LIST, Kind.JSON) or self.listed or "." in self.name


@dataclass(frozen=True, slots=True, init=False)
class Index:
    """An index: a filter or an order by its field, such as `Index("status")`, does not read the whole collection.

    In a `unique` index each value occurs once (null any number of times). `fold` ignores the case of ASCII letters; if
    it is None, only of e-mail addresses. A field with several values can have neither, and its index finds one value.

    An index of several `fields` serves a filter by the first ones with a comparison or an order of the next one. If it
    is unique, their values occur together once; an item in which one of them is null is not compared.
    """

    fields: tuple[str, ...]
    unique: bool
    fold: bool | None

    def __init__(self, *fields: str, unique: bool = False, fold: bool | None = None) -> None:
        if not fields or not all(isinstance(name, str) for name in fields):
            raise ValueError(f"Index{fields!r}: must have names of fields, such as Index('customer', 'start')")
        for name, value in (("fields", fields), ("unique", unique), ("fold", fold)):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        """As it is declared."""
        options = [f"{name}=True" for name in ("unique", "fold") if getattr(self, name)]
        return f"Index({', '.join([*map(repr, self.fields), *options])})"

    @property
    def field(self) -> str:
        """The first field."""
        return self.fields[0]


class StoredSchema(NamedTuple):
    """A schema that items of a collection were stored with. `fields` is a JSON text that describes them.

    The fingerprint begins with the revision and a dash, but for the first revision.
    """

    fingerprint: str
    revision: int
    fields: str


@dataclass(frozen=True, eq=False)  # identity as equality, so that it is hashable
class Collection:
    """The declaration of a collection. `search` names the fields of the full-text search: with ANY, all texts.

    With `has_owner_index`, there is an index on the owner.

    When the store is opened, it registers the `schema`, unless it has it already or refuses it: `conflict` returns why
    items of a registered schema do not fit the new one, or an empty text; if the second argument is true, only as
    to fields of which no value can be of both.

    The items are all of one revision. While that is not the one of the schema, all that reads or writes several of them
    raises RevisionDiffers; one that is read alone shows it by its fingerprint.
    """

    name: str
    fields: Mapping[str, Field]
    indexes: tuple[Index, ...] = ()
    search: tuple[str, ...] = ()
    has_owner_index: bool = False
    schema: StoredSchema | None = None
    conflict: Callable[[StoredSchema, bool], str] = lambda schema, common: ""

    @cached_property
    def revision(self) -> int:
        """The revision of the items that this program works with."""
        return self.schema.revision if self.schema else 1

    def field(self, name: str) -> Field:
        """The field with this name, or at this path. Raises KeyError."""
        if (field := field_in(self.fields, name)) is None:
            raise KeyError(name)
        return field


def root_of(field: str) -> str:
    """The field of the item that a field is, or is inside."""
    return field.partition(".")[0]


def field_in(fields: Mapping[str, Field], name: str) -> Field | None:
    """The one of some fields with this name, or at this path, if there is one."""
    if name in fields and "*" not in name:
        return fields[name]
    names = name.removesuffix(".*").split(".")
    paths = (f"{'.'.join(names[:end])}.*" for end in range(1, len(names)))
    free = next((fields[path] for path in paths if path in fields), fields.get(ANY))
    return replace(free, name=name) if free else None


class Op(StrEnum):
    """Comparisons. LIKE means "contains" and ignores case. Null satisfies NE only, and IS. HAS is of a `SemiJoin`."""

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    LIKE = "like"
    STARTS = "starts"
    ENDS = "ends"
    IS = "is"
    HAS = "has"


EQUALITY = (Op.EQ, Op.NE, Op.IN)  # compare whole values


class Filter(NamedTuple):
    """A comparison. `value` has the field's type; for IN it is a tuple of such values, for IS whether it is null.

    For HAS it is None, and the `join` says which items satisfy it.

    If the field can have several values, it can be a tuple for NE, too: none of them equals one of it. Of kind JSON, it
    is a tuple also for GT, GTE, LT and LTE, with a text and the number that is written so; None among the values of
    EQ, NE and IN stands for null.
    Of the filters with the same `group`, which is not 0, one is enough. What is `negated` is satisfied by all other
    items, also those in which the value is null.
    """

    field: str
    op: Op
    value: Scalar | tuple[Scalar, ...]
    group: int = 0
    negated: bool = False
    join: "SemiJoin | None" = None


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """Items of another collection, of which an item needs one: with these filters, and of these owners.

    The `field` is their reference to the item, whose filter is of its id; it is empty if the item refers to them, by
    the field of its filter. References have ids as texts, as numbers, or as both (`id_types`). Items that refer to
    others are found first if they are `few`, else they are looked for beside each item.
    """

    collection: Collection
    field: str = ""
    filters: tuple[Filter, ...] = ()
    owners: tuple[str, ...] | None = None
    id_types: frozenset[type] = frozenset({str})
    few: bool = False

    @property
    def query(self) -> "Query":
        """The query for all of the items."""
        return Query(self.filters, owners=self.owners)

    @property
    def is_first(self) -> bool:
        """Whether they are found first, so that the filter is one of several values."""
        return self.few or not self.field


class Sort(NamedTuple):
    """One sort key. Null sorts as the lowest value of its kind, which for a text is the empty text.

    With a `join` it is the field `by` of the item that `field` refers to, if it is one of these; else it is null.
    """

    field: str
    descending: bool = False
    join: SemiJoin | None = None
    by: str = ""

    @property
    def name(self) -> str:
        """The field, or what no field is called."""
        return f"{self.field}>{self.by}" if self.join else self.field


class GroupBy(NamedTuple):
    """What the records of a group have in common: the value of a field, or this part of a date or time (DATE_PARTS).

    A time is one of the `zone`, of which it has the IANA name, and else of UTC.
    """

    field: str
    part: str = ""
    zone: str = ""

    def __str__(self) -> str:
        return f"{self.part}({self.field})" if self.part else self.field


class Aggregate(NamedTuple):
    """One number of a group, or other value: the `function` (sum, avg, min or max) of a field.

    Null does not take part; without any value the result is null. Sums are exact. An average has four places more than
    the field, or without fixed places it is a double. Of kind JSON, numbers take part, and in min and max texts, too.
    """

    function: str
    field: str


class Groups(NamedTuple):
    """Into which groups records are divided, and what is found of each. Without `by` they are one group."""

    by: tuple[GroupBy, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the values of one field are counted, and nothing else."""
        return len(self.by) == 1 and not (self.by[0].part or self.aggregates)


class Group(NamedTuple):
    """The values of a group, the number of its records, and its aggregates in their order."""

    values: tuple[Scalar | float, ...]
    items: int
    aggregates: tuple[Scalar | float, ...] = ()


class Query(NamedTuple):
    """A query: filters, an order, and a range of the result; or `groups` of all that the filters select.

    Ties are sorted by id, in the direction of the last sort key. `after` is a `Page.last` (with `backward`, a
    `Page.first`): the page starts after it; an empty tuple with `backward` means the end of the list. `limit` None
    means all records, `owners` None those of all owners.

    A client may send any `after`: a value of a wrong kind gives some page, and no error. `search` and LIKE compare
    texts by `str.casefold`, also where the database has other rules. Each text of `search` is looked for in each text
    by itself, of a field or of an element of a list: all of them are in some of these.
    """

    filters: tuple[Filter, ...] = ()
    search: tuple[str, ...] = ()
    sort: tuple[Sort, ...] = ()
    limit: int | None = None
    offset: int = 0
    after: Position = ()
    backward: bool = False
    owners: tuple[str, ...] | None = None
    groups: Groups | None = None

    @property
    def narrows(self) -> bool:
        """Whether it selects a part of the records only."""
        return bool(self.filters or self.search or self.owners is not None)

    @property
    def joins(self) -> list[SemiJoin]:
        """What its filters and its order need of other collections."""
        joins = (*(filter.join for filter in self.filters), *(key.join for key in self.sort))
        return [join for join in joins if join]


ALL = Query()


class Page(NamedTuple):
    """The result of a query: the bodies of its items in order, with what each record has beside it.

    `more` is true if items follow in the direction of the query. `first` and `last` are the positions of its ends.
    `cut` is true if the limit of bytes ended the page. `change_token` is that of the collection at that moment, and
    `total` the number of the query's records then, if it is known without counting them.
    """

    bodies: list[bytes]
    fingerprints: list[str]
    removed_fields: list[bytes | None]
    owners: Sequence[str | None]
    more: bool = False
    first: Position = ()
    last: Position = ()
    cut: bool = False
    change_token: str = ""
    total: int | None = None


class Related(NamedTuple):
    """Records to be found by values of a field: of each value at most `most`, of those that satisfy the `filters`.

    They are the first in the order `sort`; without one those with the highest ids, the highest first, or `in_order`
    those that were stored first.
    """

    collection: str
    field: str
    values: Sequence[str | int]
    most: int
    owners: tuple[str, ...] | None = None
    in_order: bool = False
    filters: tuple[Filter, ...] = ()
    sort: tuple[Sort, ...] = ()

    @property
    def query(self) -> Query:
        """The query by one of the values."""
        filters = (Filter(self.field, Op.EQ, ""), *self.filters)
        return Query(filters, sort=self.sort, limit=self.most, owners=self.owners)


class StoredResponse(NamedTuple):
    """The response to a request, for repetitions of it. `stored_at` is in seconds since 1970."""

    stored_at: float
    body: bytes


LAST_IDS = Collection("_ids", {})  # of the collections with integers: the version is the greatest id

# Of an item, its collection and id; of the response to a request, the id; of a change token, the collection.
Key = tuple[str, str] | bytes | str
Found = Record | StoredResponse | str | None

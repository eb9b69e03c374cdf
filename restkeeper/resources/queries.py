"""A list's query parameters: which items, in which order, which stretch, which fields."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, lru_cache, partial
from itertools import chain, product
from math import prod
from typing import Any, NamedTuple, TypeVar
from zoneinfo import available_timezones

from restkeeper import exactjson
from restkeeper.errors import MOST_FAULTS, InvalidQuery, shortened
from restkeeper.parsing import whole
from restkeeper.storage.interface import (
    ANY,
    DATE_PARTS,
    FREE_NAME,
    POSITION,
    Aggregate,
    Field,
    Filter,
    GroupBy,
    Groups,
    Kind,
    Op,
    Query,
    SemiJoin,
    Sort,
    field_in,
    root_of,
    serial,
)

AGGREGATES = {f"aggregate[{name}]": name for name in ("sum", "avg", "min", "max")}  # the parameter of each function
SUMS = ("sum", "avg")  # of these, the functions of numbers alone
GROUPED = ("count", *AGGREGATES, "timezone")  # parameters of groups of items, instead of these
RESERVED = ("limit", "offset", "cursor", "sort", "fields", "q", "or", "not", "embed", "export", *GROUPED)
NEWER = ("or", "not", "embed", "export", *GROUPED)  # of these, those that a field may be called

OPERATORS = {
    Kind.TEXT: (Op.EQ, Op.NE, Op.GT, Op.GTE, Op.LT, Op.LTE, Op.IN, Op.NIN, Op.LIKE, Op.STARTS, Op.ENDS),
    Kind.TIME: (Op.EQ, Op.NE, Op.GT, Op.GTE, Op.LT, Op.LTE),
    Kind.SERIAL: (Op.EQ, Op.NE, Op.GT, Op.GTE, Op.LT, Op.LTE, Op.IN, Op.NIN),
    Kind.INTEGER: (Op.EQ, Op.NE, Op.GT, Op.GTE, Op.LT, Op.LTE, Op.IN, Op.NIN),
    Kind.NUMBER: (Op.EQ, Op.NE, Op.GT, Op.GTE, Op.LT, Op.LTE, Op.IN, Op.NIN),
    Kind.BOOLEAN: (Op.EQ, Op.NE),
    Kind.LIST: (Op.EQ, Op.IN, Op.NIN),
    Kind.JSON: (Op.EQ, Op.NE, Op.GT, Op.GTE, Op.LT, Op.LTE, Op.IN, Op.NIN, Op.LIKE, Op.STARTS, Op.ENDS),
}

PARTS = {Op.LIKE, Op.STARTS, Op.ENDS}  # take a part of a text
SEVERAL = {Op.IN, Op.NIN}  # take values with commas
EXPORTS = ("csv",)  # the values of the parameter `export`
GROUPS = ("or", "not")  # parameters with filters in parentheses
RANGES = {Op.GT, Op.GTE, Op.LT, Op.LTE}

MAX_OFFSET = 2**31 - 1
MAX_FILTERS = 100  # of one query: what stores prepare for each combination takes memory
MAX_VALUES = 200  # of all filters of one query: as many ids as an address of 8 KiB has room for

MOST_NESTED = 8  # groups inside each other
MOST_NAMES = 5  # on a path
MOST_CHARACTERS = 100  # of a path
_NO_PATH = f"is no path of at most {MOST_NAMES} names and {MOST_CHARACTERS} characters"
MOST_EMBEDDED = 10  # names in `embed`
MOST_CHOSEN = 1000  # items that are embedded in all items together, where a parameter says how many
MOST_JOINED = 10  # filters by what is in other collections, of which those on one item are one
MOST_COUNTED = 3  # names in `count`
MOST_AGGREGATED = 3  # fields in all of AGGREGATES
MOST_WORDS = 10  # that one query looks for
MOST_CHOICES = 50  # values that a fault lists

NULLS = {"null": True, "not_null": False}  # the values of the operator `is`
NUMBERS = (Kind.INTEGER, Kind.NUMBER)
TEXTS = (Kind.TEXT, Kind.LIST, Kind.JSON)  # kinds of values that can be the text "null"

_OFFSET, _INTEGER, _SERIAL = whole(0, MAX_OFFSET), whole(-(2**63), 2**63 - 1), whole(0, 2**63 - 1)
FILTER = re.compile(rf"({FREE_NAME}(?:\.{FREE_NAME})*)(?:\[(\w+)\])?")
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)
_OPTION = re.compile(r"(?:fields|sort|limit|where)\[([^\[\]]+)\]")
_GROUP = re.compile(r"(and|or|not)\(")
_PART = re.compile(rf"({'|'.join(DATE_PARTS)})\((.*)\)")
_TERM = re.compile(r"""([^=,"()]+)=("(?:[^"\\]|\\.)*"|[^",][^,]*|)""", re.DOTALL)
_INNER = re.compile(r"""([^=,"()]+)=("(?:[^"\\]|\\.)*"|[^",)][^,)]*|)""", re.DOTALL)  # inside another group
_NO_GROUP = "must be filters like (status=open,total[gte]=100), a value with a comma or parenthesis in double quotes"

T = TypeVar("T")
Arguments = Mapping[str, Sequence[Any]]  # the values of each parameter in their order: texts, or of Python
Parts = list[tuple[str, Any]]  # of a group: the name and the text of a filter, or the name of a group and its parts


@dataclass(frozen=True)
class Hop:
    """Where a name before a dot leads: to items in another collection, of which queries can use what is `queryable`.

    The `field` is the reference to them, or the id that they refer to. One item can have `many` of them. `join` returns
    what some filters select of them; it raises Forbidden. `stored` is the stored name of one of their fields.
    """

    queryable: "Queryable"
    field: str
    many: bool
    join: Callable[[tuple[Filter, ...]], SemiJoin]
    stored: Callable[[str], str]

    @property
    def is_back(self) -> bool:
        """Whether they refer to the item."""
        return self.field == "id"


@dataclass(frozen=True)
class Queryable:
    """What the queries of a list can use: the `fields` to filter and sort by, and the `names` of all fields of an item.

    `refused` has fields that no query can use, each with the reason. If `fields` has ANY, queries can also use names
    that are none of them, and some parameters are ignored. Unless it `is_searched`, there are no fields for `q`.
    `hops` has the names of what a query leads to.
    """

    fields: Mapping[str, Field]
    names: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    is_searched: bool = True
    hops: Callable[[], Mapping[str, Hop]] = dict

    def has(self, path: str) -> bool:
        """Whether there is something to show at a path."""
        if path in self.names or (self.is_open and root_of(path) not in self.refused):
            return True
        is_inside = root_of(path) in self.names and "." in path
        return is_inside and bool(
            field_in(self.fields, path) or any(name.startswith(f"{path}.") for name in self.fields)
        )

    def hop(self, path: str) -> tuple[str, str]:
        """The name of the hop of a path, and what is after its dot; empty texts if the path is inside the item."""
        own = field_in(self.fields, path)
        if path in self.fields or (own and not self.is_open) or root_of(path) in self.refused:
            return "", ""
        hops = self.hops()
        found = (name for name in hops if path == name or path.startswith(f"{name}."))
        name = max(found, key=len, default="")
        is_own = root_of(name) in self.names and hops[name].field != name  # as a member of an object of the item
        return ("", "") if not name or (is_own and own) else (name, path[len(name) + 1 :])

    @cached_property
    def reserved(self) -> list[str]:
        """The parameters that are no filters: a field that is called so has its filters."""
        return [name for name in RESERVED if name not in NEWER or name not in self.fields]

    @property
    def sortable(self) -> list[str]:
        """The fields to sort by, whose values can also be counted and compared."""
        others = set(self.names) - set(map(root_of, self.fields)) if self.is_open else ()
        found = [name for name, field in self.fields.items() if field.sortable and name != ANY]
        return [*found, *(name for name in self.names if name in others)]

    @property
    def numbers(self) -> list[str]:
        """The fields to sum."""
        return [name for name in self.sortable if name in self.fields and self.fields[name].kind in NUMBERS]

    @property
    def dated(self) -> list[str]:
        """The fields whose days, months and years can be counted."""
        return [name for name in self.sortable if name in self.fields and self.fields[name].is_dated]

    @property
    def is_open(self) -> bool:
        """Whether queries can use names that are not declared."""
        return ANY in self.fields

    def ignores(self, parameter: str) -> bool:
        """Whether a parameter is for the way of a response, as `callback`, and `_` by which it is not cached."""
        is_theirs = parameter == "callback" or parameter.startswith("_")
        return self.is_open and is_theirs and parameter not in self.fields and "[" not in parameter


class Embedding(NamedTuple):
    """What is shown of what is embedded: these `fields`, or all if there are none.

    Of the items that refer to one, it is at most so many (`limit`, or as the collection says), with these `filters`, in
    this order. `others` are the parameters of the list of all of them that select and sort it so.
    """

    fields: tuple[str, ...] = ()
    limit: int | None = None
    sort: tuple[Sort, ...] = ()
    filters: tuple[Filter, ...] = ()
    others: tuple[tuple[str, str], ...] = ()


class ListRequest(NamedTuple):
    """The parsed query of a list. `fields` are the selected ones, or paths; None for all. `cursor` is not decoded yet.

    `embed` has what is embedded by its name, `order` the sort keys of a list that is not sorted.

    With an `export`, one of EXPORTS, the page is a file in that format.
    """

    query: Query
    limit: int
    fields: tuple[str, ...] | None = None
    embed: Mapping[str, Embedding] = {}
    cursor: str | None = None
    by_offset: bool = False
    order: tuple[Sort, ...] = ()
    export: str = ""

    @property
    def is_joined(self) -> bool:
        """Whether it depends on other collections."""
        return bool(self.embed or self.query.joins)


def parse(
    args: Arguments,
    queryable: Queryable,
    limit: int,
    limit_max: int,
    related: Collection[str] = (),
    order: tuple[Sort, ...] = (),
) -> ListRequest:
    """The list that the parameters request.

    It is `limit` items unless they say, and where they name ids, all of those. `related` is what can be embedded,
    `order` that of a list that is not sorted. Raises InvalidQuery with every fault, each naming what would be right.
    """
    if not args:
        return ListRequest(Query(limit=limit), limit, order=order)
    reader = Reader(args)
    filters = _filters(reader, queryable)
    ids = (each for each in filters if each.field == "id" and not (each.group or each.negated))
    limit = next((len(each.value) for each in ids if isinstance(each.value, tuple)), limit)
    groups = _groups(reader, queryable)
    fields, embed = _shown(reader, queryable, related)
    listing = ListRequest(
        Query(
            filters=filters,
            search=reader.one("q", _searched if queryable.is_searched else _no_search, ()),
            sort=reader.joined("sort", partial(_sort, queryable=queryable), ()),
            groups=groups,
            limit=(size := reader.one("limit", whole(1, limit_max), limit)),
            offset=reader.one("offset", _OFFSET, 0),
        ),
        size,
        fields,
        embed,
        reader.one("cursor", str, None),
        by_offset="offset" in args,
        order=order,
        export=reader.one("export", one_of(EXPORTS), "") if "export" in queryable.reserved else "",
    )
    if "cursor" in args and "offset" in args:
        reader.fault("offset", "does not go with cursor: page by one or the other")
    reader.finish()
    return listing


def parse_item(
    args: Arguments, queryable: Queryable, related: Collection[str]
) -> tuple[tuple[str, ...] | None, Mapping[str, Embedding]]:
    """The fields to show of one item, None for all, and what to embed. Raises InvalidQuery."""
    reader = Reader(args)
    fields, embed = _shown(reader, queryable, related)
    reader.only(("fields", "embed", *filter(_is_option, args), *filter(queryable.ignores, args)), "an item")
    reader.finish()
    return fields, embed


class Reader:
    """Reads parameters one by one and collects their faults; `finish` raises InvalidQuery with all of them."""

    def __init__(self, args: Arguments) -> None:
        self.args = args
        self.faults: list[dict[str, str]] = []
        self._unknown = 0

    def one(self, name: str, read: Callable[[str], Any], default: Any) -> Any:
        """The value of a parameter that may be given once; `read` raises ValueError with what would be right."""
        values = self.args.get(name, ())
        if len(values) > 1:
            self.fault(name, "is given more than once")
        if len(values) != 1:
            return default
        return self.value(name, read, text_of(values[0]), default)

    def joined(self, name: str, read: Callable[[str], Any], default: Any) -> Any:
        """The value of a parameter that has commas, or is given repeatedly: `sort=a&sort=b` is `sort=a,b`."""
        values = self.args.get(name, ())
        return self.value(name, read, ",".join(map(text_of, values)), default) if values else default

    def several(self, name: str, read: Callable[[str], Any], most: int) -> tuple[Any, ...]:
        """The values of a parameter that may be given repeatedly, and each time with commas; each value once."""
        texts = dict.fromkeys(text for given in self.args.get(name, ()) for text in text_of(given).split(","))
        if len(texts) > most:
            self.fault(name, f"has at most {most} values")
            return ()
        return tuple(self.value(name, read, text) for text in texts)

    def only(self, names: Sequence[str], of: str) -> None:
        """Find fault with every parameter that has another name."""
        for name in self.args:
            if name not in names:
                self.unknown(name, of, names)

    def unknown(self, name: str, of: str, names: Iterable[str]) -> None:
        """Find fault with a parameter that there is not; the first such fault lists those that there are."""
        known = "" if self._unknown else f"; there are: {', '.join(names)}"
        self._unknown += 1
        self.fault(name, f"is not a parameter of {of}{known}")

    def value(self, name: str, read: Callable[[Any], Any], given: Any, default: Any = None) -> Any:
        try:
            return read(given)
        except ValueError as error:
            self.fault(name, str(error))
            return default

    def fault(self, parameter: str, detail: str) -> None:
        fault = {"parameter": shortened(parameter), "detail": detail}
        if len(self.faults) < MOST_FAULTS and fault not in self.faults:
            self.faults.append(fault)

    def finish(self) -> None:
        if self.faults:
            summary = "; ".join(f"{fault['parameter']} {fault['detail']}" for fault in self.faults[:3])
            raise InvalidQuery(summary, errors=self.faults)


def _filters(reader: Reader, queryable: Queryable) -> tuple[Filter, ...]:
    """The filters of all parameters that are not reserved. Beyond the limit the rest is ignored."""
    found, grouped, values = list[Filter](), list[Filter](), 0
    reserved = queryable.reserved
    names = [name for name in reader.args if name in GROUPS or not (name in reserved or queryable.ignores(name))]
    names = [name for name in names if not _is_option(name)]
    for count, name in enumerate(names, start=1):
        texts = reader.args[name]
        is_group = name in GROUPS and name in reserved
        is_several = is_group or name.endswith(("[in]", "[nin]"))
        values += sum(text_of(text).count(",") + 1 for text in texts) if is_several else len(texts)
        if values > MAX_VALUES:
            reader.fault(name, f"is one value too many: all filters of a list together take {MAX_VALUES}")
            break
        if not is_group:
            found += _filter(reader, name, texts, queryable, group=len(found + grouped) + 1)
        for text in texts if is_group else ():
            grouped += _numbered(_group(reader, name, text_of(text), queryable), len(found + grouped))
        if max(count, len(found + grouped)) > MAX_FILTERS:
            reader.fault(name, f"is one filter too many: a list takes {MAX_FILTERS}")
            break
    found = [*_merged(found), *grouped]
    if sum(each.join is not None for each in found) > MOST_JOINED:
        most = f"{MOST_JOINED} filters by what is in other collections, when its alternatives are combined"
        reader.fault(names[-1], f"is one too many: a list takes {most}")
    return tuple(found)


def _numbered(clauses: Iterable[tuple[Filter, ...]], before: int = 0) -> list[Filter]:
    """The filters of clauses that all hold; of several in one, one is enough. So many filters have numbers `before`."""
    found = list[Filter]()
    for clause in clauses:
        group = before + len(found) + 1 if len(clause) > 1 else 0
        found += [each._replace(group=group) for each in clause]
    return found


def _group(reader: Reader, name: str, text: str, queryable: Queryable, kind: str = "") -> list[tuple[Filter, ...]]:
    """What a group asks for, such as (status=open,and(total[gte]=100,not(paid=true))), as clauses that all hold.

    It is of the `kind` that a parameter is called, unless that says another one.
    """
    inner = Reader({})

    def filters(name: str, part: Any, *, negated: bool) -> list[Filter]:
        terms = part.terms if isinstance(part, _Together) else [(name, part)]
        found = _merged(each for name, text in terms for each in _filter(inner, name, [text], queryable))
        return [each._replace(negated=each.negated is not negated) for each in found]

    try:
        if not text.startswith("(") or not text.endswith(")"):
            raise ValueError(_NO_GROUP)
        clauses = clauses_of(kind or name, _together(_parts(text[1:-1], 0, 1)[0], queryable), filters)
        values = sum(map(_size, chain.from_iterable(clauses)))
        if values > 2 * MAX_VALUES:  # in an object, a value can be two: a text, and the number that is written so
            raise ValueError(f"has more than {MAX_VALUES} values when its alternatives are combined")
    except ValueError as error:
        reader.fault(name, str(error))
        return []
    for fault in inner.faults:
        reader.fault(name, f"has {fault['parameter']}, which {fault['detail']}")
    return clauses


def _parts(text: str, at: int, depth: int) -> tuple[Parts, int]:
    """The parts of a group that begins at a place of a text, and the place of its end. Raises ValueError."""
    found: Parts = []
    while True:
        if group := _GROUP.match(text, at):
            if depth == MOST_NESTED:
                raise ValueError(f"has more than {MOST_NESTED} groups inside each other")
            parts, at = _parts(text, group.end(), depth + 1)
            found.append((group[1], parts))
            at += 1
        elif term := (_INNER if depth > 1 else _TERM).match(text, at):
            value = re.sub(r"\\(.)", r"\1", term[2][1:-1]) if term[2].startswith('"') else term[2]
            found.append((term[1], value))
            at = term.end()
        else:
            raise ValueError(_NO_GROUP)
        if text[at : at + 1] != ",":
            break
        at += 1
    if text[at : at + 1] != (")" if depth > 1 else ""):
        raise ValueError(_NO_GROUP)
    return found, at


class _Together(NamedTuple):
    """Filters on one item of another collection, by their names and texts."""

    terms: list[tuple[str, str]]


def _together(parts: Parts, queryable: Queryable, *, is_and: bool = False) -> Parts:
    """The parts of a group, in which filters on one collection in an `and` are together."""
    found, joined = Parts(), dict[str, _Together]()
    for name, part in parts:
        term = FILTER.fullmatch(name) if is_and and isinstance(part, str) else None
        hop, path = queryable.hop(term[1]) if term else ("", "")
        if isinstance(part, list):
            found.append((name, _together(part, queryable, is_and=name == "and")))
        elif not path:
            found.append((name, part))
        elif hop in joined:
            joined[hop].terms.append((name, part))
        else:
            joined[hop] = _Together([(name, part)])
            found.append((name, joined[hop]))
    return found


def _merged(filters: Iterable[Filter]) -> list[Filter]:
    """The filters, in which those on one collection, by one reference, are one: they hold for one and the same item."""
    found, numbers = list[Filter](), dict[Any, int]()
    for each in filters:
        if not each.join or each.group or each.negated:
            found.append(each)
            continue
        number = numbers.setdefault((each.field, replace(each.join, filters=())), len(found))
        if number == len(found):
            found.append(each)
        elif join := found[number].join:
            group = len(join.filters) + 1  # that no other filters have
            more = (inner._replace(group=inner.group and group) for inner in each.join.filters)
            found[number] = each._replace(join=replace(join, filters=(*join.filters, *more)))
    return found


def _size(filter: Filter) -> int:
    """The number of values of a filter."""
    if filter.join:
        return 1 + sum(map(_size, filter.join.filters))
    return len(filter.value) if isinstance(filter.value, tuple) else 1


def clauses_of(
    group: str, parts: Parts, filters: Callable[..., Iterable[T]], *, negated: bool = False
) -> list[tuple[T, ...]]:
    """What a group asks for, or where it is `negated` what it excludes, as clauses that all hold.

    `or` asks for one of its parts, `and` for all, `not` for none; a clause, for one of its filters. `filters` returns
    those of a name, a text and `negated`. Raises ValueError for too many clauses.
    """
    negated = negated is not (group == "not")
    found = [
        [(each,) for each in filters(name, part, negated=negated)]
        if not isinstance(part, list)
        else clauses_of(name, part, filters, negated=negated)
        for name, part in parts
    ]
    if (group == "and") is not negated:
        return list(chain.from_iterable(found))
    if prod(map(len, found)) > MAX_FILTERS:
        raise ValueError(f"has too many alternatives: their combinations are more than {MAX_FILTERS}")
    return [tuple(dict.fromkeys(chain.from_iterable(each))) for each in product(*found)]


def _filter(reader: Reader, name: str, values: Sequence[Any], queryable: Queryable, *, group: int = 0) -> list[Filter]:
    """A parameter's filters. One that is repeated means any of the values for eq and in, all of them for the others.

    Of nin, that is none of the values.

    `group` is a number that no other filters have.
    """
    parts = FILTER.fullmatch(name)
    if parts and (reason := queryable.refused.get(root_of(parts[1]))):
        reader.fault(name, reason)
        return []
    if parts and not is_short(parts[1]):
        reader.fault(name, _NO_PATH)
        return []
    hop, path = queryable.hop(parts[1]) if parts else ("", "")
    if parts and hop:
        return _joined(reader, name, values, queryable.hops()[hop], hop, path)
    field = field_in(queryable.fields, parts[1]) if parts and parts[1] != POSITION else None
    if not parts or not field:
        start = f"{root_of(name)}."
        if ways := [name.replace(start, f"{each}.", 1) for each in queryable.hops() if each.startswith(start)]:
            reader.fault(name, f"is by one of several references: write {' or '.join(ways)}")
            return []
        reader.unknown(name, "this list", (*queryable.reserved, *queryable.fields, "and field[operator]"))
        return []
    operators = operators_of(field)
    if (parts[2] or "eq") not in operators:
        reader.fault(name, f"is no operator of {field.name}; there are: {', '.join(operators)}")
        return []
    op = Op(parts[2] or "eq")
    if op in SEVERAL:
        values = [each for given in values for each in (given.split(",") if isinstance(given, str) else [given])]
    found = [reader.value(name, partial(_condition, op=op, field=field), each) for each in values]
    found = [each for each in found if each]
    if op is Op.EQ and len(found) > 1 and any(each.op is Op.IS for each in found):
        return [each._replace(group=group) for each in found]
    if op in SEVERAL or (op is Op.EQ and (len(found) > 1 or field.kind is Kind.JSON)):
        several = (each.value if isinstance(each.value, tuple) else (each.value,) for each in found)
        return [Filter(field.name, Op.IN, tuple(chain.from_iterable(several)), negated=op is Op.NIN)]
    return found


def _joined(reader: Reader, name: str, values: Sequence[Any], hop: Hop, before: str, path: str) -> list[Filter]:
    """The filter by a parameter that leads to another collection, by the name `before` the dot. Raises Forbidden."""
    op, known = name.partition("[")[2].rstrip("]"), hop.queryable.fields
    if not path:  # whether there are some
        words = [text_of(each) for each in values]
        if op != "is" or any(each not in NULLS for each in words):
            reader.fault(name, f"can only be {before}[is]=null or {before}[is]=not_null; a field is after a dot")
            return []
        return [Filter(hop.field, Op.HAS, None, negated=NULLS[each], join=hop.join(())) for each in words]
    if root_of(path) not in hop.queryable.refused and (path == POSITION or not field_in(known, path)):
        names = ", ".join(f"{before}.{each}" for each in known)
        reader.fault(name, f"is not a parameter of this list; there are: {names}, and field[operator]")
        return []
    if hop.many and op in (Op.NE, Op.NIN):
        reader.fault(name, f"is no operator where there can be several: write not=({before}.{path}=…)")
        return []
    inner = Reader({})
    found = _filter(inner, name.removeprefix(f"{before}."), values, hop.queryable, group=1)
    for fault in inner.faults:
        reader.fault(name, fault["detail"])
    return [Filter(hop.field, Op.HAS, None, join=hop.join(tuple(found)))] if found else []


def operators_of(field: Field) -> list[Op]:
    """The operators of the filters of a field."""
    known = [*OPERATORS[field.kind], *([Op.IS] if field.nullable else [])]
    is_free = field.kind is Kind.JSON
    refused = {Op.LIKE} if "." in field.name and not is_free else set()
    refused |= {*PARTS, *RANGES} if is_free and not field.sortable else set()  # in a JsonObject, as promised so far
    refused |= PARTS if field.expected else set()
    refused |= RANGES if not field.is_ordered else set()
    return [op for op in known if op not in refused]


def _condition(given: Any, op: Op, field: Field) -> Filter:
    """The filter of a field by one value: a text, or a value of Python. Raises ValueError with what would be right."""
    if op is Op.IS:
        if (word := text_of(given)) not in NULLS:
            raise ValueError(f"must be {' or '.join(NULLS)}")
        return Filter(field.name, op, NULLS[word])
    is_null = text_of(given) == "null" and field.nullable and op in (Op.EQ, Op.NE)
    if is_null and (field.expected or field.kind not in TEXTS):
        return Filter(field.name, Op.IS, op is Op.EQ)
    value = given
    if op in PARTS or not field.read:
        value = _text(given) if op in PARTS else value_of(given, field)
    else:
        try:
            value = field.read(_text(given) if isinstance(given, str) else given)
        except ValueError:
            if is_null:  # it is no text of this field
                return Filter(field.name, Op.IS, op is Op.EQ)
            raise
    if field.choices and op in (Op.EQ, Op.NE, *SEVERAL) and value not in field.choices:
        more = ", …" if len(field.choices) > MOST_CHOICES else ""
        raise ValueError(f"must be one of: {', '.join(map(str, field.choices[:MOST_CHOICES]))}{more}")
    return Filter(field.name, op, value)


def value_of(given: Any, field: Field) -> Any:
    """The value in a filter of a field, of a text or a value of Python. Raises ValueError with what would be right."""
    number = number_of(given)
    match field.kind:
        case Kind.INTEGER:
            is_integer = number is not None and number == number.to_integral_value()
            return _INTEGER(str(int(number)) if is_integer and number is not None else text_of(given))  # 5.0 is 5
        case Kind.SERIAL:
            return serial(_SERIAL(text_of(given)))
        case Kind.NUMBER:
            if number is None:
                raise ValueError("must be a number")
            return number
        case Kind.BOOLEAN:
            if text_of(given) not in ("true", "false"):
                raise ValueError("must be true or false")
            return text_of(given) == "true"
        case Kind.JSON if not field.read:  # a value of any kind that is written so
            words = {"true": (True,), "false": (False,), "null": (None,) if field.sortable else ()}
            return (_text(given), *([] if number is None else [number]), *words.get(text_of(given), ()))
        case _:
            return _text(given)


def text_of(given: Any) -> str:
    """A value of a parameter as a text."""
    if isinstance(given, str):
        return given
    return exactjson.dumps(given).decode() if isinstance(given, bool | None) else str(given)


def number_of(given: Any) -> Decimal | None:
    """The number that a text, or a value of Python, is."""
    return Decimal(str(given)) if not isinstance(given, bool) and _NUMBER.fullmatch(str(given)) else None


def _text(given: Any) -> str:
    """A text to compare: no item has NUL, and a store may have no such character."""
    if "\0" in (text := text_of(given)):
        raise ValueError("must not hold NUL")
    return text


def _searched(given: Any) -> tuple[str, ...]:
    """The words to look for; a text in quotes is one phrase."""
    text = _text(given)
    words = (text[1:-1],) if len(text) > 2 and text[0] == text[-1] == '"' else tuple(text.split())
    if len(words) > MOST_WORDS:
        raise ValueError(f'must have at most {MOST_WORDS} words; quotes make one of them: "desk lamp"')
    return words


def _no_search(text: str) -> tuple[str, ...]:
    """Nothing, for the empty text, which a form with nothing typed sends."""
    if text:
        raise ValueError("searches nothing: the collection has no fields for it; use a filter, such as name[like]=lamp")
    return ()


def _sort(text: str, queryable: Queryable) -> tuple[Sort, ...]:
    keys = [Sort(name.removeprefix("-"), name.startswith("-")) for name in text.split(",")]
    keys = [_sort_key(key, queryable) for key in keys]
    if len({key.name for key in keys}) < len(keys):
        raise ValueError("names a field twice")
    return tuple(keys)


def _sort_key(key: Sort, queryable: Queryable) -> Sort:
    """A sort key, which can lead to the item that an item refers to. Raises Forbidden."""
    name, path = queryable.hop(key.field)
    more = ", each also with - before it"
    if not path:
        if not _is_undeclared(key.field, queryable):
            _require_known(key.field, queryable.sortable, queryable, more)
        return key
    hop = queryable.hops()[name]
    if hop.many:
        raise ValueError(f"cannot be {key.field!r}: an item can have several {name}")
    if not _is_undeclared(path, hop.queryable) and path not in hop.queryable.sortable:
        names = ", ".join(f"{name}.{each}" for each in hop.queryable.sortable)
        raise ValueError(f"cannot be {shortened(key.field)!r}; there are: {names}{more}")
    return Sort(hop.field, key.descending, hop.join(()), hop.stored(path))


def _groups(reader: Reader, queryable: Queryable) -> Groups | None:
    """The groups that the parameters ask for; None for a list of items."""
    given = [name for name in GROUPED if name in reader.args and name in queryable.reserved]
    if not given:
        return None
    zone = reader.one("timezone", _zone, "") if "timezone" in given else ""
    by = reader.joined("count", partial(_by, queryable=queryable, zone=zone), ()) if "count" in given else ()
    dated = [field_in(queryable.fields, each.field) for each in by if each.part]
    if "timezone" in given and not any(each and each.kind in (Kind.TIME, Kind.JSON) for each in dated):
        reader.fault("timezone", "goes with a part of a time, such as count=month(created_at)")
    found = list[Aggregate]()
    for parameter, function in AGGREGATES.items() if len(given) > ("count" in given) else ():
        known = queryable.numbers if function in SUMS else queryable.sortable
        fields = reader.joined(parameter, partial(_aggregated, known=known, queryable=queryable), ())
        found += [Aggregate(function, field) for field in fields]
    if len({each.field for each in found}) > MOST_AGGREGATED:
        reader.fault("aggregate", f"is limited to {MOST_AGGREGATED} fields")
    for name in ("limit", "offset", "cursor", "sort", "fields", "embed"):
        if name in reader.args:
            reader.fault(name, f"does not go with {given[0]}, which has no pages")
    return Groups(by, tuple(found))


def _by(text: str, queryable: Queryable, zone: str) -> tuple[GroupBy, ...]:
    found = []
    for name in text.split(","):
        part, field = parts.groups() if (parts := _PART.fullmatch(name)) else ("", name)
        if part:
            if field not in queryable.dated and not _is_undeclared(field, queryable):
                known = ", ".join(f"{part}({each})" for each in queryable.dated)
                raise ValueError(f"cannot be {shortened(name)!r}; there are: {known}")
        elif not _is_undeclared(name, queryable):
            _require_known(name, queryable.sortable, queryable)
        found.append(GroupBy(field, part, zone if part else ""))
    if len(set(found)) < len(found):
        raise ValueError("names a field twice")
    if len(found) > MOST_COUNTED:
        raise ValueError(f"has at most {MOST_COUNTED} names")
    return tuple(found)


def _aggregated(text: str, known: Collection[str], queryable: Queryable) -> tuple[str, ...]:
    names = text.split(",")
    for name in names:
        if not _is_undeclared(name, queryable):
            _require_known(name, known, queryable)
    if len({*names}) < len(names):
        raise ValueError("names a field twice")
    return tuple(names)


def _zone(text: str) -> str:
    """A time zone. Raises ValueError for another one, and for a name that can also be an abbreviation, such as CET."""
    if text == "UTC":
        return ""
    if "/" not in text or text not in _zones():
        raise ValueError("must be the name of a time zone, such as Europe/Berlin, or UTC")
    return text


_zones = lru_cache(1)(available_timezones)  # some milliseconds


def _is_undeclared(name: str, queryable: Queryable) -> bool:
    """Whether it is the name or path of a field that items can have, and that is not declared.

    Raises ValueError for what can be none, in such a list.
    """
    if not queryable.is_open or name in queryable.fields or root_of(name) in queryable.refused:
        return False
    if not (parts := FILTER.fullmatch(name)) or parts[2] or name == POSITION or not is_short(name):
        raise ValueError(f"has {shortened(name)!r}, which {_NO_PATH}")
    return True


def is_short(path: str) -> bool:
    """Whether a path is within the bounds."""
    return len(path) <= MOST_CHARACTERS and path.count(".") < MOST_NAMES


def _shown(
    reader: Reader, queryable: Queryable, related: Collection[str]
) -> tuple[tuple[str, ...] | None, Mapping[str, Embedding]]:
    """The fields to show, None for all, and what is embedded: also what fields are inside of."""
    inside: dict[str, list[str]] = {}
    fields: tuple[str, ...] | None = reader.joined("fields", partial(_names, queryable=queryable, inside=inside), None)
    embed = {name: Embedding() for name in _embed(reader, queryable, related)}
    embed |= {name: Embedding(tuple(names)) for name, names in inside.items()}
    for parameter in filter(_is_option, reader.args):
        if (name := parameter[:-1].partition("[")[2]) in embed and name in queryable.hops():
            embed[name] = _option(reader, parameter, embed[name], queryable.hops()[name])
        else:
            reader.fault(parameter, f"is about what is not embedded: write embed={shortened(name)}")
    if len(embed) > MOST_EMBEDDED:
        reader.fault("fields", f"is inside more than {MOST_EMBEDDED} related items")
    return fields, embed


def _is_option(parameter: str) -> bool:
    """Whether a parameter is about what is embedded, such as `limit[orders]`, and no filter."""
    parts = _OPTION.fullmatch(parameter)
    return bool(parts) and parts[1] not in [*Op]  # type: ignore[index]


def _option(reader: Reader, parameter: str, embedding: Embedding, hop: Hop) -> Embedding:
    """What is shown of what is embedded, with a parameter about it."""
    name, to = parameter.partition("[")[0], hop.queryable
    if name == "fields":
        names = reader.joined(parameter, partial(_names, queryable=to, inside={}), ())
        return embedding._replace(fields=(*embedding.fields, *names))
    if not hop.is_back:
        reader.fault(parameter, "is for lists, and this is what the item refers to: write fields[…]")
    elif name == "limit":
        return embedding._replace(limit=reader.one(parameter, whole(1, MOST_CHOSEN), None))
    elif name == "sort":
        others = (*embedding.others, ("sort", ",".join(map(text_of, reader.args[parameter]))))
        sort = reader.joined(parameter, partial(_sort, queryable=to), ())
        return embedding._replace(sort=sort, others=others)
    else:
        text = reader.one(parameter, str, "()")
        filters = _numbered(_group(reader, parameter, text, to, kind="and"))
        return embedding._replace(filters=tuple(filters), others=(*embedding.others, ("or", f"(and{text})")))
    return embedding


def _names(text: str, queryable: Queryable, inside: dict[str, list[str]]) -> tuple[str, ...]:
    """The fields, or paths, to show. What leads to other items is `inside`, by the name before it. Raises Forbidden."""
    names = list[str]()
    for name in text.split(","):
        hop, path = queryable.hop(name)
        if path:
            to = queryable.hops()[hop]
            if not to.queryable.has(path):
                known = ", ".join(f"{hop}.{each}" for each in to.queryable.names)
                raise ValueError(f"cannot be {shortened(name)!r}; there are: {known}")
            to.join(())
            inside.setdefault(hop, []).append(path)
            names += [hop] if to.field == hop else []
        else:
            if not queryable.has(name):
                _require_known(name, queryable.names, queryable)
            names.append(name)
    order = {name: number for number, name in enumerate(queryable.names)}
    return tuple(sorted(dict.fromkeys(names), key=lambda name: order.get(root_of(name), 0)))


def _require_known(name: str, known: Collection[str], queryable: Queryable, more: str = "") -> None:
    """Raises ValueError for a name that is none of the `known` ones."""
    if name not in known:
        if name in queryable.refused:
            raise ValueError(f"cannot be {name!r}, which {queryable.refused[name]}")
        raise ValueError(f"cannot be {shortened(name)!r}; there are: {', '.join(known)}{more}")


def _embed(reader: Reader, queryable: Queryable, related: Collection[str]) -> tuple[str, ...]:
    is_there = "embed" in reader.args and "embed" in queryable.reserved
    return reader.several("embed", one_of(related), MOST_EMBEDDED) if is_there else ()


def one_of(known: Collection[str]) -> Callable[[str], str]:
    """Reads one of these words."""

    def read(text: str) -> str:
        if text not in known:
            raise ValueError(f"cannot be {shortened(text)!r}; there are: {', '.join(known) or 'none here'}")
        return text

    return read

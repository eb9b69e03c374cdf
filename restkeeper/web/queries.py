"""A list's query parameters: which items, in which order, which stretch, which fields."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from werkzeug.datastructures import MultiDict

from restkeeper.clock import rfc3339
from restkeeper.errors import MOST_FAULTS, InvalidQuery, shortened
from restkeeper.parsing import whole
from restkeeper.storage.interface import Field, Filter, Kind, Op, Query, Sort

RESERVED = ("limit", "offset", "cursor", "sort", "fields", "q")

OPERATORS = {
    Kind.TEXT: (Op.EQ, Op.NE, Op.GT, Op.GTE, Op.LT, Op.LTE, Op.IN, Op.LIKE),
    Kind.TIME: (Op.EQ, Op.NE, Op.GT, Op.GTE, Op.LT, Op.LTE),
    Kind.INTEGER: (Op.EQ, Op.NE, Op.GT, Op.GTE, Op.LT, Op.LTE, Op.IN),
    Kind.NUMBER: (Op.EQ, Op.NE, Op.GT, Op.GTE, Op.LT, Op.LTE, Op.IN),
    Kind.BOOLEAN: (Op.EQ, Op.NE),
    Kind.LIST: (Op.EQ, Op.IN),
}

MAX_OFFSET = 2**31 - 1
MAX_FILTERS = 100  # of one query: what stores prepare for each combination takes memory
MAX_VALUES = 200  # of all filters of one query: as many ids as an address of 8 KiB has room for

FILTER = re.compile(r"(\w+)(?:\[(\w+)\])?")
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)
_LOST_PLUS = re.compile(r" (\d\d:?\d\d)$")  # an unescaped "+" is read as a space


@dataclass(frozen=True)
class Queryable:
    """What the queries of a list can use: the `fields` to filter and sort by, and the `names` of all fields of an item.

    `refused` has fields that no query can use, each with the reason.
    """

    fields: Mapping[str, Field]
    names: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListRequest:
    """The parsed query of a list. `fields` are the selected ones, None for all; `cursor` is not decoded yet."""

    query: Query
    limit: int
    fields: tuple[str, ...] | None = None
    cursor: str | None = None
    by_offset: bool = False


def parse(args: MultiDict[str, str], queryable: Queryable, limit: int, limit_max: int) -> ListRequest:
    """The list that the parameters request.

    It is `limit` items unless they say, and where they name ids, all of those.
    Raises InvalidQuery with every fault at once, each naming what would be right.
    """
    if not args:
        return ListRequest(Query(limit=limit), limit)
    reader = Reader(args)
    filters = _filters(reader, queryable)
    limit = next((len(ids) for field, _, ids in filters if field == "id" and isinstance(ids, tuple)), limit)
    listing = ListRequest(
        Query(
            filters=filters,
            search=reader.one("q", _text, ""),
            sort=reader.one("sort", lambda text: _sort(text, queryable), ()),
            limit=(size := reader.one("limit", whole(1, limit_max), limit)),
            offset=reader.one("offset", whole(0, MAX_OFFSET), 0),
        ),
        size,
        reader.one("fields", lambda text: _names(text, queryable), None),
        reader.one("cursor", str, None),
        by_offset="offset" in args,
    )
    if "cursor" in args and "offset" in args:
        reader.fault("offset", "does not go with cursor: page by one or the other")
    reader.finish()
    return listing


def parse_fields(args: MultiDict[str, str], queryable: Queryable) -> tuple[str, ...] | None:
    """The fields to show where `fields` is the only parameter there is. Raises InvalidQuery."""
    if not args:
        return None
    reader = Reader(args)
    fields: tuple[str, ...] | None = reader.one("fields", lambda text: _names(text, queryable), None)
    reader.only(("fields",), "an item")
    reader.finish()
    return fields


class Reader:
    """Reads parameters one by one and collects their faults; `finish` raises InvalidQuery with all of them."""

    def __init__(self, args: MultiDict[str, str]) -> None:
        self.args = args
        self._faults: list[dict[str, str]] = []
        self._unknown = 0

    def one(self, name: str, read: Callable[[str], Any], default: Any) -> Any:
        """The value of a parameter that may be given once; `read` raises ValueError with what would be right."""
        values = self.args.getlist(name)
        if len(values) > 1:
            self.fault(name, "is given more than once")
        if len(values) != 1:
            return default
        return self.value(name, read, values[0], default)

    def several(self, name: str, read: Callable[[str], Any], most: int) -> tuple[Any, ...]:
        """The values of a parameter that may be given repeatedly, and each time with commas; each value once."""
        texts = dict.fromkeys(text for given in self.args.getlist(name) for text in given.split(","))
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

    def value(self, name: str, read: Callable[[str], Any], text: str, default: Any = None) -> Any:
        try:
            return read(text)
        except ValueError as error:
            self.fault(name, str(error))
            return default

    def fault(self, parameter: str, detail: str) -> None:
        if len(self._faults) < MOST_FAULTS:
            self._faults.append({"parameter": shortened(parameter), "detail": detail})

    def finish(self) -> None:
        if self._faults:
            summary = "; ".join(f"{fault['parameter']} {fault['detail']}" for fault in self._faults[:3])
            raise InvalidQuery(summary, errors=self._faults)


def _filters(reader: Reader, queryable: Queryable) -> tuple[Filter, ...]:
    """The filters of all parameters that are not reserved. Beyond the limit the rest is ignored."""
    found: list[Filter] = []
    values = 0
    names = [name for name in reader.args if name not in RESERVED]
    for count, name in enumerate(names, start=1):
        texts = reader.args.getlist(name)
        values += sum(text.count(",") + 1 for text in texts) if name.endswith("[in]") else len(texts)
        if count > MAX_FILTERS or values > MAX_VALUES:
            what = f"one filter too many: a list takes {MAX_FILTERS}"
            if values > MAX_VALUES:
                what = f"one value too many: all filters of a list together take {MAX_VALUES}"
            reader.fault(name, f"is {what}")
            break
        found += _filter(reader, name, texts, queryable)
        if len(found) > MAX_FILTERS:
            reader.fault(name, f"is one filter too many: a list takes {MAX_FILTERS}")
            break
    return tuple(found)


def _filter(reader: Reader, name: str, texts: list[str], queryable: Queryable) -> list[Filter]:
    """A parameter's filters. One that is repeated means any of the values for eq and in, all of them for the others."""
    parts = FILTER.fullmatch(name)
    field = queryable.fields.get(parts[1]) if parts else None
    if parts and (reason := queryable.refused.get(parts[1])):
        reader.fault(name, reason)
        return []
    if parts is None or field is None:
        reader.unknown(name, "this list", (*RESERVED, *queryable.fields, "and field[operator]"))
        return []
    operators = OPERATORS[field.kind]
    if (parts[2] or "eq") not in operators:
        reader.fault(name, f"is no operator of {field.name}; there are: {', '.join(operators)}")
        return []
    op = Op(parts[2] or "eq")
    if op is Op.IN:
        texts = [text for given in texts for text in given.split(",")]
    values = tuple(reader.value(name, lambda text: value_of(text, field), text) for text in texts)
    if op is Op.IN or (op is Op.EQ and len(values) > 1):
        return [Filter(field.name, Op.IN, values)]
    return [Filter(field.name, op, value) for value in values]


def value_of(text: str, field: Field) -> Any:
    """The value in a filter of a field. Raises ValueError with what would be right."""
    match field.kind:
        case Kind.INTEGER:
            return whole(-(2**63), 2**63 - 1)(text)
        case Kind.NUMBER:
            if not _NUMBER.fullmatch(text):
                raise ValueError("must be a number")
            return Decimal(text)
        case Kind.TIME:
            return _time(text)
        case Kind.BOOLEAN:
            if text not in ("true", "false"):
                raise ValueError("must be true or false")
            return text == "true"
        case _:
            return _text(text)


def _text(text: str) -> str:
    """A text to compare: no item has NUL, and a store may have no such character."""
    if "\0" in text:
        raise ValueError("must not hold NUL")
    return text


def _time(text: str) -> str:
    """A time in the canonical form that items have: UTC, microseconds. Without an offset it is UTC."""
    try:
        time = datetime.fromisoformat(_LOST_PLUS.sub(r"+\1", text))
        return rfc3339(time if time.tzinfo else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise ValueError("must be a time like 2026-01-31T12:00:00Z") from None


def _sort(text: str, queryable: Queryable) -> tuple[Sort, ...]:
    keys = [Sort(name.removeprefix("-"), name.startswith("-")) for name in text.split(",")]
    sortable = [name for name, field in queryable.fields.items() if field.sortable]
    if refused := [key.field for key in keys if key.field in queryable.refused]:
        raise ValueError(f"cannot be {refused[0]!r}, which {queryable.refused[refused[0]]}")
    if unknown := [key.field for key in keys if key.field not in sortable]:
        raise ValueError(
            f"cannot be {shortened(unknown[0])!r}; there are: {', '.join(sortable)}, each also with - before it"
        )
    if len({key.field for key in keys}) < len(keys):
        raise ValueError("names a field twice")
    return tuple(keys)


def _names(text: str, queryable: Queryable) -> tuple[str, ...]:
    names, known = text.split(","), queryable.names
    if refused := [name for name in names if name in queryable.refused and name not in known]:
        raise ValueError(f"cannot be {refused[0]!r}, which {queryable.refused[refused[0]]}")
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"cannot be {shortened(unknown[0])!r}; there are: {', '.join(known)}")
    return tuple(name for name in known if name in names)

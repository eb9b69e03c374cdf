"""Parameters of a query: the fields that they can name, and their values, which are read one by one with all faults."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from restkeeper import exactjson
from restkeeper.config import Config
from restkeeper.errors import MOST_FAULTS, InvalidQuery, shortened
from restkeeper.resources.operators import OPERATORS
from restkeeper.storage.interface import ANY, FREE_NAME, POSITION, Field, Filter, Kind, SemiJoin, field_in, root_of

AGGREGATES = {f"aggregate[{name}]": name for name in ("sum", "avg", "min", "max")}  # the parameter of each function
GROUPED = ("count", *AGGREGATES, "timezone")  # parameters of groups of items, instead of these
RESERVED = ("limit", "offset", "cursor", "sort", "fields", "q", "or", "not", "embed", "export", *GROUPED)
NEWER = ("or", "not", "embed", "export", *GROUPED)  # of these, those that a field may be called

MOST_NAMES = 5  # on a path
MOST_CHARACTERS = 100  # of a path
_NO_PATH = f"is no path of at most {MOST_NAMES} names and {MOST_CHARACTERS} characters"
_NUMBERS = (Kind.INTEGER, Kind.NUMBER)

FILTER = re.compile(rf"({FREE_NAME}(?:\.{FREE_NAME})*)(?:\[(\w+)\])?")
_OPTION = re.compile(r"(?:fields|sort|limit|where)\[([^\[\]]+)\]")
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)

_DEFAULTS = Config()  # of parameters that have no bound
Arguments = Mapping[str, Sequence[Any]]  # the values of each parameter in their order: texts, or of Python


@dataclass(frozen=True)
class Hop:
    """Where a `name` before a dot leads: to items in another collection, of which queries can use what is `queryable`.

    The `field` is the reference to them, or "id" if they refer to the item. One item can have `many` of them. `join`
    returns what some filters select of them; it raises Forbidden. `stored` is the stored name of one of their fields.
    """

    name: str
    queryable: "Queryable"
    field: str
    many: bool
    join: Callable[[tuple[Filter, ...]], SemiJoin]
    stored: Callable[[str], str]


@dataclass(frozen=True)
class Queryable:
    """What the queries of a list can use: the `fields` to filter and sort by, and the `names` of all fields of an item.

    `refused` has fields that no query can use, each with the reason. If `fields` has ANY, queries can also use names
    that are none of them, and some parameters are ignored, but none that is `known` to be a name of items. Unless it
    `is_searched`, there are no fields for `q`.
    `hops` has the names of the collections to which a query leads.
    """

    fields: Mapping[str, Field]
    names: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    is_searched: bool = True
    hops: Callable[[], Mapping[str, Hop]] = dict
    known: frozenset[str] = frozenset()

    def hop(self, path: str) -> tuple[Hop | None, str]:
        """The hop of a path, and what is after its dot; None and an empty text if the path is inside the item."""
        member = field_in(self.fields, path)
        if path in self.fields or (member and not self.is_open) or root_of(path) in self.refused:
            return None, ""
        hops = (hop for name, hop in self.hops().items() if path == name or path.startswith(f"{name}."))
        hop = max(hops, key=lambda hop: len(hop.name), default=None)
        if not hop or (member and root_of(hop.name) in self.names and hop.field != hop.name):  # of an object of it
            return None, ""
        return hop, path[len(hop.name) + 1 :]

    def fault(self, path: str) -> str:
        """Why a path can have no filter, if so."""
        return self.refused.get(root_of(path), "" if _is_short(path) else _NO_PATH)

    def in_order(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Paths in the order of the fields of an item, each once."""
        order = {name: number for number, name in enumerate(self.names)}
        return tuple(sorted(dict.fromkeys(paths), key=lambda path: order.get(root_of(path), 0)))

    def require(self, name: str, choices: Collection[str], before: str = "", after: str = "", more: str = "") -> None:
        """Raises ValueError for a name that is none of the `known` ones, and that no item can have.

        The parameter has it between two texts, if it is of something else than the items of the list.
        """
        if self._is_undeclared(name) or name in choices:
            return
        written = f"{before}{name}{after}"
        if name in self.refused and written == name:
            raise ValueError(f"cannot be {name!r}, which {self.refused[name]}")
        names = ", ".join(f"{before}{path}{after}" for path in choices)
        raise ValueError(f"cannot be {shortened(written)!r}; there are: {names}{more}")

    def require_shown(self, path: str, before: str = "") -> None:
        """Raises ValueError for a path at which there is nothing to show; the parameter has it after a text."""
        is_free = self.is_open and root_of(path) not in self.refused
        is_declared = field_in(self.fields, path) or any(name.startswith(f"{path}.") for name in self.fields)
        is_inside = "." in path and root_of(path) in self.names and is_declared
        if not (is_free or is_inside):
            self.require(path, self.names, before)

    def _is_undeclared(self, name: str) -> bool:
        """Whether it is the name or path of a field that items can have, and that is not declared.

        Raises ValueError for what can be none, in such a list.
        """
        if not self.is_open or name in self.fields or root_of(name) in self.refused:
            return False
        if not (parts := FILTER.fullmatch(name)) or parts[2] or name == POSITION or not _is_short(name):
            raise ValueError(f"has {shortened(name)!r}, which {_NO_PATH}")
        return True

    @cached_property
    def reserved(self) -> list[str]:
        """The parameters that are no filters: a field that is called so has its filters."""
        return [name for name in RESERVED if name not in NEWER or name not in self.fields]

    @property
    def sortable(self) -> list[str]:
        """The fields to sort by, whose values can also be counted and compared."""
        others = set(self.names) - set(map(root_of, self.fields)) if self.is_open else ()
        declared = [name for name, field in self.fields.items() if field.sortable and name != ANY]
        return [*declared, *(name for name in self.names if name in others)]

    @property
    def numbers(self) -> list[str]:
        """The fields to sum."""
        return [name for name in self.sortable if name in self.fields and self.fields[name].kind in _NUMBERS]

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
        is_known = parameter in self.fields or root_of(parameter) in self.known
        return self.is_open and is_theirs and not is_known and "[" not in parameter


def _is_short(path: str) -> bool:
    """Whether a path is within the bounds."""
    return len(path) <= MOST_CHARACTERS and path.count(".") < MOST_NAMES


def is_option(parameter: str) -> bool:
    """Whether a parameter is about what is embedded, such as `limit[orders]`, and no filter."""
    parts = _OPTION.fullmatch(parameter)
    return parts is not None and parts[1] not in OPERATORS


class Reader:
    """Reads parameters one by one and collects their faults; `finish` raises InvalidQuery with all of them.

    The bounds of a query are those of the `config`.
    """

    def __init__(self, args: Arguments, config: Config = _DEFAULTS) -> None:
        self.args, self.config = args, config
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
        texts = dict.fromkeys(text for value in self.args.get(name, ()) for text in text_of(value).split(","))
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
        hint = "" if self._unknown else f"; there are: {', '.join(names)}"
        self._unknown += 1
        self.fault(name, f"is not a parameter of {of}{hint}")

    def value(self, name: str, read: Callable[[Any], Any], value: Any, default: Any = None) -> Any:
        try:
            return read(value)
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


def refused(parameter: str, detail: str, **members: Any) -> InvalidQuery:
    """The error for a parameter."""
    return InvalidQuery(f"{parameter} {detail}", errors=[{"parameter": parameter, "detail": detail}], **members)


def require_once(names: Sequence[Any]) -> None:
    """Raises ValueError for a name that is there twice."""
    if len({*names}) < len(names):
        raise ValueError("names a field twice")


def one_of(words: Collection[str]) -> Callable[[str], str]:
    """Reads one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"cannot be {shortened(text)!r}; there are: {', '.join(words) or 'none here'}")
        return text

    return read


def text_of(value: Any) -> str:
    """A value of a parameter as a text."""
    if isinstance(value, str):
        return value
    return exactjson.dumps(value).decode() if isinstance(value, bool | None) else str(value)


def compared_text(value: Any) -> str:
    """A text to compare: no item has NUL, and a store may have no such character."""
    if "\0" in (text := text_of(value)):
        raise ValueError("must not hold NUL")
    return text


def number_of(value: Any) -> Decimal | None:
    """The number that a text, or a value of Python, is."""
    return Decimal(str(value)) if not isinstance(value, bool) and _NUMBER.fullmatch(str(value)) else None

"""Lossless JSON: decimals stay decimal, and texts that programs read differently are refused (RFC 8259, RFC 7493).

Numbers with a fraction or an exponent are read as `Decimal` and written back as such, never through a binary float.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from math import inf, isfinite
from typing import Any
from urllib.parse import quote

import msgspec
import orjson

from restkeeper.errors import (
    MOST_FAULTS,
    BodyTooLarge,
    InvalidJson,
    ValidationFailed,
    shortened,
)

SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1  # of stores and of typed clients
LONGEST_NUMBER = 100  # characters; more than any quantity needs, and few enough to convert quickly
LONGEST_POINTER = 300  # characters, and one step more

_FRAGMENT = "!$&'()*+,;=:@/?~"  # besides letters and digits, what a fragment holds unescaped (RFC 3986)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{},'))
_ARRAYS, _FRACTIONS = (list, tuple), (float, Decimal)  # faster than a union
_ONE_KIND = bytes.maketrans(b"{}", b"[]")

JsonObject = dict[str, Any]
Buffer = bytes | msgspec.Raw
NUL = b"\\u0000"  # in every text of `dumps` that has NUL in a string, and in some others
INDENTED = orjson.OPT_INDENT_2  # an option of `dumps`
EncodeError = orjson.JSONEncodeError  # of `dumps`, where a string is no text


def loads(data: bytes | str, max_depth: int = 200, max_values: int | None = None) -> Any:
    """The value of a JSON text.

    Bytes that surely have more than `max_values` values are not parsed: they raise BodyTooLarge.
    Raises InvalidJson for malformed text, a name twice in one object, NaN and infinities, numbers beyond 64-bit
    integers or the range of a double, and nesting deeper than `max_depth` (an array or object is one level).
    A string may have characters that JSON allows and that are no text: see `faults_in_values`.
    """
    if max_values is not None and isinstance(data, bytes) and len(data) > max_values:  # a value takes a byte
        structure = _structure(data)
        if max(structure.count(b",") + 1, structure.count(b"[") + structure.count(b"{")) > max_values:
            raise BodyTooLarge(f"the body has more than {max_values} values")
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        value = _decoder.decode(text)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the text is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        comma = ""
        if error.doc[error.pos : error.pos + 1] in ("}", "]") and error.doc[: error.pos].rstrip().endswith(","):
            comma = ": no comma comes after the last one"
        raise InvalidJson(f"{error.msg}{comma} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise InvalidJson(f"nesting is deeper than {max_depth} levels") from None
    if text.count("[") + text.count("{") > max_depth:
        nested = _structure(text.encode()).translate(_ONE_KIND, b'",')
        for _ in range(max_depth):  # each round removes the innermost level
            nested = nested.replace(b"[]", b"")
        if nested:
            raise InvalidJson(f"nesting is deeper than {max_depth} levels")
    return value


def dumps(value: Any, *, sort: bool = False, option: int = 0) -> bytes:
    """The JSON text of a value from `loads`, without white space; with `sort`, the names of objects are sorted."""
    return orjson.dumps(value, default=_default, option=option | orjson.OPT_SORT_KEYS if sort else option)


def _default(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value))
    if isinstance(value, msgspec.Raw):
        return orjson.Fragment(bytes(value))
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise InvalidJson(f"the name {shortened(twice)!r} occurs twice in one object")
    return value


def _integer(literal: str) -> int:
    if len(literal) > LONGEST_NUMBER or not SMALLEST_INTEGER <= (number := int(literal)) <= LARGEST_INTEGER:
        raise InvalidJson(f"the number {shortened(literal)} is out of range: integers are of 64 bits")
    return number


def _decimal(literal: str) -> Decimal:
    if len(literal) <= LONGEST_NUMBER:
        double = float(literal)
        try:
            number = Decimal(literal)
        except InvalidOperation:  # an exponent of so many digits is none, even of zero
            double = inf
        if abs(double) != inf and (double or not number):
            return number
    raise InvalidJson(f"the number {shortened(literal)} is out of range: numbers are of the range of a double")


def _constant(name: str) -> Any:
    raise InvalidJson(f"{name} is not a JSON number")


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_decimal, parse_constant=_constant
)


# The value of a JSON text that `dumps` wrote. It is `loads` without the checks, and several times as fast.
decoded: Callable[[Buffer], Any] = msgspec.json.Decoder(float_hook=Decimal).decode
# The members of an object that `dumps` wrote, by name: the JSON text of each, which `dumps` accepts as a value.
# They are not parsed further: 1 MiB takes 2 ms.
cut: Callable[[Buffer], Mapping[str, Buffer]] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# The value of a JSON text that `dumps` wrote, where the elements and members are such texts.
outermost: Callable[[Buffer], Any] = msgspec.json.Decoder(
    dict[str, msgspec.Raw] | list[msgspec.Raw] | str | int | float | bool | None
).decode


def joined(members: Mapping[str, Buffer]) -> bytes:
    """The text of an object of these members."""
    return b"{" + b",".join([b"%b:%b" % (orjson.dumps(name), text) for name, text in members.items()]) + b"}"


def equal(one: Buffer, other: Buffer) -> bool:
    """Whether two texts of `dumps` have equal values: true is not 1, and names of an object have no order."""
    one, other = bytes(one), bytes(other)
    if one == other:
        return True
    if len(one) != len(other) or count_values(one) != count_values(other):
        return False  # another order would be as long, and have as many
    return dumps(decoded(one), sort=True) == dumps(decoded(other), sort=True)


def count_values(data: bytes) -> int:
    """The number of values in a JSON text that `dumps` wrote: objects, arrays and their members."""
    plain = b'"'.join(_unescaped(data).split(b'"')[::2])  # without the content of strings
    empty = plain.count(b"[]") + plain.count(b"{}")
    return 1 + plain.count(b",") + plain.count(b"[") + plain.count(b"{") - empty


def _structure(data: bytes) -> bytes:
    """A JSON text without numbers, names and white space; of a string a quotation mark is left."""
    return b'"'.join(_unescaped(data).translate(None, _NOT_STRUCTURE).split(b'"')[::2])


def _unescaped(data: bytes) -> bytes:
    """A JSON text without escaped quotation marks, so that each one begins or ends a string."""
    return data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data


def faults_in_values(value: Any) -> Iterator[dict[str, str]]:
    """What no JSON text of ours has: `pointer` (RFC 6901) and `detail` of each.

    It is a string, names included, with NUL or an unpaired surrogate, or a number out of the range of `loads`.
    """
    path: list[str | int] = []
    return ({"pointer": pointer(path), "detail": wrong} for wrong in _wrong_in(value, path))


def _wrong_in(value: Any, path: list[str | int]) -> Iterator[str]:
    """What is wrong with each value; `path` is then the path to it."""
    if isinstance(value, str):
        if wrong := "NUL" if "\0" in value else "an unpaired surrogate" if _SURROGATE.search(value) else "":
            yield f"must not hold {wrong}"
        return
    is_integer = isinstance(value, int) or (isinstance(value, Decimal) and value.as_tuple().exponent == 0)
    if is_integer and not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
        yield "must be an integer of 64 bits"
    if isinstance(value, float | Decimal) and not _is_in_range(value):
        yield "must be in the range of a double"
    if isinstance(value, dict):
        for name in value:
            yield from _wrong_in(name, path)
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for step, inner in members:
        path.append(step)
        yield from _wrong_in(inner, path)
        path.pop()


def _is_in_range(value: float | Decimal) -> bool:
    is_signal = isinstance(value, Decimal) and value.is_snan()  # which raises where it is used
    return not is_signal and isfinite(value) and (not value or float(value) != 0)


def require_numbers(*values: Any) -> None:
    """Raises EncodeError for a number in these that is out of the range of `loads`: `dumps` makes null of some."""
    for value in values:
        if isinstance(value, dict):
            require_numbers(*value.values())
        elif isinstance(value, _ARRAYS):
            require_numbers(*value)
        elif isinstance(value, _FRACTIONS) and not _is_in_range(value):
            raise EncodeError(f"{value} is no number of JSON")


def pointer(path: Iterable[object]) -> str:
    """The pointer of a path, as a URI fragment (RFC 6901, sections 3 and 6). Long steps end in "…"."""
    found = "#"
    for step in path:
        if len(found) > LONGEST_POINTER:
            return f"{found}/{quote('…')}"
        name = shortened(str(step)).replace("~", "~0").replace("/", "~1")
        found += f"/{quote(name, safe=_FRAGMENT, errors='replace')}"
    return found


Fault = dict[str, Any]


def fault(path: Iterable[object], detail: str) -> Fault:
    """A fault of the value at a path."""
    return {"pointer": pointer(path), "detail": detail}


def faults_in(messages: Mapping[Any, Any] | list[Any], path: tuple[object, ...] = ()) -> Iterator[Fault]:
    """marshmallow's nested messages as a flat list."""
    if isinstance(messages, list):
        yield from (fault(path, message) for message in messages)
        return
    for name, inner in messages.items():
        yield from faults_in(inner, path if name == "_schema" else (*path, name))


def listed(faults: Iterable[Fault]) -> list[Fault]:
    """The faults that one response lists, and one more, which shows that there are others."""
    return list(islice(faults, MOST_FAULTS + 1))


def require_none(faults: list[Fault]) -> None:
    """Raises ValidationFailed if there are faults: a summary of the first, and a list with pointers."""
    if not faults:
        return
    raise ValidationFailed(summary(faults), errors=faults[:MOST_FAULTS])


def summary(faults: Sequence[Fault]) -> str:
    """The first faults in one line, and how many more there are."""
    shown = [f"{_subject(each['pointer'][2:])} {each['detail']}" for each in faults[:3]]
    if len(faults) > MOST_FAULTS:
        shown.append(f"and more than {MOST_FAULTS - 3} more")
    elif len(faults) > 3:
        shown.append(f"and {len(faults) - 3} more")
    return "; ".join(shown)


def _subject(pointer: str) -> str:
    """What a pointer without its "#/" is of, in words: "the body", "price", or in an array "item 0/price"."""
    return f"item {pointer}" if pointer[:1].isdecimal() else pointer or "the body"


def merge_patch(target: Any, patch: Any) -> Any:
    """Section 2: null deletes, objects recurse, everything else replaces.

    A target may be the text of a value; only its objects that the patch names are parsed.
    """
    if not isinstance(patch, dict):
        return patch
    if isinstance(target, Buffer):
        target = cut(target) if bytes(target)[:1] == b"{" else None
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged

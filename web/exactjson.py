"""JSON that loses nothing: decimals stay decimal, and what programs do not agree on is refused (RFC 8259, RFC 7493).

Numbers with a fraction or an exponent are read as `Decimal` and written back as such, never through a binary float.
"""

import json
import re
from collections import Counter
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import quote

import orjson

from errors import InvalidJson

LARGEST_INTEGER = 2**63 - 1  # what stores and typed clients hold
LONGEST_NUMBER = 100  # characters; far beyond any quantity, far below what is slow to convert

_FRAGMENT = "!$&'()*+,;=:@/?~"  # besides letters and digits, what a fragment holds unescaped (RFC 3986)
_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(data: bytes | str, max_depth: int = 200) -> Any:
    """The value of a JSON text.

    Raises InvalidJson for malformed text, a name twice in one object, NaN and infinities, numbers beyond 64-bit
    integers or the range of a double, and nesting deeper than `max_depth` (an array or object is one level).
    A string may hold what JSON's grammar allows and is no text: see `faults_of_text`.
    """
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        value = _decoder.decode(text)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the body is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise InvalidJson(f"{error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise InvalidJson(f"nesting is deeper than {max_depth} levels") from None
    if text.count("[") + text.count("{") > max_depth and _depth(value) > max_depth:
        raise InvalidJson(f"nesting is deeper than {max_depth} levels")
    return value


def dumps(value: Any, *, sort: bool = False) -> bytes:
    """The JSON text of a value as `loads` returns it, without white space; with `sort`, names in one order."""
    return orjson.dumps(value, default=_default, option=orjson.OPT_SORT_KEYS if sort else None)


def _default(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise InvalidJson(f"the name {twice[:100]!r} occurs twice in one object")
    return value


def _integer(literal: str) -> int:
    if len(literal) > LONGEST_NUMBER or abs(number := int(literal)) > LARGEST_INTEGER:
        raise InvalidJson(f"the number {_shown(literal)} is out of range: integers are of 64 bits")
    return number


def _decimal(literal: str) -> Decimal:
    if len(literal) <= LONGEST_NUMBER:
        double = float(literal)
        with suppress(InvalidOperation):  # an exponent of so many digits is none, even of zero
            number = Decimal(literal)
            if abs(double) != float("inf") and (double or not number):
                return number
    raise InvalidJson(f"the number {_shown(literal)} is out of range: numbers are of the range of a double")


def _constant(name: str) -> Any:
    raise InvalidJson(f"{name} is not a JSON number")


def _shown(literal: str) -> str:
    return literal if len(literal) <= 40 else f"{literal[:40]}…"


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_decimal, parse_constant=_constant
)


def _depth(value: Any) -> int:
    """Levels of arrays and objects, counted breadth first: what is deep must not need a deep stack."""
    levels, nodes = 0, [value]
    while nodes := [node for node in nodes if isinstance(node, (dict, list))]:
        levels += 1
        nodes = [child for node in nodes for child in (node.values() if isinstance(node, dict) else node)]
    return levels


def faults_of_text(value: Any, pointer: str = "#") -> list[dict[str, str]]:
    """Where strings, names too, hold NUL or an unpaired surrogate: `pointer` (RFC 6901) and `detail` of each."""
    return [] if _is_text(value) else _faults_of_text(value, pointer)


def _is_text(value: Any) -> bool:
    """Whether there is nothing to find; most often, and then no pointer need be made."""
    if isinstance(value, str):
        return "\0" not in value and not _SURROGATE.search(value)
    if isinstance(value, dict):
        return all(map(_is_text, value)) and all(map(_is_text, value.values()))
    return not isinstance(value, list) or all(map(_is_text, value))


def _faults_of_text(value: Any, pointer: str) -> list[dict[str, str]]:
    if isinstance(value, str):
        wrong = "NUL" if "\0" in value else "an unpaired surrogate" if _SURROGATE.search(value) else None
        return [{"pointer": pointer, "detail": f"must not hold {wrong}"}] if wrong else []
    if isinstance(value, list):
        return [fault for n, item in enumerate(value) for fault in _faults_of_text(item, f"{pointer}/{n}")]
    if isinstance(value, dict):
        names = [fault for name in value for fault in _faults_of_text(name, pointer)]
        return names + [fault for name, item in value.items() for fault in _faults_of_text(item, step(pointer, name))]
    return []


def step(pointer: str, name: str) -> str:
    """The pointer to a member, as a URI fragment (RFC 6901, sections 3 and 6)."""
    plain = str(name).replace("~", "~0").replace("/", "~1")
    return f"{pointer}/{quote(plain, safe=_FRAGMENT, errors='replace')}"

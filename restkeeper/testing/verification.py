"""What a test expects of a request, and sends: where it differs, and what JSON has not."""

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from itertools import islice
from math import inf
from typing import Any
from urllib.parse import parse_qsl

from restkeeper.web import exactjson

__tracebackhide__ = True  # a failure is shown at the line of the test
ANY = object()  # JSON value
MOST_DIFFERENCES = 5
LONGEST = 300  # characters of a value


def nearest(requests: Iterable[Any], method: str, path: str) -> Any:
    """The request whose method and path are most like these, the last one of several; None without any."""
    wanted = f"{method} {path}"
    ratios = {each.number: SequenceMatcher(None, wanted, f"{each.method} {each.path}").ratio() for each in requests}
    return max(requests, key=lambda each: (ratios[each.number], each.number), default=None)


def differences(
    sent: Any, expected: Any = ANY, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> list[str]:
    """What of a request is not as expected: its JSON value, and some of its query and of its fields, as patterns."""
    found = []
    for kind, patterns, given in (("query", query, parse_qsl(sent.query)), ("field", headers, sent.headers.items())):
        for name, pattern in (patterns or {}).items():
            values = [value for key, value in given if key.lower() == name.lower()]
            if not any(fnmatchcase(value, str(pattern)) for value in values):
                found.append(f"{kind} {name} is {', '.join(values) or 'left out'}, not {pattern}")
    if expected is ANY:
        return found
    if "body" in sent.cut:
        return [*found, "its content is too long to be compared"]
    try:
        value = json.loads(sent.body, parse_float=Decimal)
    except ValueError:
        return [*found, f"its content is no JSON: {sent.body[:LONGEST]!r}"]
    exact = json.loads(exactjson.dumps(expected), parse_float=Decimal)
    return found + [*islice(_unequal(value, exact, "#"), MOST_DIFFERENCES)]


def _unequal(found: Any, expected: Any, at: str) -> Iterator[str]:
    """Where two JSON values differ, by JSON Pointers."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for name in {**expected, **found}:
            yield from _unequal(found.get(name, ANY), expected.get(name, ANY), f"{at}/{name}")
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _unequal(one, other, f"{at}/{number}")
    elif found != expected or isinstance(found, bool) != isinstance(expected, bool):
        yield f"{at} is {_shown(found)}, not {_shown(expected)}"


def require_json(value: Any, at: str = "#") -> None:
    """Raises ValueError, with a JSON Pointer, for a number that JSON has not: it would be sent as null."""
    if isinstance(value, Mapping | list | tuple):
        for name, each in value.items() if isinstance(value, Mapping) else enumerate(value):
            require_json(each, f"{at}/{name}")
    elif isinstance(value, float | Decimal) and (value != value or value in (inf, -inf)):
        raise ValueError(f"{at}: {value} is no number of JSON")


def _shown(value: Any) -> str:
    return "left out" if value is ANY else exactjson.dumps(value).decode()[:LONGEST]

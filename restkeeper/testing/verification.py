"""What a test expects of a request, and where that differs."""

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from typing import Any
from urllib.parse import unquote_to_bytes

from restkeeper.features.harness.faults import is_at, is_like
from restkeeper.web import exactjson

ANY = object()  # JSON value
MOST_DIFFERENCES = 5
LONGEST = 300  # characters of a value


def differences(sent: Any, query: str, expected: Any) -> list[str]:
    """What of a request is not as expected: its query, a pattern, or its JSON value."""
    found = [] if is_like(sent.query, query) else [f"its query is {sent.query!r}, not {query!r}"]
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


def misplaced(sent: Any, method: str, path: str) -> list[str]:
    """What of a request's method and path is not as expected, patterns with `*`."""
    found = [] if is_like(sent.method, method.upper()) else [f"its method is {sent.method}, not {method.upper()}"]
    return found if is_at(unquote_to_bytes(sent.path), path) else [*found, f"its path is {sent.path}, not {path}"]


def _unequal(found: Any, expected: Any, at: str) -> Iterator[str]:
    """Where two JSON values differ, by JSON Pointers."""
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        found, expected = dict(enumerate(found)), dict(enumerate(expected))
    if isinstance(found, dict) and isinstance(expected, dict):
        for name in {**expected, **found}:
            yield from _unequal(found.get(name, ANY), expected.get(name, ANY), f"{at}/{name}")
    elif found != expected or isinstance(found, bool) != isinstance(expected, bool):
        one, other = ("left out" if each is ANY else exactjson.dumps(each).decode() for each in (found, expected))
        yield f"{at} is {one[:LONGEST]}, not {other[:LONGEST]}"

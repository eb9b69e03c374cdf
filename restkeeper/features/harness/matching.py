"""Whether a request matches the declaration of a fault or a stub, or the expectation of a test; and where it differs.

An expected request has `method`, `path` and `request_headers`, patterns with `*`, and the parameters `request_query`;
perhaps also `request_json`, whose objects may have further members if it `is_partial`. See documents.StubSchema.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from restkeeper import exactjson
from restkeeper.errors import Problem

VERSION = re.compile(r"/api/v\d+(?=/)")
MOST_DIFFERENCES = 5
LONGEST = 300  # characters of a value
_NOTHING = object()


def is_like(text: str, pattern: str) -> bool:
    """Whether a text matches a pattern: `*` stands for any characters; `[` and all others stand for themselves."""
    return fnmatchcase(text, re.sub(r"[?[]", r"[\g<0>]", pattern))


def is_at(path: bytes, pattern: str) -> bool:
    """Whether a path, in any version of the API, matches a pattern with `*`, which can be percent-encoded."""
    text, pattern = path.decode(errors="replace"), unquote(pattern)
    return is_like(text, pattern) or is_like(VERSION.sub("", text, 1), pattern)


def is_for(sent: Any, expected: Any) -> bool:
    """Whether a request is as expected."""
    return not any(_misplaced(sent, expected)) and not any(_differences(sent, expected))


def unlike(sent: Any, expected: Any) -> list[str]:
    """The differences to the expected request, in words; another method or path goes before all others."""
    return [*_misplaced(sent, expected)] or [*_differences(sent, expected)]


def count_requests(requests: list[Any], expected: Any) -> dict[str, Any]:
    """Whether there are from `at_least` to `at_most` (None: any number) such requests, see documents.VerdictSchema."""
    numbers = [sent.number for sent in requests if is_for(sent, expected)]
    least, most = expected.at_least, expected.at_most
    message, count = None, len(numbers)
    if most is not None and requests and requests[0].number > 1:
        message = f"how many is not known: only the requests from number {requests[0].number} on are kept"
    elif count < least or (most is not None and count > most):
        message = f"{_amount(least, most)} {expected.method} {expected.path} expected, and {count} found"
        message += "" if count else _nearest(requests, expected)
    return {"message": message, "numbers": numbers}


def _amount(least: int, most: int | None) -> str:
    if most is None:
        return "a" if least == 1 else f"at least {least}"
    return str(least) if least == most else f"{least} to {most}" if least else f"at most {most}"


def _nearest(requests: list[Any], expected: Any) -> str:
    """The request that differs least, the last one of several."""
    if not requests:
        return ""
    at_place = [sent for sent in requests if not any(_misplaced(sent, expected))]
    sent = min(reversed(at_place or requests), key=lambda sent: len(unlike(sent, expected)))
    nearest = f"number {sent.number}, {sent.method} {quote(sent.path)} {sent.status or 'without a response'}"
    return f"; the nearest is {nearest}: {'; '.join(unlike(sent, expected))}"


def _misplaced(sent: Any, expected: Any) -> Iterator[str]:
    if not is_like(sent.method, expected.method.upper()):
        yield f"its method is {sent.method}, not {expected.method.upper()}"
    if not is_at(sent.path, expected.path):
        yield f"its path is {quote(sent.path)}, not {expected.path}"


def _differences(sent: Any, expected: Any) -> Iterator[str]:
    if not is_like(sent.query, text := getattr(expected, "query_text", "*")):
        yield f"its query is {sent.query!r}, not {text!r}"
    query = parse_qs(sent.query, keep_blank_values=True, max_num_fields=None)
    headers = {name.lower(): [value] for name, value in sent.headers.items()}
    kinds = ("parameter", query, expected.request_query), ("field", headers, expected.request_headers)
    for kind, values, expectations in kinds:
        for name, value in expectations.items():
            texts, patterns = values.get(name.lower() if kind == "field" else name, []), _texts(value)
            if len(texts) != len(patterns) or not all(map(is_like, texts, patterns)):
                one, other = (", ".join(values)[:LONGEST] or "left out" for values in (texts, patterns))
                yield f"its {kind} {name} is {one}, not {other}"
    if hasattr(expected, "request_json"):
        yield from islice(_unequal_content(sent, expected), MOST_DIFFERENCES)


def _texts(value: Any) -> list[str]:
    """The values of a parameter as texts of a query; null, which is left out, has none."""
    values = [] if value is None else value if isinstance(value, list) else [value]
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


def _unequal_content(sent: Any, expected: Any) -> Iterator[str]:
    if "body" in sent.cut:
        yield "its content is too long to be compared"
        return
    body = sent.content.getvalue()
    try:
        value = exactjson.loads(body)
    except Problem:
        yield f"its content is no JSON: {body.decode(errors='replace')[:LONGEST]!r}"
        return
    yield from _unequal(value, expected.request_json, "#", expected.is_partial)


def _unequal(sent: Any, expected: Any, at: str, partial: bool) -> Iterator[str]:
    """Where two JSON values differ, by JSON Pointers; `partial` objects have the members that are expected."""
    if isinstance(sent, list) and isinstance(expected, list) and len(sent) == len(expected):
        for number, (one, other) in enumerate(zip(sent, expected, strict=True)):
            yield from _unequal(one, other, f"{at}/{number}", partial)
    elif isinstance(sent, dict) and isinstance(expected, dict):
        for name in expected if partial else {**expected, **sent}:
            yield from _unequal(sent.get(name, _NOTHING), expected.get(name, _NOTHING), f"{at}/{name}", partial)
    elif sent != expected or isinstance(sent, bool) != isinstance(expected, bool):
        one, other = (
            "left out" if value is _NOTHING else exactjson.dumps(value).decode() for value in (sent, expected)
        )
        yield f"{at} is {one[:LONGEST]}, not {other[:LONGEST]}"

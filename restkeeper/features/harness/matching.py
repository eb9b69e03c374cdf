"""Whether a request is one for which a fault or a stub was declared, or one that a test expects; and where it differs.

What is wanted has `method`, `path` and `request_headers`, patterns with `*`; `request_query`, parameters as values, and
perhaps `request_json`, of which objects may have further members if it `is_partial`. See control.StubSchema.
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
    """Whether a text is that of a pattern: `*` stands for any characters, all others, such as `[`, for themselves."""
    return fnmatchcase(text, re.sub(r"[?[]", r"[\g<0>]", pattern))


def is_at(path: bytes, pattern: str) -> bool:
    """Whether a path, in any version of the API, is that of a pattern with `*`; this can be percent-encoded."""
    text, pattern = path.decode(errors="replace"), unquote(pattern)
    return is_like(text, pattern) or is_like(VERSION.sub("", text, 1), pattern)


def is_for(sent: Any, wanted: Any) -> bool:
    """Whether a request is as wanted."""
    return not any(_misplaced(sent, wanted)) and not any(_differences(sent, wanted))


def unlike(sent: Any, wanted: Any) -> list[str]:
    """What of a request is not as wanted, in words; if it is at another place, that alone."""
    return [*_misplaced(sent, wanted)] or [*_differences(sent, wanted)]


def count_requests(known: list[Any], wanted: Any) -> dict[str, Any]:
    """Whether the journal has from `at_least` to `at_most` (None: any number) such requests: control.VerdictSchema."""
    numbers, least, most = [sent.number for sent in known if is_for(sent, wanted)], wanted.at_least, wanted.at_most
    message, count = None, len(numbers)
    if most is not None and known and known[0].number > 1:
        message = f"how many is not known: only the requests from number {known[0].number} on are kept"
    elif count < least or (most is not None and count > most):
        message = f"{_amount(least, most)} {wanted.method} {wanted.path} expected, and {count} found"
        message += "" if count else _nearest(known, wanted)
    return {"message": message, "numbers": numbers}


def _amount(least: int, most: int | None) -> str:
    if most is None:
        return "a" if least == 1 else f"at least {least}"
    return str(least) if least == most else f"{least} to {most}" if least else f"at most {most}"


def _nearest(known: list[Any], wanted: Any) -> str:
    """The request that differs least, the last one of several."""
    if not known:
        return ""
    at_place = [sent for sent in known if not any(_misplaced(sent, wanted))]
    sent = min(reversed(at_place or known), key=lambda sent: len(unlike(sent, wanted)))
    place = f"number {sent.number}, {sent.method} {quote(sent.path)} {sent.status or 'without a response'}"
    return f"; the nearest is {place}: {'; '.join(unlike(sent, wanted))}"


def _misplaced(sent: Any, wanted: Any) -> Iterator[str]:
    if not is_like(sent.method, wanted.method.upper()):
        yield f"its method is {sent.method}, not {wanted.method.upper()}"
    if not is_at(sent.path, wanted.path):
        yield f"its path is {quote(sent.path)}, not {wanted.path}"


def _differences(sent: Any, wanted: Any) -> Iterator[str]:
    if not is_like(sent.query, text := getattr(wanted, "query_text", "*")):
        yield f"its query is {sent.query!r}, not {text!r}"
    query = parse_qs(sent.query, keep_blank_values=True, max_num_fields=None)
    headers = {name.lower(): [value] for name, value in sent.headers.items()}
    for kind, values, given in (("parameter", query, wanted.request_query), ("field", headers, wanted.request_headers)):
        for name, value in given.items():
            found, patterns = values.get(name.lower() if kind == "field" else name, []), _texts(value)
            if len(found) != len(patterns) or not all(map(is_like, found, patterns)):
                one, other = (", ".join(texts)[:LONGEST] or "left out" for texts in (found, patterns))
                yield f"its {kind} {name} is {one}, not {other}"
    if hasattr(wanted, "request_json"):
        yield from islice(_unequal_content(sent, wanted), MOST_DIFFERENCES)


def _texts(value: Any) -> list[str]:
    """What a parameter's values are in a query; those of null, which is left out, are none."""
    values = [] if value is None else value if isinstance(value, list) else [value]
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


def _unequal_content(sent: Any, wanted: Any) -> Iterator[str]:
    if "body" in sent.cut:
        yield "its content is too long to be compared"
        return
    body = sent.content.getvalue()
    try:
        value = exactjson.loads(body)
    except Problem:
        yield f"its content is no JSON: {body.decode(errors='replace')[:LONGEST]!r}"
        return
    yield from _unequal(value, wanted.request_json, "#", wanted.is_partial)


def _unequal(found: Any, expected: Any, at: str, partial: bool) -> Iterator[str]:
    """Where two JSON values differ, by JSON Pointers; `partial` objects have the members that are expected."""
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _unequal(one, other, f"{at}/{number}", partial)
    elif isinstance(found, dict) and isinstance(expected, dict):
        for name in expected if partial else {**expected, **found}:
            yield from _unequal(found.get(name, _NOTHING), expected.get(name, _NOTHING), f"{at}/{name}", partial)
    elif found != expected or isinstance(found, bool) != isinstance(expected, bool):
        one, other = (
            "left out" if value is _NOTHING else exactjson.dumps(value).decode() for value in (found, expected)
        )
        yield f"{at} is {one[:LONGEST]}, not {other[:LONGEST]}"

"""The wire habits of others' clients, turned into ours, so that they work unmodified.

ra-data-json-server, json-server 0.17 and refine's simple-rest (`_start`, `_end`, `_sort`, `_order`, `_page`, `_limit`,
`field_gte`), and ra-data-simple-rest (`sort=["id","ASC"]`, `range=[0,9]`, `filter={…}`, `Content-Range`). This module
rewrites `request.args` before a list reads them, and adds `Content-Range` when a client asked in that way. Take it out
(and its line in `app.py`) and all else stands.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson
from flask import Flask, Response, g, request
from werkzeug.datastructures import ImmutableMultiDict

from errors import InvalidQuery
from storage.contract import Collection

_SUFFIXED = re.compile(r"(\w+?)_(ne|gt|gte|lt|lte|like|in)")
_RANGE = re.compile(r"\w+=(\d{1,9})-(\d{1,9})")

Pairs = list[tuple[str, str]]


def install(app: Flask, collections: Mapping[str, Collection]) -> None:
    """Translate the queries of GET requests to lists; `collections` by the endpoint that lists each."""

    def translate() -> None:
        environ = request.environ
        if not environ.get("QUERY_STRING") and "HTTP_RANGE" not in environ:
            return
        if request.method not in ("GET", "HEAD") or (collection := collections.get(request.endpoint or "")) is None:
            return
        pairs = _simple_rest(list(request.args.items(multi=True)), environ.get("HTTP_RANGE"), collection)
        pairs = _json_server(pairs, collection)
        request.args = ImmutableMultiDict(pairs)

    def tell_range(response: Response) -> Response:
        """`Content-Range: products 0-9/42`, which ra-data-simple-rest takes the total from."""
        if (name := g.get("ranged")) and response.status_code == 200:
            total, offset = response.headers.get("X-Total-Count", "*"), int(request.args.get("offset", 0))
            shown = len(orjson.loads(response.get_data()))
            place = f"{offset}-{offset + shown - 1}" if shown else "*"
            response.headers["Content-Range"] = f"{name} {place}/{total}"
        return response

    app.before_request(translate)
    app.after_request(tell_range)


def _simple_rest(pairs: Pairs, header: str | None, collection: Collection) -> Pairs:
    """ra-data-simple-rest: three parameters in JSON, and a Range header."""
    values = dict(pairs)
    if not (header or values.get("sort", "").startswith("[") or "range" in values or "filter" in values):
        return pairs
    ours = [(name, value) for name, value in pairs if name not in ("range", "filter")]
    span = None
    if "range" in values:
        span = _json(values["range"], "range", list)
    elif header and (found := _RANGE.fullmatch(header)):
        span = [int(found[1]), int(found[2])]
    if span is not None:
        if len(span) != 2 or not all(type(end) is int for end in span) or not 0 <= span[0] <= span[1]:
            raise _fault("range", "must be [first, last], both counted from 0")
        ours += [("offset", str(span[0])), ("limit", str(span[1] - span[0] + 1))]
        g.ranged = collection.name
    if values.get("sort", "").startswith("["):
        key = _json(values["sort"], "sort", list)
        if len(key) != 2 or not all(isinstance(part, str) for part in key):
            raise _fault("sort", 'must be ["field", "ASC" or "DESC"]')
        ours = [(name, value) for name, value in ours if name != "sort"] + [("sort", _key(*key))]
    if "filter" in values:
        for name, wanted in _json(values["filter"], "filter", dict).items():
            ours += [(name, _text(each)) for each in (wanted if isinstance(wanted, list) else [wanted])]
    return ours


def _json_server(pairs: Pairs, collection: Collection) -> Pairs:
    """json-server and those that speak like it: parameters that begin with `_`, operators behind a field's name."""
    ours: Pairs = []
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in ("_start", "_end", "_limit", "_page", "_sort", "_order"):
            given[name] = value
        elif name not in collection.fields and (parts := _SUFFIXED.fullmatch(name)) and parts[1] in collection.fields:
            ours.append((f"{parts[1]}[{parts[2]}]", value))
        else:
            ours.append((name, value))
    if "_sort" in given:
        orders = [*given.get("_order", "").split(",")]
        fields = given["_sort"].split(",")
        orders += ["asc"] * (len(fields) - len(orders))
        ours.append(("sort", ",".join(_key(field, order) for field, order in zip(fields, orders, strict=False))))
    return ours + _stretch(given)


def _stretch(given: Mapping[str, str]) -> Pairs:
    numbers = {}
    for name in given.keys() & {"_start", "_end", "_limit", "_page"}:
        if not given[name].isdecimal() or len(given[name]) > 9:
            raise _fault(name, "must be a whole number")
        numbers[name] = int(given[name])
    if "_page" in numbers:
        limit = numbers.get("_limit", 10)  # json-server's own page
        return [("offset", str(max(0, numbers["_page"] - 1) * limit)), ("limit", str(limit))]
    start = numbers.get("_start", 0)
    stretch = [("offset", str(start))] if numbers.keys() & {"_start", "_end"} else []
    if "_end" in numbers:
        return [*stretch, ("limit", str(max(1, numbers["_end"] - start)))]
    return [*stretch, ("limit", str(numbers["_limit"]))] if "_limit" in numbers else stretch


def _key(field: str, order: str) -> str:
    return f"-{field}" if order.lower() == "desc" else field


def _json(text: str, name: str, kind: type) -> Any:
    try:
        value = orjson.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        raise _fault(name, f"must be a JSON {'array' if kind is list else 'object'}")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _fault(name: str, detail: str) -> InvalidQuery:
    return InvalidQuery(f"{name} {detail}", errors=[{"parameter": name, "detail": detail}])

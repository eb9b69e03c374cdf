"""The query dialects of other clients, translated into ours, so that these clients work unmodified.

    their query                                 our query                    clients
    _start=20&_end=30                           offset=20&limit=10           ra-data-json-server, refine's simple-rest
    _page=3&_limit=10, _start=20&_limit=10      offset=20&limit=10           json-server 0.17
    _sort=price,name&_order=DESC,ASC            sort=-price,name             all three
    price_gte=5                                 price[gte]=5                 all three
    _embed=orders&_expand=customer              embed=orders&embed=customer  json-server 0.17, ra-data-json-server
    range=[20,29]                               offset=20&limit=10           ra-data-simple-rest
    sort=["price","DESC"]                       sort=-price                  ra-data-simple-rest
    filter={"status":"draft","tags":["a","b"]}  status=draft&tags=a&tags=b   ra-data-simple-rest
    embed=["orders","customer"]                 embed=orders&embed=customer  ra-data-simple-rest

The response to `range` has `Content-Range: products 20-29/42`, from which its client reads the total. The client's
Range header has the same content and is ignored.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import orjson
from flask import Response, after_this_request, request
from werkzeug.datastructures import ImmutableMultiDict

from restkeeper.errors import InvalidQuery
from restkeeper.parsing import whole
from restkeeper.resources.items import MOST_COUNTED
from restkeeper.resources.representation import Representation
from restkeeper.service import Service
from restkeeper.web.application import Application
from restkeeper.web.operations import DIALECTS, Contribution

# The parameters of json-server and similar clients; all other names are fields.
_PAGING = ("_start", "_end", "_page", "_limit")
_RELATIONS = ("_embed", "_expand")
_UNDERSCORED = (*_PAGING, "_sort", "_order", *_RELATIONS)
_OPERATOR = re.compile(r"(\w+?)(_ne|_gte?|_lte?|_like|_in)", re.ASCII)

# The parameters of ra-data-simple-rest, in JSON, with the first characters of their values.
_IN_JSON: Mapping[str, tuple[str, ...]] = {"range": ("[",), "sort": ("[",), "filter": ("{",), "embed": ("[", '"')}

# Whether a query may contain any of these: our own queries cost only this one search.
_DIALECT = re.compile(rf"(?:{'|'.join(_UNDERSCORED)}|_ne|_gte?|_lte?|_like|_in)=|=(?:%5[Bb]|%7[Bb]|%22|[\[{{\"])")

PAGE = 10  # items, json-server's default
_WHOLE = whole(0, 999_999_999)
NOTHING = ("id[lt]", "")  # no id sorts before the empty text

Pairs = list[tuple[str, str]]
Given = Mapping[str, str]


def install(app: Application, service: Service) -> None:
    """Accept the query dialects of other clients for lists."""
    service.hooks.before_read.append(translate)
    names = {DIALECTS: ["json-server", "ra-data-simple-rest"]}
    service.contributions.append(Contribution(build=lambda description: description.options.update(names)))


def translate(representation: Representation) -> None:
    """Translate the query of the current request, which is for items in this representation.

    Raises InvalidQuery for errors of the other dialect; the reader checks the rest.
    """
    if not (query := request.environ.get("QUERY_STRING")) or not _DIALECT.search(query):
        return
    ours, theirs = _split(request.args.items(multi=True), representation)
    ours = [(_with_operator(name, representation), value) for name, value in [*ours, *_filters(theirs)]]
    stretch = dict(_stretch(theirs))
    if stretch:
        offset, limit = stretch.get("offset", 0), stretch.get("limit", 0)
        name = representation.name if "range" in theirs else ""
        after_this_request(lambda response: _with_total(response, offset, limit, name))
    numbers = ((name, str(number)) for name, number in stretch.items())
    request.args = ImmutableMultiDict([*ours, *_sort(theirs), *_embed(theirs), *numbers])


def _split(pairs: Iterable[tuple[str, str]], representation: Representation) -> tuple[Pairs, dict[str, str]]:
    """The parameters that stay, and those to translate."""
    ours: Pairs = []
    theirs: dict[str, str] = {}
    for name, value in pairs:
        underscored = name in _UNDERSCORED and name not in representation.names
        if name in _RELATIONS and underscored:
            ours.append(("embed", value))
        elif not underscored and not value.startswith(_IN_JSON.get(name, ())):
            ours.append((name, value))
        elif name in theirs:
            raise _fault(name, "is given more than once")
        else:
            theirs[name] = value
    return ours, theirs


def _with_operator(name: str, representation: Representation) -> str:
    """`price_gte` as `price[gte]`, unless a field has that very name. A field that is refused is still one."""
    if (parts := _OPERATOR.fullmatch(name)) and name not in representation.names:
        if parts[1] in representation.names or parts[1] in representation.queryable.refused:
            return f"{parts[1]}[{parts[2][1:]}]"
    return name


def _stretch(theirs: Given) -> Iterator[tuple[str, int]]:
    """The offset and the limit. json-server's precedence: a page, or else an end, or else a limit."""
    numbers = {}
    for name in (each for each in _PAGING if each in theirs):
        try:
            numbers[name] = _WHOLE(theirs[name])
        except ValueError:
            raise _fault(name, "must be a whole number") from None
    start = numbers.get("_start", 0)
    if "_page" in numbers:
        limit = numbers.get("_limit", PAGE)
        yield from (("offset", max(0, numbers["_page"] - 1) * limit), ("limit", limit))
    elif "_end" in numbers:
        if numbers["_end"] <= start:
            raise _fault("_end", f"must be greater than _start, which is {start}: it is the first item after the page")
        yield from (("offset", start), ("limit", numbers["_end"] - start))
    elif numbers:
        yield "offset", start
        if "_limit" in numbers:
            yield "limit", numbers["_limit"]
    if "range" in theirs:
        match _json(theirs, "range"):
            case [int(first), int(last)] if 0 <= first <= last:
                yield from (("offset", first), ("limit", last - first + 1))
            case _:
                raise _fault("range", "must be [first, last], both counted from 0 and both included")


def _with_total(response: Response, offset: int, limit: int, name: str) -> Response:
    """A page with its total also where more items match than are counted: these clients need a number.

    With the name of the collection, it has a Content-Range, too (RFC 9110, section 14.4).
    """
    if response.status_code != 200:
        return response
    total = int(response.headers.get("X-Total-Count", max(MOST_COUNTED, offset + limit) + 1))
    response.headers["X-Total-Count"] = str(total)
    if name:
        position = "*" if response.content_length == len("[]") else f"{offset}-{min(offset + limit, total) - 1}"
        response.headers["Content-Range"] = f"{name} {position}/{total}"
    return response


def _sort(theirs: Given) -> Pairs:
    fields = theirs["_sort"].split(",") if theirs.get("_sort") else []
    orders = theirs.get("_order", "").split(",")[: len(fields)]
    keys = [_key("_order", field, order) for field, order in zip_longest(fields, orders)]
    if "sort" in theirs:
        match _json(theirs, "sort"):
            case [str(field), str(order)]:
                keys.append(_key("sort", field, order))
            case _:
                raise _fault("sort", 'must be ["field", "ASC"] or ["field", "DESC"]')
    return [("sort", ",".join(keys))] if keys else []


def _key(name: str, field: str, order: str | None) -> str:
    ways = {"asc": field, "desc": f"-{field}"}
    if (way := (order or "asc").lower()) not in ways:
        raise _fault(name, f"cannot be {order!r:.100}; there are: asc, desc")
    return ways[way]


def _embed(theirs: Given) -> Iterator[tuple[str, str]]:
    names = _json(theirs, "embed") if "embed" in theirs else []
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str):
            raise _fault("embed", "must be names of what to embed")
        yield "embed", name


def _filters(theirs: Given) -> Iterator[tuple[str, str]]:
    """A list of values matches items with any of them; an empty list matches none."""
    filters = _json(theirs, "filter") if "filter" in theirs else {}
    for name, value in filters.items():
        if value == []:
            yield NOTHING
        for each in value if isinstance(value, list) else [value]:
            if each is None or isinstance(each, (dict, list)):
                raise _fault("filter", f"has for {name!r:.100} neither a text, number or boolean nor a list of these")
            yield name, each if isinstance(each, str) else orjson.dumps(each).decode()


def _json(theirs: Given, name: str) -> Any:
    try:
        return orjson.loads(theirs[name])
    except ValueError:
        raise _fault(name, "must be JSON") from None


def _fault(name: str, detail: str) -> InvalidQuery:
    return InvalidQuery(f"{name} {detail}", errors=[{"parameter": name, "detail": detail}])

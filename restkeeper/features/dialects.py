"""The query dialects of other clients, translated into ours, so that these clients work unmodified.

    their query                                 our query                    clients
    _start=20&_end=30                           offset=20&limit=10           ra-data-json-server, refine's simple-rest
    _page=3&_limit=10, _start=20&_limit=10      offset=20&limit=10           json-server 0.17
    _sort=price,name&_order=DESC,ASC            sort=-price,name             all three
    price_gte=5                                 price[gte]=5                 all three
    _sort=-price,name                           sort=-price,name             json-server 1
    _page=3&_per_page=10                        offset=20&limit=10           json-server 1
    price:gte=5, name:contains=x                price[gte]=5, name[like]=x   json-server 1
    _where={"or":[{"price":5},{"stock":{"lt":2}}]}   or=(price="5",stock[lt]="2")   json-server 1
    _embed=orders&_expand=customer              embed=orders&embed=customer  json-server, ra-data-json-server
    range=[20,29]                               offset=20&limit=10           ra-data-simple-rest
    sort=["price","DESC"]                       sort=-price                  ra-data-simple-rest
    filter={"status":"draft","tags":["a","b"]}  status=draft&tags=a&tags=b   ra-data-simple-rest
    filter={"sku":null,"size":{"width":5}}      sku[is]=null&size.width=5    ra-data-simple-rest
    embed=["orders","customer"]                 embed=orders&embed=customer  ra-data-simple-rest
    id[]=1&id[]=2, id[0]=1&id[1]=2, _sort=…&_sort=…   id=1&id=2, sort=…      those that repeat an array's name

The response to `range` has `Content-Range: products 20-29/42`, from which its client reads the total. The client's
Range header has the same content and is ignored. The response to `_per_page` is an object around the list, as of
json-server 1. `_dependent=orders` deletes the orders that refer to the deleted item.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import orjson
from flask import Response, after_this_request, request
from werkzeug.datastructures import ImmutableMultiDict

from restkeeper.errors import InvalidQuery
from restkeeper.exactjson import JsonObject
from restkeeper.feature import Seams
from restkeeper.parsing import whole
from restkeeper.resources.filters import MAX_FILTERS, MOST_NESTED, clauses_of
from restkeeper.resources.items import MOST_COUNTED
from restkeeper.resources.parameters import FILTER, GROUPED
from restkeeper.resources.views import View
from restkeeper.service import Service
from restkeeper.storage.interface import FREE_NAME, Kind, root_of
from restkeeper.web import current_request
from restkeeper.web.bodies import JSON
from restkeeper.web.calls import current_call
from restkeeper.web.descriptions import DIALECTS
from restkeeper.web.operations import Contribution

# The parameters of json-server and similar clients; all other names are fields.
_PAGING = ("_start", "_end", "_page", "_limit", "_per_page")
_RELATIONS = ("_embed", "_expand")
_ORDER = ("_sort", "_order")  # with commas, or given repeatedly
_UNDERSCORED = (*_PAGING, *_ORDER, "_where", *_RELATIONS)
_AFTER_COLON = "eq|ne|gte?|lte?|in|contains|startsWith|endsWith"
_OPERATOR = re.compile(rf"({FREE_NAME}?(?:\.{FREE_NAME}?)*)(?:_(ne|gte?|lte?|like|in)|:({_AFTER_COLON}))")
_OPERATORS: Mapping[str, str] = {
    **{name: name for name in ("eq", "ne", "gt", "gte", "lt", "lte")},
    **{"contains": "like", "startsWith": "starts", "endsWith": "ends"},
    "in": "eq",  # in `_where` and `filter`, whose `in` has a list
}

# The parameters of ra-data-simple-rest, in JSON, with the first characters of their values.
_IN_JSON: Mapping[str, tuple[str, ...]] = {"range": ("[",), "sort": ("[",), "filter": ("{",), "embed": ("[", '"')}

_ELEMENT = re.compile(r"\[[0-9]{0,4}\]$")  # of an array, after its name: of jQuery, and of qs and axios

# Whether a query may contain any of these: our own queries cost only this one search.
_DIALECT = re.compile(
    rf"(?:{'|'.join(_UNDERSCORED)}|_ne|_gte?|_lte?|_like|_in|(?::|%3[Aa])(?:{_AFTER_COLON})"
    r"|(?:\[|%5[Bb])[0-9]{0,4}(?:\]|%5[Dd]))=|=(?:%5[Bb]|%7[Bb]|%22|[\[{\"])"
)

PAGE = 10  # items, json-server's default
_WHOLE = whole(0, 999_999_999)

_SIZING = {"limit", *GROUPED, "id", "id[eq]", "id[in]"}  # they say how many items a list has

Filter = tuple[str, str]  # a parameter of ours
Pairs = list[Filter]
Given = Mapping[str, str]
Clause = tuple[Filter, ...]  # of which one is enough


def install(service: Service) -> Seams:
    """Accept the query dialects of other clients for lists."""
    names = {DIALECTS: ["json-server", "ra-data-simple-rest"]}
    described = Contribution(build=lambda description: description.options.update(names))
    return Seams(query=(translate,), describe=(described,))


def translate(view: View, most: int) -> None:
    """Translate the query of the current request, which is for items in this view.

    Of a deletion, note the collections whose items are to be deleted, too.

    `most` is the number of items that a page of the list can have, or 0 for one item. A list in their words, which has
    one of their parameters or operators, has all items up to that number, as in json-server, unless it has a limit or
    ids. All other lists have the usual page.

    Raises InvalidQuery for errors of the other dialect; the reader checks the rest.
    """
    if not (query := current_request().environ.get("QUERY_STRING")):
        return
    if request.method == "DELETE":
        current_call().dependents = request.args.getlist("_dependent")
        return
    if not _DIALECT.search(query):
        return
    pairs = [(_ELEMENT.sub("", name), value) for name, value in request.args.items(multi=True)]
    ours, theirs = _split(pairs, view)
    ours = [(_with_operator(name, view), value) for name, value in ours]
    is_theirs = bool(theirs) or any(pair not in pairs for pair in ours)
    ours += _filters(_json(theirs, "filter") if "filter" in theirs else {}, view)
    if "_where" in theirs:
        if "or" not in view.queryable.reserved:
            raise _fault("_where", "cannot be used here: this list has a field called or")
        ours += _conditions(_clauses(_json(theirs, "_where")), view, {name for name, _ in ours})
    is_paged = bool(stretch := dict(_stretch(theirs)))
    if stretch.get("offset") == 0 and "limit" not in stretch:
        del stretch["offset"]  # a page from the first item can end early, and have a next one by cursor
    if most and is_theirs and "limit" not in stretch and _SIZING.isdisjoint(name for name, _ in ours):
        stretch["limit"] = most
    if is_paged:
        offset, limit = stretch.get("offset", 0), stretch.get("limit", 0)
        name = view.name if "range" in theirs else ""
        after_this_request(lambda response: _with_total(response, offset, limit, name))
        if "_per_page" in theirs:
            after_this_request(lambda response: _in_envelope(response, offset // max(limit, 1) + 1, limit))
    numbers = ((name, str(number)) for name, number in stretch.items())
    request.args = ImmutableMultiDict([*ours, *_sort(theirs), *_embed(theirs), *numbers])


def _nothing(view: View) -> Filter:
    """A filter that finds no items: no text sorts before the empty one, and no integer id is below 0."""
    fields = view.queryable.fields
    return ("id[lt]", "0" if "id" in fields and fields["id"].kind is Kind.SERIAL else "")


def _split(pairs: Iterable[tuple[str, str]], view: View) -> tuple[Pairs, dict[str, str]]:
    """The parameters that stay, and those to translate."""
    ours: Pairs = []
    theirs: dict[str, str] = {}
    for name, value in pairs:
        underscored = name in _UNDERSCORED and name not in view.names
        if name in _RELATIONS and underscored:
            ours.append(("embed", value))
        elif not underscored and not value.startswith(_IN_JSON.get(name, ())):
            ours.append((name, value))
        elif name not in theirs:
            theirs[name] = value
        elif name in _ORDER:
            theirs[name] += f",{value}"
        else:
            raise _fault(name, "is given more than once")
    return ours, theirs


def _with_operator(name: str, view: View) -> str:
    """`price_gte` and `price:gte` as `price[gte]`, unless a field has that very name. A refused field is still one.

    Names such as `opt_in` are so frequent that an undeclared one is no `opt` with an operator.
    """
    if (parts := _OPERATOR.fullmatch(name)) and name not in view.names:
        root, queryable = root_of(parts[1]), view.queryable
        is_free = queryable.is_open and parts[2] != "in"
        if is_free or root in view.names or root in queryable.refused:
            return f"{parts[1]}[{parts[2] or ('in' if parts[3] == 'in' else _OPERATORS[parts[3]])}]"
    return name


def _stretch(theirs: Given) -> Iterator[tuple[str, int]]:
    """The offset and the limit. json-server's precedence: a page, or else an end, or else a limit."""
    numbers = {}
    for name in (parameter for parameter in _PAGING if parameter in theirs):
        try:
            numbers[name] = _WHOLE(theirs[name])
        except ValueError:
            raise _fault(name, "must be a whole number") from None
    start = numbers.get("_start", 0)
    if "_per_page" in numbers and "_page" not in numbers:
        raise _fault("_per_page", "needs _page")
    if "_page" in numbers:
        limit = numbers.get("_per_page", numbers.get("_limit", PAGE))
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
    if response.status_code != 200 or response.mimetype != JSON:
        return response
    total = int(response.headers.get("X-Total-Count", max(MOST_COUNTED, offset + limit) + 1))
    response.headers["X-Total-Count"] = str(total)
    if name:
        position = "*" if response.content_length == len("[]") else f"{offset}-{min(offset + limit, total) - 1}"
        response.headers["Content-Range"] = f"{name} {position}/{total}"
    return response


def _in_envelope(response: Response, page: int, size: int) -> Response:
    """A page inside an object that has the numbers of the other pages, as of json-server 1."""
    if response.status_code != 200 or response.mimetype != JSON:
        return response
    total = int(response.headers["X-Total-Count"])
    last = max(1, -(-total // size))
    prev, following = min(page - 1, last) or None, page + 1 if page < last else None
    pages = {"first": 1, "prev": prev, "next": following, "last": last, "pages": last, "items": total}
    response.set_data(b'%b,"data":%b}' % (orjson.dumps(pages)[:-1], response.get_data()))
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


def _filters(filters: JsonObject, view: View, path: str = "", depth: int = MOST_NESTED) -> Iterator[Filter]:
    """A list of values matches items with any of them, an empty list no item; an object filters by inner fields."""
    if not depth:
        raise _fault("filter", f"has more than {MOST_NESTED} objects inside each other")
    for name, value in filters.items():
        if isinstance(value, dict):
            yield from _filters(value, view, f"{path}{name}.", depth - 1)
            continue
        is_operator = path and name in _OPERATORS
        field = f"{path[:-1]}[{_OPERATORS[name]}]" if is_operator else _with_operator(f"{path}{name}", view)
        if not path and (name in view.queryable.reserved or view.queryable.ignores(name)) and name != "q":
            field = f"{name}[eq]"  # of a field that is called limit, and not that parameter; q is the search there
        terms = [_term("filter", field, element) for element in (value if isinstance(value, list) else [value])]
        if len(terms) > 1 and None in value:
            if "or" not in view.queryable.reserved:
                raise _fault("filter", "cannot have null beside others here: this list has a field called or")
            yield from _conditions([tuple(terms)], view, set())
        else:
            yield from terms or [_nothing(view)]


def _clauses(where: Any) -> list[Clause]:
    """What `_where` asks for, as clauses that all hold."""
    try:
        clauses = clauses_of("and", [*_parts(where)], lambda name, text, *, negated: [(name, text)])
    except ValueError as error:
        raise _fault("_where", str(error)) from None
    if sum(map(len, clauses)) > MAX_FILTERS:
        raise _fault("_where", f"has more than {MAX_FILTERS} conditions")
    return clauses


def _parts(where: Any, path: str = "", depth: int = MOST_NESTED) -> Iterator[tuple[str, Any]]:
    """The conditions of `_where` at a path, as the parts of a group."""
    if not isinstance(where, dict) or not depth:
        raise _fault("_where", f"must be an object of conditions, with at most {MOST_NESTED} inside each other")
    for name, value in where.items():
        if name in ("and", "or") and isinstance(value, list):
            yield name, [("and", [*_parts(condition, path, depth - 1)]) for condition in value]
        elif isinstance(value, dict):
            yield from _parts(value, f"{path}{name}.", depth - 1)
        else:
            field, op = (path[:-1], name) if path and name in _OPERATORS else (f"{path}{name}", "eq")
            values = value if name == "in" and isinstance(value, list) else [value]
            yield "or", [_term("_where", f"{field}[{_OPERATORS[op]}]", element) for element in values]


def _term(parameter: str, name: str, value: Any) -> Filter:
    """A filter of our own language, from a condition in a parameter of theirs."""
    if not (parts := FILTER.fullmatch(name)) or isinstance(value, (dict, list)):
        field = name.rpartition("[")[0] or name
        raise _fault(parameter, f"has for {field!r:.100} no comparison of a field with a text, number, boolean or null")
    if value is None and parts[2] in (None, "eq", "ne"):
        return f"{parts[1]}[is]", "not_null" if parts[2] == "ne" else "null"
    return name, value if isinstance(value, str) else orjson.dumps(value).decode()


def _conditions(clauses: Iterable[Clause], view: View, used: set[str]) -> Iterator[Filter]:
    """Parameters that all hold. One that is given again would mean either value: so it is an alternative to itself."""
    for clause in clauses:
        if len(clause) == 1 and clause[0][0] not in used and clause[0][0].replace("[eq]", "") not in used:
            used.add(clause[0][0])
            yield clause[0]
        elif clause:
            escaped = [(name, re.sub(r'(["\\])', r"\\\1", value)) for name, value in clause]
            texts = [f'{name}="{value}"' for name, value in escaped]
            yield "or", f"({','.join(texts)})"
        else:
            yield _nothing(view)


def _json(theirs: Given, name: str) -> Any:
    try:
        return orjson.loads(theirs[name])
    except ValueError:
        raise _fault(name, "must be JSON") from None


def _fault(name: str, detail: str) -> InvalidQuery:
    return InvalidQuery(f"{name} {detail}", errors=[{"parameter": name, "detail": detail}])

"""What json-server answers to a request, and what of it is another answer here, with the reason of each difference."""

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.json_server.made import CHILDREN, Content, Request

Json = Any
NUMBERS = {"1", "2", "3", "4", "5", "6", "8"}  # the ids of start.json that are numbers
PAGES = ("first", "prev", "next", "last", "pages", "items")


class Answer(NamedTuple):
    """What is compared: the relations of `Link` and the total, if json-server has them; and what the file has then."""

    status: int
    body: Json
    total: str
    links: tuple[str, ...]
    file: Content


class Exchange(NamedTuple):
    """A request to one version of json-server and to Restkeeper, when both had the content `before`."""

    version: str
    request: Request
    before: Content
    theirs: Answer
    ours: Answer

    @property
    def parts(self) -> list[str]:
        """The parts of the path."""
        return [unquote(part) for part in urlsplit(self.request.path).path.strip("/").split("/")]

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.request.path).query, keep_blank_values=True)

    @property
    def is_list(self) -> bool:
        return self.theirs.status == 200 == self.ours.status and isinstance(_items(self.theirs.body), list)


Change = Callable[[Exchange], Answer]


def explained(exchange: Exchange) -> tuple[set[str], Answer]:
    """The reasons why an answer is not that of json-server, and that answer with all they change.

    A reason says exactly what the answer is here. If it is not this one in the end, something is not explained.
    """
    used = set()
    for name, change in REASONS:
        if exchange.theirs == exchange.ours:
            break
        changed = change(exchange)
        if changed != exchange.theirs:
            used.add(name)
            exchange = exchange._replace(theirs=changed)
    return used, exchange.theirs


def _items(body: Json) -> Json:
    """The list that a body is, or that a page of 1 has."""
    return body["data"] if isinstance(body, dict) and {*PAGES} < body.keys() else body


def _each(exchange: Exchange, change: Callable[[Json], Json]) -> Answer:
    """Their answer with each item of the body changed."""
    body = exchange.theirs.body
    if exchange.request.method != "GET" or exchange.theirs.status != 200:
        return exchange.theirs
    if isinstance(items := _items(body), list):
        items = [change(item) for item in items]
        return exchange.theirs._replace(
            body=items if items is body or isinstance(body, list) else {**body, "data": items}
        )
    return exchange.theirs._replace(body=change(body))


def _created(exchange: Exchange) -> Answer:
    status = exchange.theirs.status
    return exchange.theirs._replace(status=200 if status == 201 and exchange.request.method == "POST" else status)


def _errors(exchange: Exchange) -> Answer:
    """A problem in place of a text, `{}` or an object; its status says what is wrong with the request."""
    statuses = (exchange.theirs.status, exchange.ours.status)
    same = statuses[0] == statuses[1] >= 400
    if same or statuses in {(404, 405), (500, 409), (500, 400)}:
        assert exchange.ours.body["type"].startswith("/problems/")
        return exchange.theirs._replace(status=statuses[1], body=exchange.ours.body)
    return exchange.theirs


def _without(exchange: Exchange) -> Content:
    """What a file has when the item of the request is deleted."""
    name, id = exchange.parts
    (child, key), dependents = CHILDREN.get(name, ("", "")), exchange.query.get("_dependent", [])
    left = {**exchange.before, name: [each for each in exchange.before[name] if str(each["id"]) != id]}
    for each in [child] if child else []:
        refer = [str(item.get(key)) == id for item in left[each]]
        pairs = zip(left[each], refer, strict=True)
        if each in dependents:
            left[each] = [item for item, does in pairs if not does]
        else:
            left[each] = [{**item, key: None} if does else item for item, does in pairs]
    return left


def _deleted(exchange: Exchange) -> Answer:
    if exchange.request.method != "DELETE":
        return exchange.theirs
    if exchange.theirs.status == 404:  # 0.17 deletes what is lost, too
        return exchange.theirs._replace(file=exchange.before)
    name, id = exchange.parts
    (item,) = (each for each in exchange.before[name] if str(each["id"]) == id)
    return exchange.theirs._replace(body=item, file=_without(exchange))


def _of(version: str, change: Change) -> Change:
    """What is so of one version."""
    return lambda exchange: change(exchange) if exchange.version == version else exchange.theirs


def _with_id(exchange: Exchange, id: Json) -> Answer:
    """Their answer to a POST whose item, which is the last one, has another id."""
    name, item = exchange.parts[-1], {**exchange.theirs.body, "id": id}
    return exchange.theirs._replace(
        body=item, file={**exchange.theirs.file, name: [*exchange.theirs.file[name][:-1], item]}
    )


def _numbers(exchange: Exchange) -> Answer:
    """Ids of 1 are texts, as they are not in the file; here the numbers stay."""

    def changed(value: Json) -> Json:
        if isinstance(value, list):
            return [changed(each) for each in value]
        if not isinstance(value, dict):
            return value
        known = {"id": int(value["id"])} if str(value.get("id")) in NUMBERS else {}
        return {name: changed(each) for name, each in value.items()} | known

    return exchange.theirs._replace(body=changed(exchange.theirs.body), file=changed(exchange.theirs.file))


def _next(exchange: Exchange) -> Answer:
    """An id that is made: a number that is greater than all before, or a UUID where the file has texts."""
    body = exchange.request.body
    given = body["id"] if isinstance(body, dict) and "id" in body else ""
    if exchange.request.method != "POST" or exchange.theirs.status != 200 or exchange.ours.status != 200 or given:
        return exchange.theirs
    ids, id = [each["id"] for each in exchange.before[exchange.parts[-1]]], exchange.ours.body["id"]
    if exchange.parts[-1] in ("users", "articles"):
        assert id not in ids and len(id) == 36
    else:
        assert id > max((each for each in ids if isinstance(each, int)), default=0)
    return _with_id(exchange, id)


def _given(exchange: Exchange) -> Answer:
    """An id that is given is kept, or refused if it is taken."""
    body, name = exchange.request.body, exchange.parts[-1]
    if (
        exchange.request.method != "POST"
        or exchange.theirs.status != 200
        or not (isinstance(body, dict) and body.get("id"))
    ):
        return exchange.theirs
    if any(str(each["id"]) == str(body["id"]) for each in exchange.before[name]):
        return exchange.theirs._replace(status=409, body=exchange.ours.body, file=exchange.before)
    return _with_id(exchange, body["id"])


def _nested(exchange: Exchange) -> Answer:
    """Of 1: a nested collection, and all that there is."""
    parts = exchange.parts
    if exchange.theirs.status != 404 or exchange.ours.status != 200:
        return exchange.theirs
    if parts == ["db"]:
        return exchange.theirs._replace(status=200, body=exchange.before)
    return _made(exchange, [each["id"] for each in exchange.before[parts[0]] if str(each["id"]) == parts[1]][0])


def _made(exchange: Exchange, parent: Json) -> Answer:
    """The answer to a POST to what is nested in an item."""
    (name, _, child), body = exchange.parts, exchange.request.body
    item = {"id": exchange.ours.body["id"], **body, CHILDREN[name][1]: parent}
    assert all(item["id"] != each["id"] for each in exchange.before[child])
    file = {**exchange.before, child: [*exchange.before[child], item]}
    return exchange.theirs._replace(status=200, body=item, file=file)


def _number(exchange: Exchange) -> Answer:
    """Of 0.17: the reference of what is nested is a text, as in the path."""
    parts = exchange.parts
    if exchange.request.method == "POST" and len(parts) == 3 and exchange.theirs.status == 200:
        ids = [each["id"] for each in exchange.before[parts[0]] if str(each["id"]) == parts[1]]
        return _made(exchange, ids[0]) if ids else exchange.theirs
    return exchange.theirs


def _parentless(exchange: Exchange) -> Answer:
    parts = exchange.parts
    if len(parts) == 3 and all(str(each["id"]) != parts[1] for each in exchange.before[parts[0]]):
        return exchange.theirs._replace(status=404, body=exchange.ours.body, file=exchange.before, total="", links=())
    return exchange.theirs


def _single(exchange: Exchange) -> Answer:
    if exchange.request.method == "POST" and exchange.parts == ["profile"]:
        return exchange.theirs._replace(status=405, body=exchange.ours.body, file=exchange.before)
    return exchange.theirs


def _embedded(exchange: Exchange) -> Answer:
    """With the address of the rest of a list."""
    children = {child for child, _ in CHILDREN.values()} & {*exchange.query.get("_embed", [])}
    return _each(exchange, lambda item: {**item, **{f"{each}_next": None for each in children if each in item}})


def _lost(exchange: Exchange) -> Answer:
    """What a reference that is lost embeds."""
    names = {each[:-1] for each in CHILDREN} & {*exchange.query.get("_embed", []), *exchange.query.get("_expand", [])}
    return _each(exchange, lambda item: {**dict.fromkeys(names), **item})


def _alike(exchange: Exchange) -> Answer:
    """What is embedded, if 1 and "1" are one."""
    wanted = {*exchange.query.get("_embed", []), *exchange.query.get("_expand", [])}

    def change(item: Json) -> Json:
        more = {}
        for parent, (child, key) in CHILDREN.items():
            if child in wanted and exchange.parts[0] == parent:
                found = [each for each in exchange.before[child] if str(each.get(key)) == str(item["id"])]
                more[child] = sorted(found, key=lambda each: each[key] != item["id"])  # first those that are equal
            if parent[:-1] in wanted and exchange.parts[0] == child:
                found = [each for each in exchange.before[parent] if str(each["id"]) == str(item.get(key))]
                more |= {parent[:-1]: found[0]} if found else {}
        return {**item, **more}

    return _each(exchange, change)


def _unknown(exchange: Exchange) -> Answer:
    """Names that no item has find nothing; but `_` is ignored."""
    names, items = {*exchange.query} & {"colour", "published", "_"}, exchange.before.get(exchange.parts[0], [])
    if not names or not exchange.is_list or any(name in item for name in names for item in items):
        return exchange.theirs
    return exchange.theirs._replace(body=items if "_" in names else [])


def _found(exchange: Exchange, fits: Callable[[Json], bool]) -> Answer:
    """Their answer with the items that fit."""
    return exchange.theirs._replace(body=[each for each in exchange.before[exchange.parts[0]] if fits(each)])


def _where(query: str, fits: Callable[[Json], bool]) -> Change:
    """The items that fit are the answer to a query."""
    return lambda exchange: (
        _found(exchange, fits) if urlsplit(exchange.request.path).query == query else exchange.theirs
    )


def _sorted(exchange: Exchange) -> Answer:
    """By what only some items have: here those without it are before all others, there after them."""
    key, theirs, ours = exchange.query.get("_sort", [""])[0], exchange.theirs, exchange.ours
    if key not in ("note", "price") or not exchange.is_list:
        return theirs
    values = [(each.get(key) is not None, each.get(key) or ("" if key == "note" else 0)) for each in ours.body]
    is_same = sorted(values, reverse="_order" in exchange.query) == values and len(theirs.body) == len(values)
    return theirs._replace(body=ours.body) if is_same and all(each in theirs.body for each in ours.body) else theirs


def _beyond(exchange: Exchange) -> Answer:
    """The page after the last is empty, and has links; in 1 it is the last one."""
    theirs, query = exchange.theirs, exchange.query
    if "_page" not in query or not exchange.is_list:
        return theirs
    page = int(query["_page"][0])
    if exchange.version == "1":
        beyond = page > (last := theirs.body["last"])
        return theirs._replace(body={**theirs.body, "prev": min(page - 1, last), "data": []} if beyond else theirs.body)
    if theirs.links:
        return theirs
    return theirs._replace(links=("first", "last", *(["prev"] if page > 1 else [])))


def _cased(exchange: Exchange) -> Answer:
    if exchange.parts == ["Posts"]:
        return exchange.theirs._replace(status=404, body=exchange.ours.body)
    return exchange.theirs


def _dependent(exchange: Exchange) -> Answer:
    return _deleted(exchange) if "_dependent" in exchange.query else exchange.theirs


REASONS: list[tuple[str, Change]] = [
    ("`POST /posts`", _created),
    ("ids", _of("1", _numbers)),
    ("`id` in a POST", _of("1", _given)),
    ("ids", _next),
    ("`/posts/99/comments`", _of("0.17", _parentless)),
    ("`POST /posts/1/comments`", _of("0.17", _number)),
    ("`/posts/1/comments`, `/db`", _of("1", _nested)),
    ("`POST /profile`", _of("0.17", _single)),
    ("`DELETE /posts/1`", _of("0.17", _deleted)),
    ("`_dependent=comments`", _of("1", _dependent)),
    ('`"postId": "1"`', _of("1", _deleted)),
    ('`"postId": "1"`', _alike),
    ("`_embed=comments`", _embedded),
    ("`_expand=post`", _lost),
    ("`/Posts`", _of("0.17", _cased)),
    ("unknown names", _unknown),
    ("`author.name=ann`", _where("author.name=ann", lambda each: (each.get("author") or {}).get("name") == "ann")),
    ("`note=null`", _where("note=null", lambda each: each.get("note") is None)),
    ("`note_ne=long`", _where("note_ne=long", lambda each: each.get("note") != "long")),
    ("`note_ne=long`", _where("note:ne=long", lambda each: each.get("note") != "long")),
    ("`id:in=1,2` (texts)", _where("id=7", lambda each: each["id"] == "7")),
    ("`title_like=^hello`", _where("title_like=^.", lambda each: "^." in each["title"])),
    ("`tags=sweet`", _where("tags=sweet", lambda each: "sweet" in (each.get("tags") or []))),
    ("`_page` after the last", _beyond),
    ("order", _sorted),
    ("errors", _errors),
]

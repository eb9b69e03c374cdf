"""Writes by each way: alone, in an array, in a batch, and by a PUT that creates. One table says what each gets.

A row of TABLE is a caller, a request, and what is expected: by each way the same status, and the same faults below the
place of the item. What is refused changes nothing. What is done is the response, what the caller reads, and what is
stored, and the response again when the key is sent again.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from itertools import count
from typing import Any, NamedTuple

import pytest
from marshmallow import Schema, fields

from restkeeper import Config, Conflict, Items, ValidationFailed, read_item
from restkeeper.errors import InternalError, Unavailable
from restkeeper.service import service_of
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.feed import last_event
from tests import shapes
from tests.callers import ADMIN, ADMIN_KEY, key
from tests.record import ALL_OWNERS, BOTH, READ, WRITE
from tests.shop import create_app

pytestmark = pytest.mark.needs("batch", "events", "idempotency", "keys", "ownership", "versions")

Item = dict[str, Any]
CALLERS = {  # their scopes and owners
    "staff": ([*BOTH, *ALL_OWNERS, "orders:pay", "orders:secrets", "jobs:grade", "products:archive"], ["staff"]),
    "ada": ([*BOTH, "orders:pay"], ["ada", "team", "a/b/c", "a ä"]),
    "chief": ([*BOTH, "orders:secrets", "jobs:grade"], ["ada"]),
    "bob": (BOTH, ["bob"]),
    "reader": ([*READ, "people:write"], ["ada"]),
    "writer": (WRITE, ["ada"]),
    "payer": (["orders:pay", "people:write"], ["ada"]),
}
PRODUCT = {"name": "a", "sku": "s{n}", "status": "active", "stock": 5, "attributes": {"a": 1, "b": 2, "c": {"d": 1}}}
# What requests are about: who makes it, where, and with which fields. {n} is a number that no other request has.
GIVEN: dict[str, tuple[str, str, Item]] = {
    "person": ("admin", "people", {"name": "a", "email": "p{n}@x.org"}),
    "brand": ("admin", "brands", {"title": "b{n}"}),
    "product": ("admin", "products", PRODUCT),
    "other": ("admin", "products", {"name": "a"}),
    "part": ("admin", "parts", {"name": "a", "product": "@product"}),
    "note": ("ada", "notes", {"text": "a"}),
    "team": ("ada", "notes", {"text": "a", "owner": "team"}),
    "job": ("ada", "jobs", {"id": "j{n}", "title": "a"}),
    "grade": ("chief", "jobs", {"id": "g{n}", "title": "a", "grade": 5}),
    "post": ("admin", "posts", {"title": "a", "more": {"deep": [1]}, "list": [1]}),
    "order": ("ada", "orders", {}),
    "line": ("ada", "orders", {"lines": [{"product": "@product"}]}),
    "secret": ("chief", "orders", {"secret": "s"}),
    "paid": ("ada", "orders/@order/pay", {"method": "card"}),
    "ended": ("ada", "orders", {"status": "ended"}),
    "archived": ("staff", "products", {"name": "a", "status": "archived"}),
}
VALID: dict[str, Item] = {  # what the other items of an array have
    **{name: {"name": "a"} for name in ("people", "products")},
    **{name: {"title": "{n}"} for name in ("brands", "jobs")},
    **{"notes": {"text": "a"}, "parts": {"name": "a", "product": "@product"}, "posts": {}, "orders": {}},
}


class Case(NamedTuple):
    """A row of the table."""

    who: str
    request: str  # the method, the path, and If-Match
    body: Any
    status: int
    expected: Any = None  # what is stored then, or of a refusal: where the faults are, or words of the detail
    given: str = ""  # what there is, too


class Way(NamedTuple):
    """A way to make the request of a case."""

    method: str
    path: str
    body: Any
    place: str = ""  # of the body in that of the request
    condition: str = ""


def ways(case: Case) -> Iterator[Way]:
    """Alone; of a create also as the last one of an array, and as a PUT; each of them as the third of a batch."""
    method, path, *condition = case.request.split(" ")
    base = path[:7] if path.startswith("/api/v") else ""
    name, *below = path.removeprefix(base).partition("?")[0][1:].split("/")
    yield (alone := Way(method, path, case.body, "", *condition))
    several = [alone]
    if method == "POST" and len(below) != 1 and (kind := [name, *below][-1]) in VALID:
        item = {each: text for each, text in VALID[kind].items() if not (below and "@" in text)}
        others = [{each: text.replace("{n}", "{n}" + end) for each, text in item.items()} for end in "abc"]
        yield Way(method, path, [*others, case.body], "/3", *condition)
        if not below and IDS[name].startswith("client") and isinstance(case.body, dict) and "id" not in case.body:
            id = "9{n}" if IDS[name] == "client-integer" else "new{n}"
            yield (put := Way("PUT", path.replace(name, f"{name}/{id}"), case.body, "", *condition))
            several.append(put)
    for way in several:
        operation = {"method": way.method, "path": way.path.removeprefix(base)}
        operation |= {"body": way.body} if way.body is not None else {}
        operation |= {"if_match": way.condition} if way.condition else {}
        former = [{"method": "POST", "path": "/people", "body": VALID["people"]}] * 2
        yield Way("POST", f"{base or '/api/v2'}/batch", {"operations": [*former, operation]}, "/operations/2/body")


# Orders have ids of clients here, so that a PUT creates them.
ORDERS, POSTS = replace(shapes.ORDERS, ids="client"), replace(shapes.POSTS)
RESOURCES = [{"orders": ORDERS, "posts": POSTS}.get(each.name, each) for each in shapes.RESOURCES]
IDS = {each.name: each.ids for each in RESOURCES}
VALUES = {"set": [{1}], "NaN": float("nan"), "30 digits": 10**30, "key": {1: 2}, "surrogate": "\ud800"}  # no JSON
VALUES |= {"itself": VALUES, "NUL": "a\0"}
VALUES |= {each: Decimal(each) for each in ("-Infinity", "sNaN", "1E+400", "1E-400")}
REFUSED = {"#/title": "#/title", "/more/0": "#/more/0", "title": "#/title", "whole": "#", "all": "#"}
REFUSALS: dict[str, Exception] = {  # a function raises the same one each time
    **{each: ValidationFailed(errors=[{"pointer": each, "detail": "is unknown"}]) for each in REFUSED},
    "whole": ValidationFailed(errors=[{"detail": "is not complete"}]),
    "all": ValidationFailed("not today"),
    "conflict": Conflict("too late"),
    "unavailable": Unavailable("come again"),
    "internal": InternalError("not mended"),
    "unexpected": KeyError("no such key"),
}


def obey(post: Item, steps: list[Any], items: Items) -> Any:
    """Do what a post says with it, and with other items."""
    for name, *arguments in steps:
        match name, *(VALUES.get(str(each), each) for each in arguments):
            case "set", field, value:
                post[field] = value
            case "append", field, value:
                post[field].append(value)
            case "clear", None:
                post.clear()
            case "return", dict() as changed if post:
                return {**post, **changed}
            case "return", value:
                return value
            case "give", owner:
                items.create("notes", {"text": "a"}, owner=owner)
            case "raise", refusal:
                raise REFUSALS[refusal]
            case "read_item", *item:
                read_item(*item)
            case "caught", *item:
                with suppress(RecordNotFound):
                    read_item(*item)
            case "change", collection, id, below:
                items.change(collection, id, lambda item, below=below: obey(item, below, items))
            case _:
                getattr(items, name)(*arguments)
    return None


class StepsSchema(Schema):
    """What an action does."""

    steps = fields.List(fields.Raw(), required=True)


@POSTS.before("create", "update")
def prepare(post: Item, before: Item | None, items: Items) -> Any:
    return obey(post, post.pop("before", []), items)


@POSTS.after("create")
def follow(post: Item, before: None, items: Items) -> None:
    obey(post, post.get("after", []), items)


@POSTS.action("do", body=StepsSchema)
def act(post: Item, sent: Item, items: Items) -> Any:
    return obey(post, sent["steps"], items)


@POSTS.action("all", body=StepsSchema, of="collection")
def act_on_all(sent: Item, items: Items) -> Any:
    return obey({}, sent["steps"], items) or {}


for scope in ("read", "known", "public"):
    POSTS.action(f"by-{scope}", scope=scope, of="collection")(lambda items: {})


class Service:
    """A service with all collections and callers."""

    def __init__(self) -> None:
        config = Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off", failure_limit="off")
        self.client = create_app(config, RESOURCES, versions=shapes.VERSIONS).test_client()
        self.client.application.testing = False  # so that a fault of a function is a response
        self.headers = {"admin": ADMIN, "nobody": {}}
        for name, (scopes, owners) in CALLERS.items():
            self.headers[name] = key(self.client, *scopes, owners=owners)
        self.numbers, self.store = count(1), service_of(self.client.application).store

    def send(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return self.client.open(path, method=method, json=body, headers=self.headers[who] | headers)

    def filled(self, value: Any) -> Any:
        """A value with new items in place of their names, and a number of its own in place of {n}."""
        number, made = str(next(self.numbers)), dict[str, Any]()

        def fill(value: Any) -> Any:
            match value:
                case dict():
                    return {fill(name): fill(each) for name, each in value.items()}
                case list() | tuple():
                    return [fill(each) for each in value]
                case str() if "@" in value or "{n}" in value:
                    for name, (who, path, fields) in GIVEN.items():
                        if f"@{name}" in value and name not in made:
                            response = self.send(who, "POST", f"/{fill(path)}", fill(fields))
                            assert response.status_code == 200, response.text
                            made[name] = response.json["id"]
                        if value == f"@{name}":
                            return made[name]
                        value = value.replace(f"@{name}", str(made.get(name)))
                    return value.replace("{n}", number)
            return value

        return fill(value)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    yield Service()
    for each in REFUSALS.values():
        each.__traceback__ = each.__context__ = None  # which keep transactions


OF_GRADE = "a change of grade needs the scope jobs:grade"
OF_REFERENCE = "a new reference in product needs the scope products:read"
EITHER = ("@other", "none")  # whether it is there or not
NO_OWNERS = ("", "x" * 260, 5, ["ada"])
NO_IDS = ("", "x" * 65, ".", "..", "a b", "a/b", "ä", "a\n", 5, None, [], {})
OF_SECRET = "a change of secret needs the scope orders:secrets"  # noqa: S105
PATCH = {"b": None, "c": {"e": 2}, "f": []}
MERGED = {"a": 1, "c": {"d": 1, "e": 2}, "f": []}  # of this and a PRODUCT
FUNCTION = re.compile(r"(test_crossings\.|, in )(prepare|follow|act|act_on_all)\b")  # which the log names
WRONG = [(("x", each), "sets what posts cannot store: x ") for each in VALUES]
WRONG += [(("title", "x" * 61), "sets what posts cannot store: title must have at most 60 characters (it is 'xx")]
NO_JSON = [each for each in VALUES if each != "NUL"]
OF_ACTIONS = [(each, [at] if each != "all" else []) for each, at in REFUSED.items()]
OF_ALL = "act_on_all: "
CHANGE = ["change", "posts", "@post"]
TWICE = ["create", "brands", {"title": "b{n}"}]  # beside @brand
NOT_TODAY = ["create", "posts", {"before": [["raise", "all"]]}]
FOUND = ["create", "parts", {"name": "a", "product": "@product"}]
LOST = ["create", "parts", {"name": "a", "product": "none"}]


def by_functions(step: list[Any]) -> list[tuple[str, Item]]:
    """A step of each kind of function."""
    of_post = [("POST /posts", {"before": [step]}), ("POST /posts", {"after": [step]})]
    of_post += [("PATCH /posts/@post", {"before": [step]}), ("POST /posts/@post/do", {"steps": [step]})]
    return [*of_post, ("POST /posts/all", {"steps": [step]})]


OF_ORDERS = ("POST /orders", "PUT /orders/@order", "PATCH /orders/@order")
LINES = [{"product": "@product"}, {"product": "none"}]
OF_PARTS = ("POST /parts", "PUT /parts/@part", "PATCH /parts/@part")
NO_PRODUCTS = ("none", "", 5, "@person")
OF_NOBODY = "items.create: the owner must be a text of 1 to 259 characters without NUL"
BY_PAY = "cannot be set to paid: only the action pay does that"
NOWHERE = "nothing is at"  # the detail of a 404, for which a batch has a fault of the path, as for each 405
TABLE: dict[str, list[tuple[Any, ...]]] = {
    "the owner of a new item": [
        ("ada", "POST /notes", {"text": "a"}, 200, {"owner": "ada"}),
        ("ada", "POST /notes", {"text": "a", "owner": "team"}, 200, {"owner": "team", "$owner": "team"}),
        *(("ada", "POST /notes", {"text": "a", "owner": each}, 403, "notes:all") for each in ("bob", None, "staff")),
        ("ada", "POST /jobs", {"title": "a"}, 200, {"owner": "ada", "$owner": "ada"}),
        ("ada", "POST /jobs", {"title": "a", "owner": "team"}, 200, {"owner": "team", "$owner": "team"}),
        ("ada", "POST /jobs", {"title": "a", "owner": "bob"}, 403, "jobs:all"),
        ("staff", "POST /jobs", {"title": "a"}, 200, {"owner": "staff", "$owner": "staff"}),
        ("staff", "POST /jobs", {"title": "a", "owner": "bob"}, 200, {"owner": "bob", "$owner": "bob"}),
        ("admin", "POST /jobs", {"title": "a", "owner": None}, 200, {"owner": None, "$owner": None}),
        *(("staff", "POST /jobs", {"title": "a", "owner": each}, 422, ["#/owner"]) for each in NO_OWNERS),
        ("staff", "POST /jobs", {"title": "a", "owner": "x" * 259}, 200, {"owner": "x" * 259}),
    ],
    "the owner in the query, where items do not show it": [
        ("ada", "POST /orders?owner=team", {}, 200, {"$owner": "team"}),
        ("ada", "POST /orders?owner=te%61m", {}, 200, {"$owner": "team"}),
        ("ada", "POST /orders?owner=a/b/c", {}, 200, {"$owner": "a/b/c"}),
        ("ada", "POST /orders?owner=a+%C3%A4&", {}, 200, {"$owner": "a ä"}),
        *((each, "POST /orders?owner=team", {}, 403, "none of the caller's own") for each in ("bob", "staff", "admin")),
        ("ada", "PUT /orders/@order?owner=ada", {}, 200, {"$owner": "ada"}),
        ("ada", "PUT /orders/@order?owner=team", {}, 409, "cannot change its owner"),
        ("staff", "PUT /orders/@order?owner=ada", {}, 403, "none of the caller's own"),
        ("staff", "PATCH /orders/@order?owner=ada", {}, 422, ["?owner"]),
        ("staff", "DELETE /orders/@order?owner=ada", None, 422, ["?owner"]),
        ("staff", "POST /people?owner=bob", {"name": "a"}, 422, ["?owner"]),
        ("staff", "POST /notes?owner=bob", {"text": "a"}, 422, ["?owner"]),
        ("staff", "PUT /jobs/new{n}?owner=bob", {"title": "a"}, 422, ["?owner"]),
        ("staff", "POST /orders?owner=%ff", {}, 400, ["?owner"]),
        ("staff", "POST /orders?owner=a&owner=b", {}, 422, ["?owner"]),
    ],
    "a change of the owner": [
        ("ada", "PUT /notes/@note", {"text": "b"}, 200, {"text": "b", "owner": "ada"}),
        ("ada", "PATCH /notes/@note", {"text": "b"}, 200, {"text": "b", "owner": "ada"}),
        ("staff", "PUT /notes/@note", {"text": "b"}, 200, {"text": "b", "owner": "ada"}),
        ("ada", "PATCH /notes/@note", {"owner": "ada"}, 200, {"version": 1}),
        ("ada", "PATCH /notes/@note", {"owner": "team"}, 200, {"owner": "team", "$owner": "team"}),
        ("ada", "PATCH /notes/@team", {"text": "b"}, 200, {"owner": "team"}),
        *(("ada", "PUT /notes/@note", {"text": "b", "owner": each}, 403, "notes:all") for each in ("bob", None)),
        *(("ada", "PATCH /notes/@note", {"owner": each}, 403, "notes:all") for each in ("bob", None, "staff")),
        ("bob", "PATCH /notes/@note", {"owner": "bob"}, 404),
        ("bob", "PUT /notes/@note", {"text": "b"}, 404),
        *(("bob", f"DELETE {each}", None, 404) for each in ("/notes/@note", "/orders/@order")),
        ("bob", "POST /notes/@note/give", None, 404),
        ("staff", "PUT /notes/@note", {"text": "b", "owner": "bob"}, 200, {"owner": "bob", "$owner": "bob"}),
        ("staff", "PATCH /notes/@note", {"owner": None}, 200, {"owner": None, "$owner": None}),
        ("ada", "POST /notes/@note/give", None, 200, {"owner": "bob", "$owner": "bob"}),
        ("bob", "PATCH /jobs/@job", {"owner": "bob"}, 403),
        ("bob", "DELETE /jobs/@job", None, 403),
        ("staff", "PATCH /jobs/@job", {"owner": "bob"}, 200, {"owner": "bob", "$owner": "bob"}),
    ],
    "another owner is refused after the reach and the condition, and before faults": [
        ("ada", "PATCH /notes/@note", {"owner": "bob", "text": ""}, 403),
        ("ada", "PATCH /notes/@note", {"owner": "team", "text": ""}, 422, ["#/text"]),
        ("ada", "PUT /notes/@note", {"owner": "bob", "text": "a", "x": 1}, 403),
        ("ada", "PUT /notes/@note", {"owner": "team", "text": "a", "x": 1}, 422, ["#/x"]),
        ("ada", "PATCH /notes/@note", {"owner": "bob", "version": 0}, 403),
        ("ada", "PATCH /notes/@note", {"owner": "team", "version": 0}, 409, "has changed"),
        ("ada", 'PATCH /notes/@note "x"', {"owner": "bob", "text": ""}, 412),
        ("ada", 'PUT /notes/@note "x"', {"owner": "bob", "text": ""}, 412),
        ("ada", "POST /jobs", {"owner": "bob", "title": ""}, 403),
        ("ada", "POST /jobs", {"owner": "team", "title": ""}, 422, ["#/title"]),
    ],
    "a private field": [
        *(("ada", to, {"secret": each}, 403, OF_SECRET) for to in OF_ORDERS for each in ("", "s", None, 5, {})),
        ("ada", "PATCH /api/v1/orders/@secret", {"secret": "s"}, 403, OF_SECRET),
        ("ada", "PATCH /orders/none", {"secret": ""}, 404),
        ("ada", 'PUT /orders/@secret "x"', {"secret": ""}, 412),
        ("ada", "PUT /orders/@secret", {"remark": "b"}, 200, {"secret": "s", "remark": "b"}),
        ("ada", "PATCH /orders/@secret", {"remark": "b"}, 200, {"secret": "s", "remark": "b"}),
        ("ada", "PUT /api/v1/orders/@secret", {"note": "b"}, 200, {"secret": "s", "note": "b"}),
        ("ada", "POST /orders/@secret/pay", {"method": "c"}, 200, {"secret": "s", "status": "paid"}),
        ("ada", "DELETE /orders/@secret", None, 200),
        ("chief", "POST /orders", {"secret": "s"}, 200, {"secret": "s"}),
        ("chief", "PATCH /orders/@secret", {"secret": "t"}, 200, {"secret": "t"}),
        ("chief", "PUT /orders/@secret", {}, 200, {"secret": ""}),
    ],
    "a field that some may set": [
        ("ada", "POST /jobs", {"title": "a", "grade": 1}, 403, OF_GRADE),
        ("ada", "PATCH /jobs/@grade", {"grade": 1}, 403, OF_GRADE),
        ("ada", "PUT /jobs/@grade", {"title": "b", "grade": 5}, 403, OF_GRADE),
        ("ada", "PUT /jobs/@grade", {"title": "b"}, 200, {"title": "b", "grade": 5}),
        ("ada", "PATCH /jobs/@grade", {"title": "b"}, 200, {"title": "b", "grade": 5}),
        ("ada", "PATCH /jobs/@grade", {"grade": 5.0, "title": "b"}, 403, OF_GRADE),
        ("chief", "PATCH /jobs/@grade", {"grade": 1}, 200, {"grade": 1}),
        ("chief", "PUT /jobs/@grade", {"title": "b"}, 200, {"grade": 0}),
        ("bob", "PATCH /jobs/@grade", {"grade": 1}, 403),
    ],
    "scopes, before the item and the body are looked at": [
        ("nobody", "POST /people", {"name": "a"}, 401),
        ("nobody", "PATCH /products/none", {}, 401),
        *(("reader", f"{each} /products/none", {"name": ""}, 403, "scope products:write") for each in ("PUT", "PATCH")),
        *(("reader", f"DELETE /products/{each}", None, 403, "scope products:write") for each in ("none", "@product")),
        ("reader", "POST /products", {"name": ""}, 403, "scope products:write"),
        ("reader", "POST /products/@product/touch", None, 403, "scope products:write"),
        ("reader", "POST /products/@product/parts", {"name": "a"}, 403, "scope parts:write"),
        ("reader", "PATCH /settings", {"theme": "x"}, 403, "scope settings:write"),
        ("bob", "POST /orders/none/pay", {}, 403, "this needs the scope orders:pay"),
        ("writer", "POST /people", {"name": "a"}, 200, {"name": "a"}),
        *(("reader", f"POST /posts/by-{each}", None, 200, {}) for each in ("read", "known", "public")),
        ("reader", "POST /posts/all", {"steps": []}, 403, "scope posts:write"),
        ("payer", "POST /posts/by-read", None, 403, "scope posts:read"),
        ("payer", "POST /orders/@order/pay", {"method": "c"}, 200, {"status": "paid"}),
        ("payer", "PATCH /orders/@order", {"remark": "a"}, 403, "this needs the scope orders:write"),
        ("payer", "POST /notes/@note/give", None, 403, "this needs the scope notes:write"),
    ],
    "states": [
        *((who, to, {"status": "paid"}, 409, BY_PAY) for to in OF_ORDERS for who in ("ada", "admin")),
        ("ada", "PUT /orders/@paid", {"status": "paid", "remark": "b"}, 200, {"status": "paid", "remark": "b"}),
        ("ada", "PATCH /orders/@order", {"status": "ended"}, 200, {"status": "ended"}),
        ("ada", "PATCH /orders/@ended", {"status": "open"}, 409, "status cannot go from ended to open"),
        ("ada", "PUT /orders/@ended", {}, 409, "status cannot go from ended to open"),
        ("ada", "POST /orders", {"status": "lost"}, 422, ["#/status"]),
        ("ada", "PATCH /products/@product", {"status": "archived"}, 403, "products:archive"),
        ("ada", "POST /products", {"name": "a", "status": "archived"}, 403, "products:archive"),
        ("staff", "PATCH /products/@product", {"status": "archived"}, 200, {"status": "archived"}),
        ("ada", "PATCH /products/@archived", {"status": "archived", "stock": 1}, 200, {"stock": 1}),
        ("ada", "PATCH /products/@archived", {"status": "draft"}, 409, "status cannot go from archived to draft"),
        ("ada", "PUT /products/@archived", {"name": "a"}, 409, "status cannot go from archived to draft"),
        ("ada", "PATCH /products/@archived", {"status": "active"}, 200, {"status": "active"}),
    ],
    "faults of a body": [
        ("ada", "POST /products", {}, 422, ["#/name"]),
        ("ada", "POST /products", {"name": "", "stock": -1, "x": 1}, 422, ["#/name", "#/stock", "#/x"]),
        ("ada", "POST /products", {"name": "a", "tags": ["a", 5, ""]}, 422, ["#/tags/1", "#/tags/2"]),
        ("ada", "POST /products", {"name": "a", "size": {"width": -1, "x": 1}}, 422, ["#/size/width", "#/size/x"]),
        ("ada", "POST /products", {"name": "a", "label": "x"}, 422, ["#/label"]),
        ("ada", "POST /products", {"name": "a", "id": "x"}, 422, ["#/id"]),
        ("ada", "POST /products", {"name": "a", "version": 1}, 422, ["#/version"]),
        ("ada", "POST /products", {"name": "a", "__proto__": 1, "owner": "ada"}, 422, ["#/__proto__", "#/owner"]),
        ("ada", "PUT /products/@product", {"id": "x", "name": "b", "version": 0}, 422, ["#/id", "#/version"]),
        ("ada", "POST /products", 5, 422, ["#"]),
        ("ada", "POST /products", {"name": "a", "attributes": {"a": "x" * 140_000}}, 413, "131072"),
        ("ada", "PUT /products/@product", {"stock": -1}, 422, ["#/name", "#/stock"]),
        ("ada", "PUT /products/@product", [], 422, ["#"]),
        ("ada", "PATCH /products/@product", {"name": None, "stock": "x", "x": None}, 422, ["#/name", "#/stock", "#/x"]),
        ("ada", "PATCH /products/@product", {"id": "x", "created_at": "x"}, 422, ["#/created_at", "#/id"]),
        ("ada", "PATCH /products/@product", {"version": 9}, 422, ["#/version"]),
        ("ada", "PATCH /products/@product", {"stock": 1, "version": 0}, 409, "has changed since it was read"),
        ("ada", "PATCH /products/@product", {"stock": 1, "id": "@product", "version": 1}, 200, {"version": 2}),
        ("ada", "PATCH /products/@product", {}, 200, {"version": 1}),
        ("ada", "PUT /products/@product", PRODUCT, 200, {"version": 1}),
        ("ada", "PUT /products/@product", {"name": "b", "status": "active"}, 200, {"sku": None, "stock": 10}),
        ("ada", "PATCH /products/@product", {"sku": None, "tags": ["c"]}, 200, {"sku": None, "stock": 5}),
        ("ada", "PATCH /products/@product", {"attributes": PATCH}, 200, {"attributes": MERGED}),
        ("ada", "PATCH /products/@product", {"attributes": {"a": True}}, 200, {"version": 2}),
        ("ada", "POST /orders/@order/pay", {}, 422, ["#/method"]),
        ("ada", "POST /orders/none/pay", {"method": 1, "x": 1}, 422, ["#/method", "#/x"]),
        ("ada", "POST /orders/none/pay", {"method": "c"}, 404),
        ("ada", "POST /products/move", {}, 422, ["#/source", "#/target"]),
        ("ada", "POST /products/@product/touch", {"x": 1}, 422, ["#"]),
        ("ada", "POST /products/@product/touch", {}, 200, {"version": 1}),
        ("ada", "PATCH /settings", {"id": "a", "writes": 1}, 422, ["#/id", "#/writes"]),
    ],
    "names of an older version": [
        ("ada", "POST /api/v1/orders", {"note": "b", "channel": "shop"}, 200, {"note": "b", "channel": "shop"}),
        ("ada", "POST /api/v1/orders", {"remark": "b", "note": 5}, 422, ["#/note", "#/remark"]),
        ("ada", "POST /orders", {"note": "b"}, 422, ["#/note"]),
        ("ada", "PATCH /api/v1/orders/@order", {"channel": "x" * 21}, 422, ["#/channel"]),
        ("ada", "POST /api/v1/orders", {"note": "Chair 1"}, 422, ["#/note"]),
        ("ada", "PATCH /api/v1/orders/@order", {"note": "Chair 1"}, 422, ["#/note"]),
        ("ada", "PUT /api/v1/products/@product", {"name": "a", "grams": 5, "status": "active"}, 200, {"grams": 5}),
        ("ada", "POST /api/v1/products", {"name": "a", "score": 5}, 422, ["#/score"]),
        ("ada", "POST /api/v1/orders", {"since": "none"}, 422, ["#/since"]),
        ("bob", "POST /api/v1/orders", {"since": "@order"}, 422, ["#/since"]),
        ("ada", "PATCH /api/v1/orders/@order", {"since": "none"}, 422, ["#/since"]),
        ("ada", "POST /api/v2/orders", {"after": "none"}, 422, ["#/after"]),
        ("ada", "POST /api/v1/orders/@order/pay", {}, 422, ["#/method"]),
    ],
    "taken values": [
        ("ada", "POST /products", {"name": "a", "sku": "s{n}"}, 409, ["#/sku"], "@product"),
        ("ada", "PUT /products/@other", {"name": "a", "sku": "s{n}"}, 409, ["#/sku"], "@product"),
        ("ada", "PATCH /api/v1/products/@other", {"sku": "s{n}"}, 409, ["#/sku"], "@product"),
        ("ada", "PATCH /products/@product", {"sku": "s{n}"}, 200, {"version": 1}),
        ("ada", "POST /people", {"name": "a", "email": "P{n}@X.org"}, 409, ["#/email"], "@person"),
        ("ada", "POST /brands", {"title": "b{n}"}, 409, ["#/title"], "@brand"),
        ("ada", "POST /jobs", {"id": "j{n}", "title": "a"}, 409, ["#/id"], "@job"),
        ("ada", "POST /posts", {"id": "@post"}, 409, ["#/id"]),
        ("bob", "POST /orders", {"id": "@order"}, 409, ["#/id"]),
        ("bob", "PUT /orders/@order", {}, 409, ["#/id"]),
        ("bob", "PUT /orders/@order *", {}, 412),
        ("bob", "PATCH /orders/@order", {}, 404),
        ("ada", "PUT /orders/@order", {"remark": "b"}, 200, {"remark": "b", "version": 2}),
    ],
    "ids": [
        *(("ada", "POST /jobs", {"id": id, "title": 5}, 422, ["#/id", "#/title"]) for id in NO_IDS),
        *(("ada", "POST /posts", {"id": id}, 422, ["#/id"]) for id in (-1, "1", 1.5, True, None)),
        *(("ada", f"PUT /posts/{id}", {}, 422, ["#/id"]) for id in ("-1", "01", "x", "1.0", 2**63)),
        *(("ada", f"{each} /brands/{id}", {}, 404) for each in ("PUT", "PATCH", "DELETE") for id in ("02", "x", "-1")),
        ("ada", "POST /jobs", {"id": "~{n}", "title": "a"}, 200, {"id": "~{n}"}),
        ("ada", "PUT /jobs/j{n}", {"id": "b", "title": "a"}, 422, ["#/id"]),
        ("ada", "PUT /jobs/j{n}", {"title": "a", "version": 1}, 422, ["#/version"]),
        ("ada", "PUT /jobs/j{n} *", {"title": "a"}, 412, "there is no such item"),
        ("ada", "PUT /jobs/@job *", {"id": "@job", "title": "b"}, 200, {"title": "b", "version": 2}),
        ("ada", "PATCH /jobs/j{n}", {"title": "a"}, 404),
        ("ada", "PUT /jobs/@job", {"id": "@job", "title": "a"}, 200, {"version": 1}),
        ("ada", "PUT /jobs/@job", {"id": "@job", "title": "b"}, 200, {"title": "b", "version": 2}),
        ("ada", 'PUT /jobs/@job "x"', {"title": "b"}, 412),
        ("ada", "PATCH /posts/@post", {"title": None, "more": {"deep": None, "b": 1}}, 200, {"more": {"b": 1}}),
        ("ada", "PUT /posts/@post", {"other": 1}, 200, {"title": "", "other": 1}),
        ("ada", "POST /posts", {"version": 5}, 422, ["#/version"]),
        ("ada", "POST /brands", {"id": 7, "title": "{n}"}, 422, ["#/id"]),
        ("ada", "PATCH /brands/@brand", {"id": 7}, 422, ["#/id"]),
        ("ada", "PUT /products/none", {"name": "a"}, 404),
        ("ada", "PATCH /products/none", {"name": ""}, 404),
        ("ada", "DELETE /products/none", None, 404),
    ],
    "references": [
        *(("ada", to, {"name": "a", "product": each}, 422, ["#/product"]) for to in OF_PARTS for each in NO_PRODUCTS),
        ("ada", "POST /products", {"name": "a", "brand": 10**9}, 422, ["#/brand"]),
        ("ada", "POST /products", {"name": "a", "brand": "@person"}, 422, ["#/brand"]),
        ("ada", "POST /products", {"name": "a", "brand": "@brand"}, 200, {"brand": "@brand"}),
        *(("ada", each, {"lines": LINES}, 422, ["#/lines/1/product"]) for each in OF_ORDERS),
        ("ada", "PATCH /people/@person", {"manager": "@person"}, 200, {"manager": "@person"}),
        ("ada", "POST /orders", {"after": "@order"}, 200, {"after": "@order"}),
        ("bob", "POST /orders", {"after": "@order"}, 422, ["#/after"]),
        ("staff", "POST /orders", {"after": "@order"}, 200, {"after": "@order"}),
        *(("writer", to, {"name": "a", "product": each}, 403, OF_REFERENCE) for to in OF_PARTS for each in EITHER),
        ("writer", "POST /orders", {"lines": [{"product": "@product"}]}, 403, "in lines/0/product needs the"),
        ("writer", "PATCH /parts/@part", {"name": "b", "product": "@product"}, 200, {"name": "b"}),
        ("writer", "POST /people", {"name": "a", "manager": "@person"}, 200, {"manager": "@person"}),
        ("writer", "POST /products/@product/parts", {"name": "a"}, 403, "products:read"),
        ("ada", "POST /products/@product/parts", {"name": "a"}, 200, {"product": "@product"}),
        ("ada", "POST /products/@product/parts", {"name": "a", "product": "@other"}, 422, ["#/product"]),
        ("ada", "POST /orders/@order/orders", {}, 200, {"after": "@order"}),
        ("ada", "POST /orders/@order/orders", {"after": "@order"}, 200, {"after": "@order"}),
        ("ada", "POST /api/v1/orders/@order/orders", {}, 200, {"since": "@order"}),
        ("ada", "POST /api/v1/orders/@order/orders", {"since": "@line"}, 422, ["#/since"]),
        ("ada", "POST /api/v1/orders/@order/orders", {"since": None}, 422, ["#/since"]),
        ("bob", "POST /orders/@order/orders", {}, 404),
        ("ada", "POST /products/none/parts", {"name": "a"}, 404),
        ("ada", "POST /products/@product/people", {"name": "a"}, 404, NOWHERE),
        ("ada", "DELETE /products/@product", None, 409, "lines.product of orders refers to it", "@line"),
        ("writer", "DELETE /products/@product", None, 409, "items that the caller may not read refer to it", "@line"),
        ("ada", "DELETE /products/@product", None, 200, {}, "@part"),
    ],
    "functions and actions": [
        *(("ada", each, {"remark": "Chair 1"}, 422, ["#/remark"]) for each in OF_ORDERS),
        ("ada", "POST /orders", {"lines": [{"product": "@product", "count": 3}]}, 200, {"pieces": 3}),
        *(("ada", each, {"lines": [{"product": "@product", "count": 11}]}, 409, "not so many") for each in OF_ORDERS),
        ("ada", "POST /orders", {"pieces": 3}, 422, ["#/pieces"]),
        ("ada", "DELETE /orders/@paid", None, 409, "a paid order stays"),
        ("ada", "POST /orders/@line/pay", {"method": "c"}, 200, {"status": "paid", "version": 2}),
        ("ada", "POST /orders/@order/pay *", {"method": "c"}, 200, {"status": "paid"}),
        ("ada", 'POST /orders/@order/pay "x"', {"method": "c"}, 412),
        ("ada", 'POST /products/@product/touch "x"', None, 412),
        ("ada", "POST /products/move", {"source": "@product", "target": "@product"}, 422, ["#/target"]),
        ("ada", "POST /products/move", {"source": "@product", "target": "none"}, 409, "none"),
        ("ada", "POST /products/@product/steal", {}, 404, NOWHERE),
        ("ada", "POST /settings/darken", None, 200, {"theme": "dark"}),
        ("ada", "PATCH /settings *", {"theme": "x"}, 200, {"theme": "x"}),
        ("ada", 'PUT /settings "x"', {"theme": "x"}, 412),
    ],
    "what functions set, and return": [
        ("ada", "POST /posts", {"before": [["set", "title", "b"]]}, 200, {"title": "b", "version": 1}),
        ("ada", "POST /posts", {"before": [["set", "version", 7], ["set", "id", -8]]}, 200, {"version": 1}),
        ("ada", "PATCH /posts/@post", {"before": [["set", "title", "b"]]}, 200, {"title": "b", "version": 2}),
        ("ada", "PATCH /posts/@post", {"before": [["set", "title", "a"]]}, 200, {"version": 1}),
        ("ada", "PUT /posts/@post", {"before": [["set", "x", 1], ["return", {"y": 1}]]}, 200, {"x": 1, "y": 1}),
        ("ada", "POST /posts/@post/do", {"steps": [["set", "title", "b"]]}, 200, {"title": "b", "version": 2}),
        ("ada", "POST /posts/@post/do", {"steps": [["set", "title", "a"], ["set", "version", 7]]}, 200, {"version": 1}),
        ("ada", "POST /posts/@post/do", {"steps": [["clear", None]]}, 200, {"title": "", "version": 2}),
        ("ada", "POST /posts", {"x": [1], "before": [["append", "x", 2]]}, 200, {"x": [1, 2]}),
        ("ada", "PUT /posts/@post", {"x": [1], "before": [["append", "x", 2]]}, 200, {"x": [1, 2]}),
        ("ada", "PATCH /posts/@post", {"x": [1], "before": [["append", "x", 2]]}, 200, {"x": [1, 2]}),
        ("ada", "POST /posts/@post/do", {"steps": [["append", "list", 2]]}, 200, {"list": [1, 2]}),
        *(("ada", "POST /posts", {"before": [["set", *x]]}, 500, "prepare: " + words) for x, words in WRONG),
        *(("ada", "PATCH /posts/@post", {"before": [["set", *x]]}, 500, "prepare: " + words) for x, words in WRONG),
        *(("ada", "POST /posts/@post/do", {"steps": [["set", *x]]}, 500, "act: " + words) for x, words in WRONG),
        *(("ada", "POST /posts/all", {"steps": [CHANGE + [[["set", *x]]]]}, 500, OF_ALL + words) for x, words in WRONG),
        *(("ada", "POST /posts/all", {"steps": [["return", each]]}, 500, "has no JSON form") for each in NO_JSON),
        ("ada", "POST /posts", {"before": [["return", "x"]]}, 500, "returned 'x' instead of an item"),
        ("ada", "POST /posts/@post/do", {"steps": [["return", "x"]]}, 500, "returned 'x' instead of an item"),
        ("ada", "POST /posts/all", {"steps": [CHANGE + [[["return", "x"]]]]}, 500, "instead of an item"),
    ],
    "what functions raise, in a create, a change, and an action": [
        *(("ada", "POST /posts", {"before": [["raise", each]]}, 422, [at]) for each, at in REFUSED.items()),
        *(("ada", "PATCH /posts/@post", {"before": [["raise", each]]}, 422, [at]) for each, at in REFUSED.items()),
        *(("ada", "POST /posts/@post/do", {"steps": [["raise", each]]}, 422, at) for each, at in OF_ACTIONS),
        *(("ada", "POST /posts/all", {"steps": [["raise", each]]}, 422, at) for each, at in OF_ACTIONS),
        ("ada", "POST /posts", {"before": [["raise", "conflict"]]}, 409, "too late"),
        ("ada", "POST /posts", {"after": [["raise", "conflict"]]}, 409, "too late"),
        ("ada", "POST /posts/@post/do", {"steps": [["raise", "conflict"]]}, 409, "too late"),
        ("ada", "POST /posts/all", {"steps": [NOT_TODAY]}, 409, "posts: not today"),
        ("ada", "POST /posts", {"after": [NOT_TODAY]}, 409, "posts: not today"),
        ("ada", "POST /posts/@post/do", {"steps": [["set", "before", [["raise", "all"]]]]}, 409, "posts: not today"),
    ],
    "what functions do with other items": [
        *(("ada", *each, 409, "people: there is no item 'none'") for each in by_functions(["read", "people", "none"])),
        *(("ada", *each, 200, {}) for each in by_functions(["caught", "people", "none"])),
        *(("ada", *each, 409, "there is no such item") for each in by_functions(["read_item", "people", "none"])),
        *(("ada", *each, 409, "brands: another item has this title", "@brand") for each in by_functions(TWICE)),
        *(("ada", *each, 409, "product: there is no item 'none' in products") for each in by_functions(LOST)),
        *(("ada", *each, 409, "refers to it", "@line") for each in by_functions(["delete", "products", "@product"])),
        *(("ada", "POST /posts/all", {"steps": [["give", each]]}, 500, OF_NOBODY) for each in (*NO_OWNERS, *VALUES)),
        ("ada", "POST /posts/all", {"steps": [["give", "x" * 259]]}, 200, {}),
        *(("ada", *each, 503, "come again") for each in by_functions(["raise", "unavailable"])),
        *(("ada", *each, 500, "internal-error: not mended") for each in by_functions(["raise", "internal"])),
        *(("ada", *each, 500, "unexpected KeyError") for each in by_functions(["raise", "unexpected"])),
        *(("ada", *each, 500, "cursor: is for") for each in by_functions(["find", "people", {"cursor": "x"}])),
        *(("ada", *each, 500, "there is no collection") for each in by_functions(["find", "person"])),
        *(("writer", *each, 200, {}) for each in by_functions(FOUND)),
    ],
    "methods that a collection has not": [
        *(("admin", each, None, 405) for each in ("DELETE /logs/x", "DELETE /settings", "DELETE /products")),
        *(("admin", each, {}, 405) for each in ("POST /logs", "PATCH /logs/x", "POST /settings", "PATCH /products")),
        ("admin", "PATCH /orders/@order/pay", {}, 405),
    ],
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(*row), id=f"{title}: {row[0]} {row[1]} {json.dumps(row[2])[:80]}")
        for title, rows in TABLE.items()
        for row in rows
    ],
)
def test_each_way_gets_the_same(service: Service, case: Case, caplog: pytest.LogCaptureFixture) -> None:
    for way in ways(case):
        caplog.clear()
        *sent, expected, _ = service.filled([*way, case.expected, case.given])
        method, path, body, place, condition = sent
        headers = {"Idempotency-Key": str(next(service.numbers))}
        headers |= {"If-Match": condition} if condition and not place.endswith("body") else {}
        headers |= {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        before = last_event(service.store)
        response = service.send(case.who, method, path, body, **headers)
        told = f"{method} {path} {json.dumps(body)[:3000]}: {response.status_code} {response.text}"
        if case.status == 200:
            assert response.status_code == 200, told
            if method == "POST":
                again = service.send(case.who, method, path, body, **headers)
                assert (again.data, again.headers["Idempotent-Replayed"]) == (response.data, "true"), told
            verify(service, case, response, place, expected or {}, told)
        else:
            assert last_event(service.store) == before, told
            assert case.status != 500 or (expected in caplog.text and FUNCTION.search(caplog.text)), told
            assert sum(record.levelname == "ERROR" for record in caplog.records) == (case.status == 500), told
            verify_refusal(case, response, place, "" if case.status == 500 else expected or [], told)


def verify(service: Service, case: Case, response: Any, place: str, expected: Item, told: str) -> None:
    """It is what is stored, and what the caller reads of it: alone, in the list, and as the last event."""
    shown, headers = response.json, response.headers
    if place == "/3":
        shown = shown[3]
    elif place:
        shown, headers = (shown["results"][2][name] for name in ("body", "headers"))
    found = re.match(r"\w+ (/api/v\d|)/(\w+)(?:/[^/ ]+/(\w+))?", case.request)
    base, name, below = found.groups(default="") if found else ""
    name, id = below if below in IDS else name, shown.get("id", "")
    path = f"{base}/{name}" + f"/{id}" * (name != "settings")
    read, stored = (service.send(who, "GET", path) for who in (case.who, "admin"))
    if read.status_code == 200:
        assert read.json == shown and (place == "/3" or read.headers["ETag"] == headers["ETag"]), told
    assert headers.get("Location", path) == path, told
    if id and read.status_code != 403:
        listed = service.send(case.who, "GET", f"{base}/{name}?id={id}").json
        assert listed == [read.json] * (read.status_code == 200), told
        events = service.send(case.who, "GET", f"{base or '/api/v2'}/events?collection={name}&item={id}").json
        assert events[-1]["data"] in (shown, {"id": id}), told
    whole = stored.json if stored.status_code == 200 else shown
    if "$owner" in expected:
        whole["$owner"] = service.store.read(name, id).owner
    assert {**whole, **expected} == whole, told


def verify_refusal(case: Case, response: Any, place: str, expected: Any, told: str) -> None:
    """Its status and its faults; what is no path is another fault of a batch."""
    in_batch = place.startswith("/operations")
    if in_batch and (case.status == 405 or expected == NOWHERE):
        assert (response.status_code, faults(response.json, place)) == (422, ["path"]), told
        return
    assert response.status_code == case.status, told
    for scope in re.findall(r"needs the scope (\S+)$", response.json.get("detail", "")):
        assert f'scope="{scope}"' in response.headers["WWW-Authenticate"], told
    if isinstance(expected, str):
        assert expected in response.json.get("detail", ""), told
    else:
        assert faults(response.json, place) == sorted(expected), told
    in_form = case.status not in (401, 500) and expected != ["#"]  # else nothing has looked at operations yet
    assert not in_form or response.json.get("operation") == (2 if in_batch else None), told


def faults(problem: Item, place: str) -> list[str]:
    """Where they are: in the body, in another member of an operation, or in ?PARAMETER."""
    found = []
    for fault in problem.get("errors", ()):
        pointer = fault.get("pointer", f"?{fault.get('parameter')}")
        if pointer == "#/operations/2/path" and fault["detail"].startswith("owner "):
            pointer = "?owner"
        elif pointer.startswith(f"#{place}"):
            pointer = "#" + pointer.removeprefix(f"#{place}")
        elif pointer.startswith("#"):
            pointer = pointer.partition("#/operations/2/")[2] or f"{pointer} is not below {place}"
        found.append(pointer)
    return sorted(found)

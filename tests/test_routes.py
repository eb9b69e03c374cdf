"""Routes of a service's own: a blueprint of Flask, under the ids, errors, limits and credentials of all routes."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from flask import Blueprint, abort, request
from flask.testing import FlaskClient
from marshmallow import Schema
from openapi_spec_validator import OpenAPIV31SpecValidator

from restkeeper import (
    Config,
    Conflict,
    find_items,
    needs,
    returns,
    shown,
    takes,
)
from restkeeper.errors import InvalidQuery
from tests import shapes, shop
from tests.callers import ADMIN, ADMIN_KEY
from tests.live import Gunicorn
from tests.shop.products import RESOURCE as PRODUCTS
from tests.shop.reports import StockIsLocked, create_app

PROBLEMS = "/problems/"


@pytest.fixture
def client() -> FlaskClient:
    return create_app(Config()).test_client()


def test_a_query_is_validated_and_given(client: FlaskClient) -> None:
    """By the schema, with its defaults; what is wrong is named with its parameter, all at once."""
    client.post("/products", json={"name": "Lamp", "price": 0.1, "stock": 3})
    client.post("/products", json={"name": "Bulb", "price": 0.2, "stock": 1})
    for query, expected in (("", (2, "0.5")), ("?least=2&name=a,b&name=c", (1, "0.3")), ("?status=archived", (0, "0"))):
        response = client.get(f"/reports/stock{query}")
        assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-store")
        count, value = expected
        status = "archived" if "archived" in query else "active"
        assert response.text == f'{{"status":"{status}","count":{count},"value":{value}}}'  # exact, as a number
    response = client.get("/reports/stock?colour=red&least=x&cheap=1&status=a&status=b&name=%00")
    assert response.status_code == 400
    assert {each["parameter"] for each in response.json["errors"]} == {"colour", "least", "cheap", "status", "name"}
    too_many = client.get(f"/reports/stock?name={','.join(map(str, range(201)))}").json["errors"]
    assert too_many == [{"parameter": "name", "detail": "has at most 200 values"}]
    for least, detail in (("1001", "must be from 0 to 1000"), ("x", "must be a whole number from 0 to 1000")):
        response = client.get(f"/reports/stock?least={least}")
        assert response.json["errors"] == [{"parameter": "least", "detail": detail}]


def test_a_body_is_validated_and_given(client: FlaskClient) -> None:
    """By the schema; what the view returns is dumped, with its status. The faults have pointers."""
    sent: dict[str, Any] = {"name": "a", "stock": 1}
    response = client.post("/reports/counts/2026", json=sent)
    assert (response.status_code, response.json) == (201, [sent | {"places": []}])
    wrong = {"name": "", "stock": -1, "places": ["x" * 21, "\0"], "colour": "red"}
    response = client.post("/reports/counts/2026", json=wrong)
    assert response.status_code == 422 and response.json["errors"] == [
        {"pointer": "#/places/1", "detail": "must not hold NUL"}
    ]
    wrong["places"] = ["x" * 21]
    pointers = {each["pointer"] for each in client.post("/reports/counts/1", json=wrong).json["errors"]}
    assert pointers == {"#/name", "#/stock", "#/places/0", "#/colour"}
    for body, status in (("[]", 422), ('{"name": NaN}', 400), ('{"a": 1, "a": 2}', 400), ("", 400)):
        assert client.post("/reports/counts/1", data=body, content_type="application/json").status_code == status
    assert client.post("/reports/counts/1", data="name=a").status_code == 415
    assert client.post("/reports/counts/1", json=sent, headers={"Accept": "text/csv"}).status_code == 406


def test_a_body_is_limited() -> None:
    client = create_app(Config(max_body=100)).test_client()
    for path in ("/reports/raw", "/reports/counts/1"):
        response = client.post(path, data=b"x" * 101, content_type="application/json")
        assert (response.status_code, response.json["type"]) == (413, f"{PROBLEMS}body-too-large")
    assert client.post("/reports/raw", data=b"x" * 100).json == {"bytes": 100}


def test_a_problem_of_its_own_has_a_type(client: FlaskClient) -> None:
    """By a class with a docstring: its status, its name, its title, and a page. All others are as everywhere."""
    response = client.post("/reports/counts/7", json={"name": "locked", "stock": 1})
    problem = response.json
    assert (response.status_code, problem["type"], problem["title"], problem["detail"]) == (
        *(409, f"{PROBLEMS}stock-is-locked", "Stock is locked", "the stock of 7 is being counted"),
    )
    about = "The stock is being counted: try again when that is done."
    assert (StockIsLocked.about, Conflict.name, Conflict.status) == (about, "conflict", 409)
    for path, status, name in (
        ("/reports/products/none", 404, "not-found"),
        ("/reports/none", 404, "not-found"),
        ("/reports/plain/broken", 500, "internal-error"),
    ):
        response = client.get(path)
        assert (response.status_code, response.json["type"]) == (status, f"{PROBLEMS}{name}")
        assert "secret" not in response.text
    assert client.delete("/reports/stock").status_code == 405
    page = {"title": "Stock is locked", "status": 409, "about": StockIsLocked.about}
    assert client.get("/problems/stock-is-locked").json == page
    assert client.get("/problems/conflict").json["status"] == 409


@pytest.mark.needs("pages")
def test_a_view_can_abort() -> None:
    """With any status: the problem has the general type of that, if there is one, and the headers of the exception."""
    routes = Blueprint("routes", __name__, url_prefix="/routes")

    @routes.get("/<int:status>")
    @needs("public")
    def refuse(status: int) -> NoReturn:
        abort(status, "for a reason")

    client = shop.create_app(Config(), [], blueprints=[routes]).test_client()
    names = {401: "unauthorized", 403: "forbidden", 409: "conflict", 422: "validation-failed", 429: "quota-exceeded"}
    for status, name in {**names, 500: "internal-error", 503: "unavailable", 418: "about:blank"}.items():
        response = client.get(f"/routes/{status}")
        assert (response.status_code, response.json["detail"]) == (status, "for a reason")
        assert response.json["type"].endswith(name)
        assert response.json["code"] == ("i-m-a-teapot" if status == 418 else name)


def test_a_view_can_have_a_parameter_that_is_called_owner() -> None:
    """In the API itself a write that would ignore it is refused."""
    routes = Blueprint("routes", __name__, url_prefix="/routes")
    routes.post("")(needs("public")(lambda: request.args["owner"]))
    client = shop.create_app(Config(), blueprints=[routes]).test_client()
    assert client.post("/routes?owner=ada").text == "ada"
    assert client.post("/products?owner=ada", json={"name": "Lamp"}).status_code == 422


def test_a_view_returns_what_flask_takes(client: FlaskClient) -> None:
    for name, status, content_type, text in (
        ("text", 200, "text/html; charset=utf-8", "<b>hello</b>"),
        ("list", 200, "application/json", '[{"price":0.10,"2026":null}]'),
        ("response", 200, "text/html; charset=utf-8", "x"),
        ("stream", 200, "text/plain; charset=utf-8", "ab"),
        ("none", 204, "text/html; charset=utf-8", ""),
    ):
        response = client.get(f"/reports/plain/{name}")
        assert (response.status_code, response.content_type, response.text) == (status, content_type, text)


def test_an_item_is_read_as_it_is_stored(client: FlaskClient) -> None:
    made = client.post("/products", json={"name": "Lamp", "price": 49.90}).json
    assert client.get(f"/reports/products/{made['id']}").json == made
    app = create_app(Config(page_limit=1, page_limit_max=2, page_bytes=1))  # an item at a time
    inner = app.test_client()
    for number in range(5):
        inner.post("/products", json={"name": f"{number}", "tags": ["x"] if number else []})
    with app.test_request_context():
        found = find_items("products", {"tags": "x", "sort": "-name"})
        assert [each["name"] for each in found] == ["4", "3", "2", "1"]
        assert len(list(find_items("products"))) == 5
        for parameters in ({"limit": 2}, {"name": ["1", "2"]}, {"offset": 3}):
            assert len(list(find_items("products", parameters))) == 2
    app = shop.create_app(Config(page_limit=2, page_limit_max=2), [replace(PRODUCTS, sort="-name")])
    for name in "bca":
        app.test_client().post("/products", json={"name": name})
    with app.test_request_context():
        assert [each["name"] for each in find_items("products")] == ["c", "b", "a"]


def test_a_view_finds_items_with_what_is_embedded() -> None:
    """As lists do, for all items and whoever calls; `shown` leaves out private fields, also of what is embedded."""
    app = shop.create_app(Config(auth="open", page_limit=2), shapes.RESOURCES)
    client = app.test_client()
    lamp = client.post("/products", json={"name": "Lamp"}).json
    parts = [client.post("/parts", json={"name": "bulb", "product": lamp["id"]}).json for _ in range(3)]
    first = client.post("/orders", json={"secret": "a"}).json
    sent = {"after": first["id"], "lines": [{"product": lamp["id"]}], "secret": "b"}
    orders = [client.post("/orders", json=sent).json for _ in range(4)]
    with app.test_request_context():
        for limit in ({}, {"limit": 3}):
            found = [*find_items("orders", {"embed": "after,lines.product", "sort": "-id", **limit})]
            lines = [{"product": lamp, "count": 1}]
            expected = [*({**each, "after": first, "lines": lines} for each in orders[::-1]), first]
            assert found == expected[: limit.get("limit")]
        assert [*find_items("orders", {"fields": ["id", "secret"], "embed": ["after"], "sort": "-id", "limit": 1})] == [
            {"id": orders[3]["id"], "after": first, "secret": "b"}
        ]
        assert [*find_items("products", {"fields": "name"})] == [{"name": "Lamp"}]
        (product,) = find_items("products", {"embed": "parts", "fields": "name"})
        assert product["parts"] == [parts[2], parts[1]]
        assert product["parts_next"] == f"/parts?product={lamp['id']}&sort=-id&offset=2"
        public = shown("orders", found[0])
        assert "secret" not in public and public["after"] == {key: first[key] for key in first if key != "secret"}


def test_a_view_learns_of_a_wrong_parameter_at_the_call() -> None:
    """And not where a template takes the first item."""
    app = shop.create_app(Config(), [PRODUCTS])
    with app.test_request_context():
        for parameters in ({"cursor": "x"}, {"export": "csv"}, {"name": []}):
            with pytest.raises(ValueError, match="is for responses|is an empty list"):
                find_items("products", parameters)
        for parameters in ({"fields": "none"}, {"embed": "none"}, {"none": 1}):
            with pytest.raises(InvalidQuery, match="none"):
                find_items("products", parameters)


MISTAKES: list[tuple[str, str, str]] = [  # a path, what it needs, and the message
    ("/hello", "", r"own\.\S+: say what it needs, with @restkeeper\.needs of 'public', .* like 'reports:read'"),
    ("/products/report", "public", r"own\.\S+: /products/report: the path is taken; begin it with a name like /repo"),
    ("/api/v1/report", "public", "the path is taken"),
    ("/openapi.yaml", "public", "the path is taken"),
    ("/", "public", "the path is taken"),
    ("/<name>", "public", "the path is taken"),
]


@pytest.mark.needs("pages")
def test_a_mistake_stops_the_start() -> None:
    for path, needed, message in MISTAKES:
        own = Blueprint("own", __name__)
        own.add_url_rule(path, view_func=needs(needed)(view()) if needed else view())
        with pytest.raises(ValueError, match=message):
            shop.create_app(Config(), blueprints=[own])
    for wrong, message in (
        (Blueprint("products", __name__), "The name 'products' is already registered"),
        (object(), "must be a flask.Blueprint"),
    ):
        with pytest.raises(ValueError, match=message):
            shop.create_app(Config(), blueprints=[wrong])
    own, late = Blueprint("own", __name__), needs("public")(view())
    own.add_url_rule("/late", view_func=late)
    takes(query=Schema)(late)
    with pytest.raises(ValueError, match=r"own\.\S+: write @takes and @returns below the decorator of the route"):
        shop.create_app(Config(), blueprints=[own])
    declarations: list[tuple[Any, str]] = [
        (lambda: takes(body=Schema(many=True)), "must be a schema of marshmallow, of one object"),
        (lambda: takes(query="since"), "'since': must be a schema of marshmallow, of one object"),
        (lambda: returns(Schema, Schema), "a view returns what one schema has"),
        (lambda: returns(404), "404: must be a schema of marshmallow"),
        (lambda: needs("reports read"), re.escape("must be one of 'public', ")),
    ]
    for declare, message in declarations:
        with pytest.raises(ValueError, match=message):
            declare()


def view() -> Any:
    return lambda: "x"


@pytest.mark.needs("keys")
def test_a_view_of_options_needs_what_it_says() -> None:
    """Only the one that Flask answers needs nothing."""
    routes = Blueprint("own", __name__)
    routes.add_url_rule("/own", "own", needs("admin")(lambda: {"secret": 1}), methods=["GET", "OPTIONS"])
    routes.add_url_rule("/usual", "usual", needs("admin")(lambda: {}))
    client = create_app(Config(auth="required", admin_key=ADMIN_KEY), blueprints=[routes]).test_client()
    assert [client.options(path).status_code for path in ("/own", "/usual")] == [401, 200]


@pytest.mark.needs("openapi", "keys")
def test_own_routes_are_documented(client: FlaskClient) -> None:
    document = client.get("/openapi.json").json
    OpenAPIV31SpecValidator(document).validate()
    assert document["info"]["title"] == "Lamps & more"
    assert {"name": "reports", "description": "The routes of reports."} in document["tags"]
    read = document["paths"]["/reports/stock"]["get"]
    assert (read["operationId"], read["tags"], read["summary"]) == ("read_stock", ["reports"], "Read stock")
    assert [(each["name"], each["in"], each["required"]) for each in read["parameters"]] == [
        *(("status", "query", False), ("name", "query", False), ("least", "query", False), ("cheap", "query", False))
    ]
    assert read["parameters"][2]["schema"] == {
        **{"type": "integer", "format": "int32", "minimum": 0, "maximum": 1000, "default": 0}
    }
    assert read["parameters"][1]["explode"] is False
    assert {"200", "400", "default"} == set(read["responses"])
    count = document["paths"]["/reports/counts/{year}"]
    assert count["parameters"][0]["schema"]["type"] == "integer"
    sent = count["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert sent == {"$ref": "#/components/schemas/Count"}
    schema = count["post"]["responses"]["201"]["content"]["application/json"]["schema"]
    assert schema["type"] == "array" and schema["items"] == {"$ref": "#/components/schemas/Count"}
    assert "stock-is-locked" in str(document["components"]["responses"]["StockIsLocked"])
    assert document["components"]["schemas"]["Count"]["additionalProperties"] is False
    assert read["x-required-scope"] == "reports:read"
    scopes = document["components"]["schemas"]["KeyInput"]["properties"]["scopes"]["items"]["enum"]
    assert {"admin", "products:read", "reports:read", "reports:write"} <= set(scopes)
    refused = client.post("/api/v1/keys", json={"name": "x", "scopes": ["reports:delete"]})
    assert refused.status_code == 422 and "reports:read" in refused.json["errors"][0]["detail"]


def test_own_routes_are_served_as_all_others(tmp_path: Path) -> None:
    """Two workers: scopes, limits, request ids, CORS, problems and unknown paths are those of all routes."""
    settings = {
        "AUTH": "required",
        "ADMIN_KEY": ADMIN_KEY,
        "CORS_ORIGINS": "https://example.org",
        "RATE_LIMIT": "5000 per day",
    }
    with Gunicorn(tmp_path, app="tests.shop.reports:create_app()", **settings) as server:
        keys = {}
        for scope in ("reports:read", "products:read"):
            made = server.post("/api/v1/keys", {"name": scope, "scopes": [scope]}, ADMIN)
            keys[scope] = {"X-API-Key": made.json()["secret"], "X-Request-Id": "mine", "Origin": "https://example.org"}
        for _ in range(8):
            assert server.get("/reports/stock", keys["reports:read"]).status == 200
        read = server.get("/reports/stock", keys["reports:read"])
        assert (read.headers["x-request-id"], read.headers["x-ratelimit-remaining"]) == ("mine", "4991")
        assert read.headers["access-control-allow-origin"] == "https://example.org"
        refused = server.get("/reports/stock", keys["products:read"])
        assert (refused.status, refused.json()["detail"]) == (403, "this needs the scope reports:read")
        assert 'scope="reports:read"' in refused.headers["www-authenticate"]
        assert server.get("/reports/stock").status == 401
        assert server.get("/reports/stock", ADMIN).status == 200
        assert server.post("/reports/counts/1", {}, keys["reports:read"]).status == 403
        broken = server.get("/reports/plain/broken", {"X-Request-Id": "why"})
        assert (broken.status, broken.json()["request_id"]) == (500, "why")
        assert server.get("/reports/none").status == 404
        preflight = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
        allowed = server.request("OPTIONS", "/reports/counts/1", None, preflight)
        assert allowed.status == 204 and "POST" in allowed.headers["access-control-allow-methods"]
        assert server.request("HEAD", "/reports/stock", None, keys["reports:read"]).body == b""
        assert any("ZeroDivisionError" in line for line in server.lines())

"""Batches: several operations in one transaction."""

import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from restkeeper import Config, Items
from restkeeper.web.bodies import JSON
from restkeeper.web.calls import LARGE
from tests.callers import pointers
from tests.live import Gunicorn
from tests.shapes import BRANDS, PARTS, PEOPLE, POSTS, PRODUCTS
from tests.shop import create_app as create_shop
from tests.shop.orders import create_app

pytestmark = pytest.mark.needs("batch", "events", "idempotency", "keys")

LAMP = {"method": "POST", "path": "/products", "body": {"name": "Lamp", "stock": 3}, "name": "lamp"}
ORDER = {"method": "POST", "path": "/orders", "body": {"product": "$lamp", "note": "costs $/$lamp"}, "name": "order"}
PAY = {"method": "POST", "path": "/orders/$order/pay", "body": {"method": "card"}}


@pytest.fixture
def client() -> FlaskClient:
    return create_app(Config()).test_client()


def send(client: FlaskClient, *operations: dict[str, Any], **headers: str) -> TestResponse:
    return client.post("/api/v1/batch", json={"operations": operations}, headers=headers)


def count(client: FlaskClient) -> int:
    return len(client.get("/api/v1/events?limit=100").json)


def test_operations_follow_each_other(client: FlaskClient) -> None:
    """A later one uses what an earlier one created; each has its result and its event."""
    rename = {"method": "PATCH", "path": "/products/$lamp", "body": {"name": "Bulb"}}
    renew = {"method": "PUT", "path": "/products/$lamp", "body": {"name": "Tube", "stock": 9}}
    close = {"method": "POST", "path": "/orders/close-day"}
    response = send(client, LAMP, ORDER, PAY, rename, renew, close)
    assert response.status_code == 200
    lamp, order, paid, renamed, replaced, closed = response.json["results"]
    assert order["body"]["product"] == lamp["body"]["id"] and order["body"]["note"] == "costs $/$lamp"
    assert (paid["body"]["id"], paid["body"]["status"]) == (order["body"]["id"], "paid")
    assert (renamed["body"]["name"], renamed["body"]["stock"]) == ("Bulb", 2)
    stored = client.get(f"/products/{lamp['body']['id']}")
    assert (replaced["body"], replaced["headers"]) == (stored.json, {"ETag": stored.headers["ETag"]})
    assert closed == {"status": 200, "headers": {}, "body": {"deleted": "closed"}}
    deleted = send(client, {"method": "DELETE", "path": f"/products/{lamp['body']['id']}"})
    assert deleted.json["results"][0]["body"] == stored.json
    assert client.get(f"/products/{lamp['body']['id']}").status_code == 404


class Late(io.BytesIO):
    """A body that a client sends only after another client's request, which it returns the status of."""

    def __init__(self, body: bytes, others: Callable[[], TestResponse]) -> None:
        super().__init__(body)
        self.others = others
        self.status = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.status = self.status or self.others().status_code
        return super().read(size)


def test_a_large_batch_waits_for_no_client(client: FlaskClient) -> None:
    """Large ones are done one after the other, but each is read before."""
    body = json.dumps({"operations": [LAMP]}).encode() + b" " * LARGE

    def post(stream: io.BytesIO) -> TestResponse:
        return client.post("/api/v1/batch", input_stream=stream, content_length=len(body), content_type=JSON)

    late = Late(body, lambda: post(io.BytesIO(body)))
    assert (post(late).status_code, late.status) == (200, 200)


def test_a_condition_of_a_new_item_is_refused() -> None:
    """Also at the path of another item. Others are compared: see test_crossings.py."""
    client = create_shop(Config(), [PRODUCTS, BRANDS, PARTS]).test_client()
    path, new = client.post("/products", json={"name": "Lamp"}).headers["Location"], {"method": "POST", "body": {}}
    refused = send(client, {**new, "path": f"{path}/parts", "if_match": '"stale"'})
    assert (refused.status_code, refused.json["operation"]) == (422, 0)
    assert pointers(refused) == ["#/operations/0/if_match"] and client.get("/parts").json == []


def test_what_means_nothing_is_refused(client: FlaskClient) -> None:
    """A name for what is no item, or for two; a condition where no item is compared, and a body that nothing reads."""
    close = {"method": "POST", "path": "/orders/close-day"}
    named = send(client, LAMP, {**close, "name": "day"})
    assert (named.status_code, named.json["operation"]) == (422, 1)
    assert pointers(named) == ["#/operations/1/name"]
    for operation in (close, LAMP):
        refused = send(client, {**LAMP, "name": "first"}, {**operation, "if_match": "*"})
        assert pointers(refused) == ["#/operations/1/if_match"] and client.get("/products").json == []
    refused = send(client, LAMP, ORDER, {**LAMP, "body": {"name": "Other"}}, LAMP)
    assert refused.json["errors"] == [{"pointer": "#/operations/2/name", "detail": "is that of an earlier operation"}]
    for operation in (close, {"method": "DELETE", "path": "/products/$lamp"}):
        refused = send(client, LAMP, {**operation, "body": {"x": 1}})
        assert (refused.status_code, pointers(refused)) == (422, ["#/operations/1/body"])
        assert "takes no body" in refused.json["detail"]
        assert count(client) == 0
    assert send(client, LAMP, {**close, "body": {}}).status_code == 200


def test_a_batch_is_done_once_for_a_key(client: FlaskClient) -> None:
    first, again = (send(client, LAMP, ORDER, **{"Idempotency-Key": "one"}) for _ in range(2))
    assert (first.status_code, first.data) == (200, again.data) and again.headers["Idempotent-Replayed"] == "true"
    assert send(client, LAMP, **{"Idempotency-Key": "one"}).status_code == 422
    assert len(client.get("/products").json) == 1


def test_a_batch_that_fails_changes_nothing(client: FlaskClient) -> None:
    """The problem has the number of the operation, and points into its body."""
    for operation, status, places in (
        ({"method": "PUT", "path": "/products/$lamb", "body": {"name": "x"}}, 422, ["path"]),
        ({"method": "DELETE", "path": "/products/$lamp", "if_match": '"old"'}, 412, []),
        ({"method": "POST", "path": "/orders/$order/pay", "body": {}}, 422, ["body/method"]),
        ({"method": "POST", "path": "/orders/pay"}, 422, ["path"]),
        ({"method": "POST", "path": "/keys", "body": {"name": "x"}}, 422, ["path"]),
        ({"method": "POST", "path": "/../products"}, 422, ["path"]),
        ({"method": "POST", "path": "products"}, 422, ["path"]),
    ):
        response = send(client, LAMP, ORDER, operation)
        assert (response.status_code, response.json["operation"]) == (status, 2)
        found = sorted(pointers(response)) if "errors" in response.json else []
        assert found == [f"#/operations/2/{place}" for place in places], operation
        assert count(client) == 0 and client.get("/products").json == []


def test_the_first_operation_that_fails() -> None:
    """Also if the database would report it only after a later one, or at the end; functions change items, too."""
    people, posts = replace(PEOPLE), replace(POSTS)

    @posts.before("create")
    def create(post: dict[str, Any], before: None, items: Items) -> None:
        if "makes" in post:
            items.create("people", {"name": "a", "email": post["makes"]})
        if "refers" in post:
            items.create("people", {"name": "a", "manager": post["refers"]})

    people.action("take")(lambda person, items: {**person, "email": "taken@x.org"})
    client = create_shop(Config(), [people, posts]).test_client()
    assert client.post("/people", json={"name": "a", "email": "taken@x.org"}).status_code == 200

    def make(path: str, **body: Any) -> dict[str, Any]:
        return {"method": "POST", "path": path, "body": body}

    def person(**more: Any) -> dict[str, Any]:
        return make("/people", name="a", **more)

    one, wrong, post = {**person(), "name": "one"}, make("/nothing"), make("/posts")
    duplicate, new = person(email="taken@x.org"), "new@x.org"
    taking, making = make("/posts", makes="taken@x.org"), make("/posts", makes=new)
    for number, operations, code, places in (
        (1, [one, duplicate, one | {"name": "two"}], "duplicate", ["body/email"]),
        (1, [one, duplicate, wrong], "duplicate", ["body/email"]),
        (1, [one, wrong, duplicate], "validation-failed", ["path"]),
        (1, [one, taking, post, person()], "duplicate", []),
        (1, [one, taking, wrong], "duplicate", []),
        (2, [one, making, person(email=new), one], "duplicate", ["body/email"]),
        (2, [one, person(email=new), making, person()], "duplicate", []),
        (1, [one, make("/people/$one/take"), post, duplicate], "duplicate", []),
        (1, [one, make("/posts", refers="none"), person()], "conflict", []),
        (1, [one, person(manager="none"), duplicate, wrong], "validation-failed", ["body/manager"]),
    ):
        names = [{**each, "name": f"n{place}"} if place else each for place, each in enumerate(operations)]
        response = send(client, *names)
        found = [each["pointer"] for each in response.json.get("errors", [])]
        assert (response.json["code"], response.json["operation"]) == (code, number), operations
        assert found == [f"#/operations/{number}/{place}" for place in places], operations
        of_function = code == "duplicate" and not places
        assert ("people: another item has this email" == response.json["detail"]) == of_function
        assert len(client.get("/people").json) == 1


def test_a_batch_is_bounded(client: FlaskClient) -> None:
    for operations in ([], [LAMP] * 101, [{"method": "GET", "path": "/products"}]):
        response = send(client, *operations)
        assert response.status_code == 422 and response.json["errors"][0]["pointer"].startswith("#/operations")
    large = client.post("/products", json={"name": "large", "attributes": {"text": "x" * 120_000}}).json["id"]
    touch = [{"method": "PATCH", "path": f"/products/{large}", "body": {"stock": number}} for number in range(1, 10)]
    assert send(client, *touch[:8]).status_code == 200
    response = send(client, *touch)
    assert (response.status_code, response.json["operation"]) == (413, 8)


def test_requests_that_lock_the_same_items_in_opposite_orders(tmp_path: Path) -> None:
    """Batches and actions do not end each other: PostgreSQL would find a deadlock after a second, again and again."""
    with Gunicorn(tmp_path, app="tests.shop.orders:create_app()", RATE_LIMIT="off") as server:
        ids = [each["id"] for each in server.post("/orders", [{"product": "x"}] * 6).json()]

        def change(number: int) -> int:
            order = [f"/orders/{each}" for each in (ids if number % 4 < 2 else ids[::-1])]
            if number % 2:
                changes = [{"method": "PATCH", "path": path, "body": {"note": f"{number}"}} for path in order]
                return server.post("/api/v1/batch", {"operations": changes}).status
            return server.post(f"{order[0]}/follow", {"order": order[-1][8:], "note": f"{number}"}).status

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(change, range(32))) == [200] * 32
        assert "a change is repeated" not in server.log.read_text()


def test_a_nested_path_has_the_methods_of_its_collection() -> None:
    """As alone: what a collection does not allow is no operation."""
    client = create_shop(Config(), [PRODUCTS, BRANDS, replace(PARTS, methods=("GET",))]).test_client()
    path = f"{client.post('/products', json={'name': 'Lamp'}).headers['Location']}/parts"
    operation = {"method": "POST", "path": path, "body": {"name": "bulb"}}
    assert client.post(path, json={"name": "bulb"}).status_code == 405
    assert client.post("/api/v1/batch", json={"operations": [operation]}).status_code == 422
    assert client.get("/parts").json == []

"""One item: create, read, replace, merge and delete, on both paths of both collections."""

import re
from dataclasses import replace

import pytest
from flask.testing import FlaskClient

from restkeeper import Index
from restkeeper.config import Config
from tests.shapes import PEOPLE
from tests.shop import create_app

PATHS = {"/products": {"name": "Lamp"}, "/users": {"email": "ada@example.org"}}
EVERY = [(prefix + path, body) for path, body in PATHS.items() for prefix in ("", "/api/v1")]
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_every_collection_has_all_operations(client: FlaskClient) -> None:
    """With 200 for every success; the two paths of a collection have the same items."""
    for path, body in EVERY:
        made = client.post(path, json=body)
        where = made.headers["Location"]
        assert where == f"{path}/{made.json['id']}"
        assert client.get(path).json == [made.json]
        other = where.removeprefix("/api/v1") if where.startswith("/api") else f"/api/v1{where}"
        assert client.get(where).json == client.get(other).json == made.json
        replaced = client.put(where, json={**body, "name": "New"})
        assert (replaced.json["name"], replaced.json["version"]) == ("New", 2)
        merged = client.patch(where, json={"name": "Newer"})
        assert (merged.json["name"], merged.json["version"]) == ("Newer", 3)
        deleted = client.delete(where)
        assert deleted.json == merged.json
        assert {made.status_code, replaced.status_code, merged.status_code, deleted.status_code} == {200}
        assert client.get(where).status_code == client.delete(where).status_code == 404
        assert client.put(where, json=body).status_code == 404  # it never creates
        assert client.get(path).json == []


def test_a_created_product_is_complete(client: FlaskClient) -> None:
    item = client.post("/products", json={"name": "Lamp"}).json
    assert list(item) == [
        *("id", "name", "description", "sku", "price", "currency", "stock", "tags", "attributes", "status"),
        *("created_at", "updated_at", "version"),
    ]
    assert UUID7.fullmatch(item["id"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", item["created_at"])
    assert item["updated_at"] == item["created_at"]
    expected = {"description": None, "sku": None, "price": None, "currency": "USD", "stock": 0, "tags": []}
    assert expected.items() <= item.items()
    assert (item["attributes"], item["status"], item["version"]) == ({}, "active", 1)


def test_put_of_the_same_values_changes_nothing(client: FlaskClient) -> None:
    """Sent as read or as first sent; a client that sends the whole item back may repeat a change, too."""
    sent = {"name": "Lamp", "price": 12.5, "attributes": {"a": [1, {"b": None}]}}
    made = client.post("/products", json=sent)
    where = made.headers["Location"]
    tag = client.get("/products").headers["ETag"]
    for body in (sent, made.json, {**sent, "price": 12.50, "id": made.json["id"]}):
        again = client.put(where, json=body)
        assert (again.status_code, again.data) == (200, made.data)
    assert client.get("/products").headers["ETag"] == tag
    changed = {**made.json, "name": "Lamp 2"}
    first, second = client.put(where, json=changed), client.put(where, json=changed)
    assert (first.status_code, second.status_code, second.data) == (200, 200, first.data)
    assert client.put(where, json={**changed, "name": "Lamp 3"}).status_code == 409
    where = client.post("/products", json={"name": "x", "attributes": {"on": 1}}).headers["Location"]
    assert client.patch(where, json={"attributes": {"on": True}}).json["attributes"] == {"on": True}
    assert b'"on":true' in client.get(where).data


def test_the_fields_parameter_selects_fields(client: FlaskClient) -> None:
    made = client.post("/products", json={"name": "Lamp", "price": 0.1})
    assert client.get(made.headers["Location"] + "?fields=price,id").data == (
        f'{{"id":"{made.json["id"]}","price":0.1}}'.encode()
    )
    assert client.get("/products?fields=name").json == [{"name": "Lamp"}]
    for path in (made.headers["Location"], "/products"):
        refused = client.get(f"{path}?fields=name,colour")
        assert refused.status_code == 400
        assert "colour" in refused.json["detail"] and "currency" in refused.json["detail"]


@pytest.mark.needs("references")
def test_a_taken_value_is_named() -> None:
    """Of several the first that the store refuses; null is not taken."""
    unique = (Index("age", unique=True), Index("email", unique=True, fold=True))
    client = create_app(Config(), [replace(PEOPLE, indexes=unique)]).test_client()
    for person in ({"email": "A@x.org", "age": 1}, {"email": "b@x.org"}, {"age": 3}):
        assert client.post("/people", json={"name": "x", **person}).status_code == 200
    for sent, taken in (
        ({"email": "a@X.org", "age": 3}, {"email", "age"}),
        ({"email": "a@X.org", "age": 9}, {"email"}),
        ({"email": None, "age": 1}, {"age"}),
    ):
        refused = client.post("/people", json={"name": "x", **sent})
        (name,) = (each["pointer"].removeprefix("#/") for each in refused.json["errors"])
        assert refused.status_code == 409 and name in taken
        assert refused.json["detail"] == f"another item has this {name}"

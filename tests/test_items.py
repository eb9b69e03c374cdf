"""One item: create, read, replace, merge and delete, on both paths of both collections."""

import re
from dataclasses import replace
from itertools import product

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


def test_put_resets_omitted_fields(client: FlaskClient) -> None:
    made = client.post("/products", json={"name": "Lamp", "stock": 5, "tags": ["a"], "sku": "s"}).json
    now = client.put(f"/products/{made['id']}", json={"name": "Lamp"}).json
    assert (now["stock"], now["tags"], now["sku"]) == (0, [], None)
    assert (now["id"], now["created_at"], now["version"]) == (made["id"], made["created_at"], 2)
    assert now["updated_at"] >= made["updated_at"]


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


def test_merge_patch_is_rfc_7396(client: FlaskClient) -> None:
    """null resets a field to its default, and is a fault in a required, unknown or read-only one."""
    sent = {"name": "x", "tags": ["a", "b"], "description": "d", "attributes": {"keep": 1, "drop": 2, "deep": {"a": 1}}}
    where = client.post("/products", json=sent).headers["Location"]
    patch = {"tags": ["c"], "description": None, "attributes": {"drop": None, "deep": {"b": 2}, "new": []}}
    now = client.patch(where, json=patch, headers={"Content-Type": "application/merge-patch+json"}).json
    assert (now["tags"], now["description"]) == (["c"], None)
    assert now["attributes"] == {"keep": 1, "deep": {"a": 1, "b": 2}, "new": []}
    assert client.patch(where, json={}).json == now
    for field in ("name", "", "colour", "id", "version"):
        refused = client.patch(where, json={field: None})
        assert (refused.status_code, [each["pointer"] for each in refused.json["errors"]]) == (422, [f"#/{field}"])


MOVES = {
    "/products": {("draft", "active"), ("active", "archived"), ("archived", "active")},
    "/users": {("invited", "active"), ("active", "suspended"), ("suspended", "active")},
}


def test_states_change_as_declared(client: FlaskClient) -> None:
    """PUT and PATCH make each declared change of state; any other returns 409 with the allowed states."""
    for path, moves in MOVES.items():
        states = sorted({state for move in moves for state in move})
        for n, (old, new, send) in enumerate(product(states, states, (client.put, client.patch))):
            body = {"name": "x"} if path == "/products" else {"email": f"a{n}@x.org"}
            where = client.post(path, json={**body, "status": old}).headers["Location"]
            response = send(where, json={**body, "status": new})
            if old == new or (old, new) in moves:
                assert (response.status_code, response.json["status"]) == (200, new)
                continue
            assert response.status_code == 409
            assert response.json["type"].endswith("/problems/illegal-transition")
            assert response.json["allowed"] == [to for of, to in sorted(moves) if of == old]
            assert client.get(where).json["status"] == old


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

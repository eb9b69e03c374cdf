"""Whose items a key, a token and staff reach, and which states no caller sets.

What each caller gets by each request is in test_crossings.py and test_worlds.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper import Config, ItemSchema, Lifecycle, Resource, Status, Text
from tests import issuer
from tests.callers import ADMIN, ADMIN_KEY, bearer, key
from tests.shapes import BRANDS, NOTES, PRODUCTS, OrderSchema
from tests.shapes import RESOURCES as SHAPES
from tests.shop import create_app

pytestmark = pytest.mark.needs("events", "keys", "ownership")

CONFIG = Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off")


@pytest.fixture
def client() -> FlaskClient:
    return create_app(CONFIG, SHAPES).test_client()


def test_a_new_item_is_of_the_first_owner(client: FlaskClient) -> None:
    """Or of another one that the caller names; a rotated key has the same owners."""
    scopes = ("orders:read", "orders:write")
    member, ada = (key(client, *scopes, name=name, owners=[name, "team"]) for name in ("other", "ada"))
    first, second = (client.post(f"/orders{query}", json={}, headers=member).json for query in ("", "?owner=team"))
    (one,) = client.get("/api/v1/keys?name=other", headers=ADMIN).json
    rotated = client.post(f"/api/v1/keys/{one['id']}/rotate", headers=ADMIN).json
    assert rotated["owners"] == ["other", "team"]
    for caller, seen in (({"X-API-Key": rotated["secret"]}, [first, second]), (ada, [second])):
        assert client.get("/orders?sort=id", headers=caller).json == seen
    for wrong in ([""], ["x" * 201], [f"t{n}" for n in range(21)], "ada", [None]):
        sent = {"name": "x", "scopes": ["notes:read"], "owners": wrong}
        assert client.post("/api/v1/keys", json=sent, headers=ADMIN).status_code == 422, wrong


@pytest.mark.needs("jwt")
def test_the_owners_of_a_token(tmp_path: Path) -> None:
    """A claim names them; without one it is the name of the caller, which no claim can be, and not the subject."""
    config = replace(CONFIG, jwt_owner="teams", **issuer.trusted(tmp_path))
    client = create_app(config, [NOTES], clock=issuer.SetClock(issuer.START)).test_client()

    def token(**claims: Any) -> dict[str, str]:
        return bearer(issuer.token(scope="notes:read notes:write", **claims))

    made = [
        client.post("/notes", json={"text": "x"}, headers=token(**of)).headers["Location"]
        for of in ({"teams": "team-a"}, {"teams": "team-b"}, {"sub": "ada"})
    ]
    for claims, statuses in (
        ({"teams": ["team-a", "team-b"]}, [200, 200, 404]),
        ({"teams": "team-b"}, [404, 200, 404]),
        ({}, [404, 404, 200]),
        ({"sub": "team-a"}, [404, 404, 404]),
        ({"teams": ["jwt:ada"]}, [401, 401, 401]),
    ):
        assert [client.get(path, headers=token(**claims)).status_code for path in made] == statuses, claims


def test_the_history_of_an_item_that_staff_changes_is_its_owner_s(client: FlaskClient) -> None:
    ada = key(client, "orders:read", "orders:write", owners=["ada"])
    staff = key(client, "orders:write", "orders:all", owners=["staff"])
    path = client.post("/orders", json={"remark": "ada's"}, headers=ada).headers["Location"]
    for method, sent in (("PATCH", {"remark": "one"}), ("PUT", {"remark": "two"}), ("DELETE", None)):
        assert client.open(path, method=method, json=sent, headers=staff).status_code == 200
    events = client.get("/api/v1/events?collection=orders", headers=ada).json
    assert [each["data"]["remark"] for each in events] == ["ada's", "one", "two", "two"]


def test_the_scope_is_reserved(client: FlaskClient) -> None:
    """No action, field or state has it; keys have that of a collection whose items have owners."""
    message = "'notes:all' is reserved for reaching the items of all owners"
    with pytest.raises(ValueError, match=message):
        Resource("notes", "note", ItemSchema).action("see", scope="notes:all")(lambda note, items: None)
    guarded = (Text(load_default="", writable_by="notes:all"), Status(Lifecycle("a", {"a": ()}, {"a": "notes:all"})))
    for field in guarded:
        with pytest.raises(ValueError, match=f"notes.x: {message}"):
            Resource("notes", "note", ItemSchema.from_dict({"x": field}))  # type: ignore[arg-type]
    made = client.post("/api/v1/keys", json={"name": "x", "scopes": ["products:all"]}, headers=ADMIN)
    assert made.status_code == 422


@pytest.mark.needs("openapi")
def test_a_state_of_an_action_is_set_by_nothing_else(tmp_path: Path) -> None:
    """Other writes: see test_crossings.py. The action, and what is not changed, are free, and so is an import."""
    client = create_app(replace(CONFIG, database_url=f"sqlite:///{tmp_path}/store.db"), SHAPES).test_client()
    path, sent = "/orders/" + client.post("/orders", json={}, headers=ADMIN).json["id"], {"status": "paid"}
    refused = client.patch(path, json=sent, headers=ADMIN).json
    assert (refused["code"], refused["action"], refused["to"]) == ("illegal-transition", "pay", "paid")
    assert client.post(f"{path}/pay", json={"method": "card"}, headers=ADMIN).json["status"] == "paid"
    for method, body in (("PATCH", {"remark": "x"}), ("PATCH", sent), ("PUT", sent)):
        assert client.open(path, method=method, json=body, headers=ADMIN).json["status"] == "paid"
    run = client.application.test_cli_runner().invoke
    assert run(args=["import", "orders", "-"], input='{"id":"b","status":"paid"}').exit_code == 0
    assert client.get("/orders/b", headers=ADMIN).json["status"] == "paid"
    shown = client.get("/openapi.json").json["components"]["schemas"]["OrderInput"]["properties"]["status"]
    assert shown["x-by-actions"] == {"paid": "pay"}


def test_the_action_of_a_state_is_declared() -> None:
    with pytest.raises(ValueError, match="orders.status: by_actions: 'paid' is set by 'pay', and there is no such act"):
        create_app(Config(), [PRODUCTS, BRANDS, Resource("orders", "order", OrderSchema)])
    states = Lifecycle("a", {"a": ()}, by_actions={"b": "c"})
    with pytest.raises(ValueError, match="Lifecycle: b: no such state"):
        Resource("x", "y", ItemSchema.from_dict({"s": Status(states)}))  # type: ignore[arg-type]

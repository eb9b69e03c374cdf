"""Features of a service's own: those of docs/features.md, and how they meet the parts of the engine."""

import json
import runpy
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from flask import Blueprint, Response
from flask.testing import FlaskClient

from restkeeper import (
    FEATURES,
    Config,
    Feature,
    ItemSchema,
    Lifecycle,
    Reference,
    Resource,
    Seams,
    Stage,
    Status,
    Text,
    Time,
    needs,
)
from restkeeper.config import ConfigError
from restkeeper.errors import Forbidden
from tests.callers import ADMIN, ADMIN_KEY, key
from tests.endpoint import EndpointConnection, serving
from tests.shop import create_app
from tests.test_readme import blocks
from tests.waiting import SECONDS

pytestmark = pytest.mark.top  # each test has features of its own


class ProductSchema(ItemSchema):
    """What the features of the page expect."""

    name = Text(1, 100, required=True)
    status = Status(Lifecycle("draft", {"draft": ("active",), "active": ()}))
    brand = Reference("brands", load_default=None, allow_none=True)
    deleted_at = Time(load_default=None, allow_none=True, dump_only=True)


class BrandSchema(ItemSchema):
    """What has products."""

    name = Text(1, 100, required=True)


RESOURCES = (Resource("products", "product", ProductSchema), Resource("brands", "brand", BrandSchema))


def own(folder: Path, name: str) -> Feature:
    """A feature of the page, which has at most 40 lines."""
    (block,) = blocks("features.md", "python", f"{name}.py")
    assert len(block.text.splitlines()) <= 40
    (folder / f"{name}.py").write_text(block.text, encoding="utf-8")
    feature = runpy.run_path(str(folder / f"{name}.py"))[name.upper()]
    assert isinstance(feature, Feature)
    return feature


def client_with(*features: Feature, **options: Any) -> FlaskClient:
    config = Config(auth="required", admin_key=ADMIN_KEY)
    return create_app(config, RESOURCES, features=(*FEATURES, *features), **options).test_client()


@pytest.mark.needs("keys", "batch")
def test_an_audit_log_has_each_change_once(tmp_path: Path) -> None:
    """Of requests, arrays and batches, all or none; only admins read it, and nobody writes it."""
    client = client_with(own(tmp_path, "audit"))
    ann = key(client, "products:read", "products:write")
    made = client.post("/products", json=[{"name": "Lamp"}, {"name": "Desk"}], headers=ann).json
    assert client.patch(f"/products/{made[0]['id']}", json={"name": "Lamp 2"}, headers=ann).status_code == 200
    sent = [{"method": "DELETE", "path": f"/products/{made[1]['id']}"}, {"method": "DELETE", "path": "/products/none"}]
    assert client.post("/api/v1/batch", json={"operations": sent}, headers=ann).status_code == 404
    assert client.post("/api/v1/batch", json={"operations": sent[:1]}, headers=ann).status_code == 200
    entries = client.get("/audits", headers=ADMIN).json
    lamp, desk = (each["id"] for each in made)
    kinds = [(lamp, "created"), (desk, "created"), (lamp, "updated"), (desk, "deleted")]
    first, *others = entries[::-1]  # the first one is of the key
    assert (first["collection"], first["caller"], first["kind"]) == ("keys", "admin-key", "created")
    assert [(each["item"], each["kind"]) for each in others] == kinds
    assert {each["caller"] for each in others} == {f"key:{first['item']}"}
    assert client.get("/audits", headers=ann).json["detail"] == "this needs the scope admin"
    assert client.post("/audits", json={}, headers=ADMIN).status_code == 405
    refused = client.post("/api/v1/keys", json={"name": "x", "scopes": ["audits:read"]}, headers=ADMIN)
    assert refused.status_code == 422


@pytest.mark.needs("events")
def test_what_a_soft_delete_marks_is_not_there(tmp_path: Path) -> None:
    """In lists, counts, embeds, hops, below its brand, and by its id; a function and the store still have it."""
    client = client_with(own(tmp_path, "trash"))
    client.environ_base["HTTP_X_API_KEY"] = ADMIN_KEY
    brand = client.post("/brands", json={"name": "Acme"}).json["id"]
    lamp, desk = (client.post("/products", json={"name": name, "brand": brand}).json["id"] for name in ("Lamp", "Desk"))
    assert client.delete(f"/products/{lamp}").json["deleted_at"] is None  # as it last was
    shown = client.get("/products?count=name")
    assert [each["value"] for each in shown.json] == ["Desk"]
    assert [each["id"] for each in client.get("/products").json] == [desk]
    assert client.get("/products?limit=1").headers["X-Total-Count"] == "1"
    assert [each["id"] for each in client.get("/brands?embed=products").json[0]["products"]] == [desk]
    assert [each["id"] for each in client.get(f"/brands/{brand}/products").json] == [desk]
    assert client.get("/brands?products.name=Lamp").json == []
    assert "items" not in next(each for each in client.get("/").json["collections"] if each["name"] == "products")
    for method, body in (("GET", None), ("PATCH", {"name": "x"}), ("PUT", {"name": "x"}), ("DELETE", None)):
        assert client.open(f"/products/{lamp}", method=method, json=body).status_code == 404, method
    service = client.application.extensions["restkeeper"]
    assert service.store.count("products") == 2
    types = [each["type"] for each in client.get("/api/v1/events").json]
    assert types == ["brand.created", "product.created", "product.created", "product.updated"]


def test_a_chat_gets_what_was_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message for each item that becomes active, and none for a request that fails."""
    arrived = Queue[str]()

    def receive(connection: EndpointConnection) -> None:
        if request := connection.request():
            arrived.put(json.loads(request.partition(b"\r\n\r\n")[2])["text"])
            connection.send(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    client = client_with(own(tmp_path, "chat"))
    client.environ_base["HTTP_X_API_KEY"] = ADMIN_KEY
    with serving(receive) as endpoint:
        monkeypatch.setenv("CHAT_URL", f"http://127.0.0.1:{endpoint.port}/")
        lamp = client.post("/products", json={"name": "Lamp"}).json["id"]
        assert client.patch(f"/products/{lamp}", json={"status": "active", "name": ""}).status_code == 422
        refused = [{"name": "Desk", "status": "active"}, {"name": "Chair", "brand": "none"}]
        assert client.post("/products", json=refused).status_code == 422
        assert client.patch(f"/products/{lamp}", json={"status": "active"}).status_code == 200
        assert client.patch(f"/products/{lamp}", json={"name": "Lamp 2"}).status_code == 200
        assert client.post("/products", json={"name": "Desk", "status": "active"}).status_code == 200
        assert [arrived.get(timeout=SECONDS) for _ in range(2)] == ["Lamp is active", "Desk is active"]
        assert arrived.empty()


def test_features_take_part_in_their_order() -> None:
    """Checks by their stages; `answered` in the opposite order; routes say what they need, and are at a free path."""
    calls = list[str]()

    def check(name: str) -> Any:
        return lambda request: calls.append(name)

    @needs("known")
    def read_report() -> Response:
        return Response("{}")

    def install(service: Any) -> Seams:
        reports = Blueprint("reports", __name__)
        reports.add_url_rule("/reports", view_func=read_report)
        return Seams(
            checking=[(Stage.PERMISSION, check("permission")), (Stage.EDGE, check("edge"))],
            answered=[lambda request, response: calls.append("first")],
            routes=[reports],
            ready=[lambda: calls.append("ready")],
        )

    last = Feature("last", lambda service: Seams(answered=[lambda request, response: calls.append("last")]))
    client = client_with(Feature("reports", install), last)
    assert client.get("/reports", headers=ADMIN).status_code == 200
    assert calls == ["ready", "edge", "permission", "last", "first"]
    assert client.get("/reports").status_code == 401 and calls[5:] == ["edge", "last", "first"]


def test_a_feature_that_is_not_usual_is_named() -> None:
    """And one that is built on another needs that; a name that is none is refused."""

    def refuse(request: Any) -> None:
        raise Forbidden("closed at night")

    night = Feature("night", lambda service: Seams(checking=[(Stage.CALLER, refuse)]), usual=False)
    assert client_with(night).get("/products", headers=ADMIN).status_code == 200
    features = (*FEATURES, night, "night")
    app = create_app(Config(), RESOURCES, features=features)
    assert app.test_client().get("/products").json["detail"] == "closed at night"
    app = create_app(Config(), RESOURCES, features=features, without={"night"})
    assert app.test_client().get("/products").json == []
    with pytest.raises(ConfigError, match="there is no 'nigth'; there are metrics, .*, openapi, night$"):
        create_app(Config(), RESOURCES, features=(*FEATURES, night, "nigth"))
    built = Feature("built", lambda service: Seams(), needs=("night",))
    with pytest.raises(ConfigError, match="'built' is built on 'night', which is closed; close both"):
        client_with(built, night)
    with pytest.raises(ConfigError, match="^features: 'keys' is the name of two features: change one$"):
        client_with(Feature("keys", lambda service: Seams()))
    for install, why in (
        (lambda service: None, r"install must return Seams\(…\), not None"),
        (lambda service: Seams(answered=print), "answered=<built-in function print>: must be a list of functions"),
    ):
        with pytest.raises(ConfigError, match=f"^features: 'own': {why}"):
            client_with(Feature("own", install))
    with pytest.raises(ConfigError, match=r"^features has 5: must be a Feature\(…\), or the name of one$"):
        create_app(Config(), RESOURCES, features=[5])
    assert create_app(Config(), RESOURCES, features=(each for each in FEATURES)).url_map
    with pytest.raises(ValueError, match=r"^notes: needs='x': must be 'admin', or a scope like 'reports:read'$"):
        Resource("notes", "note", BrandSchema, needs="x")

"""Features of a service's own: those of the documentation, and how they meet the parts of the engine."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from flask import Blueprint, Response
from flask.testing import FlaskClient

from restkeeper import (
    FEATURES,
    Caller,
    Change,
    Config,
    Credentials,
    Feature,
    ItemSchema,
    Ownership,
    Reference,
    Resource,
    Seams,
    Stage,
    Text,
    Time,
    Unavailable,
    Unit,
    Visible,
    needs,
)
from restkeeper.__main__ import COMMANDS
from restkeeper.config import ConfigError
from restkeeper.errors import Forbidden
from restkeeper.feature import loaded
from restkeeper.hook import Hook
from restkeeper.stores import unserved_in
from restkeeper.web.auth import digest_of
from tests.callers import ADMIN, ADMIN_KEY, key
from tests.endpoint import EndpointConnection, serving
from tests.live import ROOT
from tests.shop import create_app
from tests.test_readme import blocks
from tests.waiting import SECONDS

SESAME = "open sesame"

pytestmark = pytest.mark.top  # each test has features of its own


class ProductSchema(ItemSchema):
    """What the features of the page expect."""

    name = Text(1, 100, required=True)
    brand = Reference("brands", load_default=None, allow_none=True)
    deleted_at = Time(load_default=None, allow_none=True, dump_only=True)


class BrandSchema(ItemSchema):
    """What has products."""

    name = Text(1, 100, required=True)


RESOURCES = (Resource("products", "product", ProductSchema), Resource("brands", "brand", BrandSchema))


def own(folder: Path, name: str) -> Feature:
    """A feature of the pages, which has at most 40 lines, here of products."""
    (block,) = (block for page in ("features.md", "recipes.md") for block in blocks(page, "python", f"{name}.py"))
    assert len(block.text.splitlines()) <= 40
    (folder / f"{name}.py").write_text(block.text.replace('"articles"', '"products"'), encoding="utf-8")
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
    tag = client.get("/products").headers["ETag"]
    chair = client.post("/products", json={"name": "Chair"}, headers={"If-Match": tag})
    assert chair.status_code == 200 and client.delete(chair.headers["Location"]).status_code == 200
    plain = client_with().get("/products", headers=ADMIN).headers["ETag"]  # of the same empty collection
    assert client_with(own(tmp_path, "trash")).get("/products", headers=ADMIN).headers["ETag"] != plain
    service = client.application.extensions["restkeeper"]
    assert service.store.count("products") == 3
    types = [each["type"] for each in client.get("/api/v1/events").json]
    kinds = ["created", "created", "updated", "created", "updated"]
    assert types == ["brand.created", *(f"product.{kind}" for kind in kinds)]
    with pytest.raises(ValueError, match=r"Visible\(unless='gone'\): there is no such field; there are: id, "):
        client_with(Feature("x", lambda service: Seams(view=[lambda views, *_: Visible(views, unless="gone")])))


def test_a_chat_gets_what_was_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message for each new item, and none for a request that fails."""
    arrived = Queue[str]()

    def receive(connection: EndpointConnection) -> None:
        if request := connection.request():
            arrived.put(json.loads(request.partition(b"\r\n\r\n")[2])["text"])
            connection.send(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    client = client_with(own(tmp_path, "chat"))
    client.environ_base["HTTP_X_API_KEY"] = ADMIN_KEY
    with serving(receive) as endpoint:
        monkeypatch.setenv("CHAT_URL", f"http://127.0.0.1:{endpoint.port}/")
        refused = [{"name": "Desk"}, {"name": "Chair", "brand": "none"}]
        assert client.post("/products", json=refused).status_code == 422
        lamp = client.post("/products", json={"name": "Lamp"}).json["id"]
        assert arrived.get(timeout=SECONDS) == "Lamp is new"  # each is sent by a thread: two have no order
        assert client.patch(f"/products/{lamp}", json={"name": "Lamp 2"}).status_code == 200
        assert client.post("/products", json=[{"name": "Desk"}, {"name": "Chair"}]).status_code == 200
        assert arrived.get(timeout=SECONDS) == "Desk is new\nChair is new"
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


@pytest.mark.needs("idempotency", "ownership")
def test_a_feature_can_change_what_is_created() -> None:
    """The response is what is stored, also of a repetition; and what a feature declares needs what is open."""

    def stamp(unit: Unit, change: Change) -> Change:
        if change.item_before is not None or change.item is None:
            return change
        calls.append(change.kind)
        return change.revised({**change.item, "name": f"{change.item['name']}!"})

    calls = list[str]()
    client = client_with(Feature("stamp", lambda service: Seams(changing=[stamp])))
    sent = {"json": {"name": "Lamp"}, "headers": ADMIN | {"Idempotency-Key": "1"}}
    made, again = (client.post("/products", **sent) for _ in range(2))
    assert made.json["name"] == "Lamp!" and made.data == again.data
    assert len(calls) == 2  # the first time, after an attempt with the response that was expected
    assert client.post("/products", json={"name": "Desk"}, headers=ADMIN).json["name"] == "Desk!" and len(calls) == 3
    stored = client.get(made.headers["Location"], headers=ADMIN)
    assert (stored.json, stored.headers["ETag"]) == (made.json, made.headers["ETag"])
    notes = Resource("notes", "note", BrandSchema, ownership=Ownership.ALL)
    owned = Feature("owned", lambda service: Seams(), collections=(notes,))
    with pytest.raises(ConfigError, match="'notes' declares an ownership, so 'ownership' cannot be closed"):
        client_with(owned, without={"ownership"})
    with pytest.raises(ConfigError, match="two of them have the seam `once`"):
        client_with(Feature("once", lambda service: Seams(once=print)))
    with pytest.raises(ConfigError, match="'products' is a collection of the service, and what a feature stores"):
        client_with(Feature("items", lambda service: Seams(), items=(RESOURCES[0],)))
    closed = client_with(owned, without={"owned"}).application.extensions["restkeeper"]
    assert unserved_in(closed, {"notes": (1, 5, None), "gone": (1, 5, None)}).keys() == {"gone"}
    with pytest.raises(ValueError, match=r"^Feature\('x', needs='events'\): must be a tuple, such as \('events',\)$"):
        Feature("x", lambda service: Seams(), needs="events")  # type: ignore[arg-type]


@pytest.mark.needs("keys")
def test_a_feature_can_save_elsewhere_what_is_committed() -> None:
    """What it cannot save is not stored, and the client gets 503; a read that notes the use of a key is none of it."""
    works = [True]

    def save(transaction: Any) -> None:
        if not works[0]:
            raise Unavailable("the other place is away")

    client = client_with(Feature("copies", lambda service: Seams(committing=[save])))
    sent = {"json": {"name": "Lamp"}, "headers": ADMIN}
    key = client.post("/api/v1/keys", json={"name": "reader", "scopes": ["products:read"]}, headers=ADMIN).json[
        "secret"
    ]
    works[0] = False
    assert client.get("/products", headers={"X-API-Key": key}).json == []
    assert client.post("/products", **sent).status_code == 503
    works[0] = True
    assert client.get("/products", headers=ADMIN).json == []
    assert client.post("/products", **sent).status_code == 200


@pytest.mark.needs("pages", "openapi")
def test_what_a_feature_raises_has_a_page() -> None:
    """And the document names it: a problem is known from where its class is made, in a module of the feature."""

    class DayIsClosed(Forbidden):
        """Nobody works on this day. Come again tomorrow."""

    def refuse(request: Any) -> None:
        if request.path == "/products":
            raise DayIsClosed("closed on Sundays")

    client = client_with(Feature("days", lambda service: Seams(checking=[(Stage.PERMISSION, refuse)])))
    refused = client.get("/products", headers=ADMIN)
    assert (refused.status_code, refused.json["type"]) == (403, "/problems/day-is-closed")
    assert client.get(refused.json["type"]).json["about"] == "Nobody works on this day. Come again tomorrow."
    assert '"day-is-closed"' in client.get("/openapi.json").text


@pytest.mark.needs("keys", "jwt")
def test_a_feature_can_know_credentials() -> None:
    """Also where keys are closed; what a feature does not know is left to others; a failure after a write is logged."""

    def resolve(token: str, digest: str) -> Caller | None:
        scopes = frozenset({"products:read", "products:write"})
        return Caller("me", scopes, ("me",)) if digest == digest_of(SESAME) else None

    class Failing:
        def __call__(self, request: Any, response: Any) -> None:
            raise KeyError("x")

    signed = Feature("signed", lambda service: Seams(identify=[Credentials(resolve, are_signed=True)]))
    failing = Feature("failing", lambda service: Seams(answered=[Failing()]))
    for without in ((), ("keys",)):
        client = create_app(Config(auth="required"), RESOURCES, features=(*FEATURES, signed, failing), without=without)
        sent = {"json": {"name": "Lamp"}, "headers": {"X-API-Key": SESAME}}
        assert client.test_client().post("/products", **sent).status_code == 200
        assert client.test_client().get("/products", headers={"X-API-Key": "x"}).status_code == 401
    with pytest.raises(ConfigError, match="^AUTH='required': nobody could call while the feature 'keys' is closed"):
        create_app(Config(auth="required"), RESOURCES, without={"keys"})


SERVICE = """
import restkeeper
from night import NIGHT

def create_app(config=None):
    return restkeeper.create_app(config, [], features=(*restkeeper.FEATURES, NIGHT), without=CLOSED)
"""
NIGHT = """
from restkeeper import Feature

NIGHT = Feature("night", cli={"sleep": ("lullaby:sleep", "Sing the number of keys.")})
"""
LULLABY = """
import click
from flask import current_app
from flask.cli import with_appcontext

@click.command()
@with_appcontext
def sleep():
    click.echo(f"{current_app.name} sleeps")
"""


def test_a_feature_has_commands_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `restkeeper` and of `flask`; what lists the names of commands loads none, and one that is closed says so."""

    def run(*arguments: str, closed: tuple[str, ...] = ()) -> tuple[int, str]:
        files = {"app": SERVICE.replace("CLOSED", repr(closed)), "night": NIGHT, "lullaby": LULLABY}
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        done = subprocess.run(  # noqa: S603 - our own program
            (sys.executable, *("-X", "importtime"), "-m", *arguments), cwd=tmp_path, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for program in ("restkeeper", "flask"):
        code, shown = run(program, "sleep")
        assert code == 0 and "restkeeper sleeps\n" in shown
        code, shown = run(program, "sleep", closed=("night",))
        assert code == 2 and "Error: sleep: the feature 'night' of this service is closed\n" in shown
        assert "lullaby" not in shown
        code, shown = run(program, "rest")
        assert code == 2 and "No such command 'rest'" in shown
    code, shown = run("flask", "--help")
    assert code == 0 and "  sleep     Sing the number of keys.\n" in shown and "  keys " in shown
    assert "lullaby" not in shown and "restkeeper.features.keys.command" not in shown
    code, shown = run("restkeeper", "--help")
    assert (
        code == 0 and "  keys " in shown and "restkeeper.features.keys" not in shown and "restkeeper.app" not in shown
    )
    monkeypatch.setenv("_RESTKEEPER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "restkeeper ke")
    monkeypatch.setenv("COMP_CWORD", "1")
    code, shown = run("restkeeper")
    assert "plain,keys\n" in shown and "restkeeper.features.keys" not in shown
    with pytest.raises(ConfigError, match="^features: 'twice': the command 'backup' is there already$"):
        client_with(Feature("twice", cli={"backup": ("x:y", "")}))
    with pytest.raises(ConfigError, match="^features: 'twice': the command 'forget' is there already$"):
        client_with(Feature("twice", cli={"forget": ("x:y", "")}), without={"transfer"})
    with pytest.raises(
        ValueError, match=r"^Feature\('x', cli={'a': 'b:c'}\): must be like {'audit': \('shop.audit:show',"
    ):
        Feature("x", cli={"a": "b:c"})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_list_of_commands_says_what_each_does(name: str) -> None:
    """The text in the list is how the text of the command itself begins."""
    path, about = COMMANDS[name]
    assert loaded(path).help.replace("\n", " ").startswith(about.rstrip("."))


def test_a_hook_keeps_its_stages() -> None:
    """In one of them, functions are called as they were added; also after one is removed."""
    hook = Hook[str]()
    hook.add("late", "later", stage=1)
    hook.add("early")
    hook.remove("late")
    hook.add("second")
    hook.add("last", stage=1)
    assert hook.functions == ("early", "second", "later", "last")
    with pytest.raises(ValueError, match=r"not in tuple"):
        hook.remove("late")


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
        (
            lambda service: Seams(answered=print),
            "answered=<built-in function print>: see the seams in docs/features.md",
        ),
        (lambda service: Seams(changed=["x"]), r"changed=\['x'\]: see the seams"),
        (lambda service: Seams(checking=[(print,)]), r"checking=\[\(<built-in function print>,\)\]: see the seams"),
        (lambda service: Seams(once="x"), "once='x': see the seams"),
    ):
        with pytest.raises(ConfigError, match=f"^features: 'own': {why}"):
            client_with(Feature("own", install))
    with pytest.raises(ConfigError, match=r"^features has 5: must be a Feature\(…\), or the name of one$"):
        create_app(Config(), RESOURCES, features=[5])
    assert create_app(Config(), RESOURCES, features=(each for each in FEATURES)).url_map
    with pytest.raises(ValueError, match=r"^notes: needs='x': must be 'admin', or a scope like 'reports:read'$"):
        Resource("notes", "note", BrandSchema, needs="x")

"""Versions of the API: every request and response is in the form of its version, of items that are stored once."""

import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from marshmallow import ValidationError, fields
from openapi_spec_validator import validate

from restkeeper import (
    Add,
    Convert,
    Deprecation,
    Index,
    ItemSchema,
    Lifecycle,
    ListOf,
    Money,
    Remove,
    Rename,
    Resource,
    Status,
    Text,
    Version,
    Versions,
    Whole,
)
from restkeeper.config import Config, ConfigError
from restkeeper.features.webhooks.deliverer import Deliverer, deliverer_of
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.resources.step import Step
from restkeeper.schemas.fields import JsonObject
from restkeeper.service import service_of
from restkeeper.versions import seconds_of
from restkeeper.web.application import Application
from tests.clock import SetClock
from tests.documents import parameters, unfolded
from tests.programs import resource, two_versions
from tests.shop import create_app
from tests.test_pages import walk

pytestmark = pytest.mark.needs("versions", "ownership")

TITLE = Text(1, 50, required=True)
SUNSET = date(2027, 6, 1)
RETIRED_AT = 1811808000.0  # that day, 0:00 UTC, in seconds since 1970


class ProductSchema(ItemSchema):
    title = Text(1, 50, required=True, metadata={"examples": ["Lamp"]})
    sku = Text(1, 20, load_default=None, allow_none=True)
    price = Money(load_default=None, allow_none=True)
    stock = Whole(0, 10_000, load_default=0)
    tags = ListOf(Text(1, 20), load_default=list)
    maker = Text(0, 50, load_default="")
    country = Text(0, 50, load_default="")
    state = Status(Lifecycle("active", {"active": ("archived",), "archived": ()}))


def origin(made_by: str) -> list[str]:
    maker, comma, country = made_by.partition(", ")
    if not comma and made_by:
        raise ValidationError("must be like: maker, country")
    return [maker, country]


PRODUCTS = Resource(
    "products",
    "product",
    ProductSchema,
    indexes=(Index("title", unique=True), Index("title"), Index("price")),
    search=("title",),
    upgrades={
        2: [Rename("name", "title"), Remove("colour", Text(1, 20, load_default="red")), Rename("status", "state")],
        3: [
            Convert(
                {"made_by": Text(0, 50, load_default="")},
                ["maker", "country"],
                up=origin,
                down=lambda maker, country: f"{maker}, {country}" if maker or country else "",
            ),
            Convert({"stock": Text(1, 5, load_default="0")}, ["stock"], up=int, down=str),
        ],
    },
)


VERSIONS = Versions(
    Version("v1", successor="v2", revisions={"products": 1}),
    Version("v2", revisions={"products": 2}),
    Version("v3"),
    unversioned="v2",
    deprecations=[Deprecation(version="v1", since=date(2026, 11, 22), sunset=SUNSET)],
)


def make(config: Config | None = None, **options: Any) -> Application:
    return create_app(config or Config(), [PRODUCTS], **{"versions": VERSIONS, "clock": SetClock(), **options})


@pytest.fixture
def client() -> FlaskClient:
    return make().test_client()


LAMP = {"name": "Lamp", "colour": "blue", "made_by": "Luxo, Norway", "stock": "12", "price": 5}
SEEN = {
    "v1": {"name": "Lamp", "colour": "blue", "made_by": "Luxo, Norway", "stock": "12", "status": "active"},
    "v2": {"title": "Lamp", "made_by": "Luxo, Norway", "stock": "12", "state": "active"},
    "v3": {"title": "Lamp", "maker": "Luxo", "country": "Norway", "stock": 12, "state": "active"},
}
COMMON = {"sku", "price", "tags", "id", "created_at", "updated_at", "version"}


def own(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in COMMON}


Sent = list[tuple[str, dict[str, Any]]]


def deliverer_to(sent: Sent, app: Application) -> Deliverer:
    """A deliverer that notes the end of the URL and the item of each event."""
    deliverer = deliverer_of(service_of(app))

    def send(url: str, headers: Any, body: bytes) -> DeliveryResult:
        sent.append((url[-2:], own(json.loads(body)["data"])))
        return DeliveryResult(204, "", None)

    deliverer.send = send
    return deliverer


class TestItems:
    def test_an_item_is_seen_in_each_version(self, client: FlaskClient) -> None:
        """With the same id, times and version, alone and in lists."""
        made = client.post("/api/v1/products", json=LAMP)
        assert (made.status_code, own(made.json)) == (200, SEEN["v1"])
        for version, seen in SEEN.items():
            item = client.get(f"/api/{version}/products/{made.json['id']}").json
            assert own(item) == seen
            assert {name: item[name] for name in COMMON} == {name: made.json[name] for name in COMMON}
            assert client.get(f"/api/{version}/products").json == [item]
            shown = client.get(f"/api/{version}/products?fields=id,stock").json
            assert shown == [{name: item[name] for name in ("id", "stock")}]
        assert own(client.get(f"/products/{made.json['id']}").json) == SEEN["v2"]
        v1 = f"/api/v1/products/{made.json['id']}"
        assert client.put(v1, json=made.json).json == made.json == client.delete(v1).json  # as it was read

    def test_versions_lose_nothing_of_each_other(self, client: FlaskClient) -> None:
        """The `colour`, which only v1 has, stays when clients of the others change or replace the item."""
        path = f"products/{client.post('/api/v1/products', json=LAMP).json['id']}"
        assert client.patch(f"/api/v3/{path}", json={"maker": "n"}).json["version"] == 2
        assert client.patch(f"/api/v2/{path}", json={"stock": "7"}).json["version"] == 3
        assert client.put(f"/api/v2/{path}", json={"title": "b", "made_by": "n, c", "stock": "7"}).status_code == 200
        changed = {"name": "b", "made_by": "n, c", "stock": "7"}
        assert own(client.get(f"/api/v1/{path}").json) == SEEN["v1"] | changed

    def test_a_field_of_a_newer_version_survives_a_replacement(self) -> None:
        """PUT by v1 changes no value that a field of its own comes from, if that field stays as it is."""
        town = Text(0, 50, load_default="")
        convert = Convert({"town": town}, ["place"], lambda town: {"town": town}, lambda place: place.get("town", ""))
        notes = resource({"text": Text(required=True), "place": JsonObject(load_default=dict)}, convert)
        client = create_app(Config(), [notes], versions=two_versions()).test_client()
        body = {"text": "x", "place": {"town": "Oslo", "floor": 3}}
        path = f"notes/{client.post('/api/v2/notes', json=body).json['id']}"
        assert client.put(f"/api/v1/{path}", json={"text": "y", "town": "Oslo"}).json["town"] == "Oslo"
        item = client.get(f"/api/v2/{path}").json
        assert (item["text"], item["place"]) == ("y", body["place"])

    def test_a_refusal_names_the_field_of_the_version(self, client: FlaskClient) -> None:
        client.post("/api/v3/products", json={"title": "a"})
        refused = client.post("/api/v1/products", json={"name": "a"})
        assert refused.json["errors"] == [{"pointer": "#/name", "detail": "is taken by another item"}]
        assert refused.json["detail"] == "another item has this name"
        made = client.post("/api/v1/products", json={"name": "b", "status": "archived"}).json
        refused = client.patch(f"/api/v1/products/{made['id']}", json={"status": "active"})
        assert (refused.status_code, refused.json["detail"].split()[0]) == (409, "status")

    def test_validators_are_of_the_version(self, client: FlaskClient) -> None:
        """A version's own ETag holds, that of another does not; it changes with every change of the item."""
        made = client.post("/api/v1/products", json=LAMP)
        path, tags = f"products/{made.json['id']}", {}
        for version in SEEN:
            tags[version] = client.get(f"/api/{version}/{path}").headers["ETag"]
            unchanged = {"If-None-Match": tags[version]}
            assert client.get(f"/api/{version}/{path}", headers=unchanged).status_code == 304
            listed = client.get(f"/api/{version}/products").headers["ETag"]
            assert client.get(f"/api/{version}/products", headers={"If-None-Match": listed}).status_code == 304
        assert made.headers["ETag"] == tags["v1"] and len(set(tags.values())) == 3

        def change(tag: str) -> int:
            return client.patch(f"/api/v1/{path}", json={"colour": "red"}, headers={"If-Match": tag}).status_code

        assert (change(tags["v3"]), change(tags["v1"]), change(tags["v1"])) == (412, 200, 412)
        assert client.get(f"/api/v3/{path}").headers["ETag"] != tags["v3"]

    @pytest.mark.needs("idempotency")
    def test_a_replay_is_the_first_response(self, client: FlaskClient) -> None:
        key = {"Idempotency-Key": "k"}
        first = client.post("/api/v1/products", json=LAMP, headers=key)
        client.patch(f"/api/v3/products/{first.json['id']}", json={"title": "b"})
        assert client.post("/api/v1/products", json=LAMP, headers=key).data == first.data
        assert client.post("/api/v2/products", json=LAMP, headers=key).status_code == 422


class TestLists:
    @pytest.fixture(autouse=True)
    def items(self, client: FlaskClient) -> None:
        for name, stock, maker in [("a", 1, "m"), ("b", 2, "m"), ("c", 3, "n")]:
            body = {"title": name, "stock": stock, "maker": maker, "country": "x"}
            client.post("/api/v3/products", json=body)

    def test_filters_and_sorts_are_translated(self, client: FlaskClient) -> None:
        """Names that the version has."""
        for query, names in (
            ("name=b", "b"),
            ("name[in]=a,c", "ac"),
            ("name[gt]=a&sort=-name", "cb"),
            ("sort=-name", "cba"),
            ("q=c", "c"),
            ("status=active&sort=name", "abc"),
        ):
            found = client.get(f"/api/v1/products?{query}").json
            assert (query, "".join(item["name"] for item in found)) == (query, names)
        for order in ("name", "-name", "-price,name", "id"):
            seen = list(chain(*walk(client, f"/api/v1/products?limit=1&sort={order}", "next")))
            assert sorted(seen) == ["a", "b", "c"]
            assert seen == [item["name"] for item in client.get(f"/api/v1/products?sort={order}").json]

    @pytest.mark.needs("dialects")
    def test_other_dialects_have_the_names_of_the_version(self, client: FlaskClient) -> None:
        found = client.get("/api/v1/products?name_gte=b&_sort=name&_order=desc").json
        assert [item["name"] for item in found] == ["c", "b"]
        assert client.get("/api/v1/products?title_gte=b").status_code == 400
        assert len(client.get("/api/v3/products?title_gte=b").json) == 2


class TestAddresses:
    def test_an_unknown_version_names_those_that_there_are(self, client: FlaskClient) -> None:
        """And the unversioned paths stay."""
        refused = client.get("/api/v9/products")
        assert refused.status_code == 404
        assert refused.json["detail"] == "there is no version 'v9'; there are: v1, v2, v3"
        assert client.get("/api/").json["detail"] == "there is no version ''; there are: v1, v2, v3"
        assert client.get("/api/v3/nothing").json["detail"] == "nothing is at /api/v3/nothing"
        assert client.get("/v3/products").json["detail"] == "nothing is at /v3/products"

    def test_a_retired_version_names_its_successor(self) -> None:
        """From its sunset on, without a restart; other versions stay."""
        clock = SetClock(RETIRED_AT - 1)
        client = make(clock=clock).test_client()
        client.post("/api/v1/products", json=LAMP)
        assert client.get("/api/v1/products").status_code == 200
        clock.now += 1
        for path in ("products", "products/x?fields=id", "nothing", "events", "openapi.json"):
            gone = client.get(f"/api/v1/{path}")
            assert gone.status_code == 410
            assert (gone.json["successor"], gone.json["sunset"]) == ("v2", "2027-06-01")
            assert gone.headers["Sunset"] == "Tue, 01 Jun 2027 00:00:00 GMT"
            bare = path.partition("?")[0]
            assert gone.headers["Link"] == f'</api/v2/{bare}>; rel="successor-version"'
        assert gone.json["detail"] == "version v1 was retired on 2027-06-01; use v2"
        assert gone.json["type"].endswith("/problems/version-retired")
        assert client.get("/products").status_code == 200
        assert make(clock=clock).test_client().get("/api/v1/products").status_code == 410  # also after a restart

    @pytest.mark.needs("openapi")
    def test_a_retired_version_names_a_successor_that_is_served(self) -> None:
        """Not one that is retired itself; and the day on which the path ended."""
        first, second = date(2027, 1, 1), SUNSET
        versions = Versions(
            Version("v1", successor="v2"),
            Version("v2", successor="v3"),
            Version("v3"),
            unversioned="v1",
            deprecations=[
                Deprecation(version="v1", since=first, sunset=first),
                Deprecation(version="v2", since=first, sunset=first),
                Deprecation(version="", since=first, sunset=second),
            ],
        )
        client = make(versions=versions, clock=SetClock(seconds_of(first))).test_client()
        for path in ("/api/v1/products", "/products"):
            gone = client.get(path)
            assert (gone.status_code, gone.json["successor"], gone.json["sunset"]) == (410, "v3", "2027-01-01")
            assert gone.headers["Link"] == '</api/v3/products>; rel="successor-version"'
        assert client.get("/openapi.json").json["info"]["x-version"]["name"] == "v3"

    @pytest.mark.needs("cors")
    def test_a_page_can_read_that_a_version_is_retired(self) -> None:
        """Its preflight passes, also after a restart; an unknown version has none."""
        origin = {"Origin": "https://app.example"}
        client = make(Config(cors_origins=("https://app.example",)), clock=SetClock(RETIRED_AT)).test_client()
        asked = origin | {"Access-Control-Request-Method": "PUT"}
        preflight = client.options("/api/v1/products/x", headers=asked)
        assert preflight.status_code == 204 and "PUT" in preflight.headers["Access-Control-Allow-Methods"]
        gone = client.put("/api/v1/products/x", headers=origin, json={})
        assert (gone.status_code, gone.headers["Access-Control-Allow-Origin"]) == (410, "https://app.example")
        assert client.options("/api/v9/products/x", headers=asked).status_code == 404

    def test_a_wrong_registry_is_refused(self) -> None:
        v1, v2 = Version("v1"), Version("v2")
        to_v1, to_v2 = replace(v2, successor="v1"), replace(v1, successor="v2")
        wrong: list[tuple[Sequence[Version], dict[str, Any], str]] = [
            ([Version("1")], {}, "'1' is no name of a version; use v1, v2 and so on"),
            ([v1], {"unversioned": "v2"}, "unversioned='v2' is not one of the versions"),
            ([v1, v1], {}, "each has a name of its own"),
            ([to_v2], {}, "the successor 'v2' of v1 does not"),
            ([to_v2, to_v1], {}, "the successors of v1 lead back to it"),
        ]
        for versions, options, message in wrong:
            with pytest.raises(ValueError, match=f"^versions: {message}"):
                Versions(*versions, **{"unversioned": "v1", **options})
        with pytest.raises(ConfigError, match="^versions: v1: there is no collection 'product'; there are: products"):
            make(versions=Versions(Version("v1", revisions={"product": 1}), unversioned="v1"))

    def test_a_revision_that_upgrades_do_not_have_is_refused(self) -> None:
        """Also the first one of a collection without upgrades: the version would show the newest one as its own."""
        has = "the upgrades have the revisions 1 to 3: name one of them"
        none = "the Resource has no upgrades, which lead to the newest revision from an older one: declare them"
        plain = replace(PRODUCTS, upgrades={})
        for products, revision, right in ((PRODUCTS, 0, has), (PRODUCTS, 4, has), (plain, 1, none), (plain, 2, none)):
            versions = Versions(Version("v1", revisions={"products": revision}), Version("v2"), unversioned="v2")
            message = f"versions: v1: revisions={{'products': {revision}}}: {right}, or leave 'products' out"
            with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
                create_app(Config(), [products], versions=versions)


@pytest.mark.needs("openapi")
class TestDocuments:
    def test_each_version_is_described(self, client: FlaskClient) -> None:
        """With its own fields, filters and paths; the document of the unversioned paths has those too."""
        for version, seen in SEEN.items():
            document = client.get(f"/api/{version}/openapi.json").json
            validate(document)
            schemas = document["components"]["schemas"]
            filters = parameters(document, document["paths"]["/products"]["get"])
            assert set(schemas["Product"]["properties"]) == set(seen) | COMMON
            assert set(schemas["ProductInput"]["properties"]) == set(seen) | {"sku", "price", "tags"}
            paths = unfolded(document)["paths"]
            assert {path.split("/")[2] for path in paths if path.startswith("/api/")} == {version}
            assert ("/products" in paths) == (version == "v2")
            assert ("stock[gt]" in filters) == (version == "v3")
            assert "made_by" not in filters
            assert document["info"]["x-version"]["name"] == version
        assert client.get("/openapi.json").json == client.get("/api/v2/openapi.json").json


@pytest.mark.needs("events")
class TestEvents:
    def test_the_feed_has_the_version_of_its_path(self, client: FlaskClient) -> None:
        """Of all events, whichever version made the change; the ids are the same."""
        made = client.post("/api/v1/products", json=LAMP).json
        client.delete(f"/api/v3/products/{made['id']}")
        feeds = {version: client.get(f"/api/{version}/events").json for version in SEEN}
        for version, seen in SEEN.items():
            assert [own(event["data"]) for event in feeds[version]] == [seen, seen]
        assert len({tuple(event["id"] for event in feed) for feed in feeds.values()}) == 1

    @pytest.mark.needs("webhooks")
    def test_a_webhook_has_the_version_of_its_making(self, tmp_path: Path) -> None:
        """It can be changed; after the sunset it is that of the successor, and the webhook can be changed otherwise."""
        clock, config = SetClock(), Config(webhook_allow_private=True, database_url=f"sqlite:///{tmp_path}/a.db")
        app = make(config, clock=clock)
        client, sent = app.test_client(), Sent()
        deliverer = deliverer_to(sent, app)
        hooks = {
            version: client.post(f"/api/{version}/webhooks", json={"url": f"http://x.example/{version}"}).json
            for version in SEEN
        }
        assert {version: hook["api_version"] for version, hook in hooks.items()} == {name: name for name in SEEN}
        client.post("/api/v3/products", json={"title": "a"})
        assert deliverer.deliver_once() == 3
        assert {name: "name" in data for name, data in sent} == {"v1": True, "v2": False, "v3": False}
        assert {name: "maker" in data for name, data in sent} == {"v1": False, "v2": False, "v3": True}
        where = f"/api/v2/webhooks/{hooks['v3']['id']}"
        assert client.patch(where, json={"api_version": "v1"}).json["api_version"] == "v1"
        assert client.patch(where, json={"api_version": None}).json["api_version"] == "v2"
        assert client.put(where, json={"url": "http://x.example/v3"}).json["api_version"] == "v2"
        pinned = f"/api/v3/webhooks/{hooks['v1']['id']}"
        assert client.put(pinned, json={"url": "http://x.example/v1"}).json["api_version"] == "v1"
        refused = client.patch(where, json={"api_version": "v9"})
        assert refused.json["errors"] == [{"pointer": "#/api_version", "detail": "must be one of: v1, v2, v3"}]
        sent.clear()
        clock.now = RETIRED_AT
        client.post("/api/v3/products", json={"title": "b"})
        deliverer.deliver_once()
        assert {name: sorted(data) for name, data in sent} == {name: sorted(SEEN["v2"]) for name in SEEN}
        again = make(config, clock=clock).test_client()
        changed = again.patch(f"/api/v2/webhooks/{hooks['v1']['id']}", json={"description": "x"})
        assert (changed.status_code, changed.json["api_version"]) == (200, "v1")


class TestCommands:
    @pytest.mark.parametrize(("version", "form"), [("v1", "ndjson"), ("v2", "json"), ("v1", "csv")])
    def test_an_export_of_a_version_is_imported_as_it(self, tmp_path: Path, version: str, form: str) -> None:
        file = tmp_path / f"items.{form}"
        apps = [make(Config(database_url=f"sqlite:///{tmp_path}/{name}.db")) for name in "ab"]
        clients = [app.test_client() for app in apps]
        clients[0].post("/api/v1/products", json=LAMP)
        export = apps[0].test_cli_runner().invoke(args=["export", "products", str(file), "--version", version])
        assert export.exit_code == 0, export.output
        done = apps[1].test_cli_runner().invoke(args=["import", "products", str(file), "--version", version])
        assert done.exit_code == 0, done.output
        one, other = (client.get(f"/api/{version}/products").json for client in clients)
        assert one == other and own(one[0]) == SEEN[version]

    def test_an_export_says_what_it_leaves_out(self, tmp_path: Path) -> None:
        app = make(Config(database_url=f"sqlite:///{tmp_path}/a.db"))
        app.test_client().post("/api/v1/products", json=LAMP)
        runner = app.test_cli_runner()
        warning = "warning: 1 items have fields that only older versions show; `--version NAME` of one of these"
        assert warning in runner.invoke(args=["export", "products"]).stderr
        assert "warning" not in runner.invoke(args=["export", "products", "--version", "v1"]).stderr


def test_an_item_of_an_older_version_has_the_same_limits() -> None:
    """In its own form, so that what is stored beside it is no larger than an item."""
    notes = resource({"title": TITLE}, Remove("more", JsonObject(load_default=dict)))
    client = create_app(Config(page_bytes=300_000), [notes], versions=two_versions()).test_client()
    body = {"title": "a", "more": {"text": "x" * 120_000}}
    for _ in "abcd":
        assert client.post("/api/v1/notes", json=body).status_code == 200
    page = client.get("/api/v1/notes?limit=4")
    assert len(page.json) == 2 and 'rel="next"' in page.headers["Link"]
    assert client.post("/api/v1/notes", json={"title": "e", "more": {"text": "x" * 140_000}}).status_code == 413
    path = f"/api/v1/notes/{page.json[0]['id']}"
    assert client.patch(path, json={"more": {"more": "x" * 100_000}}).status_code == 413


@pytest.mark.parametrize("adds", [False, True])
def test_a_function_sees_a_change_of_what_only_older_versions_show(adds: bool) -> None:
    """Also if it returns the item as it is: the change is stored."""
    notes = resource({"title": TITLE}, Remove("more", Text(0, 100, load_default="")))

    @notes.before("update")
    def see(item: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        return {**item, "title": "b"} if adds else item

    client = create_app(Config(), [notes], versions=two_versions()).test_client()
    path = client.post("/api/v1/notes", json={"title": "a", "more": "old"}).headers["Location"]
    changed = client.patch(path, json={"more": "new"}).json
    assert (changed["more"], changed["title"], changed["version"]) == ("new", "b" if adds else "a", 2)
    assert client.get(path).json == changed


CLOSING = {"open": ("done",), "done": ()}
OLDER = two_versions()


@pytest.mark.parametrize(
    "rule, field",
    [
        ("writable_by", Text(load_default="", writable_by="notes:manage")),
        ("scopes", Status(Lifecycle("open", CLOSING, scopes={"done": "notes:manage"}))),
        ("by_actions", Status(Lifecycle("open", CLOSING, by_actions={"done": "finish"}))),
    ],
)
def test_a_rule_that_only_an_older_field_has_is_refused(rule: str, field: Any) -> None:
    """Writes are checked by the newest fields: it would be in the document of the version, and bind nobody."""
    of_older = (
        Remove("old", field),
        Convert({"old": field}, ["level"], up=lambda old: old, down=lambda level: level),
    )
    for step in of_older:
        notes = resource({"level": Text(load_default="")}, step)
        with pytest.raises(ConfigError, match=f"^versions: v1: notes: old: {rule} is not checked for a field that is"):
            create_app(Config(), [notes], versions=OLDER)
        create_app(Config(), [notes])
    notes = resource({"new": field}, Rename("old", "new"))
    notes.action("finish")(lambda note, items: note)
    create_app(Config(), [notes], versions=OLDER)


@pytest.mark.parametrize("rule", [{"scopes": {"done": "notes:manage"}}, {"by_actions": {"done": "finish"}}])
def test_new_items_of_an_older_version_are_in_no_state_that_their_callers_cannot_set(rule: Any) -> None:
    """Stored items can get such a state by a step, as long as there is no older version that makes new ones."""
    refused = "^versions: v1: notes: status: not every caller can set 'done', which new items of this version would"
    for name, rename in (("status", []), ("state", [Rename("state", "status")])):
        for default in ("open", "done"):
            notes = resource({"status": Status(Lifecycle("open", CLOSING, **rule))}, Add(name, default), *rename)
            notes.action("finish")(lambda note, items: note)
            create_app(Config(), [notes])
            with pytest.raises(ConfigError, match=refused) if default == "done" else nullcontext():
                create_app(Config(), [notes], versions=OLDER)


@pytest.mark.parametrize("added", [(), (Add("closed", True),)])
def test_a_state_that_a_step_makes_is_one_that_is_sent(added: tuple[Step, ...]) -> None:
    """Also of a default: a new item that leaves it out is refused with the action that sets it, a change is not."""
    status = Status(Lifecycle("open", CLOSING, by_actions={"done": "finish"}))
    closed = fields.Boolean(load_default=True)
    convert = Convert({"closed": closed}, ["state"], lambda closed: "done" if closed else "open", lambda s: s == "done")
    notes = resource({"title": Text(load_default=""), "status": status}, *added, convert, Rename("state", "status"))
    notes.action("finish")(lambda note, items: {**note, "status": "done"})
    client = create_app(Config(), [notes], versions=OLDER).test_client()
    for sent in ({}, {"closed": True})[: 1 if added else 2]:
        refused = client.post("/api/v1/notes", json=sent)
        assert (refused.status_code, refused.json["action"], refused.json["to"]) == (409, "finish", "done")
    assert client.get("/notes").json == []
    if not added:
        assert client.post("/api/v1/notes", json={"closed": False}).json["closed"] is False
    made = client.post("/notes", json={}).json
    assert client.post(f"/notes/{made['id']}/finish").status_code == 200
    assert client.patch(f"/api/v1/notes/{made['id']}", json={"title": "x"}).status_code == 200

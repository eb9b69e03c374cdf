"""Collections that requests only read or add to, items without times and version, and singletons."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator

from restkeeper import Config, Index, ItemSchema, Ownership, Reference, Resource, Text
from tests.callers import events
from tests.live import Gunicorn, send
from tests.shop import create_app as create_shop
from tests.shop.shapes import SETTINGS, TAGS, RateSchema, TagSchema, create_app
from tests.test_openapi import everything, fits
from tests.test_pages import walk

pytestmark = pytest.mark.needs("batch", "events", "idempotency", "keys", "openapi")


@pytest.fixture
def client() -> FlaskClient:
    return create_app(Config()).test_client()


def test_requests_only_read_or_only_add_to_a_collection(client: FlaskClient) -> None:
    """Actions write it, with events. Other methods are not allowed: see test_crossings.py."""
    rate = client.post("/rates/refresh", json={"currency": "EUR"}).json
    path = f"/rates/{rate['id']}"
    assert client.post(f"{path}/double").json["value"] == 2 and client.get("/rates").json[0]["version"] == 2
    assert events(client) == ["rate.created", "rate.updated"]
    refused = client.put(path, json={"currency": "USD"})
    assert set(refused.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}
    done = {"method": "POST", "path": f"{path}/double", "body": {}}
    assert client.post("/api/v1/batch", json={"operations": [done]}).json["results"][0]["body"]["value"] == 4
    path = client.post("/notes", json={"currency": "EUR"}).headers["Location"]
    assert client.get(path).status_code == 200 and client.delete(path).status_code == 405


def test_the_document_has_what_there_is(client: FlaskClient) -> None:
    document = client.get("/openapi.json").json
    paths = {path: set(item) - {"parameters"} for path, item in document["paths"].items()}
    assert (paths["/rates"], paths["/rates/{id}"], paths["/notes/{id}"]) == ({"get"}, {"get"}, {"get"})
    assert (paths["/notes"], paths["/rates/refresh"]) == ({"get", "post"}, {"post"})
    schemas = document["components"]["schemas"]
    assert {"Rate", "NoteInput"} <= schemas.keys() and schemas.keys().isdisjoint({"RateInput", "NotePatch"})
    assert any(part.get("operationId") == "refresh_rates" for part in everything(document))
    parameters = document["components"]["parameters"]
    assert set(schemas["Tag"]["required"]) == {"id", "name", "note"} == set(schemas["TagField"]["enum"])
    assert not [name for name in parameters if name.startswith("Tag.") and name.split(".")[1] in TIMES]
    assert "webhooks" not in document or schemas["ItemReference"]["required"] == []
    fits(document, schemas["Tag"], client.get(tag(client, "red")).json)
    list(map(Draft202012Validator.check_schema, schemas.values()))
    settings = {path: methods for path, methods in paths.items() if path.startswith("/settings")}
    assert settings == {"/settings": {"get", "put", "patch"}, "/settings/visit": {"post"}, "/settings/reset": {"post"}}
    assert document["paths"]["/settings"]["get"]["operationId"] == "read_settings"
    assert schemas["Settings"]["required"] == ["theme", "visits"] == list(schemas["SettingsInput"]["properties"])
    assert "create" in document["paths"]["/company"]["put"]["description"]
    fits(document, schemas["Settings"], client.get("/settings").json)


def test_declarations_that_cannot_be() -> None:
    for methods in ("GET", ("POST",), ("GET", "HEAD"), ()):
        with pytest.raises(ValueError, match="rates: methods=.*: must be 'GET' and some of .*'DELETE'"):
            Resource("rates", "rate", RateSchema, methods=methods)
    schema = type("TagSchema", (ItemSchema,), {"Meta": type("Meta", (), {"exclude": ("id", "version")})})
    with pytest.raises(ValueError, match="tags: TagSchema.Meta: leaves out id: exclude only times and version"):
        Resource("tags", "tag", schema)
    for base, expected in (
        (ItemSchema, "the server sets it: use another name"),
        (TagSchema, "Meta.exclude leaves it out: write own_version = …"),
    ):
        schema = type("TagSchema", (base,), {"version": Text(load_default="")})
        with pytest.raises(ValueError, match=f"tags.version: {expected}"):
            Resource("tags", "tag", schema)
    with pytest.raises(ValueError, match="tags: sort='-created_at': 'created_at' is none of id, name"):
        replace(TAGS, sort="-created_at")
    with pytest.raises(ValueError, match="tags.created_at: cannot be indexed"):
        replace(TAGS, indexes=(Index("created_at"),))
    for options, expected in (
        ({"methods": ("GET", "DELETE")}, "methods=.*: must be 'GET' and some of .'PUT', 'PATCH'"),
        ({"search": ("theme",)}, "a singleton is one item of all callers: leave out indexes, search, sort"),
        ({"ids": "client"}, ".* leave out .* ids"),
        ({"ownership": Ownership.ALL}, ".* leave out .* ownership"),
    ):
        with pytest.raises(ValueError, match=f"settings: {expected}"):
            Resource("settings", "settings", SETTINGS.schema, singleton=True, **options)
    with pytest.raises(ValueError, match="settings: action.'clear', of='collection'.: must be 'item'"):
        SETTINGS.action("clear", of="collection")(lambda items: None)


TIMES = {"created_at", "updated_at", "version"}


def tag(client: FlaskClient, name: str, **fields: str) -> str:
    created = client.post("/tags", json={"name": name, **fields})
    assert created.status_code == 200 and created.json.keys() == {"id", "name", "note"}
    return created.headers["Location"]


def test_items_without_times_and_version(client: FlaskClient) -> None:
    """No response has them, and no request can; conditions and the order of lists are as ever."""
    paths = [tag(client, name) for name in ("red", "green", "blue")]
    first = client.get(paths[0])
    assert first.json == {"id": first.json["id"], "name": "red", "note": ""} and "Last-Modified" in first.headers
    changed = client.put(paths[0], json={**first.json, "note": "x"}, headers={"If-Match": first.headers["ETag"]})
    assert changed.status_code == 200 and changed.json == {**first.json, "note": "x"}
    stale = client.patch(paths[0], json={"note": "y"}, headers={"If-Match": first.headers["ETag"]})
    assert (stale.status_code, stale.headers["ETag"]) == (412, changed.headers["ETag"])
    assert client.get(paths[0], headers={"If-None-Match": changed.headers["ETag"]}).status_code == 304
    merged = client.patch(paths[0], json={"note": None})
    assert (merged.data, merged.headers["ETag"]) == (first.data, first.headers["ETag"])  # it is as it was
    assert [each["name"] for each in client.get("/tags").json] == ["red", "green", "blue"]
    assert list(walk(client, "/tags?limit=2&sort=-id", "next")) == [["blue", "green"], ["red"]]
    assert client.get("/tags?limit=1").json[0].keys() == {"id", "name", "note"}
    assert client.get("/tags?q=gre&fields=name").json == [{"name": "green"}]
    assert client.delete(paths[2]).json.keys() == {"id", "name", "note"}
    data = [each["data"] for each in client.get("/api/v1/events").json]
    assert len(data) == 6 and all(each.keys() == {"id", "name", "note"} for each in data)


def test_what_is_excluded_is_no_field(client: FlaskClient) -> None:
    for name in sorted(TIMES):
        path, sent = tag(client, name), {"name": "blue", name: 1}
        for method, of in (("POST", "/tags"), ("PUT", path), ("PATCH", path)):
            refused = client.open(of, method=method, json=sent)
            fault = {"pointer": f"#/{name}", "detail": "is not a field of this collection"}
            assert (refused.status_code, refused.json["errors"]) == (422, [fault])
        for query in (f"{name}=1", f"sort={name}", f"fields={name}"):
            assert client.get(f"/tags?{query}").status_code == 400
        assert client.get(path).json["name"] == name


def test_an_export_is_without_times(tmp_path: Path) -> None:
    """And can be imported; the id stays."""
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/shapes.db"))
    path = tag(app.test_client(), "red")
    item = app.test_client().get(path).json
    run = app.test_cli_runner().invoke
    for name in ("tags.ndjson", "tags.csv"):
        assert run(args=["export", "tags", f"{tmp_path}/{name}"]).exit_code == 0
        assert app.test_client().delete(path).status_code == 200
        done = run(args=["import", "tags", f"{tmp_path}/{name}"])
        assert done.exit_code == 0 and app.test_client().get(path).json == item, done.output
        assert "1 already there" in run(args=["import", "tags", f"{tmp_path}/{name}"]).output


@pytest.mark.needs("pages")
def test_a_singleton_has_one_path(client: FlaskClient) -> None:
    """It has the defaults of its fields until it is changed; it cannot be created, deleted or listed."""
    first = client.get("/settings")
    assert first.json == {"theme": "light", "visits": 0} and first.headers["ETag"]
    assert client.put("/settings", json=first.json).data == first.data and not client.get("/api/v1/events").json
    stale = client.patch("/settings", json={"theme": "dark"}, headers={"If-Match": '"x"'})
    assert (stale.status_code, stale.headers["ETag"]) == (412, first.headers["ETag"])
    matched = {"If-Match": first.headers["ETag"]}
    changed = client.patch("/api/v1/settings", json={"theme": "dark"}, headers=matched)
    assert changed.json == {**first.json, "theme": "dark"} and changed.headers["ETag"] != first.headers["ETag"]
    read = client.get("/settings?fields=theme", headers={"If-None-Match": first.headers["ETag"]})
    assert (read.json, read.headers["ETag"]) == ({"theme": "dark"}, changed.headers["ETag"])
    assert client.patch("/settings", json={"theme": "light"}, headers=matched).status_code == 412
    assert client.put("/settings", json={"visits": 3}).json == {**first.json, "visits": 3}
    assert events(client) == ["settings.updated"] * 2
    assert client.get("/api/v1/events").json[0]["data"] == changed.json
    for method in ("POST", "DELETE"):
        refused = client.open("/settings", method=method, json={})
        assert refused.status_code == 405
        assert set(refused.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS", "PUT", "PATCH"}
    assert client.get("/settings/settings").status_code == 404
    for name in ("id", *TIMES):
        refused = client.put("/settings", json={name: first.json.get(name, "settings")})
        assert refused.json["errors"] == [{"pointer": f"#/{name}", "detail": "is not a field of this collection"}]
    assert {"name": "settings", "url": "/settings"} in client.get("/").json["collections"]


def test_functions_change_a_singleton(client: FlaskClient) -> None:
    """Its actions, those of others, and batches; also when it is not stored yet."""
    assert client.post("/settings/visit").json["visits"] == 1
    tag(client, "visit")
    assert client.get("/settings").json["visits"] == 2
    assert client.post("/settings/reset").json == {"theme": "light", "visits": 0}
    client.post("/settings/visit")
    assert [client.post("/tags/forget").json["visits"] for _ in range(2)] == [1, 0]
    operations = [
        {"method": "PATCH", "path": "/settings", "body": {"theme": "dark"}, "if_match": "*"},
        {"method": "POST", "path": "/settings/visit", "if_match": "*"},
        {"method": "PUT", "path": "/company", "body": {"name": "Lamps"}},
    ]
    results = client.post("/api/v1/batch", json={"operations": operations}).json["results"]
    assert [results[1]["body"], results[2]["body"]] == [client.get(path).json for path in ("/settings", "/company")]


def test_a_singleton_without_defaults_is_created_by_a_put(client: FlaskClient) -> None:
    for method in ("GET", "PATCH"):
        assert client.open("/company", method=method, json={"name": "Lamps"}).status_code == 404
    assert client.put("/company", json={"name": "x"}, headers={"If-Match": "*"}).status_code == 412
    assert client.put("/company", json={}).json["errors"][0]["pointer"] == "#/name"
    created = client.put("/company", json={"name": "Lamps"}, headers={"If-None-Match": "*"})
    assert (created.status_code, created.json) == (200, {"name": "Lamps", "seat": ""})
    assert client.put("/company", json={"name": "x"}, headers={"If-None-Match": "*"}).status_code == 412
    assert client.patch("/company", json={"seat": "Rome"}).json == {"name": "Lamps", "seat": "Rome"}
    assert events(client) == ["company.created", "company.updated"]


def test_a_singleton_refers_to_items() -> None:
    """And no item to it."""
    schema = type("LinkSchema", (ItemSchema,), {"to": Reference("tags", load_default=None, allow_none=True)})
    link = Resource("link", "link", schema, singleton=True)
    client = create_shop(Config(), [TAGS, SETTINGS, link]).test_client()
    path = tag(client, "red")
    absent = client.patch("/link", json={"to": "none"})
    assert (absent.status_code, absent.json["errors"][0]["pointer"]) == (422, "#/to")
    assert client.patch("/link", json={"to": path.removeprefix("/tags/")}).status_code == 200
    assert client.delete(path).status_code == 409
    schema = type("LinkSchema", (ItemSchema,), {"to": Reference("settings", required=True)})
    with pytest.raises(ValueError, match=r"links.to: Reference\('settings'\): must be one of tags, links"):
        create_shop(Config(), [TAGS, SETTINGS, Resource("links", "link", schema)])


def test_the_first_changes_of_a_singleton_at_once(tmp_path: Path) -> None:
    """None is lost: of requests, of actions and in batches, in two processes."""
    visit = {"method": "POST", "path": "/settings/visit"}
    with (
        Gunicorn(tmp_path, app="tests.shop.shapes:create_app()", RATE_LIMIT="off") as server,
        ThreadPoolExecutor(9) as pool,
    ):
        tag = server.get("/settings").headers["etag"]
        visits = [pool.submit(server.post, "/settings/visit", {}) for _ in range(3)]
        visits += [pool.submit(server.post, "/api/v1/batch", {"operations": [visit]}) for _ in range(3)]
        puts = [pool.submit(send, server.port, "PUT", "/company", {"name": str(n)}, {}) for n in range(3)]
        assert {each.result().status for each in (*visits, *puts)} == {200}
        assert server.get("/settings").json() == {"theme": "light", "visits": 6}
        patches = [
            pool.submit(server.request, "PATCH", "/settings", {"visits": n}, {"If-Match": tag}) for n in range(3)
        ]
        assert {each.result().status for each in patches} == {412}


def test_a_singleton_is_exported_and_imported(tmp_path: Path) -> None:
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/shapes.db"))
    client, run, file = app.test_client(), app.test_cli_runner().invoke, tmp_path / "settings.ndjson"
    assert client.patch("/settings", json={"visits": 1}).status_code == 200
    assert run(args=["export", "settings", str(file)]).exit_code == 0
    assert file.read_text() == '{"theme":"light","visits":1}\n'
    assert "1 already there" in run(args=["import", "settings", str(file)]).output
    client.patch("/settings", json={"visits": 2})
    assert "is there already, with other content" in run(args=["import", "settings", str(file)]).output
    file.write_text('{"id": "a", "name": "Lamps"}')
    assert run(args=["import", "company", str(file)]).exit_code == 0 and client.get("/company").json["name"] == "Lamps"

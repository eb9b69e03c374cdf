"""A JSON file's collections are called as the file says; what the service itself has is below /_/ as well."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from openapi_spec_validator import validate

from restkeeper import LiveServer
from restkeeper.app import create_app
from restkeeper.config import Config, ConfigError
from restkeeper.errors import shortened
from restkeeper.features.files import FileOptions, application_of
from restkeeper.features.files.collections import declare, names_of
from restkeeper.features.files.file import SavedFile, read_file
from restkeeper.resources.checks import LONGEST_PATH
from restkeeper.resources.resource import Resource
from restkeeper.schemas.item import ItemSchema
from restkeeper.seams import take_part
from restkeeper.service import service_of
from restkeeper.versions import Version, Versions
from tests.browser import Page, Tab
from tests.json_file import running

pytestmark = pytest.mark.needs("batch", "browse", "events", "health", "keys", "openapi", "pages", "webhooks")

OWN = ("events", "keys", "docs", "browse", "healthz", "openapi.json", "problems", "api", "batch", "webhooks", "service")
ODD = (
    "blog-posts",
    "Posts",
    "posts",
    "post",
    "post_event",
    "my posts",
    "ünïcode",
    "日本",
    "a.b",
    "1st",
    "a{b}",
    "a%2Fb?",
)
KEY = "rk_0123456789abcdef_" + "a" * 43
ADMIN = {"Authorization": f"Bearer {KEY}"}


def client_of(tmp_path: Path, data: dict[str, Any], *, strict: bool = False, **settings: Any) -> FlaskClient:
    """A client of the service of a file with this data."""
    (file := tmp_path / "db.json").write_text(json.dumps(data))
    return application_of(create_app, file, FileOptions(strict=strict), config=Config(**settings)).test_client()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> FlaskClient:
    """A client of a service whose collections are called as its own pages, and as no identifier."""
    data = {name: [{"id": 1, "title": name, "n": 3}, {"id": 2, "title": "x"}] for name in (*OWN, *ODD)}
    return client_of(tmp_path_factory.mktemp("names"), data | {"my one": {"a": 1}})


@pytest.mark.parametrize("name", [*OWN, *ODD])
def test_any_name_is_served(client: FlaskClient, name: str) -> None:
    """At its path, and in the version, by every method; its changes are in the feed."""
    for path in (f"/{quote(name, safe='')}", f"/api/v1/{quote(name, safe='')}"):
        assert [each["title"] for each in client.get(path).json] == [name, "x"]
        assert [each["title"] for each in client.get(f"{path}?n=3").json] == [name]
        created = client.post(path, json={"title": "new"})
        location = created.headers["Location"]
        assert client.get(location).json == created.json
        assert client.put(location, json={"title": "put"}).json["title"] == "put"
        assert client.patch(location, json={"title": "patched"}).json["title"] == "patched"
        assert client.delete(location).status_code == 200
    feed = client.get("/_/events", query_string={"collection": name}).json
    assert [each["type"].split(".")[1] for each in feed] == ["created", "updated", "updated", "deleted"] * 2
    assert feed[0]["data"]["title"] == "new"


def test_what_the_service_has_itself_is_below(client: FlaskClient) -> None:
    """It gives way to a collection, and links say where it is."""
    links = client.get("/", headers={"Accept": "application/json"}).json["links"]
    assert {*links.values()} == {
        *map("/_/{}".format, ("docs", "browse", "events", "openapi.json", "healthz")),
        "/readyz",
    }
    for path in (*links.values(), "/_/readyz", "/_/docs/start.js", "/_/browse/api.js", "/_/browse/scopes", "/_/keys"):
        assert client.get(path).status_code == 200, path
    assert client.get(client.get("/nothing/at/all").json["type"]).json["status"] == 404
    operation = {"method": "PATCH", "path": "/my%20posts/1", "body": {"n": 4}}
    assert client.post("/_/batch", json={"operations": [operation]}).json["results"][0]["body"]["n"] == 4


def test_what_no_collection_is_called_is_where_it_was(tmp_path: Path) -> None:
    """And below, too; the document has it once."""
    client = client_of(tmp_path, {})
    for path in (
        "/healthz",
        "/docs",
        "/browse",
        "/openapi.json",
        "/problems/not-found",
        "/api/v1/events",
        "/api/v1/keys",
    ):
        assert client.get(path).status_code == 200, path
        assert client.get(f"/_{path.removeprefix('/api/v1')}").status_code == 200, path
    assert client.post("/_/healthz").status_code == 405
    assert not [path for path in client.get("/_/openapi.json").json["paths"] if path.startswith("/_")]


def test_the_document_of_any_names(client: FlaskClient) -> None:
    """It is valid; tags are the names, paths are escaped, and each operation has an id of its own."""
    document = client.get("/_/openapi.json").json
    validate(document)
    assert {*OWN, *ODD, "my one", "_/keys", "_/events"} <= {each["name"] for each in document["tags"]}
    assert {"/my%20posts/{id}", "/a%7Bb%7D", "/keys", "/_/keys", "/keys/{id}", "/my%20one"} <= {*document["paths"]}
    operations = [each for item in document["paths"].values() for each in item.values() if "operationId" in each]
    ids = [each["operationId"] for each in operations]
    assert len({*ids}) == len(ids)
    assert all(id.isidentifier() for id in ids)
    assert document["paths"]["/my%20posts"]["get"]["x-required-scope"] == "my%20posts:read"
    assert document["paths"]["/_/keys"]["get"]["x-required-scope"] == "admin"


def test_scopes_of_any_names(tmp_path: Path) -> None:
    """A scope of a collection that is called as something of the service allows nothing there."""
    data = {name: [{"id": 1}] for name in ("blog-posts", "my posts", "keys", "webhooks", "events")}
    client = client_of(tmp_path, data, auth="required", admin_key=KEY)
    scopes = ["blog-posts:read", "my%20posts:write", "keys:read", "keys:write", "webhooks:read", "webhooks:write"]
    made = client.post("/_/keys", json={"name": "k", "scopes": [*scopes, "events:read"]}, headers=ADMIN).json
    known = {"Authorization": f"Bearer {made['secret']}"}
    for path in ("/blog-posts", "/keys", "/api/v1/keys", "/webhooks", "/events"):
        assert client.get(path, headers=known).status_code == 200, path
    for path in ("/my%20posts", "/_/keys", "/_/webhooks"):
        assert client.get(path, headers=known).status_code == 403, path
    assert client.get("/my%20posts", headers=known).headers["WWW-Authenticate"].endswith('scope="my%20posts:read"')
    assert client.post("/keys", json={"n": 1}, headers=known).json == {"id": 2, "n": 1}
    assert client.delete(f"/keys/{made['id']}", headers=known).status_code == 404
    assert client.post("/_/keys", json={"name": "k", "scopes": ["admin"]}, headers=known).status_code == 403
    assert client.get("/_/keys/1", headers=ADMIN).status_code == 404
    assert [each["id"] for each in client.get("/keys", headers=ADMIN).json] == [1, 2]
    assert client.delete("/webhooks/1", headers=known).status_code == 200
    hook = {"url": "https://example.org", "events": ["webhook.disabled"]}
    assert client.post("/_/webhooks", json=hook, headers=known).status_code == 403
    feed = client.get("/_/events", query_string={"collection": "webhooks"}, headers=known).json
    assert [each["data"] for each in feed] == [{"id": 1}]
    assert client.get("/_/events", query_string={"collection": "_/webhooks"}, headers=known).status_code == 403
    assert client.get("/_/events", headers={"Authorization": "Bearer x"}).status_code == 401
    assert client.get("/_/docs").status_code == 200


def test_relations_have_the_names_of_the_file(tmp_path: Path) -> None:
    """Where items are embedded and nested."""
    data = {"Posts": [{"id": 1}], "posts": [{"id": 1}], "blog comments": [{"id": 1, "postId": 1}]}
    client = client_of(tmp_path, data, strict=True)
    assert client.get("/posts/1?embed=blog comments").json["blog comments"] == data["blog comments"]
    assert client.get("/posts/1/blog%20comments").json == data["blog comments"]
    assert client.get("/blog%20comments/1?embed=post").json["post"] == {"id": 1}
    refused = client.post("/blog%20comments", json={"postId": 9}).json
    assert refused["errors"][0]["detail"].startswith("there is no item '9' in posts")
    created = client.post("/posts/1/blog%20comments", json={})
    assert client.get(created.headers["Location"]).json == {"id": 2, "postId": 1}
    parts = client.get("/openapi.json").json["components"]["schemas"]["BlogComment"]["properties"]
    assert parts["postId"]["x-references"] == "posts"
    assert parts["postId"]["description"] == "The id of an item of posts."


def test_what_is_not_served_is_named(tmp_path: Path) -> None:
    """In one line, and stays in the file."""
    names = ("", "a/b", "_", "..", "a<b", "a\nb", "x" * (LONGEST_PATH + 1))
    data: dict[str, Any] = {name: [{"id": 1}] for name in names} | {"$x": 3, "x" * LONGEST_PATH: []}
    client = client_of(tmp_path, data)
    assert client.get(f"/{'x' * LONGEST_PATH}").json == []
    assert [client.get(path).status_code for path in ("/_", "/a/b", "/a%2Fb", f"/{'x' * 65}")] == [404] * 4
    _, lines = declare(read_file(tmp_path / "db.json"))
    assert [each.partition(" is not served: must ")[0] for each in lines] == [repr(shortened(name)) for name in names]


def test_changes_and_edits_of_any_names(tmp_path: Path) -> None:
    """A key of the service is none of the file."""
    data: dict[str, Any] = {"keys": [{"id": "k"}], "my posts": [{"id": 1}], "my one": {"a": 1}, "a/b": 3, "": []}
    client = client_of(tmp_path, data)
    file, restart = tmp_path / "db.json", Mock()
    saved = SavedFile(read_file(file), service_of(client.application), restart, saved=True)
    take_part(service_of(client.application), saved.seams)
    id = client.post("/_/keys", json={"name": "k", "scopes": ["admin"]}).json["id"]
    client.patch("/my%20posts/1", json={"n": 2})
    client.patch("/my%20one", json={"a": 2})
    client.delete("/keys/k")
    client.delete(f"/_/keys/{id}")
    changed = data | {"keys": [], "my posts": [{"id": 1, "n": 2}], "my one": {"a": 2}}
    assert json.loads(file.read_bytes()) == changed
    file.write_text(json.dumps(changed | {"my posts": [{"id": 2}, {"id": 1, "n": 2}], "my one": {"a": 3}, "a/b": 4}))
    saved.run_once()
    assert client.get("/my%20posts").json == [{"id": 2}, {"id": 1, "n": 2}]
    assert client.get("/my%20one").json == {"a": 3}
    assert not restart.called


def test_a_path_of_the_service_in_one_version_only() -> None:
    """Else the page below would be that of one of them."""
    resource, versions = (
        Resource("a", "a", ItemSchema, path="events"),
        Versions(Version("v1"), Version("v2"), unversioned="v1"),
    )
    with pytest.raises(ConfigError, match="path='events': each version has a page there"):
        create_app(Config(), [resource], versions=versions)


@pytest.mark.parametrize("path", ["a/b", "x" * (LONGEST_PATH + 1), "a\0", ".."])
def test_what_cannot_be_a_path(path: str) -> None:
    """It is refused where it is declared."""
    with pytest.raises(ValueError, match="path="):
        Resource("a", "a", ItemSchema, path=path)


def test_names_are_identifiers() -> None:
    """Each unlike all others, and the same as the path where that can be."""
    names = names_of(["Posts", "posts", "post", "keys", "my-posts", "my_posts", "Ünï", "日本", "1st", "post_event"])
    assert names == {
        "Posts": ("Posts", "Posts"),
        "posts": ("posts_2", "posts_2"),
        "post": ("post", "post"),
        "keys": ("keys_2", "keys_2"),
        "my_posts": ("my_posts", "my_post"),
        "my-posts": ("my_posts_2", "my_posts_2"),
        "Ünï": ("Uni", "Uni"),
        "日本": ("items", "item"),
        "1st": ("items_1st", "items_1st"),
        "post_event": ("post_event_2", "post_event_2"),
    }


def test_a_running_service_of_any_names(tmp_path: Path) -> None:
    """It says where things are, and changes are in the file."""
    (file := tmp_path / "db.json").write_text(json.dumps({"my posts": [{"id": 1}], "docs": [], "a/b": []}))
    with running(file) as server:
        assert server.send("POST", "/my%20posts", {"n": 1}).status == 200
        for path in ("/docs", "/_/docs", "/_/browse", "/browse", "/_/healthz"):
            assert server.send("GET", path).status == 200
        assert json.loads(file.read_bytes()) == {"my posts": [{"id": 1}, {"n": 1, "id": 2}], "docs": [], "a/b": []}
    for part in (
        "'a/b' is not served: ",
        f"{server.port}/_/docs",
        f"{server.port}/browse",
        f"{server.port}/my%20posts",
    ):
        assert part in server.lines


def test_the_page_of_items(tmp_path: Path, tab: Tab) -> None:
    """It reads its document beside it, and what it shows is where the document says: also below a prefix."""
    names = ("docs", "browse", "openapi.json", "events", "my posts")
    data = {name: [{"id": 1, "title": f"of {name}"}] for name in names} | {"notes": [{"id": 1, "my_post_id": 1}]}
    (file := tmp_path / "db.json").write_text(json.dumps(data))
    with LiveServer(str(file)) as server, server.space() as space:
        tab.open(f"{space.url}/_/browse")
        page = Page(tab, SimpleNamespace(base=space.url))
        page.see(".cards li", *(name for name in (*names, "notes")))
        for name in names:
            page.tab.run(f"location.hash = '#/item/{quote(name, safe='')}/1'")
            page.see("h1", f"of {name}")
        page.press("Edit")
        page.fill("title", "changed")
        page.press("Save")
        page.see("h1", "changed")
        page.finish()
        tab.open(f"{space.url}/_/docs")
        tab.shown(".opblock-tag")
        assert "my posts" in tab.run("document.body.innerText")

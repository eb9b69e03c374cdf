"""Permissions: every route and method, by every kind of caller, from the URL map; and ownership."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flask.testing import FlaskClient

from restkeeper import Items
from restkeeper.config import Config
from restkeeper.resources.call import KNOWN, PUBLIC
from restkeeper.resources.declaration import Ownership
from restkeeper.resources.resource import Resource
from restkeeper.service import service_of
from restkeeper.web.application import Application
from restkeeper.web.auth import OWN, PROBE, needs
from tests.callers import ADMIN, ADMIN_KEY, key
from tests.shop import create_app
from tests.shop.products import RESOURCE as PRODUCTS
from tests.shop.products import ProductSchema
from tests.shop.users import RESOURCE as USERS
from tests.shop.users import UserSchema

Item = dict[str, Any]

pytestmark = pytest.mark.needs("keys", "ownership")


NOTES = Resource(name="notes", singular="note", schema=ProductSchema, search=("name",), ownership=Ownership.ALL)
POSTS = Resource(name="posts", singular="post", schema=ProductSchema, ownership=Ownership.CHANGES)
RESOURCES = (PRODUCTS, USERS, NOTES, POSTS)

BODIES: dict[str, Any] = {
    "keys": {"name": "x", "scopes": ["products:read"]},
    "webhooks": {"url": "https://example.org/hook"},
}


def service() -> Application:
    return create_app(Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off", failure_limit="off"), RESOURCES)


@pytest.fixture
def client() -> FlaskClient:
    return service().test_client()


def routes(app: Application) -> Iterator[tuple[str, str, str]]:
    guard = service_of(app).guard
    for rule in app.url_map.iter_rules():
        for method in sorted(rule.methods or ()):
            yield rule.rule, method, guard.needs[rule.endpoint]


def collection_of(rule: str) -> str:
    return rule.removeprefix("/api/v1").split("/")[1]


def body_of(name: str) -> Any:
    return {"email": f"{uuid4()}@example.org"} if name == "users" else BODIES.get(name, {"name": "x"})


def path_of(client: FlaskClient, rule: str) -> str:
    name = collection_of(rule)
    if "<id>" not in rule:
        file = "browse.css" if name == "browse" else "swagger-ui.css"
        return rule.replace("<name>", "forbidden").replace("<path:name>", file)
    made = client.post(f"/api/v1/{name}", json=body_of(name), headers=ADMIN)
    path = rule.replace("<id>", made.json["id"])
    if "<delivery>" not in rule:
        return path
    queued = client.post(f"/api/v1/{name}/{made.json['id']}/ping", headers=ADMIN)
    return path.replace("<delivery>", str(queued.json["id"]))


def status_of(client: FlaskClient, method: str, path: str, headers: dict[str, str]) -> int:
    body = body_of(collection_of(path)) if method in ("POST", "PUT", "PATCH") else None
    return client.open(path, method=method, json=body, headers=headers, buffered=True).status_code


def other_scopes(permission: str) -> list[str]:
    """All scopes but the required one. For KNOWN, which any scope for reading fulfils, all scopes for writing."""
    every = [f"{each.name}:{action}" for each in RESOURCES for action in ("read", "write")]
    return [scope for scope in every if not (scope.endswith(":read") if permission == KNOWN else scope == permission)]


def test_every_route_requires_its_permission(client: FlaskClient) -> None:
    """401 or 403 without, also where no item is; public routes, and OPTIONS, which describes a path, need none."""
    holder_of = cache(lambda permission: key(client, "products:read" if permission == KNOWN else permission))
    holder_of_others = cache(lambda permission: key(client, *other_scopes(permission)))
    for rule, method, permission in routes(client.application):  # type: ignore[arg-type]
        if collection_of(rule) == "batch":
            continue  # it has no scope, and each of its operations has one: see test_batch.py
        path = path_of(client, rule)
        free = method == "OPTIONS" or permission in (PUBLIC, PROBE)
        found: dict[str, Any] = {"bad": status_of(client, method, path, {"X-API-Key": "bad"})}
        expected: dict[str, Any] = {"bad": 401}
        if permission == OWN:
            assert method == "OPTIONS" or found == {"bad": 403}, (method, rule)
            continue
        found["none"], expected["none"] = status_of(client, method, path, {}), 200 if free else 401
        found["others"] = status_of(client, method, path, holder_of_others(permission))
        expected["others"] = 200 if free else 403
        if not free:
            owned = collection_of(rule) in ("notes", "posts") and "<id>" in rule
            found["right"] = status_of(client, method, path, ADMIN if owned else holder_of(permission))
            expected["right"] = 200
        if "<id>" in rule and method != "OPTIONS":
            nothing = rule.replace("<id>", "nothing").replace("<delivery>", "1")
            callers = ({}, holder_of_others(permission), holder_of(permission))
            found["nothing"] = [status_of(client, method, nothing, headers) for headers in callers]
            expected["nothing"] = [401, 403, 404]
        assert found == expected, (method, rule)


def test_a_route_can_be_added_to_the_application() -> None:
    """Guarded as all others; one that declares nothing, as its handler came later, is served to no caller."""
    app = service()
    allowed = {"public": [200, 200, 200], "known": [401, 200, 200], "admin": [401, 403, 200], "late": [500, 500, 500]}
    for permission in ("public", "known", "admin"):
        app.add_url_rule(f"/{permission}", view_func=needs(permission)(lambda: "x"), endpoint=permission)
    app.add_url_rule("/late", "late")
    app.view_functions["late"] = lambda: "x"
    client = app.test_client()
    keys = [{}, key(client, "products:read"), ADMIN]
    for path, statuses in allowed.items():
        assert [client.get(f"/{path}", headers=headers).status_code for headers in keys] == statuses


def test_a_route_without_permission_or_a_duplicate_name_stops_the_start() -> None:
    """Each handler must declare its permission, when it is added, and by a name that exists."""
    app = service()
    with pytest.raises(ValueError, match=r"new: say what it needs, with @restkeeper\.needs of 'public', "):
        app.add_url_rule("/new", "new", lambda: "x")
    with pytest.raises(ValueError, match=r"new: @needs\('read'\) is for handlers of a collection; use 'known'"):
        app.add_url_rule("/new", "new", needs("read")(lambda: "x"))
    with pytest.raises(ValueError, match=re.escape("needs('publik'): must be one of 'public', 'probe', ")):
        needs("publik")
    for name, singular, taken in (
        ("keys", "thing", "keys: the name is taken; call the collection something else"),
        ("docs", "thing", "docs: the name is taken"),
        ("products", "thing", "'products' is the name of two collections, of UserSchema and ProductSchema: change one"),
        ("things", "webhook", "webhook: the name is taken"),
        ("things", "product", "'product' is the singular of two collections, of UserSchema and ProductSchema"),
    ):
        twice = (Resource(name=name, singular=singular, schema=UserSchema), PRODUCTS)
        with pytest.raises(ValueError, match=taken):
            create_app(Config(), twice)


def test_a_missing_scope_is_named(client: FlaskClient) -> None:
    """A 403 names the missing scope (RFC 6750, section 3.1); no header or other spelling of a path goes around it."""
    reader = key(client, "products:read")
    response = client.post("/products", json={"name": "x"}, headers=reader)
    assert (response.status_code, response.json["detail"]) == (403, "this needs the scope products:write")
    challenge = 'Bearer realm="restkeeper", error="insufficient_scope", scope="products:write"'
    assert response.headers["WWW-Authenticate"] == challenge
    tricks = {"X-HTTP-Method-Override": "DELETE", "X-Original-URL": "/api/v1/keys", "X-Rewrite-URL": "/api/v1/keys"}
    assert client.get("/products", headers=reader | tricks).json == []
    for path in ("/keys", "/api/v1/keys/", "/api/v1//keys", "//api/v1/keys", "/API/v1/keys", "/api/v1/_credentials"):
        assert client.get(path, headers=reader).status_code == 404, path


OWNERS = [f"{name}:{action}" for name in ("notes", "posts") for action in ("read", "write")]


@pytest.fixture
def mine(client: FlaskClient) -> dict[str, str]:
    return key(client, *OWNERS)


@pytest.mark.needs("batch")
def test_an_owner_that_nothing_obeys_is_refused() -> None:
    """By every write but those that create items with an owner; who may not write at all is refused before."""
    given = Resource("marks", "mark", ProductSchema, ownership=Ownership.ALL, ids="client")
    client = create_app(
        Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off"), (*RESOURCES, given)
    ).test_client()
    obeyed = {("POST", f"{prefix}/{name}") for prefix in ("", "/api/v1") for name in ("notes", "posts", "marks")}
    obeyed |= {("PUT", f"{prefix}/marks/<id>") for prefix in ("", "/api/v1")}
    for rule, method, permission in routes(client.application):  # type: ignore[arg-type]
        if method in ("GET", "HEAD", "OPTIONS") or permission == OWN or (method, rule) in obeyed:
            continue
        path = rule.replace("<id>", "x").replace("<delivery>", "y")
        for owner in ("ada", ""):
            refused = client.open(f"{path}?owner={owner}", method=method, json={"name": "x"}, headers=ADMIN)
            assert (refused.status_code, refused.json["errors"][0]["parameter"]) == (422, "owner"), (method, rule)
    assert client.get("/marks", headers=ADMIN).json == []


def test_the_owner_in_a_query_is_of_the_created_item() -> None:
    """What functions of the service create then is of the caller's first owner."""
    notes, posts = replace(NOTES), replace(POSTS)

    @notes.after("create")
    def log(note: Item, before: None, items: Items) -> None:
        items.create("posts", {"name": "by " + note["name"]})

    @notes.action("log", of="collection", scope="known")
    def log_more(items: Items) -> Item:
        return items.create("posts", {"name": "more"})

    config = Config(auth="required", admin_key=ADMIN_KEY)
    client = create_app(config, (notes, posts)).test_client()
    alice = key(client, "notes:read", "posts:read", "posts:write", owners=["alice"])
    other = key(client, "notes:write", owners=["bob", "alice"])
    assert client.post("/notes?owner=alice", json={"name": "x"}, headers=other).status_code == 200
    assert client.post("/notes/log", headers=other).status_code == 200
    assert [each["name"] for each in client.get("/notes", headers=alice).json] == ["x"]
    found = {each["name"]: each["id"] for each in client.get("/posts?sort=created_at", headers=alice).json[:2]}
    assert list(found) == ["by x", "more"]
    for id in found.values():
        assert client.delete(f"/posts/{id}", headers=alice).status_code == 403


@pytest.mark.needs("idempotency")
def test_a_key_is_not_repeated_for_another_owner(client: FlaskClient) -> None:
    both = key(client, "notes:write", owners=["a", "b"])
    sent, headers = {"name": "x"}, {**both, "Idempotency-Key": "one"}
    statuses = [client.post(f"/notes?owner={owner}", json=sent, headers=headers).status_code for owner in "aab"]
    assert statuses == [200, 200, 422] and len(client.get("/notes", headers=ADMIN).json) == 1


@pytest.mark.needs("pages")
def test_counts_need_permission_to_read(client: FlaskClient, mine: dict[str, str]) -> None:
    """The index has the number of items only for callers that may read all of them."""
    client.post("/notes", json={"name": "x"}, headers=mine)

    def counted(headers: dict[str, str]) -> set[str]:
        return {each["name"] for each in client.get("/", headers=headers).json["collections"] if "items" in each}

    assert counted({}) == set()
    page = client.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 200 and 'Authorization: Bearer $KEY"' in page.text.replace("&#34;", '"')
    assert counted(mine) == {"posts"}
    assert counted(key(client, "products:read")) == {"products"}
    assert counted(ADMIN) == {"products", "users", "notes", "posts"}


def test_responses_are_not_for_shared_caches(client: FlaskClient) -> None:
    path = client.post("/products", json={"name": "x"}, headers=ADMIN).headers["Location"]
    for each in ("/products", path):
        assert client.get(each, headers=ADMIN).headers["Cache-Control"] == "private, no-cache"
    assert client.get("/api/v1/keys", headers=ADMIN).headers["Cache-Control"] == "no-store"
    assert client.get("/api/v1/keys", headers=ADMIN).json == []


def test_who_has_no_credential_owns_nothing(tmp_path: Path) -> None:
    """Also not what was made while everything was open: it is reached by `:all`."""

    def serve(auth: str) -> FlaskClient:
        notes = replace(NOTES)
        notes.action("look", scope="public")(lambda note, items: None)
        notes.action("add", of="collection", scope="public")(lambda items: items.create("notes", {"name": "x"})["id"])
        config = Config(database_url=f"sqlite:///{tmp_path}/a.db", auth=auth, admin_key=ADMIN_KEY)
        return create_app(config, [notes]).test_client()

    path = serve("open").post("/notes", json={"name": "x"}).headers["Location"]
    client = serve("required")
    added = f"/notes/{client.post('/notes/add').json}"
    for each in (path, added):
        assert client.post(f"{each}/look").status_code == 404
        assert client.post(f"{each}/look", headers=ADMIN).status_code == 200

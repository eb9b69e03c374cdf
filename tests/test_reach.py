"""What each caller reaches: callers × operations × collections × owners × fields, compared with one table.

Also on PostgreSQL: `pytest tests/test_reach.py --store=postgresql`.
"""

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from flask.testing import FlaskClient

from restkeeper import Config, Items, ItemSchema, Lifecycle, Owner, Ownership, Reference, Resource, Status, Text
from tests import issuer
from tests.callers import ADMIN, ADMIN_KEY, bearer, key, pointers
from tests.recorder import next_of
from tests.shapes import BRANDS, PRODUCTS, OrderSchema
from tests.shapes import RESOURCES as SHAPES
from tests.shop import create_app

pytestmark = pytest.mark.needs("batch", "events", "idempotency", "keys", "ownership", "pages")

Item = dict[str, Any]
OWNERSHIPS = {"notes": Ownership.ALL, "posts": Ownership.CHANGES, "marks": Ownership.NONE, "jobs": Ownership.ALL}
SHOWING = {"jobs"}  # of them, those with a field of the owner
OWNERS = ("ada", "bob", "team-a", "")  # of the items of each collection; the last one has none
PREVIEW = {"If-Match": '"none"'}  # with it, what is allowed is a 412


REFERENCES = {name[:-1]: Reference(name, load_default=None, allow_none=True) for name in OWNERSHIPS}
LINKS = Resource("links", "link", ItemSchema.from_dict(REFERENCES, name="LinkSchema"))  # type: ignore[arg-type]


def declared(name: str, ownership: Ownership) -> Resource:
    secret = Text(0, 50, load_default="", readable_by=f"{name}:secrets")
    fields = {"name": Text(1, 50, required=True), "secret": secret} | ({"owner": Owner()} if name in SHOWING else {})
    schema = ItemSchema.from_dict(fields, name=name.title())
    resource = Resource(name, name[:-1], schema, ownership=ownership, search=("name",), ids="client")  # type: ignore[arg-type]

    @resource.action("touch", scope="write")
    def touch(item: Item, items: Items) -> None:
        """Change nothing."""

    return resource


class Known(NamedTuple):
    """A caller: its scopes, and its owners."""

    scopes: tuple[str, ...]
    owners: tuple[str, ...] = ()

    def may(self, name: str, way: str) -> bool:
        return "admin" in self.scopes or f"{name}:{way}" in self.scopes

    def sees(self, name: str, owner: str) -> bool:
        """Whether an item of this owner is there for it."""
        return OWNERSHIPS[name] is not Ownership.ALL or owner in self.owners or self.may(name, "all")

    def changes(self, name: str, owner: str) -> bool:
        """Whether it may change an item of this owner, as far as that is about owners."""
        return OWNERSHIPS[name] is Ownership.NONE or owner in self.owners or self.may(name, "all")

    def read(self, name: str, owner: str) -> int:
        """The status of a request that reads the item."""
        return 403 if not self.may(name, "read") else 200 if self.sees(name, owner) else 404

    def change(self, name: str, owner: str) -> int:
        """The status of a request that would change the item, if its condition were true."""
        if not self.may(name, "write"):
            return 403
        return 404 if not self.sees(name, owner) else 412 if self.changes(name, owner) else 403


def every(*ways: str) -> tuple[str, ...]:
    return tuple(f"{name}:{way}" for name in OWNERSHIPS for way in ways)


ALL = ("notes:all", "posts:all", "jobs:all")
CALLERS = {
    "admin": Known(("admin",)),
    "ada": Known(every("read", "write"), ("ada",)),
    "ada and her team": Known(every("read", "write"), ("ada", "team-a")),
    "a member of two teams": Known(every("read", "write"), ("team-b", "team-a")),
    "stranger": Known(every("read", "write")),
    "staff": Known((*every("read", "write"), *ALL), ("staff",)),
    "staff that only reads": Known((*every("read"), *ALL), ("ada",)),
    "staff that only writes": Known((*every("write"), *ALL)),
    "staff of posts": Known((*every("read", "write"), "posts:all"), ("ada",)),
    "all, and nothing to do": Known(ALL),
    "ada, who reads secrets": Known(every("read", "write", "secrets"), ("ada",)),
    "secrets, and nothing to do": Known(every("secrets"), ("ada",)),
}
HOLDERS = {name: known for name, known in CALLERS.items() if name != "admin"}


def import_items(client: FlaskClient, name: str, line: str) -> None:
    done = client.application.test_cli_runner().invoke(args=["import", name, "-"], input=line)
    assert done.exit_code == 0, done.output


def id_of(owner: str) -> str:
    return owner or "nobody"


class Service:
    """A service with an item of each owner in each collection; what they are called is their id."""

    def __init__(self, folder: Path) -> None:
        config = Config(database_url=f"sqlite:///{folder}/a.db", auth="required", admin_key=ADMIN_KEY, rate_limit="off")
        resources = [*(declared(*each) for each in OWNERSHIPS.items()), LINKS]
        self.client = create_app(config, resources).test_client()
        self.headers = {"admin": ADMIN} | {
            name: key(self.client, *known.scopes, "links:read", "links:write", name=name, owners=list(known.owners))
            for name, known in HOLDERS.items()
        }
        for name in OWNERSHIPS:
            for owner in OWNERS:
                self.create(name, owner)
        self.links = {owner: self.link(owner) for owner in OWNERS}

    def create(self, name: str, owner: str) -> None:
        """An item, which without an owner is that of an import."""
        id = id_of(owner)
        if owner and OWNERSHIPS[name] is not Ownership.NONE:
            sent = {"id": id, "name": f"of {id}", "secret": "of " + id}
            of = key(self.client, f"{name}:write", f"{name}:secrets", owners=[owner])
            assert self.client.post(f"/{name}", json=sent, headers=of).status_code == 200
            return
        import_items(self.client, name, f'{{"id":"{id}","name":"of {id}"}}')

    def link(self, owner: str) -> str:
        sent = {name.removesuffix("s"): id_of(owner) for name in OWNERSHIPS}
        return str(self.client.post("/links", json=sent, headers=ADMIN).json["id"])

    def send(self, caller: str, method: str, path: str, **options: Any) -> Any:
        headers = self.headers[caller] | options.pop("headers", {})
        return self.client.open(path, method=method, headers=headers, **options)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    return Service(tmp_path_factory.mktemp("service"))


@pytest.fixture(params=list(product(CALLERS, OWNERSHIPS)), ids=" ".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param  # type: ignore[no-any-return]


def test_one_item(service: Service, case: tuple[str, str]) -> None:
    """By each method, action and batch: 403 by scopes, 404 by reach, 403 by owner, and then the condition."""
    caller, name = case
    known, send = CALLERS[caller], partial(service.send, caller)
    for owner in OWNERS:
        path = f"/{name}/{id_of(owner)}"
        status = known.read(name, owner)
        for method in ("GET", "HEAD"):
            assert send(method, path).status_code == status, (method, owner)
            found = send(method, path, headers={"If-None-Match": "*"})
            assert found.status_code == (304 if status == 200 else status), (method, owner)
            assert ("ETag" in found.headers) == (status == 200), (method, owner)
        for method, more in (("PUT", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/touch")):
            sent = {"name": "changed"} if method in ("PUT", "PATCH") else None
            wanted = known.change(name, owner)
            if method == "PUT" and wanted == 404:
                wanted = 412  # as where there is no item: this condition does not let it create one
            found = send(method, path + more, json=sent, headers=PREVIEW)
            assert found.status_code == wanted, (method, owner)
            operation = {"method": method, "path": path + more, **({"body": sent} if sent else {})}
            batch = {"operations": [operation | {"if_match": PREVIEW["If-Match"]}]}
            assert send("POST", "/api/v1/batch", json=batch).status_code == wanted, (method, owner)


def test_lists(service: Service, case: tuple[str, str]) -> None:
    """Items, totals, counts, searches, filters and pages by cursor have what the caller reaches; `/` counts no more."""
    caller, name = case
    known, send = CALLERS[caller], partial(service.send, caller)
    seen = sorted(id_of(owner) for owner in OWNERS if known.sees(name, owner))
    (shown,) = [each for each in send("GET", "/").json["collections"] if each["name"] == name]
    is_whole = known.may(name, "read") and len(seen) == len(OWNERS)
    assert shown.get("items") == (len(OWNERS) if is_whole else None)
    if not known.may(name, "read"):
        for query in ("", "?count=name", "?q=of", "?id=ada"):
            assert send("GET", f"/{name}{query}").status_code == 403
        return
    for query in ("", "?sort=-name", "?q=of", "?name[like]=of", "?name[ne]=x&limit=9"):
        found = send("GET", f"/{name}{query}")
        assert sorted(each["id"] for each in found.json) == seen, query
        assert found.headers["X-Total-Count"] == str(len(seen)), query
    counted = {each["value"]: each["count"] for each in send("GET", f"/{name}?count=name").json}
    assert counted == {f"of {id}": 1 for id in seen}
    walked, path = [], f"/{name}?sort=-id&limit=1"
    while path:
        page = send("GET", path)
        walked += [each["id"] for each in page.json]
        path = next_of(page)
    assert walked == seen[::-1]
    for id in map(id_of, OWNERS):
        assert [each["id"] for each in send("GET", f"/{name}?id={id}").json] == [id] * (id in seen)


def test_etags_of_lists(service: Service) -> None:
    """They are of what a caller reaches: that of one caller is none for who reaches other items, nor of counts."""
    for path in ("/notes", "/notes?count=name", "/notes?q=of"):
        tag = {"If-None-Match": service.send("ada", "GET", path).headers["ETag"]}
        for caller, status in (("ada", 304), ("stranger", 200), ("staff", 200), ("admin", 200)):
            assert service.send(caller, "GET", path, headers=tag).status_code == status, (caller, path)


def test_events(service: Service, case: tuple[str, str]) -> None:
    """Those of the items that it reaches."""
    caller, name = case
    known = CALLERS[caller]
    found = service.send(caller, "GET", f"/api/v1/events?collection={name}&limit=100")
    if not known.may(name, "read"):
        assert found.status_code == 403
        return
    assert [each["data"]["id"] for each in found.json] == [id_of(each) for each in OWNERS if known.sees(name, each)]


def test_references(service: Service, case: tuple[str, str]) -> None:
    """An item is embedded, has a nested list, and can be referred to, where the caller reads it."""
    caller, name = case
    known, field = CALLERS[caller], name.removesuffix("s")
    for owner, link in service.links.items():
        id, status = id_of(owner), known.read(name, owner)
        embedded = service.send(caller, "GET", f"/links/{link}?embed={field}").json[field]
        assert (embedded["id"] if status == 200 else embedded) == id
        nested = service.send(caller, "GET", f"/{name}/{id}/links")
        assert nested.status_code == status
        if status == 200:
            assert [each["id"] for each in nested.json] == [link]
        referring = service.send(caller, "POST", "/links", json={field: id}, headers=PREVIEW)
        assert referring.status_code == (403 if status == 403 else 412), referring.text
        ids = (id, "none")  # so that none is stored
        operations = [{"method": "POST", "path": "/links", "body": {field: each}} for each in ids]
        faults = service.send(caller, "POST", "/api/v1/batch", json={"operations": operations})
        at = "#/operations/1/body" if status in (200, 403) and faults.status_code == 422 else "#/operations/0/body"
        assert faults.status_code == (403 if status == 403 else 422), faults.text
        if status != 403:
            assert pointers(faults)[0] == f"{at}/{field}"


def test_the_private_field(service: Service, case: tuple[str, str]) -> None:
    """It is in responses, in the names that queries know, and to be changed, for who has its scope alone."""
    caller, name = case
    known, send = CALLERS[caller], partial(service.send, caller)
    knows = known.may(name, "secrets")
    seen = [owner for owner in OWNERS if known.sees(name, owner)] if known.may(name, "read") else []
    for owner in seen:
        embedded = send("GET", f"/links/{service.links[owner]}?embed={name[:-1]}").json[name[:-1]]
        for shown in (send("GET", f"/{name}/{id_of(owner)}").json, embedded):
            assert shown["name"] and ("secret" in shown) == knows, owner
    if known.may(name, "read"):
        events = send("GET", f"/api/v1/events?collection={name}&limit=100").json
        listed = [*send("GET", f"/{name}").json, *(each["data"] for each in events)]
        assert len(listed) == 2 * len(seen) and {"secret" in each for each in listed} <= {knows}
        for query in ("secret=x", "sort=-secret", "count=secret", "fields=secret", "or=(secret=x,id=y)"):
            assert send("GET", f"/{name}?{query}").status_code == (200 if knows else 400), query
    failing = {"method": "POST", "path": f"/{name}", "body": {"name": ""}}  # so that nothing is changed
    sent = {"name": "x", "secret": "of ada"}  # one item has this value
    requests = [("POST", f"/{name}", {"id": "new", **sent}, "")]
    requests += [(method, f"/{name}/{id_of(owner)}", sent, owner) for method in ("PUT", "PATCH") for owner in OWNERS]
    for method, path, body, owner in requests:
        operations = [{"method": method, "path": path, "body": body}, failing]
        found = send("POST", "/api/v1/batch", json={"operations": operations})
        wanted = {(422, 1) if knows and (method == "POST" or known.changes(name, owner)) else (403, 0)}
        if not known.may(name, "write"):
            wanted = {(403, 0)}
        elif method != "POST" and not known.sees(name, owner):  # as for no item
            wanted = {(404, 0)} if method == "PATCH" else {(409, 0), (422, 1)} if knows else {(403, 0)}
        assert (found.status_code, found.json.get("operation")) in wanted, (method, path, found.text)


def test_a_new_item_is_of_the_first_owner(tmp_path: Path) -> None:
    """Or of another one that the caller names; a rotated key has the same owners."""
    service = Service(tmp_path)
    send = partial(service.send, "a member of two teams")
    for query, id in (("", "first"), ("?owner=team-a", "second")):
        assert send("POST", f"/notes{query}", json={"id": id, "name": id}).status_code == 200
    shown = [each["id"] for each in service.send("ada and her team", "GET", "/notes?sort=id").json]
    assert shown == ["ada", "second", "team-a"]
    assert [each["id"] for each in send("GET", "/notes?sort=id").json] == ["first", "second", "team-a"]
    (one,) = service.client.get("/api/v1/keys?name=a+member+of+two+teams", headers=ADMIN).json
    rotated = service.client.post(f"/api/v1/keys/{one['id']}/rotate", headers=ADMIN).json
    assert rotated["owners"] == ["team-b", "team-a"]
    service.headers["a member of two teams"] = {"X-API-Key": rotated["secret"]}
    assert [each["id"] for each in send("GET", "/notes?sort=id").json] == ["first", "second", "team-a"]
    for wrong in ([""], ["x" * 201], [f"t{n}" for n in range(21)], "ada", [None]):
        sent = {"name": "x", "scopes": ["notes:read"], "owners": wrong}
        assert service.client.post("/api/v1/keys", json=sent, headers=ADMIN).status_code == 422, wrong


@pytest.mark.needs("jwt")
def test_the_owners_of_a_token(tmp_path: Path) -> None:
    """A claim names them; without one it is the name of the caller, which no claim can be, and not the subject."""
    config = Config(auth="required", admin_key=ADMIN_KEY, jwt_owner="teams", **issuer.trusted(tmp_path))
    client = create_app(config, [declared("notes", Ownership.ALL)], clock=issuer.SetClock(issuer.START)).test_client()

    def status(id: str, **claims: Any) -> int:
        token = issuer.token(scope="notes:read notes:write", **claims)
        return client.get(f"/notes/{id}", headers=bearer(token)).status_code

    for id, of in {"a": {"teams": "team-a"}, "b": {"teams": "team-b"}, "own": {"sub": "ada"}}.items():
        token = bearer(issuer.token(scope="notes:write", **of))
        assert client.post("/notes", json={"id": id, "name": "x"}, headers=token).status_code == 200
    for claims, statuses in (
        ({"teams": ["team-a", "team-b"]}, [200, 200, 404]),
        ({"teams": "team-b"}, [404, 200, 404]),
        ({}, [404, 404, 200]),
        ({"sub": "team-a"}, [404, 404, 404]),
        ({"teams": ["jwt:ada"]}, [401, 401, 401]),
    ):
        assert [status(id, **claims) for id in ("a", "b", "own")] == statuses, claims


@pytest.mark.parametrize("name", ["notes", "posts"])
def test_staff_change_what_others_own(tmp_path: Path, name: str) -> None:
    """It stays theirs; the history of the item is theirs, too."""
    service = Service(tmp_path)
    assert service.send("admin", "DELETE", f"/links/{service.links['ada']}").status_code == 200
    for method, sent in (("PATCH", {"name": "one"}), ("PUT", {"name": "two"}), ("DELETE", None)):
        assert service.send("staff", method, f"/{name}/ada", json=sent).status_code == 200
    query = f"/api/v1/events?collection={name}&item=ada"
    assert [each["data"]["name"] for each in service.send("ada", "GET", query).json] == ["of ada", "one", "two", "two"]


def test_the_scope_is_reserved(tmp_path: Path) -> None:
    """No action, field or state has it; keys have that of a collection whose items have owners."""
    message = "'notes:all' is reserved for reaching the items of all owners"
    with pytest.raises(ValueError, match=message):
        Resource("notes", "note", ItemSchema).action("see", scope="notes:all")(lambda note, items: None)
    guarded = (Text(load_default="", writable_by="notes:all"), Status(Lifecycle("a", {"a": ()}, {"a": "notes:all"})))
    for field in guarded:
        with pytest.raises(ValueError, match=f"notes.x: {message}"):
            Resource("notes", "note", ItemSchema.from_dict({"x": field}))  # type: ignore[arg-type]
    made = Service(tmp_path).client.post("/api/v1/keys", json={"name": "x", "scopes": ["marks:all"]}, headers=ADMIN)
    assert made.status_code == 422


@pytest.mark.needs("openapi")
def test_a_state_of_an_action_is_set_by_nothing_else(tmp_path: Path) -> None:
    """Other writes: see test_crossings.py. The action, and what is not changed, are free, and so is an import."""
    config = Config(auth="required", admin_key=ADMIN_KEY, database_url=f"sqlite:///{tmp_path}/store.db")
    client = create_app(config, SHAPES).test_client()
    path, sent = "/orders/" + client.post("/orders", json={}, headers=ADMIN).json["id"], {"status": "paid"}
    refused = client.patch(path, json=sent, headers=ADMIN).json
    assert (refused["code"], refused["action"], refused["to"]) == ("illegal-transition", "pay", "paid")
    assert client.post(f"{path}/pay", json={"method": "card"}, headers=ADMIN).json["status"] == "paid"
    for method, body in (("PATCH", {"remark": "x"}), ("PATCH", sent), ("PUT", sent)):
        assert client.open(path, method=method, json=body, headers=ADMIN).json["status"] == "paid"
    import_items(client, "orders", '{"id":"b","status":"paid"}')
    assert client.get("/orders/b", headers=ADMIN).json["status"] == "paid"
    shown = client.get("/openapi.json").json["components"]["schemas"]["OrderInput"]["properties"]["status"]
    assert shown["x-by-actions"] == {"paid": "pay"}


def test_the_action_of_a_state_is_declared() -> None:
    with pytest.raises(ValueError, match="orders.status: by_actions: 'paid' is set by 'pay', and there is no such act"):
        create_app(Config(), [PRODUCTS, BRANDS, Resource("orders", "order", OrderSchema)])
    states = Lifecycle("a", {"a": ()}, by_actions={"b": "c"})
    with pytest.raises(ValueError, match="Lifecycle: b: no such state"):
        Resource("x", "y", ItemSchema.from_dict({"s": Status(states)}))  # type: ignore[arg-type]

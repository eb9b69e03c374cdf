"""References between collections: what they refer to exists, and what follows when it is deleted."""

import json
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from marshmallow import fields

from restkeeper import (
    Config,
    Conflict,
    Items,
    ItemSchema,
    Ownership,
    Reference,
    Resource,
    ValidationFailed,
)
from restkeeper.resources import functions, references
from restkeeper.storage.base import Transaction
from restkeeper.storage.interface import Index
from tests import stores
from tests.callers import ADMIN, ADMIN_KEY, events, key
from tests.live import Gunicorn
from tests.shop import create_app as create_shop
from tests.shop.references import LISTS, OWNERS, THINGS, LineSchema, OwnerSchema, ThingSchema, create_app

NULL = "a.to: on_delete='null' needs allow_none=True, and no field around it"

pytestmark = pytest.mark.needs("events")


@pytest.fixture
def client() -> FlaskClient:
    return create_app(Config()).test_client()


def new(client: FlaskClient, path: str, **fields: str | None) -> str:
    response = client.post(path, json=fields)
    assert response.status_code == 200, response.json
    return str(response.json["id"])


@pytest.mark.needs("references")
def test_a_deletion_follows_references(client: FlaskClient) -> None:
    """Parts go with their whole, through all levels, and a field is set to null; each with its event."""
    owner, seer = new(client, "/owners"), new(client, "/owners")
    whole = new(client, "/things", owner=owner, seen_by=seer)
    part = new(client, "/things", owner=owner, part_of=whole)
    new(client, "/things", owner=owner, part_of=part)
    client.patch(f"/things/{whole}", json={"part_of": part})  # a circle
    count = len(events(client))
    assert client.delete(f"/owners/{seer}").status_code == 200
    seen = client.get(f"/things/{whole}").json
    assert (seen["seen_by"], seen["version"]) == (None, 3)
    assert client.delete(f"/things/{part}").status_code == 200
    assert client.get("/things").json == []
    expected = {"owner.deleted": 1, "thing.updated": 1, "thing.deleted": 3}
    assert Counter(events(client)[count:]) == expected


def test_a_long_chain_is_followed(client: FlaskClient) -> None:
    owner = new(client, "/owners")
    first = last = new(client, "/things", owner=owner)
    for _ in range(400):
        last = new(client, "/things", owner=owner, part_of=last)
    assert client.delete(f"/things/{first}").status_code == 200
    assert client.get("/things").json == []


@pytest.mark.needs("references")
def test_references_inside_lists(client: FlaskClient) -> None:
    owner, other = new(client, "/owners"), new(client, "/owners")
    things = [new(client, "/things", owner=owner) for _ in range(3)]
    lines = [{"thing": thing} for thing in things[:2]]
    listed = client.post("/lists", json={"lines": lines, "owners": [other]}).json
    wrong = client.post("/lists", json={"lines": [*lines, {"thing": "none"}, {"thing": "other"}]})
    assert (wrong.status_code, wrong.json["errors"][0]["pointer"]) == (422, "#/lines/2/thing")
    assert client.delete(f"/things/{things[0]}").json["detail"] == "lines.thing of lists refers to it"
    assert client.delete(f"/things/{things[2]}").status_code == 200
    assert client.delete(f"/owners/{other}").status_code == 200
    assert client.get(f"/lists/{listed['id']}").status_code == 404
    assert client.delete(f"/things/{things[0]}").status_code == 200
    assert {Index("lines.thing"), Index("owners")} <= set(LISTS.collection.indexes)


def test_functions_before_a_write_see_what_follows_a_deletion() -> None:
    """They can refuse it, and then nothing of it is done."""
    things = Resource("things", "thing", ThingSchema)

    @things.before("update", "delete")
    def refuse(thing: object, before: dict[str, object]) -> None:
        if before["part_of"]:
            raise Conflict("a part stays")

    client = create_shop(Config(), [OWNERS, things]).test_client()
    owner, seer = new(client, "/owners"), new(client, "/owners")
    whole = new(client, "/things", owner=owner)
    new(client, "/things", owner=owner, part_of=whole, seen_by=seer)
    count = len(events(client))
    for path in (f"/owners/{seer}", f"/things/{whole}"):
        assert (client.delete(path).status_code, client.get(path).status_code) == (409, 200)
    assert len(events(client)) == count


def test_what_follows_a_deletion_is_as_functions_have_left_it() -> None:
    """Each item when its turn comes: one is changed before, and one is gone, by the function after another one."""
    things = Resource("things", "thing", ThingSchema)

    @things.after("delete")
    def go_on(thing: None, before: dict[str, Any], items: Items) -> None:
        if before["id"] == parts[0]:
            items.change("things", parts[1], lambda part: {**part, "seen_by": seer})
            items.change("things", parts[2], lambda part: {**part, "part_of": None})
            items.delete("things", parts[3])

    client = create_shop(Config(), [OWNERS, things]).test_client()
    owner, seer = new(client, "/owners"), new(client, "/owners")
    whole = new(client, "/things", owner=owner)
    parts = sorted(new(client, "/things", owner=owner, part_of=whole) for _ in range(5))
    assert client.delete(f"/things/{whole}").status_code == 200
    assert [each["id"] for each in client.get("/things").json] == [parts[2]]
    recorded = client.get("/api/v1/events").json
    gone = [each["data"] for each in recorded if each["type"] == "thing.deleted"]
    assert [each["id"] for each in gone] == [whole, parts[0], parts[3], parts[1], parts[4]]
    assert (gone[3]["seen_by"], gone[3]["version"]) == (seer, 2)


@pytest.mark.needs("batch")
def test_what_follows_a_deletion_is_as_its_batch_has_left_it() -> None:
    """Also after a function has changed it before, in the same transaction."""
    owners = Resource("owners", "owner", OwnerSchema)

    @owners.after("update")
    def see(owner: dict[str, Any], before: dict[str, Any], items: Items) -> None:
        items.change("things", thing, lambda thing: {**thing, "owner": other})

    client = create_shop(Config(), [owners, THINGS]).test_client()
    seer, other, last = (new(client, "/owners") for _ in range(3))
    thing = new(client, "/things", owner=seer, seen_by=seer)
    sent = [
        {"method": "PATCH", "path": f"/owners/{other}", "body": {"name": "x"}},
        {"method": "PATCH", "path": f"/things/{thing}", "body": {"owner": last}},
        {"method": "DELETE", "path": f"/owners/{seer}"},
    ]
    response = client.post("/api/v1/batch", json={"operations": sent})
    assert response.status_code == 200, response.json
    found = client.get(f"/things/{thing}").json
    assert (found["owner"], found["seen_by"], found["version"]) == (last, None, 4)


def test_what_a_function_does_wrong_after_a_deletion() -> None:
    """It is a fault of the service, also in an item that the caller does not name; what it raises is a conflict."""
    things = Resource("things", "thing", ThingSchema)

    @things.before("update")
    def leave(thing: dict[str, Any], before: object) -> None:
        if not thing["seen_by"] and thing["part_of"]:
            raise ValidationFailed("a part is seen", errors=[{"pointer": "#/seen_by", "detail": "is missing"}])
        thing["owner"] = ""

    client = create_shop(Config(), [OWNERS, things]).test_client()
    client.application.testing = False
    owner, seer, other = new(client, "/owners"), new(client, "/owners"), new(client, "/owners")
    whole = new(client, "/things", owner=owner, seen_by=seer)
    new(client, "/things", owner=owner, part_of=whole, seen_by=other)
    for seen_by, status, detail in ((seer, 500, None), (other, 409, "things: a part is seen")):
        refused = client.delete(f"/owners/{seen_by}")
        assert (refused.status_code, refused.json.get("detail")) == (status, detail)
        assert client.get(f"/owners/{seen_by}").status_code == 200


def test_a_deletion_that_follows_too_many(client: FlaskClient) -> None:
    owner = new(client, "/owners")
    whole = new(client, "/things", owner=owner)
    for level in (whole, new(client, "/things", owner=owner, part_of=whole)):
        for _ in range(5):
            assert client.post("/things", json=[{"owner": owner, "part_of": level}] * 100).status_code == 200
    refused = client.delete(f"/things/{whole}")
    assert (refused.status_code, refused.json["title"]) == (409, "Conflict with the present state")
    assert client.get("/things?limit=1").headers["X-Total-Count"] == "1002"


@pytest.mark.needs("references")
def test_a_request_adds_a_limited_number_of_references(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """One item, an array, a batch, and a change, of which only the new ones count; else nothing is done."""
    monkeypatch.setattr(functions, "MOST_REFERENCES", 4)
    owners = [each["id"] for each in client.post("/owners", json=[{}] * 6).json]
    batch = [{"method": "POST", "path": "/lists", "body": {"lines": [], "owners": owners[:3]}}] * 2
    for path, body in (
        ("/lists", {"lines": [], "owners": owners[:5]}),
        ("/lists", [{"lines": [], "owners": owners[:3]}] * 2),
        ("/api/v1/batch", {"operations": batch}),
    ):
        refused = client.post(path, json=body)
        assert refused.status_code == 409 and "more than 4 references" in refused.json["detail"]
    assert client.get("/lists").json == []
    path = f"/lists/{new(client, '/lists', lines=[], owners=owners[:4])}"
    assert client.patch(path, json={"owners": owners}).status_code == 200
    assert client.patch(path, json={"owners": []}).status_code == 200
    assert client.patch(path, json={"owners": owners}).status_code == 409


@pytest.mark.needs("references")
def test_a_deletion_is_refused_before_the_first_write(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """If too much would go with the item, or something further down keeps it: nobody waits while that is undone."""
    monkeypatch.setattr(functions, "MOST_CHANGES", 20)
    monkeypatch.setattr(references, "MOST_CHANGES", 20)
    written: list[str] = []
    delete = Transaction.delete
    monkeypatch.setattr(Transaction, "delete", lambda self, *item: written.append(item[1]) or delete(self, *item))
    owner = new(client, "/owners")
    crowded, kept, free = (new(client, "/things", owner=owner) for _ in range(3))
    for whole in (crowded, kept, free):
        part = new(client, "/things", owner=owner, part_of=whole)
        parts = client.post("/things", json=[{"owner": owner, "part_of": part}] * 10).json
    for each in parts[:2]:
        client.post("/things", json=[{"owner": owner, "part_of": each["id"]}] * 4)
    client.post("/things", json=[{"owner": owner, "part_of": crowded}] * 10)
    last = client.get(f"/things?part_of={kept}").json[0]["id"]
    listed = client.post("/lists", json={"lines": [{"thing": last}]}).json["id"]
    for whole, detail in ((crowded, "more than 20 items"), (kept, "lines.thing of lists refers to it")):
        refused = client.delete(f"/things/{whole}")
        assert refused.status_code == 409 and refused.json["detail"].startswith(detail)
    assert written == []
    assert client.delete(f"/things/{free}").status_code == 200
    assert len(written) == 1 + 1 + 10 + 8
    client.delete(f"/lists/{listed}")
    assert client.delete(f"/things/{kept}").status_code == 200


@pytest.mark.parametrize("field", ["part_of", "seen_by"])
def test_a_deletion_that_follows_large_items(client: FlaskClient, monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """Their bytes are limited, too, but for one alone."""
    monkeypatch.setattr(functions, "MOST_BYTES", 200)
    owner, to = new(client, "/owners"), "owners" if field == "seen_by" else "things"
    for count, status in ((1, 200), (5, 409)):
        referred = new(client, f"/{to}", **({} if to == "owners" else {"owner": owner}))
        things = [new(client, "/things", **{"owner": owner, field: referred}) for _ in range(count)]
        response = client.delete(f"/{to}/{referred}")
        assert response.status_code == status
        stays = [client.get(f"/things/{thing}").status_code for thing in things]
        assert stays == [200 if status == 409 or to == "owners" else 404] * count


@pytest.mark.needs("batch")
def test_nothing_refers_to_nothing(tmp_path: Path) -> None:
    """Two processes create, move and delete at once, alone and in batches, of which there is all or nothing."""
    with Gunicorn(tmp_path, app="tests.shop.references:create_app()", RATE_LIMIT="off") as server:
        owners = [server.post("/owners", {}).json()["id"] for _ in range(6)]
        things: list[str] = []
        statuses: Counter[tuple[str, int]] = Counter()
        batches: dict[str, int] = {}
        lock = threading.Lock()

        def work(seed: int) -> None:
            chance = random.Random(seed)  # noqa: S311
            for number in range(60):
                with lock:
                    owner, thing = chance.choice(owners), chance.choice([*things, "none"])
                name = chance.choice(["delete owner", "delete thing", "move", "create", "create", "batch"])
                sent = {"owner": owner, "part_of": None if thing == "none" else thing}
                match name:
                    case "batch":
                        mark, body = f"{seed}-{number}", {"owner": "$new", "part_of": thing, "seen_by": owner}
                        operations: list[dict[str, Any]] = [
                            {"method": "POST", "path": "/owners", "body": {"name": mark}, "name": "new"},
                            {"method": "POST", "path": "/things", "body": body, "name": "thing"},
                            {"method": "POST", "path": "/things", "body": {"owner": owner, "part_of": "$thing"}},
                            {"method": "DELETE", "path": f"/things/{chance.choice([*things[-9:], '$thing'])}"},
                        ]
                        response = server.post("/api/v1/batch", {"operations": operations})
                        batches[mark] = response.status
                    case "delete owner":
                        response = server.request("DELETE", f"/owners/{owner}")
                        if response.status == 200:
                            with lock:
                                owners[owners.index(owner)] = server.post("/owners", {}).json()["id"]
                    case "delete thing":
                        response = server.request("DELETE", f"/things/{thing}")
                    case "move":
                        response = server.request("PATCH", f"/things/{thing}", sent)
                    case _:
                        response = server.post("/things", {**sent, "seen_by": owner})
                        if response.status == 200:
                            with lock:
                                things.append(response.json()["id"])
                with lock:
                    statuses[name, response.status] += 1

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert {status for _, status in statuses} <= {200, 404, 409, 422}, statuses
        assert {("batch", 200), ("create", 200), ("delete owner", 200), ("delete owner", 409)} <= statuses.keys()
        rows = stores.execute(
            f"sqlite:///{tmp_path}/restkeeper.db", "SELECT collection, id, CAST(body AS TEXT) FROM items"
        )
    marks = {json.loads(body)["name"] for collection, _, body in rows if collection == "owners"}
    assert marks - {""} == {mark for mark, status in batches.items() if status == 200}
    known = {(collection, id) for collection, id, _ in rows}
    for collection, _, body in rows:
        if collection == "things":
            item = json.loads(body)
            for to, id in (("owners", item["owner"]), ("owners", item["seen_by"]), ("things", item["part_of"])):
                assert id is None or (to, id) in known


@pytest.mark.needs("openapi", "references")
def test_references_are_indexed_and_documented(client: FlaskClient) -> None:
    assert {Index("owner"), Index("part_of"), Index("seen_by")} <= set(THINGS.collection.indexes)
    properties = client.get("/openapi.json").json["components"]["schemas"]["ThingInput"]["properties"]
    assert properties["owner"]["x-references"] == "owners"


def test_wrong_declarations() -> None:
    with pytest.raises(ValueError) as error:
        Reference("owners", on_delete="delete")
    assert str(error.value).endswith("must be 'restrict', 'cascade' or 'null'")
    for field, words in (
        (Reference("nobody", required=True), "a.to: Reference('nobody'): must be one of owners, a"),
        (Reference("owners", on_delete="null", required=True), NULL),
        (fields.List(Reference("owners", on_delete="null", allow_none=True), required=True), NULL),
    ):
        schema = ItemSchema.from_dict({"to": field}, name="ASchema")
        with pytest.raises(ValueError) as error:
            create_shop(Config(), [OWNERS, Resource("a", "a", schema)])  # type: ignore[arg-type]
        assert str(error.value) == words
    for field in (
        fields.Dict(values=Reference("owners"), required=True),
        fields.Dict(values=fields.Nested(LineSchema), required=True),
        fields.Tuple((Reference("owners"),), required=True),
        fields.List(fields.List(Reference("owners")), required=True),
    ):
        with pytest.raises(ValueError, match="can be inside Nested and List"):
            Resource("a", "a", ItemSchema.from_dict({"x": field}, name="ASchema"))  # type: ignore[arg-type]


@pytest.mark.needs("keys", "ownership", "dialects")
def test_a_request_chooses_what_goes_with_an_item() -> None:
    """Where the reference would be null; the caller may delete these items, too."""
    from_thing = Reference("things", on_delete="null", allow_none=True, load_default=None)
    notes = [
        Resource(name, name[:-1], ItemSchema.from_dict({"thing": from_thing}), ownership=ownership)  # type: ignore[arg-type]
        for name, ownership in (("notes", Ownership.NONE), ("marks", Ownership.CHANGES))
    ]
    config = Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off")
    client = create_shop(config, [Resource("things", "thing", ItemSchema), *notes]).test_client()
    one, other, reader = (
        key(client, *scopes, "things:read", "things:write", "marks:write")
        for scopes in (["notes:write"], ["notes:write"], ["notes:read"])
    )

    def deleted(chosen: str, caller: dict[str, str]) -> tuple[int, list[int]]:
        thing = client.post("/things", json={}, headers=ADMIN).json["id"]
        for name in ("notes", "marks"):
            assert client.post(f"/{name}", json={"thing": thing}, headers=one).status_code == 200
        status = client.delete(f"/things/{thing}{chosen}", headers=caller).status_code
        left = [len(client.get(f"/{name}?thing[is]=null", headers=ADMIN).json) for name in ("notes", "marks")]
        return status, left

    assert deleted("", reader) == (200, [1, 1])
    assert deleted("?_dependent=notes", reader) == (403, [1, 1])
    alone = client.post("/things", json={}, headers=ADMIN).json["id"]  # which also a refusal must not tell
    assert client.delete(f"/things/{alone}?_dependent=notes", headers=reader).status_code == 403
    assert deleted("?_dependent=notes", other) == (200, [1, 2])
    assert deleted("?_dependent=marks", other) == (403, [1, 2])
    assert deleted("?_dependent=marks&_dependent=notes", one) == (200, [1, 2])


@pytest.mark.needs("batch")
def test_a_batch_creates_at_the_path_of_an_item() -> None:
    """What refers to it, by the name of its operation; what is refused: see test_crossings.py."""
    client = create_app(Config()).test_client()
    operations = [
        {"method": "POST", "path": "/owners", "body": {"name": "ada"}, "name": "ada"},
        {"method": "POST", "path": "/owners/$ada/things.owner", "body": {}},
    ]
    owner, thing = (
        each["body"] for each in client.post("/api/v1/batch", json={"operations": operations}).json["results"]
    )
    assert client.get(f"/owners/{owner['id']}/things.owner").json == [thing] and thing["owner"] == owner["id"]

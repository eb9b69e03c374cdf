"""Old and new programs on one store: no item loses a field, and none is returned in a form that it does not have."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.resources.evolution import Add, Rename, Step
from restkeeper.resources.representation import ItemLimits
from restkeeper.resources.resource import Resource
from restkeeper.schemas.fields import JsonObject, ListOf, Text, Whole
from restkeeper.storage.interface import EventFilter, Index, Record
from tests.shop import create_app
from tests.test_stored import resource

TITLE = Text(1, 50, required=True)
OLD = resource({"title": TITLE, "tags": ListOf(Text(), load_default=list)})
_OPTIONAL = {
    "title": TITLE,
    "weight": Whole(load_default=7),
    "tags": ListOf(Text(), load_default=list),
    "more": JsonObject(load_default=dict),
}
NEWER = {
    "with new optional fields": resource(_OPTIONAL),
    "of an additive revision": resource(_OPTIONAL, upgrades={2: [Add("weight"), Add("more")]}),
}
RENAMED = resource({"name": TITLE, "tags": ListOf(Text(), load_default=list)}, upgrades={2: [Rename("title", "name")]})


@pytest.fixture
def serve(tmp_path: Path) -> Callable[[Resource], FlaskClient]:
    """Starts a service with a declaration of the collection; all have the same store."""
    config = Config(database_url=f"sqlite:///{tmp_path}/store.db", idempotency="optional")
    return lambda declared: create_app(config, [declared]).test_client()


def stored(client: FlaskClient, where: str) -> Record:
    service = client.application.extensions["restkeeper"]
    record: Record = service.store.read("notes", where.rpartition("/")[2])
    return record


@pytest.fixture(params=NEWER.values(), ids=NEWER)
def both(request: pytest.FixtureRequest, serve: Callable[[Resource], FlaskClient]) -> Iterator[tuple[Any, ...]]:
    """Clients of the old and of the new program, which started later, and the declaration of the new one."""
    old = serve(OLD)
    yield old, serve(request.param), request.param


def test_old_and_new_programs_change_an_item_in_turn(both: tuple[FlaskClient, FlaskClient, Resource]) -> None:
    old, new, declared = both
    where = old.post("/notes", json={"title": "a"}).headers["Location"]
    assert new.get(where).json["weight"] == 7
    expected = new.patch(where, json={"weight": 9, "more": {"x": 1.50}}).json
    for number, client in enumerate([old, new, old, old, new]):
        assert old.get(where).json == new.get(where).json == expected
        assert old.get("/notes").json == new.get("/notes").json == [expected]
        changed = client.patch(where, json={"title": f"{number}"})
        assert changed.status_code == 200
        expected |= {"title": f"{number}", "version": number + 3, "updated_at": changed.json["updated_at"]}
        assert changed.json == expected and list(changed.json) == list(expected)
        assert stored(old, where).fingerprint == declared.fingerprint
        assert changed.headers["ETag"] == new.get(where).headers["ETag"] == old.get(where).headers["ETag"]


def test_a_client_sends_an_item_back_to_an_old_program(both: tuple[FlaskClient, FlaskClient, Resource]) -> None:
    """PUT of what it received: new fields are accepted as they are stored, and refused with other values."""
    old, new, declared = both
    made = new.post("/notes", json={"title": "a", "weight": 3, "more": {"y": [1, None]}})
    where, item = made.headers["Location"], made.json
    assert old.put(where, json=item).json == item
    changed = old.put(where, json=item | {"title": "b"}).json
    assert changed == item | {"title": "b", "version": 2, "updated_at": changed["updated_at"]}
    assert old.put(where, json={"title": "c"}).json["weight"] == 3  # whoever does not know a field does not delete it
    refused = old.put(where, json=old.get(where).json | {"weight": 4})
    assert (refused.status_code, refused.json["errors"][0]["pointer"]) == (422, "#/weight")
    assert old.patch(where, json={"weight": None}).status_code == 422
    assert stored(new, where).fingerprint == declared.fingerprint


@pytest.mark.needs("events")
def test_events_have_the_form_of_their_items(both: tuple[FlaskClient, FlaskClient, Resource]) -> None:
    """The event of a change by the old program has the new fields, and the fingerprint of their schema."""
    old, new, declared = both
    where = new.post("/notes", json={"title": "a", "weight": 3}).headers["Location"]
    old.patch(where, json={"title": "b"})
    old.delete(where)
    events = old.application.extensions["restkeeper"].store.events("", EventFilter(("notes",)), 10).events
    assert [each.fingerprint for each in events] == [declared.fingerprint] * 3
    data = [orjson.loads(each.data) for each in events]
    assert [(each["title"], each["weight"]) for each in data] == [("a", 3), ("b", 3), ("b", 3)]


def test_migrate_leaves_newer_items(both: tuple[FlaskClient, FlaskClient, Resource]) -> None:
    """`migrate` of the old program changes nothing; that of the new one converts all."""
    old, new, declared = both
    first = old.post("/notes", json={"title": "a"}).headers["Location"]
    second = new.post("/notes", json={"title": "b", "weight": 1}).headers["Location"]
    before = [stored(old, first), stored(old, second)]
    migrate = lambda client: client.application.test_cli_runner().invoke(args=["migrate"]).stdout.splitlines()[0]  # noqa: E731
    assert migrate(old) == "notes: 0 of 2 brought into the present form"
    assert [stored(old, first), stored(old, second)] == before
    assert migrate(new) == "notes: 1 of 2 brought into the present form"
    assert stored(old, first).fingerprint == stored(old, second).fingerprint == declared.fingerprint
    assert stored(old, second) == before[1]
    assert old.get(first).json["weight"] == 7


def test_an_old_program_can_start_again(
    both: tuple[FlaskClient, FlaskClient, Resource], serve: Callable[[Resource], FlaskClient]
) -> None:
    """After a return to the version before, items of the new one keep their fields; the new one can follow again."""
    old, new, declared = both
    where = new.post("/notes", json={"title": "a", "weight": 3}).headers["Location"]
    again = serve(OLD)
    assert again.patch(where, json={"title": "b"}).json["weight"] == 3
    assert serve(declared).get(where).json["weight"] == 3
    schemas = old.application.extensions["restkeeper"].store.schemas("notes")
    assert [each.fingerprint for each in schemas] == [OLD.fingerprint, declared.fingerprint]


def test_what_an_old_program_preserves_counts(both: tuple[FlaskClient, FlaskClient, Resource]) -> None:
    """The limit of an item's size includes the fields that the program does not know."""
    old, new, _ = both
    where = new.post("/notes", json={"title": "a", "more": {"x": "y" * 100}}).headers["Location"]
    known = old.application.extensions["restkeeper"].representations["notes"]
    record, now = stored(old, where), "2026-01-01T00:00:00.000000Z"
    size = len(known.merge(record, {"title": "b"}, now=now).body)
    assert known.merge(record, {"title": "b"}, now=now, limits=ItemLimits(size, 100)).version == 2
    with pytest.raises(Exception, match=f"can have {size - 1}"):
        known.merge(record, {"title": "b"}, now=now, limits=ItemLimits(size - 1, 100))


def test_an_item_that_an_old_program_cannot_work_with(serve: Callable[[Resource], FlaskClient]) -> None:
    """It is neither read nor written there, and a 503 names the reason; all others are as before."""
    old, new = serve(OLD), serve(RENAMED)
    mine = old.post("/notes", json={"title": "a"}).headers["Location"]
    where = new.post("/notes", json={"name": "b"}).headers["Location"]
    before = stored(new, where)
    requests = [
        old.get(where),
        old.get(f"{where}?fields=id"),
        old.get("/notes"),
        old.put(where, json={"title": "x"}),
        old.patch(where, json={"title": "x"}),
        old.delete(where),
        old.delete(where, headers={"If-Match": "*"}),
    ]
    for response in requests:
        assert response.status_code == 503 and int(response.headers["Retry-After"]) > 0
        assert "a newer program stored items (revision 2; this one has revision 1)" in response.json["detail"]
    assert stored(old, where) == before
    assert old.patch(mine, json={"title": "c"}).json["title"] == "c"
    assert new.get(mine).json["name"] == "c"
    assert old.application.test_cli_runner().invoke(args=["migrate"]).exit_code == 0
    assert stored(old, where) == before and stored(old, mine).fingerprint == OLD.fingerprint
    assert [each["name"] for each in new.get("/notes").json] == ["c", "b"]


UNIQUE = Resource("notes", "note", OLD.schema, indexes=(Index("title", unique=True),), search=("title",))


def test_an_old_program_refuses_what_it_cannot_know(serve: Callable[[Resource], FlaskClient]) -> None:
    """After a rename, its filters, orders and searches would miss items of the new one, and so would unique values."""
    old = serve(UNIQUE)
    new = serve(replace(UNIQUE, schema=RENAMED.schema, indexes=(), search=("name",), upgrades=RENAMED.upgrades))
    mine = old.post("/notes", json={"title": "a"}).headers["Location"]
    queries = ("title=b", "title[ne]=x&limit=1", "sort=-title", "q=b", "tags=x")
    assert [old.get(f"/notes?{each}").status_code for each in queries] == [200] * 5
    newer = new.post("/notes", json={"name": "b"}).headers["Location"]
    requests = [old.get(f"/notes?{each}") for each in queries]
    requests += [old.post("/notes", json={"title": each}) for each in "abc"]
    requests += [old.put(mine, json={"title": "b"}), old.patch(mine, json={"title": "c"})]
    for response in requests:
        assert response.status_code == 503 and int(response.headers["Retry-After"]) > 0
        assert "a newer program stored items (revision 2; this one has revision 1)" in response.json["detail"]
    assert old.get("/notes?limit=1&sort=created_at").json[0]["title"] == "a"
    assert old.patch(mine, json={"title": "a", "tags": ["x"]}).status_code == 200
    assert new.delete(newer).status_code == 200
    assert [old.get(f"/notes?{each}").status_code for each in queries] == [200] * 5
    assert old.post("/notes", json={"title": "b"}).status_code == 200


def test_an_old_program_knows_fields_that_stay(both: tuple[FlaskClient, FlaskClient, Resource]) -> None:
    """If the new one has only added some, its items are found."""
    old, new, _ = both
    made = new.post("/notes", json={"title": "b", "weight": 1}).json
    assert old.get("/notes?title=b&sort=title").json == [made]


def test_a_deleted_item_of_a_newer_program_stays_without_events(serve: Callable[[Resource], FlaskClient]) -> None:
    old = serve(Resource("notes", "note", OLD.schema, events=False))
    new = serve(Resource("notes", "note", RENAMED.schema, events=False, upgrades=RENAMED.upgrades))
    where = new.post("/notes", json={"name": "b"}).headers["Location"]
    assert old.delete(where).status_code == 503
    assert new.get(where).status_code == 200


def test_a_schema_that_is_not_registered_is_older(serve: Callable[[Resource], FlaskClient]) -> None:
    """A store forgets the first of very many; but a later revision is newer, whatever the store knows."""
    client = serve(OLD)
    where = client.post("/notes", json={"title": "a"}).headers["Location"]
    record = stored(client, where)
    store = client.application.extensions["restkeeper"].store
    body = record.body.replace(b'"tags"', b'"gone":1,"tags"')
    for fingerprint, status in (("0123abcd", 200), ("2-0123abcd", 503)):
        changed = record._replace(fingerprint=fingerprint, body=body)
        store.write(lambda transaction, changed=changed: transaction.update("notes", changed))
        response = client.get(where)
        assert response.status_code == status and "gone" not in response.json


def test_a_declaration_learns_from_its_own_store_only(tmp_path: Path) -> None:
    """Two services of a process may have the same declaration, and stores in which schemas came in another order."""
    newer = next(iter(NEWER.values()))
    clients = {}
    for name, order in {"one": (OLD, newer), "other": (newer, OLD)}.items():
        config = Config(database_url=f"sqlite:///{tmp_path}/{name}.db")
        clients[name] = {id(each): create_app(config, [each]).test_client() for each in order}
    kept = clients["one"][id(newer)].post("/notes", json={"title": "a", "weight": 3}).headers["Location"]
    assert clients["one"][id(OLD)].get(kept).json["weight"] == 3
    older = clients["other"][id(newer)].post("/notes", json={"title": "a", "weight": 3}).headers["Location"]
    assert "weight" not in clients["other"][id(OLD)].get(older).json
    assert clients["one"][id(OLD)].patch(kept, json={"title": "b"}).json["weight"] == 3


def test_the_schema_tells_who_can_read_its_items() -> None:
    """`oldest` goes back over revisions that only add fields."""
    added = {3: [Add("x")], 4: [Add("y"), Add("z")]}
    definitions = {"title": TITLE, **{name: Whole(load_default=0) for name in "xyz"}}
    cases: list[tuple[dict[int, list[Step]], int]] = [
        ({2: [Rename("a", "title")], **added}, 2),
        ({2: [Rename("a", "b")], **added, 5: [Rename("b", "title")]}, 5),
        ({4: added[4]}, 3),
        ({}, 1),
    ]
    for upgrades, oldest in cases:
        schema = resource(definitions, upgrades=upgrades).collection.schema
        assert schema and schema.oldest == oldest

"""What a conversion does with each kind of collection and item, and what it refuses."""

import time
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.resources.declaration import Ownership
from restkeeper.resources.evolution import Convert, Rename
from restkeeper.resources.migration import convert
from restkeeper.schemas.fields import ListOf, Text, Whole
from restkeeper.storage.interface import Index
from restkeeper.storage.postgresql import limits
from restkeeper.stores import conversions_of
from tests import stores
from tests.callers import ADMIN_KEY, key
from tests.programs import Programs, resource, two_versions

NAME = Text(1, 50, required=True)
TAGS = ListOf(Text(), load_default=list)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path, versions=two_versions())


def shown(client: FlaskClient, path: str) -> Any:
    answered = client.get(path)
    assert answered.status_code == 200, answered.json
    return answered.json


UPPER = resource({"name": NAME, "tags": TAGS}, Convert({"name": NAME}, ["name"], up=str.upper, down=str.lower))


@pytest.mark.parametrize("indexes", [(), (Index("tags"),)], ids=["new", "old and new"])
def test_an_index_of_several_values(programs: Programs, indexes: tuple[Index, ...]) -> None:
    """It finds the items by the values after a conversion, which the former program's index had under another name."""
    old = programs.serve(resource({"name": NAME, "tags": TAGS}, indexes=indexes))
    for name in "abc":
        assert old.post("/notes", json={"name": name, "tags": [name, "all", "all"]}).status_code == 200
    new = programs.upgrade(
        resource({"name": NAME, "labels": TAGS}, Rename("tags", "labels"), indexes=(Index("labels"), Index("name")))
    )
    for path, expected in (("labels=a", "a"), ("labels=all", "abc"), ("labels=none", ""), ("labels[in]=a,c", "ac")):
        assert "".join(sorted(each["name"] for each in shown(new, f"/notes?{path}"))) == expected, path
    (a,) = (each["id"] for each in shown(new, "/notes?labels=a"))
    assert new.patch(f"/notes/{a}", json={"labels": ["other"]}).status_code == 200
    assert shown(new, "/notes?labels=a") == [] and len(shown(new, "/notes?labels=other")) == 1
    assert new.delete(f"/notes/{a}").status_code in (200, 204)
    assert shown(new, "/notes?labels=other") == []


def test_the_same_index_of_several_values_of_converted_items(programs: Programs) -> None:
    old = programs.serve(resource({"name": NAME, "tags": TAGS}, indexes=(Index("tags"),)))
    old.post("/notes", json={"name": "a", "tags": ["x", "y"]})
    convert = Convert({"tags": TAGS}, ["tags"], up=lambda tags: [*map(str.upper, tags)], down=lambda tags: tags)
    new = programs.upgrade(resource({"name": NAME, "tags": TAGS}, convert, indexes=(Index("tags"),)), "--accept")
    assert [len(shown(new, f"/notes?tags={each}")) for each in ("x", "y", "X", "Y")] == [0, 0, 1, 1]


def test_integer_ids_and_positions(programs: Programs) -> None:
    """The order of creation stays, and so does the next id."""
    options: dict[str, Any] = {"ids": "integer", "sort": "_position"}
    old = programs.serve(resource({"name": NAME, "tags": TAGS}, **options))
    for name in "cab" * 4:
        old.post("/notes", json={"name": name})
    old.delete("/notes/12")
    new = programs.upgrade(resource({"title": NAME, "tags": TAGS}, Rename("name", "title"), **options))
    assert [(each["id"], each["title"]) for each in shown(new, "/notes?limit=20")] == [
        (n + 1, name) for n, name in enumerate("cab" * 4)
    ][:11]
    assert new.post("/notes", json={"title": "d"}).json["id"] == 13
    assert [each["id"] for each in shown(new, "/notes?sort=-id&limit=2")] == [13, 11]


@pytest.mark.needs("versions")
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_singleton(programs: Programs, is_stored: bool) -> None:
    """Older versions have it in their form, also before it is stored."""
    old = programs.serve(resource({"name": Text(load_default="x")}, singleton=True))
    value = old.patch("/notes", json={"name": "y"} if is_stored else {}).json["name"]
    new = programs.upgrade(resource({"title": Text(load_default="x")}, Rename("name", "title"), singleton=True))
    former = new.get("/api/v1/notes")
    assert (shown(new, "/notes"), former.json) == ({"title": value}, {"name": value})
    matched = {"If-Match": former.headers["ETag"]}
    assert new.patch("/api/v1/notes", json={"name": "z"}, headers=matched).json == {"name": "z"}
    assert new.patch("/notes", json={"title": "z"}, headers=matched).status_code == 412
    assert (shown(new, "/notes"), shown(new, "/api/v1/notes")) == ({"title": "z"}, {"name": "z"})
    assert new.put("/api/v1/notes", json={}).json == {"name": "x"} == shown(new, "/api/v1/notes")


def test_values_that_change_places(programs: Programs) -> None:
    """What is unique together with another field can be that of another item before: all are converted first."""
    unique = {"indexes": (Index("book", "number", unique=True),)}
    number = Whole(required=True)
    fields = {"book": Text(1, 9, load_default="b"), "number": number}
    old = programs.serve(resource(fields, **unique))
    for value in range(5):
        old.post("/notes", json={"number": value})
    convert = Convert({"number": number}, ["number"], up=lambda n: n + 1, down=lambda n: n - 1)
    new = programs.upgrade(resource(fields, convert, **unique))
    assert [each["number"] for each in shown(new, "/notes")] == [1, 2, 3, 4, 5]
    assert [each["number"] for each in shown(new, "/api/v1/notes")] == [0, 1, 2, 3, 4]
    assert new.post("/notes", json={"number": 5}).status_code == 409


def test_what_programs_side_by_side_have_stored_is_converted(programs: Programs) -> None:
    """Also an item that was written by a program without a field, after one that knows it."""
    fields = {"name": NAME, "tags": TAGS}
    old, more = programs.serve(resource(fields)), programs.serve(resource({**fields, "size": Whole(load_default=3)}))
    (a, b) = (each.post("/notes", json={"name": "a"}).json["id"] for each in (old, more))
    assert more.patch(f"/notes/{b}", json={"size": 5}).status_code == 200
    assert old.patch(f"/notes/{b}", json={"name": "b"}).status_code == 200
    new = programs.upgrade(
        resource({"title": NAME, "tags": TAGS, "size": Whole(load_default=3)}, Rename("name", "title"))
    )
    assert {each["id"]: (each["title"], each["size"]) for each in shown(new, "/notes")} == {a: ("a", 3), b: ("b", 5)}


@pytest.mark.needs("versions")
def test_huge_items_that_become_larger_than_items_can_be(tmp_path: Path) -> None:
    """The memory of a conversion is bounded in items; they are read together."""
    programs = Programs(tmp_path, versions=two_versions(), max_item=3_000_000, max_body=4_000_000)
    big = {"name": Text(0, 2_000_000, required=True)}
    twice = Convert(big, ["name"], up=lambda text: text * 2, down=lambda text: text[: len(text) // 2])
    old = programs.serve(resource(big))
    made = [old.post("/notes", json={"name": letter * 2_000_000}).headers["Location"] for letter in "abc"]
    new = programs.upgrade(resource({"name": Text(0, 4_000_000, required=True)}, twice))
    for path, letter in zip(made, "abc", strict=True):
        assert shown(new, path)["name"] == letter * 4_000_000
        assert shown(new, f"/api/v1{path}")["name"] == letter * 2_000_000


@pytest.mark.needs("versions")
def test_a_step_that_takes_longer_than_a_transaction_of_a_request_may_be_idle(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDLE_SECONDS", 0.2)
    programs.serve(resource({"name": NAME})).post("/notes", json={"name": "a"})

    def slow(name: str) -> str:
        time.sleep(0.5)
        return name.upper()

    slowly = resource({"name": NAME}, Convert({"name": NAME}, ["name"], up=slow, down=str.lower))
    assert programs.run(slowly, "migrate").exit_code == 0
    monkeypatch.undo()
    assert shown(programs.serve(slowly), "/notes")[0]["name"] == "A"


@pytest.mark.needs("keys", "ownership", "versions")
def test_owners_stay(tmp_path: Path) -> None:
    programs = Programs(tmp_path, versions=two_versions(), auth="required", admin_key=ADMIN_KEY)
    old = programs.serve(resource({"name": NAME}, ownership=Ownership.ALL))
    keys = {owner: key(old, "notes:read", "notes:write", owners=[owner]) for owner in ("one", "two")}
    for owner, header in keys.items():
        assert old.post("/notes", json={"name": owner}, headers=header).status_code == 200
    new = programs.upgrade(resource({"title": NAME}, Rename("name", "title"), ownership=Ownership.ALL))
    for owner, header in keys.items():
        assert [each["title"] for each in new.get("/notes", headers=header).json] == [owner]


@pytest.mark.needs("versions")
def test_a_conversion_that_another_program_has_done_is_not_done_again(programs: Programs) -> None:
    """Of two that find items to convert, the second one waits, and changes nothing."""
    programs.serve(resource({"name": NAME, "tags": TAGS})).post("/notes", json={"name": "a"})
    late = programs.serve(UPPER, serves=False).application.extensions["restkeeper"]
    found = conversions_of(late)
    before = programs.upgrade(UPPER).get("/notes")
    convert(late.store, found, "")
    after = programs.serve(UPPER).get("/notes")
    assert (after.json, after.headers["ETag"]) == (before.json, before.headers["ETag"])
    assert after.json[0]["name"] == "A"
    late.store.close()


@pytest.mark.sqlite
def test_a_backup_is_of_the_moment_before_the_conversion(programs: Programs, tmp_path: Path) -> None:
    """One that comes later does not replace it."""
    programs.serve(resource({"name": NAME, "tags": TAGS})).post("/notes", json={"name": "a"})
    service = programs.upgrade(UPPER).application.extensions["restkeeper"]
    service.store.convert(["notes"], lambda transaction: pytest.fail("it is converted"), "", keeps=True)
    backup = f"sqlite:///{tmp_path}/store.db.notes-1"
    assert stores.execute(backup, "SELECT json_extract(body, '$.name') FROM items") == [("a",)]

"""Programs of one revision with other schemas on one store, and what stays of a former revision."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from marshmallow import fields

from restkeeper import Add, Convert, ListOf, Money, Reference, Remove, Rename, Text, Version, Versions, Whole
from restkeeper.clock import rfc3339
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Index
from tests.programs import Programs, resource, two_versions
from tests.shapes import PEOPLE

TITLE = Text(1, 50, required=True)
OLD = resource({"title": TITLE})


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


ODD = "50 % {x} '\\' :a ?\n\U0001f600"
NEW_FIELDS: list[fields.Field[Any]] = [
    *(Text(0, 50, load_default=text) for text in ("red", "", "É", ODD)),
    *(Whole(load_default=number) for number in (7, 0, -7)),
    *(fields.Float(load_default=number) for number in (1.5, 1e-7)),
    *(fields.Decimal(load_default=Decimal(text)) for text in ("1E+30", "0.1234567890123456789012345678901")),
    fields.Boolean(load_default=True),
]


@pytest.mark.parametrize("field", NEW_FIELDS, ids=range(len(NEW_FIELDS)))
@pytest.mark.parametrize("indexed", [False, True])
def test_a_filter_sees_the_default(programs: Programs, field: Any, indexed: bool) -> None:
    old = programs.start(OLD)
    old.post("/notes", json={"title": "a"})
    indexes = (Index("new"),) if indexed else ()
    new = programs.start(resource({"title": TITLE, "new": field}, indexes=indexes))
    new.post("/notes", json={"title": "b"})
    (default, _) = (each["new"] for each in new.get("/notes").json)
    text = quote(default if isinstance(default, str) else json.dumps(default))
    assert len(new.get(f"/notes?new={text}").json) == 2
    assert len(new.get(f"/notes?new[ne]={text}").json) == 0
    assert [each["title"] for each in new.get("/notes?sort=new,title").json] == ["a", "b"]
    assert new.get("/notes?count=new").json == [{"value": default, "count": 2}]
    for operator in ("like", "starts", "ends") if isinstance(default, str) else ():
        sent = quote(default.lower() if operator == "like" else default)
        assert len(new.get(f"/notes?new[{operator}]={sent}").json) == 2, operator


STEPS: dict[str, tuple[fields.Field[Any], Any]] = {
    "a nullable field": (Whole(load_default=3, allow_none=True), 3),
    "a list": (ListOf(Text(0, 9), load_default=["x"]), ["x"]),
    "an object": (fields.Dict(load_default={"x": 1}), {"x": 1}),
    "a computed field": (fields.Function(lambda item: len(item["title"]), metadata={"type": "integer"}), 3),
    "a default that a function makes": (Text(load_default=lambda: rfc3339(0)), rfc3339(0)),
    "a default of another kind": (fields.Boolean(load_default="yes"), "yes"),
    "a long default": (Text(0, 9999, load_default="x" * 1001), "x" * 1001),
}


@pytest.mark.parametrize(("field", "value"), STEPS.values(), ids=STEPS)
def test_a_value_that_queries_need_in_each_item_is_a_step(
    programs: Programs, field: fields.Field[Any], value: Any
) -> None:
    """The line names it; the former program serves until then."""
    old = programs.start(OLD)
    where = old.post("/notes", json={"title": "abc"}).headers["Location"]
    with pytest.raises(StoreUnavailable, match=r'"new" is new, and stored items need its value.*\[Add\("new"\)\]'):
        programs.start(resource({"title": TITLE, "new": field}))
    assert old.get(where).status_code == 200
    assert programs.start(resource({"title": TITLE, "new": field}, Add("new"))).get(where).json["new"] == value


@pytest.mark.parametrize(
    ("field", "query"),
    [
        (Text(load_default=None, allow_none=True), "new[is]=null"),
        (ListOf(Text(0, 9), load_default=list), "new[nin]=x"),
    ],
)
def test_null_and_an_empty_list_are_no_step(programs: Programs, field: fields.Field[Any], query: str) -> None:
    where = programs.start(OLD).post("/notes", json={"title": "a"}).headers["Location"]
    new = programs.start(resource({"title": TITLE, "new": field}))
    assert new.get(where).json["new"] in (None, []) and len(new.get(f"/notes?{query}").json) == 1


EXTRA = {"title": TITLE, "extra": Text(0, 50, allow_none=True, load_default=None)}


@pytest.mark.parametrize(
    ("definitions", "upgrades", "reason"),
    [
        ({"name": TITLE}, {2: [Rename("title", "name")]}, r'have "extra" \(string\), and the schema does not'),
        ({"title": TITLE, "extra": Whole(load_default=0)}, {}, '"extra" is of type integer'),
    ],
)
def test_what_an_old_program_keeps_counts(programs: Programs, definitions: Any, upgrades: Any, reason: str) -> None:
    """Although no item, and no event, has the fingerprint of the program that knows it."""
    old, new = programs.start(replace(OLD, events=False)), programs.start(resource(EXTRA, events=False))
    where = new.post("/notes", json={"title": "a", "extra": "precious"}).headers["Location"]
    assert old.patch(where, json={"title": "b"}).status_code == 200
    with pytest.raises(StoreUnavailable, match=reason):
        programs.start(resource(definitions, upgrades=upgrades, events=False))
    again = programs.start(resource({**EXTRA, "more": Whole(load_default=0)}, events=False))
    assert again.get("/notes").json[0]["extra"] == "precious"


def test_what_a_program_can_store_counts(programs: Programs) -> None:
    """Beside items of former ones. A field that it has not stored can be left out again."""
    programs.start(OLD).post("/notes", json={"title": "a"})
    running = programs.start(resource({"title": TITLE, "x": Text(load_default="")}))
    with pytest.raises(StoreUnavailable, match='"x" is of type integer, and in stored items of type string'):
        programs.start(resource({"title": TITLE, "x": Whole(load_default=0)}))
    programs.start(resource({"title": TITLE, "y": Whole(load_default=0)}))
    assert running.post("/notes", json={"title": "b", "x": "abc"}).status_code == 200


def test_a_wider_type_that_was_taken_back_can_stay_so(programs: Programs) -> None:
    """Where no item has it, nor an object with more inside."""
    before = {"n": Whole(load_default=0), "at": fields.Nested({"x": Whole()}, allow_none=True, load_default=None)}
    programs.start(resource(before)).post("/notes", json={"n": 1})
    wider = fields.Nested({"x": Whole(), "y": Whole()}, allow_none=True, load_default=None)
    programs.start(resource({"n": Money(load_default=0), "at": wider}))
    programs.start(resource({**before, "y": Whole(load_default=0)}))


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("items", [1, 2])
def test_a_new_unique_field_with_a_default_needs_a_step(programs: Programs, nullable: bool, items: int) -> None:
    """All older items would have it, and an old program could store one of them."""
    old = programs.start(OLD)
    for _ in range(items):
        old.post("/notes", json={"title": "a"})
    indexes = (Index("code", unique=True),)
    new = {"title": TITLE, "code": Text(0, 9, load_default="x", allow_none=nullable)}
    with pytest.raises(StoreUnavailable, match=r'"code" is unique, and its default is not null.*Add\("code", …\)'):
        programs.start(resource(new, indexes=indexes))
    assert old.post("/notes", json={"title": "b"}).status_code == 200
    if nullable:
        started = programs.start(resource(new, indexes=indexes, upgrades={2: [Add("code", None)]}))
        assert {each["code"] for each in started.get("/notes").json} == {None}


def test_a_field_with_a_default_that_becomes_unique_is_named(programs: Programs) -> None:
    """Older items do not have it."""
    old = programs.start(OLD)
    for _ in range(2):
        old.post("/notes", json={"title": "a"})
    new = {"title": TITLE, "code": Text(0, 9, load_default="x")}
    programs.start(resource(new))
    with pytest.raises(StoreUnavailable, match="some items of notes have the same code") as refused:
        programs.start(resource(new, indexes=(Index("code", unique=True),)))
    assert "null: " in refused.value.detail


def test_a_reference_that_a_program_does_not_know_keeps_nothing(programs: Programs) -> None:
    """It refers to nothing then, and its item can be read and changed."""
    old = programs.start(OLD, PEOPLE)
    ada = old.post("/people", json={"name": "Ada"})
    by = Reference("people", allow_none=True, load_default=None)
    new = programs.start(resource({"title": TITLE, "by": by}), PEOPLE)
    where = new.post("/notes", json={"title": "a", "by": ada.json["id"]}).headers["Location"]
    assert old.delete(ada.headers["Location"]).status_code == 200
    assert new.get(f"{where}?embed=by").json["by"] == ada.json["id"]
    assert new.patch(where, json={"title": "b"}).status_code == 200


COLOUR = Text(0, 9, load_default="")
NAMED = resource({"name": TITLE, "colour": COLOUR}, sort="name")
TITLED = resource(
    {"title": TITLE}, sort="title", upgrades={2: [Rename("name", "title")], 3: [Remove("colour", COLOUR)]}
)
BOTH = two_versions(unversioned="v1")


@pytest.mark.needs("versions")
def test_what_a_retired_version_showed_is_kept_until_it_is_forgotten(programs: Programs) -> None:
    where = programs.start(NAMED).post("/notes", json={"name": "a", "colour": "red"}).headers["Location"]
    both = programs.start(TITLED, versions=BOTH)
    refused = programs.run(TITLED, "migrate", "--forget", "v1", versions=BOTH)
    assert (refused.exit_code, "v1 is in versions.py" in refused.output) == (2, True)
    assert both.get(f"/api/v1{where}").json["colour"] == "red"
    newest = Versions(Version("v2"), unversioned="v2")
    programs.start(TITLED, versions=newest)
    assert both.get(f"/api/v1{where}").json["colour"] == "red"
    forgotten = programs.run(TITLED, "migrate", "--forget", "v1", versions=newest).output
    assert "notes: 1 items are without what only v1 showed" in forgotten
    assert both.get(f"/api/v1{where}").json["colour"] == ""
    assert programs.serve(TITLED).get(where).json["version"] == 1


@pytest.mark.needs("versions")
def test_an_export_of_a_former_revision_is_imported(programs: Programs, tmp_path: Path) -> None:
    old = programs.start(NAMED)
    made = old.post("/notes", json={"name": "a", "colour": "red"}).json
    file = str(tmp_path / "notes.ndjson")
    assert programs.run(NAMED, "export", "notes", file).exit_code == 0
    new = programs.start(TITLED)
    new.delete(f"/notes/{made['id']}")
    refused = programs.run(TITLED, "import", "notes", file)
    assert (refused.exit_code, "name" in refused.output) == (1, True)
    imported = programs.run(TITLED, "import", "notes", file, "--revision", "1")
    assert imported.exit_code == 0, imported.output
    kept = {name: made[name] for name in ("id", "created_at", "updated_at", "version")}
    assert new.get("/notes").json == [kept | {"title": "a"}]
    assert programs.start(TITLED, versions=BOTH).get("/api/v1/notes").json == [made]


def test_all_collections_are_converted_or_none(programs: Programs) -> None:
    """Where items of one cannot be, the former program serves both; a new unique index of a former version is named."""
    old = programs.start(NAMED, PEOPLE)
    old.post("/notes", json={"name": "a"})
    for name in ("x", "2"):
        old.post("/people", json={"name": name})
    numbers = Convert({"name": TITLE}, ["name"], up=lambda name: str(int(name)), down=str)
    changed = replace(PEOPLE, upgrades={2: [numbers]})
    command = programs.create(TITLED, changed, serves=False).test_cli_runner()
    refused = command.invoke(args=["migrate"])
    assert refused.exit_code == 1 and "people: the item" in refused.stderr and "nothing was changed" in refused.stderr
    assert [old.get(f"/{each}").status_code for each in ("notes", "people")] == [200, 200]
    old.delete(f"/people/{old.get('/people?name=x').json[0]['id']}")
    assert command.invoke(args=["migrate"]).stdout.startswith("notes: all items have revision 3 now\npeople: all items")


def test_a_computed_value_stays_where_it_cannot_be_computed(programs: Programs) -> None:
    """Other bounds are additive: an item that does not fit them is returned as it is."""

    twice = fields.Function(lambda item: item["count"] * 2, metadata={"type": "integer"})
    wide = {"count": Whole(0, 100, load_default=0), "twice": twice}
    narrow = {"count": Whole(0, 10, load_default=0), "twice": twice, "more": COLOUR}
    programs.start(resource(wide)).post("/notes", json={"count": 50})
    assert programs.start(resource(narrow)).get("/notes").json[0]["twice"] == 100

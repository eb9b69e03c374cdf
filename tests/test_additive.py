"""Programs of one revision with other schemas on one store, and what stays of a former revision."""

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from marshmallow import fields

from restkeeper import (
    Add,
    Convert,
    ItemSchema,
    JsonObject,
    ListOf,
    Money,
    Reference,
    Remove,
    Rename,
    Text,
    Version,
    Versions,
    Whole,
)
from restkeeper.clock import rfc3339
from restkeeper.config import Config
from restkeeper.resources.resource import Resource
from restkeeper.storage.errors import RevisionDiffers, StoreUnavailable
from restkeeper.storage.interface import Index
from tests.shop import create_app
from tests.test_stored import resource

OLD = resource({"title": Text(1, 50, required=True)})


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., FlaskClient]:
    """Starts a service with declarations of collections; all have the same store."""
    config = Config(database_url=f"sqlite:///{tmp_path}/store.db")

    def start(*declared: Resource, **options: Any) -> FlaskClient:
        try:
            return create_app(config, list(declared), **options).test_client()
        except RevisionDiffers:  # on PostgreSQL no start converts
            create_app(config, list(declared), serves=False, **options).test_cli_runner().invoke(args=["migrate"])
        return create_app(config, list(declared), **options).test_client()

    return start


def migrate(client: FlaskClient, *options: str) -> str:
    result = client.application.test_cli_runner().invoke(args=["migrate", *options])
    assert result.exit_code == 0, result.output
    return result.output


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
def test_a_filter_sees_the_default(serve: Callable[..., FlaskClient], field: Any, indexed: bool) -> None:
    old = serve(OLD)
    old.post("/notes", json={"title": "a"})
    indexes = (Index("new"),) if indexed else ()
    new = serve(resource({"title": Text(1, 50, required=True), "new": field}, indexes=indexes))
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


TITLE = Text(1, 50, required=True)
STEPS: dict[str, tuple[fields.Field[Any], Any]] = {
    "a nullable field": (Whole(load_default=3, allow_none=True), 3),
    "a list": (ListOf(Text(0, 9), load_default=["x"]), ["x"]),
    "an object": (JsonObject(load_default={"x": 1}), {"x": 1}),
    "a computed field": (fields.Function(lambda item: len(item["title"]), metadata={"type": "integer"}), 3),
    "a default that a function makes": (Text(load_default=lambda: rfc3339(0)), rfc3339(0)),
    "a default of another kind": (fields.Boolean(load_default="yes"), "yes"),
    "a long default": (Text(0, 9999, load_default="x" * 1001), "x" * 1001),
}


@pytest.mark.parametrize(("field", "value"), STEPS.values(), ids=STEPS)
def test_a_value_that_queries_need_in_each_item_is_a_step(
    serve: Callable[..., FlaskClient], field: fields.Field[Any], value: Any
) -> None:
    """The line names it; the former program serves until then."""
    old = serve(OLD)
    where = old.post("/notes", json={"title": "abc"}).headers["Location"]
    with pytest.raises(StoreUnavailable, match=r'"new" is new, and stored items need its value.*\[Add\("new"\)\]'):
        serve(resource({"title": TITLE, "new": field}))
    assert old.get(where).status_code == 200
    assert serve(resource({"title": TITLE, "new": field}, upgrades={2: [Add("new")]})).get(where).json["new"] == value


@pytest.mark.parametrize(
    ("field", "query"),
    [
        (Text(load_default=None, allow_none=True), "new[is]=null"),
        (ListOf(Text(0, 9), load_default=list), "new[nin]=x"),
    ],
)
def test_null_and_an_empty_list_are_no_step(
    serve: Callable[..., FlaskClient], field: fields.Field[Any], query: str
) -> None:
    where = serve(OLD).post("/notes", json={"title": "a"}).headers["Location"]
    new = serve(resource({"title": TITLE, "new": field}))
    assert new.get(where).json["new"] in (None, []) and len(new.get(f"/notes?{query}").json) == 1


EXTRA = {"title": TITLE, "extra": Text(0, 50, allow_none=True, load_default=None)}


@pytest.mark.parametrize(
    ("definitions", "upgrades", "reason"),
    [
        ({"name": TITLE}, {2: [Rename("title", "name")]}, r'have "extra" \(string\), and the schema does not'),
        ({"title": TITLE, "extra": Whole(load_default=0)}, {}, '"extra" is of type integer'),
    ],
)
def test_what_an_old_program_keeps_counts(
    serve: Callable[..., FlaskClient], definitions: Any, upgrades: Any, reason: str
) -> None:
    """Although no item, and no event, has the fingerprint of the program that knows it."""
    old, new = serve(replace(OLD, events=False)), serve(resource(EXTRA, events=False))
    where = new.post("/notes", json={"title": "a", "extra": "precious"}).headers["Location"]
    assert old.patch(where, json={"title": "b"}).status_code == 200
    with pytest.raises(StoreUnavailable, match=reason):
        serve(resource(definitions, upgrades=upgrades, events=False))
    again = serve(resource({**EXTRA, "more": Whole(load_default=0)}, events=False))
    assert again.get("/notes").json[0]["extra"] == "precious"


def test_what_a_program_can_store_counts(serve: Callable[..., FlaskClient]) -> None:
    """Beside items of former ones. A field that it has not stored can be left out again."""
    serve(OLD).post("/notes", json={"title": "a"})
    running = serve(resource({"title": TITLE, "x": Text(load_default="")}))
    with pytest.raises(StoreUnavailable, match='"x" is of type integer, and in stored items of type string'):
        serve(resource({"title": TITLE, "x": Whole(load_default=0)}))
    serve(resource({"title": TITLE, "y": Whole(load_default=0)}))
    assert running.post("/notes", json={"title": "b", "x": "abc"}).status_code == 200


def test_a_wider_type_that_was_taken_back_can_stay_so(serve: Callable[..., FlaskClient]) -> None:
    """Where no item has it, nor an object with more inside."""
    before = {"n": Whole(load_default=0), "at": fields.Nested({"x": Whole()}, allow_none=True, load_default=None)}
    serve(resource(before)).post("/notes", json={"n": 1})
    wider = fields.Nested({"x": Whole(), "y": Whole()}, allow_none=True, load_default=None)
    serve(resource({"n": Money(load_default=0), "at": wider}))
    serve(resource({**before, "y": Whole(load_default=0)}))


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("items", [1, 2])
def test_a_new_unique_field_with_a_default_needs_a_step(
    serve: Callable[..., FlaskClient], nullable: bool, items: int
) -> None:
    """All older items would have it, and an old program could store one of them."""
    old = serve(OLD)
    for _ in range(items):
        old.post("/notes", json={"title": "a"})
    indexes = (Index("code", unique=True),)
    new = {"title": TITLE, "code": Text(0, 9, load_default="x", allow_none=nullable)}
    with pytest.raises(StoreUnavailable, match=r'"code" is unique, and its default is not null.*Add\("code", …\)'):
        serve(resource(new, indexes=indexes))
    assert old.post("/notes", json={"title": "b"}).status_code == 200
    if nullable:
        started = serve(resource(new, indexes=indexes, upgrades={2: [Add("code", None)]}))
        assert {each["code"] for each in started.get("/notes").json} == {None}


def test_a_field_with_a_default_that_becomes_unique_is_named(serve: Callable[..., FlaskClient]) -> None:
    """Older items do not have it."""
    old = serve(OLD)
    for _ in range(2):
        old.post("/notes", json={"title": "a"})
    new = {"title": TITLE, "code": Text(0, 9, load_default="x")}
    serve(resource(new))
    with pytest.raises(StoreUnavailable, match="some items of notes have the same code") as refused:
        serve(resource(new, indexes=(Index("code", unique=True),)))
    assert "null: " in refused.value.detail


class Person(ItemSchema):
    name = Text(1, 50, required=True)


def test_a_reference_that_a_program_does_not_know_keeps_nothing(serve: Callable[..., FlaskClient]) -> None:
    """It refers to nothing then, and its item can be read and changed."""
    people = Resource("people", "person", Person)
    old = serve(OLD, people)
    ada = old.post("/people", json={"name": "Ada"})
    new = serve(resource({"title": TITLE, "by": Reference("people", allow_none=True, load_default=None)}), people)
    where = new.post("/notes", json={"title": "a", "by": ada.json["id"]}).headers["Location"]
    assert old.delete(ada.headers["Location"]).status_code == 200
    assert new.get(f"{where}?embed=by").json["by"] == ada.json["id"]
    assert new.patch(where, json={"title": "b"}).status_code == 200


NAMED = resource({"name": Text(1, 50, required=True), "colour": Text(0, 9, load_default="")}, sort="name")
TITLED = resource(
    {"title": Text(1, 50, required=True)},
    sort="title",
    upgrades={2: [Rename("name", "title")], 3: [Remove("colour", Text(0, 9, load_default=""))]},
)
BOTH = Versions(Version("v1", successor="v2", revisions={"notes": 1}), Version("v2"), unversioned="v1")


@pytest.mark.needs("versions")
def test_what_a_retired_version_showed_is_kept_until_it_is_forgotten(serve: Callable[..., FlaskClient]) -> None:
    where = serve(NAMED).post("/notes", json={"name": "a", "colour": "red"}).headers["Location"]
    both = serve(TITLED, versions=BOTH)
    refused = both.application.test_cli_runner().invoke(args=["migrate", "--forget", "v1"])
    assert (refused.exit_code, "v1 is in versions.py" in refused.output) == (2, True)
    assert both.get(f"/api/v1{where}").json["colour"] == "red"
    newest = serve(TITLED, versions=Versions(Version("v2"), unversioned="v2"))
    migrate(newest)
    assert both.get(f"/api/v1{where}").json["colour"] == "red"
    assert "notes: 1 items are without what only v1 showed" in migrate(newest, "--forget", "v1")
    assert both.get(f"/api/v1{where}").json["colour"] == ""
    assert newest.get(where).json["version"] == 1


@pytest.mark.needs("versions")
def test_an_export_of_a_former_revision_is_imported(serve: Callable[..., FlaskClient], tmp_path: Path) -> None:
    old = serve(NAMED)
    made = old.post("/notes", json={"name": "a", "colour": "red"}).json
    file = str(tmp_path / "notes.ndjson")
    assert old.application.test_cli_runner().invoke(args=["export", "notes", file]).exit_code == 0
    new = serve(TITLED)
    new.delete(f"/notes/{made['id']}")
    refused = new.application.test_cli_runner().invoke(args=["import", "notes", file])
    assert (refused.exit_code, "name" in refused.output) == (1, True)
    imported = new.application.test_cli_runner().invoke(args=["import", "notes", file, "--revision", "1"])
    assert imported.exit_code == 0, imported.output
    kept = {name: made[name] for name in ("id", "created_at", "updated_at", "version")}
    assert new.get("/notes").json == [kept | {"title": "a"}]
    assert serve(TITLED, versions=BOTH).get("/api/v1/notes").json == [made]


def test_all_collections_are_converted_or_none(serve: Callable[..., FlaskClient]) -> None:
    """Where items of one cannot be, the former program serves both; a new unique index of a former version is named."""
    other = {"name": Text(1, 50, required=True)}
    people = Resource("people", "person", ItemSchema.from_dict(other, name="People"))
    old = serve(NAMED, people)
    old.post("/notes", json={"name": "a"})
    for name in ("x", "2"):
        old.post("/people", json={"name": name})
    numbers = Convert({"name": Text(1, 50, required=True)}, ["number"], up=int, down=str)
    changed = Resource(
        "people", "person", ItemSchema.from_dict({"number": Whole(required=True)}), upgrades={2: [numbers]}
    )
    config = old.application.extensions["restkeeper"].config
    command = create_app(config, [TITLED, changed], serves=False).test_cli_runner()
    refused = command.invoke(args=["migrate"])
    assert refused.exit_code == 1 and "people: the item" in refused.stderr and "nothing was changed" in refused.stderr
    assert [old.get(f"/{each}").status_code for each in ("notes", "people")] == [200, 200]
    old.delete(f"/people/{old.get('/people?name=x').json[0]['id']}")
    assert command.invoke(args=["migrate"]).stdout.startswith("notes: all items have revision 3 now\npeople: all items")


def test_a_computed_value_stays_where_it_cannot_be_computed(serve: Callable[..., FlaskClient]) -> None:
    """Other bounds are additive: an item that does not fit them is returned as it is."""

    class Wide(ItemSchema):
        count = Whole(0, 100, load_default=0)
        twice = fields.Method("double", metadata={"type": "integer"})

        def double(self, item: dict[str, Any]) -> int:
            return int(item["count"]) * 2

    class Narrow(Wide):
        count = Whole(0, 10, load_default=0)
        more = Text(0, 9, load_default="")

    serve(Resource("notes", "note", Wide)).post("/notes", json={"count": 50})
    assert serve(Resource("notes", "note", Narrow)).get("/notes").json[0]["twice"] == 100

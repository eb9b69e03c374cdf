"""Open schemas (unknown = INCLUDE), and fields of the service that are called as the server's."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from marshmallow import INCLUDE, fields

from restkeeper import Add, Config, Deprecation, ItemSchema, Rename, Resource, Text, Version, Versions, Whole
from restkeeper.resources.views import StoredView
from restkeeper.storage.errors import StoreUnavailable
from tests.shapes import PostSchema
from tests.shop import create_app as create_shop
from tests.shop.open import BOOKS, THINGS, TIMES, BookSchema, NewBookSchema, ThingSchema, create_app
from tests.test_openapi import fits

pytestmark = pytest.mark.needs("batch", "events", "openapi")

ODD = {
    "a.b": 1,
    'q"\\': [True],
    "": None,
    "$ref": {"é": 1.50},
    "first-name": "x",
    "version": "1.0",
    "created_at": "May",
}


@pytest.fixture
def client() -> FlaskClient:
    """A client of the service with these collections."""
    return create_app(Config()).test_client()


def sent(client: FlaskClient, method: str, path: str, text: str) -> Any:
    return client.open(path, method=method, data=text, content_type="application/json")


@pytest.mark.parametrize(
    "text",
    [
        '{"title":"a","id":"x","views":1}',
        '{"id":"x","views":5,"zeta":[1.50,{"b":null}],"title":"a","alpha":123456789012345678}',
        json.dumps({"id": "x", "title": "a", **ODD}, ensure_ascii=False, separators=(",", ":")),
    ],
)
def test_an_item_is_as_it_was_sent(client: FlaskClient, text: str) -> None:
    """With its fields in their order, and no others but defaults: in responses, lists, events and after a restart."""
    expected = text.removesuffix("}") + ',"stock":0}'
    made = sent(client, "POST", "/things", text)
    assert (made.status_code, made.text) == (200, expected)
    assert client.get("/things/x").text == expected and client.get("/things").text == f"[{expected}]"
    assert client.get("/api/v1/events").text.count(expected) == 1
    again = sent(client, "PUT", "/things/x", text)
    assert (again.text, again.headers["ETag"]) == (expected, made.headers["ETag"])
    shorter = sent(client, "PUT", "/things/x", '{"more":{},"title":"b"}')
    assert shorter.text == '{"id":"x","more":{},"title":"b","stock":0}'
    assert client.delete("/things/x").text == shorter.text


def test_what_is_declared_is_validated(client: FlaskClient) -> None:
    """What is not is JSON as any other, with the bounds of each item."""
    wrong = {"title": "", "views": "1", "note": 5, "size": {"width": 1, "more": 2}, "any": "a\0"}
    refused = client.post("/things", json=wrong)
    found = {each["pointer"] for each in refused.json["errors"]}
    assert refused.status_code == 422
    assert found == {"#/title", "#/views", "#/note", "#/size/more", "#/any"}
    assert client.post("/things", json={"title": "a", "forbidden": 1}).json["errors"][0]["pointer"] == "#/forbidden"
    assert client.post("/things", json={"title": "a", "any": "x" * 140_000}).status_code == 413
    assert client.post("/things", json={"title": "a", "x" * 140_000: 1}).status_code == 413
    assert client.post("/things", json={"title": "a", "any": [0] * 10_001}).status_code == 413
    named = client.post("/things", json={"title": "a", "first_name": 5, "own_version": 6, "firstName": "b"})
    assert named.json["first_name"] == 5 and named.json["firstName"] == "b"  # the name of an attribute is any name
    assert client.post("/things", json={"title": "a", "\ud800": 1}).status_code in (400, 422)


def test_a_patch_deletes(client: FlaskClient) -> None:
    """Null deletes what is not declared, and what is optional; a field with a default gets that. The rest stays."""
    sent(client, "POST", "/things", '{"title":"a","b-c":{"d":1,"e":2},"id":"1","views":3,"note":null}')
    patched = sent(client, "PATCH", "/things/1", '{"b-c":{"d":null,"f":3},"stock":5,"new":{"x":null,"y":1}}')
    assert patched.text == '{"title":"a","b-c":{"e":2,"f":3},"id":"1","views":3,"note":null,"stock":5,"new":{"y":1}}'
    deleted = client.patch("/things/1", json={"b-c": None, "views": None, "stock": None, "absent": None})
    assert deleted.json == {"title": "a", "id": "1", "note": None, "stock": 0, "new": {"y": 1}}
    for wrong in ({"id": None}, {"id": "2"}, {"title": None}):
        assert client.patch("/things/1", json=wrong).status_code == 422
    assert client.patch("/things/1", json={"absent": None, "stock": None}).headers["ETag"] == deleted.headers["ETag"]
    assert client.post("/things/1/view").json == {"id": "1", **deleted.json, "views": 1, "seen": True}


def test_lists_compare_what_is_declared(client: FlaskClient) -> None:
    """An absent field is null to them."""
    for number, views in enumerate([3, None, 1]):
        more = {} if views is None else {"views": views, "version": f"v{views}"}
        client.post("/things", json={"id": str(number), "title": "a", "colour": "red", **more})
    for query, expected in {
        "views=null": "1",
        "views[is]=not_null": "02",
        "views[ne]=3": "12",
        "views[gte]=1": "02",
        "sort=-views": "021",
        "version=v3": "0",
        "version[is]=null": "1",
        "version[gt]=v1": "0",
        "sort=version": "120",
        "q=a&views=1": "2",
        "size.width=5": "",
    }.items():
        response = client.get(f"/things?{query}")
        assert ("".join(each["id"] for each in response.json), response.status_code) == (expected, 200), query
    assert client.get("/things?count=views").json[0] in ({"value": 1, "count": 1}, {"value": None, "count": 1})
    assert client.get("/things?fields=id,views&sort=id").json == [
        {"id": "0", "views": 3},
        {"id": "1"},
        {"id": "2", "views": 1},
    ]
    for query in ("colour=red", "fields=colour", "sort=colour"):
        assert client.get(f"/things?{query}").status_code == 400


def test_a_service_has_a_version_of_its_own(client: FlaskClient) -> None:
    """It is validated, found, unique and searched as other fields; the server's are somewhere else."""
    made = client.post("/books", json={"title": "a", "version": "", "updated_at": 5})
    assert list(made.json) == ["id", "title", "version", "updated_at"]
    assert (made.json["version"], made.json["updated_at"]) == ("first", 5)
    path = made.headers["Location"]
    assert client.post("/books", json={"title": "b", "version": "first"}).json["title"] == "The value is taken"
    client.post("/books", json={"title": "b", "version": "2.0"})
    for query, expected in {"version=2.0": "b", "updated_at=5": "a", "q=FIRST": "a", "sort=-version": "ab"}.items():
        assert "".join(each["title"] for each in client.get(f"/books?{query}").json) == expected, query
    assert client.put(path, json={"title": "a", "version": 1}).json["errors"][0]["pointer"] == "#/version"
    changed = client.put(path, json={"title": "a", "version": "x"}, headers={"If-Match": made.headers["ETag"]})
    assert changed.json == {**made.json, "version": "x", "updated_at": 0}
    assert client.patch(path, json={"title": "c"}, headers={"If-Match": made.headers["ETag"]}).status_code == 412
    events = client.get("/api/v1/events").json
    assert [each["data"] for each in events if each["data"]["title"] == "a"] == [made.json, changed.json]


def test_a_singleton_can_be_open(client: FlaskClient) -> None:
    """Its id is a field as any other."""
    assert client.get("/profile").json == {}
    for body in ({"name": "x", "id": 5, "version": [1]}, {"id": None}, {}):
        assert client.put("/profile", json=body).json == body == client.get("/profile").json
    assert client.patch("/profile", json={"id": 1}).json == {"id": 1}


def test_a_batch_and_an_import_have_them(tmp_path: Path) -> None:
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/a.db"))
    client, run = app.test_client(), app.test_cli_runner().invoke
    operation = {"method": "POST", "path": "/things", "body": {"b-c": 1, "title": "a", "id": "1"}}
    assert client.post("/api/v1/batch", json={"operations": [operation]}).json["results"][0]["body"]["b-c"] == 1
    for name, file, item in (
        ("things", "t.json", {"version": "x", "b": 1, "id": "9", "title": "t", "stock": 1}),
        ("books", "b.json", {"id": "1", "title": "t", "version": "3", "updated_at": 0}),
    ):
        (source := tmp_path / file).write_text(json.dumps([item]))
        assert run(args=["import", name, str(source)]).exit_code == 0
        assert "1 already there" in run(args=["import", name, str(source)]).output
        assert client.get(f"/{name}/{item['id']}").text == json.dumps(item, separators=(",", ":"))
        assert run(args=["export", name, str(source)]).exit_code == 0 and item in json.loads(source.read_text())
    refused = run(args=["export", "things", str(tmp_path / "t.csv")])
    assert refused.exit_code == 1 and "use ndjson or json" in refused.output


def test_the_document_says_open(client: FlaskClient) -> None:
    document = client.get("/openapi.json").json
    schemas = document["components"]["schemas"]
    item = {"id": "1", "title": "a", "stock": 0, "more": {}, "b-c": 1}
    for name in ("Thing", "ThingInput", "ThingPatch", "ThingReplacement"):
        assert schemas[name]["additionalProperties"] is True
        fits(document, schemas[name], item)
    assert (schemas["Thing"]["required"], schemas["ThingInput"]["required"]) == (["id", "title", "stock"], ["title"])
    assert schemas["Thing"]["properties"]["version"]["type"] == "string"
    assert schemas["Book"]["properties"]["updated_at"]["type"] == "integer"
    assert schemas["Book"]["additionalProperties"] is False


SCHEMA = {"title": Text(0, 50), "views": Whole()}


def opened(
    folder: Path, schema: dict[str, Any], exclude: tuple[str, ...] = TIMES, unknown: str = INCLUDE
) -> FlaskClient:
    """A client of a service whose collection has this schema."""
    meta = type("Meta", (), {"unknown": unknown, "exclude": exclude})
    made: Any = type("NoteSchema", (ItemSchema,), {"Meta": meta, **schema})
    config = Config(database_url=f"sqlite:///{folder}/a.db")
    return create_shop(config, [Resource("notes", "note", made, ids="client")]).test_client()


def test_a_schema_can_be_opened(tmp_path: Path) -> None:
    """Stored items keep what they have, and the server's times are not taken for fields of theirs."""
    client = opened(tmp_path, {"title": Text(0, 50, required=True), "old": Text(load_default="x")}, (), "raise")
    made = client.post("/notes", json={"id": "1", "title": "a"}).json
    assert made["version"] == 1
    client = opened(tmp_path, {**SCHEMA, "rank": Whole(load_default=7)})
    item = {"id": "1", "title": "a", "old": "x", "rank": 7}
    assert client.get("/notes/1").json == item == client.get("/notes").json[0]
    assert client.patch("/notes/1", json={"new": 1}).json == {**item, "new": 1}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"schema": {**SCHEMA, "rank": Whole()}}, 'stored items can have any value as "rank"'),
        ({"schema": {**SCHEMA, "views": Text()}}, '"views" is of type string, and in stored items of type integer'),
        ({"schema": {**SCHEMA, "title": Text(0, 50, required=True)}}, '"title" is required, and stored items can be w'),
        (
            {"schema": SCHEMA, "exclude": ("version",)},
            "stored items are without created_at; stored items are without updated_at. No step",
        ),
        (
            {"schema": {name: type(each)(load_default=None, allow_none=True) for name, each in SCHEMA.items()}}
            | {"unknown": "raise"},
            "stored items can have fields that the schema does not name; stored items are without created_at",
        ),
        ({"schema": {"title": SCHEMA["title"]}}, ""),
        ({"schema": {**SCHEMA, "any": fields.Raw(), "views": fields.Raw()}}, ""),
    ],
)
def test_a_change_of_an_open_schema(tmp_path: Path, changed: Any, expected: str) -> None:
    """What its stored items may not fit is refused at start."""
    item = {"id": "1", "views": 1, "rank": "x", "version": {}}
    opened(tmp_path, SCHEMA).post("/notes", json=item)
    if expected:
        with pytest.raises(StoreUnavailable, match=expected):
            opened(tmp_path, **changed)
    else:
        assert opened(tmp_path, **changed).get("/notes").json == [item]


def test_an_open_schema_has_no_upgrades() -> None:
    with pytest.raises(ValueError, match="things: upgrades: no step knows all that items of an open schema have"):
        replace(THINGS, upgrades={2: [Add("stock", 1)]})


def test_fingerprints_have_what_matters() -> None:
    """What is required, has a default, is open or excluded; those of other schemas are as ever."""

    def of(base: type[ItemSchema], **made: Any) -> str:
        return Resource("things", "thing", type("ThingSchema", (base,), made)).newest.fingerprint

    title = Text(0, 60, load_default="")  # as that of posts, whose schema is open
    found = [of(PostSchema), of(PostSchema, x=Whole()), of(PostSchema, x=Whole(required=True))]
    found += [of(ItemSchema, title=title), of(ThingSchema), of(BookSchema)]
    found += [of(PostSchema, x=Whole(load_default=None, allow_none=True))]
    assert len({*found}) == len(found)
    assert [each.partition("x")[2] for each in found] == ["", "", "", "", "123", "123", ""]
    assert StoredView(BOOKS).revision.of_server == ("id",)


@pytest.mark.needs("versions")
def test_older_versions_have_a_version_of_their_own(tmp_path: Path) -> None:
    """Also in items of the older revision, in what is imported, and without fields whose sunset is over."""
    config = Config(database_url=f"sqlite:///{tmp_path}/a.db")
    one = create_shop(config, [BOOKS]).test_client().post("/books", json={"title": "a", "version": "x"}).json
    books = Resource("books", "book", NewBookSchema, upgrades={2: [Rename("title", "name"), Add("stock")]})
    versions = Versions(
        Version("v1", revisions={"books": 1}),
        Version("v2"),
        unversioned="v2",
        deprecations=[
            Deprecation(field="books.updated_at", version="v1", since=date(2020, 1, 1), sunset=date(2021, 1, 1))
        ],
    )
    create_shop(config, [books], versions=versions, serves=False).test_cli_runner().invoke(args=["migrate"])
    app = create_shop(config, [books], versions=versions)
    client = app.test_client()
    path = f"books/{one['id']}"
    renamed = {"id": one["id"], "name": "a", "version": "x", "updated_at": 0, "stock": 0}
    assert client.get(f"/api/v2/{path}").json == renamed == client.get("/books").json[0]
    assert client.get(f"/api/v1/{path}").json == {name: one[name] for name in ("id", "title", "version")}
    made = client.post("/api/v2/books", json={"name": "b", "version": "2", "updated_at": 7}).json
    assert made == {"id": made["id"], "name": "b", "version": "2", "updated_at": 7, "stock": 0}
    assert client.patch(f"/api/v1/books/{made['id']}", json={"title": "c"}).json["version"] == "2"
    assert client.get(f"/api/v2/books/{made['id']}").json == {**made, "name": "c"}

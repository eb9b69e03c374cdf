"""A JSON file as a service: what of it is read and written, and that it stays the truth."""

import errno
import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import jsonschema
import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient

from restkeeper import LiveServer
from restkeeper.__main__ import main
from restkeeper.app import create_app
from restkeeper.config import Config
from restkeeper.features.files import FileOptions, application_of
from restkeeper.features.files.collections import declare
from restkeeper.features.files.content import FileError, key_of, parse
from restkeeper.features.files.file import SavedFile, exchange, read_file, say, stamp_of, write_file
from restkeeper.seams import take_part
from restkeeper.service import service_of
from restkeeper.storage.feed import last_event
from tests.json_file import BLOG, Server, client_of, running
from tests.live import ROOT, response_of
from tests.processes import children
from tests.refused import printed_by
from tests.waiting import SECONDS, until

pytestmark = pytest.mark.needs("events")


ROUTES = """
from flask import Blueprint
from restkeeper import needs
more = Blueprint("more", __name__)
blueprints = [more]
@more.get("/hello")
@needs("public")
def hello():
    return {"hello": "you"}
"""


def block(name: str) -> str:
    """A block of the page."""
    page = (ROOT / "docs" / "prototyping.md").read_text(encoding="utf-8")
    return page.partition(f"```{name}\n")[2].partition("```")[0]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("db.json", '{"a": [1,]}', "db.json:1:10: Expecting value: no comma comes after the last one"),
        ("db.json", "[]", "db.json:1:1: the file must be an object with a member for each collection"),
        ("db.json", '{"a": [{"id": "\udcff"}]}', "db.json:1:16: the text is not UTF-8"),
        ("db.json", '{"a\udcff": []}', "db.json:1:4: the text is not UTF-8"),
        ("db.json", '{"a": [{"b":\n' + "[" * 3000 + "]" * 3000 + "}]}", "db.json: nesting is deeper than 900 levels"),
        ("db.json", '{"a": [{"b":\n NaN}]}', "db.json:2:2: NaN is not a JSON number"),
        ("db.json", " \n", 'db.json:1:1: the file is empty: begin with {"posts": []}'),
        (
            "db.json",
            '{"a":\n [{"b": "\\ud83d\\ude00\\\\ud800\\uDbFF"}]}',
            "db.json:2:29: \\uDbFF is half of a character",
        ),
        ("db.json", '{"\\ud800\\u0041": []}', "db.json:1:3: \\ud800 is half of a character"),
        ("db.json", '{"a": {"x": 1, "b": 2}, "a": [{"id": 1}], "b": {"y": 1}}', "db.json:1:2: 'a' is there twice"),
        ("db.json", '{"a": 12, "a": 1}', "db.json:1:8: 'a' is there twice: rename or delete one"),
        (
            "db.json",
            '{"b": 12, "a": [],\n\n "b": {"y": 1}, "a": [{"id": 1}], "b": {"y": 1}}\n',
            "db.json:1:2: 'b' is there twice",
        ),
        (
            "db.json",
            '\ufeff{"a": [{"id": 2}], "a": [{"id": 1}], "b": "é", "b": {"y": 1}}',
            "db.json:1:3: 'a' is there twice",
        ),
        ("db.schema.json", '{\n "a": }', "db.schema.json:2:7: Expecting value"),
        ("db.schema.json", "[]", "db.schema.json: no JSON Schema of an object with properties"),
        (
            "db.schema.json",
            '{"properties": {"posts": {"items": {"properties": {"a": {}}, "required": 1}}}}',
            "posts: the schema is",
        ),
    ],
)
def test_a_file_that_cannot_be_served(tmp_path: Path, name: str, text: str, line: str) -> None:
    """The start ends with one line, which names the file and the place in it."""
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(SystemExit) as error:
        client_of(tmp_path, text if name == "db.json" else BLOG)
    assert str(error.value).startswith(f"restkeeper: {line}")
    assert "\n" not in str(error.value)


ODD = """{
  "n": 3,
  "tags": ["a", "b"],
  "mixed": [{"id": 1}, 2],
  "posts": [
    {"id": 1, "x": 1e999, "y": 99999999999999999999, "z": "\\u0000", "deep": DEEP},
    {"id": "1", "twice": 1},
    {"id": "a b/ü", "b": 1, "b": 2},
    {"id": 1.5},
    {"id": null, "c": 1},
    {"id": -3},
    {"none": true}
  ],
  "$comment": "left alone"
}
""".replace("DEEP", "[" * 250 + "]" * 250)


def test_every_valid_file_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What our JSON has not is served as it stands, what is not served stays, and items without an id have one."""
    served = serve(tmp_path, ODD)
    assert read_file(served.file).content.unserved == [
        "n is no array or object, and is not served",
        "tags has other values than objects, and can only be read",
        "mixed has other values than objects, and can only be read",
        "posts: of items with the same id the first is served; 1 after it are deleted with it",
    ]
    text = served.client.get("/posts").text
    assert '"x":1e999,"y":99999999999999999999,"z":"\\u0000","deep":[[' in text
    assert [each["id"] for each in json.loads(text)] == [1, "a b/ü", 1.5, "2", -3, "3"]
    for path, id in (("1", 1), ("1.5", 1.5), ("-3", -3), ("2", "2")):
        assert served.get(f"/posts/{path}")["id"] == id
    assert served.client.get("/n").status_code == 404
    assert served.file.read_text() == ODD
    assert served.client.patch("/posts/1", json={"x": 2}).status_code == 200
    changed = (
        ODD.replace("1e999", "2").replace('"id": null', '"id":"2"').replace('{"id":"2", "c": 1}', '{"id":"2","c":1}')
    )
    assert served.file.read_text() == changed.replace('{"none"', '{"id": "3", "none"')


def test_what_a_schema_does_not_name_is_served_as_it_stands(tmp_path: Path) -> None:
    """Also where our JSON refuses it; of what a schema names the fault is named."""
    data, schema = '{"a": [{"id": 1, "t": "x", "n": 99999999999999999999, "deep": {"b": 1e999}}]}', "db.schema.json"
    whole = '"n":99999999999999999999,"deep":{"b":1e999}}'
    assert client_of(tmp_path, data, strict=True).get("/a/1").text == f'{{"id":1,"t":"x",{whole}'
    named = {"t": {"type": "string"}}
    (tmp_path / schema).write_text(json.dumps({"properties": {"a": {"items": {"properties": named}}}}))
    assert client_of(tmp_path, data).patch("/a/1", json={"t": "y"}).text == f'{{"id":1,"t":"y",{whole}'
    named |= {"n": {"type": "number"}}
    (tmp_path / schema).write_text(json.dumps({"properties": {"a": {"items": {"properties": named}}}}))
    with pytest.raises(SystemExit, match="a/1: n must be an integer of 64 bits: change it, or the schema"):
        client_of(tmp_path, data)


def test_the_start_says_which_lists_are_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of more items or bytes than a list has; a Link has the next ones."""
    monkeypatch.setenv("DATABASE_URL", "memory://")  # as the command sets it
    said = "posts: a list has at most 10,000 items and 4 MiB: its Link has the next, and /db all"
    for count, size, is_cut in ((10_000, 1, False), (10_001, 1, True), (10, 430_000, True)):
        data = {"posts": [{"id": id, "t": "x" * size} for id in range(count)], "few": [{"id": 1}]}
        (file := tmp_path / "db.json").write_text(json.dumps(data))
        application_of(create_app, file, FileOptions())
        lines = capsys.readouterr().err.splitlines()
        assert [line for line in lines if "a list has" in line] == [f"  {said}"] * is_cut
        client = client_of(tmp_path, data)
        assert ('rel="next"' in client.get("/posts").headers["Link"]) is is_cut
        assert client.get("/posts?limit=10001").status_code == 400


def test_names_that_are_alike(tmp_path: Path) -> None:
    """In the file, and in the document of the service."""
    data = {
        "posts": [{"id": 1, "input": {"a": 1}, "author": {"b": 2}}],
        "post": {"a": 1},
        "post_authors": [{"id": 1, "input": {"c": 3}}],
        **dict.fromkeys(("post_fields", "pages", "indexes"), [{"id": 1}]),
    }
    client = client_of(tmp_path, data)
    assert {name: client.get(f"/{name}").json for name in data} == data
    schemas = client.get("/openapi.json").json["components"]["schemas"]
    assert [*schemas["PostsInput1"]["properties"], *schemas["PostAuthor"]["properties"]] == ["a", "id", "input"]


def test_what_is_too_wide(tmp_path: Path) -> None:
    """Of many fields, q searches a hundred."""
    client = client_of(tmp_path, {"a": [{"id": 1, **{f"f{number}": "x" for number in range(150)}}]})
    assert len(client.get("/a?q=x").json) == 1


@pytest.mark.parametrize("indent", ["  ", "    ", "\t", None])
def test_a_file_that_is_written_keeps_its_form(indent: str | None) -> None:
    """What is not changed stays as it was, byte for byte; new items are as the others."""
    text = json.dumps({"$schema": "x", **BLOG}, indent=indent) + "\n"
    content = parse(text.encode(), "db.json")
    assert b"".join(content.text()).decode() == text
    content.set("posts", key_of(3), b'{"id":3,"tags":["a",{}],"price":1.10}')
    content.set("posts", key_of(1), None)
    changed = {"$schema": "x", **BLOG, "posts": [BLOG["posts"][1], {"id": 3, "tags": ["a", {}], "price": 1.5}]}
    assert b"".join(content.text()).decode() == (json.dumps(changed, indent=indent) + "\n").replace("1.5", "1.10")


def test_what_is_not_changed_keeps_its_white_space() -> None:
    """Also what is uneven between the items of an array; a copy that was changed changes nothing here."""
    text = b'{"a": [ {"id":1},\n\n  {"id":2} ,{"id":3}\n], "none": [ ],\n\n "b": [{"id": 1}] }\n\n'
    content = parse(text, "db.json")
    content.copy(["a"]).set("a", key_of(4), b'{"id":4}')
    content.set("b", key_of(2), b'{"id":2}')
    assert b"".join(content.text()) == (text := text.replace(b"1}] }", b'1}, {"id": 2}] }'))
    content.set("a", key_of(4), b'{"id":4}')
    assert b"".join(content.text()) == (text := text.replace(b"3}\n", b'3},\n\n  {"id":4}\n'))
    content.set("a", key_of(2), None)
    assert b"".join(content.text()) == text.replace(b'{"id":2} ,', b"")


def test_a_changed_item_has_the_indentation_of_its_own() -> None:
    """Also where that of the file is uneven, and an id that is given is a line of its own."""
    text = b'{\n    "cars": [\n      {\n        "year": 2019\n      },\n      {\n        "year": 1\n      }\n    ]\n}\n'
    content = parse(text, "db.json")
    content.set("cars", key_of(1), b'{"id":1,"year":2020}')
    changed = text.replace(b'"year": 1\n', b'"id": 2,\n        "year": 1\n')
    changed = changed.replace(b'"year": 2019', b'"id": 1,\n        "year": 2020')
    assert b"".join(content.text()) == changed


def test_relations_are_found_by_names(tmp_path: Path) -> None:
    """Where all values are ids of the collection; the start says which, and which not."""
    data = {
        "people": [{"id": 1}],
        "categories": [{"id": "a"}],
        "things": [{"id": 1, "personId": 1, "category_id": "a", "boxId": 5}, {"id": 2, "personId": 1}],
        "parts": [{"id": 1, "thingId": 1, "valid": 2}, {"id": 2, "thingId": 9}, {"id": 3, "thingId": True}],
    }
    data["notes"] = [{"id": 1, "categoryId": None, "personId": None}]  # as after the deletion of what they referred to
    (file := tmp_path / "db.json").write_text(json.dumps(data))
    assert declare(read_file(file))[1] == [
        "things.personId → people",
        "things.category_id → categories",
        "parts.thingId: 2 of 3 values are no ids of things: no relation",
        "notes.categoryId → categories",
        "notes.personId → people",
    ]


class Served:
    """A file and its service in this process; a test looks at the file when it wants to."""

    def __init__(self, file: Path, *, saved: bool = True, restart: Mock | None = None, strict: bool = False) -> None:
        self.file, self.restart = file, restart or Mock()
        self.app = application_of(create_app, file, FileOptions(strict=strict), config=Config())
        self.saved = SavedFile(read_file(file), service_of(self.app), self.restart, saved=saved)
        take_part(service_of(self.app), self.saved.seams)
        self.client: FlaskClient = self.app.test_client()

    @property
    def data(self) -> Any:
        return json.loads(self.file.read_bytes())

    def edit(self, change: Callable[[Any], object]) -> None:
        data = self.data
        change(data)
        self.file.write_text(json.dumps(data))

    def get(self, path: str) -> Any:
        return self.client.get(path).json

    def run(self) -> None:
        """Look at the file twice: a line about what it has is printed when two looks have seen it."""
        self.saved.run_once()
        self.saved.run_once()


def serve(folder: Path, data: Any = BLOG, **options: Any) -> Served:
    """Serve a new file with this data, or this text."""
    (file := folder / "db.json").write_text(data if isinstance(data, str) else json.dumps(data, indent=2))
    return Served(file, **options)


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return serve(tmp_path)


TWINS = """{
  "posts": [
    {"title": "b", "id": 2},
    {"title": "a", "id": 1},
    {"title": "c", "id": "2"},
    {"title": "d", "id": 3}
  ],
  "comments": [
    {"text": "x", "postId": 2, "id": 1},
    {"text": "y", "postId": 3, "id": 1}
  ]
}
"""


@pytest.fixture(params=[True, False])
def twins(tmp_path: Path, request: pytest.FixtureRequest) -> Served:
    """A file in which ids come twice, whose changes are saved, or not."""
    return serve(tmp_path, TWINS, saved=request.param)


def test_a_deletion_deletes_all_with_its_id(twins: Served) -> None:
    """Also those that were never served."""
    assert twins.client.delete("/posts/2?_dependent=comments").json["title"] == "b"
    assert twins.get("/posts") == [{"title": "a", "id": 1}, {"title": "d", "id": 3}] and twins.get("/comments") == []
    assert twins.client.delete("/posts/2").status_code == 404
    twins.run()
    if twins.saved._is_saved:
        lines = TWINS.splitlines(keepends=True)
        assert twins.file.read_text() == "".join([*lines[:2], *lines[3:4], *lines[5:7], '  "comments": []\n}\n'])


def test_an_id_that_is_created_again_is_that_of_the_new_item(twins: Served) -> None:
    """In one transaction with its deletion: the last one, in the place of all that had this id."""
    operations = [
        {"method": "DELETE", "path": "/posts/2"},
        {"method": "POST", "path": "/posts", "body": {"title": "new", "id": 2}},
    ]
    assert twins.client.post("/_/batch", json={"operations": operations}).status_code == 200
    twins.run()
    assert [each["title"] for each in twins.get("/posts")] == ["a", "d", "new"]
    if twins.saved._is_saved:
        assert [each["title"] for each in twins.data["posts"]] == ["a", "d", "new"]


def test_an_edit_after_a_deletion(twins: Served) -> None:
    """No item of the file is doubled, or there again."""
    twins.client.delete("/posts/2")
    data = json.loads(TWINS if not twins.saved._is_saved else twins.file.read_text())
    data["posts"].append({"title": "e", "id": 5})
    twins.file.write_text(json.dumps(data))
    twins.run()
    assert [each["title"] for each in twins.get("/posts")] == ["a", "d", "e"]


@pytest.mark.parametrize("is_last", [True, False])
def test_an_id_that_is_not_sent_is_where_the_others_are(tmp_path: Path, *, is_last: bool) -> None:
    """Of a new item, also in an array that was empty, of one that is replaced, and after an edit that turns all."""

    def posts(is_last: bool) -> list[Any]:
        return [{"a": 1, "id": 7, "b": 2} if is_last else {"id": 7, "a": 1, "b": 2}]

    served = serve(tmp_path, {"posts": posts(is_last), "empty": []})
    for turned in (is_last, not is_last):
        expected = ["a", "b", "id"] if turned else ["id", "a", "b"]
        for method, path in (("POST", "/posts"), ("POST", "/empty"), ("PUT", "/posts/7")):
            assert list(served.client.open(path, method=method, json={"b": 1, "a": 2}).json) == expected, path
        assert [*map(list, served.data["posts"] + served.data["empty"])] == [expected] * 3
        served.file.write_text(json.dumps({"posts": posts(not turned), "empty": []}))
        served.run()


def test_changes_are_written(served: Served) -> None:
    """Before they are answered; the file keeps its mode, and a link to it stays one."""
    served.file.chmod(0o640)
    real = served.file.rename(served.file.with_name("real.json"))
    served.file.symlink_to(real.name)
    assert served.client.post("/posts", json={"title": "New", "views": 1, "more": {"a": 1}}).status_code == 200
    assert served.client.patch("/posts/1", json={"views": 101}).status_code == 200
    assert served.client.delete("/posts/2").status_code == 200
    assert served.client.patch("/profile", json={"name": "other"}).status_code == 200
    assert served.data == {
        "posts": [
            {"id": 1, "title": "Hello", "views": 101},
            {"id": 3, "title": "New", "views": 1, "more": {"a": 1}},
        ],
        "comments": BLOG["comments"],
        "profile": {"name": "other"},
    }
    assert served.file.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    before = stamp_of(real)
    served.run()
    assert stamp_of(real) == before


def test_edits_are_served(served: Served) -> None:
    """As changes of items, with events; the file is left as the editor has written it."""
    tag = served.client.get("/posts/1").headers["ETag"]
    served.edit(lambda data: data["posts"][0].update(views=7))
    served.edit(lambda data: data["comments"].append({"id": "b2", "text": "x", "postId": 2}))
    text = served.file.read_bytes()
    served.run()
    assert served.get("/posts/1")["views"] == 7
    assert served.get("/comments/b2")["text"] == "x"
    assert served.client.get("/posts/1").headers["ETag"] != tag
    assert [each["type"] for each in served.get("/api/v1/events")] == ["post.updated", "comment.created"]
    served.run()
    assert served.file.read_bytes() == text
    assert not served.restart.called


def test_an_edit_can_make_a_text_of_an_id(served: Served) -> None:
    """And a number: what the service writes then has it, too. It is the same item."""
    for id in ("1", 1):
        served.edit(lambda data, id=id: data["posts"][0].update(id=id))
        served.run()
        assert served.get("/posts/1")["id"] == id
        assert served.client.patch("/posts/1", json={"views": 7}).json == served.data["posts"][0]
        assert served.data["posts"][0]["id"] == id
    assert not served.restart.called


def test_without_saving_an_edit_changes_what_was_edited(tmp_path: Path) -> None:
    """What requests have changed stays as it is until it is edited, and the file as the editor has it."""
    served = serve(tmp_path, saved=False)
    assert served.client.patch("/posts/1", json={"views": 5}).status_code == 200
    served.run()
    served.edit(lambda data: data["posts"][1].update(views=6))
    text = served.file.read_bytes()
    served.run()
    assert [each["views"] for each in served.get("/posts")] == [5, 6]
    assert served.file.read_bytes() == text
    served.edit(lambda data: data["posts"][0].update(views=7))
    served.run()
    assert served.get("/posts/1")["views"] == 7


def test_while_a_file_is_no_json_nothing_changes(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Reads go on; a request that writes says where the file is wrong, and so does one line."""
    good = served.file.read_text()
    served.file.write_text(good[:-3])
    for _ in range(4):
        served.run()
    assert served.get("/posts") == BLOG["posts"]
    refused = served.client.delete("/posts/2")
    assert (refused.status_code, refused.json["code"]) == (503, "unavailable")
    assert refused.json["detail"].startswith("db.json:23:")
    assert served.client.delete("/posts/9").status_code == 404
    assert served.get("/posts") == BLOG["posts"]
    assert served.file.read_text() == good[:-3]
    assert capsys.readouterr().err.count("db.json:23:") == 1
    served.file.write_text(good)
    assert served.client.delete("/posts/2").status_code == 200
    assert served.data["posts"] == served.get("/posts") == BLOG["posts"][:1]


CLEARING = """
def declare(resources):
    @resources["posts"].action("clear")
    def clear(post, store):
        store.delete("profile", "profile")
        return post
"""


def test_a_single_item_that_is_deleted_stays_in_the_file(tmp_path: Path) -> None:
    """By a function of routes.py: without it, the next start would not know it."""
    (tmp_path / "routes.py").write_text(CLEARING)
    served = serve(tmp_path)
    assert served.client.post("/posts/1/clear").status_code == 200
    assert served.data == {**BLOG, "profile": {}}
    assert served.client.put("/profile", json={"name": "again"}).status_code == 200
    assert served.data["profile"] == {"name": "again"}


@pytest.mark.needs("batch")
def test_what_is_undone_moves_no_item(served: Served) -> None:
    """Also if another request is committed with it."""
    batch = {"operations": [{"method": "DELETE", "path": f"/posts/{id}"} for id in (1, "none")]}
    requests = ("POST", "/api/v1/batch", batch), ("PATCH", "/profile", {"name": "other"})
    writer = cast(Any, service_of(served.app).store)._writer
    with ThreadPoolExecutor(2) as pool:
        with writer.exclusively():
            sent = []
            for method, path, body in requests:
                sent.append(pool.submit(served.app.test_client().open, path, method=method, json=body))
                until(lambda: len(writer._queue) == len(sent))
        assert [each.result().status_code for each in sent] == [404, 200]
    assert served.data["profile"] == {"name": "other"} and served.data["posts"] == BLOG["posts"]


@pytest.mark.needs("batch")
def test_what_one_commit_creates_is_in_the_order_of_the_store(served: Served) -> None:
    """Also what is deleted and created again, and what is changed after others are created."""
    views = {"title": "x", "views": 1}
    operations = [
        {"method": "DELETE", "path": "/posts/1"},
        *({"method": "POST", "path": "/posts", "body": {"id": id, **views}} for id in (8, 1, 9)),
        {"method": "PATCH", "path": "/posts/8", "body": {"title": "y"}},
    ]
    assert served.client.post("/api/v1/batch", json={"operations": operations}).status_code == 200
    assert [each["id"] for each in served.get("/posts")] == [2, 8, 1, 9]
    assert served.get("/posts") == served.data["posts"]


def test_an_edit_of_the_order_is_served(served: Served) -> None:
    """Items that were moved, and new ones between others, with no events but those of what was changed."""
    last = last_event(service_of(served.app).store)
    served.edit(lambda data: data["posts"].reverse())
    served.run()
    assert served.get("/posts") == served.data["posts"] == BLOG["posts"][::-1]
    assert last_event(service_of(served.app).store) == last
    served.edit(lambda data: data["posts"].insert(1, {"id": 9, "title": "Between", "views": 1}))
    served.edit(lambda data: data["posts"].insert(0, {"id": 7, "title": "First", "views": 1}))
    served.run()
    assert [each["id"] for each in served.get("/posts")] == [7, 2, 9, 1]
    assert served.client.post("/posts", json={"title": "Last", "views": 1}).json["id"] == 10
    served.run()
    assert [each["id"] for each in served.data["posts"]] == [7, 2, 9, 1, 10]
    assert served.get("/posts") == served.data["posts"]


def test_an_item_that_is_stored_again_is_the_last(served: Served) -> None:
    """As in the file, also of the items that are new in it."""
    for method, path in (("DELETE", "/posts/1"), ("POST", "8"), ("DELETE", "/posts/8"), ("POST", "9"), ("POST", "8")):
        new = {"title": "New", "views": 1}
        if method == "DELETE":
            assert served.client.delete(path).status_code == 200
        else:
            assert served.client.post("/posts", json={**new, "id": int(path)}).status_code == 200
    assert served.client.post("/posts", json={**new, "id": 1}).status_code == 200
    served.run()
    assert [each["id"] for each in served.get("/posts")] == [2, 9, 8, 1]
    assert served.get("/posts") == served.data["posts"]


def test_an_edit_just_before_the_write_is_not_overwritten(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write sees that the file is another one, and is done again on it."""

    def edit_first(*arguments: Any) -> Any:
        monkeypatch.undo()
        served.edit(lambda data: data["posts"][1].update(views=8))
        return write_file(*arguments)

    monkeypatch.setattr("restkeeper.features.files.file.write_file", edit_first)
    assert served.client.patch("/posts/1", json={"views": 101}).status_code == 200
    assert [post["views"] for post in served.data["posts"]] == [101, 8]
    assert served.get("/posts") == served.data["posts"]


def replacing(file: Path, text: str) -> None:
    """Write a file as many editors do: another one gets its name."""
    (new := file.with_name("db.json.new")).write_text(text)
    new.rename(file)


@pytest.mark.parametrize("is_exchanged", [True, False])
@pytest.mark.parametrize("save", [Path.write_text, replacing])
def test_an_edit_at_the_moment_of_the_write_is_kept_beside(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], save: Any, is_exchanged: bool
) -> None:
    """After the last look at the file; a line names where it is. Without the exchange of Linux, if it is in place."""
    edited = {**BLOG, "profile": {"name": "edited"}}

    def edit_first(*files: Path) -> bool:
        save(served.file, json.dumps(edited))
        return is_exchanged and exchange(*files)

    monkeypatch.setattr("restkeeper.features.files.file.exchange", edit_first)
    assert served.client.patch("/posts/1", json={"views": 101}).status_code == 200
    assert served.data == {**BLOG, "posts": [{**BLOG["posts"][0], "views": 101}, BLOG["posts"][1]]}
    files = {each.name: json.loads(each.read_bytes()) for each in served.file.parent.iterdir()}
    is_kept = is_exchanged or save is Path.write_text
    assert files == {"db.json": served.data} | ({"db.json.edited": edited} if is_kept else {})
    assert ("what was saved at the moment of a write is in db.json.edited\n" in capsys.readouterr().err) is is_kept


def test_an_edit_deletes_what_others_refer_to(served: Served) -> None:
    """They stay as they are in the file; a request that deletes it sets them to null."""
    served.edit(lambda data: data["posts"].pop(0))
    served.run()
    assert served.get("/comments") == BLOG["comments"] == served.data["comments"] and len(served.get("/posts")) == 1
    served.edit(lambda data: data["comments"][0].update(postId="2"))
    assert served.client.delete("/posts/2").status_code == 200
    assert served.get("/comments/a1")["postId"] is None is served.data["comments"][0]["postId"]


@pytest.mark.parametrize(
    ("name", "former", "edited"),
    [
        ("albums", None, []),
        ("profile", {"name": "x"}, []),
        ("tags", ["a"], [{"id": 1}]),
        ("tags", [{"id": 1}], ["a"]),
        ("tags", ["a"], []),
    ],
)
def test_an_edit_that_fits_no_more_begins_anew(tmp_path: Path, name: str, former: Any, edited: Any) -> None:
    """Nothing of it is served before that; what was changed before is saved, and nothing is changed until then."""
    served = serve(tmp_path, {**BLOG, name: former} if former else BLOG)
    assert served.client.post("/posts", json={"title": "New", "views": 1}).status_code == 200
    items = served.get("/posts")
    served.edit(lambda data: data.update({name: edited}))
    served.run()
    served.restart.assert_called_once_with("it has other names")
    assert served.saved.is_over and served.get("/posts") == items
    refused = served.client.post("/posts", json={"title": "New", "views": 1})
    assert (refused.status_code, "the service starts again" in refused.json["detail"]) == (503, True)
    assert len(served.data["posts"]) == 3
    assert {name: Served(served.file).get(f"/{name}") for name in served.data} == served.data


def test_an_edit_that_is_taken_back_leaves_nothing(tmp_path: Path) -> None:
    """Nor does a bad file, which is as it was again."""
    served = serve(tmp_path, restart=Mock(side_effect=FileError("no")), strict=True)
    text, stamp = served.file.read_bytes(), stamp_of(served.file)
    served.edit(lambda data: [each.update(views=9) for each in data["posts"]] and data["posts"][1].update(title="a\0"))
    for _ in range(2):
        served.run()
    assert [each["views"] for each in served.get("/posts")] == [100, 200]
    assert served.client.patch("/posts/1", json={"views": 5}).status_code == 503
    served.file.write_bytes(text)
    os.utime(served.file, ns=(stamp[0], stamp[0]))  # as `mv` leaves it
    assert served.client.patch("/posts/1", json={"views": 5}).status_code == 200
    assert [each["views"] for each in served.data["posts"]] == [5, 200]


def test_a_file_that_was_deleted_is_written_again(served: Served) -> None:
    """With the mode that it had."""
    served.file.chmod(0o640)
    served = Served(served.file)
    served.file.unlink()
    assert served.client.delete("/posts/1").status_code == 200
    assert len(served.data["posts"]) == 1 and served.file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, 507), (errno.EACCES, 503)])
def test_a_write_that_fails_is_undone(
    served: Served, monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    """As on a full disk; in memory, too, and nothing is left beside the file."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", Mock(side_effect=OSError(number, "no")))
        assert served.client.delete("/posts/1").status_code == status
    assert served.data == BLOG and served.get("/posts") == BLOG["posts"]
    assert [each.name for each in served.file.parent.iterdir()] == ["db.json"]
    assert served.client.delete("/posts/1").status_code == 200
    assert len(served.data["posts"]) == 1


def test_the_schema_of_a_file(tmp_path: Path) -> None:
    """Its schema, which admits it."""
    file = tmp_path / "db.json"
    file.write_text(json.dumps(BLOG))
    run = CliRunner()
    schema = run.invoke(main, ["schema", str(file)]).output
    jsonschema.validate(BLOG, json.loads(schema))
    (tmp_path / "db.schema.json").write_text(schema)
    assert Served(file).get("/posts") == BLOG["posts"]
    file.write_text("[]")
    assert run.invoke(main, ["schema", str(file)]).output.startswith("Error: db.json:1:1: the file must be an object")


def schema_of(*required: str, **properties: Any) -> str:
    """A schema beside a file, of pets that have a name and these properties."""
    item = {"properties": {"name": {"type": "string"}, **properties}, "required": required}
    return json.dumps({"properties": {"pets": {"items": item}}})


def test_the_schema_of_a_running_service_is_edited(tmp_path: Path) -> None:
    """If items of the file do not fit it, the former one is used."""
    file, beside = tmp_path / "db.json", tmp_path / "db.schema.json"
    file.write_text('{"pets": [{"id": 1, "name": "Rex"}]}')
    beside.write_text(schema_of())
    with running(file) as server:
        assert server.send("POST", "/pets", {"name": 1}).status == 422
        beside.write_text(schema_of("kind", kind={"type": "string"}))
        until(lambda: "pets/1: kind " in server.lines and "schema: the former schema is used" in server.lines)
        beside.write_text("{")
        until(lambda: "db.schema.json:1:2: " in server.lines)
        assert server.send("POST", "/pets", {"name": "Eve"}).status == 200
        beside.write_text(schema_of(name={"type": ["string", "integer"]}))
        until(lambda: "its schema was edited: the service starts again" in server.lines)
        until(lambda: server.has("/pets/2"))


def test_a_kill_while_it_starts_again_loses_nothing(tmp_path: Path) -> None:
    """After an edit of the schema, at any moment of the new start."""
    file, beside, answered = tmp_path / "db.json", tmp_path / "db.schema.json", set[int]()
    file.write_text('{"pets": []}')
    for _ in range(3):
        with running(file) as server:
            assert {each["id"] for each in server.send("GET", "/pets").json()} >= answered
            beside.write_text(schema_of(**{f"f{len(answered)}": {"type": "string"}}))
            while "starts again" not in server.lines:
                with suppress(OSError, HTTPException):
                    answered.add(server.send("POST", "/pets", {"name": "x"}).json().get("id", 0))
            answered.discard(0)
            server.end(signal.SIGKILL)
    with running(file) as server:
        assert {each["id"] for each in server.send("GET", "/pets").json()} >= answered


def test_a_file_in_the_harness(tmp_path: Path) -> None:
    """Each space begins with what the file has, and the file stays as it is."""
    file = tmp_path / "db.json"
    file.write_text(json.dumps(BLOG))
    with LiveServer(file, in_process=True) as server:
        with server.space() as one, server.space(seed={"posts": [{"title": "x", "views": 1}]}) as other:
            assert one.client.delete("/posts/1").status_code == 200
            one.reset()
            assert one.client.get("/posts").json == BLOG["posts"]
            assert len(other.client.get("/posts").json) == 3
    assert json.loads(file.read_bytes()) == BLOG


def test_what_is_beside_the_file(tmp_path: Path) -> None:
    """The folder public, without what is hidden or elsewhere, and routes.py."""
    data, public = block("log db.json"), tmp_path / "public"
    (public / "app").mkdir(parents=True)
    (public / "app" / "index.html").write_text("<p>app")
    (public / ".env").write_text("secret")
    (public / "posts").write_text("shadowed")
    (public / "link").symlink_to(tmp_path / "db.json")
    (public / "loop").symlink_to("loop")
    (public / "dotted").symlink_to(".env")
    (tmp_path / "routes.py").write_text(f"{block('python routes.py')}\n{ROUTES}")
    client = client_of(tmp_path, data, read_only=True, strict=True)
    page = client.get("/app/", buffered=True)
    assert page.text == "<p>app"
    assert client.get("/app/", headers={"If-None-Match": page.headers["ETag"]}, buffered=True).status_code == 304
    for path in ("/.env", "/link", "/../db.json", "/nothing", "/loop", "/dotted", "/app/index.html/"):
        assert client.get(path).status_code == 404, path
    assert client.get("/posts").json == BLOG["posts"]
    assert client.get("/hello").json == {"hello": "you"}
    for path in ("/posts", "/posts/1/like"):
        refused = client.post(path, json={"title": "x", "views": 1})
        assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert client_of(tmp_path, data).post("/posts/1/like").json["views"] == 101


def test_faults_that_are_asked_for(tmp_path: Path) -> None:
    """Of all requests, so many; the others wait."""
    client = client_of(tmp_path, BLOG, fail=0.5, delay=(0.001, 0.002))
    statuses = {client.get("/posts").status_code for _ in range(60)}
    assert statuses == {200, 503}


def test_a_killed_server_loses_nothing(tmp_path: Path) -> None:
    """What was answered is in the file, which is never half of one, and nothing else stays in its folder."""
    file = tmp_path / "db.json"
    file.write_text(json.dumps(BLOG, indent=2))
    with running(file) as server:
        assert "comments.postId → posts" in server.lines
        for number in range(30):
            assert server.send("POST", "/posts", {"title": f"New {number}", "views": number}).status == 200
        assert server.send("PATCH", "/posts/1", {"views": 101}).status == 200
        other = Server(file)
        assert other.process.wait(timeout=SECONDS)
        assert "restkeeper: db.json is served already, by another program: add --no-save" in other.lines
        server.end(signal.SIGKILL)
    posts = json.loads(file.read_bytes())["posts"]
    assert len(posts) == 32 and posts[0]["views"] == 101
    for end in ("tmp", "former"):
        file.with_name(f".db.json.{end}").write_text("half of one")
    with running(file) as server:
        assert server.send("GET", "/posts").json() == posts
        assert server.send("POST", "/posts", {"title": "Last", "views": 1}).status == 200
    assert json.loads(file.read_bytes())["posts"][-1]["title"] == "Last"
    assert [each.name for each in tmp_path.iterdir() if each.name != "db.log"] == ["db.json"]


FAILING = """
from pathlib import Path
from restkeeper.features.files.file import SavedFile
run_once = SavedFile.run_once
def fail(saved):
    if (failing := Path("failing")).exists():
        failing.unlink()
        raise RuntimeError("unforeseen")
    run_once(saved)
SavedFile.run_once = fail
"""


def test_an_unforeseen_error_does_not_end_the_writing(tmp_path: Path) -> None:
    """The log has it, and the next look is another attempt."""
    file, failing = tmp_path / "db.json", tmp_path / "failing"
    file.write_text(json.dumps(BLOG))
    (tmp_path / "routes.py").write_text(FAILING)
    with running(file) as server:
        failing.touch()
        until(lambda: not failing.exists())
        until(lambda: server.has("/posts"))
        assert server.send("DELETE", "/posts/1").status == 200
        until(lambda: json.loads(file.read_bytes())["posts"] == BLOG["posts"][1:])
        assert server.lines.count("RuntimeError: unforeseen") == 1


def test_edits_of_a_running_service(tmp_path: Path) -> None:
    """They are served soon, also those that let it start again; with --no-save, nothing is written."""
    file = tmp_path / "db.json"
    file.write_text(json.dumps({**BLOG, "tags": ["a"]}))
    with running(file, "--no-save", "--delay", "1-2") as server:
        assert server.send("DELETE", "/comments/a1").status == 200
        file.write_text(json.dumps({**BLOG, "profile": {"name": "edited"}, "tags": ["a", 2]}))
        until(lambda: server.send("GET", "/profile").json() == {"name": "edited"})
        assert (server.send("GET", "/comments").json(), server.send("GET", "/tags").json()) == ([], ["a", 2])
        file.write_text(text := json.dumps({**BLOG, "albums": [{"title": "x"}]}))
        until(lambda: server.has("/albums"))
        assert server.send("GET", "/albums").json() == [{"id": 1, "title": "x"}]
        assert file.read_text() == text


def test_a_restart_loses_nothing(tmp_path: Path) -> None:
    """What requests change while an edit makes the service start again is written by the next start."""
    file = tmp_path / "db.json"
    file.write_text(json.dumps(BLOG))
    with running(file) as server:
        answered, data = 0, dict(BLOG)
        for name in ("albums", "photos"):
            data = json.loads(file.read_bytes()) | {name: [{"id": "x1", "title": "x"}]}
            written = file.with_suffix(".new")
            written.write_text(json.dumps(data))
            written.replace(file)
            while not server.has(f"/{name}/x1"):
                with suppress(OSError, HTTPException):
                    answered += server.send("POST", "/comments", {"text": "x", "postId": 1}).status == 200
        items = server.send("GET", "/comments").json()
        assert len(items) > answered
        until(lambda: json.loads(file.read_bytes())["comments"] == items)


def test_what_is_printed_of_a_file_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say("db.json: 1 posts", "posts.a\n\x1b[31m: é → b")
    assert capsys.readouterr().err == "db.json: 1 posts\n  posts.a\\n\\x1b[31m: é → b\n"


WRONG = """
def declare(resources):
    @resources["posts"].action("Like")
    def like(post): ...
"""


REFUSED = [  # a routes.py, and the line
    ("import os\nBlueprint('a')", "routes.py:2: NameError: name 'Blueprint' is not defined"),
    ("def declare(", "routes.py:1: SyntaxError: '(' was never closed"),
    (WRONG, "routes.py:3: posts: action('Like'): must be a new name"),
    (WRONG.replace("posts", "post"), "routes.py:3: KeyError: 'post'"),
    ("declare = 5", "routes.py: declare=5: must be a function of the resources, by name"),
    ("blueprints = [5]", "routes.py: blueprints=[5]: must be a list of blueprints of Flask"),
]


def test_routes_that_cannot_be(tmp_path: Path) -> None:
    """A start ends with one line."""
    commands = []
    for number, (text, _) in enumerate(REFUSED):
        (folder := tmp_path / str(number)).mkdir()
        (folder / "db.json").write_text(json.dumps(BLOG))
        (folder / "routes.py").write_text(text)
        commands.append((folder, "--port", "0", "db.json"))
    found = zip(printed_by(commands), [f"restkeeper: {line}" for _, line in REFUSED], strict=True)
    assert [(lines, line) for lines, line in found if len(lines) != 1 or not lines[0].startswith(line)] == []


def test_a_request_that_fails_moves_nothing(served: Served) -> None:
    """What it had deleted before stays where it is."""
    operations = [{"method": "DELETE", "path": "/posts/1"}, {"method": "PATCH", "path": "/posts/99", "body": {}}]
    assert served.client.post("/_/batch", json={"operations": operations}).status_code == 404
    assert served.client.patch("/posts/1", json={"b": 1}).status_code == 200
    assert [each["id"] for each in served.data["posts"]] == [1, 2] == [each["id"] for each in served.get("/posts")]


def test_a_file_that_is_written_in_place(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is mounted: it stays the same file, and as it was if there is no space."""
    served.saved.in_place = True
    number = served.file.stat().st_ino
    assert served.client.patch("/posts/1", json={"title": "x" * 1000}).status_code == 200
    assert served.client.delete("/posts/2").status_code == 200
    assert served.data["posts"] == served.get("/posts") and served.file.stat().st_ino == number
    text = served.file.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", Mock(side_effect=OSError(errno.ENOSPC, "no space")))
        assert served.client.patch("/posts/1", json={"title": "x" * 2000}).status_code == 507
        patched.setattr(os, "fsync", Mock(side_effect=[OSError(errno.EIO, "broken"), None]))
        assert served.client.patch("/posts/1", json={"title": "y"}).status_code == 503
    assert served.file.read_bytes() == text
    assert served.client.patch("/posts/1", json={"title": "y"}).status_code == 200


def test_a_link_to_itself_is_no_file(served: Served) -> None:
    """Reads go on."""
    served.file.unlink()
    served.file.symlink_to(served.file.name)
    assert served.client.patch("/posts/1", json={"views": 5}).status_code == 503
    assert served.get("/posts") == BLOG["posts"]


def test_another_service_of_the_file_has_the_same_connections(tmp_path: Path) -> None:
    """One that has its new names; reads go on all the time, also while the file is not valid."""
    file = tmp_path / "db.json"
    file.write_text(json.dumps(BLOG))
    with running(file) as server, closing(HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)) as connection:
        process = server.process.pid

        def read(path: str) -> int:
            connection.request("GET", path)
            return response_of(connection).status

        file.write_text(json.dumps({**BLOG, "more": []}))
        while "starts again" not in server.lines:
            assert read("/posts") == 200
        assert read("/more") == 200 == read("/posts")
        file.write_text('{"posts": [}')
        until(lambda: "db.json:1:12: " in server.lines)
        assert read("/posts") == 200
        file.write_text(json.dumps({**BLOG, "more": [{"id": 1}]}))
        until(lambda: read("/more/1") == 200)
        assert children(process) == []

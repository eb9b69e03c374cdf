"""A file's collections become the modules of a service; an OpenAPI document becomes collections."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from click.testing import CliRunner

from restkeeper import LiveServer, exactjson
from restkeeper.__main__ import main
from restkeeper.cli.new import write_service
from restkeeper.features.files.collections import Declared, resources_of
from restkeeper.features.files.eject import eject
from restkeeper.features.files.jsonschema import Shape
from tests.live import ROOT
from tests.waiting import SECONDS

DB: dict[str, Any] = {
    "posts": [
        {"id": 2, "title": "Other", "views": 1.50, "class": "x", "author": {"zip-code": "1", "at": {"x": 1}}},
        {"id": 9007199254740993, "version": 3, "title": "One", "tags": ["a"], "Meta": None, "first-name": "Ada"},
    ],
    "blog comments": [
        {"id": "a1", "postId": 2, "body": "x" * 20_000, "made": "2026-01-31T12:00:00Z"},
        {"id": "b", "postId": 9007199254740993, "body": "y", "made": "2026-01-31T12:00:00Z"}
        | {"fields": {"text": True, "__v": 1}, "a_b": {"c": 1}, "aB": {"c": "x"}},
    ],
    "events": {"name": "typicode", "site": "https://example.org", "mail": "a@example.org", "day": "2026-01-31"},
}
REFERENCES = {"blog comments": {"postId": "posts"}}


def shape_of(items: list[Any]) -> Shape:
    """The shape of some items."""
    shape = Shape()
    for each in items:
        shape.add(exactjson.loads(json.dumps(each)))
    return shape


def test_the_service_of_a_file_returns_what_the_file_has(tmp_path: Path) -> None:
    """Its tests pass, which are about that."""
    items = {name: each if isinstance(each, list) else [each] for name, each in DB.items()}
    declared = {
        name: Declared(
            shape_of(each).schema(),
            "singleton" if isinstance(DB[name], dict) else "client" if name == "blog comments" else "client-integer",
            REFERENCES.get(name, {}),
        )
        for name, each in items.items()
    }
    open_ones, closed = resources_of(declared, []), resources_of(declared, [], strict=True)
    resources = [*open_ones[:2], closed[2]]
    texts = {name: [json.dumps(each).encode() for each in found] for name, found in items.items()}
    write_service(tmp_path / "blog", None, lambda folder: eject(folder, resources, texts, tmp_path / "routes.py"))
    require_passing(tmp_path / "blog")


def require_passing(folder: Path) -> None:
    """Run the tests of a service, as its `make test`; all of them pass."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "restkeeper.pytest_plugin", "-p", "no:cacheprovider"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, "skipped" in done.stdout) == (0, False), done.stdout + done.stderr


VARIED: dict[str, Any] = {
    "posts": [{"id": 1, "t": "a"}, {"id": "a1b2", "t": None}, {"id": 3.5}, {"id": -4}, {"id": "x y"}, {"id": "a/b"}],
    "comments": [{"id": 1, "postId": 1}, {"id": 2, "postId": "a1b2"}, {"id": 3, "postId": None}, {"id": 4}],
    "tags": [{"id": 1}, {"id": 2, "postId": "gone"}, {"t": "no id"}],
    "labels": [{"id": "l1", "tagId": "1"}, {"id": "l2", "tagId": 2, "labelId": "l2"}, {"id": "l3", "labelId": "l1"}],
    "größen": [{"id": 1, "größe": 1, "日本": {"a b": None, "class": 1, "": 2}}, {"id": 2, "first-name": "x", "_v": 0}],
    "keys": [{"id": 1, "class": "c", "version": "v", "created_at": 1, "fields": 2, "blog-postId": 1}],
    "blog-posts": [
        {"id": 1, "v": 1},
        {"id": 2, "v": "one"},
        {"id": 3, "v": [1, {"a": None}]},
        {"id": 4, "v": {"b": 1}},
    ],
    "users": [{"id": 7, "mail": "BOB@EXAMPLE.ORG", "day": "2000-02-29", "at": "2026-01-31t12:00:00.5+02:00"}],
    "numbers": [{"id": 2**63 - 1, "n": 0.1}, {"id": 2**63, "n": 1}, {"id": 0, "n": 1e300}, {"id": 4, "n": -5}],
    "large": [{"id": 1, "t": "x" * 140_000}],
    "empty": [],
    "none": {},
    "single": {"id": 7, "dark": True, "version": 2},
}
OPTIONS = "--login users --routes db.json --delay 300-800 --fail 5% --static public --ro --no-save -p 80 -H x".split()


def test_a_varied_file_is_a_service_whose_tests_pass(tmp_path: Path) -> None:
    """They create, read, change and delete its items. All that is left out, or is another one there, has a line."""
    (file := tmp_path / "db.json").write_text(json.dumps(VARIED))
    (tmp_path / "public").mkdir()
    run = CliRunner().invoke(main, ["eject", str(file), str(folder := tmp_path / "blog"), *OPTIONS])
    assert run.exit_code == 0, run.output
    left = "items are left out, which a service refuses; the first is"
    instead = [f"left out: {option}: " for option in ("--login", "--routes", "--static", "--delay", "--fail", "public")]
    instead += [f"left out: {option}: " for option in ("--read-only", "--no-save", "--port", "--host")]
    for line in (
        f"posts: 2 {left} x y: #/id must be 1 to 64 of ",
        f"numbers: 1 {left} {2**63}: the number {2**63} is out of range",
        f"large: 1 {left} 1: the item would have 140",
        "tags: items without an id get one",
        "tags.postId: 1 of 1 values are no ids of posts: no relation",
        "keys.blog-postId: no relation, as its schema has no field of this name",
        "posts.id: 3 values are texts there, as other ids are",
        "comments.postId: 1 values are texts there, as other ids are",
        "labels.tagId: 1 values are numbers there, as other ids are",
        *instead,
    ):
        assert f"\n  {line}" in run.output, run.output
    require_passing(folder)


def test_a_strict_file_is_a_strict_service(tmp_path: Path) -> None:
    """Its relations can have another suffix."""
    data = {"posts": [{"id": 1, "title": "x"}], "comments": [{"id": 1, "post_ref": 1}], "profile": {"name": "x"}}
    (file := tmp_path / "db.json").write_text(json.dumps(data))
    options = ["--strict", "--fks", "_ref"]
    run = CliRunner().invoke(main, ["eject", str(file), str(folder := tmp_path / "blog"), *options])
    assert run.exit_code == 0 and "nothing is required" not in run.output, run.output
    imported = " ".join(f"{name} storage/samples/{name}.ndjson" for name in ("comments", "posts", "profile"))
    assert run.output.endswith(f"Next: cd {folder} && restkeeper import {imported} && restkeeper serve\n")
    assert "title = AnyText(required=True)" in (folder / "schemas/post.py").read_text()
    assert "post_ref = IntegerReference(" in (folder / "schemas/comment.py").read_text()
    require_passing(folder)


ROUTES = """
from flask import Blueprint
from restkeeper import find_items, needs

more = Blueprint("more", __name__)
blueprints = [more]

@more.get("/titles")
@needs("public")
def titles():
    return [each["title"] for each in find_items("posts", {"views[gte]": 20})]

def declare(resources):
    @resources["posts"].action("like")
    def like(post, store):
        return {**post, "views": post["views"] + 1}
"""
LISTS = ("", "?sort=-views,id", "?views[gte]=20&limit=120", "?_sort=views&_order=desc&_start=5&_end=140", "?q=post+11")
PATHS = [
    *(f"/posts{each}" for each in LISTS),
    *("/posts?_embed=comments&views=7", "/posts/3?_embed=comments", "/posts/3/comments", "/posts/150", "/titles"),
    *("/posts?_expand=comment&_limit=3", "/comments/c9/comments", "/comments", "/comments/c149", "/profile"),
    *("/comments?_expand=post&_limit=20", "/comments?postId=3&sort=-id&embed=post"),
]


def test_requests_have_the_same_responses_before_and_after(tmp_path: Path) -> None:
    """Lists of more than a hundred items, which refer to each other, by reading and by an action of routes.py."""
    file, folder = tmp_path / "db.json", tmp_path / "blog"
    posts = [
        {"id": n, "title": f"post {n}", "views": n % 40, "price": n / 4, "commentId": f"c{n - 1}"}
        for n in range(150, 0, -1)
    ]
    comments = [
        {"id": f"c{n}", "postId": n % 7 + 1, "commentId": f"c{(n + 9) % 150}", "body": "x" * 8_000} for n in range(150)
    ]
    data: dict[str, Any] = {"posts": posts, "comments": comments, "profile": DB["events"]}
    file.write_text(json.dumps(data))
    file.with_name("routes.py").write_text(ROUTES)
    run = CliRunner().invoke(main, ["eject", str(file), str(folder)])
    assert run.exit_code == 0, run.output
    assert "report" not in " ".join([*map(str, folder.rglob("*.py")), (folder / "app.py").read_text()])
    samples = {name: each if isinstance(each, list) else [each] for name, each in data.items()}
    found = []
    for served, seed in ((file, None), (folder, samples)):
        with LiveServer(served) as server, server.space(seed=seed) as space:
            requests = [Request(f"{space.url}{path}") for path in PATHS]  # noqa: S310 - http
            requests.append(Request(f"{space.url}/posts/2/like", method="POST"))  # noqa: S310
            found.append([urlopen(each, timeout=SECONDS).read() for each in requests])  # noqa: S310
    assert found[0] == found[1]
    assert [len(json.loads(body)) for body in found[0][:1]] == [150]


ONLY_OF_A_FILE = r"""{
"posts": [
  {"id": 1, "title": "\u0000", "\u0000": 1}, {"id": 2, "title": "\ud83d\ude00"},
  {"id": 3, "views": 1e400}, {"id": 4, "title": "\u0000"}, {"id": 5, "title": DEEP}
],
"comments": [{"id": "a", "postId": 1}, {"id": "b", "postId": 2}, {"id": "c", "t": "\u0000"}],
"profile": {"name": "\u0000"}
}""".replace("DEEP", "[" * 32 + "]" * 32)


def test_samples_have_what_a_service_accepts(tmp_path: Path) -> None:
    """What only a file can have is left out, and named, and what refers to it is no reference."""
    (file := tmp_path / "db.json").write_text(ONLY_OF_A_FILE)
    run = CliRunner().invoke(main, ["eject", str(file), str(folder := tmp_path / "blog")])
    assert run.exit_code == 0, run.output
    assert {each.stem: each.read_text() for each in folder.glob("storage/samples/*")} == {
        "posts": '{"id":2,"title":"\U0001f600"}\n',
        "comments": '{"id":"a","postId":1}\n{"id":"b","postId":2}\n',
        "profile": "{}\n",
    }
    left, wrong = "items are left out, which a service refuses; the first is", "must not hold NUL"
    assert [line.strip() for line in run.output.splitlines()[1:4]] == [
        f"posts: 4 {left} 1: # {wrong}",
        f"comments: 1 {left} c: #/t {wrong}",
        f"profile is empty there, as a service refuses what it has: #/name {wrong}",
    ]
    assert not [each for each in folder.rglob("*.py") if "Reference(" in each.read_text()]


def test_what_is_not_served_is_named(tmp_path: Path) -> None:
    """Items whose ids come twice, arrays of texts, other values, and names with $."""
    left = {"brands": ["Audi"], "n": 3, "$comment": "x", "a/b": []}
    (file := tmp_path / "db.json").write_text(json.dumps({"posts": [{"id": 1}, {"id": 1, "t": "x"}], **left}))
    run = CliRunner().invoke(main, ["eject", str(file), str(tmp_path / "blog")])
    assert run.exit_code == 0, run.output
    lines = "\n".join(line for line in run.output.splitlines() if "left out: " in line)
    assert all(name in lines for name in ("posts: of items with the same id", *left)), lines


def test_a_schema_beside_a_file_that_refers_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "db.json").write_text(json.dumps({"posts": [{"id": 1}]}))
    document = {"properties": {"posts": {"type": "array", "items": {"$ref": "#/$defs/post"}}}}
    (tmp_path / "db.schema.json").write_text(json.dumps(document))
    run = CliRunner().invoke(main, ["eject", str(tmp_path / "db.json"), str(tmp_path / "shop")])
    assert run.output == "Error: db.schema.json: posts[]: $ref: '#/$defs/post' is not in this document\n"

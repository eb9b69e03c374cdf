"""The options of a JSON file, most of them as json-server has them: what requests meet before its service."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient

from restkeeper.__main__ import main
from restkeeper.app import create_app
from restkeeper.config import Config
from restkeeper.features.files import FileOptions, application_of
from restkeeper.features.files.content import FileError
from restkeeper.features.files.file import read_file
from restkeeper.features.files.items import LONGEST_ID
from restkeeper.features.files.paths import MOST_RULES, read_rules, rewrite
from tests.callers import ADMIN, ADMIN_KEY, key
from tests.json_file import BLOG, client_of, running
from tests.live import ROOT
from tests.waiting import SECONDS

FORM = "application/x-www-form-urlencoded"

Serve = Callable[..., FlaskClient]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """A function that serves data as a file, with options, in this process."""

    return lambda data=BLOG, config=None, **options: client_of(tmp_path, data, config, **options)


def rewritten(rules: dict[str, str], path: str, folder: Path) -> tuple[str, str, str]:
    """The prefix, path and query that rules make of a request."""
    (file := folder / "routes.json").write_text(json.dumps(rules))
    path, _, query = path.partition("?")
    environ = {"SCRIPT_NAME": "", "PATH_INFO": path.encode().decode("latin-1"), "QUERY_STRING": query}
    rewrite(environ, read_rules(file), 8192)
    return environ["SCRIPT_NAME"], environ["PATH_INFO"].encode("latin-1").decode(), environ["QUERY_STRING"]


PAGE = (ROOT / "docs" / "prototyping.md").read_text(encoding="utf-8")
RULES = json.loads(PAGE.partition("```log routes.json\n")[2].partition("```")[0]) | {
    "/posts/in/:category": "/posts?category=:category",
    "/papers\\?by=:name&id=:id": "/posts/:id?author=:name",
    "/all/*/of/:name": "/$2/$1",
    "/r+d/é&/:n": "/posts?by=:n",
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/api/posts?_page=1", ("/api", "/posts", "_page=1")),
        ("/API/posts/1", ("/API", "/posts/1", "")),
        ("/api/posts/1/show/", ("/api", "/posts/1", "")),
        ("/api", ("", "/api", "")),
        ("/posts/1/show?_embed=comments", ("", "/posts/1", "_embed=comments")),
        ("/posts/in/a&b+é?_limit=1", ("", "/posts", "category=a%26b%2B%C3%A9&_limit=1")),
        ("/r+d/é&/1", ("", "/posts", "by=1")),
        ("/posts/in/a/b", ("", "/posts/in/a/b", "")),
        ("/articles?id=7", ("", "/posts/7", "")),
        ("/articles?id=7&_embed=comments", ("", "/posts/7", "_embed=comments")),
        ("/articles?id=%C3%A9%2F7", ("", "/posts/é/7", "")),
        ("/articles?x=7", ("", "/articles", "x=7")),
        ("/papers?by=ann&id=7&x=1", ("", "/posts/7", "author=ann&x=1")),
        ("/all/1/2/of/posts", ("", "/posts/1/2", "")),
    ],
)
def test_rules_rewrite_paths(path: str, found: tuple[str, str, str], tmp_path: Path) -> None:
    """As those of json-server 0.17, one after another; what a request has beyond a rule's query stays."""
    assert rewritten(RULES, path, tmp_path) == found


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ([], "must be an object of at most 100 rules"),
        ({f"/{number}": "/" for number in range(MOST_RULES + 1)}, "must be an object of at most 100 rules"),
        ({"/a": 5}, "'/a': both sides must be texts of 1 to 300 characters that begin with /"),
        ({"/a": "http://b/"}, "'/a': both sides must be texts"),
        ({"/(.*)": "/$1"}, "'/(.*)': regular expressions are not understood"),
        ({"/:a-:b": "/:a"}, "'/:a-:b': between two of /?& can be one :name or *, and in all one *"),
        ({"/*/*": "/$1"}, "'/*/*': between two of /?& can be one :name or *, and in all one *: write :name for"),
        ({"/*.json": "/$1"}, "'/*.json': after * can be only one of /?&"),
        ({"/*": "/$2"}, "'/*': there is no $2, which '/$2' has"),
        ({"/:a": "/:b"}, "'/:a': there is no :b, which '/:b' has"),
    ],
)
def test_a_bad_rule_is_named_in_one_line(rules: Any, reason: str, serve: Serve, tmp_path: Path) -> None:
    """It ends the start."""
    (routes := tmp_path / "r.json").write_text(json.dumps(rules))
    with pytest.raises(SystemExit) as error:
        serve(routes=routes)
    assert str(error.value).startswith(f"restkeeper: r.json: {reason}") and "\n" not in str(error.value)
    routes.write_text("{\n,}")
    with pytest.raises(FileError, match=r"^r\.json:2:1: "):
        read_rules(routes)


def test_rules_take_time_by_the_length_of_a_path(tmp_path: Path) -> None:
    """Whatever a client sends; what they make longer than a path can be is refused."""
    rules = {"/:a/x/*/:b/:c-x/y\\?q=:d&e=:f": "/"} | {f"/{n}x*/:a/:b/z": "/" for n in range(MOST_RULES - 1)}
    (file := tmp_path / "routes.json").write_text(json.dumps(rules))
    made, worst = read_rules(file), 0.0
    for path in ("/" + "0x/" * 2700, "/" * 8000, "/1/x/" + "a-x/" * 2000, "/1x" + "/z" * 4000 + "&"):
        began = time.process_time()
        rewrite({"PATH_INFO": path, "QUERY_STRING": "?&q=" * 10}, made, 8192)
        worst = max(worst, time.process_time() - began)
    assert worst < 1


def test_what_rules_make_too_long_is_refused(serve: Serve, tmp_path: Path) -> None:
    """Also if it was short, and what was too long before."""
    (routes := tmp_path / "r.json").write_text(json.dumps({f"/*{'/' * n}": "/" + "$1" * 40 for n in range(9)}))
    client = serve(routes=routes)
    for path in ("/" + "a" * 300, "/" + "a" * 9000, f"/a?{'b' * 9000}"):
        assert client.get(path).status_code == 414, path[:20]


def test_a_prefix_stays_in_addresses(serve: Serve, tmp_path: Path) -> None:
    """So that a page that only knows the prefix can follow them; what a caller may do is as at the other path.

    The service's own paths below /api/ stay.
    """
    (routes := tmp_path / "r.json").write_text(json.dumps(RULES))
    client = serve(routes=routes)
    page = client.get("/api/posts?_page=1&_limit=1")
    assert page.json == BLOG["posts"][:1] and '</api/posts?limit=1&offset=1>; rel="next"' in page.headers["Link"]
    assert client.post("/api/posts", json={"title": "x", "views": 1}).headers["Location"] == "/api/posts/3"
    assert client.get("/articles?id=1").json == BLOG["posts"][0]
    links = client.get("/api/").json["links"]
    for path in ("/api/v1/events", "/api/v1/posts/1", links["events"], links["openapi"]):  # the pages call them
        assert client.get(path).status_code == 200, path
    assert serve(config=Config(auth="required"), routes=routes).get("/api/posts").status_code == 401


def test_a_slash_at_the_end_is_the_same_path(serve: Serve, tmp_path: Path) -> None:
    """Of all that is no file, and no route with that slash."""
    (tmp_path / "public" / "posts").mkdir(parents=True)
    (tmp_path / "public" / "posts" / "index.html").write_text("<p>posts")
    (tmp_path / "routes.py").write_text(
        "from flask import Blueprint\nfrom restkeeper import needs\nmore = Blueprint('more', __name__)\n"
        "blueprints = [more]\nmore.get('/hello/')(needs('public')(lambda: 'hello'))\n"
    )
    client = serve()
    assert client.get("/posts/1/").json == BLOG["posts"][0]
    assert client.get("/posts/1/comments/").json == BLOG["comments"]
    assert client.get("/api/v1/comments/?text=Nice").json == BLOG["comments"]
    assert client.get("/profile/").json == BLOG["profile"]
    assert client.post("/posts/", json={"title": "x", "views": 1}).json["id"] == 3
    assert client.delete("/posts/3/").status_code == 200
    assert client.get("/posts/", buffered=True).text == "<p>posts"
    assert client.get("/hello/").text == "hello"
    for path in ("/comments//", "/nothing/", "/posts/9/"):
        assert client.get(path).status_code == 404, path


def test_files_of_folders(serve: Serve, tmp_path: Path) -> None:
    """Of several, the first; a page of them is at / instead of the service's. The data itself needs credentials."""
    for name, text in {"public/a.txt": "public", "site/a.txt": "site", "more/index.html": "<p>more"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    (tmp_path / "site" / "b.txt").write_text("b")
    client = serve(static=(tmp_path / "site", tmp_path / "more"))
    assert [client.get(path, buffered=True).text for path in ("/a.txt", "/b.txt", "/")] == ["public", "b", "<p>more"]
    assert client.post("/").status_code == 405
    client = serve(config=Config(auth="required"), static=(tmp_path,))
    (tmp_path / "db.schema.json").write_text('{"properties": {}}')
    (tmp_path / "db.json.edited").write_text("{}")
    (tmp_path / "link").symlink_to("db.json")
    paths = ("/db.json", "/link", "/db.schema.json", "/db.json.edited")
    assert [client.get(path, buffered=True).status_code for path in paths] == 4 * [404]
    assert client.get("/site/b.txt", buffered=True).text == "b"
    assert serve().get("/").json["collections"]


def test_a_form_is_refused(serve: Serve) -> None:
    """As JSON that a client calls a form, which curl -d does; no page of another site can write by one."""
    client = serve({"posts": [{"id": 1}]})
    for data in ("title=Hello", '{"title": "Hello"}'):
        assert client.post("/posts", data=data, content_type=FORM).status_code == 415


FOREIGN = (
    *({"Authorization": each} for each in ("Bearer eyJ.x.y", "Basic YTpi", "Token x", "")),
    *({"X-API-Key": "x"}, {"X-API-Key": "rk_0123456789abcdef_x", "Authorization": "Bearer x"}),
)


def test_credentials_of_another_service_are_ignored(serve: Serve) -> None:
    """So many that they would be too many wrong ones; a key that was created is one, and then others are wrong."""
    client = serve({"posts": []})
    for headers in FOREIGN * 5:
        assert client.post("/posts", json={}, headers=headers).status_code == 200, headers
    made = client.post("/_/keys", json={"name": "a", "scopes": ["posts:read"]}).json
    reader = {"X-API-Key": made["secret"]}
    assert client.get("/posts", headers=reader).status_code == 200
    assert client.post("/posts", json={}, headers=reader).status_code == 403
    assert {client.get("/posts", headers=headers).status_code for headers in FOREIGN} == {400, 401}


@pytest.mark.parametrize("auth", ["open", "required", "open-to-all"])
def test_a_wrong_credential_is_one_where_others_can_be_right(serve: Serve, auth: str) -> None:
    """With a key, or where other machines may call."""
    client = serve({"posts": []}, Config(auth=auth, admin_key="" if auth == "open-to-all" else ADMIN_KEY))
    assert {client.get("/posts", headers=headers).status_code for headers in FOREIGN} == {400, 401}


ARRAYS: dict[str, Any] = {"brands": ["Audi", "BMW"], "years ü": [2020, None], "mixed": [{"id": 1}, [2]]}


def test_an_array_of_other_values_can_be_read(serve: Serve) -> None:
    """As it stands in the file, and not be changed; it is a part of all, and of the document."""
    client = serve({"cars": [{"id": 1}], **ARRAYS, "docs": [1]})
    document = client.get("/openapi.json").json
    for name, array in ARRAYS.items():
        for path in (f"/{quote(name)}", f"/api/v1/{quote(name)}", f"/{quote(name)}/"):
            assert client.get(path).json == array, path
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert client.open(f"/{quote(name)}", method=method, json={}).status_code == 405
        assert list(document["paths"][f"/{quote(name)}"]) == ["get"]
    assert client.post("/cars", json={}).status_code == 200
    assert client.get("/db").json == {"cars": [{"id": 1}, {"id": 2}], **ARRAYS}
    assert client.get("/docs").mimetype == "text/html"  # a page of the service has this path


def test_an_array_needs_its_scope(serve: Serve) -> None:
    """As a collection does, also as a part of all."""
    client = serve(data := {"cars": [], "brands": ["Audi"], "mixed": [1]}, Config(auth="required", admin_key=ADMIN_KEY))
    some, whole = (key(client, *(f"{name}:read" for name in names)) for names in (("cars", "brands"), data))
    paths = ("/brands", "/cars", "/mixed", "/db")
    assert [client.get(path).status_code for path in paths] == [401] * 4
    assert [client.get(path, headers=some).status_code for path in paths] == [200, 200, 403, 403]
    assert client.get("/db", headers=whole).json == client.get("/db", headers=ADMIN).json == data


def test_all_of_a_file_is_at_db(serve: Serve) -> None:
    """As it is now, page by page."""
    client = serve({**BLOG, "empty": [], "none": {}}, Config(page_limit_max=2, page_limit=1))
    client.post("/posts", json={"title": "x", "views": 1})
    client.patch("/profile", json={"name": "other"})
    posts = [*BLOG["posts"], {"id": 3, "title": "x", "views": 1}]
    whole = client.get("/db")
    assert whole.json == {**BLOG, "posts": posts, "profile": {"name": "other"}, "empty": [], "none": {}}
    assert list(whole.json) == [*BLOG, "empty", "none"]
    assert client.get("/db/").json == whole.json and client.head("/db").data == b""
    assert "/db" in client.get("/openapi.json").json["paths"]
    assert serve({"db": [{"id": 1}]}).get("/db").json == [{"id": 1}]
    assert serve({}).get("/db").json == {}


def test_names_of_references_end_in_a_suffix(serve: Serve) -> None:
    """By default both Id and _id; if one is given, only that."""
    data = {"posts": [{"id": 1}], "comments": [{"id": 1, "post_ref": 1, "postId": 1}, {"id": 2, "post_id": 1}]}
    client = serve(data, suffix="_ref")
    assert client.get("/posts/1/comments").json == data["comments"][:1]
    assert client.get("/comments?_expand=post").json[0]["post"] == {"id": 1}
    client = serve({**data, "comments": [{"id": 1, "post_id": 1}]})
    assert client.get("/posts/1?_embed=comments").json["comments"] == [{"id": 1, "post_id": 1}]


def test_what_a_start_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it serves, or what to add. A routes.py that adds nothing, as its function has another name, is named."""
    monkeypatch.setenv("DATABASE_URL", "memory://")
    file = tmp_path / "db.json"
    for data, quiet, lines in (
        (BLOG, True, []),
        (BLOG, False, ["db.json: 2 posts, 1 comments, profile", "  comments.postId → posts"]),
        ({}, False, ['db.json: no collections: add an array, such as "posts": []']),
    ):
        file.write_text(json.dumps(data))
        application_of(create_app, file, FileOptions(quiet=quiet))
        assert capsys.readouterr().err.splitlines() == lines
    (tmp_path / "routes.py").write_text("def decalre(resources): ...")
    application_of(create_app, file, FileOptions())
    line = "routes.py has neither declare(resources) nor blueprints, and adds nothing"
    assert capsys.readouterr().err.splitlines()[0] == line


def test_what_json_server_has_besides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused."""
    monkeypatch.chdir(tmp_path)
    Path("db.json").write_text("{}")
    for arguments, line in (
        ("db.json --middlewares hello.js", "No such option '--middlewares'."),
        ("http://localhost/db.json", "File 'http://localhost/db.json' does not exist"),
        ("none.js", "No such command 'none.js'."),
        ("db.json --static nowhere", "Directory 'nowhere' does not exist"),
    ):
        done = CliRunner().invoke(main, arguments.split())
        assert done.exit_code == 2 and line in done.output, done.output
        assert "FILE [OPTIONS]" not in done.output  # FILE is no word that is written


def test_a_port_in_use_is_named_with_the_option(tmp_path: Path) -> None:
    """Of another server for development, which has 3000, too; of a service it is the setting."""
    (tmp_path / "db.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for arguments, name in ((["db.json", "-p", port], "--port"), (["serve", str(ROOT)], "PORT")):
            done = subprocess.run(
                [sys.executable, "-P", "-m", "restkeeper", *arguments],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PORT": port, "HOST": "127.0.0.1"},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
            line = f"restkeeper: PORT='{port}': another program uses this port; set {name} to a free one\n"
            assert (done.returncode, done.stderr) == (1, line)


def test_the_command_line_of_json_server(tmp_path: Path) -> None:
    """One that both have is understood, by its short names too."""
    (file := tmp_path / "db.json").write_text(json.dumps({"posts": [{"_id": 1}], "notes": [{"_id": 1, "post_ref": 1}]}))
    (tmp_path / "rules.json").write_text(json.dumps({"/blog/*": "/$1"}))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<p>site")
    options = "-w -H localhost -r rules.json -s site -d 1 -q --ro --fks _ref -i _id"
    with running(file, *options.split()) as server:
        assert server.send("GET", "/blog/posts/1/notes/").json() == [{"_id": 1, "post_ref": 1}]
        assert server.send("GET", "/").body == b"<p>site"
        assert server.send("POST", "/posts", {}).status == 405
        with ThreadPoolExecutor() as pool:  # one is made for all of them, while others have their turns
            assert list(pool.map(server.status, ["/openapi.json"] * 3)) == [200] * 3
    assert server.lines == ""


def test_the_port_is_that_of_json_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless PORT or the option has another one; also with AUTH=required the address is then this machine's."""
    monkeypatch.chdir(tmp_path)
    Path("db.json").write_text("{}")
    served: list[tuple[str, int]] = []
    monkeypatch.setattr(
        "restkeeper.server.single.serve",
        lambda load: served.append((Config.from_env(os.environ).host, Config.from_env(os.environ).port)),
    )
    environ = dict(os.environ)
    for arguments, extra in (([], {}), ([], {"AUTH": "required"}), ([], {"PORT": "3100"}), (["-p", "3200"], {})):
        monkeypatch.setattr("os.environ", {**environ, **extra})
        result = CliRunner().invoke(main, ["db.json", "--no-save", *arguments])
        assert result.exit_code == 0, result.output
    assert served == [("127.0.0.1", 3000), ("127.0.0.1", 3000), ("127.0.0.1", 3100), ("127.0.0.1", 3200)]


def test_ids_have_the_name_of_the_option(serve: Serve, tmp_path: Path) -> None:
    """In responses, bodies, queries, relations, new ids and the document; the file keeps the name."""
    posts = [{"_id": "5f", "title": "Hello", "id": 9}, {"title": "World"}]
    data = {"posts": posts, "comments": [{"_id": 1, "postId": "5f"}]}
    client = serve(data, id_name="_id")
    assert client.get("/posts").json == [posts[0], {"_id": "1", "title": "World"}]
    assert client.get("/posts?_id=5f&fields=_id,id").json == [{"_id": "5f", "id": 9}]
    assert client.get("/comments?_expand=post&_sort=-_id").json == [data["comments"][0] | {"post": posts[0]}]
    assert client.get("/posts/5f?_embed=comments").json["comments"] == data["comments"]
    assert client.post("/posts/5f/comments", json={"_id": 7}).json == {"_id": 7, "postId": "5f"}
    assert client.patch("/posts/5f", json={"_id": "x", "id": 2}).json == posts[0] | {"id": 2}
    assert client.put("/posts/5f", json={"id": 3}).json == {"_id": "5f", "id": 3}
    assert client.post("/comments", json={"id": 1}).json == {"_id": 8, "id": 1}
    schemas = client.get("/openapi.json").json["components"]["schemas"]
    assert schemas["Post"]["required"] == ["_id"] and "_id" in schemas["CommentInput"]["properties"]
    strict = serve(data, id_name="_id", strict=True)
    assert strict.put("/posts/5f", json={"title": "x", "id": 3}).json == {"_id": "5f", "title": "x", "id": 3}
    assert strict.put("/posts/new", json={"title": "x"}).json == {"_id": "new", "title": "x"}
    schemas = strict.get("/openapi.json").json["components"]["schemas"]
    assert schemas["Comment"]["properties"]["_id"]["type"] == "integer"


@pytest.mark.parametrize("name", ["", "id\n", 'a"b', "a\\b"])
def test_a_name_that_no_ids_can_have_is_refused(name: str, tmp_path: Path) -> None:
    """Without a name, a PUT would change ids; with others, no file could be read."""
    (file := tmp_path / "db.json").write_text("{}")
    with pytest.raises(FileError, match="--id .*: must be a name of printable characters"):
        read_file(file, name)


def test_ids_of_another_name_are_ejected_as_ids(tmp_path: Path) -> None:
    """Unless the items have an id beside: nothing is lost."""
    (file := tmp_path / "db.json").write_text('{"posts": [{"_id": 1, "title": "Hello"}]}')
    result = CliRunner().invoke(main, ["eject", str(file), str(tmp_path / "shop"), "--id", "_id"])
    assert result.exit_code == 0 and "_id is called id there" in result.output
    assert (tmp_path / "shop/storage/samples/posts.ndjson").read_text() == '{"id":1,"title":"Hello"}\n'
    file.write_text('{"posts": [{"_id": 1, "id": 2}]}')
    result = CliRunner().invoke(main, ["eject", str(file), str(tmp_path / "other"), "--id", "_id"])
    assert result.exit_code == 1 and "an item has a member id beside _id" in result.output


def test_an_id_that_is_sent_has_room_in_a_path(serve: Serve) -> None:
    """Else no request reaches the item, and many clients refuse the response for its Location; a file can have any."""
    client = serve({"posts": [{"id": "x" * 9000}]})
    longest = "/" * (LONGEST_ID - 2)
    response = client.post("/posts", json={"id": longest})
    assert response.status_code == 200 and client.get(response.headers["Location"]).json == {"id": longest}
    response = client.post("/posts", json={"id": longest + "/"})
    assert response.status_code == 422 and "id must have at most 2000 bytes" in response.json["message"]
    assert [len(each["id"]) for each in client.get("/posts").json] == [9000, len(longest)]


def test_ids_of_dots(serve: Serve) -> None:
    """Are served where a client lets them be in a path, and found by a filter."""
    client = serve(data := {"posts": [{"id": ".."}, {"id": "."}]})
    for item in data["posts"]:
        assert client.get(f"/posts/{item['id']}").json == item
        assert client.get(f"/posts?id={item['id']}").json == [item]
    assert client.patch("/posts/%2E%2E", json={"x": 1}).json == {"id": "..", "x": 1}


def test_an_id_has_a_slash(serve: Serve, tmp_path: Path) -> None:
    """Escaped in the path, also by a rule and in addresses; a path of more parts is another one."""
    data = {"posts": [{"id": "a/b", "title": "Hello"}], "comments": [{"id": 1, "postId": "a/b"}]}
    (routes := tmp_path / "r.json").write_text(json.dumps({"/blog/:id": "/posts/:id"}))
    client = serve(data, routes=routes)
    assert client.get("/posts/a%2Fb").json == client.get("/blog/a%2Fb").json == data["posts"][0]
    assert client.get("/posts/a%2fb/?_embed=comments").json["comments"] == data["comments"]
    assert client.get("/posts/a/b").status_code == client.get("/a%2Fb").status_code == 404
    assert client.get("/posts/a%252Fb").status_code == client.get("/posts/a\U0010ffffb").status_code == 404
    assert client.get("/a%2Fb").json["detail"] == "nothing is at /a/b"
    assert client.get("/posts/c%2Fd").json["instance"] == "/posts/c%2Fd"
    assert client.patch("/posts/a%2Fb", json={"title": "World"}).json == {"id": "a/b", "title": "World"}
    assert client.put("/posts/a%2Fb", json={"x": 1}).json == {"id": "a/b", "x": 1}
    nested = client.post("/posts/a%2Fb/comments", json={"id": "/"})
    assert nested.json == {"id": "/", "postId": "a/b"} and nested.headers["Location"] == "/comments/%2F"
    assert client.delete(nested.headers["Location"]).status_code == 200
    assert client.delete("/posts/a%2Fb").status_code == 200 and client.get("/posts").json == []

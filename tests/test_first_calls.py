"""The calls on the index page: each works when it is copied into a shell."""

import json
import re
import subprocess
from argparse import ArgumentParser
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from app import create_app as create_service
from restkeeper import Config
from tests.callers import ADMIN_KEY, make_key
from tests.json_file import client_of
from tests.live import ROOT
from tests.shapes import BRANDS, PARTS, PRODUCTS
from tests.shop import create_app as create_shop
from tests.shop.shapes import COMPANY

pytestmark = pytest.mark.needs("pages", "events", "keys")

CURL = "KEY={}\ncurl() {{ printf '%s\\0' \"$@\"; printf '\\n\\0'; }}\n{}"  # prints its arguments, as a shell reads them
ARGUMENTS = ArgumentParser()
for option in ("-X", "-d"):
    ARGUMENTS.add_argument(option)
ARGUMENTS.add_argument("-i", action="store_true")
ARGUMENTS.add_argument("-H", action="append", default=[])
ARGUMENTS.add_argument("url")


def calls_of(client: FlaskClient, key: str = "", reader: str | None = None) -> list[str]:
    """Method, path and body of the calls on the page, which are made in order, and return 200.

    The page is that of the `reader`, if it is another one than who makes the calls.
    """
    of_reader = key if reader is None else reader
    headers = {"Accept": "text/html"} | ({"Authorization": f"Bearer {of_reader}"} if of_reader else {})
    page = client.get("/", headers=headers).text
    script = CURL.format(key, "\n".join(map(unescape, re.findall("<pre>(.*?)</pre>", page, re.DOTALL))))
    done = subprocess.run(["/bin/sh", "-eu"], input=script, capture_output=True, text=True, check=True)
    found = []
    for call in done.stdout.split("\n\0")[:-1]:
        given = ARGUMENTS.parse_args(call.split("\0")[:-1])
        method, path = given.X or ("POST" if given.d else "GET"), given.url.removeprefix("http://localhost")
        sent = dict(each.split(": ", 1) for each in given.H)
        response = client.open(path, method=method, data=given.d, headers=sent)
        assert response.status_code == 200, (call, response.text)
        found.append(" ".join(filter(None, (method, path, given.d))))
    return found


def calls_of_posts(sort: str, id: str, sent: str, changed: str) -> list[str]:
    """The calls of a collection with items, by the field of the order, an id, and what is sent."""
    change = [f"PATCH /posts/{id} {changed}"] if changed else []
    begin = ["GET /posts", f"GET /posts?sort=-{sort}&limit=3"]
    return [*begin, f"GET /posts/{id}", f"POST /posts {sent}", *change, f"DELETE /posts/{id}"]


POSTS = [{"id": 1, "title": "Hello", "views": 100}, {"id": 2, "title": "World", "views": 2}]
BOTH = {"posts": [{"id": "b-1", "name": "O'Reilly's \"$HOME\" `x` \\", "n": 1.5}], "profile": {"name": "it's"}}
QUOTED = 'O\\u0027Reilly\\u0027s \\"$HOME\\" `x` \\\\'
LONG = {"posts": [{"id": 7, "title": "x" * 20_000, "data": [1] * 1000, "made": "2026-01-31"}]}
HELLO = '{"name":"Hello"}'
FILES: list[tuple[Any, list[str]]] = [
    (
        {"drafts": [], "posts": POSTS},
        calls_of_posts("title", "1", '{"title":"Hello","views":100}', '{"title":"Hello 2"}'),
    ),
    (
        BOTH,
        calls_of_posts("name", "b-1", f'{{"name":"{QUOTED}","n":1.5}}', f'{{"name":"{QUOTED} 2"}}')
        + ["GET /profile", 'PATCH /profile {"name":"it\\u0027s 2"}'],
    ),
    ({"profile": {"on": True}}, ["GET /profile", 'PATCH /profile {"on":true}']),
    ({"posts": []}, ["GET /posts", "GET /posts?sort=-id&limit=3", f"POST /posts {HELLO}"]),
    ({"posts": [{"id": 1, "title": "\x7f" * 50 + "ls"}]}, calls_of_posts("id", "1", HELLO, HELLO)),
    (LONG, calls_of_posts("made", "7", '{"made":"2026-01-31"}', "")),
]


@pytest.mark.parametrize(("data", "calls"), FILES)
def test_the_calls_of_a_file(tmp_path: Path, data: Any, calls: list[str]) -> None:
    """They are made of what it has; if it is only read, they only read."""
    for read_only in (False, True):
        client = client_of(tmp_path, data, read_only=read_only)
        assert calls_of(client) == [each for each in calls if not read_only or each.startswith("GET ")]


def test_the_calls_of_the_service_of_this_project() -> None:
    """With no items they are made of the examples of the schema."""
    client = create_service(Config()).test_client()
    first = ["GET /products", "GET /products?sort=-created_at&limit=3"]
    assert calls_of(client) == [*first, 'POST /products {"name":"Desk lamp"}']
    calls = calls_of(client)
    assert [each.split("/")[0] for each in calls] == ["GET ", "GET ", "GET ", "POST ", "PATCH ", "DELETE "]
    for line in (ROOT / "storage/samples/products.ndjson").read_text().splitlines()[:1]:
        item = {name: value for name, value in json.loads(line).items() if name not in ("id", "sku")}
        assert client.post("/products", json=item).status_code == 200
    assert len(calls_of(client)) == 6


def test_calls_that_could_not_work_are_left_out() -> None:
    """A unique value is sent once, a reference is one to an item, and an item that others refer to is not deleted."""
    first = ["GET /brands", "GET /brands?sort=-created_at&limit=3"]
    client = create_shop(Config(), (BRANDS, COMPANY)).test_client()
    assert calls_of(client) == [*first, 'POST /brands {"title":"Hello"}']
    assert client.put("/company", json={"name": "Lamps"}).status_code == 200
    brand = ["GET /brands/1", 'PATCH /brands/1 {"founded":null}']
    assert calls_of(client) == [*first, *brand, "DELETE /brands/1", "GET /company", 'PATCH /company {"name":"Lamps 2"}']
    client = create_shop(Config(), (PARTS, PRODUCTS, BRANDS)).test_client()
    assert calls_of(client) == ["GET /parts", "GET /parts?sort=-created_at&limit=3"]
    assert client.post("/brands", json={"title": "Hello"}).status_code == 200
    assert calls_of(client) == [*first, *brand]


def test_who_may_not_read_items_gets_calls_without_them() -> None:
    """And each has a place for the key, and an If-Match where the service needs one."""
    config = Config(auth="required", admin_key=ADMIN_KEY, require_if_match=True, trusted_hosts=("localhost",))
    client = create_shop(config, (BRANDS, COMPANY)).test_client()
    writer = make_key(client, "brands:read", "brands:write", "company:read", "company:write")["secret"]
    sent = {"Authorization": f"Bearer {writer}", "If-None-Match": "*"}
    assert client.put("/company", json={"name": "Lamps"}, headers=sent).status_code == 200
    assert len(calls_of(client, writer, reader="")) == 3
    assert client.get("/", headers={"Accept": "text/html"}).text.count("Bearer $KEY") == 3
    assert [each.split()[0] for each in calls_of(client, writer)] == ["GET"] * 3 + ["PATCH", "DELETE", "GET", "PATCH"]

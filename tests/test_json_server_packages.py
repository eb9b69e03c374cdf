"""The two packages of json-server beside `restkeeper db.json`: what they answer to the same requests, from one file."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from flask.testing import FlaskClient

from tests.json_server.compared import NUMBERS, REASONS, Answer, Exchange, explained
from tests.json_server.made import Content, Maker, Request
from tests.json_server.record import HERE, KEPT, PROGRAMS, running
from tests.json_server.shapes import OTHERWISE, SHAPES
from tests.live import HttpResponse, send
from tests.proxy import require
from tests.test_file_shapes import client_of
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.matrix, pytest.mark.needs("dialects")]

REQUESTS = 300  # to each version, and half of them write
SEED = 4


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both packages."""
    npm, folder = require("npm"), tmp_path_factory.mktemp("packages")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=5 * SECONDS)
    return folder / "node_modules"


def content_of(file: Path) -> Content:
    """What a file has, without what 1 adds to it."""
    content: Content = json.loads(file.read_bytes())
    return {name: each for name, each in content.items() if name != "$schema"}


def ask(port: int, request: Request) -> HttpResponse:
    body = json.dumps(request.body) if isinstance(request.body, dict) else request.body
    headers = {} if body is None else {"Content-Type": "application/json"}
    return send(port, request.method, request.path, body, headers)


class Pair:
    """One version of json-server, and Restkeeper beside: each serves a file, and both have the same content.

    A text that is an id which json-server has made is compared as the id that the item has here.
    """

    def __init__(self, version: str, theirs: tuple[Path, int], ours: tuple[Path, int]) -> None:
        self._version, self._theirs, self._ours = version, theirs, ours
        self._ids: dict[str, Any] = {}

    def exchange(self, make: Callable[[Content], Request]) -> set[str]:
        """Make a request, and compare the answers. Returns the reasons of the differences."""
        before = content_of(self._ours[0])
        request = make(self._content())
        answers = ask(self._theirs[1], request), ask(self._ours[1], self._request(request))
        headers = {name.lower() for name in KEPT} & answers[0].headers.keys()
        theirs, ours = (
            Answer(
                each.status,
                parsed(each.body),
                each.headers["x-total-count"] if "x-total-count" in headers else "",
                tuple(sorted(re.findall(r'rel="(\w+)"', each.headers["link"] if "link" in headers else ""))),
                file if request.method != "GET" else before,
            )
            for each, file in zip(answers, (self._content(), content_of(self._ours[0])), strict=True)
        )
        theirs = theirs._replace(body=self._here(made := theirs.body), file=self._here(theirs.file))
        met, expected = explained(Exchange(self._version, self._request(request), before, theirs, ours))
        assert ours == expected, f"{self._version} {request}"
        if request.method == "POST" and answers[0].status == 201 and ours.status == 200:
            self._ids |= {made["id"]: ours.body["id"]} if isinstance(made["id"], str) else {}
        if request.method != "GET":
            self._follow(ours.file)
        return met

    def _content(self) -> Content:
        """What json-server has: 1 has written it to its file before it answers, 0.17 does that a moment later."""
        file, port = self._theirs
        if self._version == "1":
            return content_of(file)
        content: Content = parsed(ask(port, Request("GET", "/db")).body)
        until(lambda: parsed(file.read_bytes()) == content)
        return content

    def _request(self, request: Request) -> Request:
        """A request with the ids that items have here."""
        path = re.sub(r"(?<=/)[^/?]{7,}", lambda found: str(self._ids.get(found[0], found[0])), request.path)
        path = re.sub(r"(?<==)[^&]{7,}", lambda found: str(self._ids.get(found[0], found[0])), path)
        return request._replace(path=path, body=self._here(request.body))

    def _follow(self, ours: Content) -> None:
        """Write to our file what theirs has, if it is another content, as an editor does. It is served soon."""
        content = self._here(self._content())
        for item in [each for name in ("posts", "comments") for each in content[name]]:
            item["id"] = int(item["id"]) if str(item["id"]) in NUMBERS else item["id"]
        if content == ours:
            return
        file, port = self._ours
        file.write_text(json.dumps(content), encoding="utf-8")
        until(lambda: parsed(ask(port, Request("GET", "/db")).body) == content)

    def _here(self, value: Any) -> Any:
        """A value with the ids that it has here."""
        if isinstance(value, list):
            return [self._here(each) for each in value]
        if isinstance(value, dict):
            return {name: self._here(each) for name, each in value.items()}
        return self._ids.get(value, value) if isinstance(value, str) else value


def parsed(body: bytes) -> Any:
    """The JSON of a body, or its text."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


def test_answers_are_those_of_the_packages(packages: Path, tmp_path: Path) -> None:
    """But for the reasons, each of which some request meets: so the table of docs/json-server.md says what is so."""
    met = set[str]()
    for version, program in PROGRAMS.items():
        (folder := tmp_path / version).mkdir()
        theirs, ours = (Path(shutil.copy(HERE / "start.json", folder / name)) for name in ("theirs.json", "ours.json"))
        node = [require("node"), str(packages / program)]
        python = [sys.executable, "-P", "-m", "restkeeper", "-q"]
        with running(theirs, node) as port, running(ours, python) as own_port:
            pair, maker = Pair(version, (theirs, port), (ours, own_port)), Maker(version, SEED)
            for _ in range(REQUESTS // 2):
                met |= pair.exchange(maker.write) | pair.exchange(maker.read)
    assert met == {name for name, _ in REASONS}


def reads_of(name: str, member: Any) -> Iterator[str]:
    """Paths that read a member of a file; of a collection also the first item, a filter, an order and a page."""
    yield f"/{quote(name)}"
    if not isinstance(member, list) or not all(isinstance(item, dict) for item in member):
        return
    yield from (f"/{quote(name)}/{quote(str(item['id']), safe='')}" for item in member[:1] if "id" in item)
    plain = [(key, value) for item in member for key, value in item.items() if isinstance(value, int | str) and key]
    for key, value in [(key, value) for key, value in plain if key not in ("id", "_id", "_page")][:1]:
        yield f"/{quote(name)}?{urlencode({key: json.dumps(value) if isinstance(value, int) else value})}"
        yield f"/{quote(name)}?{urlencode({'_sort': key})}"
    yield f"/{quote(name)}?_page=1&_per_page=2"


def test_files_as_people_have_them_are_read_alike(packages: Path, tmp_path: Path) -> None:
    """As 1 answers, whose ids are texts; but for what is OTHERWISE."""
    node, different = [require("node"), str(packages / PROGRAMS["1"])], dict[str, str | int | None]()

    def served(number: int, shape: str) -> tuple[str, Path, FlaskClient]:
        (folder := tmp_path / str(number)).mkdir()
        return shape, folder, client_of(folder, SHAPES[shape])

    def compare(shape: str, folder: Path, client: FlaskClient) -> None:
        content = json.loads(SHAPES[shape])
        try:
            with running(folder / "db.json", node) as port:
                for path in [path for name, member in content.items() for path in reads_of(name, member)]:
                    theirs, ours = send(port, "GET", path), client.get(path)
                    has_ids = "without" not in shape
                    bodies = [with_texts(parsed(each), has_ids=has_ids) for each in (theirs.body, ours.data)]
                    if theirs.status != ours.status_code or (theirs.status == 200 and bodies[0] != bodies[1]):
                        items = bodies[1].get("data") if isinstance(bodies[1], dict) else bodies[1]
                        ids = " ".join(item["id"] for item in items) if isinstance(items, list) else ours.status_code
                        different[f"{shape}: {path}"] = ids
        except RuntimeError:
            different[shape] = None

    # One after the other: routes are compiled by `ast`, which fails now and then in several threads (CPython 3.11).
    all_served = [served(number, shape) for number, shape in enumerate(SHAPES)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(compare, *zip(*all_served, strict=True)))
    assert different == {path: found for paths in OTHERWISE.values() for path, found in paths.items()}


def with_texts(value: Any, *, has_ids: bool) -> Any:
    """A value whose ids are texts, or, if all were made, are not there."""
    if isinstance(value, list):
        return [with_texts(each, has_ids=has_ids) for each in value]
    if not isinstance(value, dict):
        return value
    items = {name: with_texts(each, has_ids=has_ids) for name, each in value.items() if name != "id"}
    return items | ({"id": str(value["id"])} if has_ids and "id" in value else {})

"""The modules for clients in docs/ do what their pages say, against a space of the test harness with faults."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from restkeeper import LiveServer
from restkeeper.testing.space import Space
from tests.live import ROOT
from tests.proxy import require
from tests.test_clients import NAMED
from tests.test_readme import BASE, PAGES_OF_MODULES, blocks
from tests.waiting import SECONDS

TESTS = ROOT / "tests" / "clients_page"
PACKAGES = (
    "ra-data-json-server@5.15.3",
    "ra-data-simple-rest@5.15.3",
    "@refinedev/simple-rest@6.0.1",
    "@tanstack/query-core@5.108.0",
    "react@19",
    "react-dom@19",
)
MODULES = [block for page in PAGES_OF_MODULES for block in blocks(page) if block.note.endswith((".mjs", ".py"))]
INSTALL_SECONDS = 300

ID = "00000000-0000-7000-8000-00000000000"
NAMES = {1: "Bob", 2: "Ann", 3: "Cid"}
REFERRING = {1: 1, 2: 2, 3: 3, 4: 2}  # what refers to them
BLOG = {
    "authors": [{"id": n, "name": name} for n, name in NAMES.items()],
    "posts": [{"id": n, "authorId": author} for n, author in REFERRING.items()],
}
SHOP = {
    "products": [{"id": f"{ID}1", "name": "Lamp", "sku": "L", "price": 1}],
    "users": [{"id": f"{ID}{n}", "name": name, "email": f"{n}@example.org"} for n, name in NAMES.items()],
    "orders": [
        {"id": f"{ID}{n}", "customer": f"{ID}{customer}", "lines": [{"product": f"{ID}1"}]}
        for n, customer in REFERRING.items()
    ],
}

pytestmark = pytest.mark.matrix


def test_the_generators_have_the_tested_versions() -> None:
    """And options."""
    (commands,) = (block.text for block in blocks("clients.md") if "npx " in block.text)
    tested = json.loads((ROOT / "tests" / "clients" / "package.json").read_text())["dependencies"]
    named = re.findall(r"npx (\S+)@(\d+) ", commands)
    assert len(named) == 4 and all(tested[name].partition(".")[0] == version for name, version in named)
    assert commands.count("openapi.json?webhooks=no") == 2 and commands.count(" ".join(NAMED)) == 1


@pytest.fixture
def space() -> Iterator[Space]:
    with LiveServer(ROOT) as server, server.space() as space:
        yield space


@pytest.fixture
def folder(tmp_path: Path, space: Space) -> Path:
    """The modules, for this space."""
    for block in MODULES:
        (tmp_path / block.note).write_text(block.text.replace(BASE, space.url), encoding="utf-8")
    return tmp_path


def run(seconds: float, folder: Path, *command: str, **environ: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environ, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def run_node(folder: Path, name: str, space: Space, **environ: str) -> None:
    shutil.copy(TESTS / name, folder)
    environ |= {"CONTROL": space.control}
    output = run(SECONDS, folder, require("node"), "--test", "--test-reporter=tap", name, **environ)
    assert "\n# fail 0\n" in output and "\n# pass 0\n" not in output, output


def test_the_modules_that_need_no_packages(folder: Path, space: Space) -> None:
    run_node(folder, "client.test.mjs", space)


def test_the_modules_for_front_ends(folder: Path, space: Space) -> None:
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    run(INSTALL_SECONDS, folder, require("npm"), "install", *options, *PACKAGES)
    (folder / "db.json").write_text(json.dumps(BLOG))
    with LiveServer(folder / "db.json") as blog, LiveServer(ROOT / "examples" / "shop") as server:
        with server.space(seed=SHOP) as shop:
            run_node(folder, "front_ends.test.mjs", space, BLOG=f"{blog.url}/api/v1", SHOP=f"{shop.url}/api/v1")


@pytest.fixture
def modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ModuleType]]:
    """`client`, `lists`, `mirror` and `errors`."""
    monkeypatch.syspath_prepend(folder)
    names = ("client", "lists", "mirror", "errors")
    yield [importlib.import_module(name) for name in names]
    sys.modules["client"].session.close()
    for name in names:
        del sys.modules[name]


def test_a_post_in_python_is_done_once(modules: list[ModuleType], space: Space) -> None:
    client, lists, *_ = modules
    space.faults.close("POST", "*", times=1)
    space.faults.drop_response("POST", "*", times=1)
    space.faults.respond("POST", "*", 503, retry_after=0, times=1)
    assert client.send("POST", f"{client.API}/products", json={"name": "Lamp"}).json()["name"] == "Lamp"
    assert len(space.requests(method="POST")) == 4
    assert [item["name"] for item in lists.items(f"{client.API}/products")] == ["Lamp"]
    with pytest.raises(client.requests.HTTPError):
        client.send("POST", f"{client.API}/products", json={})


def test_python_reads_and_changes_what_others_change(modules: list[ModuleType], space: Space) -> None:
    client, *_ = modules
    url = f"{client.API}/products/{client.send('POST', f'{client.API}/products', json={'name': 'Lamp'}).json()['id']}"
    tag, lamp = client.read(url)
    assert client.read(url, tag, lamp)[1] is lamp and lamp["stock"] == 0

    def add_one(item: dict[str, int]) -> dict[str, int]:
        if item["stock"] == 0:  # somebody else is faster
            client.send("PATCH", url, json={"stock": 5})
        return {"stock": item["stock"] + 1}

    assert client.update(url, add_one).json()["stock"] == 6
    assert client.read(url, tag, lamp)[1]["stock"] == 6
    space.faults.respond("PATCH", "*", 412, times=9)
    with pytest.raises(client.requests.HTTPError):
        client.update(url, add_one)
    assert len(space.requests(method="PATCH")) == 3 + 5


def test_python_finds_the_errors_of_fields(modules: list[ModuleType]) -> None:
    client, *_, errors = modules
    with pytest.raises(client.requests.HTTPError) as raised:
        client.send("POST", f"{client.API}/products", json={"name": "Lamp", "stock": -1, "tags": [""], "a/b c": 1})
    messages = errors.messages_of(raised.value.response.json())
    assert messages.keys() == {"stock", "tags.0", "a/b c"} and "must be" in messages["stock"]
    twice = [{"pointer": "#/a", "detail": "x"}, {"pointer": "#/a", "detail": "y"}, {"parameter": "q", "detail": "z"}]
    assert errors.messages_of({"errors": twice}) == {"a": "x; y", "": "z"}
    assert errors.messages_of({}) == {}


def test_a_copy_follows_all_changes(modules: list[ModuleType], space: Space) -> None:
    """Also those beside the reading of the list; if events are deleted, it is read again."""
    client, lists, mirror, *_ = modules
    url = f"{client.API}/products"

    def stored() -> dict[str, object]:
        return {item["id"]: item for item in lists.items(f"{url}?limit=1")}

    def write(name: str) -> str:
        return str(client.send("POST", url, json={"name": name}).json()["id"])

    lamp, desk = write("Lamp"), write("Desk")
    products = mirror.Products()
    products.load()
    assert products == stored() and len(products) == 2
    client.send("DELETE", f"{url}/{lamp}")
    client.send("PATCH", f"{url}/{desk}", json={"stock": 5})
    write("Shelf")
    products.follow()
    assert products == stored() and [item["stock"] for item in products.values()] == [5, 0]

    items = mirror.items

    def late(address: str) -> Iterator[object]:
        """The list, which is read between two changes."""
        client.send("DELETE", f"{url}/{desk}")
        found = [*items(address)]
        write("Stool")
        return iter(found)

    mirror.items = late
    products.load()
    mirror.items = items
    assert len(products) == len(stored()) - 1
    products.follow()
    assert products == stored()

    client.send("DELETE", f"{url}/{next(iter(products))}")
    space.faults.respond("GET", "*/events", 410, times=1)
    products.follow()
    assert products == stored()

"""Clients that five generators make of /openapi.json: what a program does with them compiles, strictly, and works.

Each program in tests/clients does the same: it lists, reads, creates, filters and sorts, is refused, and follows the
feed. A field that does not exist is an error there, so that no type is "any".
"""

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import Gunicorn
from tests.proxy import require
from tests.waiting import SECONDS

pytestmark = [pytest.mark.matrix, pytest.mark.needs("openapi", "events")]

SOURCES = Path(__file__).parent / "clients"
DOCUMENT = "openapi.json"
TSC = ("--strict", "--target", "es2022", "--module", "node16", "--lib", "es2022,dom,dom.iterable", "--outDir", "built")
RUN = "require(process.argv[1]).run(process.argv[2]).then((found) => console.log(JSON.stringify(found)))"
GENERATORS = {  # the names of the programs, and how what they use is made
    "openapi_fetch": (
        *("openapi-typescript", DOCUMENT, "-o", "generated/openapi_fetch.ts"),
        "--default-non-nullable=false",  # else a body has to have each field that has a default
    ),
    "hey_api": ("openapi-ts", "-i", DOCUMENT, "-o", "generated/hey_api"),
    "orval": ("orval", "--config", "orval.config.js"),
    "swagger_typescript_api": (
        *("swagger-typescript-api", "generate", "-p", DOCUMENT),
        *("-o", "generated/swagger_typescript_api"),
    ),
}

KEY = "rk_clients_0123456789abcdef0123456789abcdef"
ITEMS = ({"name": "Desk", "price": 30}, {"name": "Chair", "price": 30}, {"name": "Lamp", "price": 10})
FOUND = {
    "first": "Desk",
    "price": 30,
    "created": ["Shelf", "active"],
    "found": ["Chair", "Desk"],
    "problem": [422, "The body does not fit the schema", "#/name"],
    "event": "Desk",
}


def run(folder: Path, *command: str | Path, path: Path, **settings: str) -> str:
    """What a command prints, with the programs of `path`."""
    environ = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}", **settings}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=5 * SECONDS
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Gunicorn]:
    with Gunicorn(tmp_path, workers=1, app="tests.shop.clients:create_app()", ADMIN_KEY=KEY) as running:
        for item in ITEMS:
            assert running.post("/products", item).status == 200
        yield running


def described(service: Gunicorn, folder: Path) -> str:
    """The base URL of a service, whose document is now in the folder."""
    (folder / DOCUMENT).write_bytes(service.get("/openapi.json").body)
    return service.base + json.loads((folder / DOCUMENT).read_bytes())["servers"][0]["url"]


def test_clients_in_typescript_work(tmp_path: Path, service: Gunicorn) -> None:
    npm = Path(require("npm"))
    folder = shutil.copytree(SOURCES, tmp_path / "clients")
    run(folder, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", path=npm.parent)
    url, path = described(service, folder), folder / "node_modules/.bin"
    for command in GENERATORS.values():
        run(folder, *command, path=path, BASE_URL=url)
    run(folder, "tsc", *TSC, *(f"{name}.ts" for name in GENERATORS), path=path)
    found = {
        name: json.loads(run(folder, "node", "-e", RUN, f"./built/{name}.js", url, path=path)) for name in GENERATORS
    }
    assert found == dict.fromkeys(GENERATORS, FOUND)


def test_a_client_in_python_works(tmp_path: Path, service: Gunicorn) -> None:
    folder, program = shutil.copytree(SOURCES, tmp_path / "clients"), "python_client.py"
    venv.create(tmp_path / "environment", with_pip=True)
    path = tmp_path / "environment/bin"
    pip = ("pip", "install", "-q", "--disable-pip-version-check", "--require-hashes")
    run(folder, path / pip[0], *pip[1:], "-r", "requirements.txt", path=path)
    url = described(service, folder)
    generate = ("generate", "--path", DOCUMENT, "--output-path", "generated", "--fail-on-warning")
    run(folder, path / "openapi-python-client", *generate, path=path)
    run(folder, path / "mypy", "--strict", "generated", program, path=path, MYPYPATH="generated")
    assert json.loads(run(folder, path / "python", program, url, KEY, path=path, PYTHONPATH="generated")) == FOUND

"""Clients that generators make of /openapi.json, as docs/clients.md says: what a program does with them compiles,
strictly, and works.

Each program in tests/clients does the same: it lists, reads, creates, changes, filters and sorts, is refused, reads
some fields and a related item, follows the feed, adds up groups, filters and sorts over a reference, chooses what an
embedded list has, and creates or changes a user by its e-mail address. A field that does not exist is an error there,
so that no type is "any".
"""

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Iterator, Sequence
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
WITHOUT_WEBHOOKS = "without-webhooks.json"  # for openapi-generator: of what it makes of them, nothing compiles
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
    "typescript_fetch": (
        *("openapi-generator-cli", "generate", "-i", WITHOUT_WEBHOOKS, "-g", "typescript-fetch"),
        *("-o", "generated/typescript_fetch"),
    ),
}
PYTHON_GENERATORS = {  # likewise, and how their client is checked with the program
    "python_client": (
        ("openapi-python-client", "generate", "--path", DOCUMENT, "--output-path", "generated", "--fail-on-warning"),
        ("generated",),
    ),
    "openapi_generator_client": (
        ("openapi-generator-cli", "generate", "-i", WITHOUT_WEBHOOKS, "-g", "python", "-o", "generated"),
        ("--follow-imports", "silent"),
    ),
}
MODELS = ("datamodel-codegen", "--input", DOCUMENT, "--input-file-type", "openapi", "--output", "models.py")
NAMED = ("--naming-strategy", "parent-prefixed", "--reuse-model")

KEY = "rk_clients_0123456789abcdef0123456789abcdef"
ITEMS = ({"name": "Desk", "price": 30}, {"name": "Chair", "price": 30}, {"name": "Lamp", "price": 10})
FOUND = {
    "first": "Desk",
    "price": 30,
    "created": ["Shelf", "active"],
    "found": ["Chair", "Desk"],
    "problem": [422, "The body does not fit the schema", "#/name"],
    "stock": 3,
    "names": {"name": "Desk"},
    "keeper": [2, "ada@example.org"],
    "event": "Desk",
    "groups": [{"group": {"status": "active"}, "count": 2, "sum": {"price": 60}}],
    "filtered": [2, 3, 1],
    "path": {"level": 3, "keeper": {"email": "ada@example.org"}},
    "chosen": [{"level": 2}],
    "upserted": "Ada",
}


def run(folder: Path, *command: str | Path, path: Sequence[Path], **settings: str) -> str:
    """What a command prints, with the programs of the folders `path`."""
    environ = {**os.environ, "PATH": os.pathsep.join([*map(str, path), os.environ["PATH"]]), **settings}
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
        user = running.post("/users", {"email": "ada@example.org"}).json()["id"]
        for level, keeper in ((2, user), (3, user), (1, user), (1, None)):
            assert running.post("/results", {"pair": [1.5, "a"], "level": level, "keeper": keeper}).status == 200
        yield running


def described(service: Gunicorn, folder: Path) -> str:
    """The base URL of a service, whose document is now in the folder, and without webhooks."""
    (folder / DOCUMENT).write_bytes(service.get("/openapi.json").body)
    (folder / WITHOUT_WEBHOOKS).write_bytes(service.get("/openapi.json?webhooks=no").body)
    return service.base + json.loads((folder / DOCUMENT).read_bytes())["servers"][0]["url"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of tests/clients/requirements.txt."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    install = ("install", "-q", "--disable-pip-version-check", "--require-hashes", "-r")
    run(folder, folder / "bin/pip", *install, SOURCES / "requirements.txt", path=[])
    return folder / "bin"


def test_clients_in_typescript_work(tmp_path: Path, service: Gunicorn, programs: Path) -> None:
    npm = Path(require("npm"))
    folder = shutil.copytree(SOURCES, tmp_path / "clients")
    run(folder, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", path=[npm.parent])
    url, path = described(service, folder), [folder / "node_modules/.bin", programs]
    for command in GENERATORS.values():
        run(folder, *command, path=path, BASE_URL=url)
    run(folder, "tsc", *TSC, *(f"{name}.ts" for name in GENERATORS), path=path)
    found = {
        name: json.loads(run(folder, "node", "-e", RUN, f"./built/{name}.js", url, path=path)) for name in GENERATORS
    }
    assert found == dict.fromkeys(GENERATORS, FOUND)


@pytest.mark.parametrize("name", PYTHON_GENERATORS)
def test_a_client_in_python_works(tmp_path: Path, service: Gunicorn, programs: Path, name: str) -> None:
    folder, path = shutil.copytree(SOURCES, tmp_path / "clients"), [programs]
    url, (generate, checked) = described(service, folder), PYTHON_GENERATORS[name]
    run(folder, *generate, path=path)
    run(folder, "mypy", "--strict", *checked, f"{name}.py", path=path, MYPYPATH="generated")
    found = run(folder, "python", f"{name}.py", url, KEY, path=path, PYTHONPATH="generated")
    assert json.loads(found) == FOUND


def test_models_in_python_have_names_that_say_something(tmp_path: Path, service: Gunicorn, programs: Path) -> None:
    """Of the values of a field: the collection and the field, and not `Status7`."""
    described(service, tmp_path)
    run(tmp_path, *MODELS, *NAMED, path=[programs])
    list_enums = (
        "import models; print(*(name for name, part in vars(models).items() if type(part) is type(models.Enum)))"
    )
    names = run(tmp_path, "python", "-c", list_enums, path=[programs]).split()
    assert {"ProductStatus", "UserStatus", "OrderStatus"} <= {*names}
    assert not [name for name in names if name[-1].isdigit()]

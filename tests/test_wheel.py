"""The wheel: what it has, and how it is installed."""

import os
import re
import shutil
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.installed import run
from tests.live import ROOT
from tests.test_readme import blocks

pytestmark = [pytest.mark.matrix]

IN_PROCESS = """
import config, errors  # the project's own
from restkeeper import Config, Index, ItemSchema, Resource, Text, create_app

class NoteSchema(ItemSchema):
    "A note."
    name = Text(1, 200, required=True)

client = create_app(Config(), [Resource("notes", "note", NoteSchema, (Index("name"),))]).test_client()
made = client.post("/notes", json={"name": "a"})
assert client.get(made.headers["Location"]).json == made.json
print(config.MINE, errors.MINE)
"""
UNITTEST = """
import json, unittest
from urllib.request import urlopen
from restkeeper import LiveServer

class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(LiveServer())

    def test_it_answers(self):
        with urlopen(self.server.url + "/users") as response:
            self.assertEqual(json.load(response), [])
"""


def test_a_release_has_the_documentation(tmp_path: Path) -> None:
    """In the wheel and in the source archive, if `make docs` has run; a wheel made of the archive has it, too."""
    checkout, site = tmp_path / "restkeeper", "restkeeper/site.zip"
    caches = (".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "build")
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(*caches))
    build: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "-d", tmp_path / "dist"]
    run([*build, "-t", "wheel"], checkout)
    assert site not in names_in(tmp_path / "dist")
    (checkout / "build").mkdir()
    (checkout / "build" / "site.zip").write_bytes(b"pages")
    run([*build, "-t", "wheel"], checkout)
    assert site in names_in(tmp_path / "dist")
    run([*build, "-t", "sdist"], checkout)
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path / "source", filter="data")
    run([*build[:-1], tmp_path / "again", "-t", "wheel"], next((tmp_path / "source").iterdir()))
    assert site in names_in(tmp_path / "again")


def names_in(folder: Path) -> list[str]:
    """The files in the wheel of a folder."""
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_a_checkout_gets_the_command(bin: Path, tmp_path: Path) -> None:
    """By what docs/deployment.md says, beside the pinned packages."""
    (options,) = re.findall(r"`pip install (--no-deps -e) \.`", (ROOT / "docs/deployment.md").read_text())
    venv.create(tmp_path, with_pip=True)
    run([tmp_path / "bin/pip", "install", "-q", "--disable-pip-version-check", *options.split(), ROOT], tmp_path)
    (pinned,) = bin.parent.glob("lib/python*/site-packages")
    (own,) = tmp_path.glob("lib/python*/site-packages")
    (own / "pinned.pth").write_text(f"{pinned}\n")
    assert "Usage: restkeeper" in run([tmp_path / "bin/restkeeper", "--help"], tmp_path)


def test_each_command_of_the_page_on_installation_works(tmp_path: Path) -> None:
    """In their order, in a copy of this checkout; instead of serving, the command prints its help."""
    copied = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "dist")
    checkout = shutil.copytree(ROOT, tmp_path / "checkout", ignore=copied)
    venv.create(tmp_path / "tools", with_pip=True)
    tools, home = tmp_path / "tools/bin", {"PIPX_HOME": f"{tmp_path}/pipx", "PIPX_BIN_DIR": f"{tmp_path}/bin"}
    run([tools / "pip", "install", "-q", "--disable-pip-version-check", "uv", "pipx"], tmp_path)
    lines = [block.text for block in blocks("install.md", "text")]
    script = "".join(lines).replace("restkeeper db.json", "restkeeper --help")
    environ = os.environ | home | {"PATH": f"{tools}:{os.environ['PATH']}", "UV_CACHE_DIR": f"{tmp_path}/uv"}
    output = run(["bash", "-euo", "pipefail", "-c", script], checkout, environ=environ)
    assert "Usage: restkeeper" in output
    assert "Usage: restkeeper" in run([tmp_path / "bin/restkeeper", "--help"], tmp_path)
    run([checkout / ".venv/bin/python", "-c", "import prometheus_client, psycopg, psycopg_pool, redis"], tmp_path)
    assert len([*checkout.glob("shop/wheels/restkeeper-*.whl")]) == 1


def test_the_wheel_has_type_information(wheel: Path) -> None:
    """It has none of our tests, and our service only as the template of `new`."""
    names = zipfile.ZipFile(wheel).namelist()
    assert "restkeeper/py.typed" in names
    assert {name.partition("/")[0] for name in names} == {"restkeeper", wheel.name.partition("-py3")[0] + ".dist-info"}


def test_the_engine_works_inside_a_project(bin: Path, host: Path) -> None:
    assert run([bin / "python", "-c", IN_PROCESS], host) == "mine mine\n"
    assert "has no create_app(), so it is no Restkeeper service" in run(
        [bin / "restkeeper", "serve", "--no-reload"], host, code=1
    )


def test_other_programs_run_the_tests_of_a_new_service(bin: Path, shop: Path) -> None:
    assert "5 passed" in run([bin / "pytest", "-n", "2"], shop)
    (shop / "tests" / "test_unittest.py").write_text(UNITTEST)
    assert "\nOK" in run([bin / "python", "-m", "unittest", "tests/test_unittest.py"], shop)
    (shop / "tests" / "test_unittest.py").unlink()


def test_the_makefile_of_a_new_service_works(shop: Path) -> None:
    assert "5 passed" in run(["make", "test", f"PYTHON={sys.executable}"], shop)


def test_the_extras_are_those_of_the_copied_wheel(shop: Path, tmp_path: Path) -> None:
    """Its line in requirements.txt is installed by pip from the service's folder, wherever the service is copied to."""
    copy = shutil.copytree(shop, tmp_path / "shop", ignore=shutil.ignore_patterns(".venv"))
    requirements = copy / "requirements.txt"
    requirements.write_text(requirements.read_text().partition("METRICS_TOKEN: ")[2])
    venv.create(tmp_path / "environment", with_pip=True)
    pip = tmp_path / "environment/bin/pip"
    run([pip, "install", "-q", "--disable-pip-version-check", "-r", "requirements.txt"], copy)
    code = "import prometheus_client, psycopg, psycopg_pool, redis, restkeeper; print(restkeeper.__file__)"
    assert str(tmp_path) in run([tmp_path / "environment/bin/python", "-c", code], copy)


@pytest.mark.parametrize("program", ["restkeeper", "flask"])
def test_every_command_works(bin: Path, shop: Path, tmp_path: Path, program: str) -> None:
    """On the service of the present folder, with either program."""
    command = bin / program
    store = shop / "restkeeper.db"
    items = tmp_path / "items.ndjson"
    items.write_text('{"name": "Lamp"}\n')
    assert "imported 1" in run([command, "import", "products", items], shop)
    assert '"name":"Lamp"' in run([command, "export", "products"], shop)
    assert "rk_" in run([command, "keys", "create", "mine", "--scope", "admin"], shop)
    for arguments in (["reap"], ["migrate"], ["deliver", "--once"], ["backup", str(tmp_path / "backup.db")]):
        run([command, *arguments], shop)
    assert "1 products" in run([command, "restore", tmp_path / "backup.db", "--discard"], shop)
    for file in shop.glob(f"{store.name}*"):
        file.unlink()

"""examples/rental: its rules hold on both stores, the calls of its README run, and it is as short as it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from restkeeper.__main__ import main
from tests.live import ROOT, Gunicorn
from tests.test_readme import environ_of, run_block, run_pytest

EXAMPLE = ROOT / "examples" / "rental"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
WRITTEN = (  # by `restkeeper new`
    *(".gitignore", "Procfile", "gunicorn.conf.py", "pyproject.toml", "requirements.txt"),
    *("resources/__init__.py", "storage/__init__.py"),
)
MOST_LINES = 230
CALLS = """
{"id":"ada",…,"note":"Rings twice.",…}
[{"id":"ada","owner":"ada","name":"Ada Lovelace","email":"ada@example.org","created_at":…}]
[{…,"tool":{…,"name":"Hammer drill",…},…,"customer":"ada","total":25,"status":"requested",…}]
{…,"status":"confirmed",…}
{…,"status":"returned",…}
[{"group":{"month(created_at)":…},"count":1,"sum":{"total":25}}]
[{…,"number":1,…,"customer":"ada","total":25,"status":"open",…}]
"""


def test_it_is_short(tmp_path: Path) -> None:
    """Its own modules, but for the tests; what is not its own is as `restkeeper new` writes it."""
    new = tmp_path / "rental"
    assert CliRunner().invoke(main, ["new", str(new)]).exit_code == 0
    assert [name for name in WRITTEN if (EXAMPLE / name).read_bytes() != (new / name).read_bytes()] == []
    modules = [path.relative_to(EXAMPLE) for path in EXAMPLE.rglob("*.py")]
    own = [path for path in modules if not {".venv", "tests"}.intersection(path.parts) and str(path) not in WRITTEN]
    assert 200 < sum(len((EXAMPLE / path).read_text(encoding="utf-8").splitlines()) for path in own) <= MOST_LINES
    assert f"in {MOST_LINES} lines of Python" in README


def test_its_table_names_what_there_is() -> None:
    """Files and folders, each once declared."""
    table = "".join(re.findall(r"^\|.*\|$", README, re.M))
    named = re.findall(r"`([\w/]+(?:\.py|/))`", table)
    assert named and [name for name in named if not (EXAMPLE / name).exists()] == []


@pytest.mark.matrix
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_its_rules_hold(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    environ = environ_of(tmp_path)
    if store == "postgresql":
        environ["TEST_DATABASE_URL"] = request.getfixturevalue("url")
    assert " passed" in run_pytest(EXAMPLE, environ)


@pytest.mark.matrix
def test_the_calls_of_its_readme_run(tmp_path: Path) -> None:
    """As one shell has them, with the keys that it makes."""
    script, environ = "".join(re.findall(r"^```sh\n(.*?)^```$", README, re.M | re.S)), environ_of(tmp_path)
    with Gunicorn(tmp_path, workers=1, root=EXAMPLE, app="", PYTHONPATH=str(ROOT), AUTH="required") as server:
        environ["BASE"] = server.base
        script = script.replace("http://127.0.0.1:8000", server.base)
        run_block(script, EXAMPLE, environ, CALLS)


@pytest.mark.matrix
def test_its_types_are_strict(tmp_path: Path) -> None:
    """As mypy sees it beside an engine that is installed; the first run, which has no cache, takes 20 s."""
    (tmp_path / "restkeeper").symlink_to(ROOT / "restkeeper")
    options = ["--strict", "--follow-imports", "silent", "--cache-dir", str(ROOT / ".mypy_cache" / "rental")]
    command, environ = [sys.executable, "-m", "mypy", *options, "."], {"MYPYPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=EXAMPLE, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

"""`flask export`: the format, the file's mode, interrupted exports, and formulas."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from restkeeper.config import Config
from restkeeper.web.application import Application
from tests.shop import create_app


@pytest.fixture
def app(tmp_path: Path) -> Application:
    made = create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db"))
    made.test_client().post("/products", json={"name": "=HYPERLINK()", "description": "-1", "stock": 1})
    made.test_client().post("/products", json={"name": "\tx", "description": "plain = text", "tags": ["=1"]})
    return made


@pytest.fixture
def run(app: Application) -> Callable[..., Result]:
    runner = app.test_cli_runner()
    return lambda *arguments: runner.invoke(args=["export", "products", *map(str, arguments)])


@pytest.mark.needs("keys")
@pytest.mark.parametrize(
    ("name", "options", "begin"),
    [
        ("a.csv", [], b"id,name,"),
        ("a.JSON", [], b"[\n{"),
        ("a.ndjson", [], b'{"id"'),
        ("a", [], b'{"id"'),
        ("a.csv", ["--format", "json"], b"[\n{"),
    ],
)
def test_the_suffix_chooses_the_format(
    run: Callable[..., Result], tmp_path: Path, name: str, options: list[str], begin: bytes
) -> None:
    """The option --format overrides it."""
    assert run(tmp_path / name, *options).exit_code == 0
    assert (tmp_path / name).read_bytes().startswith(begin)


def test_only_the_owner_can_read_an_export(run: Callable[..., Result], tmp_path: Path) -> None:
    """Also if it replaces a file that others could read, or the target of a link."""
    (tmp_path / "a.csv").write_text("old")
    (tmp_path / "a.csv").chmod(0o644)
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
    run(tmp_path / "link.csv")
    assert stat.S_IMODE((tmp_path / "a.csv").stat().st_mode) == 0o600
    assert (tmp_path / "link.csv").is_symlink() and "HYPERLINK" in (tmp_path / "a.csv").read_text()


def test_an_interrupted_export_leaves_no_part(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that had the name before still exists."""
    (tmp_path / "a.csv").write_text("old")
    before = set(os.listdir(tmp_path))

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("restkeeper.cli.exporting.os.fsync", fail)
    assert run(tmp_path / "a.csv").exit_code == 1
    assert (tmp_path / "a.csv").read_text() == "old" and set(os.listdir(tmp_path)) == before


def test_possible_formulas_are_reported(run: Callable[..., Result], tmp_path: Path) -> None:
    """Cells that a spreadsheet would run are counted with their fields, and exported unchanged.

    Numbers are safe, and JSON has no cells.
    """
    message = run(tmp_path / "a.csv").stderr
    assert message.startswith("warning: 3 cells begin with = + - @, a tab or CR")
    assert message.endswith("formulas: name (2), description (1)\n")
    assert run(tmp_path / "a.json").stderr == ""
    assert {item["name"] for item in json.loads((tmp_path / "a.json").read_bytes())} == {"=HYPERLINK()", "\tx"}


def test_an_export_writes_into_a_pipe(run: Callable[..., Result], tmp_path: Path) -> None:
    """The pipe is not replaced by a file."""
    assert run("/dev/null").exit_code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)

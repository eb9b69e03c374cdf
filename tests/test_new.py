"""`restkeeper new`, and the command itself."""

import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

import app
import restkeeper
from restkeeper import Config
from restkeeper.__main__ import COMMANDS, main
from restkeeper.cli.new import BOUNDS, EXTRAS, SERVICE
from tests.live import ROOT


def files(folder: Path) -> dict[str, bytes]:
    found = [path for part in SERVICE for path in (folder / part, *(folder / part).rglob("*.py")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_new_writes_the_service_of_this_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the service at the top, with tests and files for a deployment."""
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(main, ["new", "shop"])
    assert (run.exit_code, run.output) == (0, "shop is a service now. Next: cd shop && restkeeper serve\n")
    made, here = files(tmp_path / "shop"), files(ROOT)
    assert made == here | {"app.py": here["app.py"].replace(b'"Shop"', b'"shop"')}  # the title of its pages
    version = restkeeper.__version__
    assert (tmp_path / "shop/requirements.txt").read_text().splitlines() == [
        f"restkeeper=={version}",
        f"# With PostgreSQL, REDIS_URL, METRICS_TOKEN: restkeeper[postgresql,redis,metrics]=={version}",
        *BOUNDS,
    ]
    assert (tmp_path / "shop/README.md").read_text().startswith("# shop\n")
    others = {".gitignore", "Makefile", "README.md", "pyproject.toml", "requirements.txt", "tests"}
    assert {path.name for path in (tmp_path / "shop").iterdir()} == {*SERVICE, *others}
    again = CliRunner().invoke(main, ["new", "shop"])
    assert (again.exit_code, again.output) == (1, "Error: shop exists; choose another name, or delete it\n")


def test_a_new_service_has_its_own_copy_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wheel = tmp_path / "restkeeper-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"x")
    assert CliRunner().invoke(main, ["new", "shop", "--engine", str(wheel)]).exit_code == 0
    lines = (tmp_path / "shop/requirements.txt").read_text().splitlines()
    assert (lines[0], lines[1].partition(": ")[2]) == (f"./wheels/{wheel.name}", f"./wheels/{wheel.name}{EXTRAS}")
    assert (tmp_path / "shop/wheels" / wheel.name).read_bytes() == b"x"


def test_a_new_service_requires_what_the_engine_does() -> None:
    """With the same bounds, and the same extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*BOUNDS} <= {*project["dependencies"]}
    assert {*EXTRAS.strip("[]").split(",")} == project["optional-dependencies"].keys()


def test_each_command_has_a_help_line() -> None:
    """Those of `flask`, and two of its own."""
    run = CliRunner().invoke(main, ["--help"])
    assert run.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in run.output
    assert CliRunner().invoke(main, ["--version"]).output == f"restkeeper {restkeeper.__version__}\n"


def test_a_command_uses_the_service_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its app.py creates the service; without one, the error is one line."""
    monkeypatch.setitem(sys.modules, "app", app)  # so that other tests import our modules again
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/a.db")
    run = CliRunner().invoke(main, ["keys", "list"])
    assert run.exit_code == 1 and f"{tmp_path}/app.py does not exist" in run.output
    (tmp_path / "app.py").write_text(
        "import restkeeper\n\ndef create_app(config=None):\n    return restkeeper.create_app(config, [])\n"
    )
    run = CliRunner().invoke(main, ["keys", "create", "mine", "--scope", "admin"])
    assert run.exit_code == 0 and "\nrk_" in run.output
    assert "mine" in CliRunner().invoke(main, ["keys", "list"]).output


@pytest.mark.top
@pytest.mark.parametrize("name", ["products", "users"])
def test_samples_can_be_imported(tmp_path: Path, name: str) -> None:
    samples = ROOT / "storage" / "samples" / f"{name}.ndjson"
    runner = app.create_app(Config(database_url=f"sqlite:///{tmp_path}/a.db")).test_cli_runner()
    result = runner.invoke(args=["import", name, str(samples)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"imported {len(samples.read_text().splitlines())} {name}\n")

"""The installed engine: its wheel, and the programs of an environment that has it.

`make release` names both, and the command `restkeeper` of its other installers; otherwise they are made here.
"""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.live import ROOT
from tests.waiting import SECONDS

PIP = ("-m", "pip", "install", "-q", "--disable-pip-version-check")


def run(command: list[str | Path], folder: Path, *, code: int = 0, environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=5 * SECONDS
    )
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def wheel(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if archive := pytestconfig.getoption("--wheel"):
        return Path(archive)
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT], folder)
    (found,) = folder.glob("restkeeper-*.whl")
    return found


@pytest.fixture(scope="session")
def bin(pytestconfig: pytest.Config, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has only the wheel, its extras and requirements, and pytest."""
    if folder := pytestconfig.getoption("--environment"):
        return Path(folder) / "bin"
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    run([python, *PIP, "--require-hashes", "-r", ROOT / "requirements-postgresql.txt"], folder)
    run([python, *PIP, "--no-index", f"{wheel}[metrics,postgresql,redis]"], folder)  # with the pinned versions
    run([python, *PIP, "pytest", "pytest-xdist"], folder)
    return folder / "bin"


@pytest.fixture(scope="session")
def restkeeper(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> list[str | Path]:
    """The command `restkeeper`."""
    if command := pytestconfig.getoption("--command"):
        return [*command.split()]
    return [request.getfixturevalue("bin") / "restkeeper"]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with modules named like parts of the engine."""
    folder = tmp_path_factory.mktemp("host")
    for name in ("app", "config", "errors", "clock", "web"):
        (folder / f"{name}.py").write_text("MINE = 'mine'\n")
    (folder / "storage").mkdir()
    (folder / "storage" / "__init__.py").write_text("MINE = 'mine'\n")
    return folder


@pytest.fixture(scope="module")
def shop(restkeeper: list[str | Path], wheel: Path, host: Path) -> Path:
    """What the command `restkeeper new` writes."""
    run([*restkeeper, "new", "shop", "--engine", wheel], host)
    return host / "shop"

"""Commands without a store: only those that are meant to create one do so."""

import subprocess
import sys
from pathlib import Path

import pytest

from restkeeper.config import Config
from tests.live import ROOT
from tests.shop import RESOURCES, create_app
from tests.test_delivering import deliver


@pytest.mark.needs("keys", "webhooks")
@pytest.mark.parametrize(
    "arguments",
    [
        ["backup", "copy.db"],
        ["export", "products"],
        ["keys", "list"],
        ["keys", "revoke", "x"],
        ["keys", "rotate", "x"],
        ["deliver", "--once"],
        ["reap"],
    ],
)
def test_no_store_is_created_by_mistake(tmp_path: Path, arguments: list[str]) -> None:
    """The error names the mistyped path in one line, and no file is created."""
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/typo.db"), RESOURCES, serves=False)
    result = app.test_cli_runner().invoke(args=arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith(f"Error: there is no store at '{tmp_path}/typo.db'")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("keys")
@pytest.mark.parametrize(
    "arguments", [["keys", "create", "x", "--scope", "admin"], ["import", "users", "-"], ["migrate"]]
)
def test_a_store_is_created_on_purpose(tmp_path: Path, arguments: list[str]) -> None:
    """By the commands that can be the first ones of a deployment."""
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/new.db"), RESOURCES, serves=False)
    assert app.test_cli_runner().invoke(args=arguments, input="email\na@example.org\n").exit_code == 0
    assert (tmp_path / "new.db").exists()


@pytest.mark.parametrize("arguments", [["--help"], ["reap"]])
def test_loading_the_application_creates_no_store(tmp_path: Path, arguments: list[str]) -> None:
    """Run as an operator runs `flask`."""
    command = [sys.executable, "-m", "flask", "--app", str(ROOT / "app.py"), *arguments]
    environ = {"DATABASE_URL": f"sqlite:///{tmp_path}/typo.db"}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (0 if arguments == ["--help"] else 1), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_starts_first_waits_for_the_store(tmp_path: Path) -> None:
    """It says so, and continues when the service has created it."""
    worker = deliver(tmp_path)
    assert worker.stderr
    assert worker.stderr.readline().startswith("waiting: there is no store at ")
    create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db")).extensions["restkeeper"].store.close()
    assert worker.stderr.readline().startswith("delivering from ")
    worker.terminate()
    worker.communicate(timeout=30)
    assert worker.returncode == 0


@pytest.mark.needs("webhooks")
def test_a_worker_that_waits_for_the_store_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is created."""
    checks: list[int] = []
    module = sys.modules["restkeeper.cli.deliver"]  # in the package, the command of this name hides the module
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "_stop_requested", lambda: lambda: checks.append(1) or len(checks) > 3)
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/typo.db"), RESOURCES, serves=False)
    result = app.test_cli_runner().invoke(args=["deliver"])
    assert (result.exit_code, len(checks)) == (1, 4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("webhooks")
def test_a_worker_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped path ends it after GIVE_UP_SECONDS."""
    module = sys.modules["restkeeper.cli.deliver"]
    monkeypatch.setattr(module, "GIVE_UP_SECONDS", 0.0)
    monkeypatch.setattr(module, "_stop_requested", lambda: lambda: False)
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/typo.db"), RESOURCES, serves=False)
    result = app.test_cli_runner().invoke(args=["deliver"])
    assert result.exit_code == 1 and "there is no store at" in result.stderr
    assert list(tmp_path.iterdir()) == []

"""Commands and workers without a store: only the start and those that are meant to create one do so."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from restkeeper.config import Config
from restkeeper.service import started_stores
from restkeeper.storage import Options, locate
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.sqlite import connection
from restkeeper.stores import START_PAUSE_SECONDS
from tests import stores
from tests.clock import SetClock
from tests.live import ROOT, Gunicorn
from tests.shop import RESOURCES, WINDOW, create_app
from tests.test_delivering import deliver
from tests.waiting import SECONDS, until


@pytest.mark.needs("keys", "webhooks")
def test_no_store_is_created_by_mistake(tmp_path: Path) -> None:
    url = stores.without_store(f"sqlite:///{tmp_path}/typo.db")
    runner = create_app(Config(database_url=url), RESOURCES, serves=False).test_cli_runner()
    commands = [
        "export products",
        "import --dry-run users -",
        "keys list",
        "keys revoke x",
        "keys rotate x",
        "deliver --once",
        "reap",
    ]
    for command in [*commands, *["backup copy.db"] * url.startswith("sqlite")]:
        result = runner.invoke(args=command.split())
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert result.stderr.startswith("Error: there is no store ") and stores.name_of(url) in result.stderr
        assert not stores.exists(url)


@pytest.mark.needs("keys")
@pytest.mark.parametrize("command", ["keys create x --scope admin", "import users -", "migrate"])
def test_a_store_is_created_on_purpose(tmp_path: Path, command: str) -> None:
    """By the commands that can be the first ones of a deployment."""
    url = stores.without_store(f"sqlite:///{tmp_path}/new.db")
    app = create_app(Config(database_url=url), RESOURCES, serves=False)
    assert app.test_cli_runner().invoke(args=command.split(), input="email\na@example.org\n").exit_code == 0
    assert stores.exists(url)


def test_loading_the_application_creates_no_store(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flask", "--app", str(ROOT / "app.py"), "reap"]
    url = stores.without_store(f"sqlite:///{tmp_path}/typo.db")
    done = subprocess.run(
        command, cwd=tmp_path, env={"DATABASE_URL": url}, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 1, done.stderr
    assert not stores.exists(url)


def test_a_worker_that_starts_first_waits_for_the_store(tmp_path: Path) -> None:
    """It says so, and continues when the service has created it."""
    url = stores.without_store(f"sqlite:///{tmp_path}/restkeeper.db")
    worker = deliver(tmp_path)
    assert worker.stderr
    assert worker.stderr.readline().startswith("waiting: there is no store ")
    store = create_app(Config(database_url=url)).extensions["restkeeper"].store
    store.open()
    store.close()
    assert worker.stderr.readline().startswith("delivering from ")
    worker.terminate()
    worker.communicate(timeout=SECONDS)
    assert worker.returncode == 0


@pytest.mark.needs("webhooks")
def test_a_worker_that_waits_for_the_store_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is stopped, or after GIVE_UP_SECONDS: the place may be mistyped. No store is created."""
    url = stores.without_store(f"sqlite:///{tmp_path}/typo.db")
    runner = create_app(Config(database_url=url), RESOURCES, serves=False).test_cli_runner()
    checks: list[int] = []
    monkeypatch.setattr("restkeeper.command.LOOK_SECONDS", 0.0)
    monkeypatch.setattr(
        "restkeeper.features.webhooks.command.stop_requested", lambda: lambda: checks.append(1) or len(checks) > 3
    )
    assert (runner.invoke(args=["deliver"]).exit_code, len(checks)) == (1, 4)
    monkeypatch.setattr("restkeeper.command.GIVE_UP_SECONDS", 0.0)
    monkeypatch.setattr("restkeeper.features.webhooks.command.stop_requested", lambda: lambda: False)
    result = runner.invoke(args=["deliver"])
    assert result.exit_code == 1 and "there is no store " in result.stderr
    assert not stores.exists(url)


@pytest.mark.sqlite
@pytest.mark.parametrize("is_mount_point", [True, pytest.param(False, marks=pytest.mark.matrix)])
def test_a_worker_without_a_store_waits_for_it(tmp_path: Path, is_mount_point: bool) -> None:
    """It creates none: requests get 503 until the disk is mounted again, and then all items are there."""
    disk, away = tmp_path / "disk", tmp_path / "away"
    disk.mkdir()
    url = f"sqlite:///{disk}/restkeeper.db"
    with Gunicorn(tmp_path, workers=1, DATABASE_URL=url, RATE_LIMIT=f"50 per {WINDOW}") as server:
        item = server.post("/products", {"name": "Lamp"}).json()
        (worker,) = server.worker_pids()
        disk.rename(away)
        if is_mount_point:
            disk.mkdir()
        assert server.post("/products", {"name": "Lost"}).status == 503  # by the worker that has the store open
        os.kill(worker, signal.SIGKILL)
        until(lambda: server.worker_pids() not in ([], [worker]))
        for refused in (server.get("/products"), server.post("/products", {"name": "Lost"}), server.get("/readyz")):
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert str(disk) not in refused.body.decode()
        assert server.get("/products").headers["x-ratelimit-remaining"] == "48"
        assert [server.get(path).status for path in ("/healthz", "/openapi.json")] == [200, 200]
        assert list(disk.glob("**/*")) == []
        if is_mount_point:
            disk.rmdir()
        away.rename(disk)
        assert server.get("/readyz").status == 200
        assert server.post("/products", {"name": "Vase"}).status == 200
        assert [each["name"] for each in server.get("/products?sort=name").json()] == ["Lamp", "Vase"]
        assert server.get(f"/products/{item['id']}").json() == item
        log = server.log.read_text()
    assert log.count("requests get 503: ") == 2 and "Traceback" not in log  # a line of each worker


@pytest.mark.sqlite
def test_only_a_start_fails_for_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker responds 503 without the path, and goes on as soon as the store can be opened."""
    url, file = f"sqlite:///{tmp_path}/a.db", tmp_path / "a.db"
    file.write_text("no store")
    with pytest.raises(StoreUnavailable, match="^DATABASE_URL='.*file is not a database"):
        create_app(Config(database_url=url), RESOURCES)
    monkeypatch.setitem(started_stores, url, {})
    app = create_app(Config(database_url=url), RESOURCES)
    for path in ("/products", "/readyz", "/products/x"):
        refused = app.test_client().get(path)
        assert refused.status_code == 503 and "the store cannot be opened" in refused.json["detail"]
        assert str(tmp_path) not in refused.text
    file.unlink()
    locate(url).store([], Options()).open()
    until(lambda: app.test_client().get("/products").status_code == 200)  # a pause follows a failed attempt


class Closing(SetClock):
    """Closes a connection when a start waits for the second time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.slept.count(START_PAUSE_SECONDS) == 2:
            self._connection.close()


@pytest.mark.sqlite
def test_a_start_waits_while_its_file_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.01)
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/a.db")
    create_app().extensions["restkeeper"].store.close()
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        clock = Closing(other)
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        capsys.readouterr()
        app = create_app(clock=clock)
    assert app.test_client().get("/products").status_code == 200
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("restkeeper: waits up to 60 s for the store: DATABASE_URL=") and "locked" in line
    assert clock.slept.count(START_PAUSE_SECONDS) == 2

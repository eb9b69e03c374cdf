"""An acknowledged write survives killed processes (under gunicorn with two workers) and power failures."""

import json
import random
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from restkeeper.config import Config
from restkeeper.storage.sqlite.connection import SqliteConnection
from tests.live import Gunicorn
from tests.shop import create_app
from tests.waiting import SECONDS, until


@pytest.mark.parametrize(("settings", "level"), [({}, 2), ({"SQLITE_SYNCHRONOUS": "normal"}, 1)])
@pytest.mark.sqlite
def test_every_connection_is_as_durable_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], level: int
) -> None:
    """Each connection waits for the disk at each commit (FULL, 2), or only at checkpoints (NORMAL, 1)."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made = connect(*arguments, **options)
        opened.extend([made] * isinstance(made, SqliteConnection))  # not the one that creates the file
        return made

    monkeypatch.setattr("sqlite3.connect", watched)
    client = create_app(Config.from_env({"DATABASE_URL": f"sqlite:///{tmp_path}/a.db", **settings})).test_client()
    assert client.post("/products", json={"name": "Lamp"}).status_code == 200
    assert len(client.get("/products").json) == 1
    assert len(opened) > 1  # one that writes, one that reads
    for connection in opened:
        assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def _alone(file: Path) -> set[str]:
    """The names of the items in a copy of that one file, without its log."""
    assert not (log := file.with_name(f"{file.name}-wal")).exists() or not log.stat().st_size  # so it was no crash
    copy = shutil.copy(file, file.with_name("copy.db"))
    with closing(sqlite3.connect(copy)) as connection:
        return {json.loads(body)["name"] for (body,) in connection.execute("SELECT body FROM items")}


OPENS_LATE = """
import time
from restkeeper.server import settings
from restkeeper.server.settings import *

open_store = settings._open_store

def post_worker_init(worker):
    def open_late(service):
        while worker.alive:
            time.sleep(0.01)
        open_store(service)

    settings._open_store = open_late
    settings.post_worker_init(worker)

def worker_exit(server, worker):
    settings.worker_exit(server, worker)
    (opening,) = [thread for thread in worker.beside if thread.name == "opening"]
    print("opens" if opening.is_alive() else "has opened", flush=True)
"""


@pytest.mark.sqlite
def test_a_worker_that_is_stopped_at_its_start_closes_the_store(tmp_path: Path) -> None:
    """The store that it is just opening: the last process to close it moves the log into the file."""
    (settings := tmp_path / "gunicorn.conf.py").write_text(OPENS_LATE)
    with Gunicorn(tmp_path, "-c", str(settings), workers=1) as server:
        pass
    assert server.log.read_text().endswith("has opened\n")
    assert _alone(tmp_path / "restkeeper.db") == set()


@pytest.mark.sqlite
@pytest.mark.parametrize(("stop", "killed"), [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_after_a_stop_one_file_has_everything(tmp_path: Path, stop: int, killed: bool) -> None:
    """After SIGTERM or Ctrl-C a copy of the one file has every item: also after a reload and beside a killed worker."""
    with Gunicorn(tmp_path, workers=3) as server:
        for number in range(20):
            assert server.post("/products", {"name": f"{number}"}).status == 200
        before = set(server.worker_pids())
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(now := set(server.worker_pids())) == 3 and not now & before)
        for number in range(20, 40):
            assert server.post("/products", {"name": f"{number}"}).status == 200
        if killed:
            server.kill_worker(random.Random(0))  # noqa: S311
        server.process.send_signal(stop)
        assert server.process.wait(SECONDS) == 0
    assert _alone(tmp_path / "restkeeper.db") == {f"{number}" for number in range(40)}

"""An acknowledged write survives killed processes (under gunicorn with two workers) and power failures."""

import json
import os
import random
import shutil
import signal
import sqlite3
import threading
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from restkeeper.config import Config
from restkeeper.storage import open_store
from tests import stores
from tests.live import Gunicorn
from tests.shop import create_app
from tests.shop.products import RESOURCE
from tests.waiting import SECONDS, until

KILLS = 100
BETWEEN = 3  # acknowledged writes from one kill to the next, so that every kill could lose some


class Writer(threading.Thread):
    """Creates, changes and deletes items until it is stopped, and records the responses."""

    def __init__(self, number: int, progress: threading.Condition) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.server: Gunicorn | None = None
        self.acknowledged: dict[str, bytes] = {}  # path → body of the last response
        self.gone: set[str] = set()
        self.unsure: set[str] = set()  # paths of writes without a response
        self.lost_creates = 0
        self.written = 0
        self._progress = progress
        self._chance = random.Random(number)  # noqa: S311
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            where = (
                self._chance.choice(list(self.acknowledged))
                if self.acknowledged and self._chance.random() < 0.5
                else None
            )
            try:
                self._write(where)
            except (OSError, HTTPException):
                if where:
                    self.unsure.add(where)
                    del self.acknowledged[where]
                self.lost_creates += where is None
                continue
            with self._progress:
                self.written += 1
                self._progress.notify()

    def _write(self, where: str | None) -> None:
        assert self.server is not None
        if where is None:
            made = self.server.post("/products", {"name": f"of {self.number}", "attributes": {"pad": "x" * 300}})
            assert made.status == 200, made
            self.acknowledged[made.headers["location"]] = made.body
        elif self._chance.random() < 0.2:
            response = self.server.request("DELETE", where)
            assert response.status == 200, response
            self.gone.add(where)
            del self.acknowledged[where]
        else:
            response = self.server.request("PATCH", where, {"stock": self._chance.randrange(10**6)})
            assert response.status == 200, response
            self.acknowledged[where] = response.body


def _await_progress(writers: list[Writer], progress: threading.Condition) -> None:
    start = sum(writer.written for writer in writers)
    with progress:
        done = progress.wait_for(lambda: sum(writer.written for writer in writers) >= start + BETWEEN, timeout=60)
    assert done, "the service came to a halt"


@pytest.mark.parametrize(("settings", "level"), [({}, 2), ({"SQLITE_SYNCHRONOUS": "normal"}, 1)])
@pytest.mark.sqlite
def test_every_connection_is_as_durable_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], level: int
) -> None:
    """Each connection waits for the disk at each commit (FULL, 2), or only at checkpoints (NORMAL, 1)."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

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


@pytest.mark.sqlite
@pytest.mark.parametrize(("stop", "killed"), [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_after_a_stop_one_file_has_everything(tmp_path: Path, stop: int, killed: bool) -> None:
    """After SIGTERM or Ctrl-C a copy of the one file has every item: also after a reload and beside a killed worker."""
    with Gunicorn(tmp_path, workers=3, PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "metrics")) as server:
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


@pytest.mark.matrix
@pytest.mark.timeout(240)  # it takes half a minute on an idle machine
def test_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    """A hundred kills of workers and of the whole service lose no acknowledged write and leave no partial one."""
    progress = threading.Condition()
    writers = [Writer(number, progress) for number in range(4)]
    chance = random.Random(0)  # noqa: S311
    kills = 0
    while kills < KILLS:
        settings = {"LOG_LEVEL": "error", "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics")}
        with Gunicorn(tmp_path, "--log-level", "critical", start_new_session=True, **settings) as server:
            for writer in writers:
                writer.server = server
                if not writer.is_alive():
                    writer.start()
            for _ in range(19):
                _await_progress(writers, progress)
                server.kill_worker(chance)
            _await_progress(writers, progress)
            os.killpg(server.process.pid, signal.SIGKILL)
            kills += 20
    for writer in writers:
        writer.stopping = True
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive()
    url = f"sqlite:///{tmp_path}/restkeeper.db"
    with closing(open_store(stores.url(url), [RESOURCE.collection])) as store:
        bodies = {f"/products/{record.id}": record.body for record in store.scan("products")}
        assert store.count("products") == len(bodies)
    stores.require_whole(url)
    written = set()
    for writer in writers:
        for where, body in writer.acknowledged.items():
            assert bodies[where] == body
        assert not writer.gone & bodies.keys()
        written |= writer.acknowledged.keys() | writer.gone | writer.unsure
    unanswered = [json.loads(body) for where, body in bodies.items() if where not in written]
    assert len(unanswered) <= sum(writer.lost_creates for writer in writers)
    assert all(item["attributes"] == {"pad": "x" * 300} for item in unanswered)
    print(f"{kills} kills, {sum(writer.written for writer in writers)} answered writes, none lost")

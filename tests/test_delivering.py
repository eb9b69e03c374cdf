"""Webhooks in running processes: `flask deliver`, and delivery inside the service."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import stores
from tests.live import ROOT, Gunicorn
from tests.receiver import Receiver
from tests.shop import BOUNDS
from tests.waiting import SECONDS


def worker_command() -> list[str]:
    """The command of the worker in the Procfile."""
    lines = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines())
    return [sys.executable, "-m", *lines["worker"].split()]


def deliver(folder: Path, *arguments: str, **settings: str) -> "subprocess.Popen[str]":
    environ = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": stores.url(f"sqlite:///{folder}/restkeeper.db"),
        "WEBHOOK_ALLOW_PRIVATE": "1",
        "FLASK_APP": "tests.shop",
        **settings,
    }
    command = [*worker_command(), *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("inside", [True, False])
def test_a_stop_waits_for_a_running_delivery(tmp_path: Path, inside: bool) -> None:
    """On SIGTERM the service, or its worker, stores the result of the running delivery."""
    settings = {"WEBHOOK_ALLOW_PRIVATE": "1", "WEBHOOK_WORKER": "inside" if inside else "", "LOG_LEVEL": "warning"}
    with Receiver() as receiver:
        hanging = receiver.inboxes["hanging"]
        with Gunicorn(tmp_path, workers=1, bounds={"webhook_timeout": 1}, **settings) as server:
            made = server.post("/api/v1/webhooks", {"url": f"{receiver.base}/hanging"}).json()
            hanging.secret = made["secret"]
            server.post("/products", {"name": "x"})
            worker = server.process if inside else deliver(tmp_path, **{BOUNDS: '{"webhook_timeout": 1}'})
            with receiver.changed:
                assert receiver.changed.wait_for(lambda: hanging.tries, SECONDS)
            worker.send_signal(signal.SIGTERM)
            errors = worker.communicate(timeout=SECONDS)[1]
            assert worker.returncode == 0, errors
        with Gunicorn(tmp_path, workers=1, WEBHOOK_ALLOW_PRIVATE="1") as server:
            (entry,) = server.get(f"/api/v1/webhooks/{made['id']}/deliveries").json()
    assert (entry["state"], entry["attempts"]) == ("pending", 1)
    assert entry["response_excerpt"] == "timed out after 1 s"


CONFIGURATION = """
from restkeeper.server import settings
from restkeeper.server.settings import *

def worker_exit(server, worker):
    settings.worker_exit(server, worker)
    (delivering,) = [thread for thread in worker.beside if thread.name == "deliver"]
    print("delivers" if delivering.is_alive() else "joined", flush=True)
"""


def test_a_stop_waits_no_longer_than_the_deliverer_runs(tmp_path: Path) -> None:
    """The join sees the end of the thread: it is no time-out, which each stop of an idle service would wait for."""
    (settings := tmp_path / "gunicorn.conf.py").write_text(CONFIGURATION)
    with Gunicorn(tmp_path, "-c", str(settings), workers=1, WEBHOOK_WORKER="inside") as server:
        pass
    assert server.log.read_text().endswith("joined\n")

"""Webhooks in running processes: `flask deliver`, delivery inside the service, and killed processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests import stores
from tests.live import ROOT, Gunicorn
from tests.receiver import Receiver
from tests.shop import BOUNDS

SECONDS = 30.0


def subscribe(server: Gunicorn, receiver: Receiver, name: str) -> str:
    made = server.post("/api/v1/webhooks", {"url": f"{receiver.base}/{name}"}).json()
    receiver.inboxes[name].secret = made["secret"]
    return f"/api/v1/webhooks/{made['id']}"


def arrived(receiver: Receiver, name: str, count: int) -> list[str]:
    """The types of the events that an endpoint received, when there are that many."""
    inbox = receiver.inboxes[name]
    with receiver.changed:
        assert receiver.changed.wait_for(lambda: len(inbox.events) >= count, SECONDS), f"{len(inbox.events)} came"
    return [event["type"] for event in inbox.events]


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


def test_a_slow_endpoint_does_not_block_the_service(tmp_path: Path) -> None:
    """While deliveries hang, the same processes handle requests, and deliver to other endpoints."""
    settings = {"WEBHOOK_ALLOW_PRIVATE": "1", "WEBHOOK_WORKER": "inside", "LOG_LEVEL": "warning"}
    with Receiver() as receiver, Gunicorn(tmp_path, workers=1, **settings) as server:
        subscribe(server, receiver, "hanging")
        subscribe(server, receiver, "healthy")
        for n in range(20):
            server.post("/products", {"name": str(n)})
        assert len(arrived(receiver, "healthy", 20)) == 20
        assert server.get("/products").status == 200
        with receiver.changed:
            assert receiver.changed.wait_for(lambda: receiver.inboxes["hanging"].tries, SECONDS)
        receiver.ended.set()


def test_a_stopped_worker_finishes_its_delivery(tmp_path: Path) -> None:
    """On SIGTERM it waits for the running delivery, stores its result, and starts no other."""
    with Receiver() as receiver, Gunicorn(tmp_path, workers=1, WEBHOOK_ALLOW_PRIVATE="1") as server:
        hook = subscribe(server, receiver, "hanging")
        server.post("/products", {"name": "x"})
        worker = deliver(tmp_path, **{BOUNDS: '{"webhook_timeout": 3}'})
        with receiver.changed:
            assert receiver.changed.wait_for(lambda: receiver.inboxes["hanging"].tries, SECONDS)
        worker.send_signal(signal.SIGTERM)
        server.post("/products", {"name": "y"})
        _, errors = worker.communicate(timeout=SECONDS)
        assert worker.returncode == 0, errors
        log = server.get(f"{hook}/deliveries").json()
        assert [(entry["state"], entry["attempts"], entry["response_excerpt"]) for entry in log] == [
            ("pending", 1, "timed out after 3 s")
        ]

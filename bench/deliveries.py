"""How many deliveries one worker sustains to a local receiver."""

import os
import subprocess
import sys
import time
from pathlib import Path

import resources
from restkeeper.app import stored_collections
from restkeeper.resources import find_resources
from restkeeper.storage import open_store
from restkeeper.storage.contract import Store, Transaction
from restkeeper.storage.outbox import Event
from tests.live import ROOT, Gunicorn

FIRST = 200  # deliveries before the clock starts
EVENT = Event("product.created", "products", "", "2026-01-01T00:00:00.000000Z", b'{"pad":"' + b"x" * 400 + b'"}')


def deliveries(folder: Path, receiver: Gunicorn, count: int) -> float:
    """Deliveries a second, of `count` events of as many items, by one `flask deliver`."""
    folder.mkdir()
    environ = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": f"sqlite:///{folder}/deliveries.db",
        "WEBHOOK_ALLOW_PRIVATE": "1",
        "LOG_LEVEL": "error",
    }
    with Gunicorn(folder, **environ) as server:
        response = server.post("/api/v1/webhooks", {"url": f"{receiver.base}/hook"})
        if response.status != 200:
            raise RuntimeError(f"no webhook: {response.body!r}")
    store = open_store(environ["DATABASE_URL"], stored_collections(find_resources(resources)))
    _record(store, count)
    store.close()
    before = _taken(receiver)
    command = [sys.executable, "-m", "flask", "deliver"]
    worker = subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.DEVNULL)  # noqa: S603 - our own
    try:
        while (first := _taken(receiver)) < before + FIRST:
            pass
        began = time.perf_counter()
        while (last := _taken(receiver)) < before + count:
            pass
        return (last - first) / (time.perf_counter() - began)
    finally:
        worker.terminate()
        worker.wait(30)


def _record(store: Store, count: int) -> None:
    def work(transaction: Transaction) -> None:
        for number in range(count):
            transaction.record(EVENT._replace(item=str(number)))

    store.write(work)


def _taken(receiver: Gunicorn) -> int:
    time.sleep(0.05)  # each check uses processor time that the measurement needs
    return int(receiver.get("/hook").body)

"""Webhook deliveries to a local receiver: how many a second, and the processor time of one."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import resources
from bench.database import Server, cpu_of
from restkeeper.app import stored_collections
from restkeeper.resources import find_resources
from restkeeper.storage import open_store
from restkeeper.storage.base import Transaction
from restkeeper.storage.transactions import Event
from tests.live import ROOT, Gunicorn

FIRST = 200  # deliveries before the clock starts
DELIVERED = 3_000
EVENT = Event("product.created", "products", "", "2026-01-01T00:00:00.000000Z", b'{"pad":"' + b"x" * 400 + b'"}')


class Deliveries(NamedTuple):
    """Deliveries a second, and the seconds of processor time of one, in the workers and in the database."""

    rate: float
    worker: float
    database: float

    @property
    def cost(self) -> float:
        return self.worker + self.database


@contextmanager
def receiving(folder: Path) -> Iterator[Gunicorn]:
    """A receiver, of one process."""
    folder.mkdir()
    with Gunicorn(folder, app="bench.bare:app", workers=1) as receiver:
        yield receiver


def deliver(
    receiver: Gunicorn, url: str, *, workers: int = 1, webhooks: int = 1, database: Server | None = None
) -> Deliveries:
    """Deliver events of as many items to some webhooks, from the new store at `url`, by some `flask deliver`.

    `database` is the server of the store if that has processes of its own.
    """
    environ = {"PATH": os.environ["PATH"], "DATABASE_URL": url, "WEBHOOK_ALLOW_PRIVATE": "1", "LOG_LEVEL": "error"}
    _register(environ, f"{receiver.base}/hook", webhooks)
    before = _taken(receiver)
    with _working(environ, workers) as pids:
        _record(url, DELIVERED // webhooks)
        first = _wait(receiver, before + FIRST)
        began, cpu = time.perf_counter(), _cpu_seconds(pids, database)
        count = _wait(receiver, before + DELIVERED // webhooks * webhooks) - first
        seconds = time.perf_counter() - began
        spent = [(now - then) / count for now, then in zip(_cpu_seconds(pids, database), cpu, strict=True)]
        return Deliveries(count / seconds, *spent)


def describe(found: Sequence[Deliveries]) -> str:
    """The medians."""
    rate, worker, database = (statistics.median(column) for column in zip(*found, strict=True))
    parts = f"worker {1e6 * worker:.0f} µs" + (f", database {1e6 * database:.0f} µs" if database else "")
    return f"{rate:.0f}/s, CPU of a delivery: {parts}"


def _register(environ: dict[str, str], url: str, count: int) -> None:
    """Create so many webhooks for an endpoint."""
    with tempfile.TemporaryDirectory() as folder, Gunicorn(Path(folder), **environ) as server:
        for _ in range(count):
            response = server.post("/api/v1/webhooks", {"url": url})
            if response.status != 200:
                raise RuntimeError(f"no webhook: {response.body!r}")


@contextmanager
def _working(environ: dict[str, str], count: int) -> Iterator[list[int]]:
    """So many `flask deliver`, which have started."""
    command = [sys.executable, "-m", "flask", "deliver"]
    workers = [
        subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True)  # noqa: S603 - our own
        for _ in range(count)
    ]
    try:
        for worker in workers:
            _wait_for_start(worker)
        yield [worker.pid for worker in workers]
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.communicate(timeout=30)


def _wait_for_start(worker: subprocess.Popen[str]) -> None:
    lines = worker.stderr or ()
    if not any(line.startswith("delivering from") for line in lines):
        raise RuntimeError("a worker did not start")


def _record(url: str, count: int) -> None:
    def work(transaction: Transaction) -> None:
        for number in range(count):
            transaction.add_event(EVENT._replace(item=str(number)))

    store = open_store(url, stored_collections(find_resources(resources)))
    store.write(work)
    store.close()


def _wait(receiver: Gunicorn, count: int) -> int:
    """Wait until the receiver has taken so many deliveries, and return how many it has."""
    while (taken := _taken(receiver)) < count:
        time.sleep(0.05)  # each check uses processor time that the measurement needs
    return taken


def _taken(receiver: Gunicorn) -> int:
    return int(receiver.get("/hook").body)


def _cpu_seconds(workers: list[int], database: Server | None) -> tuple[float, float]:
    """Processor time so far, of the workers and of the database."""
    return sum(map(cpu_of, workers)), database.cpu_seconds() if database else 0.0

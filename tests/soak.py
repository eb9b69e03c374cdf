"""A test of what a service promises while its processes are killed with -9.

Clients create items with idempotency keys and change them, each until there is a response; a reader follows the feed;
endpoints receive webhooks. At the end each item exists once, each change is once in the feed, and each was delivered
and verified; the changes of an item are in order.

`python -m tests.soak` makes 21,000 changes and kills 400 times; `make test` does fewer. With `--store postgresql` there
are three instances, and whole instances are killed, too.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any

from tests.cluster import SECURED, Client, Cluster, add_options, running
from tests.live import ROOT, HttpResponse
from tests.receiver import Receiver
from tests.recorder import next_of
from tests.shop import BOUNDS

CLIENTS = 8
DELIVERERS = 2
CHANGES_EACH = 3  # of an item: one create, then updates
PATIENCE = 180.0  # seconds that any wait may take
SETTINGS = {
    "WEBHOOK_ALLOW_PRIVATE": "1",
    "LOG_LEVEL": "error",
    BOUNDS: json.dumps({"webhook_timeout": 1, "webhook_retries": [0, 0, 1, 1, 1] * 10}),
}


class Deliverers:
    """A number of `flask deliver` processes; a killed one is started again, as a supervisor would do it."""

    def __init__(self, database_url: str) -> None:
        self._environ = {
            "PATH": os.environ["PATH"],
            "DATABASE_URL": database_url,
            "FLASK_APP": "tests.shop",
            **SETTINGS,
        }
        self._running = [self._start() for _ in range(DELIVERERS)]

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "flask", "deliver"]
        started = subprocess.Popen(command, cwd=ROOT, env=self._environ, stderr=subprocess.PIPE)
        assert started.stderr and started.stderr.readline().startswith(b"delivering"), "it did not start"
        return started

    def kill(self, number: int) -> None:
        """Kill one with -9, and start another one."""
        self._running[number].kill()
        self._running[number].communicate()
        self._running[number] = self._start()

    def stop(self) -> None:
        """Stop all. Raises AssertionError if one does not exit normally."""
        for each in self._running:
            each.send_signal(signal.SIGTERM)
        outputs = [each.communicate(timeout=PATIENCE)[1] for each in self._running]
        assert [each.returncode for each in self._running] == [0] * DELIVERERS, outputs


class Soak:
    """A run: `items` with their changes, while so many `kills` happen, each after a fixed number of items."""

    def __init__(self, cluster: Cluster, deliverers: Deliverers, items: int, kills: int, headers: dict[str, str]):
        self._cluster, self._deliverers, self._headers = cluster, deliverers, headers
        self._items, self._kills = items, kills
        self._numbers = iter(range(items))
        self._changed = threading.Condition()
        self._is_written = threading.Event()
        self._chance = random.Random(0)  # noqa: S311
        self.ids: dict[str, str] = {}  # of each item by its name, as a response has it
        self.events: list[dict[str, Any]] = []  # as the reader gets them
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Write, read and kill. Raises TimeoutError if a request gets no response in time."""
        with ThreadPoolExecutor(CLIENTS + 2) as pool:
            reading = pool.submit(self._follow)
            running = [pool.submit(self._kill), *(pool.submit(self._write) for _ in range(CLIENTS))]
            try:
                for each in running:
                    each.result()
            finally:
                self._is_written.set()
            reading.result()

    def _write(self) -> None:
        client = self._cluster.client(PATIENCE)
        while True:
            with self._changed:
                number = next(self._numbers, None)
            if number is None:
                return client.close()
            name = f"item {number}"
            made = self._send(client, "POST", "/products", {"name": name}, {"Idempotency-Key": f'"{name}"'})
            id = made.json()["id"]
            for stock in range(1, CHANGES_EACH):
                self._send(client, "PATCH", f"/products/{id}", {"stock": stock})
            with self._changed:
                self.ids[name] = id
                self.counts["replayed"] += "idempotent-replayed" in made.headers
                self._changed.notify_all()

    def _follow(self) -> None:
        """Read the feed from its beginning until all is written and no more events come."""
        client = self._cluster.client(PATIENCE)
        path = "/api/v1/events?collection=products&wait=1"
        while True:
            was_written = self._is_written.is_set()
            page = self._send(client, "GET", path)
            self.events += page.json()
            path = next_of(page)
            if was_written and not page.json():
                return client.close()

    def _send(
        self, client: Client, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> HttpResponse:
        """Send until there is a response: a POST with a key, and a PATCH, can be repeated."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                response = client.send(method, path, body, {**self._headers, **(headers or {})})
            except (OSError, HTTPException):
                with self._changed:
                    self.counts["broken off"] += 1
                continue
            if response.status == 200:
                return response
            assert response.status == 503, response
        raise TimeoutError(f"{method} {path} was never answered")

    def _kill(self) -> None:
        kinds = ["worker", "instance" if len(self._cluster.instances) > 1 else "worker", "deliverer"]
        for turn in range(self._kills):
            due = self._items * turn // self._kills
            with self._changed:
                assert self._changed.wait_for(lambda due=due: len(self.ids) >= due, PATIENCE), "no progress"
            match kind := kinds[turn % len(kinds)]:
                case "worker":
                    self._cluster.kill_worker()
                case "deliverer":
                    self._deliverers.kill(self._chance.randrange(DELIVERERS))
                case "instance":
                    self._cluster.kill_instance()
            self.counts[f"killed {kind}"] += 1

    def check(self, receiver: Receiver) -> None:
        """Raises AssertionError if an item or a change is missing, there twice, out of order, or not delivered."""
        stored, path = [], "/products?limit=100"
        while path:
            page = self._cluster.get(path, self._headers)
            stored += [(item["name"], item["id"], item["version"]) for item in page.json()]
            path = next_of(page)
        assert sorted(stored) == sorted((name, id, CHANGES_EACH) for name, id in self.ids.items()), "lost or twice"
        assert len(stored) == self._items
        expected = dict.fromkeys(self.ids.values(), [*range(1, CHANGES_EACH + 1)])
        assert _versions(self.events) == expected, "the feed is wrong"
        ids = {event["id"] for event in self.events}
        for name in ("healthy", "flaky"):
            inbox = receiver.inboxes[name]
            with receiver.changed:
                arrived = receiver.changed.wait_for(lambda inbox=inbox: ids <= set(inbox.ids), PATIENCE)
            assert arrived, f"{len(ids - set(inbox.ids))} missing at {name}"
            first: dict[str, dict[str, Any]] = {}
            for id, event in zip(inbox.ids, inbox.events, strict=True):
                first.setdefault(id, event)  # it may arrive again
            assert _versions(first.values()) == expected, f"wrong order at {name}"
        assert not any(inbox.refused for inbox in receiver.inboxes.values()), "bad signatures"


def _versions(events: Iterable[dict[str, Any]]) -> dict[str, list[int]]:
    """The versions of each item, in the order of their events."""
    found: dict[str, list[int]] = {}
    for event in events:
        found.setdefault(event["data"]["id"], []).append(event["data"]["version"])
    return found


def soak(items: int, kills: int, store: str = "sqlite", instances: int = 0) -> Counter[str]:
    """A whole run with its own service; what happened, and how often. Raises AssertionError if anything is wrong."""
    settings = {**SECURED, **SETTINGS, "WEBHOOK_WORKER": "inside"}  # the web workers deliver, too
    with Receiver() as receiver, running(store, instances=instances, **settings) as cluster:
        headers = cluster.credentials()
        for name, inbox in receiver.inboxes.items():
            webhook = {"url": f"{receiver.base}/{name}", "types": ["product.*"]}
            inbox.secret = cluster.post("/api/v1/webhooks", webhook, headers).json()["secret"]
        deliverers = Deliverers(cluster.database_url)
        try:
            run = Soak(cluster, deliverers, items, kills, headers)
            run.run()
            run.check(receiver)
        finally:
            receiver.ended.set()
            deliverers.stop()
    counts = ", ".join(f"{name}: {count}" for name, count in sorted(run.counts.items()))
    print(f"{items} items once each, {len(run.events)} changes seen once, delivered and in order ({counts})")
    return run.counts


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.soak")
    options.add_argument("--items", type=int, default=7000)
    options.add_argument("--kills", type=int, default=400)
    add_options(options)
    arguments = options.parse_args()
    soak(arguments.items, arguments.kills, arguments.store, arguments.instances)

"""A test of at-least-once delivery: changes, three endpoints, killed workers of both kinds, and a count at the end.

`python -m tests.soak_webhooks` makes 5,000 changes and kills a hundred processes with -9; `make test` makes fewer.
With `--store postgresql` there are three instances.
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
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any

from tests.cluster import Client, Cluster, add_options, running
from tests.live import ROOT
from tests.receiver import Inbox, Receiver
from tests.shop import BOUNDS

CLIENTS = 4
WORKERS = 2
CHANGES_EACH = 5  # of an item: one create, then updates
PATIENCE = 180.0  # seconds that any wait may take
SETTINGS = {
    "WEBHOOK_ALLOW_PRIVATE": "1",
    "LOG_LEVEL": "error",
    BOUNDS: json.dumps({"webhook_timeout": 1, "webhook_retries": [0, 0, 1, 1, 1] * 10}),
}


class Workers:
    """A number of `flask deliver` processes; a killed one is started again, as a supervisor would do it."""

    def __init__(self, database_url: str) -> None:
        self._environ = {
            "PATH": os.environ["PATH"],
            "DATABASE_URL": database_url,
            "FLASK_APP": "tests.shop",
            **SETTINGS,
        }
        self.running = [self._start() for _ in range(WORKERS)]

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "flask", "deliver"]
        worker = subprocess.Popen(command, cwd=ROOT, env=self._environ, stderr=subprocess.PIPE)
        assert worker.stderr
        assert worker.stderr.readline().startswith(b"delivering"), "it did not start"
        return worker

    def kill(self, number: int) -> None:
        """Kill one with -9, and start another one."""
        self.running[number].kill()
        self.running[number].communicate()
        self.running[number] = self._start()

    def stop(self) -> None:
        """Stop all. Raises AssertionError if one does not exit normally."""
        for each in self.running:
            each.send_signal(signal.SIGTERM)
        outputs = [each.communicate(timeout=PATIENCE)[1] for each in self.running]
        codes = [each.returncode for each in self.running]
        assert codes == [0] * WORKERS, (codes, outputs)


class Soak:
    """A run: `items` with their changes, while `kills` workers of both kinds are killed at random."""

    def __init__(self, cluster: Cluster, workers: Workers, receiver: Receiver, items: int, kills: int) -> None:
        self._cluster, self._workers, self._receiver = cluster, workers, receiver
        self._items, self._kills = items, kills
        self._numbers = iter(range(items))
        self._taking = threading.Lock()
        self._chance = random.Random(0)  # noqa: S311
        self.killed = {"web": 0, "delivery": 0}

    def run(self) -> None:
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            runs = [pool.submit(self._kill), *(pool.submit(self._change_items) for _ in range(CLIENTS))]
        for run in runs:
            run.result()

    def _change_items(self) -> None:
        client = self._cluster.client(PATIENCE)
        while True:
            with self._taking:
                number = next(self._numbers, None)
            if number is None:
                return client.close()
            item = self._send(client, "POST", "/products", {"name": f"item {number}"}, f"soak-{number}")
            for stock in range(1, CHANGES_EACH):
                self._send(client, "PATCH", f"/products/{item['id']}", {"stock": stock})

    def _send(self, client: Client, method: str, path: str, body: Any, key: str = "") -> Any:
        """Send until there is a response: a POST with a key, and a PATCH, can be repeated."""
        headers = {"Idempotency-Key": key} if key else {}
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                response = client.send(method, path, body, headers)
            except (OSError, HTTPException):
                continue
            if response.status == 200:
                return response.json()
            assert response.status == 503, response
        raise TimeoutError(f"{method} {path} was never answered")

    def _kill(self) -> None:
        """Kill a process each time that the healthy endpoint has got some more events, so that it is at work."""
        inbox = self._receiver.inboxes["healthy"]
        for turn in range(self._kills):
            due = self._items * CHANGES_EACH * turn // self._kills
            with self._receiver.changed:
                arrived = self._receiver.changed.wait_for(lambda due=due: len(inbox.ids) >= due, PATIENCE)
            assert arrived, "nothing arrives any more"
            if self._chance.random() < 0.5:
                self._cluster.kill_worker()
                self.killed["web"] += 1
            else:
                self._workers.kill(self._chance.randrange(WORKERS))
                self.killed["delivery"] += 1

    def check(self) -> None:
        """Wait until the healthy and the flaky have all.

        Raises AssertionError if events are missing or out of order.
        """
        feed, path = [], "/api/v1/events"
        while events := (page := self._cluster.get(path)).json():
            feed += [event for event in events if event["type"] != "webhook.disabled"]
            path = page.headers["link"].split(">")[0][1:]
        assert len(feed) == self._items * CHANGES_EACH, f"{len(feed)} events"
        ids = {event["id"] for event in feed}
        inboxes = [self._receiver.inboxes[name] for name in ("healthy", "flaky")]
        with self._receiver.changed:
            complete = self._receiver.changed.wait_for(lambda: all(ids <= set(each.ids) for each in inboxes), PATIENCE)
        for name, inbox in self._receiver.inboxes.items():
            assert inbox.refused == 0, f"{name}: {inbox.refused} bad signatures"
        assert complete, [f"{len(ids - set(each.ids))} missing" for each in inboxes]
        for inbox in inboxes:
            _require_order(inbox)


def _require_order(inbox: Inbox) -> None:
    """The first arrival of each event of an item is after those of the events before it."""
    newest: dict[str, int] = {}
    for event in inbox.events:
        item, version = event["data"]["id"], event["data"].get("version", 0)
        assert version <= newest.get(item, 0) + 1, f"{item}: {version} came after {newest.get(item, 0)}"
        newest[item] = max(version, newest.get(item, 0))


def soak(changes: int, kills: int, store: str = "sqlite", instances: int = 0) -> None:
    """A whole run. Raises AssertionError if anything is missing."""
    items = changes // CHANGES_EACH
    with Receiver() as receiver:
        with running(store, instances=instances, WEBHOOK_WORKER="inside", **SETTINGS) as cluster:  # they deliver, too
            for each, inbox in receiver.inboxes.items():
                response = cluster.post("/api/v1/webhooks", {"url": f"{receiver.base}/{each}", "types": ["product.*"]})
                inbox.secret = response.json()["secret"]
            workers = Workers(cluster.database_url)
            try:
                run = Soak(cluster, workers, receiver, items, kills)
                run.run()
                run.check()
            finally:
                receiver.ended.set()
                workers.stop()
    took = {name: f"{len(inbox.ids)} taken of {inbox.tries} tries" for name, inbox in receiver.inboxes.items()}
    outputs = ", ".join(f"{name}: {counts}" for name, counts in took.items())
    print(
        f"{changes} changes, each delivered and verified, those of an item in order; "
        f"killed {run.killed['web']} web and {run.killed['delivery']} delivery workers ({outputs})"
    )


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.soak_webhooks")
    options.add_argument("--changes", type=int, default=5000)
    options.add_argument("--kills", type=int, default=100)
    add_options(options)
    arguments = options.parse_args()
    soak(arguments.changes, arguments.kills, arguments.store, arguments.instances)

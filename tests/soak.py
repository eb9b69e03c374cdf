"""A test of exactly-once creation: clients that retry, workers that are killed, and a count at the end.

`python -m tests.soak` creates 10,000 items while workers are killed with -9 two hundred times; `make test` creates
fewer.
"""

import argparse
import json
import os
import random
import signal
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.live import Gunicorn

CLIENTS = 8
PATIENCE = 120.0  # seconds that an item may take, with all retries


@dataclass
class Tally:
    """The results of a run. `ids` has the id that each numbered item got in its response."""

    sent: int = 0
    broken: int = 0
    replayed: int = 0
    kills: int = 0
    ids: dict[int, str] = field(default_factory=dict)


class Soak:
    """A run: `items` to create once each; a worker is killed after a fixed number of them."""

    def __init__(self, server: Gunicorn, items: int, kills: int) -> None:
        self._server = server
        self._items = items
        self._kills = kills
        self._numbers = iter(range(items))
        self._changed = threading.Condition()
        self._chance = random.Random(0)  # noqa: S311
        self.tally = Tally()

    def run(self) -> Tally:
        """Create the items and kill the workers. Raises TimeoutError when an item cannot be created."""
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            runs = [pool.submit(self._kill_workers), *(pool.submit(self._make_items) for _ in range(CLIENTS))]
        for run in runs:
            run.result()
        return self.tally

    def _make_items(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._server.port, timeout=PATIENCE)
        while True:
            with self._changed:
                number = next(self._numbers, None)
            if number is None:
                return connection.close()
            id, replayed = self._make(connection, number)
            with self._changed:
                self.tally.ids[number] = id
                self.tally.replayed += replayed
                self._changed.notify_all()

    def _make(self, connection: HTTPConnection, number: int) -> tuple[str, bool]:
        """Send one item until there is a response; its id, and whether the response was a replay."""
        body = json.dumps({"name": f"item {number}", "stock": number})
        headers = {"Content-Type": "application/json", "Idempotency-Key": f'"soak-{number}"'}
        for _ in range(1000):
            with self._changed:
                self.tally.sent += 1
            try:
                connection.request("POST", "/products", body, headers)
                response = connection.getresponse()
                content = response.read()
            except (OSError, HTTPException):
                connection.close()  # the next request opens it again
                with self._changed:
                    self.tally.broken += 1
                continue
            if response.status == 200:
                return json.loads(content)["id"], response.getheader("Idempotent-Replayed") == "true"
            if response.status != 503:
                raise RuntimeError(f"item {number}: {response.status} {content!r}")
        raise TimeoutError(f"item {number} was never made")

    def _kill_workers(self) -> None:
        for turn in range(self._kills):
            with self._changed:
                due = self._items * turn // self._kills
                if not self._changed.wait_for(lambda due=due: len(self.tally.ids) >= due, timeout=PATIENCE):
                    raise TimeoutError("no item was made any more")
            while not (pids := self._server.worker_pids()):
                pass
            with suppress(ProcessLookupError):
                os.kill(self._chance.choice(pids), signal.SIGKILL)
                self.tally.kills += 1


def check(server: Gunicorn, tally: Tally, items: int) -> None:
    """Raises AssertionError unless each item exists once, and only those of the responses."""
    stored, path = [], "/products?limit=100&fields=id,stock"
    while path:
        page = server.get(path)
        stored += [(item["stock"], item["id"]) for item in page.json()]
        links = (link.split(">")[0][1:] for link in page.headers["link"].split(", ") if 'rel="next"' in link)
        path = next(links, "")
    times = Counter(number for number, _ in stored)
    assert len(stored) == items, f"{len(stored)} items of {items}"
    assert set(times) == set(range(items)) and set(times.values()) == {1}, "lost or twice"
    assert dict(stored) == tally.ids, "a response had another item than the store"


def soak(items: int, kills: int) -> Tally:
    """A whole run with its own service; its counts. Raises AssertionError when they are not exact."""
    with tempfile.TemporaryDirectory() as folder, Gunicorn(Path(folder), workers=2, LOG_LEVEL="error") as server:
        tally = Soak(server, items, kills).run()
        check(server, tally, items)
    print(
        f"{items} items asked for, {items} there, none lost, none twice: {tally.kills} workers killed, "
        f"{tally.sent} requests sent, {tally.broken} broken off, {tally.replayed} answered again"
    )
    return tally


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.soak")
    options.add_argument("--items", type=int, default=10_000)
    options.add_argument("--kills", type=int, default=200)
    arguments = options.parse_args()
    soak(arguments.items, arguments.kills)

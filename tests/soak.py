"""A test of exactly-once creation: clients that retry, workers that are killed, and a count at the end.

`python -m tests.soak` creates 10,000 items while workers are killed with -9 two hundred times; `make test` creates
fewer. With `--store postgresql` there are three instances, and whole instances are killed, too.
"""

import argparse
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPException

from tests.cluster import SECURED, Client, Cluster, add_options, running

CLIENTS = 8
KILLS_EACH = 3  # of which the last one is that of an instance, if there are several
PATIENCE = 120.0  # seconds that an item may take, with all retries


@dataclass
class Tally:
    """The results of a run. `ids` has the id that each numbered item got in its response."""

    sent: int = 0
    broken: int = 0
    replayed: int = 0
    kills: int = 0
    instances_killed: int = 0
    ids: dict[int, str] = field(default_factory=dict)


class Soak:
    """A run: `items` to create once each; a worker or an instance is killed after a fixed number of them."""

    def __init__(self, cluster: Cluster, items: int, kills: int, credentials: dict[str, str]) -> None:
        self._cluster = cluster
        self._credentials = credentials
        self._items = items
        self._kills = kills
        self._numbers = iter(range(items))
        self._changed = threading.Condition()
        self.tally = Tally()

    def run(self) -> Tally:
        """Create the items and kill. Raises TimeoutError when an item cannot be created."""
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            runs = [pool.submit(self._kill), *(pool.submit(self._make_items) for _ in range(CLIENTS))]
        for run in runs:
            run.result()
        return self.tally

    def _make_items(self) -> None:
        client = self._cluster.client(PATIENCE)
        while True:
            with self._changed:
                number = next(self._numbers, None)
            if number is None:
                return client.close()
            id, replayed = self._make(client, number)
            with self._changed:
                self.tally.ids[number] = id
                self.tally.replayed += replayed
                self._changed.notify_all()

    def _make(self, client: Client, number: int) -> tuple[str, bool]:
        """Send one item until there is a response; its id, and whether the response was a replay."""
        body = {"name": f"item {number}", "stock": number}
        headers = {"Idempotency-Key": f'"soak-{number}"', **self._credentials}
        for _ in range(1000):
            with self._changed:
                self.tally.sent += 1
            try:
                response = client.send("POST", "/products", body, headers)
            except (OSError, HTTPException):
                with self._changed:
                    self.tally.broken += 1
                continue
            if response.status == 200:
                return response.json()["id"], response.headers.get("idempotent-replayed") == "true"
            if response.status != 503:
                raise RuntimeError(f"item {number}: {response.status} {response.body!r}")
        raise TimeoutError(f"item {number} was never made")

    def _kill(self) -> None:
        for turn in range(self._kills):
            with self._changed:
                due = self._items * turn // self._kills
                if not self._changed.wait_for(lambda due=due: len(self.tally.ids) >= due, timeout=PATIENCE):
                    raise TimeoutError("no item was made any more")
            if len(self._cluster.instances) > 1 and turn % KILLS_EACH == KILLS_EACH - 1:
                self._cluster.kill_instance()
                self.tally.instances_killed += 1
            else:
                self._cluster.kill_worker()
            self.tally.kills += 1


def check(cluster: Cluster, tally: Tally, items: int, credentials: dict[str, str]) -> None:
    """Raises AssertionError unless each item exists once, and only those of the responses."""
    stored, path = [], "/products?limit=100&fields=id,stock"
    while path:
        page = cluster.get(path, credentials)
        stored += [(item["stock"], item["id"]) for item in page.json()]
        links = (link.split(">")[0][1:] for link in page.headers["link"].split(", ") if 'rel="next"' in link)
        path = next(links, "")
    times = Counter(number for number, _ in stored)
    assert len(stored) == items, f"{len(stored)} items of {items}"
    assert set(times) == set(range(items)) and set(times.values()) == {1}, "lost or twice"
    assert dict(stored) == tally.ids, "a response had another item than the store"


def soak(items: int, kills: int, store: str = "sqlite", instances: int = 0) -> Tally:
    """A whole run with its own service; its counts. Raises AssertionError when they are not exact."""
    with running(store, instances=instances, LOG_LEVEL="error", **SECURED) as cluster:
        credentials = cluster.credentials()
        tally = Soak(cluster, items, kills, credentials).run()
        check(cluster, tally, items, credentials)
    print(
        f"{items} items asked for, {items} there, none lost, none twice: {tally.kills} killed "
        f"({tally.instances_killed} of them instances, the others workers), "
        f"{tally.sent} requests sent, {tally.broken} broken off, {tally.replayed} answered again"
    )
    return tally


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.soak")
    options.add_argument("--items", type=int, default=10_000)
    options.add_argument("--kills", type=int, default=200)
    add_options(options)
    arguments = options.parse_args()
    soak(arguments.items, arguments.kills, arguments.store, arguments.instances)

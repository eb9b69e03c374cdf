"""A test of the feed: writers, one reader that follows, and a comparison at the end.

`python -m tests.follow` makes 20,000 changes through two workers; `make test` makes fewer. With `--store postgresql`
through three instances of two workers.
"""

import argparse
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from tests.cluster import Cluster, add_options, running

WRITERS = 8
CHANGES_EACH = 5  # of an item: one create, then updates

Change = tuple[str, int]  # the item's id and version


class Writer:
    """A client that creates and updates items, and records the responses."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster.client(60)
        self.made: list[Change] = []

    def write(self, items: int) -> list[Change]:
        for _ in range(items):
            item = self._send("POST", "/products", {"name": "x"})
            for stock in range(1, CHANGES_EACH):
                item = self._send("PATCH", f"/products/{item['id']}", {"stock": stock})
        self._client.close()
        return self.made

    def _send(self, method: str, path: str, body: Any) -> Any:
        response = self._client.send(method, path, body)
        assert response.status == 200, response
        item = response.json()
        self.made.append((item["id"], item["version"]))
        return item


def read(cluster: Cluster, done: threading.Event) -> list[Change]:
    """The events that a reader gets from the beginning, until the writers are done and no more events come."""
    client = cluster.client(60)
    seen: list[Change] = []
    path = "/api/v1/events?wait=1"
    while True:
        was_done = done.is_set()
        response = client.send("GET", path)
        assert response.status == 200, response
        events = response.json()
        seen += [(event["data"]["id"], event["data"]["version"]) for event in events]
        path = response.headers["link"].split(">")[0][1:]
        if was_done and not events:
            client.close()
            return seen


def follow(changes: int, store: str = "sqlite", instances: int = 0) -> None:
    """A whole run with its own service. Raises AssertionError if a change is missing, twice or out of order."""
    done = threading.Event()
    with running(store, instances=instances, LOG_LEVEL="error") as cluster:
        with ThreadPoolExecutor(WRITERS + 1) as pool:
            reading = pool.submit(read, cluster, done)
            share = changes // CHANGES_EACH // WRITERS
            writing = [pool.submit(Writer(cluster).write, share) for _ in range(WRITERS)]
            try:
                made = [change for each in writing for change in each.result()]
            finally:
                done.set()
            seen = reading.result()
    assert len(made) == share * CHANGES_EACH * WRITERS
    assert len(seen) == len(set(seen)), "an event was seen twice"
    assert set(seen) == set(made), "an event is missing, or tells of nothing"
    of_item: dict[str, list[int]] = {}
    for id, version in seen:
        of_item.setdefault(id, []).append(version)
    assert all(one < other for versions in of_item.values() for one, other in pairwise(versions)), "out of order"
    by = f"{len(cluster.instances)} × 2 workers"
    print(f"{len(made)} changes by {by}, each seen once and those of an item in order")


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.follow")
    options.add_argument("--changes", type=int, default=20_000)
    add_options(options)
    arguments = options.parse_args()
    follow(arguments.changes, arguments.store, arguments.instances)

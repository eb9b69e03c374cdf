"""The largest and slowest items: what they cost, and that no other caller waits for them."""

import json
import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import resources
from resources.products import RESOURCE
from restkeeper.app import stored_collections
from restkeeper.clock import uuid7
from restkeeper.config import Config
from restkeeper.resources import find_resources
from restkeeper.storage import open_store
from restkeeper.storage.contract import Record
from tests.attacks.health import Health
from tests.live import Gunicorn
from tests.waiting import join

HELD_UP = 0.25  # seconds that /healthz may take
NOW = "2026-01-01T00:00:00.000000Z"
FORK = multiprocessing.get_context("fork")
SECONDS = 4.0  # for each kind of request
JSON = {"Content-Type": "application/json"}


def worst() -> Iterator[dict[str, object]]:
    """Items at the limits: of decimals, of empty arrays, of nested objects, and of text."""
    chance = random.Random(1)  # noqa: S311
    yield {"v": [round(chance.random(), 9) for _ in range(9900)]}
    yield {"v": [[]] * 9900}
    yield {f"n{n}": {"a": [n, None]} for n in range(2400)}
    yield {"v": '\\"é' * 20_000}


def old(attributes: dict[str, object], fingerprint: str = "") -> Record:
    """An item of a megabyte, as a store from before there were limits may have it."""
    record = RESOURCE.create({"name": "old", "description": None, "attributes": attributes}, id=uuid7(), now=NOW)
    return record._replace(fingerprint=fingerprint or record.fingerprint)


def repeat_request(
    server: Gunicorn, method: str, paths: list[str], body: str | None, until: float, found: dict[int, int]
) -> None:
    """Repeat a request on one connection; count the responses by status."""
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        turn = 0
        while time.monotonic() < until:
            connection.request(method, paths[turn % len(paths)], body and body.replace("TURN", str(turn)), JSON)
            response = connection.getresponse()
            response.read()
            found[response.status] = found.get(response.status, 0) + 1
            turn += 1


def load(server: Gunicorn, method: str, turns: list[list[str]], body: str | None, until: float, results: Any) -> None:
    """Run one connection for each list of paths, in this process; put the number of each status into `results`."""
    found: dict[int, int] = {}
    threads = [
        threading.Thread(target=repeat_request, args=(server, method, paths, body, until, found)) for paths in turns
    ]
    for thread in threads:
        thread.start()
    join(*threads)
    results.put(found)


def health_delay(server: Gunicorn, method: str, paths: list[str], body: str | None = None, connections: int = 8) -> str:
    """Measure /healthz while so many connections send requests; fail beyond the limit.

    They run in another process, so that the measurement does not wait for them.
    """
    results = FORK.SimpleQueue()
    until = time.monotonic() + SECONDS
    turns = [paths[n % len(paths) :] + paths[: n % len(paths)] for n in range(connections)]
    process = FORK.Process(target=load, args=(server, method, turns, body, until, results))
    process.start()
    with Health(server) as health:
        found = results.get()
    join(process)
    what = f"{method} {paths[0][:60]}: {found}, /healthz {health.worst * 1000:.0f} ms"
    assert health.worst < HELD_UP, what
    return what


def attack_items_at_the_limits(folder: Path) -> str:
    """Eight connections read, list, change and create the largest valid items."""
    with Gunicorn(folder) as server:
        wheres, bodies = [], []
        for attributes in worst():
            bodies.append(json.dumps({"name": "x", "attributes": attributes}, ensure_ascii=False))
            made = server.request("POST", "/products", bodies[-1].encode(), JSON)
            assert made.status == 200, made.body[:300]
            wheres += [made.headers["location"]]
        results = [health_delay(server, "GET", wheres), health_delay(server, "GET", ["/products?fields=id&limit=100"])]
        results += [
            health_delay(server, "POST", ["/products"], body.replace('"x"', '"TURN"', 1)) for body in bodies[:3]
        ]
        results += [health_delay(server, "PUT", wheres, bodies[0].replace('"x"', '"TURN"', 1))]
        results += [health_delay(server, "PATCH", wheres, '{"attributes":{"x":TURN}}')]
    return "; ".join(results)


def attack_old_items(folder: Path) -> str:
    """A hundred stored items of a megabyte, of the present schema and of another one, are read and changed."""
    config = Config(database_url=f"sqlite:///{folder}/restkeeper.db")
    store = open_store(config.database_url, stored_collections(find_resources(resources)))
    kinds: list[dict[str, object]] = [{"v": [[]] * 349_000}, {"v": [0.123456] * 115_000}, {"v": "x" * 1_047_000}]
    records = [old(kinds[n % 3], "" if n % 2 else "other") for n in range(100)]
    for record in records:
        store.write(lambda transaction, record=record: transaction.insert("products", record))  # type: ignore[misc]
    store.close()
    paths = [f"/products/{record.id}" for record in records]
    lists = [
        "fields=id&limit=100",
        "limit=100",
        "sort=-name&limit=100",
        "q=old",
        "name[like]=l",
        "stock[lt]=5&offset=3&limit=1",
    ]
    with Gunicorn(folder) as server:
        results = [health_delay(server, "GET", [f"/products?{query}"]) for query in lists]
        results += [
            health_delay(server, "GET", paths),
            health_delay(server, "GET", [f"{path}?fields=id" for path in paths]),
        ]
        results += [
            health_delay(server, "PATCH", paths, '{"stock":TURN}'),
            health_delay(server, "PATCH", paths, '{"attributes":{"x":TURN}}'),
        ]
        results += [health_delay(server, "PUT", paths[50:], '{"name":"TURN"}')]
    return "; ".join(results)


def attack_too_large_bodies(folder: Path) -> str:
    """Megabytes of brackets, faults and names are refused at once, with little memory."""
    nul = json.dumps({"x": {"a" * 50_000: ["\0"] * 20_000}})
    bodies = ["[" * 2**20, '{"v":[' + "[]," * 349_000, nul, nul[:-1] + " " * 500_000 + "}"]
    bodies += [json.dumps({"name": "x", "attributes": {"n" * 20_000: ["\0"] * 9000}})]
    with Gunicorn(folder) as server:
        results = [health_delay(server, "POST", ["/products"], body) for body in bodies]
        peak = max(peak_memory(pid) for pid in server.worker_pids())
    assert peak < 200, peak
    return "; ".join([*results, f"{peak} MiB"])


def peak_memory(pid: int) -> int:
    """The largest memory that a process has used, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


def attack_patches(folder: Path) -> str:
    """64 connections change the largest items by some bytes; another caller's POST gets a response within a second."""
    with Gunicorn(folder) as server:
        wheres = []
        for attributes in worst():
            for _ in range(16):
                made = server.post("/products", {"name": "x", "attributes": attributes})
                wheres.append(made.headers["location"])
        until = time.monotonic() + 8
        results = FORK.SimpleQueue()
        turns = [[where] for where in wheres]
        process = FORK.Process(target=load, args=(server, "PATCH", turns, '{"stock":TURN}', until, results))
        process.start()  # a process, so that the other caller's clock does not wait for 64 threads
        slowest = slowest_post(server, until)
        found = results.get()
        join(process)
    what = f"{found}; a stranger's POST {slowest * 1000:.0f} ms"
    assert slowest < 1 and set(found) == {200}, what
    return what


def slowest_post(server: Gunicorn, until: float) -> float:
    """The longest time of a small POST, repeated until then."""
    slowest = 0.0
    while time.monotonic() < until:
        began = time.perf_counter()
        assert server.post("/products", {"name": "stranger"}).status == 200
        slowest = max(slowest, time.perf_counter() - began)
        time.sleep(0.05)
    return slowest

"""The largest items and the most connections, at full length: nobody else waits long for a running service.

`python -m tests.attacks [NAME …]`, also with `--store postgresql`. A function `attack_…` gets a running service,
asserts what must be true, and returns a line with its measurements.
"""

import argparse
import json
import multiprocessing
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path
from typing import Any

from bench.load import run
from restkeeper.app import stored_collections
from restkeeper.clock import uuid7
from restkeeper.resources.views import StoredView
from restkeeper.storage import open_store
from tests.cluster import Cluster, running
from tests.live import HttpResponse, response_of
from tests.shop import RESOURCES
from tests.shop.products import RESOURCE
from tests.waiting import SECONDS

LOAD_SECONDS = 4.0  # for each kind of request
HELD_UP = 0.25  # seconds that /healthz may take meanwhile
PAUSE = 0.005  # seconds between two measured requests
MOST_MEMORY = 200  # MiB of a worker
NOW = "2026-01-01T00:00:00.000000Z"
JSON = {"Content-Type": "application/json"}
REFERENCES = "tests.shop.references:create_app()"  # the service of the attacks with this word in their names
OTHER = "127.0.0.2"  # the address of another caller than that of a load
WRITTEN = 0.3  # seconds that nine of ten small writes of that caller may take
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def seconds(request: Callable[[], HttpResponse]) -> float:
    """How long a request takes; a minute if it is refused."""
    began = time.perf_counter()
    status = request().status
    return time.perf_counter() - began if status == 200 else 60.0


def times_beside(running: Future[Any], request: Callable[[], HttpResponse]) -> list[float]:
    """How long each of these requests takes, in order, which are sent one after the other while something runs."""
    times = list[float]()
    while not running.done():
        times.append(seconds(request))
        time.sleep(PAUSE)
    return sorted(times)


def load(port: int, method: str, paths: Sequence[str], body: str, connections: int) -> Counter[int]:
    """Send a request to each path in turn, on each connection; the number of responses by status."""

    def repeat(first: int) -> Counter[int]:
        found: Counter[int] = Counter()
        end = time.monotonic() + LOAD_SECONDS
        with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            while time.monotonic() < end:
                turn = found.total()
                content = body.replace("TURN", str(turn)).encode() or None
                connection.request(method, paths[(first + turn) % len(paths)], content, JSON)
                found[response_of(connection).status] += 1
        return found

    with ThreadPoolExecutor(connections) as pool:
        return sum(pool.map(repeat, range(connections)), Counter[int]())


@contextmanager
def loaded(cluster: Cluster, *arguments: Any) -> Iterator[Future[Counter[int]]]:
    """A `load` in another process, so that no measurement waits for it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        yield pool.submit(load, cluster.instances[0].port, *arguments)


def health_beside(
    cluster: Cluster, method: str, paths: list[str], body: str = "", connections: int = 8, limit: float = HELD_UP
) -> str:
    """Measure /healthz, on four connections, beside a load."""

    def probe(_: int) -> list[float]:
        with closing(HTTPConnection("127.0.0.1", cluster.instances[0].port, timeout=60)) as connection:

            def request() -> HttpResponse:
                connection.request("GET", "/healthz")
                return response_of(connection)

            return times_beside(loading, request)

    with loaded(cluster, method, paths, body, connections) as loading, ThreadPoolExecutor(4) as pool:
        most = max(chain(*pool.map(probe, range(4))))
        what = f"{method} {paths[0][:60]}: {dict(loading.result())}, /healthz {most * 1000:.0f} ms"
    assert most < limit, what
    return what


def writes_beside(
    cluster: Cluster, method: str, paths: list[str], body: str, path: str, item: object, connections: int = 32
) -> str:
    """Measure small writes of one caller, each on a new connection, beside a load of another caller."""

    def request() -> HttpResponse:
        port = cluster.instances[0].port
        with closing(HTTPConnection("127.0.0.1", port, timeout=60, source_address=(OTHER, 0))) as connection:
            connection.request("POST", path, json.dumps(item), JSON)
            return response_of(connection)

    with loaded(cluster, method, paths, body, connections) as loading:
        times = times_beside(loading, request)
        found = dict(loading.result())
    median, most = (1000 * times[int(len(times) * part)] for part in (0.5, 0.9))
    what = f"{method} {paths[0][:60]}: {found}, {len(times)} small writes: p50 {median:.0f} ms, p90 {most:.0f} ms"
    assert most < WRITTEN * 1000, what
    return what


def largest() -> Iterator[dict[str, object]]:
    """Attributes of items at the limits: of decimals, of empty arrays, of nested objects, and of text."""
    chance = random.Random(1)  # noqa: S311
    yield {"v": [round(chance.random(), 9) for _ in range(9900)]}
    yield {"v": [[]] * 9900}
    yield {f"n{n}": {"a": [n, None]} for n in range(2400)}
    yield {"v": '\\"é' * 20_000}


def attack_items_at_the_limits(cluster: Cluster) -> str:
    """Eight connections read, list, change and create the largest valid items."""
    bodies = [json.dumps({"name": "TURN", "attributes": each}, ensure_ascii=False) for each in largest()]
    paths = []
    for body in bodies:
        made = cluster.request("POST", "/products", body.encode(), JSON)
        assert made.status == 200, made.body[:300]
        paths.append(made.headers["location"])
    results = [
        health_beside(cluster, "GET", paths),
        health_beside(cluster, "GET", ["/products?fields=id&limit=100"]),
        *(health_beside(cluster, "POST", ["/products"], body) for body in bodies[:3]),
        health_beside(cluster, "PUT", paths, bodies[0]),
        health_beside(cluster, "PATCH", paths, '{"attributes":{"x":TURN}}'),
    ]
    return "; ".join(results)


def attack_items_beyond_the_limits(cluster: Cluster) -> str:
    """A hundred items of a megabyte, as a service with higher limits may have left them, are read and changed."""
    store = open_store(cluster.database_url, stored_collections(RESOURCES))
    kinds: list[dict[str, object]] = [{"v": [[]] * 349_000}, {"v": [0.123456] * 115_000}, {"v": "x" * 1_047_000}]
    paths = []
    for number in range(100):
        item = {"name": "old", "description": None, "attributes": kinds[number % 3]}
        record = StoredView(RESOURCE).new_record(item, id=uuid7(), now=NOW)
        if number % 2:
            record = record._replace(fingerprint="other")
        store.write(lambda transaction, record=record: transaction.insert("products", record))
        paths.append(f"/products/{record.id}")
    store.close()
    queries = (
        "fields=id&limit=100",
        "limit=100",
        "sort=-name&limit=100",
        "q=old",
        "name[like]=l",
        "stock[lt]=5&offset=3",
    )
    results = [
        *(health_beside(cluster, "GET", [f"/products?{query}"]) for query in queries),
        health_beside(cluster, "GET", paths),
        health_beside(cluster, "GET", [f"{path}?fields=id" for path in paths]),
        health_beside(cluster, "PATCH", paths, '{"stock":TURN}'),
        health_beside(cluster, "PATCH", paths, '{"attributes":{"x":TURN}}'),
        health_beside(cluster, "PUT", paths[50:], '{"name":"TURN"}'),
    ]
    return "; ".join(results)


def attack_too_large_bodies(cluster: Cluster) -> str:
    """Megabytes of brackets, faults and names are refused at once, with little memory."""
    nul = json.dumps({"x": {"a" * 50_000: ["\0"] * 20_000}})
    bodies = ["[" * 2**20, '{"v":[' + "[]," * 349_000, nul, nul[:-1] + " " * 500_000 + "}"]
    bodies += [json.dumps({"name": "x", "attributes": {"n" * 20_000: ["\0"] * 9000}})]
    results = [health_beside(cluster, "POST", ["/products"], body) for body in bodies]
    memory = max(peak_memory(pid) for pid in cluster.worker_pids())
    assert memory < MOST_MEMORY, f"{memory} MiB"
    return "; ".join([*results, f"{memory} MiB"])


def peak_memory(pid: int) -> int:
    """The largest memory that a process has used, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


def attack_patches(cluster: Cluster) -> str:
    """64 connections change the largest items by some bytes."""
    items = [{"name": "x", "attributes": attributes} for attributes in largest() for _ in range(16)]
    paths = [cluster.post("/products", item).headers["location"] for item in items]
    return health_beside(cluster, "PATCH", paths, '{"stock":TURN}', connections=64, limit=1.0)


def attack_batches(cluster: Cluster) -> str:
    """Twelve connections change and create a hundred items in each transaction."""
    item = {"name": "x", "attributes": {"v": [[]] * 3300}}
    paths = [cluster.post("/products", item).headers["location"] for _ in range(100)]
    kinds: list[dict[str, object]] = [{"v": [0.123456789] * 88}, {"v": '\\"é' * 1400}]
    new = [{"name": "TURN", "attributes": attributes} for attributes in kinds]
    changes = [{"method": "PATCH", "path": path, "body": {"name": "TURN"}} for path in paths]
    bodies = [changes, *([{"method": "POST", "path": "/products", "body": each}] * 100 for each in new)]
    return "; ".join(_batches_beside(cluster, each) for each in bodies)


def attack_references(cluster: Cluster) -> str:
    """Twelve connections create a hundred items at a time with five references each."""
    owner = cluster.post("/owners", {}).json()["id"]
    things = [each["id"] for _ in range(3) for each in cluster.post("/things", [{"owner": owner}] * 100).json()]
    lines = [{"thing": thing} for thing in things] * 2
    array = json.dumps([{"lines": lines[n : n + 5]} for n in range(100)])
    batch = [{"method": "POST", "path": "/lists", "body": {"lines": lines[n : n + 5]}} for n in range(100)]
    beside = health_beside(cluster, "POST", ["/lists"], array, connections=12)
    return f"{beside}; {_batches_beside(cluster, batch)}"


def attack_references_refused(cluster: Cluster) -> str:
    """32 connections delete an item to which 1,100 refer, more than may go with it; others write meanwhile."""
    owner = cluster.post("/owners", {}).json()["id"]
    target = cluster.post("/things", {"owner": owner}).json()["id"]
    for _ in range(11):
        cluster.post("/things", [{"owner": owner, "part_of": target}] * 100)
    return writes_beside(cluster, "DELETE", [f"/things/{target}"], "", "/owners", {})


def attack_small_changes(cluster: Cluster) -> str:
    """64 connections make a hundred small changes in each transaction; others write meanwhile."""
    paths = [cluster.post("/products", {"name": "x"}).headers["location"] for _ in range(100)]
    changes = [{"method": "PATCH", "path": path, "body": {"name": "TURN"}} for path in paths]
    body = json.dumps({"operations": changes})
    return writes_beside(cluster, "POST", ["/api/v1/batch"], body, "/products", {"name": "x"}, connections=64)


def attack_references_at_once(cluster: Cluster) -> str:
    """32 connections create an item with 3,000 references, or 98 items with 97 each: too many, or just not.

    Others write meanwhile.
    """
    owners = [each["id"] for _ in range(30) for each in cluster.post("/owners", [{}] * 100).json()]
    sizes: list[object] = []
    for one, each in ((3000, 97), (500, 5)):
        sizes += [
            {"lines": [], "owners": owners[:one]},
            [{"lines": [], "owners": owners[n : n + each]} for n in range(98)],
        ]
    return "; ".join(writes_beside(cluster, "POST", ["/lists"], json.dumps(sent), "/owners", {}) for sent in sizes)


def _batches_beside(cluster: Cluster, operations: list[dict[str, object]]) -> str:
    body = json.dumps({"operations": operations}, ensure_ascii=False)
    return health_beside(cluster, "POST", ["/api/v1/batch"], body, connections=12)


def attack_idle_connections(cluster: Cluster) -> str:
    """2,300 connections that send nothing, from one address, then from many; others can still connect."""
    return ", ".join(f"{addresses} addresses: {_idle(cluster, addresses)}" for addresses in (1, 200))


def _idle(cluster: Cluster, addresses: int) -> str:
    times, service = [], cluster.instances[0]
    with ExitStack() as stack:
        for n in range(2300):
            idle = stack.enter_context(service.connect(f"127.0.2.{n % addresses + 1}"))
            if n % 3 == 0:
                idle.sendall(HEALTHZ[:-2])
            if n % 50 == 0:
                times.append(seconds(partial(service.get, "/healthz")))
    assert max(times) < 1
    return f"others answered after at most {max(times) * 1000:.0f} ms"


def attack_busy_connections(cluster: Cluster) -> str:
    """64 connections are never idle; each new one gets a response in its turn."""
    service = cluster.instances[0]
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(run, [service.port], [HEALTHZ], connections=64, seconds=6)
        times = times_beside(busy, partial(service.get, "/healthz"))
    p50, p99 = (1000 * times[int(len(times) * part)] for part in (0.5, 0.99))
    assert p99 < 500
    beside = f"{len(times)} new connections beside 64 busy ones (p99 {busy.result(SECONDS).p99:.0f} ms)"
    return f"{beside}: p50 {p50:.0f} ms, p99 {p99:.0f} ms"


def main(names: list[str], store: str) -> None:
    """Run the attacks one after the other, until one fails."""
    attacks = {name: each for name, each in globals().items() if name.startswith("attack_")}
    chosen = [name for name in attacks if not names or any(word in name for word in names)]
    if not chosen:
        sys.exit(f"no attack is called so: {' '.join(names)}")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    for name in chosen:
        app = REFERENCES if "references" in name else "tests.shop:create_app()"
        with running(store, instances=1, RATE_LIMIT="off", LOG_LEVEL="error", app=app) as cluster:
            print(f"{name}: {attacks[name](cluster)}", flush=True)


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.attacks")
    options.add_argument("names", nargs="*")
    options.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    arguments = options.parse_args()
    main(arguments.names, arguments.store)

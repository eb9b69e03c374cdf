"""`make bench`: this service compared with bare Flask, on stock gunicorn and on our settings, and with a peer.

Stock gunicorn is gthread with gunicorn's own defaults except the number of workers, so it has one thread in each. With
four threads it serves either 3,000 or 8,500 requests a second, which changes from start to start: ratios to it cannot
be repeated.

All servers run all the time. The two sides of a scenario take turns within each round, and a ratio is the median of the
rounds' ratios, so that other load on the machine affects both. Besides requests a second, "per CPU" compares requests
for each second of processor time of the server's processes, which does not depend on the speed of the client; "µs more"
is the additional processor time of our side for a request.

The part `postgresql` compares on PostgreSQL, the part `sqlite` is all of the rest. `--against COMMIT` (or a folder)
compares with another checkout of this project instead. `python -m bench.large` is about large collections.
"""

import argparse
import json
import os
import platform
import random
import re
import statistics
import tempfile
import time
from contextlib import ExitStack
from http.client import HTTPConnection
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.against import compare_with
from bench.database import server
from bench.deliveries import deliver, describe, receiving
from bench.load import run
from bench.postgresql import on_postgresql
from bench.scenario import HEADINGS, Scenario, compare
from bench.sides import PRODUCT, READS, Side, creates, get, mixed, post, take_turns, with_field
from resources.products import RESOURCE
from restkeeper.clock import rfc3339, uuid7
from restkeeper.resources.representation import StoredRepresentation
from restkeeper.storage import open_store
from restkeeper.storage.base import Transaction
from restkeeper.web import exactjson
from tests.live import Gunicorn

MIXED_LOAD = "mixed load / what its two rates alone predict"
DELIVERIES = "deliveries by one worker"
STEP = "one step down to an older version, for each item"
ADMIN_KEY = "an-admin-key-of-enough-characters"
CHANCE = random.Random(0)  # noqa: S311 - the same order in each run
SMALL, LARGE = 1_000, 1_000_000  # items
MIXED = 10_000  # items that a mixed load reads, at random


def fill(path: Path, count: int) -> list[str]:
    """Store `count` products in a new store at `path`; return their ids."""
    store = open_store(f"sqlite:///{path}", [RESOURCE.collection])
    ids = [uuid7() for _ in range(count)]
    now, exact = rfc3339(time.time()), exactjson.loads(json.dumps(PRODUCT))
    products = StoredRepresentation(RESOURCE)

    def work(transaction: Transaction) -> None:
        for n, id in enumerate(ids):
            transaction.insert("products", products.create({**exact, "stock": n}, id=id, now=now))

    store.write(work)
    store.close()
    return ids


def mixed_load(server: Gunicorn, ids: list[str], rounds: int, seconds: float) -> None:
    """Print how a mixed load compares with what the rates of its reads and of its creates alone predict."""
    reads = get(*(f"/products/{id}" for id in ids))
    sides = Side(server, mixed(reads, creates())), Side(server, reads), Side(server, creates())
    results = take_turns(sides, 16, rounds, seconds)
    predicted = [1 / (READS / read.load.rate + (1 - READS) / create.load.rate) for _, read, create in results]
    rates = [both.load.rate for both, _, _ in results]
    ratio = statistics.median(rate / expected for rate, expected in zip(rates, predicted, strict=True))
    late = statistics.median(both.load.reads_p99 for both, _, _ in results)
    alone = statistics.median(read.load.reads_p99 for _, read, _ in results)
    print(
        f"{MIXED_LOAD:<50} {ratio:6.2f}  {'':7}  {'':7}  {statistics.median(rates):8.0f} "
        f"{statistics.median(predicted):8.0f}   p99 of its reads {late:.1f} ms, of reads alone {alone:.1f} ms",
        flush=True,
    )


def step_down(server: Gunicorn, rounds: int, seconds: float) -> None:
    """Print the processor time for the items of a page in the form of an older version, beyond that of stored ones."""
    older, stored = (
        Side(server, get(*(f"/api/{version}/products?limit=20&offset={n}" for n in CHANCE.sample(range(SMALL), SMALL))))
        for version in ("v1", "v2")
    )
    results = take_turns((older, stored), 16, rounds, seconds)
    micros = statistics.median((1e6 / one.per_cpu - 1e6 / other.per_cpu) / 20 for one, other in results)
    print(f"{STEP}: {micros:.1f} µs   goal 30 µs", flush=True)


def latencies(sides: dict[str, Side], seconds: float) -> None:
    """Print the response times at 8 and at 64 connections."""
    for connections in (8, 64):
        for name, side in sides.items():
            load = run(side.ports, side.requests, connections=connections, seconds=seconds)
            print(f"{name}, {connections} connections: p50 {load.p50:.1f} ms, p99 {load.p99:.1f} ms", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m bench")
    options.add_argument("part", nargs="?", choices=("sqlite", "postgresql"), help="all of it by default")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--seconds", type=float, default=1.0, help="of load, for each side in each round")
    options.add_argument("--large", type=int, default=LARGE, help="items in the large store")
    options.add_argument("--only", default="", help="scenarios whose name contains this")
    options.add_argument("--against", help="compare with this checkout (a folder or a commit) instead")
    arguments = options.parse_args()
    if arguments.against:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            database = stack.enter_context(server(folder / "data")) if arguments.part == "postgresql" else None
            return compare_with(
                arguments.against, folder, arguments.rounds, arguments.seconds, arguments.only, database
            )
    if arguments.part != "sqlite":
        with tempfile.TemporaryDirectory() as scratch:
            on_postgresql(Path(scratch), arguments.rounds, arguments.seconds, arguments.only)
    if arguments.part != "postgresql":
        on_sqlite(arguments)


def on_sqlite(arguments: argparse.Namespace) -> None:
    """Compare on SQLite."""
    packages = ("flask", "gunicorn", "gevent", "marshmallow", "orjson", "flask-smorest", "sqlalchemy")
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores; "
        + ", ".join(f"{p} {version(p)}" for p in packages)
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def serve(name: str, *arguments: str, **options: Any) -> Gunicorn:
            (folder / name).mkdir(exist_ok=True)
            return stack.enter_context(Gunicorn(folder / name, *arguments, **options))

        (folder / "small").mkdir()
        (folder / "large").mkdir()
        (folder / "mixed").mkdir()
        ids = fill(folder / "small" / "restkeeper.db", SMALL)
        print(f"Filling a store with {arguments.large:,} items …", flush=True)
        far = fill(folder / "large" / "restkeeper.db", arguments.large)
        counting = {"DATABASE_URL": f"sqlite:///{folder}/small/restkeeper.db", "RATE_LIMIT": "999999999 per day"}
        ours = serve("small", LOG_FORMAT="json")
        size = str(len(ours.get(f"/products/{ids[0]}").body))
        servers = {
            "small": ours,
            "large": serve("large", LOG_FORMAT="json"),
            "limited": serve("limited", LOG_FORMAT="json", **counting),
            "guarded": serve("guarded", LOG_FORMAT="json", AUTH="required", ADMIN_KEY=ADMIN_KEY, **counting),
            "bare": serve("bare", app="bench.bare:app", BENCH_ITEM_BYTES=size),
            "stock": serve("stock", "-k", "gthread", app="bench.bare:app", configured=False, BENCH_ITEM_BYTES=size),
            "peer": serve("peer", app="bench.peer:create_app()", BENCH_PEER_URL=f"sqlite:///{folder}/peer/peer.db"),
            "silent": serve("silent", app="bench.silent:app", LOG_FORMAT="json"),
            "versioned": serve("versioned", app="bench.versioned:app", LOG_FORMAT="json"),
        }
        for _ in range(SMALL):
            servers["peer"].post("/products", PRODUCT)
            servers["versioned"].post("/products", PRODUCT)
        theirs = servers["peer"].get("/products").json()[SMALL // 100]["id"]
        for scenario in scenarios(servers, ids, far, theirs):
            if arguments.only in scenario.name:
                compare(scenario, arguments.rounds, arguments.seconds)
        if arguments.only in STEP:
            step_down(servers["versioned"], arguments.rounds, arguments.seconds)
        if arguments.only in MIXED_LOAD:
            of_mixed = fill(folder / "mixed" / "restkeeper.db", MIXED)
            mixed_load(serve("mixed", LOG_FORMAT="json"), of_mixed, arguments.rounds, arguments.seconds)
        if arguments.only in DELIVERIES:
            receiver = stack.enter_context(receiving(folder / "receiver"))
            urls = [f"sqlite:///{folder}/deliveries{n}.db" for n in range(arguments.rounds)]
            found = [deliver(receiver, url) for url in urls]
            print(f"{DELIVERIES}: {describe(found)}   goal 500", flush=True)
        latencies(
            {"ours": Side(ours, get(f"/products/{ids[0]}")), "bare Flask": Side(servers["bare"], get("/item"))},
            2 * arguments.seconds,
        )


def middle(server: Gunicorn, count: int) -> str:
    """The URL of the page in the middle of the list, found by following the links of the service."""
    path = "/products?limit=100"
    connection = HTTPConnection("127.0.0.1", server.port)
    for _ in range(count // 200):
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        path = re.findall(r'<([^>]*)>; rel="next"', response.headers["Link"])[0]
    connection.close()
    return path.replace("limit=100", "limit=20")


def scenarios(servers: dict[str, Gunicorn], ids: list[str], far: list[str], theirs: str) -> list[Scenario]:
    """The scenarios to compare; prints their headings."""
    ours, large, limited, guarded = (servers[name] for name in ("small", "large", "limited", "guarded"))
    bare, stock, peer = (servers[name] for name in ("bare", "stock", "peer"))
    middle_item, count = f"/products/{ids[SMALL // 2]}", len(far)
    secret = guarded.post("/api/v1/keys", {"name": "bench", "scopes": ["products:read"]}, {"X-API-Key": ADMIN_KEY})
    key = f"Authorization: Bearer {secret.json()['secret']}"

    own = servers["versioned"].get("/products").json()[SMALL // 100]["id"]

    def reads(paths: list[str]) -> Side:
        """With a key, limits and log, in a random order."""
        return Side(guarded, tuple(with_field(each, key) for each in get(*CHANCE.sample(paths, len(paths)))))

    def pages(limit: int) -> Side:
        return reads([f"/products?limit={limit}&offset={n}" for n in range(SMALL)])

    one, create = Side(ours, get(middle_item)), Side(ours, post("/products", PRODUCT))
    constants = {size: Side(stock, get(path)) for size, path in ((1, "/item"), (20, "/page/20"), (100, "/page/100"))}
    print(HEADINGS)
    return [
        Scenario(
            "one item at random / bare Flask, gthread", reads([f"/products/{id}" for id in ids]), constants[1], 1.1
        ),
        Scenario("page of 20 at random / bare Flask, gthread", pages(20), constants[20], 0.6),
        Scenario("page of 100 at random / bare Flask, gthread", pages(100), constants[100], 0.6),
        Scenario("page of 20 again / bare Flask, gthread", reads(["/products"]), constants[20], 1.2),
        Scenario("page of 100 again / bare Flask, gthread", reads(["/products?limit=100"]), constants[100], 1.2),
        Scenario("one item / bare Flask, same worker", one, Side(bare, get("/item")), 0),
        Scenario("one item with limits / without", Side(limited, get(middle_item)), one, 0),
        Scenario(
            "one item, with older versions / without", Side(servers["versioned"], get(f"/products/{own}")), one, 0.95
        ),
        Scenario("create with an idempotency key / without", Side(ours, creates()), create, 0.85),
        Scenario("create with its event / without", create, Side(servers["silent"], create.requests), 0.9),
        Scenario("create, durable / peer", create, Side(peer, create.requests), 3.5),
        Scenario("one item / peer", one, Side(peer, get(f"/products/{theirs}")), 0),
        Scenario("page of 20 / peer", Side(ours, get("/products")), Side(peer, get("/products")), 0),
        Scenario(
            f"one item, of {count:,} / of {SMALL:,}", Side(large, get(f"/products/{far[count // 2]}")), one, 1 / 1.5
        ),
        Scenario("first page, likewise", Side(large, get("/products")), Side(ours, get("/products")), 1 / 1.5),
        Scenario(
            "middle page by cursor, likewise",
            Side(large, get(middle(large, count))),
            Side(ours, get(middle(ours, SMALL))),
            1 / 1.5,
        ),
    ]


if __name__ == "__main__":
    main()

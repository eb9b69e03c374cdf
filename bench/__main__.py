"""`make bench`: this service compared with bare Flask on stock gunicorn, and with peers that store items.

Stock gunicorn is gthread with gunicorn's own defaults except the number of workers, so it has one thread in each. With
four threads it serves either 3,000 or 8,500 requests a second, which changes from start to start: ratios to it cannot
be repeated. Ours has a key, limits and a log, where nothing else is said; the others have none of these but a log.

All servers run all the time. The sides of a scenario take turns within each round, and a ratio is the median of the
rounds' ratios, so that other load on the machine affects all. Besides requests a second, "per CPU" compares requests
for each second of processor time of the server's processes, which does not depend on the speed of the client; "µs more"
is the additional processor time of our side for a request. "p99" is that of the reads.

The part `postgresql` compares on PostgreSQL, the part `sqlite` is all of the rest. `--against COMMIT` (or a folder)
compares with another checkout of this project instead. `python -m bench.figures` writes docs/scaling.md, and
`python -m bench.large` is about large collections.
"""

import argparse
import json
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import Any

from bench.against import compare_with
from bench.database import server
from bench.deliveries import deliver, describe, receiving
from bench.load import Requests
from bench.postgresql import on_postgresql
from bench.rows import page_after
from bench.scenario import (
    CREATE,
    DELIVERIES,
    HEADINGS,
    ONE,
    OURS,
    PAGE,
    Figures,
    Other,
    Results,
    Scenario,
    compare_all,
    is_chosen,
)
from bench.sides import CHANCE, PRODUCT, SETTINGS, Side, creates, get, mixed, new_key, post, shuffled, take_turns
from resources.products import RESOURCE
from restkeeper import exactjson
from restkeeper.clock import rfc3339, uuid7
from restkeeper.resources.views import StoredView
from restkeeper.storage import open_store
from restkeeper.storage.base import Transaction
from tests.live import Gunicorn

PACKAGES = ("Flask", "gunicorn", "gevent", "marshmallow", "SQLAlchemy", "flask-smorest", "litestar", "uvicorn")
BARE, LITESTAR, SMOREST = "bare Flask", "Litestar + SQLAlchemy", "flask-smorest + SQLAlchemy"
STEP = "one step down to an older version, for each item"
SIZES = (1_000, 10_000, 100_000, 1_000_000)  # items
ITEMS = 10_000  # of the store that is compared with other services
OF_SIZES = ("one item", "first page", "middle page by cursor")


def fill(path: Path, count: int) -> list[str]:
    """Store `count` products in a new store at `path`; return their ids."""
    store = open_store(f"sqlite:///{path}", [RESOURCE.collection])
    ids = [uuid7() for _ in range(count)]
    now, exact = rfc3339(time.time()), exactjson.loads(json.dumps(PRODUCT))
    products = StoredView(RESOURCE)

    def work(transaction: Transaction) -> None:
        for n, id in enumerate(ids):
            transaction.insert("products", products.create({**exact, "stock": n}, id=id, now=now))

    store.write(work)
    store.close()
    return ids


def fill_peer(path: Path, ids: Sequence[str]) -> None:
    """Copy the only product of a peer, under each of these ids."""
    with closing(sqlite3.connect(path)) as connection, connection:
        _, *names = (name for _, name, *_ in connection.execute("PRAGMA table_info(products)"))
        columns = ", ".join(names)
        copy = f"INSERT INTO products (id, {columns}) SELECT ?, {columns} FROM products LIMIT 1"
        connection.executemany(copy, [(id,) for id in ids])


def step_down(server: Gunicorn, rounds: int, seconds: float) -> None:
    """Print the processor time for the items of a page in the form of an older version, beyond that of stored ones."""
    older, stored = (
        Side(
            server,
            get(*(f"/api/{version}/products?limit=20&offset={n}" for n in CHANCE.sample(range(SIZES[0]), SIZES[0]))),
        )
        for version in ("v1", "v2")
    )
    results = take_turns((older, stored), 16, rounds, seconds)
    micros = statistics.median((1e6 / one.per_cpu - 1e6 / other.per_cpu) / 20 for one, other in results)
    print(f"{STEP}: {micros:.1f} µs   goal 30 µs", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m bench")
    options.add_argument("part", nargs="?", choices=("sqlite", "postgresql"), help="all of it by default")
    options.add_argument("--only", nargs="+", default=[""], help="scenarios whose name contains one of these")
    options.add_argument("--against", help="compare with this checkout (a folder or a commit) instead")
    arguments = parsed(options)
    only, rounds, seconds = arguments.only, arguments.rounds, arguments.seconds
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if arguments.against:
            database = stack.enter_context(server(folder / "data")) if arguments.part == "postgresql" else None
            return compare_with(arguments.against, folder, rounds, seconds, only, database)
        if arguments.part != "sqlite":
            on_postgresql(folder, rounds, seconds, only)
        if arguments.part != "postgresql":
            on_sqlite(folder, rounds, seconds, only, arguments.large)


def parsed(options: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, with those that say how long the load is and how large the largest store."""
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--seconds", type=float, default=1.0, help="of load, for each side in each round")
    options.add_argument("--large", type=int, default=SIZES[-1], help="items in the largest store of SQLite")
    return options.parse_args()


def packages() -> str:
    """The versions of what is compared."""
    return f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in PACKAGES)


def on_sqlite(scratch: Path, rounds: int, seconds: float, only: Sequence[str], large: int) -> Results:
    """Compare on SQLite."""
    print(f"{os.cpu_count()} cores; {packages()}")
    folder = scratch / "sqlite"
    with ExitStack() as stack:

        def serve(name: str, *arguments: str, app: str = "app:create_app()", **options: Any) -> Gunicorn:
            (folder / name).mkdir(parents=True, exist_ok=True)
            return stack.enter_context(Gunicorn(folder / name, *arguments, app=app, **options))

        def peer(name: str, *arguments: str, **options: Any) -> Gunicorn:
            """A peer with the items of ours."""
            made = serve(name, *arguments, BENCH_PEER_URL=f"sqlite:///{folder}/{name}/peer.db", **options)
            made.post("/products", PRODUCT)
            fill_peer(folder / name / "peer.db", ids[ITEMS])
            return made

        ids = {}
        for size in (each for each in SIZES if each <= max(large, ITEMS)):
            print(f"Filling a store with {size:,} items …", flush=True)
            (folder / str(size)).mkdir(parents=True)
            ids[size] = fill(folder / str(size) / "restkeeper.db", size)
        ours = {size: serve(str(size), **SETTINGS) for size in ids}
        unguarded = {name: serve(name, app=f"bench.{name}:app", LOG_FORMAT="json") for name in ("versioned", "silent")}
        unguarded["plain"] = serve("plain", LOG_FORMAT="json")
        size_of_one = str(len(unguarded["plain"].post("/products", PRODUCT).body))
        constants = {"app": "bench.bare:app", "configured": False, "BENCH_ITEM_BYTES": size_of_one}
        uvicorn = ("-k", "uvicorn_worker.UvicornWorker", "--access-logfile", "-")
        others = {
            BARE: serve("bare", "-k", "gthread", **constants),
            LITESTAR: peer("litestar", *uvicorn, app="bench.litestar_peer:app", configured=False),
            SMOREST: peer("smorest", app="bench.peer:create_app()"),
        }
        print(HEADINGS)
        found = [*of_sizes(ours, ids), *of_others(ours[ITEMS], others, ids[ITEMS]), *of_parts(**unguarded)]
        results = compare_all(found, only, rounds, seconds)
        if is_chosen(STEP, only):
            for _ in range(SIZES[0]):
                unguarded["versioned"].post("/products", PRODUCT)
            step_down(unguarded["versioned"], rounds, seconds)
        if is_chosen(DELIVERIES, only):
            receiver = stack.enter_context(receiving(folder / "receiver"))
            made = [deliver(receiver, f"sqlite:///{folder}/deliveries{n}.db") for n in range(rounds)]
            print(f"{DELIVERIES}, by one worker: {describe(made)}   goal 500", flush=True)
            results[DELIVERIES] = {OURS: Figures(statistics.median(each.rate for each in made))}
    return results


def of_sizes(ours: dict[int, Gunicorn], ids: dict[int, list[str]]) -> list[Scenario]:
    """The largest store compared with smaller ones, at places in its middle."""
    found = []
    for name in OF_SIZES:
        sides = {}
        for size, each in ours.items():
            middle = ids[size][size // 2 - 250 : size // 2 + 250]
            paths = {"one item": [f"/products/{id}" for id in middle], "first page": ["/products"]}
            sides[size] = Side(each, shuffled(new_key(each), *paths.get(name, map(page_after, middle))))
        largest = max(sides)
        smaller = {f"of {size:,}": Other(side, 1 / 1.5) for size, side in sides.items() if size < largest}
        found.append(Scenario(f"{name} of {largest:,}", sides[largest], smaller))
    return found


def of_others(ours: Gunicorn, others: dict[str, Gunicorn], ids: list[str]) -> list[Scenario]:
    """Ours compared with other services that have the same items."""
    key, items = new_key(ours), [f"/products/{id}" for id in ids]
    pages, later = map(page_after, ids[:-20]), [f"/products?after={id}" for id in ids[:-20]]
    one, create = shuffled(key, *items), post("/products", PRODUCT)

    def bare(path: str, goal: float, late: float = 0) -> dict[str, Other]:
        return {BARE: Other(Side(others[BARE], get(path)), goal, late)}

    def peers(requests: Requests, litestar: float, smorest: float) -> dict[str, Other]:
        """The peers, with the goals."""
        goals = {LITESTAR: litestar, SMOREST: smorest}
        return {name: Other(Side(others[name], requests), goal) for name, goal in goals.items()}

    same, at_random = shuffled("", *items), shuffled("", *later)
    return [
        Scenario(ONE, Side(ours, one), bare("/item", 1.1, late=1.3) | peers(same, 1.8, 3)),
        Scenario(PAGE, Side(ours, shuffled(key, *pages)), bare("/page/20", 0.8) | peers(at_random, 0, 4)),
        Scenario("page of 100 again", Side(ours, shuffled(key, "/products?limit=100")), bare("/page/100", 0)),
        Scenario(CREATE, Side(ours, creates(key)), peers(create, 1.6, 2.5)),
        Scenario("mixed load", Side(ours, mixed(one, creates(key))), peers(mixed(same, cycle(create)), 0, 0)),
    ]


def of_parts(plain: Gunicorn, versioned: Gunicorn, silent: Gunicorn) -> list[Scenario]:
    """Ours compared with ours without a part, both without a key."""
    own, older = (
        Side(each, get(f"/products/{each.post('/products', PRODUCT).json()['id']}")) for each in (plain, versioned)
    )
    create = Side(plain, post("/products", PRODUCT))
    return [
        Scenario("one item, with older versions", older, {"without": Other(own, 0.95)}),
        Scenario("idempotency key of a create", Side(plain, creates()), {"without": Other(create, 0.85)}),
        Scenario("create with its event", create, {"without": Other(Side(silent, create.requests), 0.9)}),
    ]


if __name__ == "__main__":
    main()

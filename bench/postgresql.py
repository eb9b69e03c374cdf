"""The service on PostgreSQL: beside flask-smorest and SQLAlchemy on the same server, and as several instances.

Ours has a key, this machine's limits, a log, and for creates an idempotency key and an event; the peer has a log, and
the peer with the same guarantees also keys, idempotency keys and events, but no limits. All have the same settings of
gunicorn, as many connections, as many items, and a database of their own on one server with the durability of
PostgreSQL's defaults. The client, the workers and the database share the processors of this machine, so a rate says
less than the processor time of each part.
"""

import json
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import sha256
from itertools import cycle
from pathlib import Path

import psycopg

from bench.database import Server, server
from bench.deliveries import Deliveries, deliver, describe, receiving
from bench.load import Requests
from bench.rows import fill, id_of, page_after
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
    costs,
    is_chosen,
)
from bench.sides import PRODUCT, SCOPES, SETTINGS, Instances, Side, creates, mixed, new_key, post, shuffled, take_turns
from restkeeper.config import Config
from tests.live import Gunicorn

ITEMS = 10_000
CONNECTIONS = Config().database_connections
INSTANCES = 3
WORKERS = 3  # that deliver
WEBHOOKS = {1: DELIVERIES, 8: "deliveries of 8 webhooks"}
PREFIX = "PostgreSQL: "
PLAIN, GUARDED = "plain peer", "peer with the same guarantees"

# Our items as the peer's, in the order of its columns.
_COPY = """\
COPY (
    SELECT
        id, fields ->> 'name', fields ->> 'description', fields ->> 'sku', fields -> 'price', fields ->> 'currency',
        fields -> 'stock', body::json -> 'tags', body::json -> 'attributes', fields ->> 'status',
        fields ->> 'created_at', fields ->> 'updated_at', version
    FROM items
    WHERE collection = 'products'
) TO STDOUT"""


def on_postgresql(folder: Path, rounds: int, seconds: float, only: Sequence[str]) -> Results:
    """Print how ours compares with the peer, and several instances with one."""
    with ExitStack() as stack:
        database = stack.enter_context(server(folder / "data"))
        settings = ("server_version", "fsync", "synchronous_commit", "shared_buffers")
        print("\nPostgreSQL: " + ", ".join(f"{name} {database.show(name)}" for name in settings))
        ours, theirs, guarded = (database.create(name) for name in ("ours", "theirs", "guarded"))
        fill(ours, ITEMS)
        instances = [_serve(stack, folder / f"ours{n}", ours) for n in range(INSTANCES)]
        peer = _peer(stack, folder / "theirs", theirs, "bench.peer:create_app()")
        guarded_peer = _peer(stack, folder / "guarded", guarded, "bench.guarded_peer:create_app()")
        copy(ours, theirs)
        copy(ours, guarded)
        key = new_key(instances[0])
        _allow(guarded, key)
        print(HEADINGS)
        results = compare_all(_scenarios(database, instances[0], peer, guarded_peer, key), only, rounds, seconds)
        _scale(database, instances, key, rounds, seconds, only)
    return results | _deliver(folder, rounds, only)


def _serve(stack: ExitStack, folder: Path, url: str) -> Gunicorn:
    folder.mkdir()
    return stack.enter_context(Gunicorn(folder, app="app:create_app()", DATABASE_URL=url, **SETTINGS))


def _peer(stack: ExitStack, folder: Path, url: str, app: str) -> Gunicorn:
    """A peer, which creates its tables."""
    folder.mkdir()
    psycopg_url = url.replace("postgresql:", "postgresql+psycopg:", 1)
    options = {"BENCH_PEER_URL": psycopg_url, "BENCH_PEER_CONNECTIONS": str(CONNECTIONS)}
    return stack.enter_context(Gunicorn(folder, app=app, **options))


def copy(ours: str, theirs: str) -> None:
    """Copy our items to the peer, whose table is empty."""
    with psycopg.connect(ours) as source, psycopg.connect(theirs, autocommit=True) as target:
        with source.cursor().copy(_COPY) as rows, target.cursor().copy("COPY products FROM STDIN") as copied:
            for row in rows:
                copied.write(row)
        target.execute("VACUUM (ANALYZE) products")


def _allow(guarded: str, key: str) -> None:
    """Store the key of a header field in the peer with the same guarantees."""
    row = sha256(key.split()[-1].encode()).hexdigest(), json.dumps(SCOPES)
    with psycopg.connect(guarded) as connection:
        connection.execute("INSERT INTO api_keys (digest, caller, scopes) VALUES (%s, 'bench', %s)", row)


def _scenarios(
    database: Server, instance: Gunicorn, peer: Gunicorn, guarded_peer: Gunicorn, key: str
) -> list[Scenario]:
    numbers = range(ITEMS - 20)
    items = [f"/products/{id_of(n)}" for n in numbers]
    own, theirs = shuffled(key, *items), shuffled("", *items)
    pages = shuffled(key, *(page_after(id_of(n)) for n in numbers))  # many more than a process caches
    after = [f"/products?after={id_of(n)}" for n in numbers]

    def ours(requests: Requests) -> Side:
        return Side(instance, requests, database)

    def others(plain: Requests, guarded: Requests, goals: tuple[float, float]) -> dict[str, Other]:
        sides = (PLAIN, peer, plain, goals[0]), (GUARDED, guarded_peer, guarded, goals[1])
        return {name: Other(Side(server, requests, database), goal) for name, server, requests, goal in sides}

    create = post("/products", PRODUCT)
    return [
        Scenario(PREFIX + ONE, ours(own), others(theirs, own, (2.5, 2.5))),
        Scenario(PREFIX + PAGE, ours(pages), others(shuffled("", *after), shuffled(key, *after), (0, 4))),
        Scenario(PREFIX + CREATE, ours(creates(key)), others(create, creates(key), (0, 2.5))),
        Scenario(
            PREFIX + "mixed load",
            ours(mixed(own, creates(key))),
            others(mixed(theirs, cycle(create)), mixed(own, creates(key)), (0, 2.5)),
        ),
    ]


def _scale(
    database: Server, instances: list[Gunicorn], key: str, rounds: int, seconds: float, only: Sequence[str]
) -> None:
    """Print how several instances compare with one, of the same number of connections of the client in all."""
    items = shuffled(key, *(f"/products/{id_of(n)}" for n in range(ITEMS)))
    for name, requests, writes in (("one item at random", items, False), ("create", (), True)):
        title = f"{PREFIX}{INSTANCES} instances / 1, {name}"
        if not is_chosen(title, only):
            continue
        sides = [
            Side(Instances(tuple(instances[:count])), creates(key) if writes else requests, database)
            for count in range(1, INSTANCES + 1)
        ]
        results = list(zip(*take_turns(sides, 24, rounds, seconds), strict=True))
        one = results[0]
        ratio = statistics.median(all.load.rate / each.load.rate for all, each in zip(results[-1], one, strict=True))
        cost = statistics.median(all.cost / each.cost for all, each in zip(results[-1], one, strict=True))
        print(f"{title:<50} {ratio:6.2f}   processor time of a request {cost:.2f} ×", flush=True)
        for count, found in enumerate(results, 1):
            rate = statistics.median(each.load.rate for each in found)
            print(f"    {count}: {rate:6.0f}/s, {costs(found)}", flush=True)


def _deliver(folder: Path, rounds: int, only: Sequence[str]) -> Results:
    """Print how several workers that send webhooks compare with one, of one webhook and of several.

    The database server has nothing else to do, and each measurement has a new database.
    """
    results: Results = {}
    chosen = {number: PREFIX + name for number, name in WEBHOOKS.items() if is_chosen(PREFIX + name, only)}
    if not chosen:
        return results
    with server(folder / "deliveries") as database, receiving(folder / "receiver") as receiver:

        def found(workers: int, webhooks: int) -> Deliveries:
            url = database.create("deliveries")
            return deliver(receiver, url, workers=workers, webhooks=webhooks, database=database)

        for webhooks, title in chosen.items():
            turns = [(found(1, webhooks), found(WORKERS, webhooks)) for _ in range(rounds)]
            ratio = statistics.median(many.rate / one.rate for one, many in turns)
            cost = statistics.median(many.cost / one.cost for one, many in turns)
            name = f"{title}, {WORKERS} workers / 1"
            print(f"{name:<50} {ratio:6.2f}   processor time of a delivery {cost:.2f} ×", flush=True)
            for workers, side in zip((1, WORKERS), zip(*turns, strict=True), strict=True):
                print(f"    {workers}: {describe(side)}", flush=True)
            rate = statistics.median(one.rate for one, _ in turns)
            results[title] = {OURS: Figures(rate)}  # of one worker
    return results

"""The service on PostgreSQL: beside flask-smorest and SQLAlchemy on the same server, and as several instances.

Ours has a key, this machine's limits, a log, and for creates an idempotency key and an event; the peer has a log, and
the peer with the same guarantees also keys, idempotency keys and events, but no limits. All have the same settings of
gunicorn, as many connections, as many items, and a database of their own on one server with the durability of
PostgreSQL's defaults. The client, the workers and the database share the processors of this machine, so a rate says
less than the processor time of each part.
"""

import json
import random
import statistics
from contextlib import ExitStack
from hashlib import sha256
from itertools import cycle
from pathlib import Path

import psycopg

from bench.database import Server, server
from bench.deliveries import Deliveries, deliver, describe, receiving
from bench.load import Requests
from bench.rows import cursor, fill, id_of
from bench.scenario import HEADINGS, Scenario, compare, costs
from bench.sides import PRODUCT, Instances, Side, creates, get, mixed, post, take_turns, with_field
from restkeeper.config import Config
from tests.live import Gunicorn

ITEMS = 10_000
CONNECTIONS = Config().database_connections
INSTANCES = 3
WORKERS = 3  # that deliver
WEBHOOKS = (1, 8)
ADMIN_KEY = "an-admin-key-of-enough-characters"
SCOPES = ["products:read", "products:write"]
SETTINGS = {"AUTH": "required", "ADMIN_KEY": ADMIN_KEY, "RATE_LIMIT": "999999999 per day", "LOG_FORMAT": "json"}
CHANCE = random.Random(0)  # noqa: S311 - the same order in each run

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


def on_postgresql(folder: Path, rounds: int, seconds: float, only: str) -> None:
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
        secret = _secret(instances[0])
        _allow(guarded, secret)
        key = f"Authorization: Bearer {secret}"
        print(HEADINGS)
        for scenario in _scenarios(database, instances[0], peer, guarded_peer, key):
            if only in scenario.name:
                compare(scenario, rounds, seconds)
        _scale(database, instances, key, rounds, seconds, only)
    _deliver(folder, rounds, only)


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


def _secret(instance: Gunicorn) -> str:
    """The secret of a new key."""
    made = instance.post("/api/v1/keys", {"name": "bench", "scopes": SCOPES}, {"X-API-Key": ADMIN_KEY})
    return str(made.json()["secret"])


def _allow(guarded: str, secret: str) -> None:
    """Store a key of the peer with the same guarantees."""
    row = sha256(secret.encode()).hexdigest(), json.dumps(SCOPES)
    with psycopg.connect(guarded) as connection:
        connection.execute("INSERT INTO api_keys (digest, caller, scopes) VALUES (%s, 'bench', %s)", row)


def reads(key: str, *paths: str) -> tuple[bytes, ...]:
    """Requests with a key to these paths, in a random order."""
    return tuple(with_field(each, key) for each in get(*CHANCE.sample(paths, len(paths))))


def page_after(number: int) -> str:
    """The path of our page that begins after the item with this number."""
    return f"/products?cursor={cursor((False, id_of(number)))}"


def _scenarios(
    database: Server, instance: Gunicorn, peer: Gunicorn, guarded_peer: Gunicorn, key: str
) -> list[Scenario]:
    numbers = range(ITEMS - 20)
    items = [f"/products/{id_of(n)}" for n in numbers]
    own, others = reads(key, *items), get(*CHANCE.sample(items, len(items)))
    pages = reads(key, *map(page_after, numbers))  # many more than a process caches
    after = [f"/products?after={id_of(n)}" for n in numbers]
    other_pages = get(*CHANCE.sample(after, len(after)))

    def ours(requests: Requests) -> Side:
        return Side(instance, requests, database)

    def theirs(requests: Requests) -> Side:
        return Side(peer, requests, database)

    def guarded(requests: Requests) -> Side:
        return Side(guarded_peer, requests, database)

    return [
        Scenario("PostgreSQL: one item at random / peer", ours(own), theirs(others), 2.5),
        Scenario("PostgreSQL: page of 20 at random / peer", ours(pages), theirs(other_pages), 0),
        Scenario("PostgreSQL: page of 20 again / peer", ours(reads(key, "/products")), theirs(get("/products")), 0),
        Scenario(
            "PostgreSQL: create with an idempotency key / peer",
            ours(creates(key)),
            theirs(post("/products", PRODUCT)),
            0,
        ),
        Scenario(
            "PostgreSQL: 90 % reads, 10 % creates / peer",
            ours(mixed(own, creates(key))),
            theirs(mixed(others, cycle(post("/products", PRODUCT)))),
            0,
        ),
        Scenario("PostgreSQL: one item / peer with the same guarantees", ours(own), guarded(own), 2.5),
        Scenario("PostgreSQL: page of 20 / peer with the same guarantees", ours(pages), guarded(reads(key, *after)), 4),
        Scenario("PostgreSQL: create / peer with the same guarantees", ours(creates(key)), guarded(creates(key)), 2.5),
        Scenario(
            "PostgreSQL: mixed / peer with the same guarantees",
            ours(mixed(own, creates(key))),
            guarded(mixed(own, creates(key))),
            2.5,
        ),
    ]


def _scale(database: Server, instances: list[Gunicorn], key: str, rounds: int, seconds: float, only: str) -> None:
    """Print how several instances compare with one, of the same number of connections of the client in all."""
    items = reads(key, *(f"/products/{id_of(n)}" for n in range(ITEMS)))
    for name, requests, writes in (("one item at random", items, False), ("create", (), True)):
        title = f"PostgreSQL: {name}, {INSTANCES} instances / 1"
        if only not in title:
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


def _deliver(folder: Path, rounds: int, only: str) -> None:
    """Print how several workers that send webhooks compare with one, of one webhook and of several.

    The database server has nothing else to do, and each measurement has a new database.
    """
    titles = {number: f"PostgreSQL: deliveries (webhooks: {number}), {WORKERS} workers / 1" for number in WEBHOOKS}
    chosen = {number: title for number, title in titles.items() if only in title}
    if not chosen:
        return
    with server(folder / "deliveries") as database, receiving(folder / "receiver") as receiver:

        def found(workers: int, webhooks: int) -> Deliveries:
            url = database.create("deliveries")
            return deliver(receiver, url, workers=workers, webhooks=webhooks, database=database)

        for webhooks, title in chosen.items():
            results = [(found(1, webhooks), found(WORKERS, webhooks)) for _ in range(rounds)]
            ratio = statistics.median(many.rate / one.rate for one, many in results)
            cost = statistics.median(many.cost / one.cost for one, many in results)
            print(f"{title:<50} {ratio:6.2f}   processor time of a delivery {cost:.2f} ×", flush=True)
            for workers, side in zip((1, WORKERS), zip(*results, strict=True), strict=True):
                print(f"    {workers}: {describe(side)}", flush=True)

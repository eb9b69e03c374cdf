"""Two servers side by side: the requests to each, and rounds in which they take turns."""

import json
import random
import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple
from uuid import uuid4

from bench.database import Server, cpu_of
from bench.load import Load, Requests, run
from tests.live import Gunicorn

READS = 0.9  # of a mixed load; the others create
ADMIN_KEY = "an-admin-key-of-enough-characters"
SCOPES = ["products:read", "products:write"]
CHANCE = random.Random(0)  # noqa: S311 - the same order in each run
SETTINGS = {  # as deployed: with a key, limits and a log
    "AUTH": "required",
    "ADMIN_KEY": ADMIN_KEY,
    "RATE_LIMIT": "999999999 per day",
    "LOG_FORMAT": "json",
}
PRODUCT = {
    "name": "Desk lamp",
    "description": "Bends, does not break.",
    "price": 49.9,
    "currency": "EUR",
    "stock": 12,
    "tags": ["office", "light"],
    "attributes": {"colour": "red"},
}


class Instances(NamedTuple):
    """Several gunicorns; the connections of the client are distributed among them in turn."""

    servers: tuple[Gunicorn, ...]

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self.servers]

    def worker_pids(self) -> list[int]:
        return [pid for server in self.servers for pid in server.worker_pids()]


class Side(NamedTuple):
    """One server, or several, and the requests to it: these in turn, or those of an iterator once each.

    `database` is the server of its store if that has processes of its own.
    """

    server: Gunicorn | Instances
    requests: Requests
    database: Server | None = None

    @property
    def ports(self) -> list[int]:
        return self.server.ports if isinstance(self.server, Instances) else [self.server.port]


class Found(NamedTuple):
    """The load of a side in one round, and its requests for each second of the workers' processor time.

    `database` and `client` are the seconds of processor time of a request, there.
    """

    load: Load
    per_cpu: float
    database: float
    client: float

    @property
    def cost(self) -> float:
        """Seconds of processor time of a request, of the workers and the database."""
        return 1 / self.per_cpu + self.database


def get(*paths: str) -> tuple[bytes, ...]:
    return tuple(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths)


def post(path: str, body: object) -> tuple[bytes, ...]:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return (f"{head}\r\n\r\n".encode() + data,)


def with_field(request: bytes, field: str) -> bytes:
    """The request with one more header field."""
    return request.replace(b"\r\n\r\n", f"\r\n{field}\r\n\r\n".encode(), 1)


def shuffled(key: str, *paths: str) -> tuple[bytes, ...]:
    """Requests to these paths in a random order, with the header field of a key if there is one."""
    found = get(*CHANCE.sample(paths, len(paths)))
    return tuple(with_field(each, key) for each in found) if key else found


def new_key(server: Gunicorn) -> str:
    """The header field with a new key of a server that has these SETTINGS."""
    made = server.post("/api/v1/keys", {"name": "bench", "scopes": SCOPES}, {"X-API-Key": ADMIN_KEY})
    return f"Authorization: Bearer {made.json()['secret']}"


def creates(*fields: str) -> Iterator[bytes]:
    """Endless creates, each with a new idempotency key and with these headers."""
    (request,) = post("/products", PRODUCT)
    for field in fields:
        request = with_field(request, field)
    return (with_field(request, f"Idempotency-Key: {uuid4()}") for _ in count())


def changes(method: str, ids: Sequence[str], *fields: str) -> Iterator[bytes]:
    """Endless changes of items at random, each to another stock, by PATCH or PUT."""
    chance = random.Random(0)  # noqa: S311 - the same load in each run
    for number in count():
        sent = {"stock": number % 1_000_000}
        (request,) = post(f"/products/{chance.choice(ids)}", sent if method == "PATCH" else PRODUCT | sent)
        request = request.replace(b"POST", method.encode(), 1)
        for field in fields:
            request = with_field(request, field)
        yield request


def mixed(reads: Requests, writes: Iterator[bytes]) -> Iterator[bytes]:
    """Nine reads, any of these, for each write."""
    chance, reads = random.Random(0), tuple(reads)  # noqa: S311 - the same load in each run
    return (chance.choice(reads) if chance.random() < READS else next(writes) for _ in count())


def measure(side: Side, connections: int, seconds: float) -> Found:
    """One period of load on a side."""
    before = _cpu_seconds(side)
    load = run(side.ports, side.requests, connections=connections, seconds=seconds)
    workers, database, client = (
        max(after - earlier, 0.0) for after, earlier in zip(_cpu_seconds(side), before, strict=True)
    )
    return Found(load, load.requests / max(workers, 0.01), database / load.requests, client / load.requests)


def _cpu_seconds(side: Side) -> tuple[float, float, float]:
    """Processor time so far: of the workers, of the database, of this process."""
    database = side.database.cpu_seconds() if side.database else 0.0
    return sum(map(cpu_of, side.server.worker_pids())), database, time.process_time()


def take_turns(sides: Sequence[Side], connections: int, rounds: int, seconds: float) -> list[tuple[Found, ...]]:
    """The results of each round, in the order of `sides`; every second round starts with the last side."""
    results, places = [], range(len(sides))
    for number in range(rounds):
        found = {n: measure(sides[n], connections, seconds) for n in (places if number % 2 else reversed(places))}
        results.append(tuple(found[n] for n in places))
    return results

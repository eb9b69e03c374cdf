"""Two servers side by side: the requests to each, and rounds in which they take turns."""

import json
import os
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from bench.load import Load, Requests, run
from tests.live import Gunicorn

READS = 0.9  # of a mixed load; the others create
PRODUCT = {
    "name": "Desk lamp",
    "description": "Bends, does not break.",
    "price": 49.9,
    "currency": "EUR",
    "stock": 12,
    "tags": ["office", "light"],
    "attributes": {"colour": "red"},
}


class Side(NamedTuple):
    """One server and the requests to it: these in turn, or those of an iterator once each."""

    server: Gunicorn
    requests: Requests


class Found(NamedTuple):
    """The load of a side in one round, and its requests for each second of processor time."""

    load: Load
    per_cpu: float


def get(*paths: str) -> tuple[bytes, ...]:
    return tuple(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths)


def post(path: str, body: object) -> tuple[bytes, ...]:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return (f"{head}\r\n\r\n".encode() + data,)


def with_field(request: bytes, field: str) -> bytes:
    """The request with one more header field."""
    return request.replace(b"\r\n\r\n", f"\r\n{field}\r\n\r\n".encode(), 1)


def creates(*fields: str) -> Iterator[bytes]:
    """Endless creates, each with a new idempotency key and with these headers."""
    (request,) = post("/products", PRODUCT)
    for field in fields:
        request = with_field(request, field)
    return (with_field(request, f"Idempotency-Key: {uuid4()}") for _ in count())


def mixed(reads: Requests, writes: Iterator[bytes]) -> Iterator[bytes]:
    """Nine reads, any of these, for each write."""
    chance, reads = random.Random(0), tuple(reads)  # noqa: S311 - the same load in each run
    return (chance.choice(reads) if chance.random() < READS else next(writes) for _ in count())


def cpu_seconds(server: Gunicorn) -> float:
    """Processor time of the server's workers so far."""
    ticks = 0
    for pid in server.worker_pids():
        ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(side: Side, connections: int, seconds: float) -> Found:
    """One period of load on a side."""
    before = cpu_seconds(side.server)
    load = run(side.server.port, side.requests, connections=connections, seconds=seconds)
    return Found(load, load.requests / max(cpu_seconds(side.server) - before, 0.01))


def take_turns(sides: tuple[Side, ...], connections: int, rounds: int, seconds: float) -> list[tuple[Found, ...]]:
    """The results of each round, in the order of `sides`; every second round starts with the last side."""
    results = []
    for number in range(rounds):
        order = sides if number % 2 else sides[::-1]
        found = {side: measure(side, connections, seconds) for side in order}
        results.append(tuple(found[side] for side in sides))
    return results

"""Callers that guess keys, or use up the places of others."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

from restkeeper.features.limits.shared import SLOTS, SharedStorage, Table
from tests.attacks.health import Health
from tests.live import Gunicorn

ADMIN_KEY = "an-admin-key-of-enough-characters"
ADMIN = {"X-API-Key": ADMIN_KEY}
CLOSED = {"AUTH": "required", "ADMIN_KEY": ADMIN_KEY, "RATE_LIMIT": "off", "LOG_LEVEL": "error"}

GUESSES = 3000
GUESSERS = 8
WORST_HEALTH = 1.0  # seconds


def _key(server: Gunicorn, *scopes: str) -> dict[str, str]:
    made = server.post("/api/v1/keys", {"name": "x", "scopes": list(scopes)}, ADMIN)
    assert made.status == 200, made
    return {"X-API-Key": made.json()["secret"]}


def _send(server: Gunicorn, address: str, requests: list[tuple[str, dict[str, str]]], found: Counter[int]) -> None:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30, source_address=(address, 0))
    try:
        for path, headers in requests:
            connection.request("GET", path, None, headers)
            response = connection.getresponse()
            response.read()
            found[response.status] += 1
    finally:
        connection.close()


def _together(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def attack_guessing(folder: Path) -> str:
    """One address tries thousands of keys: only a few are looked up, and valid callers at that address are served."""
    with Gunicorn(folder, bounds={"failure_limit": "20 per day"}, METRICS_TOKEN="m" * 24, **CLOSED) as server:
        known, fresh = _key(server, "products:read"), _key(server, "products:read")
        at = "127.0.0.9"
        before: Counter[int] = Counter()
        _send(server, at, [("/products", known)], before)
        found: list[Counter[int]] = [Counter() for _ in range(GUESSERS)]
        paths = ("/products", "/metrics", "/nothing", "/healthz")
        guesses = [
            [(paths[n % 4], {"Authorization": f"Bearer rk_{n:016x}_{who}"}) for n in range(GUESSES // GUESSERS)]
            for who in range(GUESSERS)
        ]
        began = time.perf_counter()
        with Health(server) as health:
            _together([lambda n=n: _send(server, at, guesses[n], found[n]) for n in range(GUESSERS)])  # type: ignore[misc]
        took = time.perf_counter() - began
        total = sum(found, Counter[int]())
        after: list[Counter[int]] = [Counter(), Counter(), Counter()]
        _send(server, at, [("/products", known)] * 50, after[0])
        _send(server, at, [("/products", fresh)], after[1])
        _send(server, "127.0.0.10", [("/products", fresh)], after[2])
    assert before == {200: 1}
    assert set(total) == {401, 429} and total[401] <= 20 + 2  # one that was under way at each worker
    assert after == [{200: 50}, {429: 1}, {200: 1}]
    assert health.worst < WORST_HEALTH
    return f"{GUESSES} guesses in {took:.1f} s, {total[401]} looked at, /healthz at most {health.worst * 1000:.0f} ms"


def attack_counters(folder: Path) -> str:
    """A /48 sends one request from each of its networks, window after window; a busy caller's count stays exact."""
    now = [1_000_000.0]
    storage = SharedStorage("shared://", table=Table(), now=lambda: now[0])
    began = time.perf_counter()
    for window in range(10):
        now[0] += 60
        for n in range(300):
            assert storage.incr(f"{window}/busy", 60) == n + 1
        for n in range(SLOTS * 3 // 2):
            storage.incr(f"{window}/{n}", 60)
        assert storage.incr(f"{window}/busy", 60) == 301, f"window {window}: the busy caller began anew"
    took = time.perf_counter() - began
    return f"a busy caller was reset in 0 of 10 windows by {SLOTS * 3 // 2:,} others in each ({took:.1f} s)"


def attack_waits(folder: Path) -> str:
    """One key requests all places for long polls: it gets its share, and another key can wait, too."""
    with Gunicorn(folder, **CLOSED) as server:
        greedy, other = _key(server, "products:read"), _key(server, "products:read", "products:write")
        path = "/api/v1/events?after=latest&wait=10"
        found: list[Counter[int]] = [Counter() for _ in range(300)]
        responses: list[int] = []

        def wait() -> None:
            responses.append(len(server.get(path, other, timeout=30).json()))

        def write() -> None:
            end = time.monotonic() + 8
            while sum(each[429] for each in found) < len(found) - 2 * 20 and time.monotonic() < end:
                time.sleep(0.05)
            server.post("/products", {"name": "x"}, other)

        greed = [lambda n=n: _send(server, "127.0.0.1", [(path, greedy)], found[n]) for n in range(len(found))]  # type: ignore[misc]
        with Health(server) as health:
            _together([*greed, wait, write])
        total = sum(found, Counter[int]())
    assert total[200] <= 2 * 20 and total[429] == len(found) - total[200] and responses == [1]
    assert health.worst < WORST_HEALTH
    return (
        f"{len(found)} waits of one key: {total[200]} held, {total[429]} refused; /healthz {health.worst * 1000:.0f} ms"
    )

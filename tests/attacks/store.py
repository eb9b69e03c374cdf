"""Attacks on the store of a running service."""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

import resources
from app import create_app
from restkeeper.app import stored_collections
from restkeeper.config import Config
from restkeeper.resources import find_resources
from restkeeper.storage import open_store
from restkeeper.storage.contract import Query, Record, Sort, Transaction
from restkeeper.storage.sqlite.files import CHECKPOINT_SECONDS, LOG_BYTES, LOG_FULL
from tests.attacks.health import Health
from tests.live import Gunicorn
from tests.waiting import SECONDS

MIB = 1024 * 1024
SLOWEST = 0.25  # seconds, of /healthz during an attack
WAIT = 5.0  # seconds that a write waits
SEARCHES = (
    "sort=stock",
    "q=nothing",
    "name[like]=nothing",
    "stock[gte]=0&version[gte]=1&description[ne]=x&currency[ne]=EUR&limit=1",
    "tags=nothing",
    "sort=-currency&q=item",
    "currency[like]=usd&description[like]=nothing",
    "offset=90&limit=1&sort=currency",
)


def _insert_large(folder: Path, attributes: list[object]) -> None:
    """Insert 100 items of 1 MiB, as an older service with higher limits may have stored them."""
    products = next(each for each in find_resources(resources) if each.name == "products")
    store = open_store(f"sqlite:///{folder}/restkeeper.db", stored_collections(find_resources(resources)))
    now = "2026-01-01T00:00:00.000000Z"

    def work(transaction: Transaction) -> None:
        for n in range(100):
            item = {"id": f"{n:03}", "name": f"item {n}", "description": "", "sku": None, "price": None}
            item |= {"currency": "USD", "stock": n, "tags": ["a"], "attributes": {"x": attributes}, "status": "active"}
            item |= {"created_at": now, "updated_at": now, "version": 1}
            body = json.dumps(item, separators=(",", ":")).encode()
            transaction.insert("products", Record(f"{n:03}", 1, now, products.fingerprint, body))

    store.write(work)
    store.close()


def _nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The store, while another program holds its write lock."""
    holder = sqlite3.connect(folder / "restkeeper.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.close()


def attack_searches_over_large_items(folder: Path) -> str:
    """Eight searches at a time over 100 MiB do not delay /healthz."""
    results = []
    for number, attributes in enumerate((([[]] * (MIB // 3)), [_nested(28) for _ in range(MIB // 58)])):
        place = folder / str(number)
        place.mkdir()
        _insert_large(place, attributes)
        with Gunicorn(place, workers=1, RATE_LIMIT="off") as server:
            with Health(server) as health, ThreadPoolExecutor(8) as pool:
                end = time.monotonic() + 12
                responses = list(pool.map(_search_until, repeat(server), SEARCHES, repeat(end)))
        assert health.worst < SLOWEST, f"{health.worst * 1000:.0f} ms"
        results.append(f"{sum(responses)} searches, /healthz at most {health.worst * 1000:.0f} ms")
    return "; ".join(results)


def _search_until(server: Gunicorn, search: str, end: float) -> int:
    count = 0
    while time.monotonic() < end:
        assert server.get(f"/products?{search}", timeout=60).status in (200, 503)
        count += 1
    return count


def attack_writes_behind_a_lock(folder: Path) -> str:
    """200 POSTs behind a held lock all return 503 after five seconds."""
    with Gunicorn(folder, workers=1, RATE_LIMIT="off") as server:
        server.post("/products", {"name": "first"})
        with _locked(folder), Health(server) as health, ThreadPoolExecutor(200) as pool:
            took = list(pool.map(lambda _: _refused_after(server), range(200)))
        assert max(took) < WAIT + 1, f"{max(took):.1f} s"
        assert health.worst < SLOWEST, f"{health.worst * 1000:.0f} ms"
        assert server.post("/products", {"name": "last"}).status == 200
        return f"answered after {min(took):.2f} to {max(took):.2f} s, /healthz at most {health.worst * 1000:.0f} ms"


def _refused_after(server: Gunicorn) -> float:
    began = time.monotonic()
    response = server.request("POST", "/products", {"name": "x"}, timeout=30)
    assert response.status == 503, response
    return time.monotonic() - began


def attack_log_under_load(folder: Path) -> str:
    """Writes beside endless overlapping searches of two processes leave the log limited, and then short."""
    log = folder / "restkeeper.db-wal"
    sizes = []
    with Gunicorn(folder, workers=2, RATE_LIMIT="off", SQLITE_SYNCHRONOUS="normal") as server:
        for n in range(2000):
            server.post("/products", {"name": f"{n}", "attributes": {"x": "x" * 20_000}})
        end = time.monotonic() + 10
        with ThreadPoolExecutor(12) as pool:
            searches = [pool.submit(_search_until, server, f"q=nothing{n}", end) for n in range(4)]
            writes = [pool.submit(_write_until, server, end) for _ in range(8)]
            while time.monotonic() < end:
                sizes.append(log.stat().st_size)
                threading.Event().wait(0.05)
            written = sum(each.result(timeout=SECONDS) for each in writes)
            searched = sum(each.result(timeout=SECONDS) for each in searches)
        for _ in range(4):  # both workers have a turn
            time.sleep(CHECKPOINT_SECONDS)
            server.post("/products", {"name": "last"})
        assert log.stat().st_size <= LOG_BYTES, f"{log.stat().st_size / MIB:.1f} MiB"
    assert max(sizes) <= LOG_FULL + 16 * MIB, f"{max(sizes) / MIB:.1f} MiB"
    return f"{written} writes of 20 KB beside {searched} searches, -wal at most {max(sizes) / MIB:.1f} MiB"


def _write_until(server: Gunicorn, end: float) -> int:
    count = 0
    while time.monotonic() < end:
        assert server.post("/products", {"name": "x", "attributes": {"x": "x" * 20_000}}).status == 200
        count += 1
    return count


def attack_memory_of_pages(folder: Path) -> str:
    """A sorted list of 100 items of 1 MiB needs memory for one page only."""
    _insert_large(folder, [[]] * (MIB // 3))
    app = create_app(Config(database_url=f"sqlite:///{folder}/restkeeper.db"))
    store = app.extensions["restkeeper"].store
    before = _peak()
    page = store.page("products", Query(sort=(Sort("stock"),), limit=100), MIB)
    after = _peak()
    assert len(page.bodies) == 1 and page.cut
    assert after - before < 30 * MIB, f"{(after - before) / MIB:.0f} MiB"
    store.close()
    return f"{(after - before) / MIB:.1f} MiB more at most"


def _peak() -> int:
    """The largest memory that this process has used, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024

"""Faults of PostgreSQL under a running service: clear responses in time, no wrong ones, and recovery without a restart.

tests/soak.py has what is stored under such faults.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from typing import Any

import psycopg
import pytest

from restkeeper.storage.postgresql import limits
from tests.cluster import Cluster, running
from tests.live import HttpResponse
from tests.postgresql_server import PostgresServer
from tests.processes import kill
from tests.waiting import SECONDS, until

# Seconds, on a machine that may stand still for a moment.
AT_ONCE = limits.LOCK_SECONDS - 0.5  # less than any wait of the service for the database
LONGEST = 2 * limits.LOCK_SECONDS - 0.5  # until any response: one such wait, and not two
RECOVERY = 10.0

pytestmark = [pytest.mark.matrix]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two instances on a PostgreSQL of their own."""
    with running("postgresql", instances=2, RATE_LIMIT="off") as made:
        if made.server is None:
            pytest.skip("a server that is shared with others is not stopped")
        yield made
        await_recovery(made)


@pytest.fixture
def server(cluster: Cluster) -> PostgresServer:
    assert cluster.server
    await_recovery(cluster)
    return cluster.server


def await_recovery(cluster: Cluster) -> None:
    """Wait until every request succeeds, at every worker: as many at once as several of an instance have to take."""
    end = time.monotonic() + SECONDS
    with ThreadPoolExecutor(16) as pool:
        while {each.status for each in pool.map(lambda _: cluster.get("/readyz"), range(64))} != {200}:
            assert time.monotonic() < end


def create(cluster: Cluster, **values: Any) -> HttpResponse:
    response = cluster.post("/products", values)
    assert response.status == 200, response
    return response


def require_unavailable(cluster: Cluster, longest: float) -> None:
    """Reads, writes and the probe fail clearly and in time, if `longest` is AT_ONCE most of them within a second."""
    taken = []
    for method, path, body in (
        ("GET", "/products", None),
        ("GET", "/products/x", None),
        ("POST", "/products", {"name": "no"}),
        ("GET", "/readyz", None),
    ):
        for _ in cluster.instances:
            start = time.monotonic()
            response = cluster.request(method, path, body)
            taken.append(time.monotonic() - start)
            assert taken[-1] < longest, path
            assert (response.status, response.headers["retry-after"]) == (503, "1"), response
            assert response.headers["content-type"] == "application/problem+json"
        assert cluster.get("/healthz").status == 200
    assert longest > AT_ONCE or median(taken) < 1


@contextmanager
def run_sql(url: str, begin: str, end: str) -> Iterator[None]:
    """Run statements, and others at the end."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(begin)
        try:
            yield
        finally:
            connection.execute(end)


@contextmanager
def stopped(server: PostgresServer) -> Iterator[None]:
    """Meanwhile the server does not run."""
    server.stop()
    try:
        yield
    finally:
        server.start()


@pytest.mark.parametrize("end", ["stop", "crash", "kill"])
def test_a_stopped_database_is_a_503_at_once(cluster: Cluster, server: PostgresServer, end: str) -> None:
    """Stopped, crashed, or its first process killed with -9; started later, everything goes on."""
    item = create(cluster, name="there")
    {"stop": server.stop, "crash": lambda: server.stop(immediate=True), "kill": server.kill}[end]()
    cluster.get("/products")  # the first requests can still meet a connection that closes
    require_unavailable(cluster, AT_ONCE)
    server.start()
    start = time.monotonic()
    await_recovery(cluster)
    assert time.monotonic() - start < RECOVERY
    assert cluster.get(item.headers["location"]).body == item.body


def test_a_paused_database_is_a_503_in_time(cluster: Cluster, server: PostgresServer) -> None:
    """All requests at once get their responses within some seconds, and later ones do not wait."""
    item = create(cluster, name="there")
    server.pause()
    try:
        with ThreadPoolExecutor(24) as pool:
            start = time.monotonic()
            responses = list(pool.map(lambda _: cluster.get("/products/x"), range(24)))
            assert time.monotonic() - start < LONGEST
        assert {(each.status, each.headers["retry-after"]) for each in responses} == {(503, "1")}
        require_unavailable(cluster, LONGEST)
    finally:
        server.resume()
    start = time.monotonic()
    await_recovery(cluster)
    assert time.monotonic() - start < RECOVERY
    assert cluster.get(item.headers["location"]).body == item.body


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("BEGIN; LOCK TABLE counters", "ROLLBACK"),
        ("ALTER TABLE counters RENAME TO away", "ALTER TABLE away RENAME TO counters"),
        ("UPDATE store SET oldest = 99", "UPDATE store SET oldest = 1"),
        ("", ""),
    ],
    ids=["lock", "table", "newer", "stopped"],
)
def test_workers_start_while_the_store_cannot_be_opened(
    cluster: Cluster, server: PostgresServer, begin: str, end: str
) -> None:
    """A lock of others, a missing table, a newer program, no server: 503 at once but for few, until that is over."""
    item = create(cluster, name="there")
    with run_sql(cluster.database_url, begin, end) if begin else stopped(server):
        before = cluster.worker_pids()
        for pid in before:
            kill(pid)
        until(lambda: not set(before) & set(cluster.worker_pids()))
        with ThreadPoolExecutor(24) as pool:
            start = time.monotonic()
            responses = list(pool.map(lambda _: cluster.get("/products/x"), range(100)))
            assert time.monotonic() - start < LONGEST + RECOVERY  # of which the new workers need some
        assert {(each.status, each.headers["retry-after"]) for each in responses} == {(503, "1")}
        assert cluster.get("/healthz").status == 200
    await_recovery(cluster)
    assert cluster.get(item.headers["location"]).body == item.body
    assert {each.process.poll() for each in cluster.instances} == {None}  # running
    assert not set(before) & set(cluster.worker_pids())
    assert not any("Traceback" in line for line in cluster.lines())

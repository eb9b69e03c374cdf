"""Under gunicorn, a query that takes long holds up nobody: with one worker, in which gevent switches between requests.

The queries wait for items that the test has locked.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median

import psycopg
import pytest

from restkeeper.storage.postgresql import limits
from tests.cluster import Cluster, running
from tests.live import HttpResponse
from tests.waiting import SECONDS, until

QUICK = limits.LOCK_SECONDS - 1.5  # seconds on a machine that may stand still; who is held up waits for longer
USUAL = 0.25  # seconds on a busy machine; a response takes some milliseconds
BLOCKED = 1.0  # seconds for which a query waits
LONGEST = 2 * limits.LOCK_SECONDS - 0.5  # seconds until any response: one wait of the service, and not two
CONNECTIONS = 4

ADMIN = "rk_cooperation_0123456789abcdef0123456789abcdef"

pytestmark = [pytest.mark.matrix]


@pytest.fixture(scope="module")
def service() -> Iterator[Cluster]:
    with running("postgresql", instances=1, workers=1, RATE_LIMIT="off") as made:
        yield made


@contextmanager
def locked(cluster: Cluster, *paths: str) -> Iterator[None]:
    with psycopg.connect(cluster.database_url) as connection:
        ids = [path.rpartition("/")[2] for path in paths]
        connection.execute("SELECT 1 FROM items WHERE id = ANY(%s) FOR UPDATE", (ids,))
        yield


def waiting(cluster: Cluster) -> int:
    count = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'restkeeper'"
    )
    with psycopg.connect(cluster.database_url) as connection:
        return int(connection.execute(count).fetchall()[0][0])


def await_waiting(cluster: Cluster, number: int) -> None:
    until(lambda: waiting(cluster) == number)


def seconds(cluster: Cluster, path: str, headers: dict[str, str] | None = None) -> float:
    start = time.monotonic()
    response = cluster.get(path, headers)
    assert response.status == 200, response
    return time.monotonic() - start


def require_quick(taken: list[float]) -> None:
    """None of these times is that of a response that was held up, and most are far shorter."""
    assert max(taken) < QUICK
    assert median(taken) < USUAL


def test_a_slow_query_holds_up_nobody(service: Cluster) -> None:
    """While a query waits for a second, probes, reads and writes of others are answered as always."""
    slow, other = (service.post("/products", {"name": name}).headers["location"] for name in ("slow", "other"))
    with ThreadPoolExecutor(1) as pool:
        with locked(service, slow):
            change = pool.submit(service.request, "PATCH", slow, {"stock": 1})
            await_waiting(service, 1)
            start, taken = time.monotonic(), []
            while time.monotonic() < start + BLOCKED:
                taken += [seconds(service, path) for path in ("/healthz", "/readyz", slow, other)]
                began = time.monotonic()
                assert service.request("PATCH", other, {"stock": int(began * 1000)}).status == 200
                taken.append(time.monotonic() - began)
            assert not change.done()
        assert change.result(SECONDS).json()["stock"] == 1
    require_quick(taken)


@pytest.fixture(scope="module")
def callers() -> Iterator[tuple[Cluster, list[dict[str, str]]]]:
    """One worker with few connections, and the headers of three callers, the first of which is an administrator."""
    settings = {"AUTH": "required", "ADMIN_KEY": ADMIN, "RATE_LIMIT": "off", "DATABASE_CONNECTIONS": str(CONNECTIONS)}
    with running("postgresql", instances=1, workers=1, **settings) as made:
        headers = [{"Authorization": f"Bearer {ADMIN}"}]
        for name in ("one", "other"):
            key = {"name": name, "scopes": ["products:read", "products:write"]}
            secret = made.request("POST", "/api/v1/keys", key, headers[0]).json()["secret"]
            headers.append({"Authorization": f"Bearer {secret}"})
            assert seconds(made, "/products", headers[-1]) < SECONDS
        yield made, headers


def new_items(cluster: Cluster, headers: dict[str, str], number: int) -> list[str]:
    return [cluster.request("POST", "/products", {"name": "x"}, headers).headers["location"] for _ in range(number)]


def timed(cluster: Cluster, path: str, headers: dict[str, str]) -> tuple[HttpResponse, float]:
    start = time.monotonic()
    response = cluster.request("PATCH", path, {"stock": 1}, headers)
    return response, time.monotonic() - start


def require_unavailable(results: list[tuple[HttpResponse, float]]) -> None:
    assert {(response.status, response.headers.get("retry-after")) for response, _ in results} == {(503, "1")}
    assert max(took for _, took in results) < LONGEST


def test_a_slow_caller_leaves_connections_to_others(callers: tuple[Cluster, list[dict[str, str]]]) -> None:
    """With all of a caller's share in use by slow queries, another one is served; the caller gets 503 in time."""
    cluster, (admin, slow, _) = callers
    paths = new_items(cluster, admin, 8)
    with ThreadPoolExecutor(8) as pool, locked(cluster, *paths):
        changes = [pool.submit(timed, cluster, path, slow) for path in paths]
        await_waiting(cluster, CONNECTIONS // 2)
        reads = [seconds(cluster, path, admin) for path in ("/products", paths[0], "/readyz") * 20]
        require_unavailable([each.result(SECONDS) for each in changes])
    require_quick(reads)
    assert cluster.request("PATCH", paths[0], {"stock": 1}, slow).status == 200

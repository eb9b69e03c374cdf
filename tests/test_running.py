"""The service under gunicorn: races between processes, stopping, logs, metrics, limits, and waiting readers."""

import json
import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper import __version__
from restkeeper.storage import locate
from tests import stores
from tests.live import Gunicorn, read_all
from tests.recorder import next_of
from tests.shop import WINDOW
from tests.waiting import SECONDS, until

METRICS_TOKEN = "a-token-for-who-scrapes-me"  # noqa: S105 - also of the fixture `server`


def test_every_request_has_a_line_in_the_log(server: Gunicorn) -> None:
    """One JSON line for each request: id, caller, method, route, status and time; a valid id of the client is used."""
    for id in ("my-id.1", "trace/7f:2"):
        assert server.get("/products/none?fields=name", {"X-Request-Id": id}).headers["x-request-id"] == id
        (line,) = _log_lines(server, id)
        expected = {
            "caller": "127.0.0.1",
            "method": "GET",
            "route": "/products/<id>",
            "status": 404,
            "event": "request",
        }
        assert expected.items() <= line.items()
        assert line["ms"] > 0 and line["time"].endswith("Z")
        assert "fields" not in json.dumps(line)


def test_an_invalid_request_id_is_replaced(client: FlaskClient) -> None:
    for id in ("", "a b", "x" * 129, "é", "<script>", '"', "-", "\t"):
        found = client.get("/products", headers={"X-Request-Id": id}).headers["X-Request-Id"]
        assert re.fullmatch("[0-9a-f]{32}", found), id


def _log_lines(server: Gunicorn, request_id: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("request_id") == request_id]


@pytest.mark.needs("metrics")
def test_metrics_count_across_workers(server: Gunicorn) -> None:
    """The numbers are those of all workers, whichever responds; only the right token can read them."""
    assert server.get("/metrics").status == server.get("/metrics", {"Authorization": "Bearer no"}).status == 401
    before = counted(server)
    for _ in range(40):
        server.get("/problems/none")
    assert {counted(server) for _ in range(8)} == {before + 40}


def counted(server: Gunicorn) -> float:
    """How many requests of a problem that there is not the metrics have."""
    sample = r'^restkeeper_request_seconds_count\{method="GET",route="/problems/<name>",status="404"\} (\S+)$'
    response = server.get("/metrics", {"Authorization": f"Bearer {METRICS_TOKEN}"})
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = re.search(sample, response.body.decode(), re.M)
    return float(found[1]) if found else 0


KEY = "rk_0123456789abcdef_a-secret"
REFUSED = {  # requests that do not reach the application, each with a key behind its first line
    400: f"GET / HTTP/9.9\r\nX-API-Key: {KEY}\r\n\r\n",
    417: f"GET / HTTP/1.1\r\nHost: a\r\nExpect: {KEY}\r\n\r\n",
    431: f"GET / HTTP/1.1\r\nX-API-Key: {KEY}{'a' * 9000}\r\n\r\n",
    501: f"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {KEY}\r\n\r\n",
}


@pytest.mark.needs("metrics")
@pytest.mark.parametrize("status", REFUSED)
def test_what_the_server_refuses_leaves_a_trace(tmp_path: Path, status: int) -> None:
    """It is counted by status, and has a line in the log, once a minute; no key is in this, nor in the response."""
    with Gunicorn(tmp_path, workers=1, METRICS_TOKEN=METRICS_TOKEN, LOG_FORMAT="json") as server:
        for _ in range(3):
            with server.connect() as connection:
                connection.sendall(REFUSED[status].encode())
                response = read_all(connection)
                assert response.startswith(b"HTTP/1.1 %d " % status) and b"secret" not in response
        metrics = server.get("/metrics", {"Authorization": f"Bearer {METRICS_TOKEN}"}).body.decode()
        assert f'restkeeper_refused_total{{status="{status}"}} 3.0' in metrics.splitlines()
        assert server.log.read_text().count(f"requests get {status}: ") == 1
        assert "(from 127.0.0.1)" in server.log.read_text() and "secret" not in server.log.read_text()


def test_a_path_in_the_log_has_a_bound(server: Gunicorn) -> None:
    """Of 1,000 characters."""
    assert server.get("/" + '"' * 7000, {"X-Request-Id": "long-path"}).status == 404
    (line,) = _log_lines(server, "long-path")
    assert line["path"] == "/" + '"' * 999


def files_of_metrics(server: Gunicorn) -> list[Path]:
    """Of histograms, in the folder that the master has locked."""
    links = map(os.readlink, Path(f"/proc/{server.process.pid}/fd").iterdir())
    return [file for each in links if "restkeeper-prometheus-" in each for file in Path(each).glob("histogram_*.db")]


@pytest.mark.needs("metrics")
def test_a_new_worker_continues_the_metrics_of_one_that_has_ended(tmp_path: Path) -> None:
    """A kill and reloads lose no count and count nothing twice, and leave no more files to read at each scrape."""
    with Gunicorn(tmp_path, workers=1, METRICS_TOKEN=METRICS_TOKEN) as server:
        for number, end in enumerate((signal.SIGKILL, signal.SIGHUP, signal.SIGHUP, signal.SIGKILL)):
            former = server.worker_pids()
            assert server.get("/problems/none").status == 404
            assert counted(server) == number + 1
            os.kill(former[0] if end == signal.SIGKILL else server.process.pid, end)
            until(lambda former=former: len(pids := server.worker_pids()) == 1 and pids != former)  # type: ignore[misc]
        assert counted(server) == 4
        assert len(files_of_metrics(server)) <= 2  # at a reload two workers run


@pytest.mark.needs("metrics")
def test_nothing_is_counted_for_nobody(tmp_path: Path) -> None:
    """While METRICS_TOKEN is not set, nobody can read the metrics."""
    with Gunicorn(tmp_path, workers=1) as server:
        assert server.get("/products").status == 200
        assert files_of_metrics(server) == []


def test_readiness_names_the_failing_part(tmp_path: Path) -> None:
    """With a missing store, or one migrated by a newer program, /readyz returns 503 and /healthz 200.

    The response names only the part, because it is public; the log has the store and the cause.
    """
    url = f"sqlite:///{tmp_path}/restkeeper.db"
    with Gunicorn(tmp_path, workers=1) as server:
        with stores.away(url):
            for response in (server.get("/readyz"), server.post("/products", {"name": "x"})):
                detail = response.json()["detail"]
                assert response.status == 503 and detail.startswith(("store: ", "the store's file ", "the database "))
                assert stores.name_of(url).encode() not in response.body
            assert server.get("/healthz").status == 200
        assert stores.name_of(url) in server.log.read_text()
        until(lambda: server.get("/readyz").status == 200)
        stores.outdate(url)
        response = server.get("/readyz")
        assert response.status == 503 and response.json()["detail"].startswith("store: the store is of a newer program")


def test_the_start_prints_what_is_served(server: Gunicorn) -> None:
    """Version, number of collections, address and store, in one line."""
    first = server.lines()[0]
    store = locate(stores.url(f"sqlite:///{server.log.parent}/restkeeper.db")).name
    assert first == f"Restkeeper {__version__} serves 2 collections at {server.base}, stored in {store}"


WAITERS = 200


def waiter(server: Gunicorn, path: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    return connection


def body_of(connection: socket.socket) -> list[dict[str, object]]:
    with connection, connection.makefile("rb") as file:
        head, _, body = file.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    found: list[dict[str, object]] = json.loads(body)
    return found


def test_waiting_readers_do_not_delay_others(tmp_path: Path) -> None:
    """With hundreds of waiting readers other requests get responses, and one event then reaches all readers.

    Also one whose request is read late, as it names where it begins.
    """
    with Gunicorn(tmp_path, LOG_LEVEL="error", bounds={"waits_per_caller": 500}) as server:
        start = next_of(server.get("/api/v1/events?after=latest"))
        waiting = [waiter(server, f"{start}&wait=30") for _ in range(WAITERS)]
        assert [server.get("/products").status for _ in range(20)] == [200] * 20
        waiting[0].settimeout(0.5)
        assert _is_silent(waiting[0])
        waiting[0].settimeout(SECONDS)
        began = time.monotonic()
        server.post("/products", {"name": "x"})
        bodies = [body_of(connection) for connection in waiting]
        assert [len(events) for events in bodies] == [1] * WAITERS
        assert time.monotonic() - began < 25


def _is_silent(connection: socket.socket) -> bool:
    try:
        connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    return False


def test_a_stop_ends_all_waits(tmp_path: Path) -> None:
    """On SIGTERM waiting readers get their responses at once, and the service ends."""
    with Gunicorn(tmp_path, workers=1, LOG_LEVEL="error") as server:
        connection = waiter(server, "/api/v1/events?wait=30")
        assert server.get("/healthz").status == 200  # so the worker has read the request before this one
        connection.settimeout(0.5)
        assert _is_silent(connection)
        connection.settimeout(SECONDS)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert body_of(connection) == []
        server.process.wait(timeout=SECONDS)
        assert time.monotonic() - began < 20


def test_a_new_worker_resets_no_quota(tmp_path: Path) -> None:
    """The used quota of a caller does not change when a worker is replaced, also by a reload."""
    with Gunicorn(tmp_path, workers=1, RATE_LIMIT=f"2 per {WINDOW}") as server:
        assert [server.get("/products").status for _ in range(3)] == [200, 200, 429]
        (first,) = server.worker_pids()
        os.kill(first, signal.SIGKILL)
        until(lambda: server.worker_pids() not in ([], [first]))
        assert server.get("/products").status == 429
        (second,) = server.worker_pids()
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(pids := server.worker_pids()) == 1 and pids != [second])
        assert server.get("/products").status == 429

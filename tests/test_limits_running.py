"""Limits under gunicorn: exact across its processes."""

import os
import signal
import threading
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path

from tests.live import Gunicorn
from tests.shop import WINDOW
from tests.waiting import SECONDS, join, until

CALLERS = [f"127.0.0.{n}" for n in range(2, 10)]  # each has its own counters, and so its own window
CONNECTIONS = 64
EACH = 5  # requests on a connection
QUOTA = 150  # of 320


def send_in_parallel(port: int, caller: str) -> Counter[int]:
    """The response statuses of requests from one address on many concurrent connections."""
    gate = threading.Barrier(CONNECTIONS)
    statuses: list[int] = []

    def send_requests() -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=30, source_address=(caller, 0))
        connection.connect()
        gate.wait(SECONDS)
        for _ in range(EACH):
            connection.request("GET", "/products")
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
        connection.close()

    threads = [threading.Thread(target=send_requests) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    join(*threads)
    return Counter(statuses)


def test_two_workers_admit_the_quota_to_the_request(tmp_path: Path) -> None:
    """2 workers under 64 connections admit exactly the quota, in 8 of 8 windows."""
    settings = {"RATE_LIMIT": f"{QUOTA} per {WINDOW}", "LOG_LEVEL": "warning"}
    with Gunicorn(tmp_path, workers=2, **settings) as server:
        found = [send_in_parallel(server.port, caller) for caller in CALLERS]
    assert found == [{200: QUOTA, 429: CONNECTIONS * EACH - QUOTA}] * len(CALLERS)


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

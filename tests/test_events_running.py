"""The feed under gunicorn: with many waiting readers, and at a stop."""

import json
import signal
import socket
import time
from pathlib import Path

from tests.live import Gunicorn
from tests.recorder import next_of

WAITERS = 200


def waiter(server: Gunicorn, path: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
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
        waiting[0].settimeout(30)
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
        connection.settimeout(30)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert body_of(connection) == []
        server.process.wait(timeout=30)
        assert time.monotonic() - began < 20

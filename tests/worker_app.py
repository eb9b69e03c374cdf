"""A small WSGI application, and workers with other limits, for `test_worker`."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import restkeeper.server.worker
from restkeeper.server.request import Refused
from restkeeper.web.application import IS_CANCELLED

Start = Callable[..., Callable[[bytes], None]]


class Worker(restkeeper.server.worker.Worker):
    """Its time-outs are longer than a busy machine stands still, and shorter than those of the tests' clients."""

    header_timeout = stall_timeout = send_timeout = 8.0
    slowest = 2**30


class Hasty(Worker):
    """A worker with time-outs so short that a test can wait for them."""

    header_timeout = stall_timeout = send_timeout = 2.0


class Patient(restkeeper.server.worker.Worker):
    """A worker for connections that stay open as long as a test lasts."""

    header_timeout = stall_timeout = send_timeout = 60.0
    unsent_limit = 2 * 2**20 + 2**19
    linger_limit = 2**20


class Draining(Patient):
    """A worker that answers on idle connections as long as a test lasts when it stops."""

    idle_grace = 60.0


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def wait_for_stop(environ: dict[str, Any]) -> None:
    Path(environ["QUERY_STRING"]).touch()
    while not environ[IS_CANCELLED]():
        time.sleep(0.01)


def begun(environ: dict[str, Any]) -> Iterator[bytes]:
    """A response whose head has been written when the process is told to stop."""
    yield b"a"
    wait_for_stop(environ)
    yield b"b"


def counted(path: Path) -> Iterator[bytes]:
    """A response larger than any socket buffer; it records when the worker has closed it."""
    try:
        for _ in range(64):
            yield bytes(2**20)
    finally:
        path.touch()


def bounds(worker: restkeeper.server.worker.Worker) -> dict[str, int]:
    """The number of connections in a process, of those that wait, and for what, and of the requests that have begun."""
    table = worker.connections
    waits = {"idle": sum(client.idle for client in table.waiting), "reading": sum(map(bool, table.waiting.values()))}
    sizes = {"open": len(table.open), "waiting": len(table.waiting)} | waits
    return sizes | {"unsent": sum(table.waiting.values()), "requests": worker.nr}


def app(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
    path, query, read = environ["PATH_INFO"], environ["QUERY_STRING"], environ["wsgi.input"].read
    match path:
        case "/refuse":
            start("413 Content Too Large", [("Content-Length", "0")])
            return []
        case "/catch":
            try:
                read()
            except (OSError, Refused) as error:
                start("422 Unprocessable Content", [])
                return [type(error).__name__.encode()]
        case "/half":
            start("200 OK", [("Content-Length", "4")])
            return [read(2), b"--"]
        case "/stream":
            start("200 OK", [])
            return iter([b"one", b"", b"two"])
        case "/write":
            write = start("200 OK", [("Content-Length", "5")])
            write(b"abc")
            return [b"de"]
        case "/bare":
            start(query, [("Content-Length", "4")] if query[0] == "3" else [])
            return [b"body"]
        case "/fail":
            raise ValueError
        case "/mute":
            return [b"x"]
        case "/inject":
            with suppress(ValueError) if query == "caught" else nullcontext():
                start("200 OK", [("X-Name", "€" if query == "euro" else "a\r\nX-Other: b")])
            return iter([b"x"]) if query else [b"x"]
        case "/short" | "/long":
            start("200 OK", [("Content-Length", "3" if path == "/long" else "9")])
            return [b"12345"]
        case "/wait":
            Path(query + ".begun").touch()
            wait_for(Path(query))
        case "/stopping":
            wait_for_stop(environ)
        case "/begun":
            start("200 OK", [("Content-Length", "2")])
            return begun(environ)
        case "/work":
            end = time.monotonic() + 0.008
            while time.monotonic() < end:
                pass
            start("200 OK", [("Content-Length", "0")])
            return []
        case "/bounds":
            worker = environ["gunicorn.socket"].worker
            start("200 OK", [])
            return [json.dumps(bounds(worker)).encode()]
        case "/large":
            start("200 OK", [])
            return counted(Path(query))
    body = b"".join(iter(lambda: read(7), b"")).decode("latin-1")
    plain_values = {key: value for key, value in environ.items() if isinstance(value, str | bool)}
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(plain_values | {"body": body, "pid": os.getpid()}).encode()]

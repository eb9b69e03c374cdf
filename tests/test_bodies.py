"""Bodies that are being received: the bytes that a process holds of them, in all and of each caller."""

import json
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from flask import Blueprint, request

from restkeeper import Application, needs
from restkeeper.errors import Unavailable
from restkeeper.server.connection import Bodies
from restkeeper.server.worker import Worker
from tests import shop
from tests.callers import ADMIN, ADMIN_KEY
from tests.live import Gunicorn, HttpResponse
from tests.waiting import SECONDS, until

KIB = 1024
ITEM = {"name": "Lamp", "attributes": {"text": "x" * 100 * KIB}}
LARGE = {  # bodies of more than 100 KiB, which a worker of two shares of 128 KiB has to hold
    "an item": ("/products", ITEM),
    "an array": ("/products", [ITEM]),
    "a batch": ("/api/v1/batch", {"operations": [{"method": "POST", "path": "/products", "body": ITEM}]}),
    "a view": ("/sizes", ITEM),
}


class Narrow(Worker):
    """A worker with little room for bodies."""

    body_limit, body_share = 256 * KIB, 128 * KIB


def create_app() -> Application:
    """The service, with a view that reads a body by itself."""
    reports = Blueprint("sizes", __name__)

    @reports.post("/sizes")
    @needs("products:write")
    def measure_body() -> dict[str, int]:
        return {"bytes": len(request.get_data())}

    return shop.create_app(blueprints=[reports])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    options = ("-k", "tests.test_bodies.Narrow")
    settings = {"AUTH": "required", "ADMIN_KEY": ADMIN_KEY, "RATE_LIMIT": "off"}
    folder = tmp_path_factory.mktemp("server")
    with Gunicorn(folder, *options, workers=1, app="tests.test_bodies:create_app()", **settings) as running:
        yield running


@pytest.fixture(scope="module")
def keys(server: Gunicorn) -> list[dict[str, str]]:
    sent = [{"name": name, "scopes": ["products:write"]} for name in ("one", "two")]
    return [{"X-API-Key": server.post("/api/v1/keys", each, ADMIN).json()["secret"]} for each in sent]


def begin(server: Gunicorn, key: dict[str, str], framing: str, body: bytes) -> socket.socket:
    """A connection with a request whose body has not ended."""
    connection = server.connect()
    fields = f"X-API-Key: {key['X-API-Key']}\r\nContent-Type: application/json\r\n{framing}"
    connection.sendall(f"POST /products HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n".encode() + body)
    return connection


@contextmanager
def held(server: Gunicorn, key: dict[str, str], framing: str) -> Iterator[None]:
    """Meanwhile the worker holds a body of this caller that has not ended, and no room for another one."""
    with ExitStack() as ending:

        def is_held() -> bool:
            connection = ending.enter_context(begin(server, key, framing, FRAMINGS[framing]))
            is_full = server.post("/products", ITEM, key).status == 503
            if is_full and not select.select([connection], [], [], 0)[0]:
                return True
            connection.close()  # it was still being read, or the other one was there first
            return False

        until(is_held)
        yield


FRAMINGS = {
    "Content-Length: 1000000": b" " * 100 * KIB,
    "Transfer-Encoding: chunked": b"%x\r\n" % (200 * KIB) + b" " * 100 * KIB,
}


@pytest.mark.needs("batch")
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("kind", LARGE)
def test_a_caller_holds_its_share(server: Gunicorn, keys: list[dict[str, str]], kind: str, framing: str) -> None:
    """Beside a body that has not ended, another one is a 503; small ones, and those of other callers, are served."""
    (path, body), (first, second) = LARGE[kind], keys

    def post(key: dict[str, str], body: object = body) -> HttpResponse:
        return server.post(path, body, key)

    with held(server, first, framing):
        refused = post(first)
        assert (refused.json()["code"], refused.headers["retry-after"]) == ("unavailable", "1")
        assert post(second).status == 200
        assert server.post("/products", {"name": "Lamp"}, first).status == 200
    until(lambda: post(first).status == 200)


def test_a_refused_body_ends_the_connection(server: Gunicorn, keys: list[dict[str, str]]) -> None:
    """What follows is not read as a request, also where the last byte of a chunk was one too many."""
    chunk = json.dumps(ITEM).encode()
    with held(server, keys[0], "Content-Length: 1000000"):
        with begin(server, keys[0], "Transfer-Encoding: chunked", b"%x\r\n%b" % (len(chunk), chunk)) as connection:
            connection.sendall(b"\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            connection.settimeout(SECONDS)
            assert connection.makefile("rb").read().count(b"HTTP/1.1 ") == 1


def test_one_body_of_any_length_is_possible(server: Gunicorn, keys: list[dict[str, str]]) -> None:
    """Which is longer than the share, and than all together, and no longer than MAX_BODY."""
    assert server.post("/sizes", b" " * KIB * KIB, keys[0]).json() == {"bytes": KIB * KIB}
    assert server.post("/sizes", b" " * (KIB * KIB + 1), keys[0]).status == 413


def test_callers_of_one_machine_have_no_shares(tmp_path: Path) -> None:
    """With AUTH=open and as large bodies as a JSON file has, those of one address arrive at a time."""
    size = 5 * KIB * KIB
    with Gunicorn(tmp_path, workers=1, MAX_BODY=str(2 * size)) as server:
        key, framing = {"X-API-Key": ""}, f"Content-Length: {size}"
        connections = [begin(server, key, framing, b" " * (size - 1)) for _ in range(3)]
        for connection in connections:
            connection.sendall(b" ")
        for connection in connections:
            with connection:
                assert connection.recv(12) != b"HTTP/1.1 503"


@pytest.fixture
def bodies() -> Bodies:
    return Bodies(SimpleNamespace(body_limit=100, body_share=30))


def refuses(bodies: Bodies, caller: str, held: int, size: int) -> bool:
    try:
        bodies.hold(caller, held, size)
    except Unavailable:
        return True
    return False


def test_one_body_of_a_caller_may_exceed_its_share(bodies: Bodies) -> None:
    """It counts as the share, so that it does not take the room of others."""
    bodies.hold("a", 0, 30)
    bodies.hold("a", 30, 1000)
    assert refuses(bodies, "a", 0, 1)
    for caller in ("b", "c"):
        bodies.hold(caller, 0, 30)
    bodies.hold("d", 0, 10)
    assert refuses(bodies, "d", 10, 11) and refuses(bodies, "e", 0, 1)
    assert "e" not in bodies.sizes
    bodies.hold("a", 1000, 0)
    bodies.hold("e", 0, 30)

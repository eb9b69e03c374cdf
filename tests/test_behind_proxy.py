"""The service behind nginx and Caddy with the example files of deploy/: nothing gets lost, and the bounds hold."""

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from tests.live import Gunicorn, send
from tests.proxy import NAME, Caddy, Nginx, Proxy
from tests.shop import WINDOW
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.matrix, pytest.mark.needs("events", "limits")]

PROXIES = {"nginx": Nginx, "caddy": Caddy}
MAX_BODY = 1024 * 1024
JSON = {"Content-Type": "application/json"}
BODY_SECONDS = {"nginx": 30, "caddy": 60}  # for which each waits for a body
LEEWAY = 5  # seconds


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    folder = tmp_path_factory.mktemp("server")
    settings = {"TRUSTED_PROXIES": "1", "TRUSTED_HOSTS": NAME, "RATE_LIMIT": f"5000 per {WINDOW}"}
    with Gunicorn(folder, AUTH="open-to-all", **settings) as made:
        yield made


@pytest.fixture(scope="module", params=PROXIES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def proxy(kind: str, server: Gunicorn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with PROXIES[kind](tmp_path_factory.mktemp(kind), server.port) as made:
        yield made


def log_line(server: Gunicorn, id: str) -> str:
    until(lambda: f"request_id={id} " in server.log.read_text())
    return next(line for line in server.lines() if f"request_id={id} " in line)


def ended_after(connection: ssl.SSLSocket) -> tuple[float, bytes]:
    """The seconds until the proxy closes a connection, and what it sent."""
    begun, received = time.monotonic(), b""
    with connection:
        try:
            while data := connection.recv(65536):
                received += data
        except ConnectionError:
            pass
    return time.monotonic() - begun, received


def test_an_item_is_created_and_changed(proxy: Proxy) -> None:
    """The ETag stays strong, also for a client that accepts compression, so that conditions work."""
    accepts = {**JSON, "Accept-Encoding": "gzip, br, zstd"}
    made = proxy.request("POST", "/products", b'{"name": "Lamp"}', accepts)
    assert made.status == 200 and made.headers["etag"].startswith('"')
    path = f"/products/{made.json()['id']}"
    read = proxy.request("GET", path, headers=accepts)
    assert (read.headers["etag"], read.body) == (made.headers["etag"], made.body)
    assert "content-encoding" not in read.headers
    changed = proxy.request("PATCH", path, b'{"stock": 3}', {**JSON, "If-Match": read.headers["etag"]})
    assert changed.status == 200
    late = proxy.request("PATCH", path, b'{"stock": 4}', {**JSON, "If-Match": read.headers["etag"]})
    assert late.status == 412
    assert read.headers["strict-transport-security"] == "max-age=31536000"
    assert made.headers.get("location", "").endswith(path)


def test_a_page_of_a_mebibyte_passes(proxy: Proxy) -> None:
    body = json.dumps({"name": "Large", "attributes": {"text": "x" * 120_000}}).encode()
    for _ in range(9):
        assert proxy.request("POST", "/products", body, JSON).status == 200
    page = proxy.request("GET", "/products?name=Large&limit=100")
    assert page.status == 200 and len(page.json()) >= 8 and len(page.body) > 900_000


def test_an_event_of_a_stream_arrives_at_once(proxy: Proxy) -> None:
    """No proxy gathers events, nor compresses the stream."""
    connection = HTTPSConnection(NAME)
    connection.sock = proxy.connect()
    with closing(connection):
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "gzip, br, zstd"}
        connection.request("GET", "/api/v1/events?after=latest&collection=users", headers=headers)
        response = connection.getresponse()
        assert [response.readline()[:4] for _ in range(3)] == [b":\n", b"id: ", b"\n"]
        for number in range(3):
            body = json.dumps({"email": f"{number}@{proxy.port}.example.org"}).encode()
            assert proxy.request("POST", "/users", body, JSON).status == 200
            assert [response.readline().split(b":")[0] for _ in range(2)] == [b"id", b"event"]
            data = json.loads(response.readline().removeprefix(b"data: "))["data"]
            assert data["email"].startswith(f"{number}@")
            assert [response.readline()[:4] for _ in range(4)] == [b"\n", b":\n", b"id: ", b"\n"]


def test_a_client_cannot_choose_its_address(proxy: Proxy, server: Gunicorn, kind: str) -> None:
    """The limits count the address of the connection, and the log has it, whatever the client sends."""
    for number, spoofed in enumerate(
        (
            {"X-Forwarded-For": "203.0.113.9"},
            {"X-Forwarded-For": "203.0.113.9, 198.51.100.7", "X-Forwarded-Proto": "gopher"},
            {"Forwarded": "for=203.0.113.9;proto=http;host=evil.example", "X-Real-IP": "203.0.113.9"},
            {"X_Forwarded_For": "203.0.113.9"},
        )
    ):
        id = f"spoof-{kind}-{number}"
        response = proxy.request(
            "GET", "/products?limit=1", headers={**spoofed, "X-Request-Id": id}, source="127.0.0.9"
        )
        assert response.status == 200
        line = log_line(server, id)
        assert "127.0.0.9" in line and "203.0.113.9" not in line
        rest = proxy.request("GET", "/products?limit=1", source="127.0.0.9").headers["x-ratelimit-remaining"]
        assert int(rest) < int(response.headers["x-ratelimit-remaining"])


def test_a_body_has_the_bound_of_the_service(proxy: Proxy, kind: str) -> None:
    """One byte more is refused with a problem, by nginx itself; a body at the bound reaches the service."""
    at = proxy.request("POST", "/products", b" " * MAX_BODY, JSON)
    assert at.status == 400 and "x-request-id" in at.headers
    over = proxy.request("POST", "/products", b" " * (MAX_BODY + 1), JSON)
    assert (over.status, over.headers["content-type"]) == (413, "application/problem+json")
    assert (over.json()["status"], over.json()["code"]) == (413, "body-too-large")
    assert kind == "caddy" or "x-request-id" not in over.headers


def test_a_long_head_is_refused(proxy: Proxy, kind: str) -> None:
    """It does not reach the service, which accepts 64 KiB."""
    fields = {f"X-Field-{number}": "x" * 8000 for number in range(10)}
    refused = proxy.request("GET", "/products", headers=fields)
    assert refused.status == 431 and "x-request-id" not in refused.headers
    assert kind == "caddy" or refused.json()["status"] == 431
    assert proxy.request("GET", "/products", headers={"X-Field": "x" * 8000}).status == 200


def test_slow_heads_end_and_long_polls_do_not(proxy: Proxy, server: Gunicorn, kind: str) -> None:
    """A client with a slow head is disconnected, and the service never sees it; a poll of 30 s passes."""
    slow = proxy.connect()
    slow.sendall(f"GET /products HTTP/1.1\r\nHost: {NAME}\r\nX-Request-Id: slow-head-{kind}\r\n".encode())
    begun = time.monotonic()
    poll = proxy.request("GET", "/api/v1/events?type=user.deleted&wait=30")
    assert (poll.status, poll.body) == (200, b"[]") and 29 < time.monotonic() - begun < 30 + LEEWAY
    seconds, _ = ended_after(slow)
    assert seconds < 1  # it was closed long before the poll's end
    assert f"slow-head-{kind}" not in server.log.read_text()


def test_a_slow_body_ends(proxy: Proxy, server: Gunicorn, kind: str) -> None:
    """nginx closes the connection, and the service never sees it. Behind Caddy the service refuses it."""
    head = f"POST /products HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: application/json\r\n"
    head += f"X-Request-Id: slow-body-{kind}\r\nContent-Length: 20\r\n\r\n{{"
    begun = time.monotonic()
    with proxy.connect() as slow:
        slow.settimeout(BODY_SECONDS[kind] + LEEWAY)
        slow.sendall(head.encode())
        response = slow.recv(65536)
    assert time.monotonic() - begun > BODY_SECONDS["nginx"] - 1
    assert response.startswith({"nginx": b"", "caddy": b"HTTP/1.1 400 "}[kind])
    assert (f"slow-body-{kind}" in server.log.read_text()) == (kind == "caddy")


def test_plain_http_is_redirected(proxy: Proxy) -> None:
    response = send(proxy.plain_port, "GET", "/products?a=1", headers={"Host": NAME})
    assert response.status == 308 and response.headers["location"].endswith("/products?a=1")
    with pytest.raises(ssl.SSLError):
        proxy.connect(name="evil.example")


@pytest.mark.parametrize(
    ("status", "request_bytes"),
    [
        (400, "GET x\r\n\r\n"),
        (400, f"GET / HTTP/1.1\r\nHost: {NAME}\r\nX\0: a\r\n\r\n"),
        (400, f"GET / HTTP/9.9\r\nHost: {NAME}\r\n\r\n"),
        (414, f"GET /{'a' * 9000} HTTP/1.1\r\nHost: {NAME}\r\n\r\n"),
        (501, f"POST /products HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: x\r\n\r\n"),
        (501, f"TRACE / HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n"),
    ],
)
def test_what_nginx_refuses_has_the_form_of_a_problem(
    server: Gunicorn, tmp_path: Path, status: int, request_bytes: str
) -> None:
    with Nginx(tmp_path, server.port) as proxy, proxy.connect() as connection:
        connection.sendall(request_bytes.encode())
        head, _, body = ended_after(connection)[1].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status) and b"Content-Type: application/problem+json" in head
    assert json.loads(body)["status"] == status and b"Strict-Transport-Security" in head


def test_an_address_has_a_limited_number_of_connections(server: Gunicorn, tmp_path: Path) -> None:
    """nginx refuses more than 100 requests of an address at a time with 503; other addresses are served."""
    head = f"POST /products HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 99999\r\n\r\n".encode()
    with Nginx(tmp_path, server.port) as proxy, ExitStack() as stack:
        held: list[ssl.SSLSocket] = []

        def send_on() -> None:
            """Send one more byte of each body, so that no request ends by its time, however long a test takes."""
            for each in held:
                each.sendall(b" ")

        def is_refused() -> bool:
            send_on()
            return proxy.request("GET", "/healthz", source="127.0.0.7").status == 503

        for _ in range(100):
            held.append(stack.enter_context(proxy.connect("127.0.0.7")))
            held[-1].sendall(head)
            send_on()
        until(is_refused)
        refused = proxy.request("GET", "/healthz", source="127.0.0.7")
        assert (refused.headers["retry-after"], refused.json()["status"]) == ("1", 503)
        assert proxy.request("GET", "/healthz", source="127.0.0.8").status == 200


def test_a_service_that_is_down_is_a_503(kind: str, tmp_path: Path) -> None:
    with Gunicorn(tmp_path, AUTH="open-to-all") as server, PROXIES[kind](tmp_path, server.port) as proxy:
        assert proxy.request("GET", "/products").status == 200
        server.process.terminate()
        server.process.wait(timeout=SECONDS)
        refused = proxy.request("GET", "/products")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert refused.headers["content-type"] == "application/problem+json" and refused.json()["status"] == 503

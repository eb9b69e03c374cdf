"""The edge: hosts, limits while a body is read, HEAD and OPTIONS, and security headers of every response."""

import encodings.idna
import re
import socket
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import create_environ, run_wsgi_app

from restkeeper.config import Config, ConfigError
from restkeeper.server.worker import Worker
from tests.live import Gunicorn
from tests.shop import WINDOW, create_app

HTML = {"Accept": "text/html"}
MAX_BODY = 100_000
ADMIN = "an-admin-key-of-some-length"
SOCKET_BUFFERS = 16 * 1024 * 1024  # more bytes than the buffers of a loopback connection can have


@pytest.fixture(scope="module")
def listed() -> FlaskClient:
    """A client of a service that lists its host names."""
    names = ("api.example.org", ".wild.example", "[2001:db8::1]")
    return create_app(Config(auth="open-to-all", trusted_hosts=names, failure_limit="off")).test_client()


def test_a_listed_host_is_served(listed: FlaskClient) -> None:
    """Names are compared without case, port and final dot; addresses by their value."""
    for host in (
        *("api.example.org", "API.Example.ORG:8443", "api.example.org.", "a.wild.example", "a.b.wild.example:1"),
        *("[2001:db8::1]:80", "[2001:0DB8:0:0:0:0:0:1]"),
    ):
        assert listed.get("/products", headers={"Host": host}).status_code == 200, host


def test_an_unknown_host_returns_400(listed: FlaskClient) -> None:
    """A host that is not listed is refused each time; the message names the setting and does not repeat the host."""
    for host in 2 * (
        *("evil.example", "example.org", "xapi.example.org", "api.example.org.evil.example", "wild.example"),
        *("evilwild.example", "localhost", "127.0.0.1", "[::1]", "[2001:db8::2]", "2001"),
    ):
        response = listed.get("/products", headers={"Host": host, "X-Request-Id": "mine"})
        assert (response.status_code, response.json["type"]) == (400, "/problems/bad-request"), host
        assert "TRUSTED_HOSTS" in response.json["detail"] and host not in response.text


def test_a_malformed_host_returns_400(listed: FlaskClient) -> None:
    """A malformed host has another message than an unknown one."""
    for host in 2 * ("", " ", "a b", "a/b", "u@a", "a:b", "a:99999", "[::1", ":80"):
        response = listed.get("/products", headers={"Host": host})
        assert (response.status_code, response.json["detail"]) == (400, "the Host header is not a host"), host


def test_an_empty_host_is_refused() -> None:
    """HTTP/1.0 may omit the header (RFC 9112, section 3.2), but may not send an empty one, in any order of requests."""
    for given in ((None, ""), ("", None)):
        client = create_app(Config(auth="open-to-all")).test_client()
        for host in given:
            environ: dict[str, Any] = {"SERVER_NAME": "a", "SERVER_PORT": "80", "HTTP_HOST": host}
            found = client.get("/products", environ_overrides=environ).status_code
            assert found == (200 if host is None else 400)


def test_an_invalid_ipv6_address_is_unknown() -> None:
    """A malformed address in brackets equals no listed name."""
    app = create_app(Config(auth="open-to-all", trusted_hosts=("x",), failure_limit="off"))
    found = {}
    for host in ("x", "[1::2::3]", "[::::]", "[1]"):
        environ = create_environ("/products") | {"HTTP_HOST": host}  # the test client would refuse it itself
        found[host] = run_wsgi_app(app, environ)[1]
    assert found == {"x": "200 OK"} | dict.fromkeys(("[1::2::3]", "[::::]", "[1]"), "400 BAD REQUEST")


@pytest.mark.needs("health")
def test_the_cache_of_hosts_is_limited() -> None:
    """A client that sends ever new hosts fills only a limited cache."""
    app = create_app(Config(auth="open-to-all", trusted_hosts=("localhost",), failure_limit="off"))
    client = app.test_client()
    for number in range(600):
        assert client.get("/healthz", headers={"Host": f"{number}.example"}).status_code == 400
    assert client.get("/healthz").status_code == 200
    assert len(app._hosts) <= 256


@pytest.mark.parametrize("host", ["xn--" + "a" * 8000, "xn--" + "a" * 60, "a." * 128, "a" * 64 + ":80"])
def test_a_too_long_host_is_refused_first(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """A host that is too long is refused before it is parsed, and is not cached."""
    computed: list[str] = []
    for name in ("ToASCII", "ToUnicode", "nameprep"):
        monkeypatch.setattr(encodings.idna, name, computed.append)
    app = create_app(Config(auth="open-to-all"))
    environ = create_environ("/products") | {"HTTP_HOST": host}  # the test client would parse it
    computed.clear()
    for _ in range(2):
        content, status, _ = run_wsgi_app(app, dict(environ))
        assert status == "400 BAD REQUEST" and b"the Host header is not a host" in b"".join(content)
    assert computed == []
    assert sum(len(known[1] or "") for known in app._hosts) <= 255


def test_a_host_of_the_longest_length_is_served() -> None:
    """63 characters for a label and 253 for a name are served."""
    client = create_app(Config(auth="open-to-all")).test_client()
    for host in ("a" * 63 + ":8443", ("a" * 63 + ".") * 3 + "a" * 61, "xn--bcher-kva.example"):
        assert client.get("/products", headers={"Host": host}).status_code == 200, host


def test_open_mode_serves_loopback_hosts(local: FlaskClient) -> None:
    """Open mode serves the names and addresses of loopback, and listed names."""
    for host in (
        *("localhost", "LOCALHOST.:8000", "app.localhost:1", "127.0.0.1:8000", "127.9.8.7", "[::1]:8000"),
        "devbox:8000",
    ):
        assert local.get("/x", headers={"Host": host}).status_code == 200, host


def test_open_mode_refuses_dns_rebinding(local: FlaskClient) -> None:
    """A page whose host name was pointed at this machine sends that name, and is refused."""
    for host in (
        *("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "xlocalhost"),
        *("0.0.0.0", "10.0.0.1", "169.254.169.254", "[fe80::1]", "[::]", "127.1", "2130706433", "a.devbox"),  # noqa: S104
    ):
        response = local.get("/x", headers={"Host": host})
        assert response.status_code == 400, host
        assert "TRUSTED_HOSTS" in response.json["detail"] and host not in response.text.replace("127.0.0.1:", "")


def test_listed_hosts_are_normalized() -> None:
    """Names are stored in the form in which they are compared."""
    for given, stored in {
        "": (),
        " API.example.org:8443 , localhost,": ("api.example.org", "localhost"),
        "*.a.example,.b.example": (".a.example", ".b.example"),
        "[2001:DB8:0::1]:80,10.0.0.1": ("[2001:db8::1]", "10.0.0.1"),
    }.items():
        assert Config.from_env({"TRUSTED_HOSTS": given}).trusted_hosts == stored
        assert Config(trusted_hosts=stored).trusted_hosts == stored


def test_an_invalid_host_stops_the_start() -> None:
    """A value that could never match is refused, and the message says what is allowed."""
    for wrong in ("*", "a b", "https://a", "a/b", "a..b", "*a.example", "[::1", "[::::]", "*.[::1]", "ü"):
        with pytest.raises(ConfigError, match=r"^TRUSTED_HOSTS='.*': must be names of hosts such as api\.example\.org"):
            Config.from_env({"TRUSTED_HOSTS": wrong})


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    """A running service with one host name and a low limit for bodies."""
    settings = {"TRUSTED_HOSTS": "127.0.0.1", "MAX_BODY": str(MAX_BODY), "LOG_LEVEL": "error"}
    with Gunicorn(tmp_path_factory.mktemp("edge"), workers=1, bounds={"failure_limit": "off"}, **settings) as running:
        yield running


def head(server: Gunicorn, *fields: str, method: str = "POST", path: str = "/products") -> bytes:
    """Read the head of a response."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", "Content-Type: application/json", *fields]
    return "\r\n".join([*lines, "", ""]).encode()


def read_all(client: socket.socket) -> bytes:
    """Read until the connection is closed."""
    response = b""
    while chunk := client.recv(65536):
        response += chunk
    return response


def test_an_unknown_host_returns_400_under_gunicorn(edge: Gunicorn) -> None:
    """The list comes from the environment; in an absolute request target, its authority is the host."""
    assert edge.get("/products", {"Host": "evil.example"}).status == 400
    assert edge.get("/products", {"X-Forwarded-Host": "evil.example"}).status == 200
    with socket.create_connection(("127.0.0.1", edge.port), timeout=10) as client:
        client.sendall(head(edge, "Connection: close", method="GET", path="http://evil.example/products"))
        assert read_all(client).startswith(b"HTTP/1.1 400 ")


def test_a_malformed_host_returns_400_under_gunicorn(edge: Gunicorn) -> None:
    """RFC 9112, section 3.2: in the header and in an absolute request target."""
    hosts = (
        *(b"", b" ", b"a/b", b"u@a", b"a, b", b"a b", b"a:b", b"a:80:80", b":80", b"[::1", b"a\xff", b"a?b", b"a#b"),
        *(b"b." + b"a" * 64 + b".c:80", b"a." * 128, b"xn--" + b"a" * 8000),
    )
    for host, version in product(hosts, (b"1.0", b"1.1")):
        requests = [b"GET /healthz HTTP/%b\r\nHost: %b\r\nConnection: close\r\n\r\n" % (version, host)]
        if not set(host) & set(b" #"):
            requests.append(
                b"GET http://%b/healthz HTTP/%b\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % (host, version)
            )
        for request in requests:
            with socket.create_connection(("127.0.0.1", edge.port), timeout=10) as client:
                client.sendall(request)
                assert read_all(client)[9:13] in (b"400 ", b"414 " if len(host) > 8000 else b"400 "), request


def test_refused_hosts_are_counted_under_gunicorn(tmp_path: Path) -> None:
    """Malformed and unknown hosts count as failures; beyond the limit of the address they return 429."""
    hosts = (b"evil.example", b"xn--" + b"a" * 8000, b"a/b", b"", b"a." * 128)
    found = []
    with Gunicorn(
        tmp_path, workers=1, LOG_LEVEL="error", TRUSTED_HOSTS="127.0.0.1", bounds={"failure_limit": f"3 per {WINDOW}"}
    ) as server:
        for number, host in enumerate(hosts, 2):
            request = b"GET /healthz HTTP/1.1\r\nHost: %b\r\n\r\n" % host
            address = (f"127.0.0.{number}", 0)  # each has its own quota
            with socket.create_connection(("127.0.0.1", server.port), timeout=10, source_address=address) as client:
                client.sendall(4 * request + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                found.append((host, re.findall(rb"HTTP/1\.1 (\d+)", read_all(client))))
    assert found == [(host, [b"400", b"400", b"400", b"429", b"429"]) for host in hosts]


def test_a_too_large_content_length_is_refused_at_once(edge: Gunicorn) -> None:
    """A Content-Length of 10 GB is refused before the body is read, and the connection is closed."""
    with socket.create_connection(("127.0.0.1", edge.port), timeout=10) as client:
        client.sendall(head(edge, f"Content-Length: {10 * 2**30}"))
        response = read_all(client)
    assert response.startswith(b"HTTP/1.1 413 ") and b"/problems/body-too-large" in response
    assert b"\r\nConnection: close\r\n" in response


def test_a_chunked_body_is_refused_at_the_limit(edge: Gunicorn) -> None:
    """It has no Content-Length; it is refused when it exceeds the limit, before it ends."""
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    sent = 0
    with socket.create_connection(("127.0.0.1", edge.port), timeout=10) as client:
        client.sendall(head(edge, "Transfer-Encoding: chunked"))
        client.sendall(chunk * (MAX_BODY // 0x4000 + 1))
        response = client.recv(65536)  # before the body has ended
        try:
            while sent < 4 * SOCKET_BUFFERS:  # the rest is read so that a client that reads late gets its response
                sent += client.send(chunk)
        except OSError:
            pass
    assert response.startswith(b"HTTP/1.1 413 ") and b"/problems/body-too-large" in response
    assert sent < Worker.linger_limit + SOCKET_BUFFERS


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    """A running service that requires credentials, and allows each caller two writes."""
    settings = {"AUTH": "required", "ADMIN_KEY": ADMIN, "RATE_LIMIT_WRITE": f"2 per {WINDOW}", "LOG_LEVEL": "error"}
    with Gunicorn(tmp_path_factory.mktemp("guarded"), workers=1, **settings) as running:
        yield running


@pytest.mark.needs("keys", "limits")
def test_no_100_continue_before_a_refusal(guarded: Gunicorn) -> None:
    """A client that waits for 100 (Continue) gets 401, 403, 413 or 429 instead, and the connection is closed."""
    admin = {"Authorization": f"Bearer {ADMIN}"}
    made = guarded.request("POST", "/api/v1/keys", {"name": "reader", "scopes": ["products:read"]}, admin)
    reader = made.json()["secret"]
    for status, key, length in (401, "no", 9), (403, reader, 9), (413, ADMIN, 2 * 2**20), (429, ADMIN, 9):
        with socket.create_connection(("127.0.0.1", guarded.port), timeout=10) as client:
            fields = (f"Authorization: Bearer {key}", f"Content-Length: {length}", "Expect: 100-continue")
            client.sendall(head(guarded, *fields))
            response = read_all(client)
        assert response.startswith(b"HTTP/1.1 %d " % status), response
        assert b"\r\nConnection: close\r\n" in response and b"100 Continue" not in response


def test_100_continue_is_sent_before_the_body_is_read(edge: Gunicorn) -> None:
    """A client that waits for 100 (Continue) gets it when the body is going to be read."""
    with socket.create_connection(("127.0.0.1", edge.port), timeout=10) as client:
        client.sendall(head(edge, "Content-Length: 13", "Expect: 100-continue", "Connection: close"))
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b'{"name": "x"}')
        assert read_all(client).startswith(b"HTTP/1.1 200 ")


def test_a_deeply_nested_body_is_refused(edge: Gunicorn) -> None:
    """Endless nesting is malformed or too deep, and never a crash."""
    for bomb in (b"[" * 9000, b'{"a":' * 9000, b'{"name": ' + b"[" * 9000):
        response = edge.request("POST", "/products", bomb, {"Content-Type": "application/json"})
        assert (response.status, response.json()["type"].endswith("/problems/invalid-json")) == (400, True)
        assert edge.get("/healthz").status == 200


def test_head_equals_get_without_content(server: Gunicorn) -> None:
    """HEAD has the status and headers of GET, also the length, and no content (RFC 9110, section 9.3.2)."""
    made = server.post("/products", {"name": "head"})
    item, held = made.headers["location"], {"If-None-Match": made.headers["etag"]}
    for path, conditions in (
        *((path, {}) for path in ("/", "/products", "/products?limit=1&fields=id", "/api/v1/products", item)),
        *((path, {}) for path in (f"{item}?fields=name", "/healthz", "/openapi.json", "/docs", "/metrics")),
        *((path, {}) for path in ("/docs/swagger-ui.css", "/problems/not-found", "/nothing", "/products?no=1")),
        *(("/products/none", {}), (item, held)),
    ):
        headers = {"X-Request-Id": "same", **conditions}
        got, from_head = server.get(path, headers), server.request("HEAD", path, headers=headers)
        assert from_head.body == b"" and from_head.status == got.status
        clocks = {name: "" for name in ("date", "expires", "last-modified") if name in got.headers}  # a second may pass
        assert clocks.keys() <= from_head.headers.keys()
        assert from_head.headers | clocks == got.headers | clocks, path


@pytest.mark.needs("health", "openapi", "pages")
def test_options_lists_the_methods_of_each_route(client: FlaskClient) -> None:
    """Each method that OPTIONS lists is allowed, and each other method returns 405."""
    for path in ("/", "/products", "/products/none", "/healthz", "/openapi.json", "/docs", "/problems/not-found"):
        response = client.options(path)
        assert (response.status_code, response.data) == (200, b"")
        assert response.headers.getlist("Cache-Control") == ["no-store"]
        allowed = response.headers["Allow"].split(", ")
        for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE"):
            assert (client.open(path, method=method).status_code != 405) == (method in allowed), (method, path)


def test_options_of_the_server(server: Gunicorn) -> None:
    """`OPTIONS *` is about the server as a whole (RFC 9110, section 9.3.7)."""
    response = server.request("OPTIONS", "*")
    assert (response.status, response.body, response.headers["content-length"]) == (200, b"", "0")


@pytest.mark.needs("openapi", "pages")
def test_every_page_has_a_content_security_policy(client: FlaskClient) -> None:
    """An HTML page loads and sends nothing to other origins, cannot be framed, and sends no Referer."""
    paths = {rule.rule for rule in client.application.url_map.iter_rules() if "GET" in (rule.methods or ())}
    paths |= {"/nothing", "/problems/not-found", "/docs/nothing"}
    pages = [page for page in (client.get(path, headers=HTML) for path in paths) if page.mimetype == "text/html"]
    assert len(pages) == 3
    for page in pages:
        policy = page.headers["Content-Security-Policy"]
        own = {"default-src 'self'", "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"}
        assert own <= set(policy.split("; "))
        assert not [word for word in ("http", "unsafe", "script-src") if word in policy]
        assert page.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.needs("health", "openapi", "pages")
def test_responses_have_nosniff_and_problems_no_store(client: FlaskClient) -> None:
    """Every response has X-Content-Type-Options once; a problem is not stored by caches."""
    for method, path, status in (
        *(("GET", "/", 200), ("GET", "/products", 200), ("OPTIONS", "/products", 200), ("GET", "/nothing", 404)),
        *(("TRACE", "/products", 405), ("POST", "/products", 415), ("GET", "/openapi.json", 200)),
        *(("GET", "/healthz", 200), ("GET", "/readyz", 200)),  # what is true for a moment is not stored, either
    ):
        response = client.open(path, method=method)
        assert (response.status_code, response.headers.getlist("X-Content-Type-Options")) == (status, ["nosniff"])
        assert (response.headers.get("Cache-Control") == "no-store") == (
            status >= 400 or method == "OPTIONS" or path in ("/healthz", "/readyz")
        ), path

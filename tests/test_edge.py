"""The edge: hosts, limits while a body is read, HEAD and OPTIONS, and security headers of every response."""

import encodings.idna
from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient
from werkzeug.test import create_environ, run_wsgi_app

from restkeeper.config import Config, ConfigError
from restkeeper.server.worker import Worker
from restkeeper.web.application import Application
from tests.live import Gunicorn, read_all
from tests.shop import WINDOW, create_app

HTML = {"Accept": "text/html"}
MAX_BODY = 100_000
ADMIN = "an-admin-key-of-some-length"
SOCKET_BUFFERS = 16 * 1024 * 1024  # more bytes than the buffers of a loopback connection can have


@pytest.fixture(scope="module")
def listed() -> FlaskClient:
    names = ("api.example.org", ".wild.example", "[2001:db8::1]")
    return create_app(Config(auth="open-to-all", trusted_hosts=names, failure_limit="off")).test_client()


def test_only_listed_hosts_are_served(listed: FlaskClient) -> None:
    """Compared without case, port and final dot, addresses by value; the message names the setting, not the host."""
    for host in (
        *("api.example.org", "API.Example.ORG:8443", "api.example.org.", "a.wild.example", "a.b.wild.example:1"),
        *("[2001:db8::1]:80", "[2001:0DB8:0:0:0:0:0:1]"),
    ):
        assert listed.get("/products", headers={"Host": host}).status_code == 200, host
    for host in 2 * (
        *("evil.example", "example.org", "xapi.example.org", "api.example.org.evil.example", "wild.example"),
        *("evilwild.example", "localhost", "127.0.0.1", "[::1]", "[2001:db8::2]", "2001"),
    ):
        response = listed.get("/products", headers={"Host": host, "X-Request-Id": "mine"})
        assert (response.status_code, response.json["type"]) == (400, "/problems/bad-request"), host
        assert "TRUSTED_HOSTS" in response.json["detail"] and host not in response.text


def test_a_query_is_utf8(client: FlaskClient) -> None:
    """Of no path a name or value is replaced by another text; the response names the parameters."""
    for path in ("/products", "/products/x", "/nothing", "/healthz"):
        for query in ("name=a&q=%C3", "limit=1&name[in]=a,%ED%A0%80", "%ff=1", "filter={%22x%22:%22%ff%22}"):
            response = client.get(f"{path}?{query}")
            assert response.status_code == 400 and response.json["type"].endswith("/invalid-query"), (path, query)
            assert response.json["errors"][0]["detail"] == "is not UTF-8: write é as %C3%A9"
    raw = create_environ("/products") | {"QUERY_STRING": "name=\xe9"}
    assert run_wsgi_app(client.application, raw)[1] == "400 BAD REQUEST"
    names = [each["parameter"] for each in client.get("/products?name=%ff&a=%C3%A9&q%ff=1").json["errors"]]
    assert names == ["name", "q\ufffd"]
    assert client.get("/products?name=%C3%A9&q=100%").status_code == 200


def response_to(app: Application, host: str | None) -> tuple[str, bytes]:
    """The status and body of the response to a host, which the test client might refuse itself."""
    content, status, _ = run_wsgi_app(app, create_environ("/products") | {"HTTP_HOST": host})
    return status, b"".join(content)


def test_a_malformed_host_returns_400(listed: FlaskClient) -> None:
    """It has another message than an unknown one; an address in brackets that is none equals no listed name."""
    hosts = ["", " ", "a b", "a/b", "u@a", "a, b", "a:b", "a:80:80", "a:99999", "[::1", ":80", "a?b", "a#b", "a\xff"]
    for host in 2 * [*hosts, "b." + "a" * 64 + ".c:80", "a." * 128]:
        status, body = response_to(listed.application, host)  # type: ignore[arg-type]
        assert status == "400 BAD REQUEST" and b"the Host header is not a host" in body, host
    for host in ("[1::2::3]", "[::::]", "[1]"):
        assert response_to(listed.application, host)[0] == "400 BAD REQUEST"  # type: ignore[arg-type]
    for order in ((None, ""), ("", None)):
        app = create_app(Config(auth="open-to-all"))
        found = {host: response_to(app, host)[0] for host in order}
        assert found == {None: "200 OK", "": "400 BAD REQUEST"}


@pytest.mark.needs("health")
def test_the_cache_of_hosts_is_limited() -> None:
    app = create_app(Config(auth="open-to-all", trusted_hosts=("localhost",), failure_limit="off"))
    client = app.test_client()
    for number in range(600):
        assert client.get("/healthz", headers={"Host": f"{number}.example"}).status_code == 400
    assert client.get("/healthz").status_code == 200
    assert len(app._hosts) <= 256
    client = create_app(Config(auth="open-to-all")).test_client()
    for host in ("a" * 63 + ":8443", ("a" * 63 + ".") * 3 + "a" * 61, "xn--bcher-kva.example"):
        assert client.get("/products", headers={"Host": host}).status_code == 200, host


@pytest.mark.parametrize("host", ["xn--" + "a" * 8000, "xn--" + "a" * 60, "a." * 128, "a" * 64 + ":80"])
def test_a_too_long_host_is_refused_first(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """A host that is too long is refused before it is parsed, and is not cached."""
    computed: list[str] = []
    for name in ("ToASCII", "ToUnicode", "nameprep"):
        monkeypatch.setattr(encodings.idna, name, computed.append)
    app = create_app(Config(auth="open-to-all"))
    computed.clear()
    for _ in range(2):
        status, body = response_to(app, host)
        assert status == "400 BAD REQUEST" and b"the Host header is not a host" in body
    assert computed == []
    assert sum(len(known[1] or "") for known in app._hosts) <= 255


def test_open_mode_serves_only_loopback_and_listed_hosts(local: FlaskClient) -> None:
    """A page whose host name was pointed at this machine (DNS rebinding) sends that name, and is refused."""
    near = ("localhost", "LOCALHOST.:8000", "app.localhost:1", "127.0.0.1:8000", "127.9.8.7", "[::1]:8000")
    for host in (*near, "devbox:8000"):
        assert local.get("/x", headers={"Host": host}).status_code == 200, host
    for host in (
        *("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "xlocalhost"),
        *("0.0.0.0", "10.0.0.1", "169.254.169.254", "[fe80::1]", "[::]", "127.1", "2130706433", "a.devbox"),  # noqa: S104
    ):
        response = local.get("/x", headers={"Host": host})
        assert response.status_code == 400, host
        assert "TRUSTED_HOSTS" in response.json["detail"] and host not in response.text.replace("127.0.0.1:", "")


def test_listed_hosts_are_checked_and_normalized() -> None:
    for given, stored in {
        "": (),
        " API.example.org , localhost,": ("api.example.org", "localhost"),
        "*.a.example,.b.example": (".a.example", ".b.example"),
        "[2001:DB8:0::1],10.0.0.1": ("[2001:db8::1]", "10.0.0.1"),
    }.items():
        assert Config.from_env({"TRUSTED_HOSTS": given}).trusted_hosts == stored
        assert Config(trusted_hosts=stored).trusted_hosts == stored
    for wrong in ("*", "a b", "https://a", "a..b", "*a.example", "[::1", "[::::]", "*.[::1]", "ü", "[::1]:443"):
        with pytest.raises(ConfigError, match=r"^TRUSTED_HOSTS='.*': must be names of hosts such as api\.example\.org"):
            Config.from_env({"TRUSTED_HOSTS": wrong})


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    with Gunicorn(tmp_path_factory.mktemp("edge"), workers=1, MAX_BODY=str(MAX_BODY), LOG_LEVEL="error") as running:
        yield running


def head(server: Gunicorn, *fields: str) -> bytes:
    lines = ["POST /products HTTP/1.1", f"Host: 127.0.0.1:{server.port}", "Content-Type: application/json", *fields]
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_too_large_content_length_is_refused_at_once(edge: Gunicorn) -> None:
    with edge.connect() as client:
        client.sendall(head(edge, f"Content-Length: {10 * 2**30}"))
        response = read_all(client)
    assert response.startswith(b"HTTP/1.1 413 ") and b"/problems/body-too-large" in response
    assert b"\r\nConnection: close\r\n" in response


def test_a_chunked_body_is_refused_at_the_limit(edge: Gunicorn) -> None:
    """It has no Content-Length; it is refused when it exceeds the limit, before it ends."""
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    sent = 0
    with edge.connect() as client:
        client.sendall(head(edge, "Transfer-Encoding: chunked"))
        client.sendall(chunk * (MAX_BODY // 0x4000 + 1))
        response = b""
        while b"/problems/body-too-large" not in response:  # it arrives before the body has ended
            assert (received := client.recv(65536)), response
            response += received
        try:
            while sent < 4 * SOCKET_BUFFERS:  # the rest is read so that a client that reads late gets its response
                sent += client.send(chunk)
        except OSError:
            pass
    assert response.startswith(b"HTTP/1.1 413 ")
    assert sent < Worker.linger_limit + SOCKET_BUFFERS


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
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
        with guarded.connect() as client:
            fields = (f"Authorization: Bearer {key}", f"Content-Length: {length}", "Expect: 100-continue")
            client.sendall(head(guarded, *fields))
            response = read_all(client)
        assert response.startswith(b"HTTP/1.1 %d " % status), response
        assert b"\r\nConnection: close\r\n" in response and b"100 Continue" not in response


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
    response = server.request("OPTIONS", "*")
    assert (response.status, response.body, response.headers["content-length"]) == (200, b"", "0")


@pytest.mark.needs("health", "openapi", "pages")
def test_options_lists_the_methods_of_each_route(client: FlaskClient) -> None:
    for path in ("/", "/products", "/products/none", "/healthz", "/openapi.json", "/docs", "/problems/not-found"):
        response = client.options(path)
        assert (response.status_code, response.data) == (200, b"")
        assert response.headers.getlist("Cache-Control") == ["no-store"]
        allowed = response.headers["Allow"].split(", ")
        for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE"):
            answer = client.open(path, method=method)
            assert (answer.status_code != 405) == (method in allowed), (method, path)
            assert method in allowed or answer.headers["Allow"] == response.headers["Allow"]


def test_options_says_what_a_patch_takes(client: FlaskClient) -> None:
    """As the response to a PATCH of another type does (RFC 5789, section 3.1); a path without PATCH does not."""
    path = client.post("/products", json={"name": "Lamp"}).headers["Location"]
    refused = client.patch(path, data="x", content_type="text/plain")
    assert client.options(path).headers["Accept-Patch"] == refused.headers["Accept-Patch"]
    assert "Accept-Patch" not in client.options("/products").headers


@pytest.mark.needs("browse", "openapi", "pages")
def test_every_page_has_a_content_security_policy(client: FlaskClient) -> None:
    """An HTML page loads and sends nothing to other origins, cannot be framed, and sends no Referer."""
    paths = {rule.rule for rule in client.application.url_map.iter_rules() if "GET" in (rule.methods or ())}
    paths |= {"/nothing", "/problems/not-found", "/docs/nothing"}
    pages = [page for page in (client.get(path, headers=HTML) for path in paths) if page.mimetype == "text/html"]
    assert len(pages) == 4
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

"""CORS: preflights, and the headers that let a page read a response."""

from itertools import product

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config, ConfigError
from restkeeper.features.cors import MOST_REQUESTED
from restkeeper.web.application import Reply, Stage
from tests.shop import create_app

pytestmark = pytest.mark.needs("cors")

APP = "https://app.example.org"
EVIL = "https://evil.example"
LISTED = {"Origin": APP}
PREFLIGHT = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "if-match, x-anything"}


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    return create_app(Config(auth="open-to-all", cors_origins=(APP, "http://localhost:5173"))).test_client()


def fields(value: str) -> set[str]:
    return {each.strip().lower() for each in value.split(",")}


@pytest.mark.needs("health")
def test_a_preflight_lists_methods_and_headers(client: FlaskClient) -> None:
    """A page of a listed origin may send the methods of the path and the header fields that it asks for."""
    for path, methods in (
        ("/products", "GET, HEAD, OPTIONS, POST"),
        ("/api/v1/users/none", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("/healthz", "GET, HEAD, OPTIONS"),
    ):
        response = client.options(path, headers=LISTED | PREFLIGHT)
        assert (response.status_code, response.data) == (204, b"") and "Content-Length" not in response.headers
        assert response.headers["Access-Control-Allow-Origin"] == APP
        assert response.headers["Access-Control-Allow-Methods"] == methods
        assert response.headers["Access-Control-Allow-Headers"] == "if-match, x-anything"
        assert response.headers["Access-Control-Max-Age"] == "600"
        varies = {"origin", "access-control-request-method", "access-control-request-headers"}
        assert fields(response.headers["Vary"]) == varies
    unknown = client.options("/nothing", headers=LISTED | PREFLIGHT)  # a problem that the page can read
    assert (unknown.status_code, unknown.headers["Access-Control-Allow-Origin"]) == (404, APP)


def test_a_preflight_grants_names_of_header_fields(client: FlaskClient) -> None:
    """So many that they fit into a small response, and nothing else; without any, none are granted."""
    method = {"Access-Control-Request-Method": "POST"}
    longest = "x" * MOST_REQUESTED
    for asked in ("authorization,content-type", "x-csrf-token , x-requested-with", "!#$%&'*+.^_`|~", longest):
        response = client.options("/products", headers=LISTED | method | {"Access-Control-Request-Headers": asked})
        assert response.headers["Access-Control-Allow-Headers"] == asked
    for refused in (None, "", "a b", "a,,b", "a,", "é", "a:b", '"a"', f"{longest}x"):
        asked_for = {} if refused is None else {"Access-Control-Request-Headers": refused}
        response = client.options("/products", headers=LISTED | method | asked_for)
        assert (response.status_code, "Access-Control-Allow-Headers" in response.headers) == (204, False), refused


def test_a_preflight_needs_no_credentials() -> None:
    """Browsers send no credentials with a preflight: it is handled before all other checks."""
    app = create_app(Config(cors_origins=(APP,)))
    app.checking.add(lambda _: Reply(b"{}", 401), stage=Stage.CALLER)
    assert app.test_client().options("/products", headers=LISTED | PREFLIGHT).status_code == 204
    assert app.test_client().options("/products", headers=LISTED).status_code == 401


def test_an_unlisted_origin_gets_no_cors_headers(client: FlaskClient) -> None:
    """An origin is compared as a whole; the plain response varies by Origin and does not repeat it."""
    for origin in (
        *(EVIL, "null", "", "*", "https://app.example.org:8443", "http://app.example.org", "https://app.example.org/"),
        *("https://app.example.org.evil.example", "https://xapp.example.org", "HTTPS://APP.EXAMPLE.ORG"),
        *("https://app.example.org, https://evil.example", "http://localhost:5174", "http://localhost"),
    ):
        for method in ("GET", "OPTIONS"):
            response = client.open("/products", method=method, headers={"Origin": origin} | PREFLIGHT)
            found = [name for name, _ in response.headers if name.startswith("Access-Control-")]
            assert (response.status_code, found) == (200, []), (method, origin)
            assert response.headers["Vary"] == ("Accept, Origin" if method == "GET" else "Origin")


def test_a_listed_origin_can_read_responses(client: FlaskClient) -> None:
    client.post("/products", json={"name": "x"})
    response = client.get("/products", headers={"Origin": "http://localhost:5173"})
    assert response.headers["Access-Control-Allow-Origin"] == "http://localhost:5173"
    assert fields(response.headers["Access-Control-Expose-Headers"]) == {
        *("etag", "link", "location", "x-total-count", "content-range", "ratelimit", "ratelimit-policy"),
        *("retry-after", "idempotent-replayed", "x-request-id", "deprecation", "sunset", "x-ratelimit-limit"),
        *("x-ratelimit-remaining", "x-ratelimit-reset"),
    }
    assert "Access-Control-Allow-Credentials" not in response.headers


@pytest.mark.needs("pages")
def test_every_response_varies_by_origin(client: FlaskClient) -> None:
    """Also cached lists, 304 and pages, which have another Vary, too; the cached list has no headers for one origin."""
    tag = client.get("/products", headers=LISTED).headers["ETag"]
    for origin in (APP, EVIL, APP, None):
        response = client.get("/products", headers={"Origin": origin} if origin else {})
        assert response.headers.getlist("Vary") == ["Accept, Origin"]
        assert response.headers.getlist("Access-Control-Allow-Origin") == ([APP] if origin == APP else [])
    assert client.get("/products", headers=LISTED | {"If-None-Match": tag}).headers["Vary"] == "Accept, Origin"
    assert client.get("/").headers.getlist("Vary") == ["Accept, Origin"]


@pytest.mark.needs("metrics")
def test_errors_can_be_read(client: FlaskClient) -> None:
    """A page can read what was wrong: problems have the same headers as other responses."""
    for method, path, status in (
        *(("GET", "/nothing", 404), ("GET", "/products/none", 404), ("DELETE", "/products", 405)),
        *(("POST", "/products", 415), ("GET", "/metrics", 403), ("GET", "/products?no=1", 400)),
    ):
        response = client.open(path, method=method, headers=LISTED)
        assert response.status_code == status
        assert response.headers["Access-Control-Allow-Origin"] == APP
        assert "Retry-After" in response.headers["Access-Control-Expose-Headers"]
    app = create_app(Config(cors_origins=(APP,)))

    @app.before_request
    def fail() -> None:
        raise ZeroDivisionError

    response = app.test_client().get("/products", headers=LISTED)
    assert (response.status_code, response.headers["Access-Control-Allow-Origin"]) == (500, APP)


def test_a_star_allows_any_origin() -> None:
    client = create_app(Config(cors_origins=("*",))).test_client()
    assert client.get("/products", headers={"Origin": EVIL}).headers["Access-Control-Allow-Origin"] == "*"
    assert client.options("/products", headers={"Origin": EVIL} | PREFLIGHT).status_code == 204
    for anyone in (client, create_app(Config(auth="open-to-all", cors_origins=("*",))).test_client()):
        for method in ("GET", "OPTIONS"):  # every sandboxed frame has this origin
            response = anyone.open("/products", method=method, headers={"Origin": "null"} | PREFLIGHT)
            assert response.status_code == (403 if anyone is client else 200)
            assert "Access-Control-Allow-Origin" not in response.headers
    client = create_app(Config(auth="open-to-all")).test_client()
    for response in (
        client.post("/products", json={"name": "x"}, headers=LISTED),
        client.options("/products", headers=LISTED | PREFLIGHT),
    ):
        assert (response.status_code, "Vary" in response.headers) == (200, False)
        assert not [name for name, _ in response.headers if name.startswith("Access-Control-")]


def test_listed_origins_are_checked_and_normalized() -> None:
    for given, stored in {
        "": (),
        " https://a.example , http://B.example:8080,": ("https://a.example", "http://b.example:8080"),
        "https://a.example:443,http://a.example:80": ("https://a.example", "http://a.example"),
        "http://[::1]:3000,capacitor://localhost": ("http://[::1]:3000", "capacitor://localhost"),
        "*": ("*",),
    }.items():
        assert Config.from_env({"CORS_ORIGINS": given}).cors_origins == stored
        assert Config(cors_origins=stored).cors_origins == stored
    for wrong in (
        *("app.example.org", "https://", "https://a.example/", "https://a.example/x", "null", "https://*.example"),
        *("*,https://a.example", "https://u@a.example", "https://a.example:0", "https://a.example:x", "https://a b"),
        "https://a.example:65536",
    ):
        with pytest.raises(ConfigError, match=r"^CORS_ORIGINS='.*': must be origins such as https://app\.example\.org"):
            Config.from_env({"CORS_ORIGINS": wrong})


def test_open_mode_allows_pages_of_this_machine(local: FlaskClient) -> None:
    for origin in (
        *("http://localhost:5173", "http://localhost", "https://127.0.0.1:8443", "http://[::1]:3000"),
        *("http://app.localhost:5173", "https://my_app.v-2.localhost"),
    ):
        assert local.options("/x", headers={"Origin": origin} | PREFLIGHT).status_code == 204
        response = local.post("/x", headers={"Origin": origin})
        assert (response.status_code, response.headers["Access-Control-Allow-Origin"]) == (200, origin)
    assert local.post("/x").status_code == 200  # a program that is no browser sends no Origin
    for base in ("http://localhost", "http://devbox:8000", "https://app.localhost"):
        assert local.post("/x", base_url=base, headers={"Origin": base}).status_code == 200
    for origin in ("http://devbox:8001", "https://devbox:8000", "http://devbox"):
        assert local.post("/x", base_url="http://devbox:8000", headers={"Origin": origin}).status_code == 403


def test_open_mode_refuses_pages_of_other_sites(local: FlaskClient) -> None:
    """Any request is refused; the message names the setting and does not repeat the origin."""
    origins = (
        *(EVIL, "null", "", "http://localhost.evil.example", "http://localhost:1/", "ftp://localhost"),
        *("http://127.0.0.1.evil.example", "http://evil.example#http://localhost", "http://localhost:1@evil.example"),
        *("http://0.0.0.0", "http://evillocalhost", "http://app.localhost.evil.example", "http://.localhost"),
        *("http://app..localhost", "http://evil.example/.localhost", "http://u@app.localhost", "http://a:1.localhost"),
    )
    for origin, method in product(origins, ("POST", "GET", "HEAD", "OPTIONS")):
        response = local.open("/x", method=method, headers={"Origin": origin, "Content-Type": "text/plain"} | PREFLIGHT)
        assert (response.status_code, response.content_type) == (403, "application/problem+json"), (method, origin)
        assert "Access-Control-Allow-Origin" not in response.headers
        assert "evil" not in response.text + str(response.headers)
        if method != "HEAD":
            assert response.json["type"].endswith("/problems/cross-origin")
            assert "CORS_ORIGINS" in response.json["detail"]


def test_pages_of_this_machine_may_send_credentials(local: FlaskClient) -> None:
    """Where nobody needs any: `fetch(…, {credentials: "include"})` and axios' `withCredentials` are not blocked."""
    name = "Access-Control-Allow-Credentials"
    mixed = create_app(Config(cors_origins=(APP, near := "http://localhost:5173"))).test_client()
    anyone = create_app(Config(cors_origins=("*",))).test_client()
    for client, origin, granted in (
        *((local, "http://app.localhost:5173", True), (mixed, near, True), (anyone, near, True)),
        *((mixed, APP, False), (anyone, APP, False)),
    ):
        allowed = "*" if not granted and client is anyone else origin
        for method in ("GET", "OPTIONS"):
            answer = client.open("/x", method=method, headers={"Origin": origin} | PREFLIGHT)
            assert answer.headers["Access-Control-Allow-Origin"] == allowed
            assert answer.headers.get(name) == ("true" if granted else None), origin
    for auth in ("required", "open-to-all"):
        for origins in ((near,), ("*",)):
            client = create_app(Config(auth=auth, cors_origins=origins)).test_client()
            assert name not in client.get("/products", headers={"Origin": near}).headers


NAVIGATION = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def test_open_mode_refuses_embedded_requests_of_other_sites(local: FlaskClient) -> None:
    """For an image or a frame a browser sends no Origin, but Sec-Fetch-Site; a link may be followed."""
    for method, fields, status in (
        ("GET", {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403),
        ("GET", {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 403),
        ("GET", {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ("GET", {}, 403),
        ("POST", NAVIGATION, 403),
        ("GET", NAVIGATION, 200),
        ("HEAD", NAVIGATION, 200),
    ):
        sites = {"cross-site": status, "same-origin": 200, "same-site": 200, "none": 200}
        found = {site: local.open("/x", method=method, headers={"Sec-Fetch-Site": site} | fields) for site in sites}
        assert {site: response.status_code for site, response in found.items()} == sites, (method, fields)


def test_open_mode_allows_embedded_requests_of_listed_origins() -> None:
    """Where any origin is allowed nothing is refused; a listed origin may call, also from another site."""
    cross = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    anyone = create_app(Config(cors_origins=("*",))).test_client()
    assert anyone.get("/products", headers=cross).status_code == 200
    listing = create_app(Config(cors_origins=(APP,))).test_client()
    assert listing.get("/products", headers=cross | {"Origin": APP}).status_code == 200
    assert listing.get("/products", headers=cross | {"Origin": EVIL}).status_code == 403
    assert listing.get("/products", headers=cross).status_code == 403

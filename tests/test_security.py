"""Security of the service as a whole: starts, tokens end to end, revocation on all workers, and secrets.

The second half has a test for each applicable item of the OWASP API Security Top 10 (2023), named after it, except for
API2, broken authentication (`test_auth.py`, `test_tokens.py` and `test_failures.py`), and API4, unrestricted resource
consumption (each row of docs/bounds.md names its test). API6, unrestricted access to business flows, does not apply:
this service has no business flows.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.errors import Unavailable
from restkeeper.features.keys import credentials
from restkeeper.resources.resource import Ownership, Resource
from restkeeper.service import service_of
from restkeeper.web import auth, edge
from tests import issuer, stores
from tests.live import ROOT, Gunicorn
from tests.shop import create_app
from tests.shop.products import ProductSchema

ADMIN_KEY = "an-admin-key-of-enough-characters"
ADMIN = {"X-API-Key": ADMIN_KEY}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def secured() -> FlaskClient:
    """A client of a service that requires credentials."""
    return create_app(Config(auth="required", admin_key=ADMIN_KEY)).test_client()


@pytest.fixture
def token_client(tmp_path: Path) -> FlaskClient:
    """A client of a service that accepts an issuer's tokens."""
    (tmp_path / "keys.json").write_bytes(issuer.FIRST)
    config = Config(
        auth="required",
        jwt_issuer=issuer.ISSUER,
        jwt_audience=issuer.AUDIENCE,
        jwt_jwks=str(tmp_path / "keys.json"),
    )
    return create_app(config).test_client()


def start(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Start a service that is expected to fail, and return its output."""
    environ = {"PATH": os.environ["PATH"], "DATABASE_URL": "memory://", "WEB_CONCURRENCY": "1", **settings}
    command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ((), {"AUTH": "open", "HOST": "0.0.0.0", "PORT": "0"}),  # noqa: S104
        (("--bind", "0.0.0.0:0"), {"AUTH": "open"}),
        (("--bind", "127.0.0.1:0", "--bind", "[::]:0"), {"AUTH": "open"}),
    ],
)
def test_open_mode_refuses_a_network_address(arguments: tuple[str, ...], settings: dict[str, str]) -> None:
    """AUTH=open with a network address stops the start with one line, whichever setting has the address."""
    done = start(*arguments, **settings)
    assert done.returncode != 0
    assert done.stderr.startswith("restkeeper: ") and done.stderr.count("\n") == 1, done.stderr
    assert "AUTH=open lets every caller do everything" in done.stderr


def test_gunicorn_requires_credentials_by_default(tmp_path: Path) -> None:
    """Under the production defaults AUTH is required; the start prints that no caller can authenticate yet."""
    with Gunicorn(tmp_path, AUTH="", workers=1) as server:
        assert server.get("/products").status == 401
        assert (
            "no caller can authenticate yet: set ADMIN_KEY, or run: restkeeper keys create NAME --scope admin"
            in server.log.read_text()
        )
    done = start(AUTH="off")
    assert done.returncode != 0
    assert done.stderr == "restkeeper: AUTH='off': must be open or required or open-to-all\n"


@pytest.mark.needs("jwt")
def test_a_token_grants_its_scopes(token_client: FlaskClient) -> None:
    """A JSON Web Token is accepted like a key, for its scopes and until it expires."""
    far = time.time() + 600
    assert token_client.get("/products", headers=bearer(issuer.token(exp=far))).status_code == 200
    assert token_client.post("/products", json={"name": "x"}, headers=bearer(issuer.token(exp=far))).status_code == 403
    for bad in (issuer.token(exp=far, aud="another"), issuer.token(exp=1), issuer.token(exp=far)[:-4] + "AAAA"):
        response = token_client.get("/products", headers=bearer(bad))
        assert (response.status_code, response.json["detail"]) == (
            401,
            "the credentials are not valid, or not any more",
        )
        assert response.headers["WWW-Authenticate"] == 'Bearer realm="restkeeper", error="invalid_token"'


@pytest.mark.needs("jwt")
def test_a_key_set_that_cannot_be_read_stops_the_start() -> None:
    """Without the issuer's keys no token could be verified."""
    with pytest.raises(Unavailable, match="JWT_JWKS='/no/such/file'"):
        create_app(Config(auth="required", jwt_issuer="a", jwt_audience="b", jwt_jwks="/no/such/file"))


def test_a_revoked_key_is_refused_by_every_worker_at_once(tmp_path: Path) -> None:
    """While connections to both workers use a key, no request that begins after its revocation succeeds."""
    settings = {"AUTH": "required", "ADMIN_KEY": ADMIN_KEY, "RATE_LIMIT": "off"}
    with Gunicorn(tmp_path, bounds={"failure_limit": "off"}, **settings) as server:
        for turn in range(5):
            key = server.post("/api/v1/keys", {"name": "x", "scopes": ["products:read"]}, ADMIN).json()
            revoked, late = threading.Event(), []
            let_in = threading.Barrier(9)

            def hammer(
                token: str = key["secret"],
                revoked: threading.Event = revoked,
                late: list[int] = late,
                let_in: threading.Barrier = let_in,
            ) -> None:
                assert server.get("/products", bearer(token)).status == 200
                let_in.wait(timeout=10)
                while not revoked.is_set():
                    server.get("/products", bearer(token))
                late.append(server.get("/products", bearer(token)).status)

            threads = [threading.Thread(target=hammer) for _ in range(8)]
            for thread in threads:
                thread.start()
            let_in.wait(timeout=10)
            assert server.request("DELETE", f"/api/v1/keys/{key['id']}", None, ADMIN).status == 200
            revoked.set()
            for thread in threads:
                thread.join(timeout=10)
            assert late == [401] * 8, f"turn {turn}"


def test_flask_keys_manages_the_keys_of_a_running_service(tmp_path: Path) -> None:
    """`flask keys` creates, lists, rotates and revokes keys in the store of a running service."""
    url = stores.url(f"sqlite:///{tmp_path}/restkeeper.db")
    environ = {**os.environ, "DATABASE_URL": url, "FLASK_APP": str(ROOT / "app.py")}

    def flask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flask", "keys", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=True
        )

    with Gunicorn(tmp_path, AUTH="required", workers=1) as server:
        token = flask("create", "shop", "--scope", "products:read", "--days", "30").stdout.strip()
        assert server.get("/products", bearer(token)).status == 200
        (line,) = flask("list").stdout.splitlines()
        id = line.split()[0]
        assert "'shop'  products:read  ends 2" in line and token not in line
        rotated = flask("rotate", id).stdout.strip()
        assert [server.get("/products", bearer(each)).status for each in (token, rotated)] == [401, 200]
        flask("revoke", id)
        assert server.get("/products", bearer(rotated)).status == 401
        assert flask("list").stdout == ""


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_not_revealed(tmp_path: Path, form: str) -> None:
    """No secret is in the log at its lowest level, in the metrics, or in a response but the one that returns it."""
    (tmp_path / "keys.json").write_bytes(issuer.FIRST)
    token = issuer.token(exp=time.time() + 600)
    settings = {
        "AUTH": "required",
        "ADMIN_KEY": ADMIN_KEY,
        "METRICS_TOKEN": "a-token-for-metrics-alone",
        "REDIS_URL": "redis://:a-password-of-redis@127.0.0.1:1/0",
        "JWT_ISSUER": issuer.ISSUER,
        "JWT_AUDIENCE": issuer.AUDIENCE,
        "JWT_JWKS": str(tmp_path / "keys.json"),
        "LOG_LEVEL": "debug",
        "LOG_FORMAT": form,
    }
    responses: list[Any] = []
    with Gunicorn(tmp_path, bounds={"failure_limit": "off"}, **settings) as server:

        def call(method: str, path: str, body: Any = None, **headers: str) -> Any:
            response = server.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
            responses.append(response)
            return response

        made = call("POST", "/api/v1/keys", {"name": "x", "scopes": ["products:read"]}, X_API_Key=ADMIN_KEY)
        secret = responses.pop().json()["secret"]
        basic = b64encode(f"{made.json()['id']}:{secret.split('_', 2)[2]}".encode()).decode()
        for credential in (secret, token, ADMIN_KEY, secret[:-1] + "!", token[:-4] + "AAAA", ADMIN_KEY + "x"):
            for method, path in (
                ("GET", "/products"),
                ("GET", "/nothing"),
                ("PUT", "/products/x"),
                ("GET", "/?fields=x"),
            ):
                call(method, path, Authorization=f"Bearer {credential}")
                call(method, path, X_API_Key=credential)
        call("GET", "/products", Authorization=f"Basic {basic}")
        call("GET", "/metrics", Authorization="Bearer a-token-for-metrics-alone")
        call("GET", "/metrics", Authorization=f"Bearer {secret}")
        call("POST", "/products", {"name": "x"}, X_API_Key=ADMIN_KEY, Idempotency_Key="a-key-of-idempotency")
        call("GET", "/api/v1/keys", X_API_Key=ADMIN_KEY)
        call("GET", "/openapi.json")
    everything = server.log.read_text() + "".join(
        json.dumps(response.headers) + response.body.decode("utf-8", "replace") for response in responses
    )
    assert "Redis does not respond" in everything
    secrets = [secret.split("_", 2)[2], token, token.split(".")[2], ADMIN_KEY, basic]
    for each in (*secrets, "a-token-for-metrics-alone", "a-password-of-redis", "a-key-of-idempotency"):
        assert each not in everything


@pytest.mark.needs("keys", "pages")
def test_an_untrusted_host_is_not_repeated() -> None:
    """Problem types and the index contain the request's host only if it is one of the service's own."""
    headers, listed = {"Host": "api.example.org"}, ("api.example.org",)
    for config, base in (
        (Config(auth="required"), ""),
        (Config(auth="open-to-all"), ""),
        (Config(auth="required", trusted_hosts=listed), "http://api.example.org"),
        (Config(auth="open", trusted_hosts=listed), "http://api.example.org"),
    ):
        client = create_app(config).test_client()
        response = client.get("/nothing", headers=headers)
        assert response.json["type"] == f"{base}/problems/not-found"
        page = client.get("/", headers=headers | {"Accept": "text/html"})
        assert f"curl -i {base or 'https://HOST'}/products" in page.text
        assert base or "api.example.org" not in page.text + response.text + client.get("/", headers=headers).text


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"AUTH": "required", "ADMIN_KEY": ADMIN_KEY}, True),
        ({"AUTH": "required", "ADMIN_KEY": ADMIN_KEY, "TRUSTED_HOSTS": "localhost,127.0.0.1"}, False),
        ({"AUTH": "open"}, False),
    ],
)
def test_a_start_warns_that_any_host_is_accepted(tmp_path: Path, settings: dict[str, str], warned: bool) -> None:
    """It warns in one line if other machines can reach the service and TRUSTED_HOSTS is not set."""
    with Gunicorn(tmp_path, workers=1, LOG_LEVEL="error", **settings) as server:
        lines = [line for line in server.log.read_text().splitlines() if "TRUSTED_HOSTS" in line]
    assert len(lines) == warned


def test_long_forwarded_entries_are_not_cached() -> None:
    """Entries of X-Forwarded-For are parsed once and cached, but not those that are too long for an address."""
    caches = (auth._is_here, edge._parsed)
    for cache in caches:
        cache.cache_clear()
    client = create_app(Config(trusted_proxies=1)).test_client()
    for n in range(20):
        far = client.get("/products", headers={"X-Forwarded-For": f"{'x' * 5000}{n}"})
        assert far.status_code == 403
    assert sum(cache.cache_info().currsize for cache in caches) <= 2
    assert client.get("/products", headers={"X-Forwarded-For": "[::1]:4321"}).status_code == 403
    assert edge._parsed.cache_info().currsize == 1


@pytest.mark.needs("keys")
def test_last_uses_of_keys_are_limited_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a limited number of last uses is stored in memory."""
    monkeypatch.setattr(credentials, "NOTED", 3)
    client = create_app(Config(auth="required", admin_key=ADMIN_KEY)).test_client()
    sent = {"name": "x", "scopes": ["products:read"]}
    for _ in range(10):
        secret = client.post("/api/v1/keys", json=sent, headers=ADMIN).json["secret"]
        assert client.get("/products", headers=bearer(secret)).status_code == 200
    resolver = service_of(client.application).guard.resolvers[0]
    assert isinstance(resolver, credentials.KeyResolver) and 0 < len(resolver._noted) <= 3


class NoteSchema(ProductSchema):
    """A note, visible to its owner only."""


@pytest.mark.needs("keys", "ownership")
def test_owasp_api1_broken_object_level_authorization() -> None:
    """A caller cannot read, change, list or find another's item of a private collection, by id or otherwise."""
    notes = Resource(name="notes", singular="note", schema=NoteSchema, search=("name",), ownership=Ownership.ALL)
    client = create_app(Config(auth="required", admin_key=ADMIN_KEY), (notes,)).test_client()
    scopes = ["notes:read", "notes:write"]
    mine, others = (
        {"X-API-Key": client.post("/api/v1/keys", json={"name": "x", "scopes": scopes}, headers=ADMIN).json["secret"]}
        for _ in range(2)
    )
    made = client.post("/notes", json={"name": "mine"}, headers=mine)
    path, tag = made.headers["Location"], made.headers["ETag"]
    cursor = client.get("/notes?limit=1", headers=mine).headers["Link"]
    assert "mine" not in cursor
    for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE"):
        for condition in ({}, {"If-Match": tag}, {"If-None-Match": tag}):
            body = {"name": "theirs"} if method in ("PUT", "PATCH") else None
            response = client.open(path, method=method, json=body, headers=others | condition)
            assert response.status_code == 404 and "ETag" not in response.headers
    for query in ("", "?q=mine", "?name=mine", f"?id={made.json['id']}", "?sort=-name&fields=name", "?offset=0"):
        page = client.get(f"/notes{query}", headers=others)
        assert (page.json, page.headers["X-Total-Count"]) == ([], "0")


@pytest.mark.needs("keys")
def test_owasp_api3_broken_object_property_level_authorization(secured: FlaskClient) -> None:
    """Read-only fields cannot be set, unknown fields are not stored, and no internal member is returned."""
    for member in ("id", "created_at", "updated_at", "version", "owner", "shape", "is_admin", "__proto__"):
        response = secured.post("/products", json={"name": "x", member: "1"}, headers=ADMIN)
        assert response.status_code == 422 and response.json["errors"][0]["pointer"] == f"#/{member}"
    made = secured.post("/products", json={"name": "x"}, headers=ADMIN).json
    assert not {"owner", "shape", "collection"} & made.keys()
    key = secured.post("/api/v1/keys", json={"name": "x", "scopes": ["products:read"]}, headers=ADMIN).json
    assert not {"hash", "digest"} & key.keys()


@pytest.mark.needs("keys")
def test_owasp_api5_broken_function_level_authorization(secured: FlaskClient) -> None:
    """Without the admin scope no key can be created, read or revoked, also not by other methods, paths or headers."""
    secret = secured.post(
        "/api/v1/keys", json={"name": "x", "scopes": ["products:read", "products:write"]}, headers=ADMIN
    ).json["secret"]
    mine = {"X-API-Key": secret}
    for method, path in (("GET", "/api/v1/keys"), ("POST", "/api/v1/keys"), ("DELETE", "/api/v1/keys/x")):
        assert secured.open(path, method=method, json={}, headers=mine).status_code == 403
    tricks = {"X-HTTP-Method-Override": "DELETE", "X-Original-URL": "/api/v1/keys", "X-Rewrite-URL": "/api/v1/keys"}
    assert secured.get("/products", headers=mine | tricks).json == []
    for path in ("/keys", "/api/v1/keys/", "/api/v1//keys", "//api/v1/keys", "/API/v1/keys", "/api/v1/credentials"):
        assert secured.get(path, headers=mine).status_code == 404


@pytest.mark.needs("jwt")
def test_owasp_api7_server_side_request_forgery(token_client: FlaskClient) -> None:
    """URLs in a token are not called."""
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.0)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/keys"
        for header in ("jku", "x5u", "kid"):
            token = issuer.token(headers={header: url}, exp=time.time() + 600)
            assert token_client.get("/products", headers=bearer(token)).status_code in (200, 401)
        with pytest.raises(BlockingIOError):
            trap.accept()


@pytest.mark.needs("keys", "metrics")
def test_owasp_api8_security_misconfiguration(secured: FlaskClient) -> None:
    """Everything is closed by default: credentials, metrics, other origins; an error does not reveal internals."""
    assert secured.get("/products").status_code == 401
    assert secured.get("/metrics", headers=ADMIN).status_code == 403
    response = secured.get("/products", headers=ADMIN | {"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in response.headers
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert secured.open("/products", method="TRACE", headers=ADMIN).status_code == 405
    for path in ("/products/x", "/nothing", "/products?limit=x"):
        text = secured.get(path, headers=ADMIN).text
        assert not [word for word in ("Traceback", "sqlite", "SELECT", ".py", str(ROOT)) if word in text]


@pytest.mark.needs("keys", "openapi")
def test_owasp_api9_improper_inventory_management(secured: FlaskClient) -> None:
    """Everything that is served is documented, with the permission that each operation needs."""
    document = secured.get("/openapi.json").json
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if (
                method != "parameters"
                and path.startswith(("/api/", "/products", "/users"))
                and path != "/api/v1/openapi.json"
            ):
                assert operation["security"] and {} not in operation["security"], (method, path)
    served = {rule.rule.replace("<", "{").replace(">", "}") for rule in secured.application.url_map.iter_rules()}
    assert served - {"/docs/{path:name}"} == set(document["paths"])


@pytest.mark.needs("jwt")
def test_owasp_api10_unsafe_consumption_of_apis(tmp_path: Path) -> None:
    """The only external data, an issuer's keys, is fetched over https, and each key is checked."""
    with pytest.raises(Unavailable, match="https"):
        create_app(Config(auth="required", jwt_issuer="a", jwt_audience="b", jwt_jwks="http://example.org/keys"))
    (tmp_path / "keys.json").write_bytes(issuer.key_set({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}))
    with pytest.raises(Unavailable):
        create_app(Config(auth="required", jwt_issuer="a", jwt_audience="b", jwt_jwks=str(tmp_path / "keys.json")))

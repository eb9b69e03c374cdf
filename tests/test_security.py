"""Security of the service as a whole: starts, tokens end to end, revocation on all workers, and secrets.

The items of the OWASP API Security Top 10 (2023) are tested where they belong: API1, API3 and API5, authorization of
items, properties and functions, in `test_permissions.py`, `test_validation.py` and `test_items.py`; API2,
authentication, in `test_auth.py`, `test_tokens.py` and `test_failures.py`; API4, consumption of resources, in the tests
that tests/bounds.toml names; API7, forged requests of the server, here and in `test_sender.py`; API8, configuration, in
`test_config.py`, `test_cors.py` and `test_problems.py`; API9, the inventory, in `test_openapi.py`; API10, the keys of
an issuer, in `test_jwks.py`. API6 does not apply: this service has no business flows.
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
from restkeeper.features.keys import credentials
from restkeeper.service import service_of
from tests import issuer
from tests.live import ROOT, Gunicorn
from tests.shop import create_app

ADMIN_KEY = "an-admin-key-of-enough-characters"
ADMIN = {"X-API-Key": ADMIN_KEY}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


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


def test_open_mode_refuses_a_network_address() -> None:
    """AUTH=open with a network address stops the start with one line, also if the address is only gunicorn's."""
    done = start("--bind", "127.0.0.1:0", "--bind", "[::]:0", AUTH="open")
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


def test_a_revoked_key_is_refused_by_every_worker_at_once(tmp_path: Path) -> None:
    """While connections to both workers use a key, no request that begins after its revocation succeeds."""
    settings = {"AUTH": "required", "ADMIN_KEY": ADMIN_KEY, "RATE_LIMIT": "off"}
    with Gunicorn(tmp_path, bounds={"failure_limit": "off"}, **settings) as server:
        for turn in range(3):
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

    def flask(*arguments: str) -> str:
        done = runner.invoke(args=["keys", *arguments])
        assert done.exit_code == 0, done.output
        return str(done.stdout)

    with Gunicorn(tmp_path, AUTH="required", workers=1) as server:
        runner = create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db")).test_cli_runner()
        token = flask("create", "shop", "--scope", "products:read", "--days", "30").strip()
        assert server.get("/products", bearer(token)).status == 200
        (line,) = flask("list").splitlines()
        id = line.split()[0]
        assert "'shop'  products:read  ends 2" in line and token not in line
        rotated = flask("rotate", id).strip()
        assert [server.get("/products", bearer(each)).status for each in (token, rotated)] == [401, 200]
        flask("revoke", id)
        assert server.get("/products", bearer(rotated)).status == 401
        assert flask("list") == ""


@pytest.mark.parametrize("form", ["json", pytest.param("text", marks=pytest.mark.matrix)])
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
    ],
)
def test_a_start_warns_that_any_host_is_accepted(tmp_path: Path, settings: dict[str, str], warned: bool) -> None:
    """It warns in one line if other machines can reach the service and TRUSTED_HOSTS is not set."""
    with Gunicorn(tmp_path, workers=1, LOG_LEVEL="error", **settings) as server:
        lines = [line for line in server.log.read_text().splitlines() if "TRUSTED_HOSTS" in line]
    assert len(lines) == warned


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


@pytest.mark.needs("jwt")
def test_urls_in_a_token_are_not_called(token_client: FlaskClient) -> None:
    """Whatever its header says, the only keys are those of the issuer."""
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.0)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/keys"
        for header in ("jku", "x5u", "kid"):
            token = issuer.token(headers={header: url}, exp=time.time() + 600)
            assert token_client.get("/products", headers=bearer(token)).status_code in (200, 401)
        with pytest.raises(BlockingIOError):
            trap.accept()

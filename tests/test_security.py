"""Security of the service as a whole: starts, tokens end to end, revocation on all workers, and secrets.

The items of the OWASP API Security Top 10 (2023) are tested where they belong: API1, API3 and API5, authorization of
items, properties and functions, in `test_permissions.py`, `test_validation.py` and `test_items.py`; API2,
authentication, in `test_auth.py`, `test_tokens.py` and `test_failures.py`; API4, consumption of resources, in
`test_limits.py`, `test_sizes.py` and `test_worker.py`; API7, forged requests of the server, here and in
`test_sender.py`; API8, configuration, in `test_config.py`, `test_cors.py` and `test_problems.py`; API9, the inventory,
in `test_openapi.py`; API10, the keys of an issuer, in `test_jwks.py`. API6 does not apply: this service has no business
flows.
"""

import json
import socket
import threading
import time
from base64 import b64encode
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.features import keys
from restkeeper.service import service_of
from tests import issuer
from tests.callers import ADMIN, ADMIN_KEY, bearer, make_key
from tests.live import ROOT, Gunicorn
from tests.shop import create_app
from tests.test_process import started
from tests.waiting import until


@pytest.fixture
def token_client(tmp_path: Path) -> FlaskClient:
    return create_app(Config(auth="required", **issuer.trusted(tmp_path))).test_client()


SERVE = ("-m", "gunicorn", "-c", "gunicorn.conf.py")


def test_a_start_requires_credentials_by_default_and_on_a_network(tmp_path: Path) -> None:
    """Under the production defaults AUTH is required; the start prints that no caller can authenticate yet."""
    with Gunicorn(tmp_path, AUTH="", workers=1) as server:
        assert server.get("/products").status == 401
        advice = "set ADMIN_KEY, or run: restkeeper keys create NAME --scope admin"
        assert f"no caller can authenticate yet: {advice}" in server.log.read_text()
    done = started(ROOT, *SERVE, AUTH="off")
    assert done.returncode != 0
    assert done.stderr == "restkeeper: AUTH='off': must be open or required or open-to-all\n"
    done = started(ROOT, *SERVE, "--bind", "127.0.0.1:0", "--bind", "[::]:0", AUTH="open")
    assert done.returncode != 0
    assert done.stderr.startswith("restkeeper: ") and done.stderr.count("\n") == 1, done.stderr
    assert "AUTH=open lets every caller do everything" in done.stderr


@pytest.mark.needs("jwt")
def test_a_token_grants_its_scopes_and_names_no_address(token_client: FlaskClient) -> None:
    """A JSON Web Token is accepted like a key, for its scopes and until it expires."""
    exp = time.time() + 600
    good = bearer(issuer.token(exp=exp))
    assert token_client.get("/products", headers=good).status_code == 200
    assert token_client.post("/products", json={"name": "x"}, headers=good).status_code == 403
    for bad in (issuer.token(exp=exp, aud="another"), issuer.token(exp=1), issuer.token(exp=exp)[:-4] + "AAAA"):
        response = token_client.get("/products", headers=bearer(bad))
        assert response.status_code == 401
        assert response.json["detail"] == "the credentials are not valid, or not any more"
        assert response.headers["WWW-Authenticate"] == 'Bearer realm="restkeeper", error="invalid_token"'
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.0)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/keys"
        for header in ("jku", "x5u", "kid"):
            token = issuer.token(headers={header: url}, exp=time.time() + 600)
            assert token_client.get("/products", headers=bearer(token)).status_code in (200, 401)
        with pytest.raises(BlockingIOError):
            trap.accept()


def test_a_revoked_key_is_refused_by_every_worker_at_once(tmp_path: Path) -> None:
    """While connections to both workers use a key, no request that begins after its revocation succeeds."""
    settings = {"AUTH": "required", "ADMIN_KEY": ADMIN_KEY, "RATE_LIMIT": "off"}
    with Gunicorn(tmp_path, bounds={"failure_limit": "off"}, **settings) as server, ThreadPoolExecutor(8) as pool:
        key = server.post("/api/v1/keys", {"name": "x", "scopes": ["products:read"]}, ADMIN).json()
        uses, is_revoked = Counter[int](), threading.Event()

        def use(_: int) -> int:
            while not is_revoked.is_set():
                uses[server.get("/products", bearer(key["secret"])).status] += 1
            return server.get("/products", bearer(key["secret"])).status

        late = pool.map(use, range(8))
        until(lambda: uses[200] > 50)
        assert server.request("DELETE", f"/api/v1/keys/{key['id']}", None, ADMIN).status == 200
        is_revoked.set()
        assert [*late] == [401] * 8


@pytest.mark.parametrize("form", ["json", pytest.param("text", marks=pytest.mark.matrix)])
def test_secrets_are_not_revealed(tmp_path: Path, form: str) -> None:
    """No secret is in the log at its lowest level, in the metrics, or in a response but the one that returns it."""
    token = issuer.token(exp=time.time() + 600)
    settings = {
        "AUTH": "required",
        "ADMIN_KEY": ADMIN_KEY,
        "METRICS_TOKEN": "a-token-for-metrics-alone",
        "REDIS_URL": "redis://:a-password-of-redis@127.0.0.1:1/0",
        **{name.upper(): value for name, value in issuer.trusted(tmp_path).items()},
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
            for method, path in (("GET", "/products"), ("GET", "/nothing"), ("PUT", "/products/x"), ("GET", "/?no=x")):
                call(method, path, Authorization=f"Bearer {credential}")
                call(method, path, X_API_Key=credential)
        call("GET", "/products", Authorization=f"Basic {basic}")
        call("GET", "/metrics", Authorization="Bearer a-token-for-metrics-alone")
        call("GET", "/metrics", Authorization=f"Bearer {secret}")
        call("POST", "/products", {"name": "x"}, X_API_Key=ADMIN_KEY, Idempotency_Key="a-key-of-idempotency")
        call("GET", "/api/v1/keys", X_API_Key=ADMIN_KEY)
        call("GET", "/openapi.json")
    log = server.log.read_text()
    (of_redis, *_) = [line for line in log.splitlines() if "Redis does not respond" in line]
    assert json.loads(of_redis)["level"] == "warning" if form == "json" else " warning " in of_redis
    everything = log + "".join(
        json.dumps(response.headers) + response.body.decode("utf-8", "replace") for response in responses
    )
    secrets = [secret.split("_", 2)[2], token, token.split(".")[2], ADMIN_KEY, basic]
    for each in (*secrets, "a-token-for-metrics-alone", "a-password-of-redis", "a-key-of-idempotency"):
        assert each not in everything


@pytest.mark.needs("keys", "pages")
def test_an_untrusted_host_is_not_repeated() -> None:
    """The index contains the request's host only if it is one of the service's own; problems never do."""
    headers, listed = {"Host": "api.example.org"}, ("api.example.org",)
    for config, base in (
        (Config(auth="required"), ""),
        (Config(auth="open-to-all"), ""),
        (Config(auth="required", trusted_hosts=listed), "http://api.example.org"),
        (Config(auth="open", trusted_hosts=listed), "http://api.example.org"),
    ):
        client = create_app(config).test_client()
        response = client.get("/nothing", headers=headers)
        assert response.json["type"] == "/problems/not-found" and "api.example.org" not in response.text
        page = client.get("/", headers=headers | {"Accept": "text/html"})
        assert f"curl -i {base or 'https://HOST'}/products" in page.text
        assert base or "api.example.org" not in page.text + response.text + client.get("/", headers=headers).text


def test_a_start_warns_that_any_host_is_accepted(tmp_path: Path) -> None:
    for hosts, warnings in (("", 1), ("localhost,127.0.0.1", 0)):
        settings = {"AUTH": "required", "ADMIN_KEY": ADMIN_KEY, "LOG_LEVEL": "error", "TRUSTED_HOSTS": hosts}
        with Gunicorn(tmp_path, workers=1, **settings) as server:
            assert sum("TRUSTED_HOSTS" in line for line in server.lines()) == warnings


@pytest.mark.needs("keys")
def test_last_uses_of_keys_are_limited_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "NOTED", 3)
    client = create_app(Config(auth="required", admin_key=ADMIN_KEY)).test_client()
    for _ in range(10):
        assert client.get("/products", headers=bearer(make_key(client)["secret"])).status_code == 200
    resolver = service_of(client.application).guard.identifying.functions[0].resolve
    assert isinstance(resolver, keys.KeyResolver) and 0 < len(resolver._noted) <= 3

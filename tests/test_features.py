"""Features: each can be closed, and then none of its parts is there."""

import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

import restkeeper
from restkeeper import Config
from restkeeper.config import ConfigError
from restkeeper.service import service_of
from tests import issuer
from tests.shapes import NOTES
from tests.shop import BUILT_ON, RESOURCES
from tests.shop.references import OWNERS, THINGS

# A path of each feature, and a row that it stores after the calls of `write`.
PATHS = {
    "browse": ["/browse"],
    "events": ["/api/v1/events"],
    "health": ["/healthz", "/readyz"],
    "keys": ["/api/v1/keys"],
    "metrics": ["/metrics"],
    "openapi": ["/openapi.json", "/docs"],
    "pages": ["/", "/problems/not-found"],
    "webhooks": ["/api/v1/webhooks"],
}
ROWS = {
    "events": "SELECT 1 FROM events",
    "idempotency": "SELECT 1 FROM responses",
    "keys": "SELECT 1 FROM counters WHERE collection IN ('keys', '_credentials')",
    "webhooks": "SELECT 1 FROM counters WHERE collection = 'webhooks'",
}

NAMES = {each.name for each in restkeeper.FEATURES if each.usual}

pytestmark = pytest.mark.top  # closes features by itself


def served(folder: Path, *closed: str) -> FlaskClient:
    limit = "" if "limits" in closed else "9 per minute"
    origins = () if "cors" in closed else ("https://app.example.org",)
    url = f"sqlite:///{folder}/store.db"
    config = Config(database_url=url, auth="open-to-all", rate_limit=limit, cors_origins=origins)
    return restkeeper.create_app(config, RESOURCES, without=closed).test_client()


def write(client: FlaskClient) -> None:
    made = client.post("/products", json={"name": "x"}, headers={"Idempotency-Key": "1"})
    path = f"/api/v1/products/{made.json['id']}"
    assert client.patch(path, json={"name": "y"}).json["version"] == 2
    assert [client.delete(path).status_code for _ in range(2)] == [200, 404]


def rows(folder: Path, statement: str) -> int:
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        return len(connection.execute(statement).fetchall())


def closed_with(name: str) -> set[str]:
    return {name} | ({BUILT_ON[name]} if name in BUILT_ON else set())


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_closed_feature_is_absent(tmp_path: Path, name: str) -> None:
    """Its paths return 404, its tables do not change; the other features work."""
    gone = closed_with(name)
    client = served(tmp_path, *gone)
    write(client)
    for feature, paths in PATHS.items():
        for path in paths:
            assert (client.get(path).status_code == 404) is (feature in gone)
    for feature, statement in ROWS.items():
        assert bool(rows(tmp_path, statement)) is (feature not in gone)


def test_a_closed_feature_has_no_headers(tmp_path: Path) -> None:
    headers = {"Origin": "https://app.example.org", "Idempotency-Key": "1"}
    responses = {name: served(tmp_path, name).get("/products", headers=headers) for name in ("cors", "limits")}
    for name, response in responses.items():
        assert ("Access-Control-Allow-Origin" in response.headers) is (name != "cors")
        assert ("RateLimit" in response.headers) is (name != "limits")
    posts = [served(tmp_path, "idempotency").post("/products", json={"name": "x"}, headers=headers) for _ in "ab"]
    assert posts[0].json["id"] != posts[1].json["id"]


def test_all_credentials_are_refused_without_keys_and_tokens() -> None:
    """Basic is neither a challenge nor a hint without keys: a browser would show a useless password dialog."""
    for closed in ({"keys"}, {"keys", "jwt"}):
        app = restkeeper.create_app(Config(), RESOURCES, without=closed)
        client = app.test_client()
        for sent in ("Bearer rk_0123456789abcdef_x", "Bearer a.b.c", "Basic eDp5"):
            refused = client.get("/products", headers={"Authorization": sent})
            assert refused.status_code == 401
            assert refused.headers["WWW-Authenticate"].startswith("Bearer ") and "Basic" not in refused.json["detail"]
        assert client.get("/products").status_code == 200
        assert service_of(app).features == NAMES - closed


def test_an_impossible_choice_of_features_stops_the_start() -> None:
    for config, resources, without, message in (
        ({}, RESOURCES, {"webhook"}, "features: there is no 'webhook'; there are metrics, cors, .*, openapi$"),
        ({}, RESOURCES, "webhooks", "features: 'webhooks' is a text; give a set of names, such as {'webhooks'}$"),
        ({}, RESOURCES, {"events"}, "features: 'webhooks' is built on 'events', which is closed; close both"),
        ({"auth": "required"}, RESOURCES, {"keys"}, "AUTH='required': nobody could call while the feature"),
        ({}, [NOTES], {"ownership"}, "features: 'notes' declares an ownership, so 'ownership' cannot be"),
        ({}, [OWNERS, THINGS], {"references"}, "features: things.owner is a reference, so 'references' cannot be"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            restkeeper.create_app(Config(**config), resources, without=without)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "module", "extra"),
    [("redis_url", "redis", "redis"), ("metrics_token", "prometheus_client", "metrics")],
)
def test_a_setting_without_its_extra_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, setting: str, module: str, extra: str
) -> None:
    """The line says what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    value = {"redis_url": "redis://localhost", "metrics_token": 32 * "m"}[setting]
    with pytest.raises(ConfigError) as caught:
        restkeeper.create_app(Config(**{setting: value}), RESOURCES)  # type: ignore[arg-type]
    line = f"{setting.upper()}: needs the package of this extra: pip install 'restkeeper[{extra}]'"
    assert str(caught.value) == line


def test_the_open_features_and_stores_can_be_listed() -> None:
    """All others are closed; of a listed one, too, the name is checked."""
    app = restkeeper.create_app(Config(), RESOURCES, features={"health", "pages"}, without={"pages"})
    assert service_of(app).features == {"health"}
    with pytest.raises(ConfigError, match="there is no 'hooks'"):
        restkeeper.create_app(Config(), RESOURCES, features={"hooks"})
    with pytest.raises(ConfigError) as caught:
        restkeeper.create_app(Config(database_url="other://me:secret@host/db"), RESOURCES)
    assert "secret" not in str(caught.value) and "other://" in str(caught.value)
    with pytest.raises(ConfigError, match="^DATABASE_URL=sqlite://…: this service is made for postgresql$"):
        restkeeper.create_app(Config(database_url="sqlite:///a.db"), RESOURCES, stores=("postgresql",))
    assert restkeeper.create_app(Config(), RESOURCES, stores=("postgresql",)).test_client().get("/").status_code == 200
    with pytest.raises(ConfigError, match=r"^webhook_worker='inside': .* use restkeeper\.LiveServer$"):
        restkeeper.create_app(Config(webhook_worker="inside"), RESOURCES)


@pytest.mark.parametrize(
    ("command", "name"),
    [(["keys", "list"], "keys"), (["deliver", "--once"], "webhooks"), (["backup", "x"], "transfer")],
)
def test_a_command_of_a_closed_feature_is_refused(tmp_path: Path, command: list[str], name: str) -> None:
    """In one line, before it touches the store."""
    result = served(tmp_path, name).application.test_cli_runner().invoke(args=command)
    assert result.exit_code == 2
    assert result.stderr == f"Error: {command[0]}: the feature {name!r} of this service is closed\n"


def test_a_closed_feature_is_not_reaped(tmp_path: Path) -> None:
    write(served(tmp_path))
    reap = served(tmp_path, "events", "webhooks", "idempotency").application.test_cli_runner()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE responses SET stored_at = 0")
    connection.close()
    assert reap.invoke(args=["reap"]).exit_code == 0
    assert rows(tmp_path, ROWS["idempotency"]) == 1


def test_a_setting_of_a_closed_feature_stops_the_start() -> None:
    """Otherwise an operator could believe in a limit that is not active."""
    settings: dict[str, dict[str, Any]] = {
        "limits": {"rate_limit": "1 per minute"},
        "idempotency": {"idempotency": "required"},
        "cors": {"cors_origins": ("https://app.example.org",)},
        "keys": {"admin_key": "an-admin-key-of-enough-characters"},
        "metrics": {"metrics_token": "a-metrics-token-of-enough-characters"},
        "webhooks": {"webhook_timeout": 3},
        "jwt": {"jwt_issuer": "https://i", "jwt_audience": "a", "jwt_jwks": "/no/file"},
        "harness": {"harness": "1"},
    }
    for name, setting in settings.items():
        with pytest.raises(ConfigError, match=f"is set, and has no effect while the feature '{name}' is closed$"):
            restkeeper.create_app(Config(**setting), RESOURCES, without={name})


def test_a_setting_opens_what_is_not_usual() -> None:
    """Whatever the list of the service names; only one that is closed by its name stays closed."""
    app = restkeeper.create_app(Config(harness="1"), RESOURCES, features={"health"})
    assert app.test_client().get("/__harness__/openapi.json").status_code == 200
    assert restkeeper.create_app(Config(), RESOURCES).test_client().get("/__harness__/openapi.json").status_code == 404


@pytest.mark.needs("jwt")
def test_tokens_need_no_keys(tmp_path: Path) -> None:
    config = Config(auth="required", **issuer.trusted(tmp_path))
    closed = restkeeper.create_app(config, RESOURCES, without={"keys"})
    token = issuer.token(exp=time.time() + 600, scope="products:read")
    for headers in ({"Authorization": f"Bearer {token}"}, {"X-API-Key": token}):
        assert closed.test_client().get("/products", headers=headers).status_code == 200


def test_other_sites_are_refused_without_cors() -> None:
    """Pages of other sites cannot reach a service in open mode, whatever else is closed."""
    client = restkeeper.create_app(Config(), RESOURCES, features=()).test_client()
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post("/products", json={"name": "x"}, headers=headers).status_code == 403
    assert client.post("/products", json={"name": "x"}, headers={"Origin": "http://localhost"}).status_code == 200


def test_items_work_without_any_feature(tmp_path: Path) -> None:
    client = served(tmp_path, *NAMES)
    write(client)
    made = client.post("/products", json={"name": "x"})
    assert client.get("/products", headers={"If-None-Match": "*"}).status_code == 304
    assert client.put(made.headers["Location"], json={"name": "z"}, headers={"If-Match": '"no"'}).status_code == 412
    assert client.get("/products").headers["X-Total-Count"] == "1"

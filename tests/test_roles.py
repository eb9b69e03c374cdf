"""Roles: names for sets of scopes, which keys and tokens have."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint
from flask.testing import FlaskClient

from restkeeper import caller, needs
from restkeeper.config import Config, ConfigError
from restkeeper.web.application import Application
from tests import issuer
from tests.callers import ADMIN, ADMIN_KEY, bearer, key, make_key
from tests.clock import SetClock
from tests.shop import RESOURCES, create_app

pytestmark = pytest.mark.needs("keys", "roles")

RECEPTIONIST = ("products:read", "reports:read", "users:write")
ROLES = {"receptionist": RECEPTIONIST, "head-of_2": ("admin",), "guest": (), "profile": ("users:read",)}
CONFIG = Config(auth="required", admin_key=ADMIN_KEY)


@needs("reports:read")
def read_report() -> dict[str, Any]:
    return {}


@needs("known")
def read_scopes() -> dict[str, Any]:
    return {"scopes": sorted(caller().scopes)}


def service(roles: Any = ROLES, config: Config = CONFIG, **options: Any) -> Application:
    reports = Blueprint("reports", __name__)
    reports.add_url_rule("/reports", view_func=read_report)
    reports.add_url_rule("/scopes", view_func=read_scopes)
    return create_app(config, RESOURCES, roles=roles, blueprints=[reports], **options)


@pytest.fixture
def client() -> FlaskClient:
    return service().test_client()


def test_a_key_with_a_role_has_its_scopes(client: FlaskClient) -> None:
    """Beside others; what the service returns of the key has the name of the role."""
    made = make_key(client, "receptionist", "users:read")
    assert made["scopes"] == ["receptionist", "users:read"]
    assert client.get(f"/api/v1/keys/{made['id']}", headers=ADMIN).json["scopes"] == made["scopes"]
    headers = bearer(made["secret"])
    assert client.get("/scopes", headers=headers).json["scopes"] == sorted([*RECEPTIONIST, "users:read"])
    for path, read, made in (("/products", 200, 403), ("/users", 200, 200), ("/reports", 200, 405)):
        assert client.get(path, headers=headers).status_code == read, path
        sent = {"name": "x", "email": "x@example.org"} if path == "/users" else {"name": "x"}
        assert client.post(path, headers=headers, json=sent).status_code == made, path


def test_only_admins_give_roles(client: FlaskClient) -> None:
    """A role can have the scope `admin`, and all that admins may; a role alone makes no keys."""
    sent = {"name": "x", "scopes": ["guest"]}
    for role, status in (("receptionist", 403), ("guest", 403), ("head-of_2", 200)):
        assert client.post("/api/v1/keys", json=sent, headers=key(client, role)).status_code == status, role
    assert client.get("/scopes", headers=key(client, "guest")).json == {"scopes": []}
    for unknown in ("nurse", "Receptionist", "receptionist:read", "", "receptionist "):
        refused = client.post("/api/v1/keys", json={"name": "x", "scopes": [unknown]}, headers=ADMIN)
        assert [fault["pointer"] for fault in refused.json["errors"]] == ["#/scopes/0"], unknown
    assert service({}).test_client().post("/api/v1/keys", json=sent, headers=ADMIN).status_code == 422


@pytest.mark.needs("idempotency")
def test_a_change_of_a_role_reaches_its_keys(tmp_path: Path) -> None:
    """A role that is gone allows nothing. A repetition by other scopes than the first time is refused."""
    config = replace(CONFIG, database_url=f"sqlite:///{tmp_path}/a.db")
    before = service(config=config).test_client()
    headers = key(before, "receptionist")
    sent: Any = {"json": {"name": "x", "email": "x@example.org"}, "headers": headers | {"Idempotency-Key": "1"}}
    assert before.get("/products", headers=headers).status_code == 200
    assert before.post("/users", **sent).status_code == before.post("/users", **sent).status_code == 200
    changed = service({"receptionist": ("users:read", "users:write")}, config).test_client()
    assert [changed.get(path, headers=headers).status_code for path in ("/products", "/users")] == [403, 200]
    assert changed.post("/users", **sent).json["code"] == "idempotency-key-reused"
    gone = service({}, config).test_client()
    assert [gone.get(path, headers=headers).status_code for path in ("/products", "/users")] == [403, 403]
    listed = gone.get("/api/v1/keys", headers=ADMIN).json
    assert [each["scopes"] for each in listed] == [["receptionist"]]


def test_a_key_with_a_role_is_made_by_a_command(tmp_path: Path) -> None:
    app = service(config=replace(CONFIG, database_url=f"sqlite:///{tmp_path}/a.db"))
    made = app.test_cli_runner().invoke(args=["keys", "create", "desk", "--scope", "receptionist"])
    assert app.test_client().get("/products", headers={"X-API-Key": made.stdout.strip()}).status_code == 200
    assert "'desk'  receptionist  owner" in app.test_cli_runner().invoke(args=["keys", "list"]).stdout
    refused = app.test_cli_runner().invoke(args=["keys", "create", "desk", "--scope", "nurse"])
    assert refused.stderr.startswith("Error: #/scopes/0: must be one of: admin, ") and "guest" in refused.stderr


@pytest.mark.needs("openapi")
def test_the_document_has_the_roles(client: FlaskClient) -> None:
    document: Any = client.get("/openapi.json").json
    scopes = document["components"]["schemas"]["KeyInput"]["properties"]["scopes"]["items"]
    assert {*ROLES, "admin", "products:read", "reports:read"} <= {*scopes["enum"]}


@pytest.mark.needs("jwt")
def test_a_token_has_roles_in_a_claim(tmp_path: Path, clock: SetClock) -> None:
    """Those that the service declares, of the claim of JWT_ROLES alone: the issuer has others, and scopes like it."""
    trusted = replace(CONFIG, **issuer.trusted(tmp_path))
    configs = (replace(trusted, jwt_roles="groups"), trusted)
    named, unnamed = (service(config=each, clock=clock).test_client() for each in configs)
    for claims, scopes in (
        ({"groups": ["receptionist", "offline_access"], "scope": None}, [*RECEPTIONIST]),
        ({"groups": "guest head-of_2"}, ["admin", "products:read"]),
        ({"groups": ["admin", "users:read"], "scope": None}, []),
        ({"scope": "profile receptionist"}, ["profile", "receptionist"]),
        *(({"groups": 5}, None), ({"groups": {"receptionist": True}}, None)),
    ):
        headers = bearer(issuer.token(**claims))
        assert named.get("/scopes", headers=headers).json.get("scopes") == scopes, claims
        without = (claims.get("scope", "products:read") or "").split()
        assert unnamed.get("/scopes", headers=headers).json["scopes"] == without, claims
    with pytest.raises(ConfigError, match="^JWT_ROLES='groups': has no effect: the service declares no roles$"):
        service({}, configs[0])


def test_a_wrong_declaration_stops_the_start() -> None:
    """With one line, which names the role."""
    name = "a name has small letters, digits, - and _, and is not 'admin'"
    for roles, message in (
        ({"x": ("products:reed",)}, "roles: 'x': there is no scope 'products:reed'; there are admin, products:read"),
        ({"x": ("guest",), "guest": ()}, "roles: 'x': there is no scope 'guest'; there are admin, "),
        ({"x": ("products:read")}, "roles: 'x': 'products:read' must be a tuple of scopes, such as ('products:read',)"),
        ({"x": None}, "roles: 'x': None must be a tuple of scopes"),
        *(({wrong: ()}, f"roles: {wrong!r}: {name}") for wrong in ("admin", "a:b", "Nurse", "", "a b", "a\n")),
        (["x"], "roles=['x']: must be the scopes of each role, by its name"),
    ):
        with pytest.raises(ValueError, match="^roles") as caught:
            service(roles)
        assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="^features: the service declares roles, so 'roles' cannot be closed$"):
        service(without={"roles"})
    with pytest.raises(ConfigError, match="^JWT_ROLES='roles': is of tokens: set JWT_ISSUER, JWT_AUDIENCE, JWT_JWKS"):
        Config(jwt_roles="roles")

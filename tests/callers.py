"""Callers of a service, also of one that requires credentials."""

from base64 import b64encode
from typing import Any

from flask.testing import FlaskClient

ADMIN_KEY = "an-admin-key-of-enough-characters"
ADMIN = {"X-API-Key": ADMIN_KEY}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


def make_key(client: FlaskClient, *scopes: str, **fields: Any) -> dict[str, Any]:
    """A new key as the service returns it, with its secret; an admin creates it, from another address."""
    sent = {"name": "test", "scopes": list(scopes or ["products:read"]), **fields}
    response = client.post("/api/v1/keys", json=sent, headers=ADMIN, environ_base={"REMOTE_ADDR": "192.0.2.250"})
    assert response.status_code == 200, response.text
    key: dict[str, Any] = response.json
    return key


def key(client: FlaskClient, *scopes: str, **fields: Any) -> dict[str, str]:
    """The header of a new key with these scopes."""
    return {"X-API-Key": make_key(client, *scopes, **fields)["secret"]}


def events(client: FlaskClient) -> list[str]:
    """The types of the events until now."""
    return [each["type"] for each in client.get("/api/v1/events?limit=100").json]


def pointers(response: Any) -> list[str]:
    """Where the faults of a body are."""
    return [each["pointer"] for each in response.json["errors"]]

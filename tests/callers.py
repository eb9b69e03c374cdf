"""Callers of a service that requires credentials."""

from typing import Any

from flask.testing import FlaskClient

ADMIN_KEY = "an-admin-key-of-enough-characters"
ADMIN = {"X-API-Key": ADMIN_KEY}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def make_key(client: FlaskClient, *scopes: str, **fields: Any) -> dict[str, Any]:
    """A new key as the service returns it, with its secret; an admin creates it, from another address."""
    sent = {"name": "test", "scopes": list(scopes or ["products:read"]), **fields}
    response = client.post("/api/v1/keys", json=sent, headers=ADMIN, environ_base={"REMOTE_ADDR": "192.0.2.250"})
    assert response.status_code == 200, response.text
    key: dict[str, Any] = response.json
    return key

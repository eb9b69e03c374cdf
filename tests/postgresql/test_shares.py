"""The shares of the connections: whose work a look-up of credentials is."""

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.storage.shares import current_caller
from tests.shop import create_app
from tests.test_permissions import ADMIN, key

pytestmark = pytest.mark.needs("keys", "limits")


@pytest.mark.parametrize("failure_limit", [Config.failure_limit, "off"])
def test_guesses_share_those_of_their_address(failure_limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with another token, or from another address of one network, they would have all connections.

    A key that is known has a share of its own.
    """
    app = create_app(Config(auth="required", admin_key=ADMIN["X-API-Key"], failure_limit=failure_limit))
    client: FlaskClient = app.test_client()
    store = app.extensions["restkeeper"].store
    owners: list[str] = []
    look_up = store.look_up
    monkeypatch.setattr(store, "look_up", lambda keys: owners.append(current_caller.get()) or look_up(keys))
    for number in range(3):
        client.get("/products/x", headers={"X-API-Key": f"rk_{number:016x}_guess"})
    assert set(owners) == {"127.0.0.1"}
    owners.clear()
    for number in range(3):
        guess = {"X-API-Key": f"rk_{number:016x}_other"}
        client.get("/products/x", headers=guess, environ_base={"REMOTE_ADDR": f"2001:db8:1:2::{number}"})
    assert set(owners) == {"2001:db8:1:2::/64"}
    known = key(client, "products:read")
    owners.clear()
    for _ in range(2):
        client.get("/products/x", headers=known)
    assert owners[0] == "127.0.0.1"
    assert (owners[-1] == "127.0.0.1") == (failure_limit == "off")

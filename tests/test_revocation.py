"""What happens to a key in one process holds for the next request to every other one, whatever that asks for."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.service import service_of
from tests import stores
from tests.callers import ADMIN, ADMIN_KEY, make_key
from tests.clock import SetClock
from tests.shop import create_app

pytestmark = [pytest.mark.needs("keys"), pytest.mark.needs("idempotency"), pytest.mark.needs("limits")]

EXPIRES = "2027-01-15T09:00:00Z"  # an hour after the clock's start


class Shop:
    """Two processes of one service, and a key that the first one has used for everything."""

    def __init__(self, url: str) -> None:
        self.clock = SetClock()
        config = Config(database_url=url, auth="required", admin_key=ADMIN_KEY)
        self.apps = [create_app(config, clock=self.clock) for _ in range(2)]
        self.first, self.other = (app.test_client() for app in self.apps)
        made = make_key(self.first, "products:read", "products:write", expires_at=EXPIRES)
        self.key, self.token = made["id"], made["secret"]
        self.path = self.send("POST", "/products", json={"name": "first"}, once="first").headers["Location"]
        for path in (self.path, "/products"):
            assert self.send("GET", path).status_code == 200

    def send(self, method: str, path: str, *, once: str = "", client: FlaskClient | None = None, **sent: Any) -> Any:
        headers = {"X-API-Key": self.token} | ({"Idempotency-Key": once} if once else {})
        return (client or self.first).open(path, method=method, headers=headers, **sent)

    def items(self) -> Any:
        return self.other.get("/products", headers=ADMIN).json


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(f"sqlite:///{tmp_path}/a.db")
    yield made
    for app in made.apps:
        service_of(app).store.close()


def revoke(shop: Shop) -> int:
    assert shop.other.delete(f"/api/v1/keys/{shop.key}", headers=ADMIN).status_code == 200
    return 401


def rotate(shop: Shop) -> int:
    assert shop.other.post(f"/api/v1/keys/{shop.key}/rotate", headers=ADMIN).status_code == 200
    return 401


def expire(shop: Shop) -> int:
    shop.clock.now += 3600
    return 401


def restrict(shop: Shop) -> int:
    """As an operator might, in the database."""
    url = service_of(shop.other.application).config.database_url  # type: ignore[arg-type]
    stores.execute(url, "UPDATE items SET body = replace(body, 'products:', 'users:') WHERE body LIKE '%products:%'")
    return 403


REQUESTS: dict[str, Callable[[Shop], Any]] = {
    "item": lambda shop: shop.send("GET", shop.path),
    "page": lambda shop: shop.send("GET", "/products?limit=1"),
    "same page": lambda shop: shop.send("GET", "/products"),
    "create": lambda shop: shop.send("POST", "/products", json={"name": "never"}),
    "create once": lambda shop: shop.send("POST", "/products", json={"name": "never"}, once="never"),
    "repeat": lambda shop: shop.send("POST", "/products", json={"name": "first"}, once="first"),
    "invalid": lambda shop: shop.send("POST", "/products", json={"name": ""}),
    "change": lambda shop: shop.send("PATCH", shop.path, json={"name": "never"}),
    "delete": lambda shop: shop.send("DELETE", shop.path),
}


@pytest.mark.parametrize("change", [revoke, rotate, expire, restrict])
def test_a_change_of_a_key_holds_for_the_next_request(shop: Shop, change: Callable[[Shop], int]) -> None:
    """Of any kind, also in a process that has just used the key; nothing is read or changed by it."""
    before = shop.items()
    status = change(shop)
    assert {name: send(shop).status_code for name, send in REQUESTS.items()} == dict.fromkeys(REQUESTS, status)
    assert shop.items() == before


def test_a_revoked_key_has_no_quota(shop: Shop) -> None:
    """Its requests are counted for the address, like those of other unknown callers."""
    own = shop.send("GET", shop.path).headers["X-RateLimit-Remaining"]
    revoke(shop)
    refused = [shop.send("GET", shop.path).headers["X-RateLimit-Remaining"] for _ in range(2)]
    assert int(refused[0]) > int(own)
    assert int(refused[0]) == int(refused[1]) + 1

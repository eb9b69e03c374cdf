"""How often a request asks the database, counted on the wire: the real application, with an API key.

Where the database is on another machine, the time of a request is mostly that of its round trips.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.features import idempotency
from restkeeper.features.keys import USE_SECONDS
from restkeeper.service import service_of
from restkeeper.storage.base import Store
from restkeeper.storage.interface import Related
from restkeeper.storage.postgresql import store
from tests.clock import SetClock
from tests.postgresql.wire import Wire, counted
from tests.shop import create_app
from tests.waiting import until

pytestmark = [pytest.mark.needs("keys"), pytest.mark.needs("idempotency"), pytest.mark.needs("events")]

SEQUENCER = 4  # BEGIN, the lock, the numbers, COMMIT
NOTE = 5  # a transaction that reads and changes two records of two collections
REPEATED = 20  # psycopg prepares a statement at its sixth use, in each connection
ADMIN_KEY = "an-admin-key-of-enough-characters"


@pytest.fixture
def wire(url: str) -> Iterator[Wire]:
    """A proxy in front of a new database."""
    with counted(url) as made:
        yield made


class Shop:
    """A client with a key whose use was noted, of an application behind the proxy. `ask` counts round trips."""

    def __init__(self, wire: Wire) -> None:
        self.clock = SetClock()
        config = Config(database_url=wire.url, auth="required", admin_key=ADMIN_KEY, rate_limit="", rate_limit_write="")
        self._app = create_app(config, clock=self.clock)
        self._client: FlaskClient = self._app.test_client()
        self._wire = wire
        sent = {"name": "test", "scopes": ["products:read", "products:write"]}
        made = self._client.post("/api/v1/keys", json=sent, headers={"X-API-Key": ADMIN_KEY})
        self._key = made.json["secret"]
        self._numbers = count()
        self.store: Store = service_of(self._app).store
        pool: Any = self.store._opened._pool  # type: ignore[attr-defined]
        until(lambda: pool.get_stats()["pool_available"] == pool.get_stats()["pool_size"])  # no new connection asks
        self.ask("GET", "/products")

    def close(self) -> None:
        self.store.close()

    def ask(self, method: str, path: str = "/products", *, headers: dict[str, str] | None = None, **sent: Any) -> Any:
        """The response, with the round trips as `trips`."""
        self._wire.trips()
        headers = {"X-API-Key": self._key, **(headers or {})}
        response = self._client.open(path, method=method, headers=headers, **sent)
        assert response.status_code < 400, response.text
        response.trips = self._wire.trips()
        return response

    def create(self, *, once: bool = True) -> Any:
        """Create a product, by default with a new idempotency key."""
        number = next(self._numbers)
        headers = {"Idempotency-Key": f"key-{number}"} if once else {}
        return self.ask("POST", json={"name": f"name {number}", "price": number}, headers=headers)

    def path(self) -> str:
        """The path of a new product."""
        return str(self.create().headers["Location"])


@pytest.fixture
def shop(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """The work that only some requests do has tests of its own: deleting old responses, and numbering events."""
    monkeypatch.setattr(idempotency, "SWEEP_ONE_IN", 257)
    monkeypatch.setattr(store, "SEQUENCED", 10**9)
    made = Shop(wire)
    yield made
    made.close()


def steady(ask: Callable[[], Any]) -> int:
    """The round trips of a request of which there were many: at some of the first ones its statements were prepared."""
    trips = [ask().trips for _ in range(REPEATED)]
    assert trips[-3:] == [min(trips)] * 3, trips
    return min(trips)


def test_requests_take_few_round_trips(shop: Shop) -> None:
    """One finds the credential, with the item, a stored response or a list's change token; the others are the work.

    A unique value takes one more, as items of other revisions may have it, and so does a first page of several with a
    filter, which counts all. Events without a number take the sequencer's and one to read again, once.
    """
    path, numbers, paths = shop.path(), count(1), iter([shop.path() for _ in range(REPEATED)])
    tags = {each: shop.ask("GET", each).headers["ETag"] for each in (path, "/products")}
    mine = {"json": {"name": "a"}, "headers": {"Idempotency-Key": "mine"}}
    made = shop.ask("POST", **mine)
    assert shop.ask("POST", **mine).json == made.json
    asked: dict[str, tuple[int, Callable[[], Any]]] = {
        "read": (1, lambda: shop.ask("GET", path)),
        "read if changed": (1, lambda: shop.ask("GET", path, headers={"If-None-Match": tags[path]})),
        "create with a key": (2, shop.create),
        "create": (2, lambda: shop.create(once=False)),
        "repeat a create": (1, lambda: shop.ask("POST", **mine)),
        "create with a unique value": (3, lambda: shop.ask("POST", json={"name": "x", "sku": f"{next(numbers)}"})),
        "patch": (2, lambda: shop.ask("PATCH", path, json={"name": f"{next(numbers)}"})),
        "put": (2, lambda: shop.ask("PUT", path, json={"name": f"{next(numbers)}"})),
        "change nothing": (1, lambda: shop.ask("PATCH", path, json={})),
        "delete": (2, lambda: shop.ask("DELETE", next(paths))),
        "list": (2, lambda: shop.ask("GET", f"/products?limit={next(numbers)}")),
        "list with a filter": (2, lambda: shop.ask("GET", f"/products?price[lt]=-{next(numbers)}")),
        "list of several": (3, lambda: shop.ask("GET", f"/products?price[gt]=-{next(numbers)}&limit=1")),
        "cached list": (1, lambda: shop.ask("GET", "/products")),
        "list if changed": (1, lambda: shop.ask("GET", "/products", headers={"If-None-Match": tags["/products"]})),
        "new events": (2 + SEQUENCER + 1, lambda: shop.path() and shop.ask("GET", "/api/v1/events")),
        "events": (2, lambda: shop.ask("GET", "/api/v1/events")),
    }
    assert {name: steady(ask) for name, (_, ask) in asked.items()} == {
        name: trips for name, (trips, _) in asked.items()
    }


def test_noting_the_use_of_a_key_is_rare(shop: Shop) -> None:
    """Once in a minute for each key, whatever the number of its requests."""
    ask = lambda: shop.ask("GET", "/products")  # noqa: E731

    def ask_later() -> Any:
        shop.clock.now += USE_SECONDS + 1
        return ask()

    assert steady(ask) == 1
    assert steady(ask_later) == 1 + NOTE
    assert ask().trips == 1


def test_related_items_take_one(shop: Shop, wire: Wire) -> None:
    """Of several collections, by several fields: what a response embeds takes one more."""
    wanted = [Related("products", "id", ["x", "y"], 1), Related("products", "tags", ["x"], 10, "me")]
    trips = []
    for _ in range(REPEATED):
        wire.trips()
        shop.store.related([*wanted, Related("users", "status", ["active"], 10)], 1000)
        trips.append(wire.trips())
    assert trips[-3:] == [1, 1, 1]
    shop.store.of_fingerprints([("products", ["2-a", "b"]), ("users", ["2-a"])], 100)
    assert wire.trips() == 1

"""How often a request asks the database, counted on the wire: the real application, with an API key.

Where the database is on another machine, the time of a request is mostly that of its round trips.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper import Application, Items, Resource, exactjson
from restkeeper.config import Config
from restkeeper.features import idempotency
from restkeeper.service import service_of
from restkeeper.storage.base import Store
from restkeeper.storage.feed import EventFilter, find_events, last_event
from restkeeper.storage.postgresql import store
from tests.clock import SetClock
from tests.postgresql.wire import Wire, counted, filled
from tests.shop import create_app
from tests.shop.references import OWNERS, ThingSchema
from tests.shop.references import create_app as create_referring
from tests.things import kept

pytestmark = [pytest.mark.needs("keys"), pytest.mark.needs("idempotency"), pytest.mark.needs("events")]

REPEATED = 20  # psycopg prepares a statement at its sixth use, in each connection
ADMIN_KEY = "an-admin-key-of-enough-characters"


@pytest.fixture
def wire(url: str) -> Iterator[Wire]:
    """A proxy in front of a new database."""
    with counted(url) as made:
        yield made


def opened(app: Application) -> Store:
    """The store of an application, whose pool has all its connections."""
    store: Store = kept(service_of(app).store)
    filled(store)
    return store


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
        opened(self._app)
        self.ask("GET", "/products")

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
def shop(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The work that only some requests do has tests of its own: deleting old responses, and numbering events."""
    monkeypatch.setattr(idempotency, "SWEEP_ONE_IN", 257)
    monkeypatch.setattr(store, "SEQUENCED", 10**9)
    return Shop(wire)


def steady(ask: Callable[[], Any]) -> int:
    """The fewest round trips of many such requests: at some of the first ones its statements were prepared."""
    return min(int(ask().trips) for _ in range(REPEATED))


def test_requests_take_few_round_trips(shop: Shop) -> None:
    """One finds the credential and what is read; the work of a create takes one more, the events of a list none."""
    path = shop.path()
    assert steady(lambda: shop.ask("GET", path)) == 1
    assert steady(lambda: shop.ask("GET", "/products")) == 1
    assert steady(shop.create) <= 3
    stocks = count(1)
    assert steady(lambda: shop.ask("PATCH", path, json={"stock": next(stocks)})) <= 3


@pytest.mark.parametrize("field", ["part_of", "seen_by"])
def test_what_follows_a_deletion_takes_few_round_trips(wire: Wire, field: str) -> None:
    """Of 900 items that go with it, or lose a value: all are locked, changed and recorded together."""
    app = create_referring(Config(database_url=wire.url))
    store, client = opened(app), app.test_client()
    owner = client.post("/owners", json={}).json["id"]
    to = "owners" if field == "seen_by" else "things"
    path = client.post(f"/{to}", json={"owner": owner} if to == "things" else {}).headers["Location"]
    for _ in range(9):
        sent = [{"owner": owner, field: path.rpartition("/")[2]}] * 100
        assert client.post("/things", json=sent).status_code == 200
    last = last_event(store)
    wire.trips()
    assert client.delete(path).status_code == 200
    assert wire.trips() <= 30  # where it asked for each item, there were 2,700
    found = find_events(store, last, EventFilter(("owners", "things")), 1000).events
    kind = "deleted" if to == "things" else "updated"
    assert [each.type for each in found[1:]] == [f"thing.{kind}"] * 900
    assert len({exactjson.loads(each.data)["id"] for each in found}) == 901


def test_a_function_reads_in_one_round_trip_with_the_changes_before(wire: Wire) -> None:
    """What it changes, and what goes with an item, is sent with its next question."""
    parts = Resource("things", "thing", ThingSchema)

    @parts.after("delete")
    def count_down(thing: None, before: dict[str, Any], items: Items) -> None:
        items.change("owners", before["owner"], lambda owner: {**owner, "name": f"{owner['name']}."})

    app = create_app(Config(database_url=wire.url), [OWNERS, parts])
    client = app.test_client()
    opened(app)
    path = client.post("/owners", json={}).headers["Location"]
    sent = {"owner": path.rpartition("/")[2]}
    whole = client.post("/things", json=sent).headers["Location"]
    assert client.post("/things", json=[{**sent, "part_of": whole.rpartition("/")[2]}] * 40).status_code == 200
    wire.trips()
    assert client.delete(whole).status_code == 200
    assert wire.trips() <= 41 + 15
    assert client.get(path).json["name"] == "." * 41

"""A service is created once and has one clock, so that tests can let hours pass in milliseconds."""

import re
from dataclasses import FrozenInstanceError
from email.utils import parsedate_to_datetime

import pytest
from flask.testing import FlaskClient

from restkeeper.cli.deliver import deliverer_of
from restkeeper.config import Config, ConfigError
from restkeeper.features.webhooks.deliverer import Deliverer
from restkeeper.service import make_service, service_of
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.sqlite.location import SqliteMemory
from restkeeper.web.application import Application
from tests import issuer
from tests.clock import SetClock
from tests.shop import RESOURCES, create_app

HOUR = 3600.0
DAY = 24 * HOUR
ADMIN = {"X-API-Key": "an-admin-key-of-enough-characters"}


@pytest.fixture
def clock() -> SetClock:
    return SetClock(issuer.START)


def served(clock: SetClock, **settings: object) -> Application:
    config = Config(**{"auth": "required", "admin_key": ADMIN["X-API-Key"], **settings})  # type: ignore[arg-type]
    return create_app(config, RESOURCES, clock=clock)


def client(clock: SetClock, **settings: object) -> FlaskClient:
    return served(clock, **settings).test_client()


@pytest.mark.needs("events", "keys")
def test_items_and_responses_have_the_time_of_the_clock(clock: SetClock) -> None:
    """Times of items, dates of responses and the log use one clock."""
    service = client(clock)
    made = service.post("/products", json={"name": "Lamp"}, headers=ADMIN)
    assert made.json["created_at"] == "2027-01-15T08:00:00.000000Z"
    clock.now += HOUR
    changed = service.patch(made.headers["Location"], json={"stock": 1}, headers=ADMIN)
    assert changed.json["updated_at"] == "2027-01-15T09:00:00.000000Z"
    assert parsedate_to_datetime(changed.headers["Last-Modified"]).timestamp() == clock.now
    events = service.get("/api/v1/events", headers=ADMIN).json
    assert [event["timestamp"][11:13] for event in events] == ["08", "09"]


def test_the_store_gets_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a file and those of a database server; a backend ignores what it has no use for."""
    given: dict[str, object] = {}

    def store(self: SqliteMemory, collections: object, **settings: object) -> None:
        given.update(settings)

    monkeypatch.setattr(SqliteMemory, "store", store)
    make_service(Config(sqlite_synchronous="normal", min_free_space=1, database_connections=7), RESOURCES, [])
    given.pop("clock")
    assert given == {"synchronous": "normal", "min_free_space": 1, "connections": 7, "creates": True}


@pytest.mark.needs("keys", "limits")
def test_limits_use_the_clock(clock: SetClock) -> None:
    """A used-up window is free again after its minute."""
    service = client(clock, rate_limit="2 per minute")
    assert [service.get("/products", headers=ADMIN).status_code for _ in range(3)] == [200, 200, 429]
    clock.now += 60
    assert service.get("/products", headers=ADMIN).status_code == 200


@pytest.mark.needs("keys")
def test_keys_expire_by_the_clock(clock: SetClock) -> None:
    """A key that expires tomorrow is refused the day after."""
    service = client(clock)
    sent = {"name": "a", "scopes": ["products:read"], "expires_at": "2027-01-16T08:00:00Z"}
    secret = service.post("/api/v1/keys", json=sent, headers=ADMIN).json["secret"]
    assert service.get("/products", headers={"X-API-Key": secret}).status_code == 200
    clock.now += DAY
    assert service.get("/products", headers={"X-API-Key": secret}).status_code == 401


@pytest.mark.needs("idempotency", "keys")
def test_replays_expire_by_the_clock(clock: SetClock) -> None:
    """A request that is repeated after a day, and not before, is processed again."""
    service = client(clock)
    headers = {**ADMIN, "Idempotency-Key": "one"}
    first = service.post("/products", json={"name": "Lamp"}, headers=headers)
    clock.now += DAY
    assert service.post("/products", json={"name": "Lamp"}, headers=headers).data == first.data
    clock.now += 1
    assert service.post("/products", json={"name": "Lamp"}, headers=headers).json["id"] != first.json["id"]


@pytest.mark.needs("keys", "limits")
def test_failures_expire_by_the_clock(clock: SetClock) -> None:
    """An address that has used up its failures may try again a minute later."""
    service = client(clock, failure_limit="1 per minute")
    wrong = {"X-API-Key": "rk_" + "0" * 60}
    assert [service.get("/products", headers=wrong).status_code for _ in range(2)] == [401, 429]
    clock.now += 60
    assert service.get("/products", headers=wrong).status_code == 401


@pytest.mark.needs("events", "keys")
def test_a_wait_for_events_uses_the_clock(clock: SetClock) -> None:
    """Waiting twenty seconds without events takes no real time."""
    service = client(clock)
    assert service.get("/api/v1/events?wait=20", headers=ADMIN).json == []
    assert 20 <= clock.now - issuer.START < 21


@pytest.mark.needs("keys")
def test_deliveries_use_the_clock(clock: SetClock) -> None:
    """The deliverer of a service has its clock."""
    deliverer: Deliverer = deliverer_of(service_of(served(clock)))
    assert deliverer._now() == clock.now
    clock.now += 1
    assert (deliverer._now(), deliverer._elapsed()) == (clock.now, clock.now)
    deliverer.close()


@pytest.mark.needs("keys", "limits")
def test_an_unknown_caller_is_limited_by_address(monkeypatch: pytest.MonkeyPatch, clock: SetClock) -> None:
    """While the store fails, a request with a key returns 503; its address is still limited."""
    service = client(clock, rate_limit="1 per minute")

    def fail(*_: object) -> None:
        raise StoreUnavailable("busy")

    for name in ("read", "look_up"):
        monkeypatch.setattr(service_of(service.application).store, name, fail)
    headers = {"X-API-Key": "rk_0123456789abcdef_x"}
    assert [service.get("/products", headers=headers).status_code for _ in range(2)] == [503, 429]


def test_a_service_is_immutable() -> None:
    """No user of a service can change it for others."""
    service = make_service(Config(), RESOURCES, ())
    with pytest.raises(FrozenInstanceError):
        service.config = Config()  # type: ignore[misc]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "mysql://x",
        "memory",
        "memory://x",
        "sqlite:///",
        "sqlite://a.db",
        "sqlite:///:memory:",
        "sqlite:///file:a",
        "sqlite:///a.db?mode=ro",
    ],
)
def test_an_unknown_kind_of_store_is_refused(url: str) -> None:
    """The message has the setting, its value and the valid forms."""
    allowed = (
        "memory:// or sqlite:///FILE (four slashes for an absolute path, no ?parameters) or "
        "postgresql://USER:PASSWORD@HOST/DATABASE"
    )
    with pytest.raises(ConfigError, match=re.escape(f"DATABASE_URL='{url}': must be {allowed}") + "$"):
        make_service(Config(database_url=url), (), ())


def test_a_store_that_cannot_be_opened_names_the_setting() -> None:
    """The message has DATABASE_URL."""
    with pytest.raises(StoreUnavailable, match="^DATABASE_URL='sqlite:////no/such/folder/a.db': "):
        make_service(Config(database_url="sqlite:////no/such/folder/a.db"), (), ()).open_store()

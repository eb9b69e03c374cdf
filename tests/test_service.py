"""A service is created once and has one clock, so that tests can let hours pass in milliseconds."""

import re
from email.utils import parsedate_to_datetime

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config, ConfigError
from restkeeper.service import make_service, service_of
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.web.application import Application
from tests import issuer
from tests.clock import SetClock
from tests.shop import RESOURCES, create_app

HOUR = 3600.0
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


@pytest.mark.needs("events", "keys")
def test_a_wait_for_events_uses_the_clock(clock: SetClock) -> None:
    """Waiting twenty seconds without events takes no real time."""
    service = client(clock)
    assert service.get("/api/v1/events?wait=20", headers=ADMIN).json == []
    assert 20 <= clock.now - issuer.START < 21


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

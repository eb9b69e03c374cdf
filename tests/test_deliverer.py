"""The webhook worker: what it sends, in which order, and when it retries; with a clock and endpoints of the test."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import orjson
import pytest
from flask.testing import FlaskClient

from restkeeper.clock import rfc3339
from restkeeper.config import Config
from restkeeper.features.events.types import event_collections
from restkeeper.features.webhooks import deliverer as module
from restkeeper.features.webhooks.deliverer import (
    AT_ONCE,
    ENDPOINT_AT_ONCE,
    GIVE_UP_SECONDS,
    LEASE_SECONDS,
    QUEUED,
    Deliverer,
)
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.storage.transactions import Event
from restkeeper.web.application import Application
from tests.clock import SetClock
from tests.waiting import SECONDS, join, until

pytestmark = pytest.mark.needs("webhooks")

OK = DeliveryResult(200, "thanks", None)
BROKEN = DeliveryResult(500, "no", None)
TIMEOUT = 15.0
UNWANTED = Event("product.created", "products", "x", rfc3339(0), b"{}")
RETRIES = Config().webhook_retries


class Endpoints:
    """All endpoints of a test: each returns what the test sets, and records the requests."""

    def __init__(self) -> None:
        self.responses: dict[str, DeliveryResult | Callable[[dict[str, Any]], DeliveryResult]] = {}
        self.got: list[tuple[str, str, dict[str, Any]]] = []  # URL, webhook-id, content

    def __call__(self, url: str, headers: Any, body: bytes) -> DeliveryResult:
        content = orjson.loads(body)
        self.got.append((url, headers["webhook-id"], content))
        response = self.responses.get(url, OK)
        return response if isinstance(response, DeliveryResult) else response(content)

    def names(self, url: str = "https://a.example/") -> list[str]:
        return [content["data"]["name"] for to, _, content in self.got if to == url and "name" in content["data"]]


class Shop:
    """A service with a worker, and the endpoints and the clock of the test."""

    def __init__(self, app: Application, client: FlaskClient) -> None:
        self.service = app.extensions["restkeeper"]
        self.client, self.store = client, self.service.store
        self.endpoints, self.clock = Endpoints(), SetClock(1_800_000_000.0)
        self.worker = self.another_worker()

    def another_worker(self, **options: Any) -> Deliverer:
        """A worker; close it at the end."""
        return Deliverer(
            self.store,
            self.service.of_features["webhooks"],
            self.endpoints,
            event_collections(self.service.resources),
            timeout=TIMEOUT,
            retries=RETRIES,
            now=self.clock.time,
            elapsed=self.clock.monotonic,
            chance=lambda: 0.0,
            **options,
        )

    def deliver_all(self) -> None:
        while self.worker.deliver_once():
            pass

    @contextmanager
    def running(self, *workers: Deliverer) -> Iterator[None]:
        """Run workers in threads meanwhile."""
        done = threading.Event()
        threads = [threading.Thread(target=each.run, args=(done.is_set,)) for each in workers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            done.set()
            join(*threads)

    def subscribe(self, url: str = "https://a.example/", **more: Any) -> dict[str, Any]:
        response = self.client.post("/api/v1/webhooks", json={"url": url, **more})
        assert response.status_code == 200, response.text
        made: dict[str, Any] = response.json
        return made

    def make(self, name: str = "Lamp") -> dict[str, Any]:
        made: dict[str, Any] = self.client.post("/products", json={"name": name}).json
        return made

    def log(self, webhook: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get(f"/api/v1/webhooks/{webhook['id']}/deliveries").json
        return found

    def status(self, webhook: dict[str, Any]) -> str:
        return str(self.client.get(f"/api/v1/webhooks/{webhook['id']}").json["status"])


@pytest.fixture
def shop(app: Application, client: FlaskClient) -> Iterator[Shop]:
    made = Shop(app, client)
    yield made
    made.worker.close()


# Sending


def test_each_change_is_sent_to_its_subscribers(shop: Shop) -> None:
    """Each webhook gets the events after its creation, by type; the payload is the event of the feed."""
    shop.make("before")
    shop.subscribe()
    shop.subscribe("https://b.example/", types=["user.*", "product.deleted"])
    item = shop.make()
    shop.client.post("/users", json={"email": "a@example.org", "name": "Ada"})
    shop.client.delete(f"/products/{item['id']}")
    shop.deliver_all()
    types = lambda url: [content["type"] for to, _, content in shop.endpoints.got if to == url]  # noqa: E731
    assert sorted(types("https://a.example/")) == ["product.created", "product.deleted", "user.created"]
    assert sorted(types("https://b.example/")) == ["product.deleted", "user.created"]
    feed = {event["id"]: event for event in shop.client.get("/api/v1/events").json}
    assert all(feed[id] == content for _, id, content in shop.endpoints.got)


@pytest.mark.sqlite
def test_a_full_disk_stops_no_delivery(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.subscribe()
    shop.make("a")
    monkeypatch.setattr(shop.store, "_free_space", lambda: 0)
    monkeypatch.setattr(shop.store, "_min_free_space", 1)
    monkeypatch.setattr(shop.store, "_roomy_until", 0.0)
    assert shop.client.post("/products", json={"name": "b"}).status_code == 507
    shop.worker.deliver_once()
    assert shop.endpoints.names() == ["a"]


def test_a_too_large_event_is_sent_without_its_item(shop: Shop) -> None:
    """A payload beyond 20,000 bytes is replaced by one with the fields that are needed to fetch the item."""
    shop.subscribe()
    item = shop.client.post("/products", json={"name": "x", "attributes": {"text": "y" * 20_000}}).json
    shop.worker.deliver_once()
    ((_, _, content),) = shop.endpoints.got
    assert content["data"] == {name: item[name] for name in ("id", "version", "updated_at")}


def test_changes_of_a_webhook_apply_to_the_next_delivery(shop: Shop) -> None:
    """Another URL, other types, a pause and its end, the deletion."""
    webhook = shop.subscribe()
    path = f"/api/v1/webhooks/{webhook['id']}"
    shop.make("one")
    shop.client.patch(path, json={"url": "https://b.example/"})
    shop.worker.deliver_once()
    shop.client.patch(path, json={"status": "paused"})
    shop.make("two")
    assert shop.worker.deliver_once() == 0
    shop.client.patch(path, json={"status": "active", "types": ["product.*"]})
    shop.worker.deliver_once()
    assert shop.endpoints.names("https://b.example/") == ["one", "two"], "what happened during a pause is not lost"
    shop.make("three")
    shop.client.delete(path)
    assert shop.worker.deliver_once() == 0 and len(shop.endpoints.got) == 2


def test_a_matching_event_is_found_behind_many_others(shop: Shop) -> None:
    shop.subscribe(types=["user.*"])
    record = shop.store.write(lambda transaction: [transaction.add_event(UNWANTED) for _ in range(3 * QUEUED)])
    shop.client.post("/users", json={"email": "a@example.org", "name": "Ada"})
    assert len(record) == 3 * QUEUED and shop.worker.deliver_once() == 1
    assert shop.endpoints.names() == ["Ada"]


def test_a_thread_that_cannot_start_loses_no_delivery(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.subscribe()
    shop.make()

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(module.ThreadPoolExecutor, "submit", refuse)
        assert shop.worker.deliver_once() == 1 and shop.endpoints.got == []
    shop.clock.now += TIMEOUT + LEASE_SECONDS
    assert shop.worker.deliver_once() == 1 and shop.endpoints.names() == ["Lamp"]


# Retries


def test_retries_follow_the_schedule(shop: Shop) -> None:
    """After each failure there is the next delay, with the same id; after the last one the webhook is disabled."""
    webhook = shop.subscribe()
    shop.endpoints.responses["https://a.example/"] = BROKEN
    shop.make()
    assert shop.worker.deliver_once() == 1
    for tries, delay in enumerate(RETRIES, start=1):
        (entry,) = shop.log(webhook)
        assert (entry["state"], entry["attempts"], entry["response_status"]) == ("pending", tries, 500)
        assert entry["next_attempt_at"] == rfc3339(shop.clock.now + delay)
        shop.clock.now += delay - 1
        assert shop.worker.deliver_once() == 0
        shop.clock.now += 1
        assert shop.status(webhook) == "active"
        assert shop.worker.deliver_once() == 1
    assert len({id for _, id, _ in shop.endpoints.got}) == 1 and len(shop.endpoints.got) == len(RETRIES) + 1
    (entry,) = shop.log(webhook)
    assert (entry["state"], entry["next_attempt_at"], shop.status(webhook)) == ("failed", None, "disabled")
    shop.clock.now += 1e6
    assert shop.worker.deliver_once() == 0


def test_a_disabled_webhook_is_an_event(shop: Shop) -> None:
    """410 disables the webhook at once; the event with the reason is in the feed and sent to other webhooks."""
    gone = shop.subscribe()
    shop.subscribe("https://b.example/", types=["webhook.disabled"])
    shop.endpoints.responses["https://a.example/"] = DeliveryResult(410, "", None)
    shop.make()
    shop.worker.deliver_once()
    assert shop.status(gone) == "disabled"
    event = shop.client.get("/api/v1/events").json[-1]
    assert (event["type"], event["data"]["id"]) == ("webhook.disabled", gone["id"])
    assert event["data"]["reason"] == "410 Gone"
    shop.worker.deliver_once()
    assert shop.endpoints.got[-1][0] == "https://b.example/" and shop.endpoints.got[-1][2] == event


def test_a_webhook_that_is_resumed_continues(shop: Shop) -> None:
    """Events from the time while it was disabled are delivered then."""
    webhook = shop.subscribe()
    shop.endpoints.responses["https://a.example/"] = DeliveryResult(410, "", None)
    shop.make("lost")
    shop.worker.deliver_once()
    shop.make("kept")
    shop.endpoints.responses.clear()
    assert shop.client.patch(f"/api/v1/webhooks/{webhook['id']}", json={"status": "active"}).status_code == 200
    shop.deliver_all()
    assert shop.endpoints.names() == ["lost", "kept"]


def test_a_changed_url_is_tried_at_once(shop: Shop) -> None:
    """Waiting deliveries do not wait for the schedule any more."""
    webhook = shop.subscribe("https://wrong.example/")
    shop.endpoints.responses["https://wrong.example/"] = DeliveryResult(503, "", 3600.0)
    shop.make()
    assert [shop.worker.deliver_once(), shop.worker.deliver_once()] == [1, 0]
    shop.client.patch(f"/api/v1/webhooks/{webhook['id']}", json={"url": "https://a.example/"})
    assert shop.worker.deliver_once() == 1 and shop.endpoints.names() == ["Lamp"]


def test_a_worker_does_not_send_after_its_lease(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was suspended until its lease ended leaves the delivery to others."""
    shop.subscribe()
    shop.make()
    submit = module.ThreadPoolExecutor.submit

    def late(self: Any, *arguments: Any) -> Any:
        shop.clock.now += LEASE_SECONDS + 1
        return submit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module.ThreadPoolExecutor, "submit", late)
        shop.worker.deliver_once()
    assert shop.endpoints.got == []
    shop.clock.now += TIMEOUT
    assert shop.worker.deliver_once() == 1


# Order and shares


def test_one_endpoint_does_not_delay_another(shop: Shop) -> None:
    """While one endpoint holds its connections open without a response, the other gets all its deliveries."""
    shop.subscribe("https://hanging.example/")
    shop.subscribe()
    release = threading.Event()

    def hang(content: dict[str, Any]) -> DeliveryResult:
        release.wait(SECONDS)
        return BROKEN

    shop.endpoints.responses["https://hanging.example/"] = hang
    for n in range(ENDPOINT_AT_ONCE * 3):
        shop.make(str(n))
    with shop.running(shop.worker):
        try:
            until(lambda: len(shop.endpoints.names()) >= ENDPOINT_AT_ONCE * 3)
            until(lambda: len(shop.endpoints.names("https://hanging.example/")) >= ENDPOINT_AT_ONCE)
            assert len(shop.endpoints.names("https://hanging.example/")) == ENDPOINT_AT_ONCE
        finally:
            release.set()


@pytest.mark.parametrize(("at_once", "sent"), [(AT_ONCE, 2 * ENDPOINT_AT_ONCE), (12, 12)])
def test_each_endpoint_has_a_fixed_share(shop: Shop, at_once: int, sent: int) -> None:
    """At most so many deliveries are under way to one endpoint, and to all of them together: a batch has no more."""
    for url in ("https://a.example/", "https://b.example/"):
        shop.subscribe(url)
        shop.endpoints.responses[url] = BROKEN
    for n in range(20):
        shop.make(str(n))
    with closing(shop.another_worker(at_once=at_once)) as worker:
        assert worker.deliver_once() == len(shop.endpoints.got) == sent


# Manual deliveries


def test_a_ping_is_sent_once(shop: Shop) -> None:
    """Also to a paused webhook; its delivery has the result, and it is not retried."""
    webhook = shop.subscribe(status="paused")
    other = shop.subscribe("https://b.example/")
    shop.make()
    shop.endpoints.responses["https://a.example/"] = BROKEN
    ping = shop.client.post(f"/api/v1/webhooks/{webhook['id']}/ping").json
    assert (ping["type"], ping["state"], ping["attempts"]) == ("webhook.ping", "pending", 0)
    shop.deliver_all()
    assert [content["type"] for url, _, content in shop.endpoints.got if "a.example" in url] == ["webhook.ping"]
    entry = shop.client.get(f"/api/v1/webhooks/{webhook['id']}/deliveries/{ping['id']}").json
    assert (entry["state"], entry["response_status"], entry["response_excerpt"]) == ("failed", 500, "no")
    assert "webhook.ping" not in [each["type"] for each in shop.log(other)]
    assert "webhook.ping" not in [event["type"] for event in shop.client.get("/api/v1/events").json]
    assert shop.status(webhook) == "paused"


@pytest.mark.needs("idempotency")
def test_a_delivery_can_be_repeated(shop: Shop) -> None:
    webhook = shop.subscribe()
    shop.make()
    shop.worker.deliver_once()
    (first,) = shop.log(webhook)
    path = f"/api/v1/webhooks/{webhook['id']}/deliveries/{first['id']}/redeliver"
    key_header = {"Idempotency-Key": "again"}
    again = shop.client.post(path, headers=key_header)
    assert shop.client.post(path, headers=key_header).data == again.data, "requested twice with one key, sent once"
    shop.worker.deliver_once()
    assert [id for _, id, _ in shop.endpoints.got] == [first["event"]] * 2
    assert [entry["state"] for entry in shop.log(webhook)] == ["delivered"] * 2
    assert again.json["id"] != first["id"] and again.json["event"] == first["event"]


# Failures


def test_a_worker_exits_if_its_store_was_replaced(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute with another file it exits with the reason, so that it is started with that file."""

    def refuse(store: Any, active: Any, now: float) -> Any:
        shop.clock.now += 20
        raise module.StoreGone("another file has its name")

    monkeypatch.setattr(module, "find_subscriptions", refuse)
    began = shop.clock.now
    with pytest.raises(module.StoreGone, match="another file"):
        shop.worker.run(lambda: False)
    assert shop.clock.now - began == 20 + GIVE_UP_SECONDS + 20


def test_a_worker_waits_for_a_locked_store(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As long as necessary, with one log line at the beginning and one at the end; then everything is delivered."""
    shop.subscribe()
    shop.make()
    subscriptions, refused = module.find_subscriptions, []

    def refuse(store: Any, active: Any, now: float) -> Any:
        if len(refused) < 100:
            shop.clock.now += 20
            refused.append(module.StoreGone("away") if len(refused) % 2 else module.StoreUnavailable("locked"))
            raise refused[-1]
        return subscriptions(store, active, now)

    monkeypatch.setattr(module, "find_subscriptions", refuse)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    shop.worker.run(lambda: bool(shop.endpoints.got))
    assert shop.endpoints.names() == ["Lamp"]
    assert [each.getMessage() for each in caplog.records] == [
        "deliveries wait: locked",
        f"deliveries continue after {99 * 20} s",
    ]


def test_a_busy_store_loses_no_result(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the worker stops then."""
    webhook, write, refused = shop.subscribe(), shop.store.write, threading.Event()

    def refuse(work: Any, **options: Any) -> Any:
        if shop.endpoints.got and not refused.is_set():  # the first write after a request to an endpoint
            refused.set()
            raise module.StoreUnavailable("busy")
        return write(work, **options)

    monkeypatch.setattr(shop.store, "write", refuse)
    shop.make()
    shop.worker.run(refused.is_set)
    assert [entry["state"] for entry in shop.log(webhook)] == ["delivered"] and len(shop.endpoints.got) == 1


def test_an_unexpected_error_affects_one_delivery(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.subscribe()
    shop.make("bad")
    shop.make("good")
    faults = [RuntimeError("a fault of ours")]

    def response(content: dict[str, Any]) -> DeliveryResult:
        if content["data"]["name"] == "bad" and faults:
            raise faults.pop()
        return OK

    shop.endpoints.responses["https://a.example/"] = response
    shop.deliver_all()
    assert "a fault of ours" in caplog.text and sorted(shop.endpoints.names()) == ["bad", "good"]
    shop.clock.now += TIMEOUT + LEASE_SECONDS
    shop.worker.deliver_once()
    assert sorted(shop.endpoints.names()) == ["bad", "bad", "good"]

"""The webhook worker: what it sends, in which order, and when it retries; with a clock and endpoints of the test."""

import threading
from collections.abc import Callable, Iterator
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
from restkeeper.storage.contract import Store
from restkeeper.storage.outbox import Attempt, Delivery, Event, EventFilter, StoredEvent
from restkeeper.web.application import Application
from tests.waiting import join, until

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
        self.headers: list[dict[str, str]] = []

    def __call__(self, url: str, headers: Any, body: bytes) -> DeliveryResult:
        content = orjson.loads(body)
        self.got.append((url, headers["webhook-id"], content))
        self.headers.append(dict(headers))
        response = self.responses.get(url, OK)
        return response if isinstance(response, DeliveryResult) else response(content)

    def names(self, url: str = "https://a.example/") -> list[str]:
        return [content["data"]["name"] for to, _, content in self.got if to == url and "name" in content["data"]]


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def store(app: Application) -> Store:
    found: Store = app.extensions["restkeeper"].store
    return found


@pytest.fixture
def endpoints() -> Endpoints:
    return Endpoints()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worker(app: Application, endpoints: Endpoints, clock: Clock) -> Iterator[Deliverer]:
    made = another(app, endpoints, clock)
    yield made
    made.close()


def another(app: Application, endpoints: Endpoints, clock: Clock) -> Deliverer:
    service = app.extensions["restkeeper"]
    names = event_collections(service.resources)
    return Deliverer(
        service.store,
        endpoints,
        names,
        timeout=TIMEOUT,
        retries=RETRIES,
        now=clock,
        elapsed=clock,
        chance=lambda: 0.0,
    )


def subscribe(client: FlaskClient, url: str = "https://a.example/", **more: Any) -> dict[str, Any]:
    response = client.post("/api/v1/webhooks", json={"url": url, **more})
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json
    return made


def make(client: FlaskClient, name: str = "Lamp") -> dict[str, Any]:
    made: dict[str, Any] = client.post("/products", json={"name": name}).json
    return made


def log(client: FlaskClient, webhook: dict[str, Any], query: str = "") -> list[dict[str, Any]]:
    response = client.get(f"/api/v1/webhooks/{webhook['id']}/deliveries{query}")
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json
    return found


def status(client: FlaskClient, webhook: dict[str, Any]) -> str:
    return str(client.get(f"/api/v1/webhooks/{webhook['id']}").json["status"])


class TestSending:
    def test_each_change_is_sent_to_its_subscribers(
        self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints
    ) -> None:
        """Each webhook gets the events after its creation, by type; the payload is the event of the feed."""
        make(client, "before")
        subscribe(client)
        subscribe(client, "https://b.example/", types=["user.*", "product.deleted"])
        item = make(client)
        client.post("/users", json={"email": "a@example.org", "name": "Ada"})
        client.delete(f"/products/{item['id']}")
        while worker.deliver_once():
            pass
        types = lambda url: [content["type"] for to, _, content in endpoints.got if to == url]  # noqa: E731
        assert sorted(types("https://a.example/")) == ["product.created", "product.deleted", "user.created"]
        assert sorted(types("https://b.example/")) == ["product.deleted", "user.created"]
        feed = {event["id"]: event for event in client.get("/api/v1/events").json}
        assert all(feed[id] == content for _, id, content in endpoints.got)

    def test_nothing_is_sent_twice(
        self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints, clock: Clock
    ) -> None:
        """A delivery that arrived is never sent again, whatever time passes."""
        webhook = subscribe(client)
        make(client)
        assert [worker.deliver_once() for _ in range(3)] == [1, 0, 0]
        clock.time += 1e6
        assert worker.deliver_once() == 0 and len(endpoints.got) == 1
        (entry,) = log(client, webhook)
        assert (entry["state"], entry["attempts"], entry["response_status"], entry["response_excerpt"]) == (
            "delivered",
            1,
            200,
            "thanks",
        )

    def test_several_workers_share_the_deliveries(
        self, app: Application, client: FlaskClient, endpoints: Endpoints, clock: Clock
    ) -> None:
        """Each delivery is sent by one worker, and all are sent."""
        subscribe(client)
        for n in range(40):
            make(client, str(n))
        workers = [another(app, endpoints, clock) for _ in range(4)]
        done = threading.Event()
        threads = [threading.Thread(target=each.run, args=(done.is_set,)) for each in workers]
        for thread in threads:
            thread.start()
        try:
            until(lambda: len(endpoints.got) >= 40)
        finally:
            done.set()
            for thread, each in zip(threads, workers, strict=True):
                join(thread)
                each.close()
        assert sorted(endpoints.names(), key=int) == [str(n) for n in range(40)]

    def test_its_threads_end_with_it(
        self, app: Application, client: FlaskClient, endpoints: Endpoints, clock: Clock
    ) -> None:
        """They are named after their work, and end when it is closed."""
        subscribe(client)
        make(client, "a")
        worker = another(app, endpoints, clock)
        before = set(threading.enumerate())
        worker.deliver_once()
        own = set(threading.enumerate()) - before
        assert own and all(thread.name.startswith("deliver") for thread in own)
        worker.close()
        assert not own & set(threading.enumerate())

    @pytest.mark.sqlite
    def test_a_full_disk_stops_no_delivery(
        self,
        client: FlaskClient,
        worker: Deliverer,
        endpoints: Endpoints,
        store: Store,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Results of deliveries are stored in the reserved space."""
        subscribe(client)
        make(client, "a")
        monkeypatch.setattr(store, "_free_space", lambda: 0)
        monkeypatch.setattr(store, "_min_free_space", 1)
        assert client.post("/products", json={"name": "b"}).status_code == 507
        worker.deliver_once()
        assert endpoints.names() == ["a"]

    def test_a_too_large_event_is_sent_without_its_item(
        self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints
    ) -> None:
        """A payload beyond 20,000 bytes is replaced by one with the fields that are needed to fetch the item."""
        subscribe(client)
        item = client.post("/products", json={"name": "x", "attributes": {"text": "y" * 20_000}}).json
        worker.deliver_once()
        ((_, _, content),) = endpoints.got
        assert content["data"] == {name: item[name] for name in ("id", "version", "updated_at")}

    def test_changes_of_a_webhook_apply_to_the_next_delivery(
        self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints
    ) -> None:
        """Another URL, other types, a pause and its end, the deletion."""
        webhook = subscribe(client)
        path = f"/api/v1/webhooks/{webhook['id']}"
        make(client, "one")
        client.patch(path, json={"url": "https://b.example/"})
        worker.deliver_once()
        client.patch(path, json={"status": "paused"})
        make(client, "two")
        assert worker.deliver_once() == 0
        client.patch(path, json={"status": "active", "types": ["product.*"]})
        worker.deliver_once()
        assert endpoints.names("https://b.example/") == ["one", "two"], "what happened during a pause is not lost"
        make(client, "three")
        client.delete(path)
        assert worker.deliver_once() == 0 and len(endpoints.got) == 2

    def test_a_matching_event_is_found_behind_many_others(
        self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints, store: Store
    ) -> None:
        """However many events must be skipped."""
        subscribe(client, types=["user.*"])
        record = store.write(lambda transaction: [transaction.record(UNWANTED) for _ in range(3 * QUEUED)])
        client.post("/users", json={"email": "a@example.org", "name": "Ada"})
        assert len(record) == 3 * QUEUED and worker.deliver_once() == 1
        assert endpoints.names() == ["Ada"]

    def test_results_are_settled_in_the_order_of_webhooks(
        self, worker: Deliverer, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two workers that settle results of the same webhooks then do not wait for each other in a circle."""
        settled: list[int] = []
        monkeypatch.setattr(store.write(type), "settle", lambda self, each: settled.append(each.delivery.id))
        event = StoredEvent("evt_00000000_1", "product.created", rfc3339(0), b"{}")
        deliveries = [Delivery(n, 1, webhook, False, 0, event) for n, webhook in enumerate("bab")]
        tried = [Attempt(each, 1.0, True, 200, 0.1, "") for each in deliveries]
        store.write(lambda transaction: worker._settle(transaction, tried, 1.0))
        assert settled == [1, 0, 2]

    def test_a_thread_that_cannot_start_loses_no_delivery(
        self,
        client: FlaskClient,
        worker: Deliverer,
        endpoints: Endpoints,
        clock: Clock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """It is sent after its lease has ended."""
        subscribe(client)
        make(client)

        def refuse(*_: Any) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(module.ThreadPoolExecutor, "submit", refuse)
            assert worker.deliver_once() == 1 and endpoints.got == []
        clock.time += TIMEOUT + LEASE_SECONDS
        assert worker.deliver_once() == 1 and endpoints.names() == ["Lamp"]


class TestTryingAgain:
    def test_retries_follow_the_schedule(
        self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints, clock: Clock
    ) -> None:
        """After each failure there is the next delay, with the same id; after the last one the webhook is disabled."""
        webhook = subscribe(client)
        endpoints.responses["https://a.example/"] = BROKEN
        make(client)
        assert worker.deliver_once() == 1
        for tries, delay in enumerate(RETRIES, start=1):
            (entry,) = log(client, webhook)
            assert (entry["state"], entry["attempts"], entry["response_status"]) == ("pending", tries, 500)
            assert entry["next_attempt_at"] == rfc3339(clock.time + delay)
            clock.time += delay - 1
            assert worker.deliver_once() == 0
            clock.time += 1
            assert status(client, webhook) == "active"
            assert worker.deliver_once() == 1
        assert len({id for _, id, _ in endpoints.got}) == 1 and len(endpoints.got) == len(RETRIES) + 1
        (entry,) = log(client, webhook)
        assert (entry["state"], entry["next_attempt_at"], status(client, webhook)) == ("failed", None, "disabled")
        clock.time += 1e6
        assert worker.deliver_once() == 0

    def test_a_disabled_webhook_is_an_event(self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints) -> None:
        """410 disables the webhook at once; the event with the reason is in the feed and sent to other webhooks."""
        gone = subscribe(client)
        subscribe(client, "https://b.example/", types=["webhook.disabled"])
        endpoints.responses["https://a.example/"] = DeliveryResult(410, "", None)
        make(client)
        worker.deliver_once()
        assert status(client, gone) == "disabled"
        event = client.get("/api/v1/events").json[-1]
        assert (event["type"], event["data"]["id"], event["data"]["reason"]) == (
            "webhook.disabled",
            gone["id"],
            "410 Gone",
        )
        worker.deliver_once()
        assert endpoints.got[-1][0] == "https://b.example/" and endpoints.got[-1][2] == event

    def test_a_webhook_that_is_resumed_continues(
        self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints
    ) -> None:
        """Events from the time while it was disabled are delivered then."""
        webhook = subscribe(client)
        endpoints.responses["https://a.example/"] = DeliveryResult(410, "", None)
        make(client, "lost")
        worker.deliver_once()
        make(client, "kept")
        endpoints.responses.clear()
        assert client.patch(f"/api/v1/webhooks/{webhook['id']}", json={"status": "active"}).status_code == 200
        while worker.deliver_once():
            pass
        assert endpoints.names() == ["lost", "kept"]

    def test_a_changed_url_is_tried_at_once(self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints) -> None:
        """Waiting deliveries do not wait for the schedule any more."""
        webhook = subscribe(client, "https://wrong.example/")
        endpoints.responses["https://wrong.example/"] = DeliveryResult(503, "", 3600.0)
        make(client)
        assert [worker.deliver_once(), worker.deliver_once()] == [1, 0]
        client.patch(f"/api/v1/webhooks/{webhook['id']}", json={"url": "https://a.example/"})
        assert worker.deliver_once() == 1 and endpoints.names() == ["Lamp"]

    def test_retry_after_is_respected(
        self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints, clock: Clock
    ) -> None:
        """Nothing is sent to an endpoint before its Retry-After has passed."""
        webhook = subscribe(client)
        endpoints.responses["https://a.example/"] = DeliveryResult(429, "slowly", 90.0)
        make(client, "one")
        worker.deliver_once()
        endpoints.responses.clear()
        make(client, "two")
        clock.time += 89
        assert worker.deliver_once() == 0
        assert log(client, webhook)[-1]["next_attempt_at"] == rfc3339(clock.time + 1)
        clock.time += 1
        while worker.deliver_once():
            pass
        assert sorted(endpoints.names()) == ["one", "one", "two"]

    def test_another_worker_sends_an_abandoned_delivery(
        self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints, clock: Clock, store: Store
    ) -> None:
        """A delivery that was leased and never settled is sent with the same id after the lease has ended."""
        webhook = subscribe(client)
        make(client)

        def lease(transaction: Any) -> list[Delivery]:
            transaction.queue(webhook["id"], EventFilter(("products",)), clock(), 10)
            found: list[Delivery] = transaction.lease(webhook["id"], clock(), clock() + TIMEOUT + LEASE_SECONDS, 10)
            return found

        store.last_event()  # the event has its position
        (dead,) = store.write(lease)
        clock.time += TIMEOUT + LEASE_SECONDS - 1
        assert worker.deliver_once() == 0
        clock.time += 1
        assert worker.deliver_once() == 1
        assert [id for _, id, _ in endpoints.got] == [dead.event.id]

    def test_a_worker_does_not_send_after_its_lease(
        self,
        client: FlaskClient,
        worker: Deliverer,
        endpoints: Endpoints,
        clock: Clock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A worker that was suspended until its lease ended leaves the delivery to others."""
        subscribe(client)
        make(client)
        submit = module.ThreadPoolExecutor.submit

        def late(self: Any, *arguments: Any) -> Any:
            clock.time += LEASE_SECONDS + 1
            return submit(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(module.ThreadPoolExecutor, "submit", late)
            worker.deliver_once()
        assert endpoints.got == []
        clock.time += TIMEOUT
        assert worker.deliver_once() == 1


class TestOrder:
    def test_the_events_of_an_item_arrive_in_order(
        self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints, clock: Clock
    ) -> None:
        """Also when the first of them fails for a while; other items do not wait for it."""
        subscribe(client)
        item, other = make(client), make(client)
        for stock in (1, 2):
            client.patch(f"/products/{item['id']}", json={"stock": stock})
        failing = {"left": 2}

        def response(content: dict[str, Any]) -> DeliveryResult:
            if content["data"]["id"] == item["id"] and failing["left"]:
                failing["left"] -= 1
                return BROKEN
            return OK

        endpoints.responses["https://a.example/"] = response
        for _ in range(6):
            worker.deliver_once()
            clock.time += 300
        versions = lambda id: [c["data"]["version"] for _, _, c in endpoints.got if c["data"]["id"] == id]  # noqa: E731
        assert versions(item["id"]) == [1, 1, 1, 2, 3] and versions(other["id"]) == [1]

    def test_one_endpoint_does_not_delay_another(
        self, app: Application, client: FlaskClient, endpoints: Endpoints, clock: Clock
    ) -> None:
        """While one endpoint holds its connections open without a response, the other gets all its deliveries."""
        subscribe(client, "https://hanging.example/")
        subscribe(client)
        release = threading.Event()

        def hang(content: dict[str, Any]) -> DeliveryResult:
            release.wait(60)
            return BROKEN

        endpoints.responses["https://hanging.example/"] = hang
        for n in range(ENDPOINT_AT_ONCE * 3):
            make(client, str(n))
        worker, done = another(app, endpoints, clock), threading.Event()
        thread = threading.Thread(target=worker.run, args=(done.is_set,))
        thread.start()
        try:
            until(lambda: len(endpoints.names()) >= ENDPOINT_AT_ONCE * 3)
            assert len(endpoints.names("https://hanging.example/")) == ENDPOINT_AT_ONCE
        finally:
            done.set()
            release.set()
            join(thread)
            worker.close()

    @pytest.mark.parametrize(("at_once", "sent"), [(AT_ONCE, 2 * ENDPOINT_AT_ONCE), (12, 12)])
    def test_each_endpoint_has_a_fixed_share(
        self,
        client: FlaskClient,
        worker: Deliverer,
        endpoints: Endpoints,
        monkeypatch: pytest.MonkeyPatch,
        at_once: int,
        sent: int,
    ) -> None:
        """At most so many deliveries are under way to one endpoint, and to all of them together."""
        monkeypatch.setattr(module, "AT_ONCE", at_once)
        for url in ("https://a.example/", "https://b.example/"):
            subscribe(client, url)
            endpoints.responses[url] = BROKEN
        for n in range(20):
            make(client, str(n))
        assert worker.deliver_once() == sent


class TestManualDeliveries:
    def test_a_ping_is_sent_once(
        self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints, clock: Clock
    ) -> None:
        """Also to a paused webhook; its delivery has the result, and it is not retried."""
        webhook = subscribe(client, status="paused")
        other = subscribe(client, "https://b.example/")
        make(client)
        endpoints.responses["https://a.example/"] = BROKEN
        ping = client.post(f"/api/v1/webhooks/{webhook['id']}/ping").json
        assert (ping["type"], ping["state"], ping["attempts"]) == ("webhook.ping", "pending", 0)
        while worker.deliver_once():
            pass
        assert [content["type"] for url, _, content in endpoints.got if "a.example" in url] == ["webhook.ping"]
        entry = client.get(f"/api/v1/webhooks/{webhook['id']}/deliveries/{ping['id']}").json
        assert (entry["state"], entry["response_status"], entry["response_excerpt"]) == ("failed", 500, "no")
        assert "webhook.ping" not in [each["type"] for each in log(client, other)]
        assert "webhook.ping" not in [event["type"] for event in client.get("/api/v1/events").json]
        assert status(client, webhook) == "paused"

    @pytest.mark.needs("idempotency")
    def test_a_delivery_can_be_repeated(self, client: FlaskClient, worker: Deliverer, endpoints: Endpoints) -> None:
        """With the same event and id, as a new delivery."""
        webhook = subscribe(client)
        make(client)
        worker.deliver_once()
        (first,) = log(client, webhook)
        path = f"/api/v1/webhooks/{webhook['id']}/deliveries/{first['id']}/redeliver"
        key_header = {"Idempotency-Key": "again"}
        again = client.post(path, headers=key_header)
        assert client.post(path, headers=key_header).data == again.data, "requested twice with one key, sent once"
        worker.deliver_once()
        assert [id for _, id, _ in endpoints.got] == [first["event"]] * 2
        assert [entry["state"] for entry in log(client, webhook)] == ["delivered"] * 2
        assert again.json["id"] != first["id"] and again.json["event"] == first["event"]


def refuse_once(store: Store, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let the first write after a request to an endpoint fail; the event is set when it has failed."""
    write, refused = store.write, threading.Event()

    def refuse(work: Any, **options: Any) -> Any:
        if endpoints.got and not refused.is_set():
            refused.set()
            raise module.StoreUnavailable("busy")
        return write(work, **options)

    monkeypatch.setattr(store, "write", refuse)
    return refused


class TestFailures:
    def test_a_stop_ends_also_with_a_busy_store(
        self,
        client: FlaskClient,
        worker: Deliverer,
        endpoints: Endpoints,
        store: Store,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Results that could not be stored are stored at the end, if possible."""
        webhook = subscribe(client)
        make(client)
        worker.run(refuse_once(store, endpoints, monkeypatch).is_set)
        assert [entry["state"] for entry in log(client, webhook)] == ["delivered"]

    def test_a_worker_exits_if_its_store_was_replaced(
        self, app: Application, endpoints: Endpoints, clock: Clock, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After a minute with another file it exits with the reason, so that it is started with that file."""

        def refuse(active: Any, now: float) -> Any:
            clock.time += 20
            raise module.StoreGone("another file has its name")

        monkeypatch.setattr(store, "subscriptions", refuse)
        worker, began = another(app, endpoints, clock), clock.time
        with pytest.raises(module.StoreGone, match="another file"):
            worker.run(lambda: False)
        assert clock.time - began == 20 + GIVE_UP_SECONDS + 20
        worker.close()

    def test_a_worker_waits_for_a_locked_store(
        self,
        app: Application,
        client: FlaskClient,
        endpoints: Endpoints,
        clock: Clock,
        store: Store,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """As long as necessary, with one log line at the beginning and one at the end; then everything is delivered."""
        subscribe(client)
        make(client)
        subscriptions, refused = store.subscriptions, []

        def refuse(active: Any, now: float) -> Any:
            if len(refused) < 100:
                clock.time += 20
                refused.append(module.StoreGone("away") if len(refused) % 2 else module.StoreUnavailable("locked"))
                raise refused[-1]
            return subscriptions(active, now)

        monkeypatch.setattr(store, "subscriptions", refuse)
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
        worker = another(app, endpoints, clock)
        worker.run(lambda: bool(endpoints.got))
        assert endpoints.names() == ["Lamp"]
        assert [each.getMessage() for each in caplog.records] == [
            "deliveries wait: locked",
            f"deliveries continue after {99 * 20} s",
        ]
        worker.close()

    def test_a_busy_store_loses_no_result(
        self,
        client: FlaskClient,
        worker: Deliverer,
        endpoints: Endpoints,
        store: Store,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Results that cannot be stored are stored later."""
        webhook = subscribe(client)
        make(client)
        refused = refuse_once(store, endpoints, monkeypatch)
        done = threading.Event()
        thread = threading.Thread(target=worker.run, args=(done.is_set,))
        thread.start()
        try:
            until(lambda: [entry["state"] for entry in log(client, webhook)] == ["delivered"])
        finally:
            done.set()
            join(thread)
        assert refused.is_set() and len(endpoints.got) == 1

    def test_an_unexpected_error_affects_one_delivery(
        self,
        client: FlaskClient,
        worker: Deliverer,
        endpoints: Endpoints,
        clock: Clock,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """It is logged, other deliveries continue, and this one is retried."""
        subscribe(client)
        make(client, "bad")
        make(client, "good")
        faults = [RuntimeError("a fault of ours")]

        def response(content: dict[str, Any]) -> DeliveryResult:
            if content["data"]["name"] == "bad" and faults:
                raise faults.pop()
            return OK

        endpoints.responses["https://a.example/"] = response
        while worker.deliver_once():
            pass
        assert "a fault of ours" in caplog.text and sorted(endpoints.names()) == ["bad", "good"]
        clock.time += TIMEOUT + LEASE_SECONDS
        worker.deliver_once()
        assert sorted(endpoints.names()) == ["bad", "bad", "good"]

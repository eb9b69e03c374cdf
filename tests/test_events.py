"""The feed of events: its contents, who can read it, and how to follow it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

import restkeeper.features.events as feature
from restkeeper.config import Config
from restkeeper.features.events import SHARED_SECONDS, Newest, Waiters
from restkeeper.features.keys import CREDENTIALS
from restkeeper.service import service_of
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.feed import MOST_EXAMINED, sweep_events
from restkeeper.storage.transactions import Event
from restkeeper.web.application import Application
from tests import issuer
from tests.callers import ADMIN, key, make_key
from tests.clock import SetClock
from tests.shop import create_app
from tests.test_permissions import service
from tests.waiting import join, until

pytestmark = pytest.mark.needs("events")

FEED = "/api/v1/events"
OTHER = Event("product.created", "products", "x", "2026-01-31T12:00:00.000000Z", b'{"id":"x"}')


@pytest.fixture
def guarded() -> FlaskClient:
    return service().test_client()


def make(client: FlaskClient, name: str = "Lamp", **options: Any) -> Any:
    return client.post("/products", json={"name": name}, **options).json


def names(response: Any) -> list[str]:
    assert response.status_code == 200, response.text
    return [event["data"]["name"] for event in response.json]


def next_of(response: Any) -> str:
    (link,) = response.headers["Link"].split(", ")
    assert link.endswith('>; rel="next"')
    return str(link.split(">")[0][1:])


@pytest.mark.needs("batch")
def test_the_events_of_a_request_are_in_the_order_of_its_changes(client: FlaskClient) -> None:
    """The order of requests, and of many at the same time, is that which test_soak.py checks."""
    made = client.post("/products", json=[{"name": f"{number}"} for number in range(20)]).json
    paths = [f"/products/{item['id']}" for item in made[::-1]]
    operations = [{"method": "PATCH", "path": path, "body": {"name": "last"}} for path in paths]
    assert client.post("/api/v1/batch", json={"operations": operations}).status_code == 200
    ids = [item["id"] for item in made]
    assert [event["data"]["id"] for event in client.get(FEED).json] == [*ids, *reversed(ids)]


class TestContents:
    def test_every_change_is_an_event(self, client: FlaskClient) -> None:
        """Created, replaced, merged, deleted: each with the item after the change, in the order of the changes.

        What changes nothing, and what is refused, has none.
        """
        item = make(client)
        path = f"/products/{item['id']}"
        assert client.put(path, json=item).json == client.patch(path, json={"stock": 0}).json == item
        assert client.patch(path, json={"stock": -1}).status_code == 422
        assert client.delete(path, headers={"If-Match": '"other"'}).status_code == 412
        replaced = client.put(path, json={"name": "Desk lamp"}).json
        merged = client.patch(path, json={"stock": 3}).json
        deleted = client.delete(path).json
        events = client.get(FEED).json
        types = ["product.created", "product.updated", "product.updated", "product.deleted"]
        assert [each["type"] for each in events] == types
        assert [event["data"] for event in events] == [item, replaced, merged, deleted]
        assert all(set(event) == {"id", "type", "timestamp", "data"} for event in events)
        assert [event["timestamp"] for event in events[:3]] == [event["data"]["updated_at"] for event in events[:3]]

    @pytest.mark.needs("keys", "webhooks")
    def test_keys_and_webhooks_have_no_events(self, client: FlaskClient) -> None:
        for name, body in (
            ("keys", {"name": "k", "scopes": ["admin"]}),
            ("webhooks", {"url": "https://shop.example.org/"}),
        ):
            made = client.post(f"/api/v1/{name}", json=body)
            client.patch(made.headers["Location"], json={"description": "x"})  # no key has one
            client.delete(made.headers["Location"])
        assert client.get(FEED).json == []


class TestFollowing:
    def test_next_links_lead_through_the_whole_feed(self, client: FlaskClient) -> None:
        """`next` always exists, leads to each event once, and repeats the parameters; `after=latest` skips all."""
        for n in range(5):
            make(client, str(n))
        path, seen = f"{FEED}?limit=2&type=product.*", []
        for expected in (["0", "1"], ["2", "3"], ["4"], []):
            response = client.get(path)
            assert names(response) == expected
            seen += [event["id"] for event in response.json]
            path = next_of(response)
            assert "limit=2" in path and "type=product.%2A" in path
        assert len(set(seen)) == 5
        latest = client.get(f"{FEED}?after=latest")
        make(client, "later")
        assert latest.json == [] and names(client.get(next_of(latest))) == names(client.get(path)) == ["later"]

    def test_the_feed_can_be_filtered_by_item(self, client: FlaskClient) -> None:
        """With its collection that is the history of one item; an id of more than 64 characters is none."""
        item = make(client, "one")
        make(client, "other")
        client.patch(f"/products/{item['id']}", json={"name": "two"})
        page = client.get(f"{FEED}?collection=products&item={item['id']}")
        assert names(page) == ["one", "two"] and "item=" in next_of(page)
        assert names(client.get(f"{FEED}?item=none")) == []
        for wrong in ("", "x" * 65):
            assert client.get(f"{FEED}?item={wrong}").json["errors"][0]["parameter"] == "item"

    def test_the_feed_can_be_filtered_by_type_and_collection(self, client: FlaskClient) -> None:
        """By one or several of each, separated by commas or repeated."""
        item = make(client)
        client.delete(f"/products/{item['id']}")
        client.post("/api/v1/users", json={"email": "a@example.org"})
        types = lambda query: [event["type"] for event in client.get(f"{FEED}?{query}").json]  # noqa: E731
        assert types("type=product.deleted") == ["product.deleted"]
        assert types("type=product.created,user.*") == ["product.created", "user.created"]
        assert types("type=product.created&type=product.deleted") == ["product.created", "product.deleted"]
        assert types("collection=users") == ["user.created"]
        assert types("collection=products,users&type=user.*") == ["user.created"]
        for query in (
            *("after=x", "after=evt_1_1", "after=", "type=product", "type=*.created", "type=", "collection=orders"),
            *("collection=keys", "limit=0", "limit=1001", "wait=31", "wait=1.5", "wait=-1", "wait=1&wait=2", "since=1"),
        ):
            response = client.get(f"{FEED}?{query}")
            assert (response.status_code, response.json["type"].split("/")[-1]) == (400, "invalid-query"), query
            assert [fault["parameter"] for fault in response.json["errors"]] == [query.partition("=")[0]]

    def test_an_expired_cursor_returns_410(self, app: Application, client: FlaskClient) -> None:
        """The response has the cursor to go on with, in the body and as a link; no cached page has what was deleted."""
        store: Store = app.extensions["restkeeper"].store
        for n in range(4):
            make(client, str(n))
        first, second = (event["id"] for event in client.get(FEED).json[:2])
        store.write(lambda transaction: sweep_events(transaction, "9999", 2))
        response = client.get(f"{FEED}?after={first}&limit=1")
        assert (response.status_code, response.json["type"].split("/")[-1]) == (410, "cursor-expired")
        assert names(client.get(next_of(response))) == ["2"]
        assert names(client.get(f"{FEED}?after={response.json['resume']}")) == ["2", "3"]
        assert names(client.get(f"{FEED}?after={second}")) == names(client.get(FEED)) == ["2", "3"]

    def test_a_page_has_an_etag(self, client: FlaskClient) -> None:
        """It is valid until the page changes; If-Match works as everywhere. HEAD has the headers of GET."""
        make(client)
        response = client.get(FEED)
        held = {"If-None-Match": response.headers["ETag"]}
        unchanged = client.get(FEED, headers=held)
        assert (unchanged.status_code, unchanged.data) == (304, b"")
        assert all(unchanged.headers[name] == response.headers[name] for name in ("ETag", "Cache-Control", "Link"))
        head = client.head(FEED)
        assert (head.data, head.headers["ETag"]) == (b"", response.headers["ETag"])
        assert head.headers["Content-Length"] == str(len(response.data))
        assert client.get(FEED, headers={"If-Match": '"x"'}).status_code == 412
        full, filtered = client.get(f"{FEED}?limit=1"), client.get(f"{FEED}?collection=users")
        assert len({response.headers["ETag"], filtered.headers["ETag"]}) == 2
        make(client)
        assert client.get(FEED, headers=held).status_code == 200
        assert client.get(f"{FEED}?limit=1", headers={"If-None-Match": full.headers["ETag"]}).status_code == 304


def waiters_of(app: Application) -> Waiters:
    found: Waiters = app.view_functions["v1_events.list_events"].__self__._waiters  # type: ignore[attr-defined]
    return found


class Meanwhile(SetClock):
    """A clock whose next sleep does something else before it ends."""

    act: Callable[[], object] | None = None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if act := self.act:
            self.act = None
            act()


def narrow(client: FlaskClient, id: str) -> None:
    """Change the stored scopes of a key, which no request can do."""

    def work(transaction: Transaction) -> None:
        stored = transaction.read(CREDENTIALS.name, id)
        transaction.update(CREDENTIALS.name, stored._replace(body=stored.body.replace(b"products:read", b"users:read")))

    service_of(client.application).store.write(work)


class TestWaiting:
    def test_a_wait_ends_after_its_time(self) -> None:
        """Without an event: an empty page, or 304 if the reader has that page already. If the server stops, at once."""
        clock = SetClock(100.0)
        client = create_app(Config(), clock=clock).test_client()
        response = client.get(f"{FEED}?wait=30")
        assert response.json == [] and 130 <= clock.now < 131
        held = {"If-None-Match": response.headers["ETag"]}
        assert client.get(f"{FEED}?wait=1", headers=held).status_code == 304
        clock.now = 200.0
        response = client.get(f"{FEED}?wait=30", environ_overrides={"restkeeper.is_cancelled": lambda: True})
        assert response.json == [] and clock.now < 201

    def test_a_poll_examines_a_limited_number_of_events(
        self, app: Application, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Behind many events that do not match, each page ends after some of them; `next` leads on, to the wait."""
        store: Store = app.extensions["restkeeper"].store
        for _ in range(2):
            store.write(lambda transaction: [transaction.add_event(OTHER) for _ in range(MOST_EXAMINED)])
        client.post("/users", json={"email": "a@example.org", "name": "wanted"})
        reads: list[str] = []
        find = feature.find_events
        monkeypatch.setattr(feature, "find_events", lambda *asked: reads.append(asked[1]) or find(*asked))
        path = f"{FEED}?collection=users&wait=30"
        for pages in (1, 2):
            response = client.get(path)
            assert (response.json, len(reads)) == ([], pages)
            path = next_of(response)
        assert names(client.get(path)) == ["wanted"] and len(reads) == len(set(reads)) == 3

    def test_too_many_waits_return_503(self, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("restkeeper.features.events.MOST", 0)
        response = app.test_client().get(f"{FEED}?wait=30")
        assert (response.status_code, response.headers["Retry-After"]) == (503, "1")

    @pytest.mark.needs("keys")
    def test_each_caller_has_a_limited_number_of_waits(self) -> None:
        """The next wait of the caller returns 429 at once; others wait on, and its other requests succeed."""
        app = create_app(Config(auth="required", admin_key=ADMIN["X-API-Key"], waits_per_caller=2))
        client = app.test_client()
        greedy, other = key(client, "products:read"), key(client, "products:read")
        ended = threading.Event()
        over = {"restkeeper.is_cancelled": ended.is_set}
        statuses: list[int] = []

        def wait(headers: dict[str, str]) -> None:
            response = app.test_client().get(f"{FEED}?wait=30", headers=headers, environ_overrides=over)
            statuses.append(response.status_code)

        threads = [threading.Thread(target=wait, args=(each,)) for each in (greedy, greedy, other)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: waiters_of(app)._waiting.total() == 3)
            refused = client.get(f"{FEED}?wait=30", headers=greedy)
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
            assert refused.json["violated-policies"] == ["waits"] and "without `wait`" in refused.json["detail"]
            assert client.get(FEED, headers=greedy).status_code == 200
        finally:
            ended.set()
            join(*threads)
        assert statuses == [200] * 3 and not waiters_of(app)._waiting

    def test_a_wait_has_one_slot_until_its_end(self) -> None:
        """Other events wake it and are not returned; those that exist are returned at once, without a slot."""
        clock = Meanwhile(100.0)
        app = create_app(Config(), clock=clock)
        client, writer = app.test_client(), app.test_client()
        taken: list[str] = []
        waiters = waiters_of(app)
        slot = waiters.slot
        waiters.slot = lambda who: taken.append(who) or slot(who)  # type: ignore[method-assign,func-returns-value]

        def write_wanted() -> None:
            writer.post("/users", json={"email": "a@example.org", "name": "wanted"})

        def write_unwanted() -> None:
            make(writer, "unwanted")
            clock.act = write_wanted

        clock.act = write_unwanted
        assert names(client.get(f"{FEED}?after=latest&collection=users&wait=30")) == ["wanted"]
        assert clock.now < 102 and taken == ["127.0.0.1"]
        assert len(client.get(f"{FEED}?wait=30").json) == 2 and len(taken) == 1


@pytest.mark.needs("keys", "ownership")
class TestPermissions:
    @pytest.mark.needs("webhooks")
    def test_a_caller_gets_the_events_of_collections_it_may_read(self, guarded: FlaskClient) -> None:
        """Not those of others: a request for another collection is refused, and so is a caller that may read none."""
        make(guarded, headers=ADMIN)
        guarded.post("/users", json={"email": "a@example.org", "name": "Ada"}, headers=ADMIN)
        reader = key(guarded, "products:read")
        assert names(guarded.get(FEED, headers=reader)) == ["Lamp"]
        assert names(guarded.get(FEED, headers=ADMIN)) == ["Lamp", "Ada"]
        refused = guarded.get(f"{FEED}?collection=products,users", headers=reader)
        assert (refused.status_code, "users:read" in refused.json["detail"]) == (403, True)
        assert 'error="insufficient_scope", scope="users:read"' in refused.headers["WWW-Authenticate"]
        for_admins = guarded.get(f"{FEED}?collection=webhooks", headers=reader)
        assert (for_admins.status_code, for_admins.json["detail"]) == (403, "this needs the scope admin")
        assert guarded.get(FEED, headers=key(guarded, "users:write")).status_code == 403
        assert guarded.get(FEED).status_code == 401
        some, full = (guarded.get(FEED, headers=who) for who in (reader, ADMIN))
        assert some.headers["ETag"] != full.headers["ETag"] and some.headers["Cache-Control"].startswith("private")

    @pytest.mark.parametrize(
        ("meanwhile", "status", "detail"),
        [
            (lambda admin, id: admin.delete(f"/api/v1/keys/{id}", headers=ADMIN), 401, "not valid"),
            (lambda admin, id: admin.post(f"/api/v1/keys/{id}/rotate", headers=ADMIN), 401, "not valid"),
            (lambda admin, id: narrow(admin, id), 403, "have changed"),
            (lambda admin, id: None, 200, ""),
        ],
    )
    def test_a_wait_checks_the_key_again(self, meanwhile: Callable[..., object], status: int, detail: str) -> None:
        """A request that began before its key was revoked, rotated or restricted gets none of the events after that."""
        clock = Meanwhile()
        app = create_app(Config(auth="required", admin_key=ADMIN["X-API-Key"]), clock=clock)
        admin, waiter = app.test_client(), app.test_client()
        made = make_key(admin)

        def change() -> None:
            meanwhile(admin, made["id"])
            make(admin, "after", headers=ADMIN)

        clock.act = change
        response = waiter.get(f"{FEED}?wait=30", headers={"X-API-Key": made["secret"]})
        assert response.status_code == status
        assert names(response) == ["after"] if status == 200 else detail in response.json["detail"]

    @pytest.mark.needs("jwt")
    def test_a_wait_checks_the_end_of_a_token_again(self, tmp_path: Path) -> None:
        clock = Meanwhile(issuer.START)
        (tmp_path / "jwks.json").write_bytes(issuer.key_set(issuer.jwk("ES256")))
        known = {"jwt_issuer": issuer.ISSUER, "jwt_audience": issuer.AUDIENCE, "jwt_jwks": f"{tmp_path}/jwks.json"}
        app = create_app(Config(auth="required", admin_key=ADMIN["X-API-Key"], **known), clock=clock)
        clock.act = lambda: make(app.test_client(), headers=ADMIN)
        over = {"Authorization": f"Bearer {issuer.token(exp=issuer.START + 0.05)}"}
        assert app.test_client().get(f"{FEED}?wait=30", headers=over).status_code == 401


def test_requests_that_wait_ask_the_store_once() -> None:
    """For some hundredths of a second they share what one has found; what a page has shown is known to all at once."""
    clock = SetClock()
    looks: list[int] = []
    newest = Newest(lambda: looks.append(1) or f"event {len(looks)}", clock)  # type: ignore[func-returns-value]
    assert [newest() for _ in range(500)] == ["event 1"] * 500
    newest.note("event 5")
    assert (newest(), len(looks)) == ("event 5", 1)
    clock.sleep(SHARED_SECONDS)
    assert (newest(), len(looks)) == ("event 2", 2)

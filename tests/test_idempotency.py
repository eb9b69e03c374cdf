"""Idempotency-Key: a repeated request gets the first response, and its work is done once."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from restkeeper import ItemSchema, Ownership, Reference, Resource
from restkeeper.config import Config
from restkeeper.resources.call import Caller
from restkeeper.service import service_of
from restkeeper.storage.base import Store
from restkeeper.storage.feed import last_event
from restkeeper.storage.interface import Key, Record, StoredResponse
from restkeeper.web.application import Application
from restkeeper.web.auth import Credentials
from tests import stores
from tests.callers import ADMIN, ADMIN_KEY, make_key
from tests.clock import SetClock
from tests.shop import RESOURCES, create_app

pytestmark = pytest.mark.needs("idempotency")

LAMP = {"name": "Lamp", "price": 49.9}
KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"

Post = Callable[..., TestResponse]


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def app(clock: SetClock) -> Application:
    return create_app(Config(), RESOURCES, clock=clock)


@pytest.fixture
def post(client: FlaskClient) -> Post:
    def send(key: str = KEY, body: Any = LAMP, path: str = "/products", **headers: str) -> TestResponse:
        return client.post(path, json=body, headers={"Idempotency-Key": key, **headers})

    return send


def count(client: FlaskClient) -> int:
    return int(client.get("/products").headers["X-Total-Count"])


def test_a_replay_equals_the_first_response(client: FlaskClient, post: Post) -> None:
    """Byte for byte, also after the item was deleted; one header marks the replay."""
    first, second = post(), post()
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.data == second.data
    own = ("X-Request-Id", "Idempotent-Replayed")
    assert [pair for pair in first.headers if pair[0] not in own] == [
        pair for pair in second.headers if pair[0] not in own
    ]
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert first.headers["X-Request-Id"] != second.headers["X-Request-Id"]
    assert count(client) == 1
    client.delete(first.headers["Location"])
    assert post().data == first.data
    assert count(client) == 0


def test_a_large_response_is_stored_compressed(app: Application, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is replayed byte for byte, and takes a fraction of its bytes in the store."""
    store: Store = service_of(app).store
    look_up, found = store.look_up, list[Any]()
    monkeypatch.setattr(store, "look_up", lambda keys: found.extend(look_up(keys)) or look_up(keys))
    lamps = [{"name": "Lamp", "description": "a lamp " * 300}] * 100
    first, second = post(body=lamps), post(body=lamps)
    assert second.data == first.data and second.headers["Idempotent-Replayed"] == "true"
    (stored,) = (response for response in found if isinstance(response, StoredResponse))
    assert len(first.data) > 200_000 > 10 * len(stored.body)


def test_the_response_that_is_stored_is_the_one_that_is_sent(app: Application, post: Post, clock: SetClock) -> None:
    """Whatever its fields say of the time that has passed between the two."""

    def wait(*_: object) -> None:
        clock.now += 2

    app.extensions["restkeeper"].domain.changed.add(wait)
    first, second = post(), post()
    assert first.headers.get("Last-Modified") == second.headers.get("Last-Modified")


def test_a_clock_that_begins_in_1970() -> None:
    """Such as that of a test: a claim of a key is old enough to be replaced."""
    client = create_app(Config(), RESOURCES, clock=SetClock(1.0)).test_client()
    headers = {"Idempotency-Key": KEY, "If-Match": "*"}  # a response that is not known before
    first, second = (client.post("/products", json=LAMP, headers=headers) for _ in range(2))
    assert (first.status_code, second.headers["Idempotent-Replayed"]) == (200, "true")


def test_quoted_and_bare_keys_are_equal(client: FlaskClient, post: Post) -> None:
    """The draft's structured string (RFC 9651, section 3.3.3), and the bare text, which Stripe's clients send."""
    assert post(KEY).data == post(f'"{KEY}"').data == post(f"  {KEY} ").data
    assert post(r'"a\"b\\c"').data == post('a"b\\c').data
    assert count(client) == 2


def test_a_malformed_key_returns_400(client: FlaskClient, post: Post) -> None:
    invalid = "/problems/idempotency-key-invalid"
    for key in ("", " ", '""', '"a', '"a"b"', '"a";x=1', "ä", "a\tb", r'"a\b"', "x" * 256, f'"{"x" * 256}"'):
        response = post(key)
        assert (response.status_code, response.json["type"]) == (400, invalid), key
    assert count(client) == 0
    assert post("x" * 255).status_code == 200


def test_a_key_belongs_to_its_body_and_path(client: FlaskClient, post: Post) -> None:
    first = post()
    response = post(body=LAMP | {"price": 50})
    assert (response.status_code, response.json["type"]) == (422, "/problems/idempotency-key-reused")
    assert post().data == first.data
    assert count(client) == 1
    assert post(path="/products").data != post(path="/api/v1/products").data
    assert post(path="/users", body={"email": "a@example.org"}).status_code == 200
    assert count(client) == 2


def test_the_same_json_in_another_order_is_the_same_request(client: FlaskClient) -> None:
    """Other forms of the same JSON value, too."""
    bodies = (
        b'{"name": "Lamp", "price": 49.9, "attributes": {"a": 1, "b": {"c": 2, "d": 3}}}',
        b'{"attributes":{"b":{"d":3,"c":2},"a":1},"price":49.9,"name":"Lamp"}',
    )
    headers = {"Idempotency-Key": KEY, "Content-Type": "application/json"}
    first, second = (client.post("/products", data=body, headers=headers) for body in bodies)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.data == second.data


def test_a_failed_request_does_not_use_up_its_key(client: FlaskClient, post: Post) -> None:
    client.post("/products", json={"name": "x", "sku": "taken"})
    for number, (bad, status) in enumerate((({"name": ""}, 422), ({"name": "x", "sku": "taken"}, 409))):
        assert [post(f"{number}", bad).status_code for _ in range(2)] == [status] * 2
        assert post(f"{number}").status_code == 200


def test_a_replay_ignores_its_precondition(client: FlaskClient, post: Post) -> None:
    """A replay returns the first response; the first request itself has changed the list of the condition."""
    tag = client.get("/products").headers["ETag"]
    assert post(**{"If-Match": tag}).status_code == 200
    assert post(**{"If-Match": tag}).headers["Idempotent-Replayed"] == "true"


@pytest.mark.needs("keys")
def test_a_key_can_be_required_and_belongs_to_its_caller() -> None:
    client = create_app(Config(idempotency="required")).test_client()
    response = client.post("/products", json=LAMP)
    assert (response.status_code, response.json["type"]) == (400, "/problems/idempotency-key-missing")
    assert client.post("/products", json=LAMP, headers={"Idempotency-Key": KEY}).status_code == 200
    client = create_app(Config(auth="required", admin_key=ADMIN_KEY)).test_client()
    secrets = [make_key(client, "products:write")["secret"] for _ in range(2)]
    once = [{"X-API-Key": secret, "Idempotency-Key": KEY} for secret in secrets]
    assert len({client.post("/products", json=LAMP, headers=headers).json["id"] for headers in once}) == 2


@pytest.mark.needs("batch", "ownership")
def test_a_replay_is_for_the_same_scopes_and_owners() -> None:
    """What the caller may not do or reach by now is not shown: not by a batch, below an item, nor of a former owner."""
    people = Resource("people", "person", ItemSchema, ids="client")
    fields = {"person": Reference("people", load_default=None, allow_none=True)}
    jobs = Resource("jobs", "job", ItemSchema.from_dict(fields, name="Job"), ownership=Ownership.ALL)
    app = create_app(Config(auth="required"), (people, jobs))
    client, first = app.test_client(), Caller("bob", frozenset({"jobs:read", "jobs:write", "people:read"}), ("a", "b"))
    now = Caller("root", frozenset({"admin"}), ("root",))
    service_of(app).guard.identifying.add(Credentials(lambda *_: now, are_signed=True))
    headers = {"X-API-Key": "any", "Idempotency-Key": KEY}
    assert client.post("/people", json={"id": "ada"}, headers=headers).status_code == 200
    batch = {"operations": [{"method": "POST", "path": "/jobs", "body": {}}]}
    sent: dict[str, Any] = {"/jobs": {"person": "ada"}, "/people/ada/jobs": {}, "/api/v1/batch": batch}

    def statuses(who: Caller) -> list[int]:
        nonlocal now
        now = who
        return [client.post(path, json=body, headers=headers).status_code for path, body in sent.items()]

    assert statuses(first) == [200, 200, 200]
    for scopes in ({"jobs:read", "jobs:write"}, {*first.scopes, "people:write"}, {"admin"}):
        assert statuses(first._replace(scopes=frozenset(scopes))) == [422, 422, 422]
    assert statuses(first._replace(scopes=frozenset({"jobs:read"}))) == [403, 403, 422]
    for owners in (("b",), ("a",), ("a", "b", "c")):
        assert statuses(first._replace(owners=owners)) == [422, 422, 422]
    assert statuses(first._replace(owners=("b", "a"))) == [200, 200, 200]  # in any order
    assert len(client.get("/jobs", headers=headers).json) == 3


def test_a_key_expires(client: FlaskClient, post: Post, clock: SetClock) -> None:
    first = post()
    clock.now += 24 * 3600
    assert post().data == first.data
    clock.now += 1
    second = post()
    assert second.data != first.data
    assert post().data == second.data
    assert count(client) == 2


def test_expired_responses_are_deleted_by_new_ones(client: FlaskClient, post: Post, clock: SetClock) -> None:
    """Only those, so that no separate job is needed. One that a wrong clock dated too late counts as expired."""
    store: Store = client.application.extensions["restkeeper"].store
    day = 24 * 3600

    for n in range(60):
        clock.now = 5e9 if n % 2 else 3e9
        post(f"old-{n}")
    clock.now = 4e9
    for n in range(100):
        post(f"new-{n}")
    before, latest = clock.now - day, clock.now + day
    assert store.write(lambda transaction: transaction.sweep_responses(before, 1000, latest=latest)) == 0
    assert post("new-0").headers["Idempotent-Replayed"] == "true"


def hide_responses(app: Application, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Let the next look for a stored response find none: as if the first request were committed after it."""
    store: Store = app.extensions["restkeeper"].store
    looks: list[bytes] = []
    look_up = store.look_up

    def find_later(keys: Sequence[Key]) -> list[Record | StoredResponse | None]:
        looks.extend(key for key in keys if isinstance(key, bytes))
        return [
            None if isinstance(key, bytes) and len(looks) == 1 else each
            for key, each in zip(keys, look_up(keys), strict=True)
        ]

    monkeypatch.setattr(store, "look_up", find_later)
    return looks


@pytest.mark.needs("keys", "webhooks")
@pytest.mark.parametrize(
    "path", "/products /api/v1/keys {key}/rotate /api/v1/webhooks {webhook}/rotate {webhook}/ping".split()
)
def test_a_twin_gets_the_response_that_was_stored_meanwhile(
    app: Application, client: FlaskClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """It finds no response, cannot store its own, finds the first one then, and changes nothing."""
    sent = {
        "/products": LAMP | {"sku": "unique"},
        "/api/v1/keys": {"name": "x", "scopes": ["admin"]},
        "/api/v1/webhooks": {"url": "https://example.org/"},
    }
    key, webhook = (client.post(f"/api/v1/{name}", json=sent[f"/api/v1/{name}"]).json for name in ("keys", "webhooks"))
    where = path.format(key=f"/api/v1/keys/{key['id']}", webhook=f"/api/v1/webhooks/{webhook['id']}")
    store: Store = app.extensions["restkeeper"].store

    def state() -> list[str]:
        return [*map(store.change_token, ("products", "keys", "webhooks")), last_event(store)]

    first = client.post(where, json=sent.get(path), headers={"Idempotency-Key": KEY})
    before, looks = state(), hide_responses(app, monkeypatch)
    second = client.post(where, json=sent.get(path), headers={"Idempotency-Key": KEY})
    assert (second.status_code, second.data, len(looks)) == (200, first.data, 2)
    assert second.headers["Idempotent-Replayed"] == "true" and state() == before


@pytest.mark.needs("keys")
def test_a_replayed_secret_is_stored_encrypted(tmp_path: Path) -> None:
    """A client that lost a secret gets it again with its idempotency key, which the store does not have."""
    url = f"sqlite:///{tmp_path}/a.db"
    client = create_app(Config(database_url=url)).test_client()

    def post(key: str = KEY, *, path: str, body: Any) -> TestResponse:
        return client.post(path, json=body, headers={"Idempotency-Key": key})

    sent = {"name": "x", "scopes": ["admin"]}
    first = post(path="/api/v1/keys", body=sent)
    assert post(path="/api/v1/keys", body=sent).data == first.data
    rotate = f"{first.headers['Location']}/rotate"
    assert post("r", path=rotate, body=None).json["secret"] == post("r", path=rotate, body=None).json["secret"]
    stored = stores.content(url)
    assert b"Idempotent" not in stored and first.json["id"].encode() in stored
    assert first.json["secret"].encode() not in stored
    assert KEY.encode() not in stored


@pytest.mark.needs("keys")
def test_an_encrypted_response_needs_the_first_credentials() -> None:
    """Not the key alone, nor another header, nor the new secret of a rotated key of the same caller."""
    client = create_app(Config(auth="required", admin_key=ADMIN_KEY)).test_client()
    sent, made = {"name": "x", "scopes": ["admin"]}, make_key(client, "admin")

    def replay(secret: str) -> list[TestResponse]:
        ways = ({"X-API-Key": secret}, {"Authorization": f"Bearer {secret}"})
        tries = [way | {"Idempotency-Key": key} for way, key in zip((*ways, *reversed(ways)), "abab", strict=True)]
        return [client.post("/api/v1/keys", json=sent, headers=each) for each in tries]

    first, again = replay(made["secret"]), replay(made["secret"])
    assert [one.status_code for one in first] == [one.status_code for one in again] == [200, 200, 422, 422]
    assert [one.data for one in first[:2]] == [one.data for one in again[:2]]
    rotated = client.post(f"/api/v1/keys/{made['id']}/rotate", headers=ADMIN).json["secret"]
    assert [one.status_code for one in replay(rotated)] == [422] * 4

"""Changes are computed in their transaction, by what is stored then: no update is lost. Bodies are validated before."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.clock import YIELD_SECONDS, in_turns
from restkeeper.config import Config
from restkeeper.resources.call import CHANGE_SECONDS, EVERYBODY, Ahead, Call
from restkeeper.service import service_of
from tests import stores
from tests.callers import ADMIN, ADMIN_KEY, key
from tests.clock import SetClock
from tests.shapes import NOTES
from tests.shop import create_app


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    return create_app(Config(database_url=f"sqlite:///{tmp_path}/a.db")).test_client()


@pytest.mark.needs("batch", "keys", "webhooks")
def test_bodies_are_validated_before_the_transaction(client: FlaskClient, tmp_path: Path) -> None:
    """While another program writes, a bad body is refused without waiting."""
    once = {"Idempotency-Key": "one"}
    product = client.post("/products", json={"name": "x"}).headers["Location"]
    operation = {"method": "POST", "path": "/products", "body": 5}
    with stores.held(f"sqlite:///{tmp_path}/a.db"):
        for path, method, sent, status in (
            *((path, "POST", {"name": ""}, 422) for path in ("/products", "/api/v1/webhooks", "/api/v1/keys")),
            (product, "PUT", {"name": ""}, 422),
            ("/api/v1/batch", "POST", {"operations": [operation]}, 422),
        ):
            for headers in ({}, once) if method == "POST" else ({},):
                response = client.open(path, method=method, json=sent, headers=headers)
                assert response.status_code == status, (method, path, response.json)
    assert client.get(product).json["version"] == 1


def write_first(client: FlaskClient, times: int, other: Callable[[], Any]) -> list[int]:
    """Lets another process write just before a request's transaction, this number of times."""
    store, done = service_of(client.application).store, list[int]()
    write = store.write

    def late(work: Any, **options: Any) -> Any:
        if len(done) < times:
            done.append(len(done))
            other()
        return write(work, **options)

    store.write = late  # type: ignore[method-assign]
    return done


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_change_is_of_what_is_stored_in_its_transaction(client: FlaskClient, tmp_path: Path, method: str) -> None:
    second = create_app(Config(database_url=f"sqlite:///{tmp_path}/a.db")).test_client()
    where = client.post("/products", json={"name": "x"}).headers["Location"]
    numbers = iter(range(100))
    done = write_first(client, 1, lambda: second.patch(where, json={"attributes": {f"a{next(numbers)}": 1}}))
    response = client.open(where, method=method, json={"name": "y"})
    assert (response.status_code, response.json["version"], len(done)) == (200, 3, 1)
    assert response.json["attributes"] == ({"a0": 1} if method == "PATCH" else {})


@pytest.mark.needs("keys", "webhooks")
@pytest.mark.parametrize(
    ("path", "sent"),
    [("/api/v1/webhooks", {"url": "https://example.org/"}), ("/api/v1/keys", {"name": "x", "scopes": ["admin"]})],
)
def test_a_rotation_is_of_what_is_stored_in_its_transaction(
    client: FlaskClient, tmp_path: Path, path: str, sent: dict[str, Any]
) -> None:
    """The response has the secret that is stored, and the version after the other process's change."""
    second = create_app(Config(database_url=f"sqlite:///{tmp_path}/a.db")).test_client()
    where = client.post(path, json=sent).headers["Location"]
    write_first(client, 1, lambda: second.post(f"{where}/rotate"))
    rotated = client.post(f"{where}/rotate")
    assert (rotated.status_code, rotated.json["version"]) == (200, 3)
    assert client.get(where).headers["ETag"] == rotated.headers["ETag"]
    if path == "/api/v1/keys":
        assert second.get("/products", headers={"X-API-Key": rotated.json["secret"]}).status_code == 200


def test_a_condition_is_checked_in_the_transaction(client: FlaskClient, tmp_path: Path) -> None:
    """If-Match was true when the request came but is not in the transaction: 412; for a deleted item: 404."""
    second = create_app(Config(database_url=f"sqlite:///{tmp_path}/a.db")).test_client()
    made = client.post("/products", json={"name": "x"})
    where, headers = made.headers["Location"], {"If-Match": made.headers["ETag"]}
    write_first(client, 1, lambda: second.patch(where, json={"stock": 7}))
    assert client.patch(where, json={"name": "y"}, headers=headers).status_code == 412
    assert client.get(where).json["name"] == "x"
    write_first(client, 1, lambda: second.delete(where))
    assert client.patch(where, json={"name": "y"}).status_code == 404


def test_what_a_request_waited_for_its_credential_it_waits_less_for_its_change() -> None:
    """All its waits for the store have one deadline."""
    clock = SetClock(104.0)
    call = Call(EVERYBODY, ahead=Ahead(seconds=4))
    assert call.deadline(clock) == 100 + CHANGE_SECONDS
    clock.now += 3  # in one queue, before the next one
    assert call.deadline(clock) == 100 + CHANGE_SECONDS


class SlowClock(SetClock):
    """At each turn of others they take some seconds."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.now += 0.3


def test_work_with_many_items_gives_way() -> None:
    """Others have a turn each time that it has worked for long, and some seconds in all; it does not begin with one."""
    for clock, seconds, turns in (SetClock(), 0.03, 9), (SetClock(), 0.006, 4), (SlowClock(), 0.03, 4):
        done = []
        for number in in_turns(range(10), clock):
            done.append(number)
            clock.now += seconds
        assert done == [*range(10)]
        assert clock.slept == [YIELD_SECONDS] * turns


class WorkingClock(SetClock):
    """Each look at it takes some time."""

    def monotonic(self) -> float:
        self.now += 0.006
        return self.now


@pytest.mark.needs("batch")
def test_batches_and_arrays_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also inside of their transactions, which lose nothing by that."""
    monkeypatch.setattr("restkeeper.resources.call.CHANGE_SECONDS", 1000.0)
    client = create_app(Config(), clock=(clock := WorkingClock())).test_client()
    several = [{"name": str(number)} for number in range(100)]
    batch = {"operations": [{"method": "POST", "path": "/products", "body": each} for each in several]}
    for path, body, turns in ("/products", several, 60), ("/api/v1/batch", batch, 30):
        clock.slept.clear()
        assert client.post(path, json=body).status_code == 200
        assert clock.slept.count(YIELD_SECONDS) > turns
    assert client.get("/products").headers["X-Total-Count"] == "200"


def note_makers(tmp_path: Path) -> Iterator[tuple[FlaskClient, dict[str, str]]]:
    config = Config(database_url=f"sqlite:///{tmp_path}/n.db", auth="required", admin_key=ADMIN_KEY)
    client = create_app(config, [NOTES]).test_client()
    yield client, ADMIN
    for _ in "ab":
        yield client, key(client, "notes:read", "notes:write")


@pytest.mark.needs("keys", "ownership")
def test_the_etag_of_a_private_list_reveals_nothing(tmp_path: Path) -> None:
    """It changes with the caller's own items and not with those of others; POST can be conditional on it."""
    (client, admin), (_, one), (_, two) = note_makers(tmp_path)

    def tag(who: dict[str, str]) -> str:
        return client.get("/notes", headers=who).headers["ETag"]

    first = tag(one)
    all_of_it = tag(admin)
    assert client.post("/notes", headers=two, json={"text": "x"}).status_code == 200
    assert (tag(one), tag(admin) == all_of_it) == (first, False)
    assert client.get("/notes", headers=one | {"If-None-Match": first}).status_code == 304
    write_first(client, 1, lambda: client.post("/notes", headers=two, json={"text": "y"}))
    assert client.post("/notes", headers=one | {"If-Match": first}, json={"text": "z"}).status_code == 200
    assert tag(one) != first
    assert client.post("/notes", headers=one | {"If-Match": first}, json={"text": "z"}).status_code == 412
    assert client.post("/notes", headers=two | {"If-Match": tag(one)}, json={"text": "z"}).status_code == 412


@pytest.mark.needs("keys", "ownership")
def test_a_private_list_is_compared_in_the_transaction(tmp_path: Path) -> None:
    """Of two POSTs with one ETag, to two processes, the second returns 412, though it has read the list first."""
    (client, _), (_, one), _ = note_makers(tmp_path)
    second = note_makers(tmp_path)
    process, _ = next(second)
    headers = one | {"If-Match": client.get("/notes", headers=one).headers["ETag"]}
    statuses: list[int] = []

    def post(client: FlaskClient) -> None:
        statuses.append(client.post("/notes", headers=headers, json={"text": "a"}).status_code)

    write_first(client, 1, lambda: post(process))
    post(client)
    assert (statuses, len(client.get("/notes", headers=one).json)) == ([200, 412], 1)


@pytest.mark.needs("transfer")
def test_a_restored_item_has_a_new_etag(client: FlaskClient, tmp_path: Path) -> None:
    """An item is exported, edited, deleted and imported with the same version: its old ETag does not match."""
    made = client.post("/products", json={"name": "x"})
    where, tag = made.headers["Location"], made.headers["ETag"]
    assert client.delete(where).status_code == 200
    file = tmp_path / "items.ndjson"
    file.write_bytes(made.data.replace(b'"name":"x"', b'"name":"y"') + b"\n")
    assert client.application.test_cli_runner().invoke(args=["import", "products", str(file)]).exit_code == 0
    now = client.get(where, headers={"If-None-Match": tag})
    assert (now.status_code, now.json["version"], now.json["name"]) == (200, 1, "y")
    assert client.patch(where, json={"stock": 1}, headers={"If-Match": tag}).status_code == 412


def test_a_condition_is_compared_with_the_store(client: FlaskClient, tmp_path: Path) -> None:
    """A record with the same version and another body does not match: a change beside the service is not lost."""
    where = client.post("/products", json={"name": "x"}).headers["Location"]
    before = client.get(where).headers["ETag"]
    stores.execute(f"sqlite:///{tmp_path}/a.db", "UPDATE items SET body = replace(body, '\"x\"', '\"z\"')")
    assert client.get(where).headers["ETag"] != before
    assert client.patch(where, json={"stock": 1}).json["name"] == "z"


@pytest.mark.needs("keys", "ownership")
def test_a_long_private_list_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of which not all items are counted: its ETag is that of the collection."""
    monkeypatch.setattr("restkeeper.resources.items.MOST_COUNTED", 1)
    _, (client, one), _ = note_makers(tmp_path)
    for text in "abc":
        assert client.post("/notes", headers=one, json={"text": text}).status_code == 200
    tag = client.get("/notes", headers=one).headers["ETag"]
    statuses = [
        client.post("/notes", headers=one | {"If-Match": tag}, json={"text": each}).status_code for each in "de"
    ]
    assert statuses == [200, 412]

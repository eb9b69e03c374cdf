"""Several instances that write at the same time: who waits for whom, for how long, and what the feed shows."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import psycopg
import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.service import service_of
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import (
    DuplicateValue,
    RecordNotFound,
    ResponseStored,
    RevisionDiffers,
    StoreUnavailable,
)
from restkeeper.storage.interface import StoredResponse
from restkeeper.web.application import Application
from tests.postgresql.helpers import BLOCKED, Parallel
from tests.postgresql.test_locks import count_of
from tests.shop import create_app
from tests.things import THINGS, insert, open_store, record
from tests.waiting import SECONDS, until

T = TypeVar("T")

pytestmark = [pytest.mark.needs("idempotency"), pytest.mark.needs("events")]


class Held:
    """Lets one transaction of a store wait after its work, with all of its locks, until `release`."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._reached, self._released, self._write = threading.Event(), threading.Event(), store.write
        monkeypatch.setattr(store, "write", self._hold)

    def _hold(self, work: Callable[[Any], T], **options: Any) -> T:
        def held(transaction: Any) -> T:
            result = work(transaction)
            transaction.database.flush()
            self._reached.set()
            assert self._released.wait(SECONDS)
            return result

        return self._write(held if not self._reached.is_set() else work, **options)

    def wait(self) -> None:
        assert self._reached.wait(SECONDS)

    def release(self) -> None:
        self._released.set()


class Instances:
    """Two applications on one database, the first of which can be held, and items that both know."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._url, self._monkeypatch = url, monkeypatch
        self.apps: list[Application] = [create_app(Config(database_url=url)) for _ in range(2)]
        self.paths = [str(self.post(1, f"item {n}").headers["Location"]) for n in range(4)]
        self._numbers = iter(range(1000))

    def client(self, number: int) -> FlaskClient:
        return self.apps[number].test_client()

    def post(self, number: int, name: str) -> Any:
        headers = {"Idempotency-Key": f"key of {name}"}
        return self.client(number).post("/products", json={"name": name, "sku": name}, headers=headers)

    def change(self, number: int, kind: str, path: str) -> Any:
        """Create an item, or change or delete that at the path."""
        name = f"new {next(self._numbers)}"
        if kind == "create":
            return self.post(number, name)
        return self.client(number).open(path, method=kind, **({"json": {"name": name}} if kind == "PATCH" else {}))

    @contextmanager
    def hold(self, change: Callable[[], Any]) -> Iterator[Parallel]:
        """Meanwhile a change at the first instance is in its open transaction. At the end it is committed."""
        held, parallel = Held(service_of(self.apps[0]).store, self._monkeypatch), Parallel()
        made = parallel.start(change)
        try:
            held.wait()
            yield parallel
        finally:
            held.release()
        parallel.join()
        assert made.result().status_code == 200

    def wait_until_blocked(self) -> None:
        until(lambda: count_of(self._url, BLOCKED) == 1)

    def events(self, after: str = "") -> list[tuple[str, int]]:
        """The names and versions in the feed, as the second instance returns it."""
        page = self.client(1).get("/api/v1/events", query_string={"after": after} if after else {}).json
        return [(each["data"]["name"], each["data"]["version"]) for each in page]

    def close(self) -> None:
        for app in self.apps:
            service_of(app).store.close()


@pytest.fixture
def instances(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instances]:
    made = Instances(url, monkeypatch)
    yield made
    made.close()


KINDS = ["create", "PATCH", "DELETE"]


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_writers_of_different_items_do_not_wait_for_each_other(instances: Instances, first: str, second: str) -> None:
    """With one transaction open after all that its request does, the change of another item is complete."""
    with instances.hold(lambda: instances.change(0, first, instances.paths[0])):
        for _ in range(3):
            done = instances.change(1, second, instances.paths.pop())
            assert done.status_code == 200, done.text


def test_a_repetition_at_another_instance_waits_for_the_first_response(instances: Instances) -> None:
    with instances.hold(lambda: instances.post(0, "mine")) as parallel:
        twin = parallel.start(instances.post, 1, "mine")
        instances.wait_until_blocked()
        assert not twin.done()
    response = twin.result()
    assert response.status_code == 200 and response.headers["Idempotent-Replayed"] == "true"
    assert [each["id"] for each in instances.client(0).get("/products?name=mine").json] == [response.json["id"]]


def test_the_events_of_an_item_have_the_order_of_its_versions(instances: Instances) -> None:
    """Who changes an item that an open transaction changes waits, and its event comes after."""
    path = instances.paths[0]
    with instances.hold(lambda: instances.client(0).patch(path, json={"stock": 1})) as parallel:
        second = parallel.start(lambda: instances.client(1).patch(path, json={"stock": 2}))
        instances.wait_until_blocked()
        instances.post(1, "other")
        assert instances.events()[4:] == [("other", 1)]
    assert second.result().json["version"] == 3
    assert instances.events()[4:] == [("other", 1), ("item 0", 2), ("item 0", 3)]


@pytest.mark.parametrize("limit", ["statement", "transaction"])
def test_a_scan_may_take_longer(url: str, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """An export of a large collection is no transaction that holds up others."""
    insert(open_store(url, [THINGS]), *(record(str(n)) for n in range(20)))
    store = open_store(f"{url}&options=-c%20{limit}_timeout%3D300ms", [THINGS])
    slow = "SELECT id, version, updated_at, fingerprint, convert_to(body, 'UTF8'), owner, NULL FROM items"
    monkeypatch.setattr(
        "restkeeper.storage.postgresql.store.SCAN", f"{slow}, pg_sleep(0.05) WHERE collection = :collection"
    )
    assert len(list(store.scan("things"))) == 20


def test_a_change_that_waits_for_several_locks_says_so(url: str) -> None:
    """Together they can take longer than a statement may; nothing was searched."""
    insert(open_store(url, [THINGS]), record("a"))
    store = open_store(f"{url}&options=-c%20statement_timeout%3D300ms", [THINGS])
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM items FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="others change the same items"):
            store.write(lambda transaction: transaction.update("things", record("a", 2)), deadline=time.monotonic() + 9)


def test_a_time_limit_is_of_one_search(url: str) -> None:
    """What comes after it in the same transaction may take longer again, as the URL says."""
    store, shown = open_store(f"{url}&options=-c%20statement_timeout%3D7s", [THINGS]), []

    def work(transaction: Transaction) -> None:
        transaction.count("things", most=1, seconds=0.5)
        shown.append(transaction.database.fetch("SHOW statement_timeout"))  # type: ignore[attr-defined]

    for _ in range(2):
        store.write(work)
    assert shown == [[("7s",)]] * 2


@pytest.mark.parametrize("many", [False, True])
def test_an_item_out_of_the_order_is_not_waited_for(url: str, many: bool) -> None:
    """A transaction ends at once instead, and the next one has the collection alone."""
    options = "options=-c%20lock_timeout%3D0%20-c%20statement_timeout%3D1s"  # one that waits has another error
    store, parallel, begun = open_store(f"{url}&{options}", [THINGS]), Parallel(), threading.Semaphore(0)
    insert(store, record("a"), record("b"))

    def work(transaction: Transaction) -> None:
        begun.release()
        transaction.read("things", "b")
        if many:
            assert len(transaction.read_all("things", ["b", "a"])) == 2
        else:
            transaction.read("things", "a")

    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM items WHERE id = 'a' FOR UPDATE")
        parallel.start(partial(store.write, work, deadline=time.monotonic() + SECONDS))
        assert all(begun.acquire(timeout=SECONDS) for _ in range(2))
        until(lambda: count_of(url, BLOCKED) == 1)
    parallel.join()


def test_an_id_that_others_have_taken_meanwhile_is_looked_for_again(url: str) -> None:
    """But not one that the transaction has taken itself."""
    store, found = open_store(url, [THINGS]), list[int]()

    def put(transaction: Transaction, id: str, times: int) -> None:
        try:
            found.append(transaction.read("things", id).version)
        except RecordNotFound:
            insert(store, record("a"))
            for _ in range(times):
                transaction.insert("things", record(id))

    store.write(partial(put, id="a", times=1), deadline=time.monotonic() + SECONDS)
    assert found == [1]
    store.write(lambda transaction: transaction.delete("things", "a"))
    with pytest.raises(DuplicateValue):
        store.write(partial(put, id="b", times=2), deadline=time.monotonic() + SECONDS)


def test_a_counter_that_is_missing_is_made_again(url: str) -> None:
    """By the next start, as after a restore of an older dump beside running programs; until then nothing changes."""
    store = open_store(url, [THINGS])
    insert(store, record("a"))
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("DELETE FROM counters")
    with pytest.raises(RevisionDiffers):
        insert(store, record("b"))
    store = open_store(url, [THINGS])
    store.write(lambda transaction: transaction.update("things", record("a", 2)))
    insert(store, record("b"))
    assert store.count("things") == 1, "what was counted before is lost"
    assert store.change_token("things").endswith("-2")


def test_a_refused_change_leaves_its_connection_in_order(url: str) -> None:
    """Whenever its statements would have been prepared: those after an error in one round trip are not executed."""
    store = open_store(url, [THINGS])
    response = StoredResponse(1.0, b"x")
    store.write(lambda transaction: transaction.store_response(b"id", response, expired_before=0.0))

    def work(transaction: Transaction) -> None:
        transaction.store_response(b"id", response, expired_before=0.0)
        transaction.insert("things", record("never"))

    def change(transaction: Transaction) -> None:
        transaction.update("things", record("unknown"))

    for number in range(12):
        for refused, error in ((work, ResponseStored), (change, RecordNotFound)):
            with pytest.raises(error):
                store.write(refused)
        with pytest.raises(RecordNotFound):
            store.write(lambda transaction: transaction.update("things", record("unknown")))
        insert(store, record(f"{number}"))
    assert store.count("things") == 12

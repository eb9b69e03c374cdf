"""What refers to items beside what changes or deletes these: who waits for whom, and that none waits for each other."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest

from restkeeper.config import Config
from restkeeper.service import service_of
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import ReferenceMissing
from restkeeper.storage.postgresql.items import PostgresTransaction
from tests.postgresql.helpers import BLOCKED, Parallel
from tests.shop.references import create_app
from tests.things import THINGS, insert, kept, open_store, record
from tests.waiting import SECONDS, until

DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


def count_of(url: str, statement: str) -> int:
    with psycopg.connect(url, autocommit=True) as session:
        ((found,),) = session.execute(statement).fetchall()
    return int(found)


def refer(transaction: Transaction, ids: Sequence[str]) -> None:
    """What a write does that refers to these things."""
    transaction.require_present("things", ids, lambda id: ReferenceMissing("#/thing", f"there is no {id}", "list"))


@pytest.fixture
def store(url: str) -> Store:
    made: Store = open_store(url, [THINGS])
    insert(made, record("a"), record("b"))
    return made


def test_references_and_changes_of_the_same_items_do_not_wait_for_each_other(store: Store, url: str) -> None:
    """In whatever order each has them: after both have the half, each gets the other half."""
    half, parallel = threading.Barrier(2, timeout=SECONDS), Parallel()

    def create(transaction: Transaction) -> None:
        for id in "ab":
            refer(transaction, [id])
            transaction.database.flush()  # type: ignore[attr-defined]
            half.wait()

    def act(transaction: Transaction) -> None:
        for id in "ba":
            transaction.update("things", transaction.read("things", id)._replace(version=2))
            transaction.database.flush()  # type: ignore[attr-defined]
            half.wait()

    for work in (create, act):
        parallel.start(store.write, work)
    parallel.join()
    assert count_of(url, DEADLOCKS) == 0
    assert [store.read("things", id).version for id in "ab"] == [2, 2]


def test_a_read_that_is_sent_with_the_lock_before_it_sees_what_that_waited_for(store: Store, url: str) -> None:
    """Both are sent together, and each statement sees what is committed when it begins."""
    parallel, is_held, can_end = Parallel(), threading.Event(), threading.Event()

    def hold(transaction: Transaction) -> None:
        transaction.insert("things", record("new"))
        transaction.update("things", record("a", 2))
        transaction.flush()
        is_held.set()
        can_end.wait(SECONDS)

    def look(transaction: Transaction) -> list[int]:
        transaction.lock_collection("things")
        return [
            transaction.read("things", "new").version,
            *(each.version for each in transaction.read_all("things", "ab")),
        ]

    parallel.start(store.write, hold)
    is_held.wait(SECONDS)
    looking = parallel.start(store.write, look)
    until(lambda: count_of(url, BLOCKED) == 1)
    can_end.set()
    parallel.join()
    assert looking.result() == [1, 2, 1]


def test_references_are_locked_in_one_order(url: str) -> None:
    """Beside a deletion of the same items: who refers to them in another order waits for the first, and holds none."""
    app, parallel = create_app(Config(database_url=url)), Parallel()
    store, client = kept(service_of(app).store), app.test_client()
    first, last = sorted(each["id"] for each in client.post("/owners", json=[{}, {}]).json)
    sent = {"lines": [], "owners": [last, first]}
    referring: list[Future[Any]] = []

    def delete(transaction: Transaction) -> None:
        for id in (first, last):
            transaction.lock_to_delete("owners", id)
            transaction.delete("owners", id)
            transaction.database.flush()  # type: ignore[attr-defined]
            if not referring:
                referring.append(parallel.start(lambda: app.test_client().post("/lists", json=sent)))
                until(lambda: count_of(url, BLOCKED) == 1)

    store.write(delete)
    parallel.join()
    assert referring[0].result().status_code == 422
    assert count_of(url, DEADLOCKS) == 0


def test_nothing_comes_to_refer_to_what_is_being_deleted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the moment on when it is looked for what refers to it."""
    app = create_app(Config(database_url=url))
    kept(service_of(app).store)
    client = app.test_client()
    path, parallel = client.post("/owners", json={}).headers["Location"], Parallel()
    referring: list[Future[Any]] = []
    find: Callable[..., Any] = PostgresTransaction.find

    def find_and_wait(transaction: PostgresTransaction, *given: Any) -> Any:
        found = find(transaction, *given)
        if not referring:
            sent = {"owner": path.rpartition("/")[2]}
            referring.append(parallel.start(lambda: app.test_client().post("/things", json=sent)))
            until(lambda: referring[0].done() or count_of(url, BLOCKED) == 1)
        return found

    monkeypatch.setattr(PostgresTransaction, "find", find_and_wait)
    assert client.delete(path).status_code == 200
    parallel.join()
    assert referring[0].result().status_code == 422

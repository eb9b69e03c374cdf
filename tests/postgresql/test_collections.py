"""Collections that a transaction locks: who waits, in what order, for how long; nobody waits for each other."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, RecordNotFound, ReferenceMissing, StoreUnavailable
from restkeeper.storage.interface import ALL, Collection
from restkeeper.storage.location import Options
from tests.postgresql.helpers import BLOCKED, Parallel
from tests.postgresql.test_locks import DEADLOCKS, count_of
from tests.things import FIELDS, OTHERS, THINGS, insert, open_store, record
from tests.waiting import SECONDS, until

NAMES = ["a", "b", "c"]
THREE = [Collection(name, {"id": FIELDS["id"]}) for name in NAMES]


def repeat(store: Store, work: Callable[[Transaction], object]) -> None:
    """Write as a request does: with a deadline, until which the store repeats it."""
    store.write(work, deadline=time.monotonic() + SECONDS)


@pytest.fixture
def store(url: str) -> Store:
    made: Store = open_store(url, [THINGS, OTHERS])
    return made


class Holder:
    """A transaction that waits with all of its locks until `release`."""

    def __init__(self, store: Store, parallel: Parallel, *works: Callable[[Transaction], object]) -> None:
        self._works, self._reached, self._released = works, threading.Event(), threading.Event()
        self.future = parallel.start(store.write, self._hold)
        assert self._reached.wait(SECONDS)

    def _hold(self, transaction: Transaction) -> None:
        for work in self._works:
            work(transaction)
        transaction.database.flush()  # type: ignore[attr-defined]
        self._reached.set()
        assert self._released.wait(SECONDS)

    def release(self) -> None:
        self._released.set()


def lock(transaction: Transaction) -> None:
    transaction.lock_collection("things")


CHANGES: dict[str, Callable[[Transaction], object]] = {
    "insert": lambda transaction: transaction.insert("things", record("new")),
    "update": lambda transaction: transaction.update("things", record("a", 2)),
    "delete": lambda transaction: transaction.delete("things", "a"),
    "read": lambda transaction: transaction.read("things", "a"),
    "lock_to_delete": lambda transaction: transaction.lock_to_delete("things", "a"),
    "shared": lambda transaction: transaction.lock_collection("things", shared=True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_locked_collection_and_its_changes_wait_for_each_other(store: Store, url: str, name: str) -> None:
    """And so does what locks an item, that is changed or deleted then; other collections go on."""
    insert(store, record("a"))
    for first, second in ((lock, CHANGES[name]), (CHANGES[name], lock)):
        parallel = Parallel()
        held = Holder(store, parallel, first)
        waiting = parallel.start(store.write, second)
        until(lambda: count_of(url, BLOCKED) == 1)
        insert(store, record(f"of {first is lock}"), collection="others")
        assert store.read("things", "a") and not waiting.done()
        held.release()
        with suppress(RecordNotFound):  # of what the first one has deleted
            parallel.join()
        store.write(lambda transaction: [transaction.delete("things", id) for id in transaction.find("things", ALL, 9)])
        insert(store, record("a"))


def test_who_comes_first_is_served_first(store: Store, url: str) -> None:
    """A change that comes after one that waits for the collection does not overtake it, though it could go on."""
    parallel, order = Parallel(), list[str]()
    held = Holder(store, parallel, CHANGES["insert"])

    def look(transaction: Transaction) -> None:
        lock(transaction)
        transaction.database.flush()  # type: ignore[attr-defined]
        order.append("look")

    def change(name: str, transaction: Transaction) -> None:
        transaction.insert("things", record(name))
        transaction.database.flush()  # type: ignore[attr-defined]
        order.append(name)

    for number, work in enumerate((look, partial(change, "second"))):
        parallel.start(store.write, work)
        until(lambda number=number: count_of(url, BLOCKED) == number + 1)
    assert order == []
    held.release()
    parallel.join()
    assert order == ["look", "second"]


def test_what_would_wait_out_of_the_order_is_repeated(store: Store, url: str) -> None:
    """Who has locked something waits for no collection, but ends, and locks all of it first in the next transaction."""
    parallel, found = Parallel(), list[int]()

    def look(transaction: Transaction) -> None:
        transaction.insert("others", record("o"))
        lock(transaction)
        found.append(transaction.count("things", most=9))

    held = Holder(store, parallel, CHANGES["insert"])
    looking = parallel.start(repeat, store, look)
    until(lambda: count_of(url, BLOCKED) == 1)
    assert not looking.done()
    held.release()
    parallel.join()
    assert found == [1]


def test_who_refers_to_an_item_waits_for_no_collection(store: Store, url: str) -> None:
    """A deletion of the item would wait for it, and could have that collection."""
    insert(store, record("a"))
    parallel, begun = Parallel(), list[str]()

    def refer(transaction: Transaction) -> None:
        begun.append("attempt")
        transaction.require_present("things", ["a"], missing)
        transaction.insert("others", record("o"))

    held = Holder(store, parallel, lambda transaction: transaction.lock_collection("others"))
    parallel.start(repeat, store, refer)
    until(lambda: count_of(url, BLOCKED) == 1)
    repeat(store, CHANGES["delete"])  # which does not wait for it
    held.release()
    with pytest.raises(ReferenceMissing):
        parallel.join()
    assert len(begun) == 2


def test_a_work_begins_with_the_locks_of_its_collections(store: Store, url: str) -> None:
    """In one order, whatever it does first: it waits for them, and does nothing twice."""
    parallel, begun = Parallel(), list[str]()

    def work(transaction: Transaction) -> None:
        begun.append("attempt")
        transaction.insert("things", record("t"))
        transaction.insert("others", record("o"))

    held = Holder(store, parallel, lambda transaction: transaction.lock_collection("others"))
    writing = partial(store.write, collections=["things", "others"], deadline=time.monotonic() + SECONDS)
    parallel.start(writing, work)
    until(lambda: count_of(url, BLOCKED) == 1)
    held.release()
    parallel.join()
    assert begun == ["attempt"]


def test_a_collection_that_was_locked_in_a_savepoint_is_locked_again_after_it(store: Store, url: str) -> None:
    """The database has released it when the savepoint was undone."""
    parallel = Parallel()

    def undo(transaction: Transaction) -> None:
        with suppress(LookupError), transaction.savepoint():
            lock(transaction)
            raise LookupError

    held = Holder(store, parallel, undo, lock)
    waiting = parallel.start(insert, store, record("a"))
    until(lambda: count_of(url, BLOCKED) == 1)
    assert not waiting.done()
    held.release()
    parallel.join()


def test_a_wait_for_a_collection_ends_at_the_deadline(store: Store, url: str) -> None:
    parallel = Parallel()
    held = Holder(store, parallel, lock)
    with pytest.raises(StoreUnavailable, match="others change the same items"):
        store.write(CHANGES["insert"], deadline=time.monotonic() + 0.1)
    held.release()
    parallel.join()


def test_transactions_in_any_order_do_not_wait_for_each_other(url: str) -> None:
    """Each looks at some collections, and moves one from an item to another, of any: all end, and nothing is lost.

    The database has had to end none, as it does where two wait for each other.
    """
    store: Store = open_store(url, THREE, Options(connections=12))
    for name in NAMES:
        insert(store, *(record(id) for id in NAMES), collection=name)

    def move(seed: str, transaction: Transaction) -> None:
        random = Random(seed)  # noqa: S311 - each attempt does the same
        for name in random.sample(NAMES, random.randrange(3)):
            transaction.lock_collection(name)
        for amount in (1, -1):
            name, id = random.choice(NAMES), random.choice(NAMES)
            transaction.update(name, record(id, transaction.read(name, id).version + amount))
            with suppress(RecordNotFound):
                transaction.read(random.choice(NAMES), random.choice(["none", *NAMES]))

    def run(number: int) -> None:
        for each in range(10):
            repeat(store, partial(move, f"{number} {each}"))

    parallel = Parallel()
    for number in range(12):
        parallel.start(run, number)
    parallel.join()
    assert sum(store.read(name, id).version for name in NAMES for id in NAMES) == 9
    assert count_of(url, DEADLOCKS) == 0


def missing(id: str) -> ReferenceMissing:
    return ReferenceMissing("#/thing", f"there is no {id}", "o")


def refer(transaction: Transaction) -> None:
    transaction.require_present("things", ["a"], missing)


def test_a_deletion_does_not_wait_for_who_refers_to_its_item(store: Store, url: str) -> None:
    """It has read the item, as who refers to it may want to. The next attempt waits, with the collection alone."""
    insert(store, record("a"))
    parallel, begun = Parallel(), list[str]()

    def delete(transaction: Transaction) -> None:
        begun.append("attempt")
        transaction.read("things", "a")
        transaction.lock_to_delete("things", "a")
        transaction.delete("things", "a")

    held = Holder(store, parallel, refer)
    parallel.start(repeat, store, delete)
    until(lambda: count_of(url, BLOCKED) == 1)
    held.release()
    parallel.join()
    assert (store.count("things"), len(begun)) == (0, 2)


def test_a_reference_out_of_the_order_is_not_waited_for(store: Store, url: str) -> None:
    """Who deletes the item may wait for another one, which this transaction has. The next attempt waits, as above."""
    insert(store, record("a"), record("b"))
    parallel, begun = Parallel(), list[str]()

    def change(transaction: Transaction) -> None:
        begun.append("attempt")
        transaction.read("things", "b")
        refer(transaction)

    held = Holder(store, parallel, lambda transaction: transaction.lock_to_delete("things", "a"))
    parallel.start(repeat, store, change)
    until(lambda: count_of(url, BLOCKED) == 1)
    held.release()
    parallel.join()
    assert len(begun) == 2


def test_a_deadlock_is_done_again(store: Store) -> None:
    """Where two store the same unique values in opposite orders the database ends one, which then waits for the other.

    No lock of the store has an order of values.
    """
    half, parallel, begun = threading.Barrier(2, timeout=SECONDS), Parallel(), list[str]()

    def create(skus: str, transaction: Transaction) -> None:
        begun.append(skus)
        for sku in skus:
            transaction.insert("things", record(f"{skus} {sku}", sku=sku))
            transaction.flush()
            if sku == skus[0] and len(begun) < 3:
                half.wait()

    for skus in ("ab", "ba"):
        parallel.start(repeat, store, partial(create, skus))
    with pytest.raises(DuplicateValue):
        parallel.join()
    assert (store.count("things"), len(begun)) == (2, 3)

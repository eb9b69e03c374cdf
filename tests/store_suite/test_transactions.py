"""Transactions: all or nothing, in the context of the caller, and isolated from each other."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial

import pytest

from restkeeper.clock import YIELD_SECONDS
from restkeeper.storage.base import CONTENDED_SECONDS, Store, Transaction
from restkeeper.storage.errors import (
    DuplicateValue,
    RecordChanged,
    RecordNotFound,
    ResponseStored,
    SearchTooLong,
    StoreContended,
    StoreError,
    StoreUnavailable,
)
from restkeeper.storage.feed import last_event
from restkeeper.storage.interface import Filter, Key, Op, Query, Record, StoredResponse
from tests.clock import SetClock
from tests.outbox import event
from tests.things import fill, ids, insert, record
from tests.waiting import SECONDS, join


def test_a_failed_work_is_rolled_back(store: Store) -> None:
    """If a work raises, its changes are rolled back, and the caller gets the exception."""

    def work(transaction: Transaction) -> None:
        transaction.insert("things", record("a"))
        transaction.insert("things", record("b"))
        transaction.add_event(event())
        transaction.store_response(b"r", StoredResponse(2.0, b"new"), expired_before=1.5)
        raise LookupError("of the caller's own")

    store.write(lambda transaction: transaction.store_response(b"r", StoredResponse(1.0, b"old"), expired_before=0.0))
    before = store.change_token("things"), last_event(store)
    with pytest.raises(LookupError, match="own"):
        store.write(work)
    assert (ids(store), store.count("things"), store.look_up([b"r"])) == ([], 0, [(1.0, b"old")])
    assert (store.change_token("things"), last_event(store)) == before


def test_what_is_committing_ends_a_transaction(store: Store) -> None:
    """It sees what was written, if the store accepts that, and can refuse it."""
    seen = list[list[str]]()

    def commit(transaction: Transaction) -> None:
        seen.append([id for id in ("a", "b") if is_there(transaction, id)])
        if "b" in seen[-1]:
            raise StoreUnavailable("it cannot be saved elsewhere")

    def is_there(transaction: Transaction, id: str) -> bool:
        with suppress(RecordNotFound):
            return transaction.read("things", id).id == id
        return False

    assert store.count("things") == 0
    store.committing.add(commit)
    store.write(lambda transaction: transaction.insert("things", record("a", sku="1")))
    with pytest.raises(StoreUnavailable, match="elsewhere"):
        store.write(lambda transaction: transaction.insert("things", record("b", sku="2")))
    with pytest.raises(DuplicateValue):
        store.write(lambda transaction: transaction.insert("things", record("c", sku="1")))
    assert (seen, ids(store)) == ([["a"], ["a", "b"]], ["a"])


def test_what_is_beginning_can_write(store: Store) -> None:
    """It is called for each transaction, and not for what it writes."""
    begun = list[str]()

    def begin() -> None:
        begun.append(f"b{len(begun)}")
        store.write(lambda transaction: transaction.insert("things", record(begun[-1])), wait=False)

    assert store.count("things") == 0
    store.beginning.add(begin)
    for id in ("a", "c"):
        store.write(lambda transaction, id=id: transaction.insert("things", record(id)))
    assert ids(store) == ["a", "b0", "b1", "c"]


ROUNDS = 10


@pytest.mark.parametrize("question", ["count", "page", "read"])
def test_what_a_transaction_looks_for_stays_so_until_its_end(store: Store, question: str) -> None:
    """Of many at the same time that look for something before they write it, one finds nothing."""
    together, done = threading.Barrier(12, timeout=SECONDS), list[str]()

    def is_free(transaction: Transaction, name: str) -> bool:
        transaction.lock_collection("things")
        if question == "read":
            with suppress(RecordNotFound):
                return not transaction.read("things", name)
            return True
        wanted = Query((Filter("name", Op.EQ, name),))
        if question == "count":
            return not transaction.count("things", wanted, most=1)
        return not transaction.page("things", wanted).bodies

    def work(name: str, id: str, transaction: Transaction) -> bool:
        transaction.insert("others", record(id))
        if is_free(transaction, name):
            transaction.insert("things", record(name if question == "read" else id, name=name))
            return True
        return False

    def take(number: int) -> None:
        for name in map(str, range(ROUNDS)):
            together.wait()
            try:
                found = store.write(partial(work, name, f"{name} of {number}"), deadline=time.monotonic() + SECONDS)
            except BaseException:
                together.abort()
                raise
            done.extend([name] * found)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(take, range(12)))
    assert sorted(done) == [*map(str, range(ROUNDS))]
    assert (store.count("things"), store.count("others")) == (ROUNDS, 12 * ROUNDS)


LONG = Query((Filter("name", Op.LIKE, "z"),))  # of what `fill` has stored


@pytest.mark.parametrize(
    "search",
    [
        lambda transaction, seconds: transaction.page("things", LONG, seconds=seconds),
        lambda transaction, seconds: transaction.count("things", LONG, most=9, seconds=seconds),
    ],
)
def test_a_search_in_a_transaction_has_a_time_limit(
    store: Store, search: Callable[[Transaction, float], object]
) -> None:
    """It ends that transaction, also if it is caught, and no other that shares its commit."""
    fill(store, 100, 20_000)
    together = threading.Barrier(2, timeout=SECONDS)

    def work(transaction: Transaction, id: str, seconds: float) -> None:
        transaction.insert("things", record(id))
        with suppress(SearchTooLong) if id == "caught" else nullcontext():
            search(transaction, seconds)

    def write(id: str, seconds: float) -> str:
        together.wait()
        try:
            store.write(partial(work, id=id, seconds=seconds))
        except SearchTooLong as error:
            assert error.seconds == seconds
            return "too long"
        return "done"

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(write, ["raised", "quick"], [0.0001, SECONDS]))
        found += pool.map(write, ["caught", "after"], [0.0001, SECONDS])
    assert found == ["too long", "done"] * 2
    assert sorted(set(ids(store)) - {f"{n:03}" for n in range(100)}) == ["after", "quick"]


# Changes that fail if there is an item "a" with the sku "s", and an item "b".
FAILING: list[Callable[[Transaction], None]] = [
    lambda transaction: transaction.insert("things", record("c", sku="s")),
    lambda transaction: transaction.insert("things", record("a")),
    lambda transaction: transaction.update("things", record("b", 2, sku="s")),
    lambda transaction: transaction.update("things", record("x")),
    lambda transaction: transaction.delete("things", "x"),
]
ERRORS = (DuplicateValue, RecordNotFound)


def test_a_transaction_continues_after_an_error_in_a_savepoint(store: Store) -> None:
    insert(store, record("a", sku="s"), record("b"))

    def work(transaction: Transaction) -> bool:
        before = transaction.change_token("things")
        for attempt in FAILING:
            with pytest.raises(ERRORS), transaction.savepoint():
                attempt(transaction)
        is_same = transaction.change_token("things") == before
        transaction.insert("things", record("d"))
        return is_same

    assert store.write(work)
    assert list(store.scan("things")) == [record("a", sku="s"), record("b"), record("d")]
    assert store.count("things") == 3


def test_keys_are_looked_up_at_one_moment(store: Store) -> None:
    """An item, a response and a change token, in the order of the keys; None stands for what does not exist."""
    insert(store, record("a"), record("b"))
    change_token = store.change_token("things")
    response = StoredResponse(1.0, b"body")
    store.write(lambda transaction: transaction.store_response(b"r", response, expired_before=0.0))
    keys: list[Key] = [("things", "b"), "things", b"r", ("things", "x"), b"x", ("things", "a"), "others"]
    found = store.look_up(keys)
    assert found == [record("b"), change_token, response, None, None, record("a"), store.change_token("others")]
    assert store.look_up(["things"]) == [change_token] != [found[-1]]


def test_an_error_outside_of_a_savepoint_ends_the_transaction(store: Store) -> None:
    insert(store, record("a", sku="s"), record("b"))

    def work(transaction: Transaction, change: Callable[[Transaction], None]) -> None:
        transaction.insert("things", record("d"))
        with suppress(*ERRORS):
            change(transaction)

    for change in FAILING:
        with pytest.raises(ERRORS):
            store.write(partial(work, change=change))
    assert ids(store) == ["a", "b"]
    insert(store, record("d"))  # and the next transaction is not concerned


def test_an_error_ends_the_transaction_though_it_was_caught(store: Store) -> None:
    """Also if a read that comes later has raised it, whose caller goes on."""
    insert(store, record("a"))
    store.write(lambda transaction: transaction.store_response(b"id", StoredResponse(0.5, b"y"), expired_before=0.0))
    failing: dict[type[Exception], Callable[[Transaction], None]] = {
        ResponseStored: lambda transaction: transaction.store_response(
            b"id", StoredResponse(1.0, b"x"), expired_before=0.0
        ),
        DuplicateValue: lambda transaction: transaction.insert("things", record("a")),
    }

    def work(transaction: Transaction, fail: Callable[[Transaction], None], ends_in_savepoint: bool) -> None:
        with suppress(Exception):
            fail(transaction)
            transaction.insert("things", record("b"))
            transaction.change_token("things")
        with suppress(Exception), transaction.savepoint() if ends_in_savepoint else nullcontext():
            transaction.insert("things", record("c"))

    for error, fail in failing.items():
        for ends_in_savepoint in (False, True):
            with pytest.raises(error):
                store.write(partial(work, fail=fail, ends_in_savepoint=ends_in_savepoint))
    assert (ids(store), store.look_up([b"id"])) == (["a"], [StoredResponse(0.5, b"y")])


def test_an_unknown_item_ends_no_transaction(store: Store) -> None:
    """RecordNotFound of a read needs no savepoint, with a lock or without."""

    def work(transaction: Transaction) -> None:
        transaction.insert("things", record("a"))
        for lock in (True, False):
            with pytest.raises(RecordNotFound):
                transaction.read("things", "x", lock=lock)
        assert transaction.read("things", "a", lock=False) == record("a")

    store.write(work)
    assert ids(store) == ["a"]
    with pytest.raises(RecordNotFound):
        store.read("things", "x")


def test_a_savepoint_undoes_its_changes(store: Store) -> None:
    def work(transaction: Transaction) -> tuple[str, str]:
        transaction.insert("things", record("a"))
        transaction.insert("others", record("b"))
        before = transaction.change_token("things")
        with suppress(LookupError), transaction.savepoint():
            transaction.update("things", record("a", 2))
            transaction.delete("others", "b")
            transaction.insert("things", record("c"))
            transaction.store_response(b"x", StoredResponse(1.0, b""), expired_before=0.0)
            raise LookupError
        after = transaction.change_token("things")
        transaction.insert("things", record("d"))
        return before, after

    before, after = store.write(work)
    assert before == after
    assert list(store.scan("things")) == [record("a"), record("d")]
    assert (list(store.scan("others")), store.count("things")) == ([record("b")], 2)
    assert store.look_up([b"x"])[0] is None


def test_an_outer_savepoint_undoes_what_an_inner_one_has_made(store: Store) -> None:
    """And what was changed before that, though nothing was sent since the inner one has ended."""

    def work(transaction: Transaction) -> None:
        with suppress(LookupError), transaction.savepoint():
            transaction.insert("things", record("a"))
            with transaction.savepoint():
                transaction.insert("things", record("b"))
            raise LookupError
        transaction.insert("things", record("c"))

    store.write(work)
    assert ids(store) == ["c"]


def test_a_savepoint_raises_the_error_of_a_change_inside(store: Store) -> None:
    def work(transaction: Transaction) -> None:
        transaction.insert("things", record("a"))
        with pytest.raises(DuplicateValue), transaction.savepoint():
            transaction.insert("things", record("b"))
            with suppress(DuplicateValue):
                transaction.insert("things", record("a"))
        with pytest.raises(DuplicateValue), transaction.savepoint(), suppress(Exception):
            transaction.insert("things", record("a"))
            transaction.read("things", "a")  # makes the change

    store.write(work)
    assert ids(store) == ["a"]


def test_a_work_without_a_deadline_runs_once(store: Store) -> None:
    """Whether it succeeds or fails, because it can have other effects."""
    runs: list[str] = []
    store.write(lambda _: runs.append("done"))
    with pytest.raises(LookupError):
        store.write(lambda _: [runs.append("failed"), {}["x"]])
    assert runs == ["done", "failed"]


@pytest.mark.parametrize(("error", "pause"), [(RecordChanged, YIELD_SECONDS), (StoreContended, CONTENDED_SECONDS)])
def test_a_work_with_a_deadline_runs_until_then(store: Store, error: type[StoreError], pause: float) -> None:
    """If the store has to end it, or if what it was computed from has changed; nothing of a former attempt is left."""
    store._clock = clock = SetClock(begin := time.monotonic())
    runs, deadline = list[str](), begin + 3

    def work(transaction: Transaction, most: float) -> None:
        clock.now = begin + len(runs)
        runs.append("run")
        transaction.insert("things", record("a"))
        if len(runs) < most:
            raise error("another change")

    store.write(partial(work, most=3), deadline=deadline)
    assert (len(runs), clock.slept, ids(store)) == (3, [pause] * 2, ["a"])
    store.write(lambda transaction: transaction.delete("things", "a"))
    runs.clear()
    with pytest.raises(StoreContended, match="others change this item at the same time; try again"):
        store.write(partial(work, most=9), deadline=deadline)
    assert len(runs) == 4
    with pytest.raises(error, match="another change"):
        store.write(partial(work, most=9))
    assert (len(runs), ids(store)) == (5, [])


def test_who_looks_before_it_creates_loses_nothing(store: Store) -> None:
    """Of many at the same time one creates the item, and the others find it."""

    def put(transaction: Transaction) -> None:
        try:
            transaction.update("things", record("a", transaction.read("things", "a").version + 1))
        except RecordNotFound:
            transaction.insert("things", record("a"))

    def put_some(_: int) -> None:
        for _ in range(ROUNDS):
            store.write(put, deadline=time.monotonic() + SECONDS)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put_some, range(8)))
    assert store.read("things", "a").version == 8 * ROUNDS


def test_many_records_are_read_together(store: Store) -> None:
    """In the order of their ids, without those that do not exist; what the transaction has changed is there."""
    insert(store, *map(record, "abcé"))

    def work(transaction: Transaction) -> list[Record]:
        transaction.update("things", record("b", 2))
        transaction.delete("things", "c")
        return transaction.read_all("things", ["é", "c", "missing", "b", "\0", "a"])

    assert store.write(work) == [record("a"), record("b", 2), record("é")]


def test_writers_on_many_threads_lose_nothing(store: Store) -> None:
    """Works that share a commit succeed or fail independently."""
    failures: list[str] = []

    def write(number: int) -> None:
        for n in range(25):
            try:
                insert(store, record(f"{number}-{n}", sku=f"{n}" if number % 2 else None))
            except DuplicateValue:
                failures.append(f"{number}-{n}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    join(*threads)
    assert len(failures) == 3 * 25  # each unique value was stored once
    assert len(ids(store)) == store.count("things") == 8 * 25 - len(failures)

"""Transactions: all or nothing, in the context of the caller, and isolated from each other."""

import threading
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from restkeeper.storage.contract import Record, Store, Transaction
from restkeeper.storage.errors import DuplicateValue, RecordNotFound
from tests.things import ids, insert, record
from tests.waiting import join


def test_a_failed_work_is_rolled_back(store: Store) -> None:
    """If a work raises, its changes are rolled back, and the caller gets the exception."""

    def work(transaction: Transaction) -> None:
        transaction.insert("things", record("a"))
        transaction.insert("things", record("b"))
        raise LookupError("of the caller's own")

    before = store.revision("things")
    with pytest.raises(LookupError, match="own"):
        store.write(work)
    assert (ids(store), store.count("things"), store.revision("things")) == ([], 0, before)


def test_a_transaction_sees_its_own_changes(store: Store) -> None:
    """Inside a work, reads return what the work has written; its revision changes, too."""

    def work(transaction: Transaction) -> tuple[Record, bool]:
        before = transaction.revision("things")
        transaction.insert("things", record("a"))
        return transaction.read("things", "a"), before != transaction.revision("things")

    assert store.write(work) == (record("a"), True)


def test_a_transaction_continues_after_an_error(store: Store) -> None:
    """After DuplicateValue or RecordNotFound the transaction continues unchanged."""
    insert(store, record("a", sku="s"), record("b"))
    tries: list[Callable[[Transaction], None]] = [
        lambda transaction: transaction.insert("things", record("c", sku="s")),
        lambda transaction: transaction.insert("things", record("a")),
        lambda transaction: transaction.update("things", record("b", 2, sku="s")),
        lambda transaction: transaction.update("things", record("x")),
        lambda transaction: transaction.delete("things", "x"),
    ]

    def work(transaction: Transaction) -> bool:
        before = transaction.revision("things")
        for attempt in tries:
            with pytest.raises((DuplicateValue, RecordNotFound)):
                attempt(transaction)
        is_same = transaction.revision("things") == before
        transaction.insert("things", record("d"))
        return is_same

    assert store.write(work)
    assert list(store.scan("things")) == [record("a", sku="s"), record("b"), record("d")]
    assert store.count("things") == 3


def test_a_work_runs_once(store: Store) -> None:
    """A work runs exactly once, whether it succeeds or fails, because it can have other effects."""
    runs: list[str] = []
    store.write(lambda _: runs.append("done"))
    with pytest.raises(LookupError):
        store.write(lambda _: [runs.append("failed"), {}["x"]])
    assert runs == ["done", "failed"]


def test_a_work_runs_in_its_callers_context(store: Store) -> None:
    """Context variables have the caller's values inside a work, on any thread."""
    who: ContextVar[int] = ContextVar("who")
    seen: dict[int, int] = {}

    def write(number: int) -> None:
        who.set(number)
        store.write(lambda _: seen.setdefault(number, who.get()))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    join(*threads)
    assert seen == {number: number for number in range(16)}


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

"""Writing: the deadlines of writers, and which works share a commit."""

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import DuplicateValue, StoreUnavailable
from restkeeper.storage.shares import current_caller
from restkeeper.storage.sqlite.connection import BUSY_SECONDS
from restkeeper.storage.sqlite.store import SqliteStore
from restkeeper.storage.sqlite.writer import BATCH_SECONDS, WORK_SECONDS
from tests import stores
from tests.sqlite.helpers import Clock, Exit, opened, together
from tests.things import record
from tests.waiting import SECONDS, join, until


def test_all_waiting_writes_have_the_same_deadline(tmp_path: Path) -> None:
    """200 writes behind a held lock all fail 5 seconds after their call, and none of them is done later."""
    clock = Clock(200)
    store = opened(tmp_path, clock=clock)
    ran: list[int] = []
    with stores.held(f"sqlite:///{tmp_path}/store.db"):
        results = together([lambda: store.write(lambda _: ran.append(1))] * 200)
    assert all(isinstance(result, StoreUnavailable) for result in results)
    assert BUSY_SECONDS <= clock.now < BUSY_SECONDS + 0.01
    assert store.write(lambda _: "done") == "done"
    assert ran == []


def test_an_expired_write_leaves_the_queue(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write behind a long work of the same process fails in time, and its work is not done later."""
    begun, end = threading.Event(), threading.Event()
    ran: list[int] = []

    def long(_: Transaction) -> None:
        begun.set()
        assert end.wait(SECONDS)

    first = threading.Thread(target=store.write, args=(long,))
    first.start()
    assert begun.wait(SECONDS)
    monkeypatch.setattr("restkeeper.storage.sqlite.connection.BUSY_SECONDS", 0.01)
    with pytest.raises(StoreUnavailable):
        store.write(lambda _: ran.append(1))
    end.set()
    join(first)
    store.write(lambda _: None)
    assert ran == []


def test_a_write_can_have_an_earlier_deadline(tmp_path: Path) -> None:
    """Time that a request has waited elsewhere is subtracted from the wait for another process."""
    clock = Clock()
    store = opened(tmp_path, clock=clock)
    for seconds in (0.5, BUSY_SECONDS + 1):
        began = clock.now
        with stores.held(f"sqlite:///{tmp_path}/store.db"), pytest.raises(StoreUnavailable):
            store.write(lambda _: None, deadline=began + seconds)
        assert seconds <= clock.now - began < seconds + 0.1


def test_a_work_in_a_commit_waits_for_its_result(tmp_path: Path) -> None:
    """It does not time out: only the end of the commit shows whether the work was done."""
    caller, begun, queued, taken, expired = threading.current_thread(), *(threading.Event() for _ in range(4))

    class Late(Clock):
        """A clock that lets the caller's deadline pass when a commit has taken its work."""

        def sleep(self, seconds: float) -> None:
            if threading.current_thread() is caller:
                queued.set()
                assert taken.wait(SECONDS)

        def monotonic(self) -> float:
            if threading.current_thread() is caller and taken.is_set():
                if self.now > 2 * BUSY_SECONDS:
                    expired.set()  # it has waited in vain
                self.now += 2 * BUSY_SECONDS
            return self.now

    def first(_: Transaction) -> None:
        begun.set()
        assert queued.wait(SECONDS)

    def second(transaction: Transaction) -> str:
        taken.set()
        assert expired.wait(SECONDS)
        transaction.insert("things", record("a"))
        return "done"

    store = opened(tmp_path, clock=Late())
    leader = threading.Thread(target=store.write, args=(first,))
    leader.start()
    assert begun.wait(SECONDS)
    assert store.write(second) == "done"
    join(leader)
    assert store.count("things") == 1


def test_a_caller_with_many_works_holds_up_no_other(each_store: SqliteStore) -> None:
    """At most one of them is done before the first work of the other one, whatever waits."""
    begun, end = threading.Event(), threading.Event()
    order: list[str] = []

    def hold(_: Transaction) -> None:
        begun.set()
        assert end.wait(SECONDS)

    def write(name: str) -> None:
        current_caller.set(name)
        each_store.write(lambda _: order.append(name))

    threads = [threading.Thread(target=each_store.write, args=(hold,))]
    threads[0].start()
    assert begun.wait(SECONDS)
    queue = each_store._writer._queue
    for number, name in enumerate(["greedy"] * 5 + ["other"], 1):
        threads.append(threading.Thread(target=write, args=(name,)))
        threads[-1].start()
        until(lambda number=number: len(queue) == number)  # type: ignore[misc]
    end.set()
    join(*threads)
    assert order == ["greedy", "other", *["greedy"] * 4]


def test_a_work_whose_turn_comes_too_late_is_refused(tmp_path: Path) -> None:
    """Also if its caller has had no processor time to leave the queue: it is not done after its deadline."""
    clock, ran = Clock(3), list[int]()
    store = opened(tmp_path, clock=clock)

    def work(_: Transaction) -> None:
        clock.now += 0.6 * BUSY_SECONDS
        ran.append(1)

    results = together([lambda: store.write(work)] * 3)
    assert len(ran) == 2
    assert [type(result) for result in results if result] == [StoreUnavailable]


def test_a_commit_is_limited_in_time(tmp_path: Path) -> None:
    """A commit includes works for some 50 ms; the others go into the next ones."""
    clock = Clock(10)
    store = opened(tmp_path, clock=clock)
    statements: list[str] = []
    store._writer.connection.set_trace_callback(statements.append)

    def work(_: Transaction) -> None:
        clock.now += BATCH_SECONDS * 0.3  # four of these are more than a commit's time

    together([lambda: store.write(work)] * 10)
    assert statements.count("COMMIT") == 3


def test_a_commit_waits_for_one_long_work_at_most(tmp_path: Path) -> None:
    """What was done before it is committed after it, and the next long one is in another commit."""
    clock = Clock(12)
    store = opened(tmp_path, clock=clock)
    statements: list[str] = []
    store._writer.connection.set_trace_callback(statements.append)
    works = Counter[int]()  # the long ones of each commit

    def work(seconds: float, _: Transaction) -> None:
        clock.now += seconds
        works[statements.count("COMMIT")] += seconds > WORK_SECONDS

    quick, long = partial(work, 0.001), partial(work, 1.1 * WORK_SECONDS)
    together([partial(store.write, each) for each in [quick, long, quick] * 4])
    assert max(works.values()) == 1 and works.total() == 4


def test_many_records_are_one_statement(store: SqliteStore) -> None:
    """Each statement opens all indexes of the table: a thousand of them would be a thousand times as slow."""
    statements, many = list[str](), [record(f"{number:04}", name=f"n{number}") for number in range(1000)]
    store._writer.connection.set_trace_callback(statements.append)
    store.write(lambda transaction: transaction.insert_all("things", many))
    assert sum(each.startswith("INSERT INTO items") for each in statements) == 1
    assert store.read("things", "0999") == many[-1]
    with pytest.raises(DuplicateValue):
        store.write(lambda transaction: transaction.insert_all("things", [record("new"), many[0]]))
    assert store.count("things") == 1000


def test_an_interrupted_commit_fails_all_its_works(each_store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Barrier(3)
    monkeypatch.setattr("time.sleep", lambda _: gate.wait(SECONDS))  # the three share one commit
    outcomes: list[str] = []

    def write(work: Callable[[Transaction], None]) -> None:
        try:
            each_store.write(work)
            outcomes.append("committed")
        except (StoreUnavailable, Exit) as error:
            outcomes.append(type(error).__name__)

    def leave(_: Transaction) -> None:
        raise Exit

    works: list[Callable[[Transaction], None]] = [
        lambda transaction: transaction.insert("things", record("a")),
        lambda transaction: transaction.insert("things", record("b")),
        leave,
    ]
    threads = [threading.Thread(target=write, args=(work,)) for work in works]
    queue = each_store._writer._queue  # type: ignore[attr-defined]
    for number, thread in enumerate(threads):
        thread.start()
        while len(queue) == number < 2:  # they arrive in this order, so that others are before the last one
            pass
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == ["Exit", "StoreUnavailable", "StoreUnavailable"]
    assert each_store.count("things") == 0

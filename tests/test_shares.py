"""Shares of what a process has a limited number of, and which queries count as searches."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from decimal import Decimal

import pytest

from restkeeper.clock import YIELD_SECONDS
from restkeeper.storage import shares
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Filter, GroupBy, Groups, Op, Query, Sort
from restkeeper.storage.plans import SKIPPED, is_search
from restkeeper.storage.shares import FairQueue, Shares, current_caller, one_at_a_time
from tests.clock import SetClock
from tests.sqlite.helpers import Exit
from tests.things import THINGS
from tests.waiting import SECONDS, until


class Uses:
    def __init__(self, most: int, share: int, threads: ThreadPoolExecutor) -> None:
        self.shares = Shares("things", most, share, time)
        self.served: list[str] = []
        self._threads = threads

    @contextmanager
    def of(self, name: str, seconds: float = SECONDS) -> Iterator[None]:
        current_caller.set(name)
        with self.shares.use(time.monotonic() + seconds):
            yield

    def wait(self, name: str) -> Future[None]:
        def use() -> None:
            with self.of(name):
                self.served.append(name)

        before = len(self.shares._waiting)
        waiting = self._threads.submit(use)
        until(lambda: len(self.shares._waiting) > before)
        return waiting


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool
    current_caller.set("")


def test_the_next_is_of_the_caller_that_uses_the_fewest(threads: ThreadPoolExecutor) -> None:
    """One that has long waited with many requests does not come before another that has none."""
    uses = Uses(3, 2, threads)
    with ExitStack() as greedy, uses.of("other"):
        greedy.enter_context(uses.of("greedy"))
        with uses.of("greedy"):
            waiting = [uses.wait(name) for name in ("greedy", "greedy", "late")]
        until(lambda: len(uses.served) == 3)
        assert uses.served[0] == "late"
        for each in waiting:
            each.result(SECONDS)
    assert not uses.shares._used


def test_the_waiting_uses_of_a_caller_are_limited(threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "WAITING_OF_CALLER", 2)
    uses = Uses(1, 1, threads)
    with uses.of("one"):
        for name, others in (("one", "your other requests use 1"), ("two", "other requests use all 1")):
            with pytest.raises(StoreUnavailable, match=f"^{others} things"), uses.of(name, 0):
                pass
        waiting = [uses.wait("greedy") for _ in range(2)]
        with pytest.raises(StoreUnavailable, match="2 requests already wait for things"), uses.of("greedy"):
            pass
        waiting.append(uses.wait("other"))
    for each in waiting:
        each.result(SECONDS)


@pytest.mark.parametrize("is_woken", [False, True])
def test_a_use_that_is_killed_while_it_waits_takes_nothing(is_woken: bool) -> None:
    """Also one that just got its turn: the next use is served."""
    first = ExitStack()

    class Killing:
        def monotonic(self) -> float:
            if is_woken:
                first.close()
            raise Exit

    shares = Shares("things", 1, 1, Killing())
    first.enter_context(shares.use(0.0))
    with pytest.raises(Exit), shares.use(0.0):
        pass
    first.close()
    with shares.use(0.0):
        pass


def test_a_use_that_is_woken_too_late_is_refused() -> None:
    """It waited for longer than it may: the server had no processor time for it, and its caller has left."""
    clock = SetClock(100.0)
    shares = Shares("things", 1, 1, clock)
    first, seen = ExitStack(), list[float]()
    first.enter_context(shares.use(clock.now))

    class Late(SetClock):
        def monotonic(self) -> float:
            seen.append(self.now)
            if len(seen) == 2:
                self.now += 6
            first.close()
            return self.now

    shares._clock = Late(100.0)
    with pytest.raises(StoreUnavailable), shares.use(105.0):
        pass
    with shares.use(200.0):
        pass


def taken(queue: FairQueue[str], *, seconds: float = 1.0) -> str:
    """The next work, of the caller with its first letter, which takes some seconds."""
    work = queue.take()
    assert work is not None
    queue.charge(work[0], seconds)
    return work


def test_no_work_of_a_caller_is_before_the_first_one_of_another() -> None:
    """However many wait, and however long the caller has worked before; works of one caller keep their order."""
    queue = FairQueue[str]()
    for number in range(5):
        queue.add("a", f"a{number}")
    assert [taken(queue), taken(queue)] == ["a0", "a1"]
    for work in ("b0", "b1", "c0"):
        queue.add(work[0], work)
    assert queue.first() == "b0"
    assert [taken(queue) for _ in range(len(queue))] == ["b0", "c0", "a2", "b1", "a3", "a4"]
    assert queue.first() is queue.take() is None


def test_turns_are_shared_by_time() -> None:
    """A caller whose works take longer has fewer of them, also if it never has two in the queue."""
    queue = FairQueue[str]()
    for number in range(8):
        queue.add("b", f"b{number}")
    order = ""
    for _ in range(10):
        if "a" not in queue._waiting:
            queue.add("a", "a")
        work = queue.take() or ""
        queue.charge(work[0], 4.0 if work == "a" else 1.0)
        order += work[0]
    assert order == "babbbabbbb"


def test_a_queue_forgets_who_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MOST_REMEMBERED", 2)
    queue = FairQueue[str]()
    for name in "abcdefgh":
        queue.add(name, name)
    assert "".join(taken(queue) for _ in range(8)) == "abcdefgh"
    for work in ("x", "y"):
        queue.add("x", work)
    assert queue.remove("x", "y") and not queue.remove("x", "y") and not queue.remove("a", "a")
    assert taken(queue) == "x"
    assert len(queue._used) <= 9 and len(queue) == 0


def test_large_works_are_done_one_after_the_other() -> None:
    """Also after one that fails, or that has waited for too long. Before each of them others have their turn."""
    clock, order = SetClock(100.0), list[str]()
    one = one_at_a_time("works", clock)
    with ThreadPoolExecutor(1) as pool:

        def work() -> None:
            with one(clock.now + SECONDS):
                order.append("second")

        with pytest.raises(ZeroDivisionError), one(0.0):
            waiting = pool.submit(work)
            with pytest.raises(StoreUnavailable, match="works of other requests"), one(clock.now + 0.01):
                pass
            order.append("first")
            raise ZeroDivisionError
        waiting.result(SECONDS)
    assert order == ["first", "second"]
    assert clock.slept == [YIELD_SECONDS] * 2


def test_a_search_is_what_no_index_answers_alone() -> None:
    """An index has its items in its order, or few items at all."""
    searches = {
        Query(): False,
        Query(sort=(Sort("price"),)): False,
        Query(sort=(Sort("stock"),)): True,
        Query(sort=(Sort("price"), Sort("name"))): True,
        Query(offset=SKIPPED): False,
        Query(offset=SKIPPED + 1): True,
        Query((Filter("price", Op.GT, Decimal(1)), Filter("price", Op.LT, Decimal(2))), sort=(Sort("price"),)): False,
        Query((Filter("name", Op.IN, ("x", "y")),)): False,
        Query((Filter("name", Op.IN, ("x", "y"), negated=True),)): True,
        Query((Filter("stock", Op.EQ, 1),)): True,
        Query((Filter("price", Op.EQ, Decimal(1)), Filter("name", Op.EQ, "x"))): True,
        Query((Filter("sku", Op.EQ, "x"), Filter("stock", Op.EQ, 1))): False,
        Query(search=("x",)): True,
        Query(owners=("x",)): False,
        Query((Filter("price", Op.EQ, Decimal(1)),), owners=("x",)): True,
        Query(groups=Groups()): True,
        Query((Filter("name", Op.EQ, "x"),), groups=Groups((GroupBy("name"),))): True,
        Query((Filter("sku", Op.EQ, "x"),), groups=Groups()): False,
    }
    assert {query: is_search(THINGS, query) for query in searches} == searches

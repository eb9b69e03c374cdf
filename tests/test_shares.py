"""Shares of what a process has a limited number of, and which queries count as searches."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from decimal import Decimal

import pytest

from restkeeper.storage import shares
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Filter, Op, Query, Sort
from restkeeper.storage.shares import Shares, worked_for
from restkeeper.storage.sql import SKIPPED, is_search
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
        worked_for.set(name)
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
    worked_for.set("")


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


def test_a_search_is_what_no_index_answers_alone() -> None:
    """An index has its items in its order, or few items at all."""
    searches = {
        Query(): False,
        Query(sort=(Sort("id", True),)): False,
        Query(sort=(Sort("price"),)): False,
        Query(sort=(Sort("stock"),)): True,
        Query(sort=(Sort("price"), Sort("name"))): True,
        Query(offset=SKIPPED): False,
        Query(offset=SKIPPED + 1): True,
        Query((Filter("price", Op.GT, Decimal(1)), Filter("price", Op.LT, Decimal(2))), sort=(Sort("price"),)): False,
        Query((Filter("name", Op.IN, ("x", "y")),)): False,
        Query((Filter("name", Op.NE, "x"),)): True,
        Query((Filter("name", Op.LIKE, "x"),)): True,
        Query((Filter("stock", Op.EQ, 1),)): True,
        Query((Filter("price", Op.EQ, Decimal(1)), Filter("name", Op.EQ, "x"))): True,
        Query((Filter("sku", Op.EQ, "x"), Filter("stock", Op.EQ, 1))): False,
        Query((Filter("id", Op.IN, ("x", "y")), Filter("stock", Op.NE, 1))): False,
        Query((Filter("sku", Op.EQ, "x"), Filter("name", Op.LIKE, "x"))): True,
        Query(search="x"): True,
        Query(owner="x"): False,
        Query((Filter("price", Op.EQ, Decimal(1)),), owner="x"): True,
    }
    assert {query: is_search(THINGS, query) for query in searches} == searches

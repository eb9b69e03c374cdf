"""Searches: limited in time, one at a time, and interrupted so that others continue."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from restkeeper.storage import Options
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Aggregate, Filter, Groups, Op, Query, Sort
from restkeeper.storage.shares import current_caller
from restkeeper.storage.sqlite.search import SEARCHES, SHARE, WORK_SECONDS
from restkeeper.storage.sqlite.store import SqliteStore
from tests.sqlite.helpers import Clock, Exit, opened
from tests.things import OTHERS, THINGS, insert, kept, record
from tests.waiting import SECONDS, until


def test_a_search_that_takes_too_long_is_ended(each_store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that takes too long raises StoreUnavailable with advice; the store still works."""
    insert(each_store, *(record(f"{n:06}") for n in range(20_000)))
    monkeypatch.setattr("restkeeper.storage.sqlite.search.READ_SECONDS", 0.0)
    for read in (each_store.page, each_store.count):
        with pytest.raises(StoreUnavailable, match="narrow it"):
            read("things", Query(search=("nothing like it",)))
    aggregates = Groups((), (Aggregate("sum", "stock"),))
    with pytest.raises(StoreUnavailable, match="narrow it"):
        each_store.groups("things", Query(groups=aggregates), 1)
    assert each_store.read("things", "000001").id == "000001"
    assert each_store.count("things") == 20_000


class Holding:
    """A clock that stands still, but for searches of a caller `held…`: they soon pause, until they are let go."""

    def __init__(self) -> None:
        self.now = 0.0
        self.paused: list[str] = []
        self.let_go = threading.Event()

    def monotonic(self) -> float:
        if not current_caller.get().startswith("held"):
            return 0.0
        self.now += 0.01
        return self.now

    def sleep(self, seconds: float) -> None:
        if seconds == 0 and current_caller.get().startswith("held"):
            self.paused.append(current_caller.get())
            self.let_go.wait(SECONDS)


LIKE = Query((Filter("name", Op.LIKE, "nothing"),))
INDEXED = Query((Filter("price", Op.GTE, Decimal(0)),), sort=(Sort("price"),), limit=5)


@contextmanager
def held(store: SqliteStore, clock: Holding, *callers: str) -> Iterator[None]:
    """While these callers have a search each under way; others wait for a moment only."""

    def search(name: str) -> None:
        current_caller.set(name)
        store.page("things", LIKE)

    with ThreadPoolExecutor(SEARCHES) as threads, pytest.MonkeyPatch.context() as patch:
        searching = [threads.submit(search, name) for name in callers]
        try:
            until(lambda: len(clock.paused) == len(callers))
            patch.setattr("restkeeper.storage.sqlite.search.READ_SECONDS", 0.1)
            yield
        finally:
            clock.let_go.set()
        for each in searching:
            each.result(SECONDS)


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[tuple[SqliteStore, Holding]]:
    """A store, and its clock."""
    clock = Holding()
    store = opened(tmp_path, clock=clock)
    insert(store, *(record(f"{n:05}", price=Decimal(n % 10)) for n in range(200)))
    yield store, clock
    current_caller.set("")
    store.close()


def test_a_query_that_an_index_answers_takes_no_slot(holding: tuple[SqliteStore, Holding]) -> None:
    """With all searches under way, pages of an indexed field and their counts are read; a search fails.

    With the share of one caller under way its next one fails, and those of another caller are answered.
    """
    store, clock = holding
    with held(store, clock, *["held"] * SHARE):
        with pytest.raises(StoreUnavailable, match=f"your other requests use {SHARE} slots for searches; narrow"):
            current_caller.set("held")
            store.page("things", LIKE)
        current_caller.set("other")
        assert store.page("things", LIKE).bodies == [] and store.count("things", LIKE) == 0
    clock.let_go.clear()
    clock.paused.clear()
    with held(store, clock, *(f"held{n // SHARE}" for n in range(SEARCHES))):
        assert len(store.page("things", INDEXED).bodies) == 5
        assert store.count("things", INDEXED) == 200
        assert store.page("things", Query(sort=(Sort("name"),), limit=5)).bodies
        assert store.page("things", Query(limit=20)).bodies and store.read("things", "00001").id == "00001"
        for read in (store.page, store.count):
            with pytest.raises(StoreUnavailable, match=f"other requests use all {SEARCHES} slots for searches"):
                read("things", LIKE)


def test_an_index_that_does_not_answer_soon_is_searched(tmp_path: Path) -> None:
    """Then the query pauses for others as any search."""
    clock = Counting()
    store = opened(tmp_path, clock=clock)
    insert(store, *(record(f"{n:03}", price=Decimal(n)) for n in range(200)))
    clock.slept.clear()
    assert store.count("things", INDEXED) == 200 and 0 in clock.slept
    assert len(store.page("things", INDEXED).bodies) == 5


def test_an_interrupted_query_leaves_no_snapshot(tmp_path: Path) -> None:
    """However often the time of an indexed query passes, its connection sees the writes after it."""
    store, writer = opened(tmp_path, clock=Counting()), opened(tmp_path)
    insert(writer, *(record(f"{n:03}", price=Decimal(n)) for n in range(200)))
    for number in range(50):
        assert len(store.page("things", INDEXED).bodies) == 5
        insert(writer, record(f"new {number}"))
        assert store.read("things", f"new {number}").id


def test_an_interrupted_search_raises_the_interruption(tmp_path: Path) -> None:
    class Killing(Clock):
        def monotonic(self) -> float:
            self.now += WORK_SECONDS
            return self.now

        def sleep(self, seconds: float) -> None:
            raise Exit

    store = opened(tmp_path)
    insert(store, *(record(f"{n}") for n in range(1000)))
    searcher = opened(tmp_path, clock=Killing())
    with pytest.raises(Exit):
        searcher.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1))
    assert store.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1)).bodies == []


class Counting(Clock):
    """A clock that advances each time it is read; it has `slept` for 0 seconds at each pause for others."""

    def monotonic(self) -> float:
        self.now += 0.01
        return self.now


@pytest.mark.parametrize(
    "query",
    [
        Query(sort=(Sort("stock"),), limit=20),
        Query(search=("nothing",)),
        Query(filters=(Filter("name", Op.LIKE, "nothing"),)),
        Query(filters=(Filter("stock", Op.GT, -1),), limit=20),
    ],
    ids=["sort", "q", "like", "filter"],
)
def test_a_search_pauses_for_others_at_large_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    """A row is only a few steps of SQLite's machine, however large it is: the clock is read every few rows."""
    monkeypatch.setattr("restkeeper.storage.sqlite.search.READ_SECONDS", 60.0)
    clock = Counting()
    store = kept(SqliteStore(str(tmp_path / "store.db"), [THINGS, OTHERS], Options(clock=clock)))
    insert(store, *(record(f"{n:03}", attributes=[[]] * 30_000) for n in range(40)))
    for read in (lambda: store.page("things", query), lambda: store.count("things", query)):
        if query.narrows or "page" in read.__code__.co_names:
            clock.slept.clear()
            read()
            assert clock.slept.count(0) >= 10


def test_fetching_rows_pauses_for_others(tmp_path: Path) -> None:
    clock = Counting()
    store = kept(SqliteStore(str(tmp_path / "store.db"), [THINGS, OTHERS], Options(clock=clock)))
    insert(store, *(record(f"{n:03}", name="x" * 200_000) for n in range(10)))
    all_things = Filter("stock", Op.GT, -1)
    store.page("things", Query((all_things,), limit=1))
    clock.slept.clear()
    store.page("things", Query((all_things,), limit=9))
    assert clock.slept.count(0) >= 5  # of 8 more rows

"""Searches: limited in time, one at a time, and interrupted so that others continue."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from restkeeper.storage import open_store
from restkeeper.storage.contract import Filter, Op, Query, Sort
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.sqlite.search import SEARCHES, YIELD_SECONDS
from restkeeper.storage.sqlite.store import SqliteStore
from tests.sqlite.helpers import Clock, Exit, opened
from tests.things import OTHERS, THINGS, insert, record


def test_a_search_that_takes_too_long_is_ended(each_store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that takes too long raises StoreUnavailable with advice; the store still works."""
    insert(each_store, *(record(f"{n:06}") for n in range(20_000)))
    monkeypatch.setattr("restkeeper.storage.sqlite.search.READ_SECONDS", 0.0)
    for read in (each_store.page, each_store.count):
        with pytest.raises(StoreUnavailable, match="narrow it"):
            read("things", Query(search="nothing like it"))
    assert each_store.read("things", "000001").id == "000001"
    assert each_store.count("things") == 20_000


def test_concurrent_searches_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of searches is limited; one that waits too long fails, and other reads never wait."""
    monkeypatch.setattr("restkeeper.storage.sqlite.search.READ_SECONDS", 0.01)
    store = open_store(f"sqlite:///{tmp_path}/a.db", [THINGS])
    insert(store, record("a"))
    with ExitStack() as stack:
        for _ in range(SEARCHES):
            stack.enter_context(store._searches.admitted())  # type: ignore[attr-defined]
        with pytest.raises(StoreUnavailable, match="searches are under way"):
            store.page("things", Query(search="x"))
        assert store.read("things", "a").id == "a"
        assert store.page("things", Query(limit=20)).bodies
    assert store.page("things", Query(sort=(Sort("name"),))).bodies
    store.close()


def test_an_interrupted_search_raises_the_interruption(tmp_path: Path) -> None:
    """The exception that interrupted it is raised, not only SQLite's."""

    class Killing(Clock):
        def monotonic(self) -> float:
            self.now += YIELD_SECONDS
            return self.now

        def sleep(self, seconds: float) -> None:
            raise Exit

    store = opened(tmp_path)
    insert(store, *(record(f"{n}") for n in range(1000)))
    searcher = opened(tmp_path, clock=Killing())
    with pytest.raises(Exit):
        searcher.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1))
    assert store.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1)).bodies == []
    searcher.close()
    store.close()


class Counting:
    """A clock that advances each time it is read, and counts the calls of sleep(0)."""

    def __init__(self) -> None:
        self.now = 0.0
        self.yields = 0

    def monotonic(self) -> float:
        self.now += 0.01
        return self.now

    def sleep(self, seconds: float) -> None:
        self.yields += seconds == 0


@pytest.mark.parametrize(
    "query",
    [
        Query(sort=(Sort("stock"),), limit=20),
        Query(search="nothing"),
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
    store = SqliteStore(str(tmp_path / "store.db"), [THINGS, OTHERS], clock=clock)
    insert(store, *(record(f"{n:03}", attributes=[[]] * 30_000) for n in range(40)))
    for read in (lambda: store.page("things", query), lambda: store.count("things", query)):
        if query.narrows or "page" in read.__code__.co_names:
            clock.yields = 0
            read()
            assert clock.yields >= 10
    store.close()


def test_fetching_rows_pauses_for_others(tmp_path: Path) -> None:
    """Also between the large rows of a page."""
    clock = Counting()
    store = SqliteStore(str(tmp_path / "store.db"), [THINGS, OTHERS], clock=clock)
    insert(store, *(record(f"{n:03}", name="x" * 200_000) for n in range(10)))
    all_things = Filter("stock", Op.GT, -1)
    store.page("things", Query((all_things,), limit=1))
    yields_before = clock.yields
    store.page("things", Query((all_things,), limit=9))
    assert clock.yields - yields_before >= 5  # of 8 more rows
    store.close()

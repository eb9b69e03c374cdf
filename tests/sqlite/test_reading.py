"""Reading from SQLite: changes of other processes are visible at once, and a page costs the same at any size."""

import sqlite3
from contextlib import closing, nullcontext
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from restkeeper.storage.base import Store
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Filter, Op, Query, Sort
from tests.things import THINGS, ids, insert, open_store, record


def test_changes_of_other_programs_are_visible_at_once(tmp_path: Path) -> None:
    """Records and change tokens are current, whichever connection changes them."""
    path = tmp_path / "a.db"
    store = open_store(f"sqlite:///{path}", [THINGS])
    insert(store, record("a", name="first"))
    change = "UPDATE items SET version = version + 1; UPDATE counters SET changes = changes + 1;"
    for number in range(20):
        assert store.read("things", "a").version == number + 1
        before = store.change_token("things")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.executescript(change)
        assert store.read("things", "a").version == number + 2
        assert store.change_token("things") != before


def test_a_store_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    """An SQLite error while reading raises StoreUnavailable, with the cause for the log."""
    store = open_store(f"sqlite:///{tmp_path}/a.db", [THINGS])
    insert(store, record("a"))
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("DROP TABLE items")
    for read in (lambda: store.read("things", "a"), lambda: store.page("things", Query(limit=1)), lambda: ids(store)):
        with pytest.raises(StoreUnavailable, match="the store does not answer: no such table"):
            read()


def _steps(store: Store) -> list[int]:
    """The number of SQLite machine steps of reading one item, counting, and the first and middle pages."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection = store._connect()  # type: ignore[attr-defined]
    connection.set_progress_handler(step, 1)
    store._parts.idle.append(connection)  # type: ignore[attr-defined]
    positions: dict[str, tuple[Any, ...]] = {"id": ("m",), "price": (5.0, "m"), "name": ("m", "m")}
    queries = [
        Query(sort=(Sort(field, down),), limit=20, after=after)
        for field, middle in positions.items()
        for down in (False, True)
        for after in ((), middle)
    ]
    below = Query((Filter("price", Op.LT, Decimal(0)),), limit=20)
    taken = []
    for read in (
        lambda: store.read("things", "m000501"),
        lambda: store.count("things"),
        *(partial(store.page, "things", query) for query in queries),
        *(partial(read, "things", below) for read in (store.page, store.count)),
    ):
        steps = 0
        read()
        taken.append(steps)
    return taken


def test_pages_cost_the_same_at_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page, a middle page and one item need as many SQLite machine steps in a large list as in a small one.

    Steps are counted instead of time, so that the result is the same on any machine.
    """
    for name in ("interrupt_after", "time_limit"):  # they would replace our counter
        monkeypatch.setattr(f"restkeeper.storage.sqlite.search.{name}", lambda *_: nullcontext())
    counts = []
    for size in (1_000, 30_000):
        store = open_store(f"sqlite:///{tmp_path}/{size}.db", [THINGS])
        insert(
            store,
            *(
                record(f"{'am'[n % 2]}{n:06}", price=Decimal(n % 10) if n % 3 else None, name="am"[n % 2])
                for n in range(size)
            ),
        )
        counts.append(_steps(store))
        store.close()
    small, large = counts
    assert min(small) > 0
    assert all(after <= 1.5 * before for before, after in zip(small, large, strict=True)), (small, large)

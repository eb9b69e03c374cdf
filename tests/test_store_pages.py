"""Pages and searches: bounded in bytes, of one moment, exact, and so that others work meanwhile."""

import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restkeeper.storage.contract import Filter, Op, Page, Query, Record, Sort
from restkeeper.storage.sqlite.search import find_page
from restkeeper.storage.sqlite.store import SqliteStore
from restkeeper.web import exactjson
from tests.test_store import OTHERS, THINGS, ids, keep, record

SORTS: list[tuple[Sort, ...]] = [(), (Sort("id", True),), (Sort("price"),), (Sort("stock", True),), (Sort("name"),)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "store.db"), [THINGS, OTHERS])
    yield store
    store.close()


@pytest.fixture
def fetched(store: SqliteStore) -> list[int]:
    """Of each row that is fetched on the store's one idle connection, how long its body is."""
    sizes: list[int] = []

    def note(_: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(row) > 2:
            sizes.append(len(row[2]))
        return row

    connection = store._connect(1)
    connection.row_factory = note
    store._idle.append(connection)
    return sizes


def fill(store: SqliteStore, count: int, size: int) -> list[int]:
    """Items with bodies of some `size`, in an order that is no field's; how long each is, by id."""
    records = [
        record(f"{n:03}", stock=n * 7 % 10, name=f"{n * 3 % 10}{'x' * size}", price=Decimal(n % 3))
        for n in range(count)
    ]
    keep(store, *records)
    return [len(each.body) for each in records]


@pytest.mark.parametrize("sort", SORTS, ids=str)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("search", ["", "X"])
def test_a_page_ends_by_its_bytes(
    store: SqliteStore, fetched: list[int], sort: tuple[Sort, ...], backward: bool, search: str
) -> None:
    """It has as many items as fit, next to where the walk begins, and no more than one further row is read."""
    size = fill(store, 10, 9000)[0]
    fetched.clear()
    page = store.page("things", Query(sort=sort, limit=8, backward=backward, search=search), 3 * size)
    assert (len(page.bodies), page.more, page.cut, len(fetched)) == (3, True, True, 4)
    whole = ids(store, sort=sort)
    assert [exactjson.loads(body)["id"] for body in page.bodies] == (whole[-3:] if backward else whole[:3])


def test_a_page_is_not_cut_where_its_limit_or_the_list_ends(store: SqliteStore) -> None:
    """Bytes end a page only when they end it first; and it has one item whatever its size."""
    size = fill(store, 4, 9000)[0]
    ends = [store.page("things", Query(limit=limit), 3 * size) for limit in (3, 4)]
    assert [(len(page.bodies), page.more, page.cut) for page in ends] == [(3, True, False), (3, True, True)]
    whole = store.page("things", Query(), 4 * size)
    assert (len(whole.bodies), whole.more, whole.cut) == (4, False, False)
    small = store.page("things", Query(limit=3), 1)
    assert (len(small.bodies), small.more, small.cut) == (1, True, True)


@pytest.mark.parametrize("sort", SORTS, ids=str)
@pytest.mark.parametrize("backward", [False, True])
def test_walking_in_pages_of_bytes_is_the_whole_list(
    store: SqliteStore, sort: tuple[Sort, ...], backward: bool
) -> None:
    """Wherever bytes cut a page, the next one goes on from there."""
    fill(store, 30, 1000)
    seen: list[str] = []
    after: tuple[Any, ...] = ()
    more = True
    while more:
        page = store.page("things", Query(sort=sort, limit=7, backward=backward, after=after), 5000)
        batch = [exactjson.loads(body)["id"] for body in page.bodies]
        seen = batch + seen if backward else seen + batch
        after, more = page.first if backward else page.last, page.more
    assert seen == ids(store, sort=sort)


@pytest.mark.parametrize(
    "query", [Query(sort=(Sort("stock"),)), Query(search="x"), Query(filters=(Filter("stock", Op.GT, 0),))]
)
def test_no_body_is_sorted(store: SqliteStore, query: Query) -> None:
    """Where SQLite may have to sort, it sorts positions: bodies are read one by one, outside of that."""
    fill(store, 3, 10)
    statements: list[str] = []
    connection = store._connect(1)
    store._idle.append(connection)
    connection.set_trace_callback(statements.append)
    assert store.page("things", query).bodies
    (statement,) = [each for each in statements if "shape" in each]
    outer, inner = statement.split("FROM (")
    assert "CAST(body AS BLOB)" in outer and "ORDER BY" not in outer
    assert "CAST(body AS BLOB)" not in inner and "ORDER BY" in inner


@pytest.mark.parametrize("query", [Query(limit=20), Query(limit=20, sort=(Sort("stock"),)), Query(search="a")], ids=str)
def test_a_page_and_its_revision_are_of_one_moment(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    """Whatever is committed while a page is read, its revision is the one that has just these items."""
    keep(store, record("a", name="a"))
    late = iter(["b"])

    def find(*arguments: Any) -> Page:
        for id in late:
            keep(store, record(id, name="a"))
        return find_page(*arguments)

    states = {store.revision("things"): 1}
    monkeypatch.setattr("restkeeper.storage.sqlite.store.find_page", find)
    page = store.page("things", query)
    states[store.revision("things")] = 2
    assert len(page.bodies) == states[page.revision]


class Counting:
    """A clock by which every look is later than the last, and which counts how often others had their turn."""

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
def test_a_search_lets_others_work_at_each_large_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    """A row is a few steps of SQLite's machine however large it is: the clock is looked at within a few rows."""
    monkeypatch.setattr("restkeeper.storage.sqlite.search.READ_SECONDS", 60.0)
    clock = Counting()
    store = SqliteStore(str(tmp_path / "store.db"), [THINGS, OTHERS], clock=clock)
    keep(store, *(record(f"{n:03}", attributes=[[]] * 30_000) for n in range(40)))
    for ask in (lambda: store.page("things", query), lambda: store.count("things", query)):
        if query.narrows or "page" in ask.__code__.co_names:
            clock.yields = 0
            ask()
            assert clock.yields >= 10
    store.close()


def test_rows_that_are_fetched_let_others_work(tmp_path: Path) -> None:
    """Also between the rows of a page that are large."""
    clock = Counting()
    store = SqliteStore(str(tmp_path / "store.db"), [THINGS, OTHERS], clock=clock)
    keep(store, *(record(f"{n:03}", name="x" * 200_000) for n in range(10)))
    store.page("things", Query(limit=1, offset=1))
    few = clock.yields
    store.page("things", Query(limit=9, offset=1))
    assert clock.yields - few >= 5  # of 8 more rows
    store.close()


def test_full_text_looks_at_the_texts_of_a_list(store: SqliteStore) -> None:
    """Neither brackets nor commas of its JSON are found, and a quote or a backslash in an element is."""
    keep(store, record("a", tags=["red", 'say "hi"']), record("b", tags=[]), record("c", tags=["back\\slash", "Éé"]))
    found = {q: ids(store, search=q) for q in ("[", '","', 'y "H', "K\\S", "éÉ", "red")}
    assert found == {"[": [], '","': [], 'y "H': ["a"], "K\\S": ["c"], "éÉ": ["c"], "red": ["a"]}


MOST = 10**15 - 1  # cents: 15 digits
CENTS = st.one_of(st.integers(0, MOST), st.integers(MOST - 300, MOST), st.integers(0, 300))
DIGITS = st.integers(0, 10**12 - 1)
OPERATORS = {
    Op.EQ: lambda stored, given: stored == given,
    Op.NE: lambda stored, given: stored != given,
    Op.LT: lambda stored, given: stored < given,
    Op.LTE: lambda stored, given: stored <= given,
    Op.GT: lambda stored, given: stored > given,
    Op.GTE: lambda stored, given: stored >= given,
    Op.IN: lambda stored, given: stored == given,
}


@pytest.fixture(scope="module")
def prices() -> Iterator[SqliteStore]:
    store = SqliteStore(":memory:", [THINGS])
    yield store
    store.close()


@settings(max_examples=300, deadline=None)
@given(cents=CENTS, near=st.integers(-3, 3), digits=DIGITS, far=st.booleans())
def test_decimals_are_compared_exactly(prices: SqliteStore, cents: int, near: int, digits: int, far: bool) -> None:
    """Whatever digits a given number has beyond those of an item's, each operator says what Decimal says."""
    price = Decimal(cents) / 100
    other = Decimal(cents + near) / 100 + (Decimal(digits) / 10**14 if far else Decimal(0))
    one = record("a", price=price)
    prices.write(lambda transaction: _put(transaction, one))
    for op, expected in OPERATORS.items():
        wanted = Filter("price", op, (other,) if op is Op.IN else other)
        assert prices.count("things", Query(filters=(wanted,))) == expected(price, other), (op, price, other)


def _put(transaction: Any, one: Record) -> None:
    if transaction._connection.execute("SELECT count(*) FROM items").fetchone() == (0,):
        transaction.insert("things", one)
    else:
        transaction.update("things", one)


@pytest.mark.parametrize(
    ("op", "given_number", "found"),
    [
        (Op.EQ, "9999999999999.991", ""),
        (Op.NE, "9999999999999.991", "abn"),
        (Op.LT, "9999999999999.991", "ab"),
        (Op.GTE, "9999999999999.991", ""),
        (Op.LT, "1E+999", "ab"),
        (Op.GT, "-1E+999", "ab"),
        (Op.GT, "1E-400", "b"),
        (Op.LTE, "1E-400", "a"),
    ],
)
def test_numbers_that_no_item_has(store: SqliteStore, op: Op, given_number: str, found: str) -> None:
    """A number beyond the digits or the size of all is equal to none, and above or below each; a null is neither."""
    keep(store, record("a", price=Decimal(0)), record("b", price=Decimal("9999999999999.99")), record("n"))
    assert ids(store, filters=(Filter("price", op, Decimal(given_number)),)) == list(found)

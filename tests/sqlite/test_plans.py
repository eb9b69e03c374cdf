"""Plans of SQLite: a query is answered by the index of an equality, whatever else it has."""

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from restkeeper.storage.base import Store
from restkeeper.storage.interface import Collection, Field, Filter, Index, Kind, Op, Query, Sort
from restkeeper.storage.planning import count_items, plan_of
from restkeeper.storage.sqlite.connection import SqliteConnection
from restkeeper.storage.sqlite.queries import page_statements
from tests.things import insert, open_store, record

KINDS = {"tool": Kind.TEXT, "start": Kind.TIME, "mail": Kind.TEXT, "rank": Kind.INTEGER, "price": Kind.NUMBER}
FIELDS = {
    "id": Field("id", Kind.TEXT),
    "tags": Field("tags", Kind.LIST),
    **{name: Field(name, kind, nullable=name in ("mail", "rank")) for name, kind in KINDS.items()},
}
INDEXES = (Index("tool"), Index("start"), Index("mail", fold=True), Index("rank"), Index("price"))
BOOKINGS = Collection("things", FIELDS, INDEXES, has_owner_index=True)

EQUALITIES = [
    Filter("tool", Op.EQ, "t"),
    Filter("tool", Op.IN, ("t", "u")),
    Filter("mail", Op.EQ, "A@x"),
    Filter("mail", Op.IN, ("A@x",)),
    Filter("rank", Op.EQ, 1),
    Filter("rank", Op.IN, (1, 2)),
    Filter("rank", Op.IS, True),
    Filter("mail", Op.IS, True),
]
OTHERS = [
    *(Filter("start", op, "2026") for op in (Op.GT, Op.GTE, Op.LT, Op.LTE, Op.STARTS, Op.ENDS, Op.LIKE, Op.NE)),
    *(Filter("price", op, 5) for op in (Op.GT, Op.GTE, Op.LT, Op.LTE, Op.NE)),
    *(Filter("start", Op.EQ, "2026", group=group, negated=not group) for group in (0, 1)),
    Filter("tags", Op.LIKE, "x"),
]
SORTS = [(), (Sort("start"),), (Sort("price", descending=True),), (Sort("id", descending=True),)]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[SqliteConnection]:
    """A connection to a store of bookings."""
    store = open_store(f"sqlite:///{tmp_path}/store.db", [BOOKINGS])
    with closing(connection_of(store)) as connection:
        yield connection


def connection_of(store: Store) -> SqliteConnection:
    store.open()
    connection: SqliteConnection = store._connect()  # type: ignore[attr-defined]
    return connection


def searches(connection: SqliteConnection, read: Callable[..., Any], *arguments: Any, **options: Any) -> list[str]:
    """How a read searches the table of items, as SQLite says it: the index, and the conditions that it is used for."""
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    read(*arguments, **options)
    connection.set_trace_callback(None)
    explained = (f"EXPLAIN QUERY PLAN {each}" for each in statements if "FROM items" in each)
    steps = [detail for each in explained for *_, detail in connection.execute(each)]
    return [step.split(" INDEX ")[-1] for step in steps if " items" in step and "(rowid=?)" not in step]


def read(connection: SqliteConnection, query: Query, declared: Collection = BOOKINGS) -> None:
    """A page of a query, and the number of its items."""
    connection.page(declared, query, None)
    count_items(connection, declared, query, None)


@pytest.mark.parametrize("equality", EQUALITIES, ids=lambda filter: f"{filter.field}-{filter.op}")
def test_an_equality_comes_before_all_else(connection: SqliteConnection, equality: Filter) -> None:
    """Each one before each other condition, and before each order: the few items that it has are all that is read."""
    for other, sort, is_first in product(OTHERS, SORTS, (True, False)):
        filters = (equality, other) if is_first else (other, equality)
        steps = searches(connection, read, connection, Query(filters, sort=sort, limit=20))
        index = f"items.things.{equality.field}."
        assert steps and all(step.startswith(index) and "<expr>=?" in step for step in steps), (other, sort, steps)


def test_the_owners_are_an_equality(connection: SqliteConnection) -> None:
    """One, or several, before a range and before an order."""
    for owners, sort in product([("ada",), ("ada", "team-a")], SORTS):
        steps = searches(
            connection, read, connection, Query((Filter("start", Op.GT, "2026"),), sort=sort, limit=20, owners=owners)
        )
        assert steps and all("items.things.owner." in step and "owner=?" in step for step in steps), (sort, steps)


def test_a_unique_value_comes_first(tmp_path: Path) -> None:
    """Before other equalities, also where it is one of several."""
    declared = Collection("things", FIELDS, (*INDEXES, Index("mail", unique=True)))
    connection = connection_of(open_store(f"sqlite:///{tmp_path}/store.db", [declared]))
    for unique in (Filter("mail", Op.IN, ("a", "b")), Filter("id", Op.EQ, "a"), Filter("id", Op.IN, ("a", "b"))):
        steps = searches(
            connection, read, connection, Query((Filter("tool", Op.EQ, "t"), unique), sort=(Sort("start"),)), declared
        )
        assert steps and all("mail." in step or "id=?" in step for step in steps), steps
    connection.close()


def test_the_equality_with_the_fewest_items_is_used(tmp_path: Path) -> None:
    """Of two, in either order. An order is read in place of an equality that many items have, unless others wait."""
    store = open_store(f"sqlite:///{tmp_path}/store.db", [BOOKINGS])
    insert(store, *(record(f"{n:04}", tool=["common", "rare"][n % 10 == 0], start="2026", rank=1) for n in range(1000)))
    by_rank, by_start = Filter("rank", Op.EQ, 1), (Sort("start", descending=True),)
    with closing(connection_of(store)) as connection:

        def used(*filters: Filter, **options: Any) -> str:
            query = Query(filters, sort=by_start, limit=20)
            return searches(connection, connection.page, BOOKINGS, query, None, **options)[-1].split(".")[2]

        common, rare = (Filter("tool", Op.EQ, tool) for tool in ("common", "rare"))
        assert [used(rare, by_rank), used(by_rank, rare)] == ["tool", "tool"]
        assert [used(common), used(rare), used(common, by_rank)] == ["start", "tool", "start"]
        some = Filter("price", Op.GT, 5)
        assert [used(common, some), used(common, some, bounded=True)] == ["start", "tool"]
        assert used(common, bounded=True) == "start"  # nothing else can refuse what is read


def test_a_page_of_a_frequent_value_in_an_order_costs_the_same_at_any_size(tmp_path: Path) -> None:
    """As the first page, and as one after a position. Steps of SQLite's machine are counted."""
    counts = []
    for size in (1_000, 10_000):
        store = open_store(f"sqlite:///{tmp_path}/{size}.db", [BOOKINGS])
        insert(store, *(record(f"{n:05}", tool="common", start=f"{n * 7 % size:05}") for n in range(size)))
        with closing(connection_of(store)) as connection:
            steps = 0

            def step() -> int:
                nonlocal steps
                steps += 1
                return 0

            connection.set_progress_handler(step, 10)
            for after in ((), (f"{size // 2:05}", "x")):
                query = Query((Filter("tool", Op.EQ, "common"),), sort=(Sort("start"),), limit=20, after=after)
                connection.page(BOOKINGS, query, None)
            counts.append(steps)
    assert counts[1] < 4 * counts[0]  # what is counted grows with the root of the size


VALUES = ("f0", "f1", "f2", "f3", "limit", "offset")
RANK, PRICE = Filter("rank", Op.EQ, 1), Filter("price", Op.EQ, 5)
PAIRS = Collection("things", FIELDS, (*INDEXES, Index("tool", "start"), Index("rank", "price", unique=True)))
TOOL, SINCE = Filter("tool", Op.EQ, "t"), Filter("start", Op.GTE, "2026")


@pytest.mark.parametrize(
    ("filters", "sort", "index", "searched", "is_sorted"),
    [
        ((TOOL, SINCE), (Sort("start"),), "tool+start", "<expr>=? AND <expr>>?", False),
        ((SINCE, TOOL), (Sort("start", descending=True),), "tool+start", "<expr>=? AND <expr>>?", False),
        ((SINCE, TOOL), (), "tool+start", "<expr>=? AND <expr>>?", True),
        ((TOOL,), (Sort("start"),), "tool+start", "<expr>=?", False),
        ((TOOL,), (), "tool", "<expr>=?", False),
        ((TOOL, Filter("start", Op.EQ, "2026"), Filter("price", Op.GT, 5)), (), "tool+start", "=? AND <expr>=?", False),
        ((RANK, PRICE, TOOL, SINCE), (), "rank+price", "=? AND <expr>=?", False),
        ((RANK, SINCE), (), "rank", "<expr>=?", False),
    ],
)
def test_an_index_of_several_fields(
    tmp_path: Path, filters: tuple[Filter, ...], sort: tuple[Sort, ...], index: str, searched: str, is_sorted: bool
) -> None:
    """It serves equalities of its first fields with a range of the next one, or in its order, beside other indexes."""
    with closing(connection_of(open_store(f"sqlite:///{tmp_path}/store.db", [PAIRS]))) as connection:
        query = Query(filters, sort=sort, limit=20)
        page = searches(connection, connection.page, PAIRS, query, None)[-1]
        counted = searches(connection, count_items, connection, PAIRS, query, None)[-1]
        assert page.split(".")[2] == index and searched in page and searched in counted, (page, counted)
        plan = plan_of(connection, PAIRS, query, lambda: 10)
        explained = connection.execute(
            f"EXPLAIN QUERY PLAN {page_statements(PAIRS, query, plan)[0]}", dict.fromkeys(VALUES, 0)
        )
        assert any("TEMP B-TREE" in step for *_, step in explained) is is_sorted

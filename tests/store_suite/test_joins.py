"""Joins go by indexes on each store: of the reference, and of what is asked of the other collection."""

from collections.abc import Callable
from typing import Any

from restkeeper import exactjson
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.interface import Collection, Field, Filter, Index, Kind, Op, Query, Record, SemiJoin, Sort
from restkeeper.storage.plans import is_search, is_sorted
from tests.things import insert

ID = Field("id", Kind.TEXT)
PEOPLE = Collection(
    "people", {"id": ID, "name": Field("name", Kind.TEXT), "nick": Field("nick", Kind.TEXT)}, (Index("name"),)
)
ORDERS = Collection(
    "orders",
    {
        "id": ID,
        "buyer": Field("buyer", Kind.TEXT, nullable=True),
        "gifts": Field("gifts", Kind.LIST),
        "seen": Field("seen", Kind.LIST),  # of so many people that PostgreSQL has a long list of new entries
        "status": Field("status", Kind.TEXT),
        "total": Field("total", Kind.INTEGER),
        "code": Field("code", Kind.TEXT),
    },
    (Index("buyer"), Index("gifts"), Index("seen"), Index("status"), Index("total"), Index("buyer", "code")),
)


def of_buyer(*filters: Filter, field: str = "buyer", **options: Any) -> Filter:
    return Filter(field, Op.HAS, None, join=SemiJoin(PEOPLE, "", filters), **options)


def with_order(*filters: Filter, field: str = "buyer", **options: Any) -> Filter:
    return Filter("id", Op.HAS, None, join=SemiJoin(ORDERS, field, filters), **options)


NAMED, NICK = Filter("name", Op.EQ, "n7"), Filter("nick", Op.EQ, "k7")
RARE, OPEN, CODE = Filter("status", Op.EQ, "rare"), Filter("status", Op.EQ, "open"), Filter("code", Op.EQ, "c7")
# A collection, a query, the indexes that its plan has, and whether it is a search.
PLANS: list[tuple[Collection, Query, list[str], bool]] = [
    (ORDERS, Query((of_buyer(NAMED),)), ["orders.buyer", "people.name"], False),
    (ORDERS, Query((of_buyer(NAMED),), sort=(Sort("total", True),)), ["orders.buyer", "people.name"], True),
    (ORDERS, Query((of_buyer(NICK),)), ["orders.buyer"], True),
    (ORDERS, Query((of_buyer(NAMED, field="gifts"),)), ["orders.gifts", "people.name"], False),
    (ORDERS, Query((of_buyer(NAMED, negated=True),)), ["people.name"], True),
    (PEOPLE, Query((with_order(RARE),)), ["orders.status"], False),
    (PEOPLE, Query((with_order(RARE, CODE),)), ["orders.status"], True),
    (PEOPLE, Query((with_order(OPEN),)), ["orders.buyer"], False),
    (PEOPLE, Query((with_order(OPEN, CODE),)), ["orders.buyer+code"], True),
    (PEOPLE, Query((with_order(OPEN, field="gifts"),)), ["orders.gifts"], False),
    (PEOPLE, Query((with_order(OPEN, field="seen"),)), ["orders.seen"], False),
    (PEOPLE, Query((with_order(negated=True),)), ["orders.buyer"], True),
    (PEOPLE, Query((with_order(OPEN, negated=True),)), ["orders.buyer"], True),
]


def fill(store: Store) -> None:
    """400 people with 10 orders each, of which few are rare."""

    def record(id: str, **fields: Any) -> Record:
        return Record(id, 1, "2026-01-01T00:00:00.000000Z", "shape", exactjson.dumps({"id": id, **fields}))

    insert(store, *(record(f"p{n:03}", name=f"n{n}", nick=f"k{n}") for n in range(400)), collection="people")
    states = ["rare" if n % 1000 == 5 else "open" for n in range(4000)]
    orders = [
        record(
            *(f"o{n:04}",),
            **{"buyer": f"p{n % 400:03}", "gifts": [f"p{n % 40:03}"]},
            **{"seen": [f"p{n * k % 400:03}" for k in range(20)]},
            **{"status": each, "total": n, "code": f"c{n % 9}"},
        )
        for n, each in enumerate(states)
    ]
    insert(store, *orders, collection="orders")


def test_each_hop_goes_by_an_index(open_one: Callable[..., Store]) -> None:
    """Of what is asked for, if there is one, and of the reference where what is found is not little."""
    store = open_one(PEOPLE, ORDERS)
    fill(store)
    for collection, query, indexes, searches in PLANS:

        def explain(transaction: Transaction, of: str = collection.name, query: Query = query) -> str:
            return transaction.explain(of, query._replace(limit=20))

        plan = store.write(explain)
        assert all(f"items.{index}" in plan for index in indexes), (query.filters, plan)
        assert is_search(collection, query) is searches, query.filters
        assert is_search(collection, query, reads_all=is_sorted(collection, query)), "it has no slot on PostgreSQL"


def test_all_that_is_joined_is_found(open_one: Callable[..., Store]) -> None:
    """Whichever way it is: page by page, and as a number."""
    store = open_one(PEOPLE, ORDERS)
    fill(store)
    expected = [10, 10, 10, 100, 3990, 2, 1, 400, 399, 40, 400, 0, 0]
    found = list[int]()
    for collection, query, *_ in PLANS:
        page = store.page(collection.name, query._replace(limit=150))
        bodies = page.bodies
        while page.more:
            page = store.page(collection.name, query._replace(limit=150, after=page.last))
            bodies += page.bodies
        assert store.count(collection.name, query) == len(set(bodies)) == len(bodies)
        found.append(len(bodies))
    assert found == expected

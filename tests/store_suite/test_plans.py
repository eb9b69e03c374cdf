"""What a function of the service finds, for which others wait, is found by the index of an equality on each store."""

from collections.abc import Callable
from itertools import product

import pytest

from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.interface import Collection, Filter, Index, Op, Query, Sort
from tests.things import FIELDS, insert, record

INDEXES = (Index("name"), Index("mail", fold=True), Index("stock"), Index("price"), Index("updated_at"))
THINGS = Collection("things", FIELDS, INDEXES)
PAIRS = Collection("things", FIELDS, (*INDEXES, Index("name", "price")))
RARE = Filter("name", Op.EQ, "rare")
EQUALITIES = [RARE, Filter("name", Op.IN, ("rare", "none")), Filter("mail", Op.EQ, "A"), Filter("stock", Op.EQ, 7)]
OTHERS = [
    (Filter("price", Op.GT, 1),),
    (Filter("price", Op.GTE, 1), Filter("price", Op.LT, 2)),
    (Filter("updated_at", Op.LTE, "2027"),),
    (Filter("price", Op.IS, False), Filter("sku", Op.LIKE, "x")),
    (Filter("sold", Op.EQ, True), Filter("updated_at", Op.GT, "2025"), Filter("updated_at", Op.LT, "2027")),
]
SORTS = [(), (Sort("price"),), (Sort("updated_at", descending=True),)]


def explained(store: Store, query: Query) -> str:
    def explain(transaction: Transaction) -> str:
        transaction.page("things", query)
        transaction.count("things", query, most=9)
        return transaction.explain("things", query)

    return store.write(explain)


def fill_with_rare(store: Store) -> None:
    """Many items of one name, and few of another one."""
    names = ["rare" if n % 100 == 0 else "common" for n in range(1000)]
    insert(store, *(record(f"{n:04}", name=name, price=n % 10, sold=True, stock=n) for n, name in enumerate(names)))


def test_an_equality_comes_before_all_else(open_one: Callable[..., Store]) -> None:
    """Before a range of one side or both, and before each order."""
    store = open_one(THINGS)
    fill_with_rare(store)
    for equality, others, sort in product(EQUALITIES, OTHERS, SORTS):
        plan = explained(store, Query((*others, equality), sort=sort, limit=20))
        assert plan.count("items.things.") == 1 and f"items.things.{equality.field}." in plan, (others, sort, plan)


def test_the_equality_with_the_fewest_items_is_used(open_one: Callable[..., Store]) -> None:
    """Whichever comes first, also in the order of the other one's field."""
    store = open_one(Collection("things", FIELDS, (*INDEXES, Index("sold"))))
    fill_with_rare(store)
    sold = Filter("sold", Op.EQ, True)
    for filters, field in product(((sold, RARE), (RARE, sold)), ("price", "sold")):
        assert "items.things.name." in explained(store, Query(filters, sort=(Sort(field),), limit=20))


def test_an_id_is_found_by_the_index_of_the_ids(open_one: Callable[..., Store]) -> None:
    """Which is the primary key of both stores, that each names in its own way."""
    store = open_one(Collection("things", FIELDS))
    fill_with_rare(store)
    plan = explained(store, Query((Filter("id", Op.EQ, "0007"), *OTHERS[0]), limit=20))
    assert plan.startswith(("Index Scan using items_pkey", "SEARCH items USING INDEX sqlite_autoindex")), plan


@pytest.mark.parametrize("sort", SORTS[:2])
def test_an_index_of_several_fields_comes_first(open_one: Callable[..., Store], sort: tuple[Sort, ...]) -> None:
    """It has the equality, the range, and their order."""
    store = open_one(PAIRS)
    fill_with_rare(store)
    plan = explained(store, Query((Filter("price", Op.GT, 5), Filter("name", Op.EQ, "common")), sort=sort, limit=20))
    assert "items.things.name+price." in plan, plan

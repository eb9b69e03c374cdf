"""Indexes of several fields."""

from collections.abc import Callable

import pytest

from restkeeper.storage.base import Store
from restkeeper.storage.interface import Collection, Filter, Index, Op, Sort
from tests.things import FIELDS, SAMPLE, ids, insert, record

BOOKS = Collection("things", FIELDS, (Index("name", "stock"), Index("sku", "stock", unique=True)))


@pytest.fixture
def store(open_one: Callable[..., Store]) -> Store:
    return open_one(BOOKS)


@pytest.mark.parametrize("declared", [BOOKS, Collection("things", FIELDS)], ids=["indexed", "without"])
def test_queries_have_the_same_results(open_one: Callable[..., Store], declared: Collection) -> None:
    """As without an index: an equality with a range, an order, several values, null and what is negated."""
    store = open_one(declared)
    insert(store, *SAMPLE, *(record(f"n{n}", name="Lamp" if n % 2 else "Bulb", stock=n, sku=f"S{n}") for n in range(6)))
    lamp, down = Filter("name", Op.EQ, "Lamp"), (Sort("stock", descending=True),)
    some, few = Filter("name", Op.IN, ("Lamp", "Bulb")), (Filter("stock", Op.GTE, 1), Filter("stock", Op.LT, 4))
    assert ids(store, filters=(lamp, *few), sort=(Sort("stock"),)) == ["n1", "a", "n3"]
    assert ids(store, filters=(*few, lamp), sort=down) == ["n3", "a", "n1"]
    assert ids(store, filters=(lamp,), sort=down, limit=2) == ["n5", "n3"]
    assert ids(store, filters=(lamp,), sort=down, limit=2, after=(3, "n3")) == ["a", "n1"]
    assert ids(store, filters=(some, *few)) == ["a", "n1", "n2", "n3"]
    assert ids(store, filters=(lamp, Filter("stock", Op.EQ, 3))) == ["a", "n3"]
    assert ids(store, filters=(lamp._replace(negated=True), *few)) == ["n2"]
    assert ids(store, filters=(Filter("sku", Op.EQ, "S2"), Filter("stock", Op.EQ, 2))) == ["n2"]
    assert ids(store, filters=(Filter("sku", Op.EQ, "S2"), Filter("stock", Op.EQ, 3))) == []
    assert ids(store, filters=(Filter("sku", Op.IS, True), Filter("stock", Op.EQ, 9))) == ["c"]
    assert ids(store, sort=(Sort("name"), Sort("stock")), limit=3) == ["d", "n0", "n2"]

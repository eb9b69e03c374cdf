"""The filters of `items.find`: of values of Python, without a text between."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from restkeeper.errors import InvalidQuery
from restkeeper.resources.functions import query_of
from restkeeper.resources.views import StoredView
from restkeeper.storage.interface import Filter, Op
from tests.shapes import PRODUCTS

STORED = StoredView(PRODUCTS)
CODE = UUID("01a225ca-e2c4-7c2c-9c08-06ac2a992b4b")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("stock", 5, Filter("stock", Op.EQ, 5)),
        ("stock", 5.0, Filter("stock", Op.EQ, 5)),
        ("price[gte]", Decimal("1.50"), Filter("price", Op.GTE, Decimal("1.5"))),
        ("score", 0.1, Filter("score", Op.EQ, Decimal("0.1"))),
        ("is_new", False, Filter("is_new", Op.EQ, False)),
        ("price", None, Filter("price", Op.IS, True)),
        ("price[ne]", None, Filter("price", Op.IS, False)),
        ("name", "a,b", Filter("name", Op.EQ, "a,b")),
        ("name", ["a,b", "c"], Filter("name", Op.IN, ("a,b", "c"))),
        ("name[nin]", "a,b", Filter("name", Op.IN, ("a", "b"), negated=True)),
        ("released[gt]", date(2026, 11, 29), Filter("released", Op.GT, "2026-11-29")),
        ("seen_at", datetime(2026, 11, 29, tzinfo=UTC), Filter("seen_at", Op.EQ, "2026-11-29T00:00:00.000000Z")),
        ("code", CODE, Filter("code", Op.EQ, str(CODE))),
        ("code[in]", [CODE, UUID(int=1)], Filter("code", Op.IN, (str(CODE), str(UUID(int=1))))),
    ],
)
def test_a_value_becomes_a_filter(name: str, value: Any, expected: Filter) -> None:
    assert query_of(STORED, {name: value}, 100).query.filters == (expected,)


@pytest.mark.parametrize(
    ("name", "value"),
    [("stock", True), ("stock", 1.5), ("stock", 2**63), ("price", float("nan")), ("name", "a\0")],
)
def test_a_value_of_another_kind_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidQuery, match=name):
        query_of(STORED, {name: value}, 100)

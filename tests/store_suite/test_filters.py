"""Filters and search: each operator on each kind of field, compared exactly."""

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.interface import Filter, Op, Query, Record, Store, Transaction
from tests.things import SAMPLE, ids, insert, record

FOUND = {
    Filter("id", Op.EQ, "b"): "b",
    Filter("id", Op.IN, ("a", "d", "x")): "ad",
    Filter("price", Op.EQ, Decimal("12.50")): "a",
    Filter("price", Op.EQ, Decimal("0.1")): "d",
    Filter("price", Op.NE, Decimal(7)): "acd",
    Filter("price", Op.GT, Decimal("0.1")): "ab",
    Filter("price", Op.GTE, Decimal("0.1")): "abd",
    Filter("price", Op.LT, Decimal("12.5")): "bd",
    Filter("price", Op.LTE, Decimal("12.5")): "abd",
    Filter("price", Op.IN, (Decimal("12.5"), Decimal(7))): "ab",
    Filter("stock", Op.LT, 0): "d",
    Filter("stock", Op.IN, (0, 9)): "bc",
    Filter("sold", Op.EQ, True): "a",
    Filter("sold", Op.NE, True): "bcd",
    Filter("tags", Op.EQ, "red"): "ab",
    Filter("tags", Op.IN, ("big", "a,b")): "ad",
    Filter("sku", Op.EQ, "L1"): "a",
    Filter("sku", Op.EQ, ""): "",
    Filter("sku", Op.NE, "L1"): "bcd",
    Filter("mail", Op.EQ, "a@X.ORG"): "a",
    Filter("mail", Op.IN, ("a@X.org", "B@x.org")): "ad",
    Filter("name", Op.LIKE, "LAMP"): "ab",
    Filter("name", Op.LIKE, "éCL"): "c",
    Filter("name", Op.LIKE, "0% \\_"): "d",
    Filter("name", Op.LIKE, "_"): "d",
    Filter("name", Op.GT, "Lamp"): "bc",
    Filter("updated_at", Op.LTE, "2026-01-01T00:00:01.000000Z"): "abcd",
}


def test_filters(store: Store) -> None:
    """Each operator on each kind finds and counts the same items; null satisfies only `ne`."""
    insert(store, *SAMPLE)
    assert {each: "".join(ids(store, filters=(each,))) for each in FOUND} == FOUND
    for most in (None, 1):
        counted = {each: store.count("things", Query(filters=(each,)), most=most) for each in FOUND}
        assert counted == {each: min(len(found), most or 9) for each, found in FOUND.items()}


def test_filters_and_search_narrow_together(store: Store) -> None:
    """Several filters and a search must all match; the search compares its fields without regard to case."""
    insert(store, *SAMPLE)
    assert ids(store, search="RED") == ["a", "b"]
    assert ids(store, search="éclair") == ["c"]
    assert ids(store, search="lamp", filters=(Filter("stock", Op.GT, 0), Filter("tags", Op.EQ, "red"))) == ["a"]
    assert ids(store, search="nothing like it") == []


def test_full_text_search_finds_texts_of_a_list(store: Store) -> None:
    """Its JSON brackets and commas are not found; a quote or a backslash in an element is."""
    insert(store, record("a", tags=["red", 'say "hi"']), record("b", tags=[]), record("c", tags=["back\\slash", "Éé"]))
    found = {q: ids(store, search=q) for q in ("[", '","', 'y "H', "K\\S", "éÉ", "red")}
    assert found == {"[": [], '","': [], 'y "H': ["a"], "K\\S": ["c"], "éÉ": ["c"], "red": ["a"]}


def test_a_search_finds_nothing_in_a_field_that_is_no_list(store: Store) -> None:
    """An item of an older form, which cannot be converted, can have another value where a list is now."""
    others = ["red", '["red"]', 7, {"red": "red"}, None]
    insert(store, *(record(f"{n}", tags=stored) for n, stored in enumerate(others)), record("a", tags=["red"]))
    assert ids(store, search="red") == ["a"] and store.count("things", Query(search="red")) == 1


def test_a_search_looks_into_each_text_by_itself(store: Store) -> None:
    """It finds a line feed within a text, but none between two fields or two elements, and nothing in an empty list."""
    insert(store, record("a", name="one", tags=["two", "three"]), record("b", name="one\nTwo", tags=[]), record("c"))
    found = {q: ids(store, search=q) for q in ("one\ntwo", "two\nthree", "\n", "onetwo", "e\n", "three")}
    assert found == {"one\ntwo": ["b"], "two\nthree": [], "\n": ["b"], "onetwo": [], "e\n": ["b"], "three": ["a"]}


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


@settings(max_examples=300, deadline=None)
@given(cents=CENTS, near=st.integers(-3, 3), digits=DIGITS, far=st.booleans())
def test_decimals_are_compared_exactly(shared: Store, cents: int, near: int, digits: int, far: bool) -> None:
    """A number can have more digits than those of items: each operator has the result of Decimal."""
    price = Decimal(cents) / 100
    other = Decimal(cents + near) / 100 + (Decimal(digits) / 10**14 if far else Decimal(0))
    one = record("a", price=price)
    shared.write(lambda transaction: put(transaction, one))
    for op, expected in OPERATORS.items():
        condition = Filter("price", op, (other,) if op is Op.IN else other)
        assert shared.count("things", Query(filters=(condition,))) == expected(price, other), (op, price, other)


def put(transaction: Transaction, one: Record) -> None:
    try:
        with transaction.savepoint():
            transaction.update("things", one)
    except RecordNotFound:
        transaction.insert("things", one)


def test_numbers_that_no_item_has(store: Store) -> None:
    """A number with more digits, or larger than any, equals none and is above or below each; null is neither."""
    insert(store, record("a", price=Decimal(0)), record("b", price=Decimal("9999999999999.99")), record("n"))
    expected = {
        (Op.EQ, "9999999999999.991"): "",
        (Op.NE, "9999999999999.991"): "abn",
        (Op.LT, "9999999999999.991"): "ab",
        (Op.GTE, "9999999999999.991"): "",
        (Op.LT, "1E+999"): "ab",
        (Op.GT, "-1E+999"): "ab",
        (Op.GT, "1E-400"): "b",
        (Op.LTE, "1E-400"): "a",
    }
    found = {(op, number): ids(store, filters=(Filter("price", op, Decimal(number)),)) for op, number in expected}
    assert found == {each: list(items) for each, items in expected.items()}

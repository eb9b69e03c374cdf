"""Filters and search: each operator on each kind of field, compared exactly."""

from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restkeeper import exactjson
from restkeeper.resources.filters import value_of
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.interface import ANY, Collection, Field, Filter, Index, Kind, Op, Query, Record
from tests.store_suite.conftest import KINDS, stores
from tests.things import SAMPLE, ids, insert, record
from tests.waiting import ANY_TIME

FOUND = {  # what the property below does not have
    Filter("id", Op.IN, ("a", "d", "x")): "ad",
    Filter("tags", Op.IN, ("big", "a,b")): "ad",
    Filter("mail", Op.EQ, "a@X.ORG"): "a",
    Filter("mail", Op.IN, ("a@X.org", "B@x.org")): "ad",
    Filter("name", Op.LIKE, "LAMP"): "ab",
    Filter("name", Op.LIKE, "éCL"): "c",
    Filter("name", Op.LIKE, "0% \\_"): "d",
    Filter("name", Op.LIKE, "_"): "d",
}


def test_filters(store: Store) -> None:
    """Texts are found without regard to case, and no sign of them is a wildcard; counts end where they may."""
    insert(store, *SAMPLE)
    assert {each: "".join(ids(store, filters=(each,))) for each in FOUND} == FOUND
    assert [store.count("things", Query(filters=(each,)), most=1) for each in FOUND] == [1] * len(FOUND)


def test_full_text_search_finds_texts_of_a_list(store: Store) -> None:
    """Its JSON brackets and commas are not found; a quote or a backslash in an element is."""
    insert(store, record("a", tags=["red", 'say "hi"']), record("b", tags=[]), record("c", tags=["back\\slash", "Éé"]))
    found = {q: ids(store, search=(q,)) for q in ("[", '","', 'y "H', "K\\S", "éÉ", "red")}
    assert found == {"[": [], '","': [], 'y "H': ["a"], "K\\S": ["c"], "éÉ": ["c"], "red": ["a"]}


def test_a_search_finds_nothing_in_a_field_that_is_no_list(store: Store) -> None:
    """An item of an older form, which cannot be converted, can have another value where a list is now."""
    others = ["red", '["red"]', 7, {"red": "red"}, None]
    insert(store, *(record(f"{n}", tags=stored) for n, stored in enumerate(others)), record("a", tags=["red"]))
    assert ids(store, search=("red",)) == ["a"] and store.count("things", Query(search=("red",))) == 1


def test_a_search_looks_into_each_text_by_itself(store: Store) -> None:
    """It finds a line feed within a text, but none between two fields or two elements, and nothing in an empty list."""
    insert(store, record("a", name="one", tags=["two", "three"]), record("b", name="one\nTwo", tags=[]), record("c"))
    found = {q: ids(store, search=(q,)) for q in ("one\ntwo", "two\nthree", "\n", "onetwo", "e\n", "three")}
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


@ANY_TIME
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


SHOP_FIELDS = {
    name: Field(name, kind, nullable=True)
    for name, kind in {
        "id": Kind.TEXT,
        "note": Kind.TEXT,
        "total": Kind.NUMBER,
        "paid_at": Kind.TIME,
        "tags": Kind.LIST,
        "lines.sku": Kind.TEXT,
        "lines.price": Kind.NUMBER,
        "lines.count": Kind.INTEGER,
        "lines.gift": Kind.BOOLEAN,
        "lines.parts.sku": Kind.TEXT,
        "attributes.*": Kind.JSON,
        ANY: Kind.JSON,
    }.items()
}
PATHS = ("tags", "lines.sku", "lines.price", "lines.count", "lines.gift", "lines.parts.sku", "attributes.colour")
PLAIN = Collection("plain", SHOP_FIELDS)
INDEXED = Collection(
    "indexed",
    SHOP_FIELDS,
    (
        *map(Index, (*PATHS, "note", "total", "paid_at", "attributes.a.b", "first-name")),
        *(Index("note", "total"), Index("total", "paid_at"), Index("paid_at", "note")),
    ),
)

TEXTS = st.text("aAz\uffff\U0001f600'\"%_\\,.é", max_size=3) | st.sampled_from(["null", "true", "5", "1e3", ""])
NUMBERS = st.integers(-3, 3) | st.sampled_from([Decimal("0.1"), Decimal("12.5"), 1000, 5, Decimal("5.0")])
TIMES = st.sampled_from(["2026-01-01T00:00:00.000000Z", "2026-02-01T00:00:00.000000Z"])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "colour"]), inner),
    max_leaves=6,
)
LINES = st.fixed_dictionaries(
    {},
    optional={
        "sku": st.none() | TEXTS,
        "price": st.none() | NUMBERS,
        "count": st.integers(-3, 3),
        "gift": st.none() | st.booleans(),
        "parts": st.lists(st.fixed_dictionaries({"sku": TEXTS}), max_size=2),
    },
)
BODIES = st.fixed_dictionaries(
    {"lines": st.lists(LINES, max_size=3), "attributes": st.dictionaries(st.sampled_from(["colour", "a"]), JSON)},
    optional={
        "first-name": JSON,
        "größe": JSON,
        "note": st.none() | TEXTS,
        "total": st.none() | NUMBERS,
        "paid_at": st.none() | TIMES,
        "tags": st.lists(TEXTS, max_size=3),
    },
)
WRITTEN = TEXTS | NUMBERS.map(str) | st.sampled_from(["true", "false"])
EQUALITY = [Op.EQ, Op.NE, Op.IN]
ORDERED = [*EQUALITY, Op.GT, Op.GTE, Op.LT, Op.LTE]
OF_JSON = [*ORDERED, Op.STARTS, Op.ENDS]
OPERATORS_OF = {
    "note": [*ORDERED, Op.STARTS, Op.ENDS, Op.LIKE],
    "total": ORDERED,
    "paid_at": ORDERED,
    "tags": [Op.EQ, Op.IN],
    "lines.sku": [*ORDERED, Op.STARTS, Op.ENDS],
    "lines.parts.sku": [*ORDERED, Op.STARTS, Op.ENDS],
    "lines.price": ORDERED,
    "lines.count": ORDERED,
    "lines.gift": [Op.EQ, Op.NE],
    "attributes.colour": OF_JSON,
    "attributes.a.b": OF_JSON,
    "first-name": [*OF_JSON, Op.LIKE],
    "größe": [*OF_JSON, Op.LIKE],
    "größe.a": [*OF_JSON, Op.LIKE],
    "none": [*OF_JSON, Op.LIKE],
}
VALUES = {Kind.TEXT: TEXTS, Kind.LIST: TEXTS, Kind.NUMBER: NUMBERS, Kind.TIME: TIMES, Kind.BOOLEAN: st.booleans()}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    """A filter of any field by any of its operators, perhaps one of a group, perhaps negated."""
    name = draw(st.sampled_from(list(OPERATORS_OF)))
    kind = INDEXED.field(name).kind
    more = (draw(st.sampled_from([0, 0, 1, 2])), draw(st.booleans()))
    if draw(st.integers(0, 4)) == 0:
        return Filter(name, Op.IS, draw(st.booleans()), *more)
    op = draw(st.sampled_from(OPERATORS_OF[name]))
    if kind is Kind.JSON and op in (Op.STARTS, Op.ENDS, Op.LIKE):
        return Filter(name, op, draw(WRITTEN), *more)
    if kind is Kind.JSON:  # as a request has it: all that is written so
        return Filter(name, Op.IN if op is Op.EQ else op, value_of(draw(WRITTEN), INDEXED.field(name)), *more)
    values = {Kind.INTEGER: st.integers(-3, 3), **VALUES}[kind]
    if op is Op.IN:
        return Filter(name, op, tuple(draw(st.lists(values, min_size=1, max_size=3))), *more)
    return Filter(name, op, draw(values), *more)


def values_at(item: Any, path: str) -> list[Any]:
    """The values at a path, where a list stands for each of its elements."""
    found = [item]
    for name in path.split("."):
        inner = [each[name] for each in found if isinstance(each, dict) and name in each]
        found = [element for each in inner for element in (each if isinstance(each, list) else [each])]
    return found


def is_equal(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def satisfies(item: Any, filter: Filter) -> bool:
    """Whether an item satisfies a filter, in Python."""
    if filter.negated:
        return not satisfies(item, filter._replace(negated=False))
    found, given = values_at(item, filter.field), filter.value
    values = given if isinstance(given, tuple) else (given,)
    if filter.op is Op.IS:
        return all(value is None for value in found) == given
    if filter.op in EQUALITY:
        has = any(is_equal(value, each) for value in found for each in values if each is not None)
        has |= None in values and all(value is None for value in found)
        return not has if filter.op is Op.NE else has
    if filter.op is Op.LIKE:
        return any(str(given).casefold() in written(value).casefold() for value in found if is_written(value))
    if filter.op is Op.STARTS:
        return any(isinstance(value, str) and value.startswith(str(given)) for value in found)
    if filter.op is Op.ENDS:
        return any(isinstance(value, str) and value.endswith(str(given)) for value in found)
    if INDEXED.field(filter.field).kind is Kind.JSON:
        found = [value for value in found if is_written(value)]
        pairs = [(value, each) for value in found for each in values if is_written(each)]
        comparable = [pair for pair in pairs if isinstance(pair[0], str) == isinstance(pair[1], str)]
        return any(OPERATORS[filter.op](*pair) for pair in comparable)
    return any(OPERATORS[filter.op](value, given) for value in found if value is not None)


def is_written(value: Any) -> bool:
    """Whether it is a text or a number."""
    return isinstance(value, str | int | float | Decimal) and not isinstance(value, bool)


def written(value: Any) -> str:
    """A text, or a number as a text."""
    return value if isinstance(value, str) else f"{Decimal(str(value)).normalize():f}"


@pytest.fixture(params=KINDS, scope="module")
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with a collection that has indexes, and one that has none."""
    with stores(request, tmp_path_factory.mktemp("shop")) as open_with:
        yield open_with(PLAIN, INDEXED)


@ANY_TIME
@given(bodies=st.lists(BODIES, min_size=1, max_size=4), queries=st.lists(st.lists(filters(), max_size=4), max_size=6))
def test_filters_find_what_python_finds(shop: Store, bodies: list[Any], queries: list[list[Filter]]) -> None:
    """By each operator, at any path, in any groups, with an index and without: also after changes of the items."""
    items = {f"{n}": {"id": f"{n}", **body} for n, body in enumerate(bodies)}
    for name in ("plain", "indexed"):
        shop.write(partial(replace_all, name, items))
    for query in queries:
        groups = [[each for each in query if each.group == number] for number in (1, 2)]
        groups = [*filter(None, groups), *([each] for each in query if not each.group)]
        expected = [id for id, item in items.items() if all(any(satisfies(item, each) for each in g) for g in groups)]
        for name in ("plain", "indexed"):
            page = shop.page(name, Query(tuple(query)))
            assert [exactjson.loads(body)["id"] for body in page.bodies] == expected, (name, query)
            assert shop.count(name, Query(tuple(query))) == len(expected)


def replace_all(collection: str, items: dict[str, Any], transaction: Transaction) -> None:
    """Store these items, by a change where there is one, and delete others."""
    for id in map(str, range(4)):
        item = items.get(id)
        stored = item and Record(id, 1, "2026-01-01T00:00:00.000000Z", "shape", exactjson.dumps(item))
        try:
            transaction.read(collection, id)
        except RecordNotFound:
            if stored:
                transaction.insert(collection, stored)
            continue
        if stored:
            transaction.update(collection, stored)
        else:
            transaction.delete(collection, id)

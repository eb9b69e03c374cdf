"""Names that a collection does not declare: filtered, sorted, counted and searched as the values are."""

from collections.abc import Callable
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from restkeeper import exactjson
from restkeeper.storage.base import Store
from restkeeper.storage.interface import (
    ANY,
    Collection,
    Field,
    Filter,
    Group,
    GroupBy,
    Groups,
    Kind,
    Op,
    Query,
    Record,
    Sort,
)
from restkeeper.storage.sql import SORTED
from tests.store_suite.test_pages import ids_of, walk
from tests.things import ids, insert

OPEN = Collection("things", {"id": Field("id", Kind.TEXT), ANY: Field(ANY, Kind.JSON, nullable=True)}, search=(ANY,))

VALUES: list[Any] = [  # in their order
    (None, [], ["a", 1], {"a": 1}),
    Decimal("-1e308"),
    -(2**63),
    Decimal("-12.5"),
    -3,
    Decimal("-1e-300"),
    (False, 0, Decimal("0.0")),
    Decimal("5e-324"),
    Decimal("0.1"),
    (1, True, Decimal("1.0")),
    9,
    10,
    Decimal("12.5"),
    Decimal("1e300"),
    "",
    "-1",
    "10",
    "9",
    "Z",
    "a",
    ("x" * SORTED, "x" * SORTED + "b", "x" * SORTED + "a"),
    "É",
    "\uffff",
    "\U0001f600",
]


@pytest.fixture
def store(open_one: Callable[..., Store]) -> Store:
    """A store with a collection that declares nothing but ids."""
    return open_one(OPEN)


def counted_by(field: str) -> Query:
    """The query for the values of a field."""
    return Query(groups=Groups((GroupBy(field),)))


def put(store: Store, **items: Any) -> None:
    made = {id: exactjson.dumps({"id": id, **item}) for id, item in items.items()}
    insert(store, *(Record(id, 1, "2026-01-01T00:00:00.000000Z", "shape", body) for id, body in made.items()))


@pytest.mark.parametrize("name", ["value", "first-name", "in.ner", "größe.$a b"])
def test_values_sort_by_kind(store: Store, name: str) -> None:
    """Null, objects and arrays first, then numbers, then texts, each item on exactly one page, in both directions."""
    groups: list[list[str]] = []
    items: dict[str, Any] = {"absent": {}}
    for n, values in enumerate(VALUES):
        groups.append([])
        for each, value in enumerate(values if isinstance(values, tuple) else (values,)):
            root, _, inner = name.partition(".")
            groups[n].append(id := f"{(each * 7 + n) % 10}{n:02}")
            items[id] = {root: {inner: value} if inner else value}
    groups[0].append("absent")
    put(store, **dict(sorted(items.items())))
    for is_descending, backward in product((False, True), repeat=2):
        ordered = [sorted(group, reverse=is_descending) for group in groups]
        expected = [id for group in (reversed(ordered) if is_descending else ordered) for id in group]
        query = Query(sort=(Sort(name, is_descending),), limit=3, backward=backward)
        assert ids_of(walk(store, query), query) == expected
    both = Query(sort=(Sort(name), Sort("none", True)), limit=1)
    assert sorted(ids_of(walk(store, both), both)) == sorted(items)


def test_values_are_counted(store: Store) -> None:
    """The most frequent first, then in their order; a number is no boolean, and no text."""
    values = [1, Decimal("1.0"), 1, True, True, "1", "a", "a", 'q"é', None, [1], {"a": 1}, Decimal("2.50")]
    put(store, **{f"{n:02}": {"value": value} for n, value in enumerate(values)}, absent={}, false={"value": False})
    found = [(*each.values, each.items) for each in store.groups("things", counted_by("value"), 10)]
    expected = [(None, 4), (1, 3), (True, 2), ("a", 2), (False, 1), (2.5, 1), ("1", 1), ('q"é', 1)]
    assert [(type(value) in (bool, str), value, number) for value, number in found] == [
        (type(value) in (bool, str), value, number) for value, number in expected
    ]
    assert store.groups("things", counted_by("a.b"), 10) == [Group((None,), len(values) + 2)]


def test_a_search_finds_texts_at_any_depth(store: Store) -> None:
    """Without case, each text by itself: no names of members, no numbers, and no signs of JSON."""
    put(
        store,
        a={"title": "One", "deep": [{"x": [{"y": "ÉCLAIR straße"}]}], "n": 42},
        b={"names": {"one": True}, "text": 'a "quoted" back\\slash', "lines": ["two\nthree"]},
        c={"list": ["one", 5, None]},
    )
    searches = ["one", "éclair", "STRASSE", "42", "names", "true", '"QUOTED', "k\\s", "o\nT", "n", "],[", '","', "\\n"]
    assert {each: "".join(ids(store, search=(each,))) for each in searches} == {
        "one": "ac",
        "éclair": "a",
        "STRASSE": "a",
        "42": "",
        "names": "",
        "true": "",
        '"QUOTED': "b",
        "k\\s": "b",
        "o\nT": "b",
        "n": "ac",
        "],[": "",
        '","': "",
        "\\n": "",
    }
    assert store.count("things", Query(search=("one",), filters=(Filter("n", Op.GT, ("5", Decimal(5))),))) == 1

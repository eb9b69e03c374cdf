"""Groups of random items, by random queries, as plain Python makes them: on each store the same values and order."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from random import Random
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest

from restkeeper import exactjson
from restkeeper.storage.base import Transaction
from restkeeper.storage.interface import (
    ANY,
    DATE_PARTS,
    Aggregate,
    Collection,
    Field,
    Filter,
    Group,
    GroupBy,
    Groups,
    Index,
    Kind,
    Op,
    Query,
    Record,
)
from tests.store_suite.conftest import KINDS, stores

ITEMS, QUERIES = 2_000, 60
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "Australia/Lord_Howe", "Etc/GMT+12"]

FIELDS = {
    each.name: each
    for each in (
        Field("id", Kind.TEXT),
        Field("status", Kind.TEXT),
        Field("customer", Kind.TEXT, nullable=True),
        Field("paid", Kind.BOOLEAN, nullable=True),
        Field("pieces", Kind.INTEGER, nullable=True, default=7),
        Field("total", Kind.NUMBER, nullable=True, places=2),
        Field("weight", Kind.NUMBER, nullable=True),
        Field("at", Kind.TIME, nullable=True, is_dated=True),
        Field("due", Kind.TEXT, nullable=True, is_dated=True),
        Field(ANY, Kind.JSON, nullable=True),
    )
}
ORDERS = Collection("orders", FIELDS, (Index("status"), Index("customer")))
NUMBERS = ["pieces", "total", "weight", "free"]
BY = [*(GroupBy(name) for name in ("status", "customer", "paid", "pieces", "total", "weight", "free", "at", "due"))]
BY += [GroupBy("due", part) for part in DATE_PARTS] + [GroupBy("at", part) for part in DATE_PARTS]
BY += [GroupBy("at", part, zone) for part in DATE_PARTS for zone in ZONES]
BY += [GroupBy("when", "day"), GroupBy("when", "month", "Asia/Kathmandu")]
AGGREGATES = [Aggregate(function, name) for name in NUMBERS for function in ("sum", "avg", "min", "max")]
AGGREGATES += [Aggregate(each, name) for name in ("status", "customer", "paid", "at", "due") for each in ("min", "max")]


def random_items(random: Random) -> Iterator[dict[str, Any]]:
    """Items with null, missing, equal, small, large and inexact values, and with times near changes of the clocks."""
    changes = [
        datetime(*each, tzinfo=UTC) for each in ((1893, 4, 1), (2026, 3, 29, 1), (2026, 10, 25, 1), (2099, 7, 1))
    ]
    changes += [
        datetime(2011, 12, 30, 10, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 30, tzinfo=UTC),
    ]
    weights = [0.1, 0.2, 1e-300, 3.5e300, -7.25, 5e-324, 123456789.123456]
    free = [1, True, "1", False, 0, Decimal("2.5"), "é", [1], {"a": 1}, "x" * 400]
    written = ["2026-01-31", "2026-01-31T23:30:00Z", "2026-02-01T00:30:00.5+02:00", "2026-01-31T23:00:00-01:30"]
    written += ["2026-01-31T23:30:00", "2026-01-31 later", "2026-13-01T00:00:00Z", "none", "", 7, True]
    for n in range(ITEMS):
        at = random.choice(changes) + timedelta(seconds=random.randrange(86_400), microseconds=random.randrange(10**6))
        item = {
            "status": random.choice(["open", "paid", "sent"]),
            "customer": random.choice(["ann", "Ann", "bob", "", "Ä", None]),
            "paid": random.choice([True, False, None]),
            "pieces": random.choice([0, -3, 5, 2**62]),
            "total": random.choice([None, Decimal(random.randrange(10**15)) / 100, Decimal("0.1"), 5]),
            "weight": random.choice([None, *(Decimal(repr(each)) for each in weights)]),
            "free": random.choice([*free, None]),
            "when": random.choice([*written, None]),
            "at": random.choice([None, f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"]),
            "due": random.choice([None, f"20{random.randrange(100):02}-0{random.randrange(1, 10)}-28"]),
        }
        missing = {"customer", "paid", "pieces", "free", "due", "at"} if random.random() < 0.1 else set()
        yield {"id": f"{n:05}", **{name: value for name, value in item.items() if name not in missing}}


def value_of(item: dict[str, Any], name: str) -> Any:
    value = item.get(name, FIELDS[name].default if name in FIELDS else None)
    return (
        None if isinstance(value, list | dict) else value[:300] if name == "free" and isinstance(value, str) else value
    )


def group_value(item: dict[str, Any], by: GroupBy) -> Any:
    """The value, with its type so that true is not 1."""
    value = value_of(item, by.field)
    if value is None or not by.part:
        return (isinstance(value, bool), value)
    if by.field == "when" and (not isinstance(value, str) or value[:7] not in ("2026-01", "2026-02")):
        return (False, None)
    is_time = by.zone or (by.field == "when" and re.search("Z|[+-]..:..$", value))
    if is_time and "0001-01-02" < value < "9999-12-31" and re.search("Z|[+-]..:..$", value):
        value = datetime.fromisoformat(value).astimezone(ZoneInfo(by.zone or "UTC")).date().isoformat()
    return (False, value[: {"year": 4, "month": 7, "day": 10}[by.part]])


def order(by: GroupBy, value: tuple[bool, Any]) -> tuple[Any, ...]:
    """Null first; of undeclared values numbers and booleans come before texts, and numbers before equal booleans."""
    is_boolean, found = value
    if found is None:
        return (0,)
    if isinstance(found, str):
        return (2, found, 1) if found or by.part else (0, found)
    return (1, found, is_boolean)


def aggregate(items: list[dict[str, Any]], of: Aggregate) -> Any:
    values = [value for item in items if (value := value_of(item, of.field)) is not None]
    if of.field in NUMBERS:
        texts = [each for each in values if isinstance(each, str)] if of.function in ("min", "max") else []
        values = [Decimal(each) for each in values if not isinstance(each, bool | str)]
        values = texts if texts and (of.function == "max" or not values) else values
    if not values:
        return None
    if of.function in ("min", "max"):
        return min(values) if of.function == "min" else max(values)
    with localcontext(prec=2_000):
        total = sum(values)
        if of.function == "sum":
            return total
        if of.field in ("weight", "free"):
            return Decimal(repr(float(total / len(values))))
        return (total / len(values)).quantize(Decimal("1e-6" if of.field == "total" else "1e-4"), ROUND_HALF_EVEN)


def grouped(items: list[dict[str, Any]], groups: Groups) -> list[Any]:
    """The groups by plain Python, in their order."""
    found = defaultdict[tuple[Any, ...], list[dict[str, Any]]](list, {} if groups.by else {(): []})
    for item in items:
        found[tuple(group_value(item, by) for by in groups.by)].append(item)
    keys = sorted(found, key=lambda key: (-len(found[key]), *map(order, groups.by, key)))
    return [(key, len(found[key]), [aggregate(found[key], each) for each in groups.aggregates]) for key in keys]


def shown(group: Group, groups: Groups) -> Any:
    """A group as `grouped` has it: a boolean field has the numbers 0 and 1 in a store."""
    values = [
        bool(value) if by.field == "paid" and value is not None else value
        for by, value in zip(groups.by, group.values, strict=True)
    ]
    results = [Decimal(repr(each)) if isinstance(each, float) else each for each in group.aggregates]
    return tuple((isinstance(each, bool), each) for each in values), group.items, results


@pytest.fixture(params=KINDS, scope="module")
def orders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A store with random items, and these."""
    items = list(random_items(Random(7)))  # noqa: S311 - no secret
    with stores(request, tmp_path_factory.mktemp("orders")) as open_with:
        store = open_with(ORDERS)

        def fill(transaction: Transaction) -> None:
            for some in (items[n : n + 500] for n in range(0, ITEMS, 500)):
                bodies = ((each["id"], exactjson.dumps(each)) for each in some)
                transaction.insert_all(
                    "orders", [Record(id, 1, "2026-01-01T00:00:00.000000Z", "", body) for id, body in bodies]
                )

        store.write(fill)
        yield store, items


FILTERS: dict[Filter, Callable[[dict[str, Any]], bool]] = {
    Filter("status", Op.EQ, "open"): lambda item: item["status"] == "open",
    Filter("customer", Op.IN, ("ann", "Ä")): lambda item: item.get("customer") in ("ann", "Ä"),
    Filter("total", Op.GT, Decimal("0.1")): lambda item: item["total"] is not None and item["total"] > Decimal("0.1"),
    Filter("at", Op.IS, True): lambda item: item.get("at") is None,
    Filter("status", Op.EQ, "none"): lambda item: False,
}


def test_groups_are_those_of_python(orders: Any) -> None:
    """By up to three values, with up to four aggregates, of all items and of some, and of none."""
    (store, items), random = orders, Random(11)  # noqa: S311 - likewise
    for n in range(QUERIES):
        groups = Groups(
            tuple(random.sample(BY, random.randrange(4))), tuple(random.sample(AGGREGATES, random.randrange(5)))
        )
        if n < len(BY):
            groups = groups._replace(by=(BY[n],))
        filters = tuple(random.sample(list(FILTERS), random.choice([0, 0, 1, 2])))
        chosen = [item for item in items if all(FILTERS[each](item) for each in filters)]
        found = store.groups("orders", Query(filters, groups=groups), 5_000)
        as_doubles = [
            (tuple((is_boolean, plain(value)) for is_boolean, value in key), number, results)
            for key, number, results in grouped(chosen, groups)
        ]
        assert [shown(each, groups) for each in found] == as_doubles, (filters, groups)
        assert [shown(each, groups) for each in store.groups("orders", Query(filters, groups=groups), 3)] == as_doubles[
            :3
        ]
    for name in NUMBERS:
        every = Groups((GroupBy("status"),), tuple(Aggregate(each, name) for each in ("sum", "avg", "min", "max")))
        found = [shown(each, every)[2] for each in store.groups("orders", Query(groups=every), 5)]
        assert found == [results for _, _, results in grouped(items, every)], name


def plain(value: Any) -> Any:
    """A value of a group, in which a number with a fraction is a double."""
    return float(value) if isinstance(value, Decimal) else value


def test_each_time_zone_is_known(orders: Any) -> None:
    """Whatever a request can name, with the same days since 1970: before, the databases of zones differ."""
    store, items = orders
    recent = [item for item in items if (item.get("at") or "") > "1970"]
    names = [name for name in sorted(available_timezones()) if "/" in name]
    assert names
    for zone in names[::20]:
        groups = Groups((GroupBy("at", "day", zone),))
        found = store.groups("orders", Query((Filter("at", Op.GT, "1970"),), groups=groups), 5_000)
        assert [shown(each, groups) for each in found] == grouped(recent, groups), zone

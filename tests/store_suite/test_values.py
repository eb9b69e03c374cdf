"""Filters by fields of every kind, in all forms that bodies have: they find what a comparison in Python finds."""

import operator
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from marshmallow import Schema, fields
from werkzeug.datastructures import MultiDict

import restkeeper
from restkeeper import Index, ItemSchema, Resource
from restkeeper.resources.representation import StoredRepresentation
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.interface import Op, Record
from restkeeper.web import exactjson
from restkeeper.web.queries import PARTS, operators_of, parse
from tests.store_suite.conftest import KINDS, stores


class Colour(Enum):
    RED = "r"
    GREEN = "g"


class Size(Enum):
    SMALL = 1
    LARGE = 2


class Code(fields.String):
    """A field of a service: a text in capital letters."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        return super()._deserialize(value, attr, data, **kwargs).upper()


class Values(NamedTuple):
    """Values of a field, the forms in which bodies have them, and what a text in such a form means."""

    field: fields.Field[Any]
    values: st.SearchStrategy[Any]
    forms: Sequence[Callable[[Any], str]]
    meaning: Callable[[str], Any]

    @property
    def written(self) -> st.SearchStrategy[str]:
        return st.tuples(self.values, st.sampled_from(self.forms)).map(lambda drawn: drawn[1](drawn[0]))


def in_form(form: str) -> Callable[[Any], str]:
    return lambda value: format(value, form)


def at(hours: int) -> Callable[[datetime], str]:
    return lambda moment: moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=hours))).isoformat()


def in_utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


NEAR = [datetime(2026, 1, 31, 12), datetime(2026, 1, 31, 12, 0, 0, 1), datetime(2026, 2, 1), datetime(1999, 12, 31)]
MOMENTS = st.sampled_from(NEAR) | st.datetimes(datetime(2026, 1, 31), datetime(2026, 2, 2))
DAYS = MOMENTS.map(datetime.date)
TIMES = MOMENTS.map(datetime.time) | st.sampled_from([time(0), time(12, 0, 0, 500_000)])
IDS = st.sampled_from([UUID(int=n) for n in (0, 10, 2**127)]) | st.uuids()
OFFSETS = [at(hours) for hours in (-11, 0, 2)]
WHOLE = st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1, 10])
DECIMALS = st.sampled_from([Decimal(text) for text in ("-3", "0", "0.1", "0.25", "1", "1000")])
FLOATS = DECIMALS | st.sampled_from([Decimal(text) for text in ("0.1000000000000000055", "0.3333333333333333", "1e-9")])

VALUES = {
    "moment": Values(restkeeper.Time(required=True), MOMENTS, OFFSETS, in_utc),
    "utc": Values(fields.DateTime(required=True), MOMENTS, [*OFFSETS, lambda moment: f"{moment}Z"], in_utc),
    "aware": Values(fields.AwareDateTime(required=True), MOMENTS, OFFSETS, in_utc),
    "naive": Values(
        fields.NaiveDateTime(required=True),
        MOMENTS,
        [str, datetime.isoformat, in_form("%G-W%V-%uT%H:%M:%S.%f")],
        datetime.fromisoformat,
    ),
    "day": Values(fields.Date(required=True), DAYS, [str, in_form("%Y%m%d"), in_form("%G-W%V-%u")], date.fromisoformat),
    "lines.clock": Values(
        fields.Time(required=True), TIMES, [str, in_form("%H:%M"), in_form("T%H%M%S.%f")], time.fromisoformat
    ),
    "clock": Values(
        fields.Time(required=True), TIMES, [str, in_form("%H:%M"), in_form("T%H%M%S.%f")], time.fromisoformat
    ),
    "days.any": Values(fields.Date(), DAYS, [str, in_form("%Y%m%d")], date.fromisoformat),
    "uuid": Values(fields.UUID(required=True), IDS, [str, lambda id: id.hex.upper(), lambda id: id.urn], UUID),
    "ip": Values(
        fields.IP(required=True),
        st.sampled_from([ip_address(text) for text in ("10.0.0.1", "9.0.0.1", "::1", "fe80::")]),
        [str, lambda ip: ip.exploded.upper()],
        ip_address,
    ),
    "whole": Values(restkeeper.Whole(required=True), WHOLE, [str, "{}.0".format, "{}e0".format], Decimal),
    "integer": Values(fields.Integer(required=True), WHOLE, [str, "{}.0".format], Decimal),
    "money": Values(restkeeper.Money(required=True), DECIMALS.map(abs), [str, in_form(".2f")], Decimal),
    "decimal": Values(fields.Decimal(required=True), DECIMALS, [str, in_form(".3f"), in_form("e")], Decimal),
    "float": Values(fields.Float(required=True), FLOATS, [str, in_form("e")], float),
    "span": Values(
        fields.TimeDelta(required=True), FLOATS, [str, in_form("e")], lambda text: timedelta(seconds=float(text))
    ),
    "is_open": Values(fields.Boolean(required=True), st.booleans(), [lambda value: str(value).lower()], "true".__eq__),
    "colour": Values(fields.Enum(Colour, required=True), st.sampled_from([each.name for each in Colour]), [str], str),
    "size": Values(fields.Enum(Size, by_value=True, required=True), st.integers(1, 2), [str], int),
    "code": Values(Code(required=True), st.text("aAbB", max_size=2), [str, str.lower], str.upper),
    "name": Values(restkeeper.Text(required=True), st.text("aAé\U0001f600'\"", max_size=2), [str], str),
}

JSON = (fields.Number, fields.TimeDelta, fields.Boolean)  # fields whose values are no texts in bodies
COMPARISONS = {
    **{Op.EQ: operator.eq, Op.NE: operator.ne, Op.GT: operator.gt, Op.GTE: operator.ge},
    **{Op.LT: operator.lt, Op.LTE: operator.le, Op.IN: operator.eq, Op.NIN: operator.ne},
}
LINE = Schema.from_dict({"clock": VALUES["lines.clock"].field}, name="Line")
SCHEMA: Any = ItemSchema.from_dict(
    {name: each.field for name, each in VALUES.items() if "." not in name}
    | {
        "lines": fields.List(fields.Nested(LINE), required=True),
        "days": fields.Dict(values=VALUES["days.any"].field, required=True),
    },
    name="ThingSchema",
)
INDEXES = tuple(map(Index, VALUES))
PLAIN, INDEXED = (
    StoredRepresentation(Resource(name, f"{name}_item", SCHEMA, indexes))
    for name, indexes in (("plain", ()), ("indexed", INDEXES))
)


def body_of(texts: dict[str, str]) -> dict[str, Any]:
    """An item with these values in the body of a request."""
    is_json = {name: isinstance(VALUES[name].field, JSON) or name == "size" for name in texts}
    sent = {name: exactjson.loads(text) if is_json[name] else text for name, text in texts.items()}
    return sent | {"lines": [{"clock": sent.pop("lines.clock")}], "days": {"any": sent.pop("days.any")}}


@st.composite
def filters(draw: st.DrawFn) -> tuple[str, Op, str]:
    """A filter of any field by any of its operators that take whole values."""
    name = draw(st.sampled_from(list(VALUES)))
    op = draw(st.sampled_from([op for op in operators_of(PLAIN.collection.field(name)) if op not in {*PARTS, Op.IS}]))
    return name, op, draw(VALUES[name].written)


@pytest.fixture(params=KINDS, scope="module")
def values(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with a collection that has an index on every field, and one that has none."""
    with stores(request, tmp_path_factory.mktemp("values")) as open_with:
        yield open_with(PLAIN.collection, INDEXED.collection)


ITEMS = st.lists(st.fixed_dictionaries({name: each.written for name, each in VALUES.items()}), min_size=2, max_size=2)


@settings(deadline=None, max_examples=12, phases=[Phase.reuse, Phase.generate])  # the message names what fell
@given(items=ITEMS, queries=st.lists(filters(), min_size=15, max_size=20))
def test_filters_compare_values(values: Store, items: list[dict[str, str]], queries: list[tuple[str, Op, str]]) -> None:
    """Whatever the form of the stored value when it was sent, and of that in the filter."""
    for each in (PLAIN, INDEXED):
        values.write(lambda transaction, each=each: replace_all(each, items, transaction))
    for name, op, text in queries:
        meaning = VALUES[name].meaning
        expected = [n for n, item in enumerate(items) if COMPARISONS[op](meaning(item[name]), meaning(text))]
        for each in (PLAIN, INDEXED):
            query = parse(MultiDict([(f"{name}[{op}]", text)]), each.queryable, 9, 9).query
            page = values.page(each.name, query)
            found = [int(exactjson.loads(body)["id"]) for body in page.bodies]
            assert found == expected, (each.name, name, op, text, [item[name] for item in items])


def replace_all(stored: StoredRepresentation, items: list[dict[str, str]], transaction: Transaction) -> None:
    """Store these items in the place of those before."""
    for n, item in enumerate(items):
        record: Record = stored.create(body_of(item), id=str(n), now="2026-01-01T00:00:00.000000Z")
        try:
            transaction.read(stored.name, record.id)
        except RecordNotFound:
            transaction.insert(stored.name, record)
        else:
            transaction.update(stored.name, record)

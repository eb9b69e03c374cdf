"""Filters compare the values of fields, in whatever form these are sent, with an index and without one."""

import operator
from typing import Any

import pytest
from marshmallow import fields

import restkeeper
from restkeeper import Config, Index, ItemSchema, Resource, exactjson
from tests.shop import create_app

NOON, AFTER, NEXT = "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000001Z", "2026-02-01T00:00:00Z"
MOMENTS = [(NOON, "2026-01-31T14:00:00+02:00"), (AFTER,), (NEXT, "2026-01-31T13:00:00-11:00")]
NUMBERS = [("-3", "-3.0"), ("0.1", "1e-1"), ("1000", "1E3")]
VALUES: dict[str, tuple[Any, list[tuple[str, ...]]]] = {  # three values, the least first, each in its forms
    "Time of restkeeper": (restkeeper.Time(required=True), MOMENTS),
    "DateTime": (fields.DateTime(required=True), MOMENTS),
    "AwareDateTime": (fields.AwareDateTime(required=True), MOMENTS),
    "NaiveDateTime": (
        fields.NaiveDateTime(required=True),
        [("1999-12-31T12:00:00", "1999-W52-5T12:00:00"), ("2026-01-31 12:00:00",), ("2026-01-31T12:00:00.000001",)],
    ),
    "Date": (fields.Date(required=True), [("1999-12-31", "19991231"), ("2026-01-31", "2026-W05-6"), ("2026-02-01",)]),
    "Time": (fields.Time(required=True), [("00:00",), ("12:00", "T120000.000000"), ("12:00:00.5", "12:00:00.500000")]),
    "UUID": (fields.UUID(required=True), [("0" * 32,), (f"{'0' * 31}A",), ("8" * 32, f"urn:uuid:{'8' * 32}")]),
    "Whole": (restkeeper.Whole(required=True), [(str(-(2**63)),), ("10", "1e1"), (str(2**63 - 1),)]),
    "Decimal": (fields.Decimal(required=True), NUMBERS),
    "Float": (fields.Float(required=True), [("0.1",), ("0.1000000000000000156",), ("0.3333333333333333",)]),
    "TimeDelta": (fields.TimeDelta(required=True), NUMBERS),
}
OPERATORS = ("eq", "ne", "gt", "ge", "lt", "le")


@pytest.mark.parametrize("indexes", [(), (Index("x"),)], ids=["without", "indexed"])
@pytest.mark.parametrize("name", VALUES)
def test_filters_compare_values(name: str, indexes: tuple[Index, ...]) -> None:
    """The form of the stored value when it was sent makes no difference, and neither does that in the filter."""
    field, values = VALUES[name]
    schema: Any = ItemSchema.from_dict({"x": field}, name="Thing")
    client = create_app(Config(), [Resource("things", "thing", schema, indexes, ids="client")]).test_client()
    is_number = isinstance(field, (fields.Number, fields.TimeDelta))
    for id, forms in zip("abc", values, strict=True):
        sent = {"id": id, "x": exactjson.loads(forms[-1]) if is_number else forms[-1]}
        made = client.post("/things", data=exactjson.dumps(sent), content_type="application/json")
        assert made.status_code == 200, made.text
    for place, form in ((place, form) for place, forms in enumerate(values) for form in forms):
        for op in OPERATORS:
            expected = [id for number, id in enumerate("abc") if getattr(operator, op)(number, place)]
            found = client.get("/things", query_string={f"x[{op.replace('ge', 'gte').replace('le', 'lte')}]": form})
            assert found.status_code == 200 and [each["id"] for each in found.json] == expected, (op, form)

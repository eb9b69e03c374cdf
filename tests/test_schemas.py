"""The fields of schemas, and how the collections of a service are found."""

from collections.abc import Sequence
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from marshmallow import Schema, ValidationError, fields, validate

from restkeeper.resources import find_resources
from restkeeper.schemas.fields import Email, ListOf, Money, Text, Time, Url, Whole
from restkeeper.schemas.prepared import prepared
from tests.shapes import SizeSchema

LONG_HOST = ".".join(["a" * 63] * 4)[:240]
TIMES = {
    "2026-03-01T10:00:00Z": "2026-03-01T10:00:00.000000Z",
    "2026-03-01t10:00:00z": "2026-03-01T10:00:00.000000Z",
    "2026-03-01 10:00:00+02:00": "2026-03-01T08:00:00.000000Z",
    "2026-01-01T00:00:00+00:01": "2025-12-31T23:59:00.000000Z",
    "2026-03-01T10:00:00.1234567-23:59": "2026-03-02T09:59:00.123456Z",
    "0001-01-01T00:00:00Z": "0001-01-01T00:00:00.000000Z",
    "9999-12-31T23:59:59.999999Z": "9999-12-31T23:59:59.999999Z",
}
NO_TIMES = (
    *("", "soon", "2026-03-01", "2026-03-01T10:00Z", "2026-03-01T10:00:00", "2026-W09-7T10:00:00Z"),
    *("2026-03-01T10:00:00+0200", "2026-03-01T10:00:00Z ", "2026-03-01T10:00:00,5Z", "٢026-03-01T10:00:00Z"),
    # In the form of a time, but not in the calendar, or with an impossible year in UTC.
    *("2026-02-29T10:00:00Z", "2026-13-01T10:00:00Z", "2026-03-01T24:00:00Z", "2026-03-01T10:00:00+24:00"),
    *("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"),
)
URLS = ["https://a.example", "HTTP://A", "http://[::1]:65535/a?b=c%20d", "https://a:1/@"]
NO_URLS = (
    *("ftp://a", "//a", "a", "https:", "https:///path", "https://:80/", "https://a:0/", "https://a:65536/"),
    *("https://a:x/", "https://[::1/", "https://user@a/", "https://user:secret@a/", "https://a/#fragment"),
    *("https://a/a b", "https://\u00e4.example/", "https://a/\x7f", *(f"https://a/{each}" for each in '"<>\\^`{|}')),
)
AMOUNTS = {"0": "0", "1E+1": "10", "-0.00": "0", "12.50": "12.5", "1E+2": "100", "9999999999999.99": "9999999999999.99"}
TOO_FINE = [Decimal("0.001"), Decimal("12.505"), Decimal("1." + "0" * 90 + "1")]  # none of them is rounded
BEYOND = [Decimal("-0.01"), Decimal("1E+13"), 10**13, Decimal("1E+999999")]

# Fields with values that they accept as they are, values that they refuse, and the beginning of the message.
LIMITS: list[tuple[fields.Field[Any], Sequence[object], Sequence[object], str]] = [
    (Text(), ["", "x" * 10_000], ["x" * 10_001], "must have at most 10000 characters"),
    (Text(2, 3), ["ab", "abc"], ["", "a", "abcd"], "must have 2 to 3 characters"),
    (Text(1, 3), [], [5, True, ["a"]], "must be a string"),
    (Whole(), [-(2**63), 2**63 - 1], [-(2**63) - 1, 2**63], f"must be from {-(2**63)} to {2**63 - 1}"),
    (Whole(2, 3), [2, 3, Decimal("3.0")], [1, 4], "must be from 2 to 3"),
    (Whole(), [], [Decimal("0.5"), True, "5", 5.0, [5]], "must be a whole number"),
    (Email(), ["a@b.c", f"{'a' * 13}@{LONG_HOST}"], [f"{'a' * 14}@{LONG_HOST}"], "must have 3 to 254 characters"),
    (Email(), [f"{'a' * 64}@b.c"], ["a@b", "a@b.c\n", f"{'a' * 65}@b.c", "@b.c"], "must be an e-mail address"),
    (Url(), ["http://a/" + "x" * 2039], ["http://a/" + "x" * 2040, ""], "must have 1 to 2048 characters"),
    (Url(), URLS, NO_URLS, "must be a URL like"),
    (Time(), list(TIMES.values()), [*NO_TIMES, 5, True], "must be a time like"),
    (Money(), list(map(Decimal, AMOUNTS.values())), TOO_FINE, "must have at most 2 decimals"),
    (Money(), [], BEYOND, "must be from 0 to 9999999999999.99"),
    (Money(), [], [True, "5", 0.5], "must be a number"),
    (ListOf(Text(), 3, low=2), [["a", "b"], ["a", "b", "c"]], [[], ["a"], ["a"] * 4], "must have 2 to 3 items"),
    (ListOf(Text()), [[], ["a"] * 100], [["a"] * 101], "must have at most 100 items"),
    (ListOf(Text()), [], ["ab"], "must be an array"),
]


def messages_of(field: fields.Field[Any], value: object) -> list[str]:
    try:
        field.deserialize(value)
    except ValidationError as error:
        return list(map(str, error.messages))
    return []


def test_each_kind_of_field_has_limits() -> None:
    for field, good, bad, expected in LIMITS:
        assert [each for each in good if field.deserialize(each) != each] == []
        accepted = [each for each in bad if not any(text.startswith(expected) for text in messages_of(field, each))]
        assert accepted == [], type(field).__name__
    assert {sent: Time().deserialize(sent) for sent in TIMES} == TIMES
    assert {sent: str(Money().deserialize(Decimal(sent))) for sent in AMOUNTS} == AMOUNTS
    assert Time(dump_only=True).metadata["maxLength"] == len("2026-01-01T00:00:00.000000Z")
    assert "maxLength" not in Time().metadata


def test_the_length_of_an_array_is_checked_before_its_values() -> None:
    validated: list[object] = []
    inner = Text(validate=[validated.append])
    for bad in ([], ["a"] * 4, ["a"] * 1000):
        assert messages_of(ListOf(inner, 3, low=2), bad) == ["must have 2 to 3 items"]
    assert validated == []


def test_a_collection_of_another_module_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of a package can import it from each other."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "named_here").mkdir()
    (tmp_path / "named_here" / "__init__.py").touch()
    (tmp_path / "named_here" / "products.py").write_text("from tests.shop.products import RESOURCE\n")
    (tmp_path / "named_here" / "both.py").write_text("from tests.shop.products import RESOURCE as PRODUCTS\n")
    (tmp_path / "named_here" / "actions.py").write_text("from tests.shop.products import RESOURCE\n")
    assert [each.name for each in find_resources(import_module("named_here"))] == ["products"]
    (tmp_path / "named_here" / "users.py").write_text("from tests.shop.users import RESOURCE as USERS\n")
    with pytest.raises(ValueError, match=r"^named_here/users\.py: USERS is a collection, and is not served: write "):
        find_resources(import_module("named_here"))


class Words(Schema):
    """Fields of marshmallow, and some words of a service's own."""

    day = fields.Date(required=True)
    number = fields.Integer(required=True, validate=validate.Range(1, 9))
    size = fields.String(required=True, validate=validate.OneOf(["s", "m"]))
    mail = fields.Email(required=True)
    address = fields.Nested(SizeSchema, required=True)
    tags = fields.List(fields.UUID(), required=True, validate=validate.Length(max=1))
    own = fields.Date(error_messages={"invalid": "No day."})
    checked = fields.String(validate=validate.Length(2, error="Too short."))


WRONG = {  # a value, and what is said of it
    "day": ("31.1.2026", "must be a date like 2026-01-31"),
    "number": (10, "must be from 1 to 9"),
    "size": ("l", "must be one of: s, m"),
    "mail": ("x", "must be an e-mail address like name@example.org"),
    "address": (5, {"_schema": ["must be an object"]}),
    "tags": (["x"], {0: ["must be a UUID like 01912d68-783e-7a03-8467-5661c1243ad4"]}),
    "own": ("x", "No day."),
    "checked": ("x", "Too short."),
}


def test_fields_of_marshmallow_say_what_is_right() -> None:
    """In the words of the engine, but for those of the service; the schema itself keeps its own."""
    made = prepared(Words)
    said = {name: said if isinstance(said, dict) else [said] for name, (_, said) in WRONG.items()}
    assert made.validate({name: value for name, (value, _) in WRONG.items()}) == said
    assert made.validate({"size": None})["size"] == ["must not be null"]
    assert {made.validate({})[name][0] for name in WRONG if name not in ("own", "checked")} == {"is required"}
    assert made.validate({"address": {"x": 1}})["address"] == {"x": ["is not a field of this object"]}
    assert Words().validate({"size": "l"}, partial=True) == {"size": ["Must be one of: s, m."]}

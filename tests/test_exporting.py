"""`flask export`: the format, the file's mode, interrupted exports, and formulas."""

import csv
import io
import json
import os
import stat
from collections import Counter
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marshmallow import fields

import restkeeper
from restkeeper import (
    Email,
    IntegerReference,
    ItemSchema,
    JsonObject,
    Lifecycle,
    ListOf,
    Money,
    Reference,
    Resource,
    Status,
    Text,
    Time,
    Url,
    Whole,
    exactjson,
)
from restkeeper.config import Config
from restkeeper.features.transfer.formats import READERS, WRITERS, Columns
from restkeeper.resources.views import StoredView
from restkeeper.web.application import Application
from tests.shapes import PostSchema
from tests.shop import create_app
from tests.test_cli import Run


@pytest.fixture
def app(tmp_path: Path) -> Application:
    made = create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db"))
    made.test_client().post("/products", json={"name": "=HYPERLINK()", "description": "-1", "stock": 1})
    made.test_client().post("/products", json={"name": "\tx", "description": "plain = text", "tags": ["=1"]})
    return made


@pytest.fixture
def run(app: Application) -> Run:
    runner = app.test_cli_runner()
    return lambda *arguments: runner.invoke(args=["export", "products", *map(str, arguments)])


@pytest.mark.needs("keys")
def test_the_suffix_chooses_the_format(run: Run, tmp_path: Path) -> None:
    """The option --format overrides it. A device is not replaced by a file."""
    for name, options, begin in (
        ("a.csv", [], b"id,name,"),
        ("a.JSON", [], b"[\n{"),
        ("a.ndjson", [], b'{"id"'),
        ("a", [], b'{"id"'),
        ("a.csv", ["--format", "json"], b"[\n{"),
    ):
        assert run(tmp_path / name, *options).exit_code == 0
        assert (tmp_path / name).read_bytes().startswith(begin)
    assert run("/dev/null").exit_code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_only_the_owner_can_read_an_export(run: Run, tmp_path: Path) -> None:
    """Also if it replaces a file that others could read, or the target of a link."""
    (tmp_path / "a.csv").write_text("old")
    (tmp_path / "a.csv").chmod(0o644)
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
    run(tmp_path / "link.csv")
    assert stat.S_IMODE((tmp_path / "a.csv").stat().st_mode) == 0o600
    assert (tmp_path / "link.csv").is_symlink() and "HYPERLINK" in (tmp_path / "a.csv").read_text()


@pytest.mark.needs("transfer")
def test_an_interrupted_export_leaves_no_part(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that had the name before still exists."""
    (tmp_path / "a.csv").write_text("old")
    before = set(os.listdir(tmp_path))

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("restkeeper.features.transfer.exporting.os.fsync", fail)
    assert run(tmp_path / "a.csv").exit_code == 1
    assert (tmp_path / "a.csv").read_text() == "old" and set(os.listdir(tmp_path)) == before


def test_a_byte_order_mark_for_spreadsheets(app: Application, run: Run, tmp_path: Path) -> None:
    """Of CSV only. An import ignores it."""
    assert run(tmp_path / "a.csv").exit_code == run(tmp_path / "b.csv", "--bom").exit_code == 0
    assert (tmp_path / "b.csv").read_bytes() == b"\xef\xbb\xbf" + (tmp_path / "a.csv").read_bytes()
    again = app.test_cli_runner().invoke(args=["import", "products", f"{tmp_path}/b.csv"])
    assert again.stdout.startswith("imported 0 products, 2 already there\n"), again.output
    refused = run(tmp_path / "a.json", "--bom")
    assert (refused.exit_code, refused.stderr[:12]) == (2, "Error: --bom") and not (tmp_path / "a.json").exists()


def test_possible_formulas_are_reported(run: Run, tmp_path: Path) -> None:
    """They are counted with their fields, and exported unchanged. Numbers are safe, and JSON has no cells."""
    message = run(tmp_path / "a.csv").stderr
    assert message.startswith("warning: 3 cells begin with = + - @, a tab or CR")
    assert message.endswith("formulas: name (2), description (1)\n")
    assert run(tmp_path / "a.json").stderr == ""
    assert {item["name"] for item in json.loads((tmp_path / "a.json").read_bytes())} == {"=HYPERLINK()", "\tx"}


EMPTY: dict[str, Any] = {"load_default": None, "allow_none": True}
# Each kind of field, and a value of it: as it is in a cell, and one that a cell has as JSON.
PLAIN: dict[str, tuple[fields.Field[Any], Any]] = {
    "text": (Text(**EMPTY), 'a "b", c'),
    "email": (Email(**EMPTY), "a@example.org"),
    "url": (Url(**EMPTY), "https://example.org/?a=1,2"),
    "time": (Time(**EMPTY), "2026-01-31T12:00:00.000000Z"),
    "status": (Status(Lifecycle("on", {"on": ("off",), "off": ()})), "on"),
    "string": (fields.String(**EMPTY), "2026"),
    "list_as_text": (Text(**EMPTY), "[1]"),
    "reference": (Reference("kinds", **EMPTY), "lamp.1"),
    "uuid": (fields.UUID(**EMPTY), "6b3c0f0e-0000-4000-8000-000000000000"),
    "day": (fields.Date(**EMPTY), "2026-01-31"),
    "moment": (fields.DateTime(**EMPTY), "2026-01-31T12:00:00.000000Z"),
    "naive": (fields.NaiveDateTime(**EMPTY), "2026-01-31T12:00:00"),
    "clock": (fields.Time(**EMPTY), "12:00:00"),
    "address": (fields.IP(**EMPTY), "::1"),
    "interface": (fields.IPInterface(**EMPTY), "::1/128"),
    "raw": (fields.Raw(**EMPTY), "plain, text"),
}
OTHERS: dict[str, tuple[fields.Field[Any], Any]] = {
    "null_as_text": (Text(**EMPTY), "null"),
    "json_as_text": (Text(**EMPTY), '"a"'),
    "empty": (Text(**EMPTY), ""),
    "needed": (Text(required=True), ""),
    "preset": (Text(load_default="x", allow_none=True), None),
    "free": (Money(load_default=0, allow_none=True), None),
    "whole": (Whole(**EMPTY), -5),
    "money": (Money(**EMPTY), Decimal("1.5")),
    "items": (ListOf(Text(), **EMPTY), ["1", ""]),
    "object": (JsonObject(**EMPTY), {"a": None}),
    "integer_reference": (IntegerReference("numbers", **EMPTY), 3),
    "span": (fields.TimeDelta(**EMPTY), Decimal("60.5")),
    "choice": (fields.Enum(Enum("Choice", ["one", "null"]), **EMPTY), "null"),
    "level": (fields.Enum(Enum("Level", {"low": 1, "high": 2}), by_value=True, **EMPTY), 2),
    "flag": (fields.Boolean(**EMPTY), False),
    "integer": (fields.Integer(**EMPTY), 0),
    "decimal": (fields.Decimal(places=2, **EMPTY), Decimal("1.50")),
    "float": (fields.Float(**EMPTY), Decimal("-0.5")),
    "listed": (fields.List(fields.Date(), **EMPTY), ["2026-01-31"]),
    "pair": (fields.Tuple((fields.String(), fields.Integer()), **EMPTY), ["null", 1]),
    "nested": (fields.Nested({"day": fields.Date()}, **EMPTY), {"day": "2026-01-31"}),
    "mapping": (fields.Dict(**EMPTY), {"n": Decimal("1.1")}),
    "set_by_actions": (Text(dump_only=True, dump_default="", allow_none=True), ""),
    "computed": (fields.Function(lambda item: item["needed"] or None, dump_only=True), None),
}
KINDS = {name: kind for name, (kind, _) in (PLAIN | OTHERS).items()}
NOW, LATER, LAST = (f"2026-01-0{day}T00:00:00.000000Z" for day in (1, 2, 3))


def kinds_of(base: type[ItemSchema], **options: fields.Field[Any]) -> StoredView:
    """Items with a field of each kind."""
    schema = cast(type[ItemSchema], base.from_dict({**KINDS, **options}, name="KindSchema"))
    return StoredView(Resource("kinds", "kind", schema))


CLOSED = kinds_of(ItemSchema)
OPEN = kinds_of(PostSchema, vague=fields.Raw(allow_none=True))  # which an item can be without

# Texts that a reader of cells could take for something else.
TEXTS = st.sampled_from(
    ["", "null", "Null", " null", '""', '"a"', ' "a" ', '"a', '"', '"\\u0041"', "[1]", "{}", "12", "1e999", "=1"]
    + ["\r", "a\r\nb", "\n", " ", ",", "\ufeff", "[" * 150 + "]" * 150]
) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
NUMBERS = st.integers(-(2**63) + 1, 2**63 - 1) | st.sampled_from([Decimal("1.10"), Decimal("1E-7"), Decimal("-0.0")])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
VARIED: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("text", "string", "preset", "needed"), TEXTS),
    "raw": JSON,
    "vague": JSON,
    "object": st.dictionaries(TEXTS, JSON, max_size=3),
    "items": st.lists(TEXTS, max_size=3),
    "pair": st.tuples(TEXTS, st.integers(0, 9)).map(list),
    "money": st.decimals(0, 10**13 - 1, places=2),
    "free": st.decimals(0, 9, places=2),
    "float": st.floats(allow_nan=False, allow_infinity=False).map(repr).map(Decimal),
    "status": st.sampled_from(["on", "off"]),
}


def values(name: str) -> st.SearchStrategy[Any]:
    """What a caller can send for a field."""
    field, value = (PLAIN | OTHERS).get(name, (fields.Raw(allow_none=True), None))
    found = VARIED.get(name, st.just(value))
    return st.none() | found if field.allow_none else found


def sent(*more: str) -> st.SearchStrategy[dict[str, Any]]:
    """A new item: of a field that can be null, null, a value, or nothing."""
    names = [*(name for name, field in KINDS.items() if not (field.dump_only or field.required)), *more]
    return st.fixed_dictionaries({"needed": TEXTS}, optional={name: values(name) for name in names})


@pytest.mark.parametrize(
    ("shown", "file_format", "sent"),
    [
        (CLOSED, "csv", sent()),
        (CLOSED, "ndjson", sent()),
        (OPEN, "ndjson", sent("vague")),
        (OPEN, "json", sent("vague", "x")),
    ],
)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_an_import_of_an_export_leaves_each_item_as_it_was(
    shown: StoredView, file_format: str, sent: st.SearchStrategy[dict[str, Any]], data: st.DataObject
) -> None:
    """Null, an empty text, and a field that is absent; texts that look like JSON; all kinds of fields."""
    numbers = range(data.draw(st.integers(1, 3)))
    new = [shown.new_record(data.draw(sent), id=f"k{number}", now=NOW) for number in numbers]
    records = [shown.merge(each, {"needed": "changed"}, now=LATER) for each in new]
    columns = Columns.of(shown)
    written = b"".join(WRITERS[file_format]([record.body for record in records], columns, Counter()))
    entries = READERS[file_format](io.BytesIO(written), columns, Config())
    assert [shown.restore(read(), id="other", now=LAST) for _, read in entries] == records


def test_csv_has_texts_as_they_are(tmp_path: Path) -> None:
    """Of every kind of field, without JSON's quotes unless they would be read as another value; all are read back."""
    resources = [CLOSED.resource, Resource("numbers", "number", ItemSchema, ids="client-integer")]
    apps = [restkeeper.create_app(Config(database_url=f"sqlite:///{tmp_path}/{name}.db"), resources) for name in "ab"]
    client = apps[0].test_client()
    line = {"id": "lamp.1", **{name: value for name, (_, value) in (PLAIN | OTHERS).items()}}
    (tmp_path / "first.ndjson").write_bytes(exactjson.dumps(line))
    (tmp_path / "numbers.csv").write_text("id\n3\n")
    runs = [app.test_cli_runner().invoke for app in apps]
    for run in runs:
        assert run(args=["import", "numbers", f"{tmp_path}/numbers.csv"]).exit_code == 0
    first = runs[0](args=["import", "kinds", f"{tmp_path}/first.ndjson"])
    assert first.exit_code == 0, first.output
    for raw in ("5", "", "null", '"', '"x"', " 1 ", "[" * 150 + "]" * 150, ["a"], {"b": "c"}, True):
        assert client.post("/kinds", json={"raw": raw, "string": "", "needed": ""}).status_code == 200
    file = str(tmp_path / "a.csv")
    assert runs[0](args=["export", "kinds", file]).exit_code == 0
    with open(file, newline="", encoding="utf-8") as source:
        row = next(each for each in csv.DictReader(source) if each["id"] == "lamp.1")
    assert [row[name] for name in PLAIN] == [value for _, value in PLAIN.values()]
    assert [row[name] for name in OTHERS] == [exactjson.dumps(value).decode() for _, value in OTHERS.values()]
    for run, message in zip(runs, ("imported 0 kinds, 11 already there\n", "imported 11 kinds\n"), strict=True):
        done = run(args=["import", "kinds", file])
        assert done.stdout.startswith(message), done.output
    assert apps[1].test_client().get("/kinds").data == client.get("/kinds").data

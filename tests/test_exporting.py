"""`flask export`: the format, the file's mode, interrupted exports, and formulas."""

import csv
import json
import os
import stat
from enum import Enum
from pathlib import Path
from typing import Any, cast

import pytest
from marshmallow import fields

import restkeeper
from restkeeper import Email, ItemSchema, JsonObject, Lifecycle, ListOf, Money, Resource, Status, Text, Time, Url, Whole
from restkeeper.config import Config
from restkeeper.web.application import Application
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


def test_an_interrupted_export_leaves_no_part(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that had the name before still exists."""
    (tmp_path / "a.csv").write_text("old")
    before = set(os.listdir(tmp_path))

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("restkeeper.cli.exporting.os.fsync", fail)
    assert run(tmp_path / "a.csv").exit_code == 1
    assert (tmp_path / "a.csv").read_text() == "old" and set(os.listdir(tmp_path)) == before


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
    "uuid": (fields.UUID(**EMPTY), "6b3c0f0e-0000-4000-8000-000000000000"),
    "day": (fields.Date(**EMPTY), "2026-01-31"),
    "moment": (fields.DateTime(**EMPTY), "2026-01-31T12:00:00.000000Z"),
    "naive": (fields.NaiveDateTime(**EMPTY), "2026-01-31T12:00:00"),
    "clock": (fields.Time(**EMPTY), "12:00:00"),
    "address": (fields.IP(**EMPTY), "::1"),
    "raw": (fields.Raw(**EMPTY), "plain, text"),
}
OTHERS: dict[str, tuple[fields.Field[Any], Any]] = {
    "whole": (Whole(**EMPTY), -5),
    "money": (Money(**EMPTY), 1.5),
    "items": (ListOf(Text(), **EMPTY), ["1", ""]),
    "object": (JsonObject(**EMPTY), {"a": None}),
    "span": (fields.TimeDelta(**EMPTY), 60.0),
    "choice": (fields.Enum(Enum("Choice", ["one", "null"]), **EMPTY), "null"),
    "flag": (fields.Boolean(**EMPTY), False),
    "integer": (fields.Integer(**EMPTY), 0),
    "decimal": (fields.Decimal(places=2, **EMPTY), 1.5),
    "float": (fields.Float(**EMPTY), -0.5),
    "listed": (fields.List(fields.Date(), **EMPTY), ["2026-01-31"]),
    "nested": (fields.Nested({"day": fields.Date()}, **EMPTY), {"day": "2026-01-31"}),
    "mapping": (fields.Dict(**EMPTY), {"n": 1.1}),
}


def test_csv_has_texts_as_they_are(tmp_path: Path) -> None:
    """Of every kind of field, without JSON's quotes unless they would be read as another value; all are read back."""
    kinds_of_fields = {name: kind for name, (kind, _) in (PLAIN | OTHERS).items()}
    schema = cast(type[ItemSchema], ItemSchema.from_dict(kinds_of_fields, name="KindSchema"))
    kinds = Resource("kinds", "kind", schema)
    apps = [restkeeper.create_app(Config(database_url=f"sqlite:///{tmp_path}/{name}.db"), [kinds]) for name in "ab"]
    client = apps[0].test_client()
    sent = client.post("/kinds", json={name: value for name, (_, value) in (PLAIN | OTHERS).items()})
    assert sent.status_code == 200, sent.json
    for raw in ("5", "", "null", '"', '"x"', " 1 ", "[" * 150 + "]" * 150, ["a"], {"b": "c"}, True):
        assert client.post("/kinds", json={"raw": raw, "string": "x"}).status_code == 200
    file = str(tmp_path / "a.csv")
    assert apps[0].test_cli_runner().invoke(args=["export", "kinds", file]).exit_code == 0
    with open(file, newline="", encoding="utf-8") as source:
        row = next(csv.DictReader(source))
    assert [row[name] for name in PLAIN] == [value for _, value in PLAIN.values()]
    done = apps[1].test_cli_runner().invoke(args=["import", "kinds", file])
    assert done.stdout.startswith("imported 11 kinds\n"), done.output
    assert apps[1].test_client().get("/kinds").data == client.get("/kinds").data

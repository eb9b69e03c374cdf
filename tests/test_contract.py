"""The contract of this repository's service with its clients, and the commands that check and accept contracts."""

import json
import subprocess
import sys
from contextlib import chdir
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from marshmallow import fields as marshmallow_fields

import app
from restkeeper import Index, ItemSchema, Lifecycle, Resource, Status, Text, Whole, create_app
from restkeeper.__main__ import main
from restkeeper.config import Config
from restkeeper.contract.check import compare
from restkeeper.schemas.fields import Time
from tests.live import ROOT
from tests.waiting import SECONDS

DAY = date(2026, 11, 22)


def run(folder: Path, *arguments: str, **environ: str) -> Result:
    """Run `restkeeper contract` in the folder of a service, with only these settings."""
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setitem(sys.modules, "app", app)  # so that other tests import our module again
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(sys, "dont_write_bytecode", True)  # a file that changes within a second would not be read again
        return CliRunner(env=environ).invoke(main, ["contract", *arguments])


@pytest.mark.top
def test_no_client_breaks() -> None:
    """Everything that the service at the top serves is accepted in contract/, and nothing of that is broken."""
    command = [sys.executable, "-m", "restkeeper", "contract", "check", "--strict"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# Without the features that no test is about: documents are compared more quickly.
SERVICE = """
from restkeeper import create_app as create, ItemSchema, Resource, Text


class NoteSchema(ItemSchema):
    \"\"\"A note.\"\"\"

    title = Text(1, 50, required=True)
    text = Text(0, 500, load_default="")


def create_app(config=None):
    return create(config, [Resource("notes", "note", NoteSchema)], features={"openapi", "versions", "dialects"})
"""
WITH_KEYS = SERVICE.replace('"dialects"', '"dialects", "keys"')


@pytest.fixture
def service(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(SERVICE)
    done = run(tmp_path, "accept")
    assert (done.exit_code, done.stdout) == (0, "v1: accepted the first documents\n"), done.stderr
    return tmp_path


def edit(service: Path, *changes: tuple[str, str]) -> None:
    text = (service / "app.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (service / "app.py").write_text(text)


def accepted(service: Path) -> Any:
    return json.loads((service / "contract" / "v1.json").read_text())


def test_accept_writes_the_same_document_whatever_the_environment_has(service: Path) -> None:
    """Neither settings nor the time change it, and no store is created."""
    first = (service / "contract" / "v1.json").read_bytes()
    environ = {"AUTH": "open", "PAGE_LIMIT_MAX": "50", "DATABASE_URL": "sqlite:///nowhere/a.db", "RATE_LIMIT": "no"}
    assert run(service, "accept", **environ).exit_code == 0
    assert (service / "contract" / "v1.json").read_bytes() == first
    assert sorted(each.name for each in service.iterdir()) == ["app.py", "contract"]


def test_a_compatible_change_passes_and_is_accepted(service: Path) -> None:
    """A new optional field and a new collection break nobody; check --strict wants them accepted."""
    notes = '[Resource("notes", "note", NoteSchema)]'
    edit(service, ("    title =", '    topic = Text(0, 50, load_default="")\n    title ='))
    edit(service, (notes, f'{notes[:-1]}, Resource("memos", "memo", NoteSchema)]'))
    done = run(service, "check")
    assert done.exit_code == 0, done.stdout
    assert done.stdout.startswith("v1: no client breaks; ") and "not accepted yet" in done.stdout
    strict = run(service, "check", "--strict")
    assert strict.exit_code == 1 and strict.stdout.count("field topic of Note: added") == 1
    assert "compatible: v1: collection memos: added\n" in strict.stdout
    assert run(service, "accept").stdout.startswith(strict.stdout)
    assert run(service, "check", "--strict").stdout == "v1: no client breaks\n"


class LampSchema(ItemSchema):
    name = Text(1, 50, required=True)
    email = Text(0, 50, load_default=None, allow_none=True)
    status = Status(Lifecycle("a", {"a": ("b", "c"), "b": ("c",), "c": ()}))


INDEXES = (Index("email", unique=True, fold=True), Index("name", unique=True), Index("name"))


def served(fields: Any = None, **declared: Any) -> Any:
    """The document of a service with a collection, in which some fields are other ones, or gone if they are None."""
    own = {**LampSchema._declared_fields, **(fields or {})}
    schema = ItemSchema.from_dict({name: field for name, field in own.items() if field}, name="LampSchema")
    lamps = Resource("lamps", "lamp", schema, **{"indexes": INDEXES, "search": ("name", "email"), **declared})
    return create_app(Config(), (lamps,), features={"openapi", "versions"}).test_client().get("/openapi.json").json


def cause(before: Any, after: Any) -> str:
    """What the only change is of, and how it changes."""
    (found,) = compare("v1", before, after, today=DAY, window=180)
    return f"{found.change.subject}: {found.change.row} {found.change.how}"


def test_a_field_or_a_state_that_goes_is_one_cause() -> None:
    """It ends its search and its transitions, too: that is not told again."""
    before = served()
    gone = served({"email": None}, indexes=INDEXES[1:], search=("name",))
    other_kind = {"email": marshmallow_fields.Boolean(load_default=False)}
    other = served(other_kind, indexes=(Index("email", unique=True), *INDEXES[1:]))  # it has other filters, too
    for after in (gone, other):
        assert cause(before, after).startswith("field email of Lamp: ")
    moves = {"status": Status(Lifecycle("a", {"a": ("b",), "b": ()}))}
    assert cause(before, served(moves)) == "field status of LampInput: enum fewer"


def test_a_default_that_is_made_anew_is_in_no_document() -> None:
    """A date, a time, or a random value."""
    number = count()
    made = {
        "at": Whole(0, 2**31, load_default=lambda: next(number)),
        "day": marshmallow_fields.Date(load_default=date.today),
        "time": Time(load_default=lambda: "2026-01-31T10:00:00Z"),
    }
    properties = served(made)["components"]["schemas"]["LampInput"]["properties"]
    assert all("default" not in properties[name] for name in made)


REMOVED = ('    text = Text(0, 500, load_default="")\n', "")


def test_a_removed_field_is_explained(service: Path) -> None:
    """The finding has version, path and field, whom it breaks, and the declaration that is right; accept refuses it."""
    edit(service, REMOVED)
    done = run(service, "check", "--today", "2026-11-22")
    assert done.exit_code == 1
    assert "breaking: v1: field text of Note: removed, and it was not deprecated with a sunset\n" in done.stdout
    assert "    in DELETE /api/v1/notes/{id}, response 200 application/json\n" in done.stdout
    whom = "clients that read it; clients that send it, whose requests are refused or mean something else"
    assert f"    breaks: {whom}\n" in done.stdout and "    also field text of NoteInput\n" in done.stdout
    assert done.stdout.count("instead: ") == 1 and done.stderr == "Error: 1 change would break clients\n"
    how = "Deprecation(version='v1', field='notes.text', since=date(2026, 11, 22), sunset=date(2027, 5, 21))"
    assert how in done.stdout
    before = accepted(service)
    assert run(service, "accept").exit_code == 1
    assert accepted(service) == before


def test_a_new_version(service: Path) -> None:
    declared = 'Versions(Version("v1"), Version("v2"), unversioned="v1")'
    edit(service, ("create,", "create, Version, Versions,"), ("NoteSchema)]", f"NoteSchema)], versions={declared}"))
    done = run(service, "check")
    assert done.exit_code == 1
    assert done.stderr == "Error: contract/v2.json does not exist; `restkeeper contract accept` writes it\n"
    assert "compatible: v2: version v2: added\n" in run(service, "accept").stdout
    assert sorted(each.name for each in (service / "contract").iterdir()) == ["v1.json", "v2.json"]
    edit(service, (', Version("v2")', ""))
    assert "v2: version v2: removed, and it was not deprecated" in run(service, "check").stdout


def test_an_emergency_is_accepted_with_its_reason(service: Path) -> None:
    """The document has the reason, the day and the changes, also after later accepts."""
    shorter = "title = Text(1, 49"
    edit(service, REMOVED, ("title = Text(1, 50", shorter))
    assert run(service, "accept", "--force", "It leaked secrets.", "--today", "2026-11-22").exit_code == 0
    edit(service, ("    title =", '    topic = Text(0, 50, load_default="")\n    title ='))
    assert run(service, "accept").exit_code == 0
    (reason,) = accepted(service)["info"]["x-accepted"]
    assert (reason["date"], reason["reason"]) == ("2026-11-22", "It leaked secrets.")
    assert any("field text of Note: removed" in each for each in reason["changes"])
    assert any("maxLength changed from 50 to 49" in each for each in reason["changes"])


def test_a_retired_version_may_go(service: Path) -> None:
    document = accepted(service)
    document["info"]["x-version"] = {"name": "v9", "sunset": "2027-06-01"}
    (service / "contract" / "v9.json").write_text(json.dumps(document))
    early = run(service, "check", "--today", "2027-05-31")
    assert early.exit_code == 1
    assert "v9: version v9: removed 1 day before its sunset, 2027-06-01" in early.stdout
    assert "instead: keep it until 2027-06-01" in early.stdout
    assert run(service, "accept", "--today", "2027-06-01").exit_code == 0
    assert not (service / "contract" / "v9.json").exists()
    (service / "contract" / "notes.json").write_text("{}")
    assert run(service, "check").exit_code == 0


def test_a_damaged_document_is_one_line(service: Path) -> None:
    reference = '{"openapi": "3.1.0", "paths": {"/notes": {"post": {"requestBody": {"$ref": "#/b"}}}}}'
    for text, message in (
        ("{", "is not JSON"),
        ("[]", "is no OpenAPI document"),
        (reference, "#/b is a reference to nothing"),
        ('{"openapi": "3.1.0", "paths": []}', "is no OpenAPI document that can be compared"),
        ('{"openapi": "3.1.0", "info": null}', "is no OpenAPI document that can be compared"),
        ('{"openapi": ' * 100_000, "is not JSON"),
    ):
        (service / "contract" / "v1.json").write_text(text)
        done = run(service, "check")
        assert done.exit_code == 2 and done.stderr.count("\n") == 1, done.stderr
        assert message in done.stderr and "contract/v1.json" in done.stderr


def test_a_service_that_cannot_be_created_and_one_without_keys(tmp_path: Path) -> None:
    """The error is one line. One with keys refuses its configuration: no document without credentials is accepted."""
    refusal = '    if config.auth == "required":\n        raise ConfigError("not here")\n    return create('
    refuses = WITH_KEYS.replace("    return create(", refusal).replace("import create", "import ConfigError, create")
    for text, message in (
        (refuses, "Error: not here"),
        (SERVICE.replace('"dialects"', '"nothing"'), "there is no 'nothing'"),
        (WITH_KEYS.replace("(config=None)", "()").replace("(config,", "(None,"), "create_app(config)"),
    ):
        (tmp_path / "app.py").write_text(text)
        done = run(tmp_path, "accept")
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1) and message in done.stderr, done.stderr
        assert not (tmp_path / "contract").exists()
    (tmp_path / "app.py").write_text(SERVICE)
    assert run(tmp_path, "accept").exit_code == 0
    assert accepted(tmp_path)["security"] == [{}]


SPLIT = """
from restkeeper import Convert, Text, Version, Versions, Whole

UPGRADES = {2: [Convert({"text": Text(0, 500, load_default="")}, ["text"], up=len, down=str)]}
"""


def test_a_field_that_gets_other_values_ends_its_filters_first(service: Path) -> None:
    """The check says which declaration ends the field."""
    versions = 'versions=Versions(Version("v1", revisions={"notes": 1}), Version("v2"), unversioned="v1")'
    (service / "app.py").write_text(SPLIT + (service / "app.py").read_text())
    edit(service, ('text = Text(0, 500, load_default="")', "text = Whole(0, 500, load_default=0)"))
    edit(service, ("NoteSchema)]", f"NoteSchema, upgrades=UPGRADES)], {versions}"))
    done = run(service, "accept", "--today", "2026-11-22")
    remedy = "Deprecation(version='v1', field='notes.text', since=date(2026, 11, 22), sunset=date(2027, 5, 21))"
    assert done.exit_code == 1 and done.stdout.count("instead: ") == done.stdout.count(remedy) == 1, done.stdout

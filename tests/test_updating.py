"""`restkeeper import --update`: an edited export changes the items; `--dry-run` shows how."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from restkeeper import Remove, Resource, Text
from restkeeper.config import Config
from restkeeper.features.transfer import importing
from restkeeper.web.application import Application
from tests.programs import two_versions
from tests.shapes import BRANDS, PEOPLE
from tests.shop import create_app
from tests.shop.products import ProductSchema
from tests.shop.shapes import SETTINGS
from tests.test_cli import Run, first_line, lines


@pytest.fixture
def app(tmp_path: Path) -> Application:
    return create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db"))


@pytest.fixture
def run(app: Application) -> Run:
    runner = app.test_cli_runner()
    return lambda *arguments: runner.invoke(args=["import", "--update", "products", *map(str, arguments)])


def items(app: Application) -> dict[str, Any]:
    """The products by their names."""
    return {item["name"]: item for item in app.test_client().get("/products?limit=100").json}


def events(app: Application) -> int:
    return len(app.test_client().get("/api/v1/events").json)


def exported(app: Application, file: Path, **edits: dict[str, str]) -> Path:
    """An export in CSV with other cells, by the names of products and fields."""
    assert app.test_cli_runner().invoke(args=["export", "products", str(file)]).exit_code == 0
    with file.open(newline="", encoding="utf-8") as source:
        rows = [*csv.DictReader(source)]
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, rows[0].keys(), delimiter=";")
        writer.writeheader()
        writer.writerows(row | edits.get(row["name"], {}) for row in rows)
    return file


def create(app: Application, *sent: dict[str, Any]) -> None:
    for each in sent:
        assert app.test_client().post("/products", json=each).status_code == 200


@pytest.mark.needs("events")
def test_an_edited_export_changes_the_items(app: Application, run: Run, tmp_path: Path) -> None:
    """Those that differ, with an event each: an empty cell leaves the field, null is null; once, also if repeated."""
    create(app, *({"name": name, "sku": name, "description": name} for name in "abc"))
    before, count = items(app), events(app)
    file = exported(
        app,
        tmp_path / "a.csv",
        a={"stock": "7", "description": "", "created_at": "2020-01-01T00:00:00Z", "updated_at": "?"},
        b={"sku": "null", "tags": '["x"]'},
    )
    assert first_line(run(file)) == "imported 0 products, updated 2, 1 already there"
    after = items(app)
    moved = {"version": 2}
    for name, changed in (("a", {"stock": 7, **moved}), ("b", {"sku": None, "tags": ["x"], **moved}), ("c", {})):
        assert after[name] == {**before[name], **changed, "updated_at": after[name]["updated_at"]}
    assert (after["a"]["updated_at"] > before["a"]["updated_at"], after["c"]) == (True, before["c"])
    assert events(app) == count + 2
    assert first_line(run(file)) == "imported 0 products, 3 already there"
    assert (items(app), events(app)) == (after, count + 2)


def test_a_stale_line_is_refused(app: Application, run: Run, tmp_path: Path) -> None:
    """With its number; a change is not undone. With --skip-bad the others follow."""
    create(app, {"name": "a"}, {"name": "b"}, {"name": "c", "status": "draft"})
    file = exported(app, tmp_path / "a.csv", a={"stock": "1"}, b={"stock": "1"}, c={"stock": "1"})
    client, before = app.test_client(), items(app)
    client.patch(f"/products/{before['b']['id']}", json={"price": 2})
    client.patch(f"/products/{before['c']['id']}", json={"status": "active"})  # from which no move leads back
    result = run(file)
    refused = ["the item has changed since it was read: its version is 2 now"] * 2
    assert result.stderr.splitlines() == [
        *(f"line {line}: {text}" for line, text in zip((3, 4), refused, strict=True)),
        "Error: nothing was imported: 2 of 3 are bad",
    ]
    assert (result.exit_code, items(app)["a"]) == (1, before["a"])
    result = run("--skip-bad", file)
    assert (result.exit_code, first_line(result)) == (0, "imported 0 products, updated 1, skipped 2")
    assert [(each["stock"], each["version"]) for _, each in sorted(items(app).items())] == [(1, 2), (0, 2), (0, 2)]


def test_what_is_left_out_stays(app: Application, run: Run, tmp_path: Path) -> None:
    """Columns and members; an object is replaced as a whole. Without a version the line changes any."""
    create(app, {"name": "a", "stock": 3, "attributes": {"x": 1, "y": {"z": 2}}})
    before = items(app)["a"]
    assert first_line(run(lines(tmp_path / "a.csv", "stock\tid", f"4\t{before['id']}"))).endswith("updated 1")
    line = {"id": before["id"], "attributes": {"y": {}}, "description": None}
    assert first_line(run(lines(tmp_path / "a.ndjson", line))).endswith("updated 1")
    after = items(app)["a"]
    assert after == {**before, **line, "stock": 4, "version": 3, "updated_at": after["updated_at"]}


def test_faults_of_changes(app: Application, run: Run, tmp_path: Path) -> None:
    """They are those of a request: of values, of unknown fields, and of states."""
    create(app, {"name": "a"}, {"name": "b", "sku": "b"})
    ids = [item["id"] for _, item in sorted(items(app).items())]
    wrong = [{"stock": -1}, {"name": None}, {"colour": 1}, {"status": "draft"}, {"version": "1", "stock": 1}]
    result = run(lines(tmp_path / "a.ndjson", *({"id": ids[0], **each} for each in wrong), {"id": "\ud800"}))
    assert result.stderr.splitlines()[:-1] == [
        "line 1: #/stock: must be from 0 to 9007199254740991",
        "line 2: #/name: must not be null",
        "line 3: #/colour: is not a field of this collection",
        "line 4: status cannot go from active to draft; from active it can go to archived",
        "line 5: #/version: is read-only; it is 1",
        "line 6: #/id: must be 1 to 64 of A-Z a-z 0-9 . _ ~ -; #/name: is required",
    ]
    result = run("--skip-bad", lines(tmp_path / "a.ndjson", {"id": ids[0], "sku": "b"}, {"id": ids[1], "stock": 1}))
    assert result.stderr == "line 1: #/sku: is taken by another item\n"
    assert first_line(result) == "imported 0 products, updated 1, skipped 1"


def test_lines_of_no_item(app: Application, run: Run, tmp_path: Path) -> None:
    """One without a version adds it, one with a version is refused: its item was deleted."""
    create(app, {"name": "a"}, {"name": "b"})
    file = exported(app, tmp_path / "a.csv", b={"stock": "1"})
    app.test_client().delete(f"/products/{items(app)['a']['id']}")
    result = run("--skip-bad", file)
    assert result.stderr == "line 2: #/version: there is no such item (any more); a line without a version adds it\n"
    assert first_line(result) == "imported 0 products, updated 1, skipped 1"
    file = lines(tmp_path / "a.ndjson", {"name": "new"}, {"name": "given", "id": "x"})
    assert first_line(run(file)) == "imported 2 products"
    app.test_client().patch(f"/products/{items(app)['new']['id']}", json={"stock": 1})
    assert first_line(run(file)) == "imported 0 products, 2 already there"
    assert (items(app)["new"]["stock"], {*items(app)}) == (1, {"b", "new", "given"})


def test_an_item_that_changes_after_its_line_was_read(
    app: Application, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a caller, or by an earlier line: the change is not undone."""
    create(app, {"name": "a"}, {"name": "b"}, {"name": "c"})
    ids = [item["id"] for _, item in sorted(items(app).items())]
    insert = importing._insert

    def insert_later(*arguments: Any) -> None:
        app.test_client().patch(f"/products/{ids[0]}", json={"stock": 9})
        insert(*arguments)

    monkeypatch.setattr(importing, "_insert", insert_later)
    changes = [{"id": id, "stock": stock} for stock, id in enumerate([*ids, ids[1]], start=1)]
    result = run("--skip-bad", lines(tmp_path / "a.ndjson", *changes))
    text = "#/id: the item has changed since the line was read: by a caller, or another line"
    assert result.stderr.splitlines() == [f"line 1: {text}", f"line 4: {text}"]
    assert first_line(result) == "imported 0 products, updated 2, skipped 2"
    assert [each["stock"] for _, each in sorted(items(app).items())] == [9, 2, 3]


@pytest.mark.needs("events")
def test_a_dry_run_counts_what_would_change(app: Application, run: Run, tmp_path: Path) -> None:
    """It changes nothing, and names the first ten lines that would fail."""
    create(app, {"name": "a"}, {"name": "b"}, {"name": "c"})
    file = exported(app, tmp_path / "a.csv", a={"stock": "7"}, b={"description": "x"})
    with file.open("a") as out:
        out.write(";new" + ";" * 11 + "\r\n")
    before, count = items(app), events(app)
    assert run("--dry-run", file).stdout == "would import 1 products, update 2, 1 already there\n"
    with file.open("a") as out:
        out.write(";" * 11 + "1\r\n" + ("x;" * 12 + "x\r\n") * 11)
    result = run("--dry-run", file)
    assert result.exit_code == 1 and result.stderr.splitlines()[-2:] == [
        "and 2 more",
        "Error: nothing was imported: 12 of 16 are bad",
    ]
    assert [text.partition(":")[0] for text in result.stderr.splitlines()[:-2]] == [f"line {n}" for n in range(6, 16)]
    assert (items(app), events(app)) == (before, count)


@pytest.mark.needs("versions")
def test_an_export_of_an_older_version(tmp_path: Path) -> None:
    """It changes the items in that form; what it does not show stays."""
    gone = Remove("colour", Text(load_default=""))
    resource = Resource("products", "product", ProductSchema, upgrades={2: [gone]})
    config = Config(database_url=f"sqlite:///{tmp_path}/a.db")
    app = create_app(config, [resource], versions=two_versions("products"))
    client, run, file = app.test_client(), app.test_cli_runner().invoke, tmp_path / "a.ndjson"
    path = client.post("/api/v1/products", json={"name": "a", "colour": "red"}).json["id"]
    assert run(args=["export", "products", str(file), "--version", "v1"]).exit_code == 0
    lines(file, {**json.loads(file.read_text()), "colour": "blue"})
    for text in ("updated 1", "1 already there"):
        result = run(args=["import", "--update", "--version", "v1", "products", str(file)])
        assert first_line(result) == f"imported 0 products, {text}", result.output
    item = client.get(f"/api/v1/products/{path}").json
    assert (item["colour"], item["name"], item["version"]) == ("blue", "a", 2)


class TestOtherCollections:
    """References, integers and singletons."""

    @pytest.fixture
    def app(self, tmp_path: Path) -> Application:
        return create_app(Config(database_url=f"sqlite:///{tmp_path}/a.db"), [PEOPLE, BRANDS, SETTINGS])

    @pytest.fixture
    def run(self, app: Application, tmp_path: Path) -> Callable[..., Result]:
        def run(name: str, *found: Any) -> Result:
            file = lines(tmp_path / "a.ndjson", *found)
            return app.test_cli_runner().invoke(args=["import", "--update", "--skip-bad", name, str(file)])

        return run

    def test_changes_refer_to_later_lines(self, app: Application, run: Callable[..., Result]) -> None:
        """To new items, which refer to them; what refers to nothing is bad, and so is a value that another has."""
        run("people", *({"id": id, "name": id} for id in "abd"), {"id": "c", "name": "c", "email": "c@x.org"})
        result = run(
            "people",
            {"id": "a", "manager": "new", "version": 1},
            {"id": "b", "manager": "nobody"},
            {"id": "d", "manager": "new", "email": "c@x.org"},
            {"id": "a", "manager": "new", "name": "second"},
            {"id": "new", "name": "new", "manager": "a"},
        )
        assert result.stderr.splitlines() == [
            "line 2: manager: there is no item 'nobody' in people",
            "line 3: #/email: is taken by another item",
            "line 4: #/id: the item has changed since the line was read: by a caller, or another line",
        ]
        assert first_line(result) == "imported 1 people, updated 1, skipped 3"
        found = {item["id"]: (item["manager"], item["version"]) for item in app.test_client().get("/people").json}
        assert found == {"a": ("new", 2), "b": (None, 1), "c": (None, 1), "d": (None, 1), "new": ("a", 1)}

    def test_integers(self, app: Application, run: Callable[..., Result]) -> None:
        """They name the items; a text does not, and neither does a line without one."""
        run("brands", {"id": 7, "title": "a"})
        result = run("brands", {"id": 7, "title": "b"}, {"id": "7", "title": "c"}, {"title": "d"})
        assert result.stderr.splitlines() == [
            "line 2: #/id: is read-only; it is 7",
            "line 3: #/id: must be from 1 to 9007199254740991",
        ]
        assert app.test_client().get("/brands/7").json["title"] == "b"

    def test_a_singleton(self, app: Application, run: Callable[..., Result]) -> None:
        assert first_line(run("settings", {"theme": "dark"})) == "imported 1 settings"
        assert first_line(run("settings", {"visits": 1})) == "imported 0 settings, updated 1"
        assert app.test_client().get("/settings").json == {"theme": "dark", "visits": 1}

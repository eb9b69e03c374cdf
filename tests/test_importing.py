"""`restkeeper import`: it can be repeated, reads all input before it writes, and locks the store for short times."""

import hashlib
import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import Result

import restkeeper
from restkeeper import (
    Conflict,
    Index,
    ItemSchema,
    JsonObject,
    Reference,
    Remove,
    Resource,
    Text,
    Version,
    Versions,
    Whole,
)
from restkeeper.command import HOLD_SECONDS, READ_AHEAD, in_batches
from restkeeper.config import Config
from restkeeper.features.transfer import importing
from restkeeper.features.transfer.lines import id_of
from restkeeper.resources.changes import Unit
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.digests import DigestCounts
from restkeeper.storage.errors import StoreContended, StoreUnavailable
from restkeeper.storage.interface import POSITION
from restkeeper.web.application import Application
from tests.live import ROOT
from tests.shapes import BRANDS, PEOPLE
from tests.shop import create_app
from tests.shop.products import ProductSchema
from tests.test_cli import Run, first_line, lines
from tests.waiting import join


@pytest.fixture
def app(tmp_path: Path) -> Application:
    return create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db"))


@pytest.fixture
def store(app: Application) -> Store:
    found: Store = app.extensions["restkeeper"].store
    return found


@pytest.fixture
def run(app: Application) -> Run:
    runner = app.test_cli_runner()
    return lambda *arguments: runner.invoke(args=["import", "products", *map(str, arguments)])


def test_a_count_of_digests_leaves_no_file(tmp_path: Path) -> None:
    """Its file has no name while it is written: a process that is killed leaves nothing beside the store."""
    with ExitStack() as stack:
        counts = DigestCounts(str(tmp_path), stack)
        found = [counts.add(hashlib.sha256(bytes([n % 250])).digest() * 10) for n in range(20_000)]
        assert (found[249], found[250], found[-1]) == (1, 2, 80)
        assert [*tmp_path.iterdir()] == []


def names(app: Application) -> list[str]:
    return [item["name"] for item in app.test_client().get("/products?limit=100").json]


def test_an_interrupted_import_can_be_continued(
    app: Application, store: Store, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed items are reported and stay; the same command adds the rest, each once."""
    monkeypatch.setattr("restkeeper.command.HOLD_SECONDS", 0.0)
    monkeypatch.setattr("restkeeper.command.PAUSE_SECONDS", 0.0)
    file = lines(tmp_path / "a.ndjson", *({"name": f"{n}"} for n in range(9)))
    write, numbers = store.write, count(1)

    def fail_once(work: Callable[[Transaction], Any], **options: Any) -> Any:
        if next(numbers) == 5:
            raise StoreUnavailable("busy")
        return write(work, **options)

    monkeypatch.setattr(store, "write", fail_once)
    result = run(file)
    assert (result.exit_code, len(names(app))) == (1, 4)
    assert "4 of 9 were imported; the same command continues from there" in result.stderr
    assert first_line(run(file)) == "imported 5 products, 4 already there"
    assert sorted(names(app)) == [f"{n}" for n in range(9)]


def test_a_changed_item_is_not_imported_again(app: Application, run: Run, tmp_path: Path) -> None:
    """Also if another one has its unique value now, but one that was deleted is, with its id.

    An id from a line's content belongs to no other item, but an item's given id may.
    """
    file = lines(tmp_path / "a.ndjson", {"name": "a", "sku": "1"}, {"name": "b", "id": "b"}, {"name": "c"})
    run(file)
    client = app.test_client()
    a, b, c = client.get("/products?sort=name").json
    changed = [client.patch(f"/products/{item['id']}", json={"stock": 7, "sku": None}).json for item in (a, b)]
    client.post("/products", json={"name": "d", "sku": "1"})
    client.delete(f"/products/{c['id']}")
    result = run("--skip-bad", file)
    assert first_line(result) == "imported 1 products, 1 already there, skipped 1"
    assert result.stderr == "line 2: #/id: the item b is there already, with other content: --update changes it\n"
    assert [client.get(f"/products/{item['id']}").json for item in changed] == changed
    assert client.get(f"/products/{c['id']}").json["name"] == "c"


@pytest.mark.parametrize("given", [{"id": "a"}, {}])
def test_other_content_is_never_already_there(tmp_path: Path, given: dict[str, str]) -> None:
    """Also where only the version of the file shows the difference; the same content is, in that version."""
    gone = Remove("colour", Text(load_default=""))
    resource = Resource("products", "product", ProductSchema, upgrades={2: [gone]})
    versions = Versions(Version("v1", revisions={"products": 1}), Version("v2"), unversioned="v2")
    app = restkeeper.create_app(Config(database_url=f"sqlite:///{tmp_path}/a.db"), [resource], versions=versions)
    file = lines(tmp_path / "a.ndjson", {"name": "Lamp", **given})
    runner = app.test_cli_runner()

    def imported(*options: str) -> list[str]:
        result = runner.invoke(args=["import", "products", *options, str(file)])
        return [*result.stderr.splitlines(), *result.stdout.splitlines()[:1]]

    assert imported("--version", "v1") == ["imported 1 products"]
    assert imported("--version", "v1") == ["imported 0 products, 1 already there"]
    id = app.test_client().get("/api/v1/products").json[0]["id"]
    lines(file, {"name": "Lamp", "colour": "red", "id": id})
    message = f"line 1: #/id: the item {id} is there already, with other content: --update changes it"
    assert imported("--version", "v1", "--skip-bad") == [message, "imported 0 products, skipped 1"]
    lines(file, {"name": "Lamp", "colour": "", "id": id})
    assert imported("--version", "v1") == ["imported 0 products, 1 already there"]


def test_generated_ids_depend_on_the_content() -> None:
    """And on the number among equal lines; they are always the same."""
    ids = [id_of(digest, number) for digest in (b"a" * 16, b"b" * 16) for number in (1, 2, 2**32)]
    assert len(set(ids)) == 6 and ids[0] == "711e1718-80a4-8d1f-8485-88f05f1c1cf5"
    assert all(id[14] == "8" and id[19] in "89ab" for id in ids)


@pytest.mark.parametrize("suffix", ["csv", "ndjson", "json"])
def test_a_file_that_has_grown_adds_only_its_new_lines(app: Application, run: Run, tmp_path: Path, suffix: str) -> None:
    """Wherever they are. Equal lines are an item each; the order of lines and of fields makes no difference."""

    def written(*rows: tuple[str, int], reverse: bool = False) -> Path:
        items = [dict(sorted({"name": name, "stock": stock}.items(), reverse=reverse)) for name, stock in rows]
        file = tmp_path / f"a.{suffix}"
        if suffix == "csv":
            return lines(file, ",".join(items[0]), *(",".join(map(str, each.values())) for each in items))
        return lines(file, items) if suffix == "json" else lines(file, *items)

    assert first_line(run(written(("a", 1), ("b", 2)))) == "imported 2 products"
    assert first_line(run(written(("c", 3), ("a", 1), ("b", 2)))) == "imported 1 products, 2 already there"
    grown = [("b", 2), ("a", 1), ("c", 3), ("a", 1), ("a", 1)]
    assert first_line(run(written(*grown, reverse=True))) == "imported 2 products, 3 already there"
    assert sorted(names(app)) == ["a", "a", "a", "b", "c"]


def test_a_duplicate_stops_the_import(app: Application, run: Run, tmp_path: Path) -> None:
    """Of a unique value or an id, in the store or in the file. What is before it stays; the message says how on."""
    app.test_client().post("/products", json={"name": "0", "sku": "0"})
    for other, done, message in (
        ({"sku": "A"}, 1, "#/sku: is taken by another item"),
        ({"sku": "0"}, 0, "#/sku: is taken by another item"),
        ({"id": "a"}, 0, "#/id: the item a is there already, with other content: --update changes it"),
    ):
        file = lines(tmp_path / "a.ndjson", {"name": "a", "sku": "A", "id": "a"}, {"name": "b", **other}, {"name": "c"})
        result = run(file)
        assert (result.exit_code, sorted(names(app))) == (1, ["0", "a"])
        assert result.stderr.splitlines() == [
            f"line 2: {message}",
            f"Error: stopped there: {done} of 3 were imported; the same command with --skip-bad continues",
        ]
    assert first_line(run("--skip-bad", file)) == "imported 1 products, 1 already there, skipped 1"
    assert sorted(names(app)) == ["0", "a", "c"]


def test_a_bad_file_is_refused_before_any_lock(
    store: Store, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "write", write := Mock())
    assert run(lines(tmp_path / "a.ndjson", *[{"name": "a"}] * 50, {})).exit_code == 1
    assert not write.called


def test_a_named_pipe_is_read_before_any_lock(app: Application, run: Run, tmp_path: Path) -> None:
    """While a program still writes to the pipe, others write to the store."""
    os.mkfifo(tmp_path / "pipe")
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path / "pipe")))
    thread.start()
    with (tmp_path / "pipe").open("w") as pipe:
        pipe.write(line := json.dumps({"name": "a", "description": "x" * 5000}) + "\n")
        pipe.flush()
        pipe.write(line * 100)  # more than a pipe holds
        assert app.test_client().post("/products", json={"name": "mine"}).status_code == 200
    join(thread)
    assert first_line(results[0]) == "imported 101 products"


@pytest.mark.sqlite
def test_temporary_files_are_beside_the_store_whose_size_is_reported(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other folders may be in memory, or on a smaller disk."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert first_line(run(lines(tmp_path / "a.ndjson", {"name": "a"}))) == "imported 1 products"
    result = run(lines(tmp_path / "a.ndjson", {"name": "a"}))
    message = result.stdout.splitlines()[1]
    size = sum((tmp_path / name).stat().st_size for name in ("restkeeper.db", "restkeeper.db-wal"))
    assert message == f"the store has {size:,} bytes now" and result.stderr == ""  # without a terminal no progress


def test_a_terminal_shows_the_progress(tmp_path: Path) -> None:
    """Bars for reading, by bytes, and for writing; the output has only the result."""
    file = lines(tmp_path / "a.ndjson", *({"name": f"{n}"} for n in range(3)))
    environ = os.environ | {"DATABASE_URL": f"sqlite:///{tmp_path}/restkeeper.db"}
    terminal, inner = pty.openpty()
    try:
        command = [sys.executable, "-m", "restkeeper", "import", "products", str(file)]
        done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=inner, check=True)
        shown = os.read(terminal, 65536).decode()
    finally:
        os.close(terminal)
        os.close(inner)
    for label in ("reading", "writing"):
        assert f"{label}  [" in shown and "100%" in shown.rpartition(label)[2]
    assert shown.rpartition("reading")[0].count("%") >= 2  # by each line's bytes
    first, second = done.stdout.decode().splitlines()
    assert first == "imported 3 products" and second.startswith("the store has ")


def test_a_transaction_is_limited_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by number of items; each entry is written once, and none is read while the store is locked."""
    time, pauses, locked = [0.0], list[float](), [False]

    def entries() -> Any:
        for number in range(3 * READ_AHEAD):
            assert not locked[0]
            yield number

    def each(_: Unit, number: int) -> int:
        time[0] += HOLD_SECONDS * 0.7
        return number

    def write(work: Callable[[Any], Any], **_: Any) -> Any:
        locked[0] = True
        result = work(None)
        locked[0] = False
        return result

    clock = SimpleNamespace(monotonic=lambda: time[0], sleep=pauses.append)
    fake: Any = SimpleNamespace(store=SimpleNamespace(write=write), domain=None, clock=clock)
    monkeypatch.setattr("restkeeper.command.time", clock)
    batches = list(in_batches(fake, entries(), each))
    assert {len(batch) for batch in batches} == {2}
    assert [number for batch in batches for number in batch] == list(range(3 * READ_AHEAD))
    assert len(pauses) == len(batches) and min(pauses) > 0


@pytest.mark.needs("events")
def test_a_transaction_that_others_end_is_done_again(
    app: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that has waited for a rule, which waited for it: each item is stored and counted once."""
    store, ended = app.extensions["restkeeper"].store, []
    write = store.write

    def end_first(work: Callable[[Transaction], Any], **options: Any) -> Any:
        def ends(transaction: Transaction) -> Any:
            result = work(transaction)
            if len(ended) < 2 and isinstance(result, list):
                ended.append(result)
                raise StoreContended("others")
            return result

        return write(ends, **options)

    monkeypatch.setattr(store, "write", end_first)
    file = lines(tmp_path / "a.ndjson", *({"name": f"p{n}", "sku": f"S-{n % 3}"} for n in range(5)))
    done = app.test_cli_runner().invoke(args=["import", "--skip-bad", "products", str(file)])
    assert done.stdout.startswith("imported 3 products, skipped 2\n"), done.output
    assert [len(results) for results in ended] == [5, 5]
    assert len(app.test_client().get("/products").json) == len(app.test_client().get("/api/v1/events").json) == 3


class PersonSchema(ItemSchema):
    """A person in a team, with a mentor."""

    name = Text(allow_none=True, load_default=None)
    team = Reference("teams", required=True)
    mentor = Reference("people", allow_none=True, load_default=None)


class TeamSchema(ItemSchema):
    """A team with a lead."""

    members = Whole(load_default=0)
    lead = Reference("people", allow_none=True, load_default=None)


def join_team(person: JsonObject, before: None, store: Any) -> None:
    """Count the members of a team."""
    store.change("teams", person["team"], lambda team: {**team, "members": team["members"] + 1})


def test_a_duplicate_that_a_function_writes_is_named(tmp_path: Path) -> None:
    """Its collection, and at the line whose function has written it: no other line is refused for it."""
    people = replace(PEOPLE)

    @people.after("create")
    def name_a_brand(person: JsonObject, before: None, items: Any) -> None:
        items.create("brands", {"title": person["name"]})

    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/a.db"), [people, BRANDS])
    file = lines(tmp_path / "people", *({"name": name} for name in "abacad"))
    done = app.test_cli_runner().invoke(args=["import", "people", str(file), "--skip-bad"])
    taken = "brands: another item has this title"
    assert done.stderr.splitlines() == [f"line 3: {taken}", f"line 5: {taken}"]
    assert done.stdout.splitlines()[0] == "imported 4 people, skipped 2"
    assert [each["title"] for each in app.test_client().get("/brands").json] == [*"abcd"]
    a, b = (f"00000000-0000-7000-8000-00000000000{number}" for number in range(2))
    circle = lines(tmp_path / "circle", {"name": "x", "id": a, "manager": b}, {"name": "x", "id": b, "manager": a})
    refused = app.test_cli_runner().invoke(args=["import", "people", str(circle)])
    assert f"Error: {taken}" in refused.stderr and len(app.test_client().get("/people").json) == 4


def test_an_item_that_a_function_refuses_is_a_bad_line(tmp_path: Path) -> None:
    """It is named with what the function says, and --skip-bad skips it alone."""
    people = replace(PEOPLE)

    @people.after("create")
    def refuse_x(person: JsonObject, before: None, items: Any) -> None:
        if person["name"] == "x":
            raise Conflict("x is not employed any more")
        if person["name"] == "y":
            items.create("people", {"name": "z", "manager": "none"})

    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/a.db"), [people])
    file = lines(tmp_path / "people", *({"name": name} for name in "axyb"))
    refused = app.test_cli_runner().invoke(args=["import", "people", str(file)])
    first = "line 2: x is not employed any more"
    assert refused.exit_code == 1 and first in refused.stderr
    done = app.test_cli_runner().invoke(args=["import", "people", str(file), "--skip-bad"])
    assert done.stderr.splitlines() == [first, "line 3: manager: there is no item 'none' in people"]
    assert sorted(each["name"] for each in app.test_client().get("/people").json) == [*"ab"]


def declared() -> list[Resource]:
    """Two collections that refer to each other; the first is in the order in which its items were stored."""
    people = Resource("people", "person", PersonSchema, (Index("name", unique=True),), ids="client", sort=POSITION)
    return [people, Resource("teams", "team", TeamSchema, ids="client")]


def person(id: str, mentor: str | None = None, team: str = "blue", **more: Any) -> JsonObject:
    return {"id": id, "team": team, "mentor": mentor, **more}


CIRCLE = [person("bob", "ada"), person("ada", "bob", "red"), person("eve", "eve")]
RED_AND_BLUE = [{"id": "red", "lead": "ada"}, {"id": "blue"}]


class TestReferences:
    """Items refer to others of the same files."""

    @pytest.fixture(params=["sqlite", "postgresql"])
    def app(self, request: pytest.FixtureRequest, tmp_path: Path) -> Application:
        store_url = f"sqlite:///{tmp_path}/a.db" if request.param == "sqlite" else request.getfixturevalue("url")
        return restkeeper.create_app(Config(database_url=store_url), declared())

    @pytest.fixture
    def run(self, app: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
        monkeypatch.chdir(tmp_path)

        def run(*options: str, **items: Any) -> Result:
            files = [(name, str(lines(Path(f"{name}.ndjson"), *found))) for name, found in items.items()]
            return app.test_cli_runner().invoke(args=["import", *options, *chain(*files)])

        return run

    @staticmethod
    def ids(app: Application, name: str = "people") -> list[str]:
        return [item["id"] for item in app.test_client().get(f"/{name}").json]

    def test_circles_and_later_items(self, app: Application, run: Callable[..., Result]) -> None:
        """From any order of the files, and in the order of each; again, they are there already."""
        people = [person("zoe", "ada"), person("yan"), *CIRCLE, person("adam")]
        done = run(people=people, teams=RED_AND_BLUE)
        assert (done.exit_code, done.stdout.splitlines()[:2]) == (0, ["imported 6 people", "imported 2 teams"])
        assert self.ids(app) == ["zoe", "yan", "bob", "ada", "eve", "adam"]
        done = run(teams=RED_AND_BLUE, people=people)
        assert done.stdout.splitlines()[:2] == [
            "imported 0 teams, 2 already there",
            "imported 0 people, 6 already there",
        ]

    def test_what_is_missing_is_bad_and_so_is_what_refers_to_it(
        self, app: Application, run: Callable[..., Result]
    ) -> None:
        """The lines are named; the others are imported, with --skip-bad also those that wait, however many are bad."""
        chain = [person(f"p{n}", f"p{n + 1}") for n in range(120)]
        people = [*CIRCLE, person("zoe", team="green"), *chain]
        done = run(people=people, teams=RED_AND_BLUE)
        assert done.exit_code == 1
        first, second, *_ = done.stderr.splitlines()
        assert first == "people.ndjson, line 4: team: there is no item 'green' in teams"
        assert second == "people.ndjson, line 5: mentor: there is no item 'p1' in people"
        assert "Error: stopped there: 1 of 126 were imported" in done.stderr
        done = run("--skip-bad", people=people, teams=RED_AND_BLUE)
        assert done.stdout.splitlines()[:2] == ["imported 3 people, skipped 121", "imported 1 teams, 1 already there"]
        assert self.ids(app) == ["bob", "ada", "eve"]

    def test_a_bad_item_takes_no_value_from_others(self, app: Application, run: Callable[..., Result]) -> None:
        """Neither its id nor a unique one; of two good ones the second is bad."""
        people = [
            person("ada", "bob", name="Ada"),  # which waits
            person("bad", "nobody", name="Bob"),
            person("bob", "ada", name="Bob"),
            person("bad", name="Eve"),
            person("eve", name="Ada"),
        ]
        done = run("--skip-bad", teams=RED_AND_BLUE[1:], people=people)
        assert done.stderr.splitlines() == [
            "people.ndjson, line 2: mentor: there is no item 'nobody' in people",
            "people.ndjson, line 5: #/name: is taken by another item",
        ]
        assert done.stdout.splitlines()[1] == "imported 3 people, skipped 2"
        assert self.ids(app) == ["ada", "bob", "bad"]

    def test_events_are_in_order(self, app: Application, run: Callable[..., Result]) -> None:
        """What a function of the service changes was created before."""
        people, _ = app.extensions["restkeeper"].resources
        people.after("create")(join_team)
        assert run(people=CIRCLE, teams=RED_AND_BLUE).exit_code == 0
        events = app.test_client().get("/api/v1/events").json
        red = [(each["type"], each["data"]["version"]) for each in events if each["data"]["id"] == "red"]
        assert red == [("team.created", 1), ("team.updated", 2)]

    def test_an_item_that_is_there_twice(self, app: Application, run: Callable[..., Result]) -> None:
        """One of them can be bad: what refers to its id refers to the other one, or to what is stored."""
        people = [person("x", "nobody"), person("x", name="2", mentor="y"), person("y", "x")]
        chain = [person(f"p{n}", f"p{n + 1}") for n in range(40)]
        done = run("--skip-bad", teams=RED_AND_BLUE[1:], people=[*people, *chain, *chain])
        assert done.stdout.splitlines()[1] == "imported 2 people, skipped 81"
        done = run(
            "--skip-bad",
            teams=RED_AND_BLUE[1:],
            people=[person("w", "z"), person("x", "a"), person("v", "x"), person("z")],
        )
        assert self.ids(app) == ["x", "y", "w", "v", "z"], done.stderr

    def test_what_waits_for_later_items_is_bounded(
        self, app: Application, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In items and in bytes, of all files together: those that wait are stored before others wait."""
        monkeypatch.setattr("restkeeper.command.HOLD_SECONDS", 0.0)  # an item in each transaction
        people = [person("bad", "nobody"), person("a", "b"), person("b", "c"), person("c", "d"), person("d")]
        for name, most, shown, stored in [
            ("MOST_WAITING", 2, "2", ["d"]),
            ("MOST_WAITING_BYTES", 1, "5,000", ["d", "c"]),
        ]:
            with monkeypatch.context() as patch:
                patch.setattr(importing, name, most)
                done = run("--skip-bad", teams=RED_AND_BLUE[1:], people=people)
            first = f"people.ndjson, line 1: mentor: there is no item 'nobody' in people: no more than {shown} can wait"
            assert first in done.stderr
            assert self.ids(app) == stored
        assert run("--skip-bad", teams=RED_AND_BLUE[1:], people=people).exit_code == 0
        assert self.ids(app) == ["d", "c", "a", "b"]

    def test_a_bad_item_that_has_waited_ends_the_import(
        self, app: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file after that is not begun, although the one before it is good."""
        monkeypatch.setattr("restkeeper.command.HOLD_SECONDS", 0.0)
        monkeypatch.setattr(importing, "MOST_WAITING", 3)
        teams = lines(tmp_path / "teams", {"id": "red", "lead": "nobody"}, {"id": "blue"})  # of which the first waits
        good = lines(tmp_path / "good", person("bob", "ada"), person("ada", "bob"))
        later = lines(tmp_path / "later", person("eve"))
        files = ["teams", str(teams), "people", str(good), "people", str(later)]
        done = app.test_cli_runner().invoke(args=["import", *files])
        assert (done.exit_code, "line 1: lead: there is no item 'nobody' in people" in done.stderr) == (1, True)
        assert "eve" not in self.ids(app)

    def test_each_file_has_a_name(self, app: Application) -> None:
        """What is wrong is refused before anything is read."""
        for arguments, message in [
            (("people", "people.ndjson", "teams"), "teams: write NAME FILE"),
            (("people", "-", "teams", "-"), "-: stdin can be read once"),
        ]:
            done = app.test_cli_runner().invoke(args=["import", *arguments])
            assert (done.exit_code, message in done.stderr) == (2, True)

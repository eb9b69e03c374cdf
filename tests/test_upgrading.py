"""Between the start of new code and `restkeeper migrate`: what older items would make wrong is refused, no more."""

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask.testing import FlaskClient
from marshmallow import fields

from restkeeper.config import Config
from restkeeper.resources.evolution import Add, Convert, Remove, Rename, Step
from restkeeper.resources.resource import Ownership, Resource
from restkeeper.schemas.fields import Reference, Text, Whole
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Index
from restkeeper.versions import Version, Versions
from restkeeper.web.application import Application
from tests.recorder import next_of
from tests.shop import create_app
from tests.test_stored import resource

pytestmark = pytest.mark.needs("versions")

NAME = Text(1, 50, required=True)
COUNT = Whole(load_default=0)
OLD = resource(
    {"name": NAME, "code": Text(0, 50, load_default=None, allow_none=True), "count": COUNT},
    indexes=(Index("name", unique=True), Index("code", unique=True)),
    search=("name",),
)
NEW = resource(
    {
        "title": NAME,
        "code": Text(0, 50, load_default=None, allow_none=True),
        "count": COUNT,
        "colour": Text(load_default=""),
    },
    indexes=(Index("title", unique=True), Index("code", unique=True)),
    search=("title",),
    upgrades={2: [Rename("name", "title"), Add("colour")]},
)
BOTH = (Version("v1", successor="v2", revisions={"notes": 1}), Version("v2"))
VERSIONS = Versions(*BOTH, unversioned="v1")


class Deployment:
    """Programs on one store: `old` and `new` serve it, and `migrate` is that of the new one."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._config = Config(database_url=f"sqlite:///{folder}/store.db", idempotency="optional", **settings)

    def serve(self, declared: Resource, versions: Versions = VERSIONS) -> FlaskClient:
        return self._create(declared, versions).test_client()

    def migrate(self, declared: Resource = NEW) -> Result:
        return self.run(declared, "migrate")

    def run(self, declared: Resource, *arguments: str) -> Result:
        return self._create(declared, serves=False).test_cli_runner().invoke(args=arguments)

    def _create(self, declared: Resource, versions: Versions = VERSIONS, **options: Any) -> Application:
        options |= {"versions": versions} if declared.upgrades else {}
        return create_app(self._config, [declared], **options)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """A store with the items c, a and b of the old program."""
    made = Deployment(tmp_path)
    old = made.serve(OLD)
    for name in "cab":
        assert old.post("/notes", json={"name": name, "code": f"1{name}"}).status_code == 200
    return made


CONCERNED = {
    "v1/notes?name=a": "a",
    "v2/notes?title=a": "a",
    "v2/notes?title[ne]=z": "cab",
    "v1/notes?sort=count,-name": "cba",
    "v2/notes?sort=title": "abc",
    "v1/notes?q=a": "a",
    "v2/notes?q=a": "a",
}


def test_a_list_by_a_changed_field_waits_for_migrate(deployment: Deployment) -> None:
    """503, with what is to be done, until no older item is left; from then on it finds all."""
    new = deployment.serve(NEW)
    to_do = "some items of notes are still to be brought into the present form (`restkeeper migrate`)"
    for path in [*CONCERNED, *CONCERNED]:
        refused = new.get(f"/api/{path}")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1"), path
        assert to_do in refused.json["detail"]
    assert deployment.migrate().exit_code == 0
    found = {path: new.get(f"/api/{path}").json for path in CONCERNED}
    assert {path: "".join(each.get("name", each.get("title")) for each in found[path]) for path in found} == CONCERNED


def test_a_release_leaves_older_programs_their_indexes(deployment: Deployment) -> None:
    """`migrate --prepare` changes no item: the old program still finds each by its unique name, and refuses a twin."""
    old = deployment.serve(OLD)
    prepared = deployment.serve(NEW).application.test_cli_runner().invoke(args=["migrate", "--prepare"])
    assert prepared.exit_code == 0, prepared.output
    assert [item["name"] for item in old.get("/notes?name=a").json] == ["a"]
    assert old.post("/notes", json={"name": "a"}).status_code == 409
    assert deployment.migrate().stdout.startswith("notes: 3 of 3 brought into the present form")


def test_a_unique_value_is_not_taken_twice(deployment: Deployment) -> None:
    """New ones are compared with those of the older items, in the present form of these."""
    new = deployment.serve(NEW)
    (c, a, _) = (f"/api/v2/notes/{each['id']}" for each in new.get("/api/v2/notes").json)
    for path, body in (("v1", {"name": "a"}), ("v2", {"title": "a"})):
        refused = new.post(f"/api/{path}/notes", json=body)
        assert (refused.status_code, refused.json["errors"][0]["pointer"]) == (409, f"#/{next(iter(body))}")
    assert new.patch(a, json={"title": "b"}).status_code == 409
    assert new.patch(a, json={"title": "d"}).status_code == 200
    assert [new.post("/api/v2/notes", json={"title": title}).status_code for title in "aae"] == [200, 409, 200]
    assert new.patch(c, json={"title": "d"}).status_code == 409
    assert new.patch(c, json={"title": "c", "count": 1}).status_code == 200
    assert deployment.migrate().stdout.startswith("notes: 1 of 5 brought into the present form")


def test_unique_values_without_case_are_compared_so(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    deployment.serve(resource({"name": NAME})).post("/notes", json={"name": "Äb"})
    folded = (Index("title", unique=True, fold=True),)
    new = deployment.serve(resource({"title": NAME}, indexes=folded, upgrades={2: [Rename("name", "title")]}))
    sent = {"äB": 200, "ÄB": 409, "Äb": 409, "b": 200}
    assert {title: new.post("/api/v2/notes", json={"title": title}).status_code for title in sent} == sent


def test_a_unique_value_waits_for_migrate(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the older items are too many to be compared, no item is created or imported, and none gets another title.

    Whatever leaves it as it is works, and so does `migrate`.
    """
    monkeypatch.setattr("restkeeper.resources.changes.MOST_COMPARED", 1)
    new = deployment.serve(NEW)
    items = {each["title"]: f"/api/v2/notes/{each['id']}" for each in new.get("/api/v2/notes").json}
    for path, body in (("v1", {"name": "a"}), ("v2", {"title": "a"}), ("v2", {"title": "d"})):
        refused = new.post(f"/api/{path}/notes", json=body, headers={"Idempotency-Key": '"k"'})
        assert refused.status_code == 503 and "migrate" in refused.json["detail"]
    (tmp_path / "notes.ndjson").write_text('{"title":"a"}\n')
    imported = new.application.test_cli_runner().invoke(args=["import", "notes", f"{tmp_path}/notes.ndjson"])
    assert imported.exit_code == 1 and "(`restkeeper migrate`)" in imported.stderr
    assert new.patch(items["a"], json={"title": "b"}).status_code == 503
    changed = new.patch(items["a"], json={"count": 7, "code": "x"})
    assert (changed.status_code, changed.json["title"], changed.json["count"]) == (200, "a", 7)
    assert new.put(items["a"].replace("v2", "v1"), json={"name": "a"}).status_code == 200
    assert new.get(items["b"]).json["title"] == "b"
    assert deployment.migrate().stdout.startswith("notes: 2 of 3 brought into the present form")
    assert new.delete(items["c"]).status_code == 200
    statuses = [new.post("/api/v2/notes", json={"title": title}).status_code for title in "abc"]
    assert statuses == [409, 409, 200]


def test_an_older_item_after_migrate_counts(deployment: Deployment) -> None:
    """An old process that still runs writes one; a list that was read before is not repeated from the cache."""
    old = deployment.serve(OLD)
    new = deployment.serve(NEW)
    assert deployment.migrate().exit_code == 0
    for each in new.get("/api/v2/notes").json:
        new.delete(f"/api/v2/notes/{each['id']}")
    assert new.get("/api/v2/notes?title=d").json == []
    where = old.post("/notes", json={"name": "d"}).headers["Location"]
    assert new.get("/api/v2/notes?title=d").status_code == 503
    assert new.post("/api/v2/notes", json={"title": "d"}).status_code == 409
    assert old.delete(where).status_code == 200
    assert new.get("/api/v2/notes?title=d").json == []
    assert new.post("/api/v2/notes", json={"title": "d"}).status_code == 200


def test_only_fields_that_changed_since_an_items_revision_wait(deployment: Deployment) -> None:
    """An item of the second revision has its title, and not yet the text of its count."""
    definitions = {"title": NAME, "code": OLD.schema().fields["code"], "number": Text(load_default="0")}
    steps: Sequence[Step] = [Convert({"count": COUNT}, ["count"], str, int), Rename("count", "number")]
    third = resource(definitions, upgrades={2: [Rename("name", "title")], 3: steps}, search=("title",))
    versions = Versions(Version("v1"), unversioned="v1")
    newest = deployment.serve(third, versions)
    path = "/api/v1/notes"
    assert [newest.get(f"{path}?{each}").status_code for each in ("title=a", "number=0", "code=x")] == [503, 503, 200]
    assert deployment.migrate(resource(NEW_SECOND, upgrades={2: [Rename("name", "title")]})).exit_code == 0
    assert [newest.get(f"{path}?{each}").status_code for each in ("title=a", "number=0", "q=a")] == [200, 503, 200]


NEW_SECOND = {"title": NAME, "code": Text(0, 50, load_default=None, allow_none=True), "count": COUNT}


def test_what_older_items_refer_to_is_not_deleted_before_migrate(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    parent = Reference("notes", allow_none=True, load_default=None)
    old = deployment.serve(resource({"parent": parent}))
    above = old.post("/notes", json={}).json["id"]
    old.post("/notes", json={"parent": above})
    new = resource({"above": parent}, upgrades={2: [Rename("parent", "above")]})
    client = deployment.serve(new)
    waits = client.delete(f"/api/v2/notes/{above}")
    assert (waits.status_code, waits.json["detail"][:24]) == (503, "some items of notes are ")
    assert deployment.migrate(new).exit_code == 0
    assert client.delete(f"/api/v2/notes/{above}").status_code == 409


def test_a_new_unique_field_over_duplicates_stops_migrate(tmp_path: Path) -> None:
    """It names the items and their value, as a start does. They can be exported meanwhile, and changed by the old code.

    The items are of the present form: nothing is to be migrated but the index.
    """
    deployment = Deployment(tmp_path)
    old = deployment.serve(resource({"name": NAME}))
    ids = [old.post("/notes", json={"name": name}).json["id"] for name in "aab"]
    new = resource({"name": NAME}, indexes=(Index("name", unique=True),))
    refusal = f'some items of notes have the same name, which must be unique ("a": {ids[0]}, {ids[1]}; change or delete'
    for arguments in (["migrate"], ["migrate", "--prepare"], ["reap"]):
        refused = deployment.run(new, *arguments)
        assert (refused.exit_code, refused.stdout) == (1, "") and refused.stderr.startswith(f"Error: {refusal}")
    with pytest.raises(StoreUnavailable, match=f"^DATABASE_URL=.*: {re.escape(refusal)}"):
        deployment.serve(new)
    exported = deployment.run(new, "export", "notes")
    assert exported.exit_code == 0 and [json.loads(line)["id"] for line in exported.stdout.splitlines()] == ids
    assert old.patch(f"/notes/{ids[1]}", json={"name": "c"}).status_code == 200
    assert deployment.run(new, "migrate", "--prepare").exit_code == 0


@pytest.mark.sqlite
def test_a_backup_is_made_before_duplicates_are_changed(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    old = deployment.serve(resource({"name": NAME}))
    assert [old.post("/notes", json={"name": "a"}).status_code for _ in "ab"] == [200, 200]
    new = resource({"name": NAME}, indexes=(Index("name", unique=True),))
    assert deployment.run(new, "backup", f"{tmp_path}/backup.db").stdout == f"backed up to {tmp_path}/backup.db\n"


@pytest.mark.parametrize("way", [0, 1])
def test_migrate_lists_duplicates_and_finishes(tmp_path: Path, way: int) -> None:
    """All others are converted; the message names the collection, the item and the field. One of the two is changed."""
    deployment = Deployment(tmp_path)
    old = deployment.serve(resource({"name": NAME}))
    ids = [old.post("/notes", json={"name": name}).json["id"] for name in "aab"]
    new = resource({"title": NAME}, indexes=(Index("title", unique=True),), upgrades={2: [Rename("name", "title")]})
    done = deployment.migrate(new)
    assert done.exit_code == 1 and done.stdout == "notes: 2 of 3 brought into the present form\n"
    assert f'notes: the item {ids[1]} cannot be converted: another item has this title ("a"): change' in done.stderr
    assert "1 items stay as they were" in done.stderr
    client = deployment.serve(new)
    assert client.get(f"/api/v2/notes/{ids[1]}").json["title"] == "a"
    assert client.patch(f"/api/v2/notes/{ids[1]}", json={"title": "b"}).status_code == 409
    assert client.patch(f"/api/v1/notes/{ids[way]}", json={"name": "c"}).status_code == 200
    assert client.delete(f"/api/v2/notes/{ids[2]}").status_code == 200
    assert deployment.migrate(new).exit_code == 0
    assert [each["title"] for each in client.get("/api/v2/notes?sort=title").json] == ["a", "c"]


def test_migrate_converts_values_that_others_had(tmp_path: Path) -> None:
    """Each new value is the old one of another item, so that they must be converted in the right order."""
    deployment = Deployment(tmp_path)
    unique = (Index("count", unique=True),)
    old = deployment.serve(resource({"count": COUNT}, indexes=unique))
    for count in (1, 2, 3):
        old.post("/notes", json={"count": count})
    convert = Convert({"count": COUNT}, ["count"], lambda value: value + 1, lambda value: value - 1)
    new = resource({"count": COUNT}, indexes=unique, upgrades={2: [convert]})
    assert deployment.migrate(new).stdout.startswith("notes: 3 of 3 brought into the present form")
    assert [each["count"] for each in deployment.serve(new).get("/api/v2/notes").json] == [2, 3, 4]


@pytest.mark.parametrize(
    ("step", "fields", "changed"),
    [
        (Rename("name", "title"), {"title": NAME}, "title"),
        (Convert({"name": NAME}, ["title"], str.upper, str.lower), {"title": NAME}, "title"),
        (Convert({"name": NAME}, ["name"], str.upper, str.lower), {"name": NAME}, "name"),
        (Add("other"), {"name": NAME, "other": Text(load_default="")}, ""),
    ],
    ids=["rename", "to another field", "in place", "add"],
)
def test_each_step_says_what_it_changes(
    deployment: Deployment, step: Step, fields: dict[str, Any], changed: str
) -> None:
    definitions = {**NEW_SECOND, **fields}
    definitions = {name: each for name, each in definitions.items() if name != "title" or "title" in fields}
    client = deployment.serve(resource(definitions, upgrades={2: [step]}))
    refused = {name for name in definitions if client.get(f"/api/v2/notes?sort={name}").status_code == 503}
    assert refused == ({changed} if changed else set())


TEXT = Text(0, 20, load_default="0")
COUNTED = resource({"title": NAME, "count": TEXT, "note": Text(load_default="-")})
WHOLE = {"title": NAME, "count": Whole(load_default=7), "weight": Whole(load_default=1)}
NUMBERED = resource(
    WHOLE,
    upgrades={
        2: [
            Convert({"count": TEXT}, ["count"], up=int, down=str),
            Remove("note", Text(load_default="-")),
            Add("weight"),
        ]
    },
)


class TestRefused:
    """Items with a value that a step refuses, among others."""

    @pytest.fixture
    def stored(self, deployment: Deployment) -> list[dict[str, Any]]:
        """Three items of the old program as it shows them: no step can convert the second one."""
        old = deployment.serve(COUNTED)
        counts = {"x": "007", "y": "seven", "z": "8"}
        return [old.post("/notes", json={"title": t, "count": c, "note": t}).json for t, c in counts.items()]

    @pytest.fixture
    def deployment(self, tmp_path: Path) -> Deployment:
        return Deployment(tmp_path)

    def test_its_own_version_shows_what_is_stored(self, deployment: Deployment, stored: list[dict[str, Any]]) -> None:
        """Alone, in lists, and when it is deleted; the same for values that a step would write in another way."""
        new = deployment.serve(NUMBERED)
        assert new.get("/api/v1/notes").json == stored
        assert "X-Omitted-Count" not in new.get("/api/v1/notes").headers
        for each in stored:
            assert new.get(f"/api/v1/notes/{each['id']}").json == each
            assert new.delete(f"/api/v1/notes/{each['id']}").json == each

    def test_another_version_names_the_value(self, deployment: Deployment, stored: list[dict[str, Any]]) -> None:
        new = deployment.serve(NUMBERED)
        where = f"/api/v2/notes/{stored[1]['id']}"
        for refused in (new.get(where), new.patch(where, json={"title": "b"})):
            assert (refused.status_code, refused.json["type"].rpartition("/")[2]) == (409, "not-convertible")
            fault = {"pointer": "#/count", "detail": "has no equivalent in newer versions", "value": "seven"}
            assert refused.json["errors"] == [fault]
            assert refused.json["location"] == where.replace("v2", "v1")
            assert f"the item {stored[1]['id']} of revision 1 cannot be converted: count" in refused.json["detail"]
        assert new.get("/api/v1/notes").json == stored

    @pytest.mark.needs("events")
    def test_a_number_beyond_the_range_is_refused_as_well(self, deployment: Deployment) -> None:
        """A step can make a value that no JSON of ours has."""
        made = deployment.serve(COUNTED).post("/notes", json={"title": "x", "count": "9" * 20, "note": "x"})
        new = deployment.serve(NUMBERED)
        refused = new.get(f"/api/v2/notes/{made.json['id']}")
        assert (refused.status_code, refused.json["errors"][0]["detail"]) == (409, "must be an integer of 64 bits")
        assert new.get("/api/v2/notes").json == [] and new.get(f"/api/v1/notes/{made.json['id']}").json == made.json
        assert new.get("/api/v2/events").status_code == 200
        assert new.post("/api/v1/notes", json={"title": "y", "count": "9" * 20, "note": "y"}).status_code == 422

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_lists_go_on_without_it(self, deployment: Deployment, stored: list[dict[str, Any]], limit: int) -> None:
        """A walk visits each of the others once; the pages say what they leave out."""
        new = deployment.serve(NUMBERED)
        seen, omitted, path = [], 0, f"/api/v2/notes?limit={limit}"
        while path:
            page = new.get(path)
            assert (page.status_code, page.headers["X-Total-Count"]) == (200, "3")
            seen += [(each["title"], each["count"]) for each in page.json]
            omitted += int(page.headers.get("X-Omitted-Count", 0))
            path = next_of(page)
        assert (seen, omitted) == ([("x", 7), ("z", 8)], 1)

    def test_the_older_version_mends_it(self, deployment: Deployment, stored: list[dict[str, Any]]) -> None:
        """With a value that has an equivalent; until then another change is refused, with the reason."""
        new = deployment.serve(NUMBERED)
        first, second = (f"/api/v1/notes/{each['id']}" for each in stored[:2])
        refused = new.patch(second, json={"title": "b"})
        assert (refused.status_code, refused.json["errors"][0]["pointer"]) == (422, "#/count")
        assert new.patch(first, json={"title": "b"}).json["count"] == "7"
        assert new.patch(second, json={"count": "9"}).json["count"] == "9"
        mended = new.get(second.replace("v1", "v2"))
        assert (mended.status_code, mended.json["count"], mended.json["version"]) == (200, 9, 2)
        assert new.get(second).json["note"] == "y"
        assert "X-Omitted-Count" not in new.get("/api/v2/notes").headers
        assert deployment.migrate(NUMBERED).exit_code == 0

    def test_the_newest_version_replaces_it(self, deployment: Deployment, stored: list[dict[str, Any]]) -> None:
        """It needs no value of it; what only older versions show stays."""
        new = deployment.serve(NUMBERED)
        where = f"/api/v2/notes/{stored[1]['id']}"
        assert new.put(where, json={"title": "b", "version": 2}).status_code == 422
        replaced = new.put(where, json={"title": "b"})
        assert (replaced.status_code, replaced.json["count"], replaced.json["version"]) == (200, 7, 2)
        shown = new.get(where.replace("v2", "v1")).json
        assert (shown["count"], shown["note"], shown["created_at"]) == ("7", "y", stored[1]["created_at"])

    def test_migrate_converts_all_others(self, deployment: Deployment, stored: list[dict[str, Any]]) -> None:
        """And names it with the cause; an export leaves it out and fails, too."""
        done = deployment.migrate(NUMBERED)
        assert (done.exit_code, done.stdout) == (1, "notes: 2 of 3 brought into the present form\n")
        cause = f"notes: the item {stored[1]['id']} of revision 1 cannot be converted: count has no equivalent"
        assert cause in done.stderr and done.stderr.endswith("1 items stay as they were\n")
        runner = deployment.serve(NUMBERED).application.test_cli_runner()
        export = runner.invoke(args=["export", "notes"])
        assert (export.exit_code, len(export.stdout.splitlines())) == (1, 2)
        assert cause in export.stderr and export.stderr.endswith("1 items are not in the file\n")
        assert runner.invoke(args=["export", "notes", "--version", "v1"]).stdout.count("seven") == 1

    @pytest.mark.needs("events")
    def test_the_feed_goes_on(self, deployment: Deployment, stored: list[dict[str, Any]]) -> None:
        """Without the value in a version that cannot show it, and as it was stored in its own."""
        new = deployment.serve(NUMBERED)
        new.delete(f"/api/v1/notes/{stored[1]['id']}")
        feeds = {version: new.get(f"/api/{version}/events?collection=notes").json for version in ("v1", "v2")}
        assert [each["data"] for each in feeds["v1"]] == [*stored, stored[1]]
        data = [each["data"] for each in feeds["v2"]]
        assert [each.get("count") for each in data] == [7, None, 8, None]
        assert all(each.keys() == {*data[0]} - {"count"} for each in (data[1], data[3]))
        assert (data[1]["title"], data[1]["weight"], data[1]["id"]) == ("y", 1, stored[1]["id"])

    def test_lists_by_its_value_go_on(self, deployment: Deployment, stored: list[dict[str, Any]]) -> None:
        """After `migrate`, in the newest version, which cannot have it; until then others could be missed."""
        new = deployment.serve(NUMBERED)
        assert new.get("/api/v2/notes?sort=-count").status_code == 503
        assert deployment.migrate(NUMBERED).exit_code == 1
        assert [each["count"] for each in new.get("/api/v2/notes?sort=-count").json] == [8, 7]
        new.patch(f"/api/v1/notes/{stored[1]['id']}", json={"count": "9"})
        assert [each["count"] for each in new.get("/api/v2/notes?sort=-count").json] == [9, 8, 7]

    def test_lists_by_other_changed_fields_go_on(self, deployment: Deployment, stored: list[dict[str, Any]]) -> None:
        """In an older version, too, which could show it: they count it as omitted, until it is changed."""
        renamed = {"name": NAME, "count": Whole(load_default=7), "note": Text(load_default="-")}
        convert = Convert({"count": TEXT}, ["count"], up=int, down=str)
        declared = resource(renamed, upgrades={2: [Rename("title", "name"), convert]})
        assert deployment.migrate(declared).exit_code == 1
        new = deployment.serve(declared)
        for version, query, found in (
            ("v1", "title=x", 1),
            ("v1", "title[ne]=x", 1),
            ("v1", "sort=title", 2),
            ("v2", "sort=name", 2),
        ):
            page = new.get(f"/api/{version}/notes?{query}")
            assert (page.status_code, len(page.json), page.headers["X-Omitted-Count"]) == (200, found, "1")
        assert new.patch(f"/api/v1/notes/{stored[1]['id']}", json={"count": "9"}).status_code == 200
        whole = new.get("/api/v1/notes?sort=title")
        assert [each["title"] for each in whole.json] == ["x", "y", "z"] and "X-Omitted-Count" not in whole.headers

    @pytest.mark.needs("ownership")
    @pytest.mark.parametrize(("ownership", "named"), [(Ownership.CHANGES, 5), (Ownership.ALL, 0)])
    def test_some_of_many_are_named(
        self, deployment: Deployment, monkeypatch: pytest.MonkeyPatch, ownership: Ownership, named: int
    ) -> None:
        """To whoever lists by its field, or needs a unique value, and may see items of others."""
        monkeypatch.setattr("restkeeper.resources.changes.MOST_COMPARED", 5)
        old = deployment.serve(COUNTED)
        ids = [old.post("/notes", json={"title": "x", "count": f"no {n}"}).json["id"] for n in range(7)]
        unique = dataclasses.replace(NUMBERED, ownership=ownership, indexes=(Index("count", unique=True),))
        assert deployment.migrate(unique).exit_code == 1
        new = deployment.serve(unique)
        for refused in (new.get("/api/v2/notes?sort=count"), new.post("/api/v2/notes", json={"title": "d"})):
            assert refused.status_code == 503
            assert sum(id in refused.json["detail"] for id in ids) == named  # any of them: they have no order

    def test_a_version_between_shows_it(self, deployment: Deployment, stored: list[dict[str, Any]]) -> None:
        rename: list[Step] = [Rename("title", "name"), Rename("note", "about")]
        definitions = {"name": NAME, "number": Whole(load_default=7), "about": Text(load_default="-")}
        convert: list[Step] = [Convert({"count": TEXT}, ["number"], up=int, down=str)]
        third = resource(definitions, upgrades={2: rename, 3: convert})
        versions = Versions(Version("v2", revisions={"notes": 2}), Version("v3"), unversioned="v3")
        new = deployment.serve(third, versions)
        refused = new.get(f"/notes/{stored[1]['id']}")
        assert (refused.status_code, refused.json["location"]) == (409, f"/api/v2/notes/{stored[1]['id']}")
        assert refused.json["errors"][0]["pointer"] == "#/count"
        shown = new.get(refused.json["location"]).json
        assert (shown["name"], shown["count"], shown["about"]) == ("y", "seven", "y")
        assert new.patch(refused.json["location"], json={"count": "9"}).status_code == 200
        assert new.get(f"/notes/{stored[1]['id']}").json["number"] == 9

    def test_without_an_older_version_it_is_named(self, deployment: Deployment, stored: list[dict[str, Any]]) -> None:
        """There is no address that could show it: the problem has its value. It can be deleted."""
        new = deployment.serve(NUMBERED, Versions(Version("v1"), unversioned="v1"))
        where = f"/notes/{stored[1]['id']}"
        refused = new.get(where).json
        assert refused["status"] == 409 and "location" not in refused
        assert refused["errors"][0]["value"] == "seven"
        deleted = new.delete(where)
        assert (deleted.status_code, deleted.json) == (200, stored[1])
        assert new.get(where).status_code == 404
        assert deployment.migrate(NUMBERED).exit_code == 0

    @pytest.mark.parametrize("method", ["PUT", "DELETE"])
    def test_its_etag_is_in_the_problem(self, tmp_path: Path, stored: list[dict[str, Any]], method: str) -> None:
        """Conditional requests that need no value work with it, also where others are refused."""
        new = Deployment(tmp_path, require_if_match=True).serve(NUMBERED)
        where, body = f"/api/v2/notes/{stored[1]['id']}", {"title": "b"} if method == "PUT" else None
        refused = new.get(where)
        tag = refused.headers["ETag"]
        for header in ("If-Match", "If-None-Match"):  # nothing is not modified that cannot be read
            assert new.get(where, headers={header: tag}).status_code == 409
        assert new.open(where, method=method, json=body).status_code == 428
        assert new.open(where, method=method, json=body, headers={"If-Match": '"other"'}).headers["ETag"] == tag
        assert new.open(where, method=method, json=body, headers={"If-Match": tag}).status_code == 200
        assert new.put(where, json={"title": "c"}, headers={"If-Match": tag}).status_code in (404, 412)

    def test_its_value_is_exact(self, deployment: Deployment) -> None:
        sizes, amount = fields.List(fields.Decimal(), required=True), Whole(load_default=0)
        old = deployment.serve(resource({"sizes": sizes}))
        where = old.post("/notes", data='{"sizes": [1.50, 2]}', content_type="application/json").headers["Location"]
        convert: list[Step] = [Convert({"sizes": sizes}, ["amount"], up=int, down=lambda amount: [amount])]
        refused = deployment.serve(resource({"amount": amount}, upgrades={2: convert})).get(f"/api/v2{where}")
        assert refused.status_code == 409 and '"value":[1.50,2]' in refused.text

"""Between the start of new code and `restkeeper migrate`: what older items would make wrong is refused, no more."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.resources.resource import Resource
from restkeeper.resources.steps import Add, Merge, Rename, Retype, Step
from restkeeper.schemas.fields import Text, Whole
from restkeeper.storage.contract import Index
from restkeeper.versions import Version, Versions
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
VERSIONS = Versions(Version("v1", successor="v2", revisions={"notes": 1}), Version("v2"), unversioned="v1")


class Deployment:
    """Programs on one store: `old` and `new` serve it, and `migrate` is that of the new one."""

    def __init__(self, folder: Path) -> None:
        self._config = Config(database_url=f"sqlite:///{folder}/store.db", idempotency="optional")

    def serve(self, declared: Resource, versions: Versions = VERSIONS) -> FlaskClient:
        options: dict[str, Any] = {"versions": versions} if declared.upgrades else {}
        return create_app(self._config, [declared], **options).test_client()

    def migrate(self, declared: Resource = NEW) -> Result:
        return self.serve(declared).application.test_cli_runner().invoke(args=["migrate"])


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """A store with the items c, a and b of the old program."""
    made = Deployment(tmp_path)
    old = made.serve(OLD)
    for name in "cab":
        assert old.post("/notes", json={"name": name, "code": f"1{name}"}).status_code == 200
    return made


CONCERNED = [
    ("v1", "name=a"),
    ("v2", "title=a"),
    ("v2", "title[ne]=z"),
    ("v1", "sort=count,-name"),
    ("v2", "sort=title"),
    ("v1", "q=a"),
    ("v2", "q=a"),
]


@pytest.mark.parametrize(("version", "query"), CONCERNED, ids="?".join)
def test_a_list_by_a_changed_field_waits_for_migrate(deployment: Deployment, version: str, query: str) -> None:
    """503, with what is to be done, until no older item is left; from then on it finds all."""
    new = deployment.serve(NEW)
    for _ in range(2):
        refused = new.get(f"/api/{version}/notes?{query}")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert (
            "some items of notes are still to be brought into the present form (`restkeeper migrate`)"
            in (refused.json["detail"])
        )
    assert deployment.migrate().exit_code == 0
    found = new.get(f"/api/{version}/notes?{query}")
    names = [each.get("name", each.get("title")) for each in found.json]
    assert names == {"sort=count,-name": list("cba"), "sort=title": list("abc"), "title[ne]=z": list("cab")}.get(
        query, ["a"]
    )


def test_a_release_leaves_older_programs_their_indexes(deployment: Deployment) -> None:
    """`migrate --prepare` changes no item: the old program still finds each by its unique name, and refuses a twin."""
    old = deployment.serve(OLD)
    prepared = deployment.serve(NEW).application.test_cli_runner().invoke(args=["migrate", "--prepare"])
    assert prepared.exit_code == 0, prepared.output
    assert [item["name"] for item in old.get("/notes?name=a").json] == ["a"]
    assert old.post("/notes", json={"name": "a"}).status_code == 409
    assert deployment.migrate().stdout.startswith("notes: 3 of 3 brought into the present form")


@pytest.mark.parametrize("query", ["", "count=0", "sort=code", "colour[ne]=x", "id[gt]=0", "limit=2", "fields=title"])
def test_other_lists_work_before_migrate(deployment: Deployment, query: str) -> None:
    """Also by fields that were added, whose defaults older items do not have yet."""
    assert deployment.serve(NEW).get(f"/api/v2/notes?{query}").status_code == 200


def test_a_unique_value_is_not_taken_twice(deployment: Deployment) -> None:
    """No item is created and none gets another title; whatever leaves it as it is works, and so does `migrate`."""
    new = deployment.serve(NEW)
    items = {each["title"]: f"/api/v2/notes/{each['id']}" for each in new.get("/api/v2/notes").json}
    for path, body in (("v1", {"name": "a"}), ("v2", {"title": "a"}), ("v2", {"title": "d"})):
        refused = new.post(f"/api/{path}/notes", json=body, headers={"Idempotency-Key": '"k"'})
        assert refused.status_code == 503 and "migrate" in refused.json["detail"]
    assert new.patch(items["a"], json={"title": "b"}).status_code == 503
    changed = new.patch(items["a"], json={"count": 7, "code": "x"})
    assert (changed.status_code, changed.json["title"], changed.json["count"]) == (200, "a", 7)
    assert new.put(items["a"].replace("v2", "v1"), json={"name": "a"}).status_code == 200
    assert new.get(items["b"]).json["title"] == "b"
    assert new.delete(items["c"]).status_code == 200
    assert deployment.migrate().stdout.startswith("notes: 1 of 2 brought into the present form")
    statuses = [new.post("/api/v2/notes", json={"title": title}).status_code for title in "abc"]
    assert statuses == [409, 409, 200]


def test_an_import_waits_for_migrate(deployment: Deployment, tmp_path: Path) -> None:
    """It writes through the same door."""
    (tmp_path / "notes.ndjson").write_text('{"title":"a"}\n')
    runner = deployment.serve(NEW).application.test_cli_runner()
    refused = runner.invoke(args=["import", "notes", f"{tmp_path}/notes.ndjson"])
    assert refused.exit_code == 1 and "(`restkeeper migrate`)" in refused.stderr


def test_an_older_item_after_migrate_counts(deployment: Deployment) -> None:
    """An old process that still runs writes one; a list that was read before is not repeated from the cache."""
    old = deployment.serve(OLD)
    new = deployment.serve(NEW)
    assert deployment.migrate().exit_code == 0
    assert new.get("/api/v2/notes?title=d").json == []
    where = old.post("/notes", json={"name": "d"}).headers["Location"]
    assert new.get("/api/v2/notes?title=d").status_code == 503
    assert new.post("/api/v2/notes", json={"title": "d"}).status_code == 503
    assert old.delete(where).status_code == 200
    assert new.get("/api/v2/notes?title=d").json == []
    assert new.post("/api/v2/notes", json={"title": "d"}).status_code == 200


def test_only_fields_that_changed_since_an_items_revision_wait(deployment: Deployment) -> None:
    """An item of the second revision has its title, and not yet the text of its count."""
    definitions = {"title": NAME, "code": OLD.schema().fields["code"], "number": Text(load_default="0")}
    steps: Sequence[Step] = [Retype("count", COUNT, up=str, down=int), Rename("count", "number")]
    third = resource(definitions, upgrades={2: [Rename("name", "title")], 3: steps}, search=("title",))
    versions = Versions(Version("v1"), unversioned="v1")
    newest = deployment.serve(third, versions)
    path = "/api/v1/notes"
    assert [newest.get(f"{path}?{each}").status_code for each in ("title=a", "number=0", "code=x")] == [503, 503, 200]
    assert deployment.migrate(resource(NEW_SECOND, upgrades={2: [Rename("name", "title")]})).exit_code == 0
    assert [newest.get(f"{path}?{each}").status_code for each in ("title=a", "number=0", "q=a")] == [200, 503, 200]


NEW_SECOND = {"title": NAME, "code": Text(0, 50, load_default=None, allow_none=True), "count": COUNT}


def test_migrate_lists_duplicates_and_finishes(tmp_path: Path) -> None:
    """All others are converted; the message names the collection, the item and the field."""
    deployment = Deployment(tmp_path)
    old = deployment.serve(resource({"name": NAME}))
    ids = [old.post("/notes", json={"name": name}).json["id"] for name in "aab"]
    new = resource({"title": NAME}, indexes=(Index("title", unique=True),), upgrades={2: [Rename("name", "title")]})
    done = deployment.migrate(new)
    assert done.exit_code == 1 and done.stdout == "notes: 2 of 3 brought into the present form\n"
    assert f"notes: the item {ids[1]} cannot be upgraded: another item has this title" in done.stderr
    assert "1 items stay as they were" in done.stderr
    client = deployment.serve(new)
    assert client.get(f"/api/v2/notes/{ids[1]}").json["title"] == "a"
    assert client.delete(f"/api/v2/notes/{ids[0]}").status_code == 200
    assert deployment.migrate(new).exit_code == 0
    assert [each["title"] for each in client.get("/api/v2/notes?sort=title").json] == ["a", "b"]


def test_migrate_converts_values_that_others_had(tmp_path: Path) -> None:
    """Each new value is the old one of another item, so that they must be converted in the right order."""
    deployment = Deployment(tmp_path)
    unique = (Index("count", unique=True),)
    old = deployment.serve(resource({"count": COUNT}, indexes=unique))
    for count in (1, 2, 3):
        old.post("/notes", json={"count": count})
    retype = Retype("count", COUNT, up=lambda value: value + 1, down=lambda value: value - 1)
    new = resource({"count": COUNT}, indexes=unique, upgrades={2: [retype]})
    assert deployment.migrate(new).stdout.startswith("notes: 3 of 3 brought into the present form")
    assert [each["count"] for each in deployment.serve(new).get("/api/v2/notes").json] == [2, 3, 4]


@pytest.mark.parametrize(
    ("step", "fields", "changed"),
    [
        (Rename("name", "title"), {"title": NAME}, "title"),
        (Merge({"name": NAME}, into="title", up=str.upper, down=str.lower), {"title": NAME}, "title"),
        (Retype("name", NAME, up=str.upper, down=str.lower), {"name": NAME}, "name"),
        (Add("other"), {"name": NAME, "other": Text(load_default="")}, ""),
    ],
    ids=["rename", "merge", "retype", "add"],
)
def test_each_step_says_what_it_changes(
    deployment: Deployment, step: Step, fields: dict[str, Any], changed: str
) -> None:
    """All but the additive one."""
    definitions = {**NEW_SECOND, **fields}
    definitions = {name: each for name, each in definitions.items() if name != "title" or "title" in fields}
    client = deployment.serve(resource(definitions, upgrades={2: [step]}))
    refused = {name for name in definitions if client.get(f"/api/v2/notes?sort={name}").status_code == 503}
    assert refused == ({changed} if changed else set())


def test_a_collection_without_upgrades_is_never_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for lists nor for changes: it costs nothing."""
    client = create_app(Config(), [OLD]).test_client()
    store = client.application.extensions["restkeeper"].store
    looked_up: list[str] = []
    count: Callable[..., list[str]] = lambda *arguments: looked_up.append("") or []  # type: ignore[func-returns-value]  # noqa: E731
    for part in (store, store.write(type)):
        monkeypatch.setattr(part, "other_fingerprints", count)
    assert client.post("/notes", json={"name": "a"}).status_code == 200
    assert client.get("/notes?name=a&sort=name&q=a").status_code == 200
    assert looked_up == []

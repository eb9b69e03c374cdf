"""A step, made once: `restkeeper migrate` converts all items of a collection or none, and no program serves others."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from restkeeper.features.webhooks.deliverer import deliverer_of
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.resources.evolution import Add, Convert, Remove, Rename
from restkeeper.resources.migration import ConversionRefused
from restkeeper.resources.resource import Resource
from restkeeper.schemas.fields import Reference, Text, Whole
from restkeeper.schemas.item import ItemSchema
from restkeeper.service import service_of
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Index
from restkeeper.versions import Version, Versions
from tests import stores
from tests.clock import SetClock
from tests.programs import Programs, resource, two_versions
from tests.recorder import next_of
from tests.shop.shapes import TagSchema

pytestmark = pytest.mark.needs("versions")

BOTH = two_versions(unversioned="v1")
NEWEST = Versions(Version("v1"), unversioned="v1")
BOXES = Resource("boxes", "box", ItemSchema.from_dict({"label": Text(load_default="")}))  # type: ignore[arg-type]

NAME = Text(1, 50, required=True)
COUNT = Text(0, 30, load_default="0")
NOTE = Text(load_default="-")
BOX = Reference("boxes", load_default=None, allow_none=True)
OLD = resource(
    {"name": NAME, "count": COUNT, "note": NOTE, "box": BOX}, indexes=(Index("name", unique=True),), search=("name",)
)


CONVERT = Convert({"count": COUNT}, ["count"], up=int, down=str)
NEW = resource(
    {"title": NAME, "count": Whole(load_default=0), "box": BOX, "colour": Text(load_default="red")},
    indexes=(Index("title", unique=True),),
    search=("title",),
    upgrades={2: [Rename("name", "title"), CONVERT, Remove("note", NOTE)], 3: [Add("colour")]},
)


@OLD.action("again")
def again(note: dict[str, Any], store: Any) -> dict[str, Any]:
    """Count it again."""
    return {**note, "count": "9"}


@pytest.fixture
def deployment(tmp_path: Path) -> Programs:
    return Programs(tmp_path, BOXES, versions=BOTH, rate_limit="off", webhook_allow_private=True)


@pytest.fixture
def old(deployment: Programs) -> FlaskClient:
    """The former program, with a box and three items in it."""
    client = deployment.serve(OLD)
    box = client.post("/boxes", json={}).json["id"]
    for number, name in enumerate("cab"):
        sent = {"name": name, "count": str(number), "note": f"about {name}", "box": box}
        assert client.post("/notes", json=sent).status_code == 200
    return client


def store_of(client: FlaskClient) -> Store:
    return service_of(client.application).store


def set_revision(client: FlaskClient, former: int, revision: int) -> None:
    store_of(client).write(
        partial(Transaction.set_revision, collection="notes", old_revision=former, revision=revision, now="")
    )


class TestConverted:
    def test_all_items_have_the_new_form(self, deployment: Programs, old: FlaskClient) -> None:
        """By steps of several revisions; ids, times, versions, and what an older version shows stay."""
        before = old.get("/notes")
        done = deployment.run(NEW, "migrate")
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("notes: all items have revision 3 now\n")
        new = deployment.serve(NEW)
        assert new.get("/api/v1/notes").json == before.json
        expected = [
            {"id": each["id"], "title": each["name"], "count": int(each["count"]), "box": each["box"], "colour": "red"}
            | {name: each[name] for name in ("created_at", "updated_at", "version")}
            for each in before.json
        ]
        assert new.get("/api/v2/notes").json == expected
        for query, found in (("title=a", "a"), ("sort=-title", "cba"), ("q=b", "b"), ("count[gt]=0", "ab")):
            assert "".join(each["title"] for each in new.get(f"/api/v2/notes?{query}").json) == found, query
        assert new.post("/api/v2/notes", json={"title": "a"}).status_code == 409
        assert new.get("/api/v1/notes", headers={"If-None-Match": before.headers["ETag"]}).status_code == 200

    @pytest.mark.sqlite
    def test_a_start_converts(self, deployment: Programs, old: FlaskClient, capfd: pytest.CaptureFixture[str]) -> None:
        """On SQLite, as its last step; also what a restore brings. No other command does: it names `migrate`."""
        refused = deployment.run(NEW, "export", "notes")
        assert (refused.exit_code, refused.stdout) == (1, "")
        to_do = "the items of notes have revision 1, this program has revision 3: run `restkeeper migrate`"
        assert refused.stderr == f"Error: {to_do}\n"
        new = deployment.serve(NEW)
        assert capfd.readouterr().err == "restkeeper: the items of notes have revision 3 now\n"
        assert [each["title"] for each in new.get("/api/v2/notes").json] == ["c", "a", "b"]

    @pytest.mark.parametrize("by", ["a start", "migrate"])
    def test_an_empty_collection(self, deployment: Programs, tmp_path: Path, by: str) -> None:
        """Also a start on PostgreSQL converts it; then the former program is out. No other command does."""
        old = deployment.serve(OLD)
        (tmp_path / "notes.ndjson").write_text('{"title":"b"}')
        for arguments in (["migrate", "--prepare"], ["import", "notes", f"{tmp_path}/notes.ndjson"], ["reap"]):
            deployment.run(NEW, *arguments)
            assert old.get("/notes").json == []
        id = old.post("/notes", json={"name": "a"}).json["id"]
        assert old.post("/notes", json={"name": "a"}).status_code == 409  # as before the `--prepare`
        assert old.delete(f"/notes/{id}").status_code == 200
        new = deployment.upgrade(NEW) if by == "migrate" else deployment.serve(NEW)
        assert not list(tmp_path.glob("store.db.notes-*"))
        for client in (old, deployment.serve(OLD)):
            assert client.post("/notes", json={"name": "a"}).status_code == 503
        assert new.post("/api/v2/notes", json={"title": "a"}).status_code == 200


REQUESTS: dict[str, tuple[str, str, Any]] = {
    "a list": ("GET", "/notes", None),
    "a filter": ("GET", "/notes?name=x", None),
    "a count": ("GET", "/notes?limit=1&count=name", None),
    "a cursor": ("GET", "{next}", None),
    "an item": ("GET", "/notes/{id}", None),
    "an embed": ("GET", "/boxes?embed=notes", None),
    "a nested list": ("GET", "/boxes/{box}/notes", None),
    "create": ("POST", "/notes", {"name": "x"}),
    "an array": ("POST", "/notes", [{"name": "x"}]),
    "replace": ("PUT", "/notes/{id}", {"name": "x"}),
    "merge": ("PATCH", "/notes/{id}", {"name": "x"}),
    "delete": ("DELETE", "/notes/{id}", None),
    "an action": ("POST", "/notes/{id}/again", {}),
    "what it refers to": ("DELETE", "/boxes/{box}", None),
    "a batch": ("POST", "/api/v1/batch", {"operations": [{"method": "POST", "path": "/notes", "body": {"name": "x"}}]}),
}


class TestFormerProgram:
    @pytest.fixture
    def request_of(self, old: FlaskClient) -> Any:
        """What the former program responds to one of REQUESTS."""
        page = old.get("/notes?limit=1&sort=name")
        values = {"next": next_of(page), "id": page.json[0]["id"], "box": page.json[0]["box"]}

        def send(name: str) -> TestResponse:
            method, path, body = REQUESTS[name]
            return old.open(path.format(**values), method=method, json=body)

        return send

    @pytest.mark.needs("batch")
    def test_it_is_refused(self, deployment: Programs, old: FlaskClient, request_of: Any) -> None:
        """Each request that reads or writes such items is a 503 with the remedy, and changes nothing."""
        new = deployment.upgrade(NEW)
        before = new.get("/api/v2/notes").json
        for name in REQUESTS:
            refused = request_of(name)
            assert (refused.status_code, refused.headers.get("Retry-After")) == (503, "1"), (name, refused.json)
            detail = "the items of notes have (revision 3|another revision), this program has revision 1: "
            assert re.search(detail, refused.json["detail"]), name
        assert new.get("/api/v2/notes").json == before

    @pytest.mark.needs("health", "webhooks", "pages", "browse", "openapi")
    def test_other_collections_go_on(self, deployment: Programs, old: FlaskClient) -> None:
        """And `/readyz` says which one does not. Pages that are about all of them leave out what they cannot know."""
        assert old.get("/readyz").json == {"status": "ok", "store": "ok"}
        deployment.upgrade(NEW)
        assert old.post("/boxes", json={}).status_code == 200 and len(old.get("/boxes").json) == 2
        ready = old.get("/readyz")
        detail = "the items of notes have revision 3, this program has revision 1: update this program"
        assert (ready.status_code, ready.json["differing"]) == (200, [detail])
        assert [each.get("items") for each in old.get("/").json["collections"]] == [None, 2]
        for path in ("/", "/browse", "/docs", "/openapi.json"):
            assert old.get(path, headers={"Accept": "*/*" if "." in path else "text/html"}).status_code == 200, path

    def test_while_items_are_converted(self, deployment: Programs, old: FlaskClient, request_of: Any) -> None:
        """The former program still reads one item; all else waits. After an interruption, it can serve again."""
        set_revision(old, 1, -1)
        for name in REQUESTS:
            response = request_of(name)
            assert response.status_code == (200 if name == "an item" else 503), name
        assert "are being converted" in request_of("a list").json["detail"]
        done = deployment.run(NEW, "migrate", "--cancel")
        assert (done.exit_code, done.stdout) == (0, "notes: revision 1, as before\n")
        assert old.post("/notes", json={"name": "d"}).status_code == 200
        set_revision(old, 1, -1)
        assert len(deployment.upgrade(NEW).get("/api/v2/notes?sort=title").json) == 4

    @pytest.mark.needs("events")
    def test_the_feed(self, deployment: Programs, old: FlaskClient) -> None:
        """It is a 503 from the first event of a later revision on, and goes on for callers who leave that out."""
        new = deployment.upgrade(NEW)
        new.post("/api/v2/notes", json={"title": "d"})
        assert old.get("/api/v1/events").status_code == 503
        assert [each["type"] for each in old.get("/api/v1/events?collection=boxes").json] == ["box.created"]
        assert "".join(each["data"]["name"] for each in new.get("/api/v1/events?collection=notes").json) == "cabd"

    @pytest.mark.needs("webhooks")
    def test_its_webhook_worker_sends_nothing(self, deployment: Programs) -> None:
        """Of a later revision: it leases no more after the first, which the new one sends when that has expired."""
        clock, sent = SetClock(), list[Any]()

        def send(url: str, headers: Any, body: bytes) -> DeliveryResult:
            sent.append(json.loads(body)["data"])
            return DeliveryResult(200, "", None)

        old = deployment.serve(OLD, clock=clock)
        new = deployment.serve(NEW, clock=clock)
        workers = [deliverer_of(service_of(each.application), send) for each in (old, new)]
        old.post("/api/v1/webhooks", json={"url": "http://x.example"})
        new.post("/api/v2/notes", json={"title": "d"})
        new.post("/api/v2/notes", json={"title": "e"})
        assert [workers[0].deliver_once() for _ in "abc"][1:] == [0, 0] and sent == []
        clock.now += 1000.0
        assert workers[0].deliver_once() == 0
        while workers[1].deliver_once():
            pass
        assert sorted(each["name"] for each in sent) == ["d", "e"]
        set_revision(old, 3, 1)  # as after a restore
        assert old.post("/notes", json={"name": "f"}).status_code == 200
        assert workers[0].deliver_once() == 1 and sent[2]["name"] == "f"


def refusal(deployment: Programs, declared: Resource, *arguments: str, versions: Versions = BOTH) -> list[str]:
    """The lines of a `migrate` that is refused, without the collection's name."""
    done = deployment.run(declared, "migrate", *arguments, versions=versions)
    assert (done.exit_code, done.stdout) == (1, ""), done.output
    *lines, remedy = done.stderr.removeprefix("Error: ").replace("notes: ", "").splitlines()
    assert remedy.startswith("nothing was changed: ") and ("--accept" in remedy) is (" would be " in lines[0])
    return lines


class TestRefused:
    """Nothing is changed, and the former program serves on."""

    @pytest.fixture(autouse=True)
    def unchanged(self, old: FlaskClient) -> Any:
        yield
        store = store_of(old)
        assert store.stored()["notes"][0] == 1 and {each.fingerprint for each in store.scan("notes")} == {
            OLD.newest.fingerprint
        }
        assert old.get("/notes?name=a").json[0]["note"] == "about a"
        assert old.post("/notes", json={"name": "last"}).status_code == 200

    def test_a_step_refuses_values(self, deployment: Programs, old: FlaskClient) -> None:
        """The first 20 are listed, and their number; a start on SQLite says the same. Whatever the step makes."""
        ids = [old.post("/notes", json={"name": f"n{n}", "count": f"no {n}"}).json["id"] for n in range(22)]
        lines = refusal(deployment, NEW)
        reason = "has no equivalent in newer versions"
        assert lines == [*(f'the item {ids[n]}: count "no {n}": {reason}' for n in range(20)), "and 2 more"]
        with pytest.raises(StoreUnavailable if "postgresql" in stores.url(deployment.url) else ConversionRefused):
            deployment.serve(NEW)
        for id in ids:
            old.delete(f"/notes/{id}")
        id = old.post("/notes", json={"name": "x", "count": "9" * 20}).json["id"]
        assert refusal(deployment, NEW) == [f'the item {id}: count "{"9" * 20}": must be an integer of 64 bits']


@pytest.mark.parametrize(("options", "versions", "count"), [(["--accept"], BOTH, "7"), ([], NEWEST, 7)])
def test_another_value_of_an_older_version_is_accepted(
    deployment: Programs, old: FlaskClient, options: list[str], versions: Versions, count: Any
) -> None:
    """Else it is refused, unless none of the former revision is served: nobody would see it."""
    where = old.post("/notes", json={"name": "x", "count": "007"}).headers["Location"]
    id = where.rpartition("/")[2]
    assert refusal(deployment, NEW) == [f'the item {id}: count "007" would be "7" in v1']
    assert deployment.upgrade(NEW, *options, versions=versions).get(where).json["count"] == count


@pytest.mark.needs("events")
def test_an_event_stays_in_its_form(deployment: Programs, old: FlaskClient) -> None:
    """It is converted when it is read: what a step refuses has the server's fields only, but in its own version."""
    made = old.post("/notes", json={"name": "x", "count": "seven"}).json
    old.delete(f"/notes/{made['id']}")
    new = deployment.upgrade(NEW)
    own, newest = (new.get(f"/api/{each}/events?collection=notes").json[-2:] for each in ("v1", "v2"))
    assert [each["data"] for each in own] == [made, made]
    expected = {name: made[name] for name in ("id", "created_at", "updated_at", "version")}
    assert [each["data"] for each in newest] == [expected, expected]
    assert [each["data"]["count"] for each in new.get("/api/v2/events?collection=notes&limit=3").json] == [0, 1, 2]


@pytest.mark.needs("events")
def test_an_event_shows_nothing_hidden(deployment: Programs) -> None:
    """Also one that a step refuses."""

    def declared(field: Any, **options: Any) -> Resource:
        schema: Any = TagSchema.from_dict({"count": field}, name="Notes")
        return Resource("notes", "note", schema, **options)

    old = deployment.serve(declared(COUNT))
    made = old.post("/notes", json={"name": "x", "count": "seven"}).json
    old.delete(f"/notes/{made['id']}")
    new = deployment.upgrade(declared(Whole(load_default=0), upgrades={2: [CONVERT]}), versions=NEWEST)
    found = [each["data"] for each in new.get("/api/v1/events?collection=notes").json]
    assert found == [{"id": made["id"]}] * 2


@pytest.mark.needs("events")
def test_an_event_whose_steps_are_gone(deployment: Programs) -> None:
    """Stored items need them no more. It has the server's fields only, and the feed goes on."""
    made = deployment.serve(resource({"name": NAME})).post("/notes", json={"name": "a"}).json
    steps = {2: [Rename("name", "title")], 3: [Rename("title", "label")]}
    deployment.upgrade(resource({"title": NAME}, *steps[2]), versions=NEWEST)
    deployment.upgrade(resource({"label": NAME}, upgrades=steps), versions=NEWEST)
    new = deployment.serve(resource({"label": NAME}, upgrades={3: steps[3]}), versions=NEWEST)
    later = new.post("/notes", json={"label": "b"}).json
    found = [each["data"] for each in new.get("/api/v1/events?collection=notes").json]
    assert found == [{name: made[name] for name in ("id", "created_at", "updated_at", "version")}, later]


class TestUnique:
    """A new unique field, which changes no item, over items that have the same value."""

    UNIQUE = resource({"name": NAME}, indexes=(Index("name", unique=True),))

    def test_each_command_names_the_items(self, deployment: Programs) -> None:
        """As a start does. They can be exported meanwhile, and changed by the former program."""
        old = deployment.serve(resource({"name": NAME}))
        ids = [old.post("/notes", json={"name": name}).json["id"] for name in "aab"]
        refusal = f'notes have the same name, which must be unique ("a": {ids[0]}, {ids[1]}; change or delete'
        for arguments in (["migrate"], ["migrate", "--prepare"], ["reap"]):
            refused = deployment.run(self.UNIQUE, *arguments)
            assert (refused.exit_code, refused.stdout) == (1, "")
            assert refused.stderr.startswith(f"Error: some items of {refusal}")
        with pytest.raises(StoreUnavailable) as caught:
            deployment.serve(self.UNIQUE)
        assert refusal in str(caught.value)
        exported = deployment.run(self.UNIQUE, "export", "notes")
        assert exported.exit_code == 0 and [json.loads(line)["id"] for line in exported.stdout.splitlines()] == ids
        assert old.patch(f"/notes/{ids[1]}", json={"name": "c"}).status_code == 200
        assert deployment.run(self.UNIQUE, "migrate", "--prepare").exit_code == 0

    @pytest.mark.sqlite
    def test_a_backup_is_made_before(self, deployment: Programs, tmp_path: Path) -> None:
        old = deployment.serve(resource({"name": NAME}))
        assert [old.post("/notes", json={"name": "a"}).status_code for _ in "ab"] == [200, 200]
        done = deployment.run(self.UNIQUE, "backup", f"{tmp_path}/backup.db")
        assert done.stdout == f"backed up to {tmp_path}/backup.db\n"

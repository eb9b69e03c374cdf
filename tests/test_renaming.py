"""A collection that has another name, or goes: its items, and all that is named after it."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import Result
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.features.webhooks import deliverer_of
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.resources.evolution import Convert, Rename
from restkeeper.resources.resource import Ownership, Resource
from restkeeper.schemas.fields import ListOf, Reference, Text
from restkeeper.schemas.item import ItemSchema
from restkeeper.service import service_of
from restkeeper.storage.base import Store
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import GONE, Index
from tests import stores
from tests.callers import ADMIN, ADMIN_KEY, make_key
from tests.callers import key as key_of
from tests.shop import create_app

NAME = Text(1, 50, required=True)
TAGS = ListOf(Text(), load_default=list)
INDEXES = (Index("name", unique=True), Index("tags"))
NO_RESOURCE = (
    'of notes, which no resource serves: if no newer program does, `Resource(…, formerly="notes")`, '
    "or `restkeeper forget notes`"
)


def declared(name: str = "notes", singular: str = "note", fields: dict[str, Any] | None = None, **options: Any) -> Any:
    schema = ItemSchema.from_dict(fields or {"name": NAME, "tags": TAGS}, name="Notes")
    return Resource(name, singular, schema, **{"indexes": INDEXES} | options)  # type: ignore[arg-type]


NOTES = declared()
MEMOS = declared("memos", "memo", formerly="notes")


def tasks(to: str) -> Resource:
    schema = ItemSchema.from_dict({"about": Reference(to, load_default=None, allow_none=True)}, name="Tasks")
    return Resource("tasks", "task", schema)  # type: ignore[arg-type]


class Programs:
    """Programs that follow each other on the store of a folder."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.url = f"sqlite:///{folder}/store.db"
        settings = {"idempotency": "optional", "rate_limit": "off"} | settings
        self._config = Config(database_url=self.url, **settings)

    def serve(self, *resources: Resource, **options: Any) -> FlaskClient:
        return create_app(self._config, resources, **options).test_client()

    def run(self, resources: tuple[Resource, ...], *arguments: str, **options: Any) -> Result:
        app = self.serve(*resources, serves=False).application
        done = app.test_cli_runner().invoke(args=arguments, **options)
        service_of(app).store.close()
        return done

    def migrate(self, *resources: Resource) -> FlaskClient:
        done = self.run(resources, "migrate")
        assert done.exit_code == 0, (done.output, done.exception)
        return self.serve(*resources)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def store_of(client: FlaskClient) -> Store:
    return service_of(client.application).store


def post(client: FlaskClient, path: str, sent: Any, **options: Any) -> Any:
    answered = client.post(path, json=sent, **options)
    assert answered.status_code == 200, answered.json
    return answered.json


def test_it_has_the_items_under_the_new_name(programs: Programs) -> None:
    """Each as it was, and found by the indexes of the new name; those of the former one are deleted."""
    old = programs.serve(NOTES)
    items = [post(old, "/notes", {"name": name, "tags": [name, "all"]}) for name in "abc"]
    new = programs.migrate(MEMOS)
    assert new.get("/memos").json == items and new.get("/notes").status_code == 404
    for item in items:
        assert new.get(f"/memos/{item['id']}").json == item
        assert new.get(f"/memos?name={item['name']}").json == new.get(f"/memos?tags={item['name']}").json == [item]
    assert new.post("/memos", json={"name": "a"}).status_code == 409
    assert store_of(new).tidy("notes") == []
    assert len(new.get("/memos?tags=all").json) == 3 and new.get("/memos").headers["X-Total-Count"] == "3"


def test_an_integer_id_is_greater_than_all_before(programs: Programs) -> None:
    old = programs.serve(declared(ids="integer"))
    for name in "abc":
        post(old, "/notes", {"name": name})
    assert old.delete("/notes/3").status_code == 200
    new = programs.migrate(declared("memos", "memo", formerly="notes", ids="integer"))
    assert post(new, "/memos", {"name": "d"})["id"] == 4


def test_a_singleton(programs: Programs) -> None:
    fields = {"name": Text(load_default="")}
    old = programs.serve(declared("settings", "setting", fields, singleton=True, indexes=()))
    assert old.patch("/settings", json={"name": "x"}).status_code == 200
    new = programs.migrate(
        declared("options", "option", fields, singleton=True, indexes=(), formerly="settings"),
    )
    assert new.get("/options").json == {"name": "x"}
    assert new.patch("/options", json={"name": "y"}).json == new.get("/options").json == {"name": "y"}


def test_what_refers_to_the_items(programs: Programs) -> None:
    """It does so under the new name, also where a program does not know of it."""
    old = programs.serve(NOTES, tasks("notes"))
    note = post(old, "/notes", {"name": "a"})
    task = post(old, "/tasks", {"about": note["id"]})
    new = programs.migrate(MEMOS, tasks("memos"))
    assert new.get(f"/tasks/{task['id']}?embed=about").json["about"] == note
    assert new.get(f"/memos/{note['id']}?embed=tasks").json["tasks"] == [task]
    assert new.delete(f"/memos/{note['id']}").status_code == 409
    blind = programs.serve(MEMOS)
    assert blind.delete(f"/memos/{note['id']}").status_code == 503


def test_a_step_at_the_same_time(programs: Programs) -> None:
    """All is done, or nothing: what a step refuses leaves the former program as it was."""
    old = programs.serve(NOTES)
    items = [post(old, "/notes", {"name": name, "tags": ["x"]}) for name in ("a", "A")]
    fields = {"title": NAME, "tags": TAGS}
    unique = {"formerly": "notes", "indexes": (Index("title", unique=True), Index("tags"))}
    upper = Convert({"name": NAME}, ["title"], up=str.upper, down=str)
    refused = programs.run((declared("memos", "memo", fields, upgrades={2: [upper]}, **unique),), "migrate", "--accept")
    assert refused.exit_code == 1 and '"A": another item has it, too' in refused.stderr
    assert old.get("/notes").json == items and post(old, "/notes", {"name": "b"})
    renamed = declared("memos", "memo", fields, upgrades={2: [Rename("name", "title")]}, **unique)
    new = programs.migrate(renamed)
    assert [each["title"] for each in new.get("/memos?sort=title").json] == ["A", "a", "b"]
    assert [each["title"] for each in new.get("/memos?tags=x&title=A").json] == ["A"]


def test_another_schema_without_a_step_is_refused(programs: Programs) -> None:
    old = programs.serve(NOTES)
    post(old, "/notes", {"name": "a"})
    fields = {"title": NAME, "tags": TAGS}
    done = programs.run((declared("memos", "memo", fields, indexes=(), formerly="notes"),), "migrate")
    assert done.exit_code == 1 and 'Rename("name", "title")' in done.stderr
    assert len(old.get("/notes").json) == 1


def test_items_of_other_programs_of_the_schema_are_as_they_were(programs: Programs) -> None:
    fields = {"name": NAME, "tags": TAGS, "colour": Text(load_default="red")}
    plain, more = programs.serve(NOTES), programs.serve(declared(fields=fields))
    notes = [post(plain, "/notes", {"name": "a"}), post(more, "/notes", {"name": "b", "colour": "blue"})]
    new = programs.migrate(declared("memos", "memo", fields, formerly="notes"))
    shown = new.get("/memos").json
    assert [each["colour"] for each in shown] == ["red", "blue"] and shown[1] == notes[1]


@pytest.mark.needs("events")
def test_events(programs: Programs) -> None:
    """They are those of the new name; a cursor from before continues."""
    old = programs.serve(NOTES, tasks("notes"))
    post(old, "/notes", {"name": "a"})
    first = old.get("/api/v1/events?limit=1").json
    item = post(old, "/notes", {"name": "b"})
    post(old, "/tasks", {})
    new = programs.migrate(MEMOS, tasks("memos"))
    assert new.patch(f"/memos/{item['id']}", json={"name": "c"}).status_code == 200
    events = new.get(f"/api/v1/events?after={first[0]['id']}").json
    assert [each["type"] for each in events] == ["memo.created", "task.created", "memo.updated"]
    assert events[0]["data"] == item
    assert new.get("/api/v1/events?type=memo.created&limit=1").json[0]["id"] == first[0]["id"]


@pytest.mark.needs("keys", "webhooks")
def test_scopes_of_keys_and_webhooks(tmp_path: Path) -> None:
    """And the types of events that webhooks subscribe to; but not what another part of the service still needs."""
    programs = Programs(tmp_path, auth="required", admin_key=ADMIN_KEY)
    fields = {"name": NAME, "secret": Text(0, 50, load_default="", readable_by="notes:manage")}
    options: dict[str, Any] = {"indexes": (), "ownership": Ownership.ALL}
    old = programs.serve(declared(fields=fields, **options), tasks("notes"))
    scopes = ["notes:read", "notes:write", "notes:all", "notes:manage", "tasks:read"]
    caller = make_key(old, *scopes, name="one")
    other = make_key(old, "tasks:read", name="other")
    sent = {"url": "https://a.example/", "types": ["note.*", "note.created", "task.*", "*"], "scopes": ["notes:manage"]}
    webhook = post(old, "/api/v1/webhooks", sent, headers=ADMIN)
    caller, other = ({"X-API-Key": each["secret"]} for each in (caller, other))
    note = post(old, "/notes", {"name": "a", "secret": "x"}, headers=caller)
    before = old.get("/api/v1/keys", headers=ADMIN)
    new = programs.migrate(declared("memos", "memo", fields, formerly="notes", **options), tasks("memos"))
    after = new.get("/api/v1/keys", headers=ADMIN)
    had, has = ({each["name"]: each for each in answered.json} for answered in (before, after))
    assert has["one"]["scopes"] == ["memos:read", "memos:write", "memos:all", "notes:manage", "tasks:read"]
    assert has["other"] == had["other"] and after.headers["ETag"] != before.headers["ETag"]
    assert new.get(f"/memos/{note['id']}", headers=caller).json == note
    assert new.patch(f"/memos/{note['id']}", json={"name": "b"}, headers=caller).status_code == 200
    assert new.get("/memos", headers=other).status_code == 403
    moved = new.get(f"/api/v1/webhooks/{webhook['id']}", headers=ADMIN).json
    assert moved["types"] == ["memo.*", "memo.created", "task.*", "*"]
    assert moved["scopes"] == ["notes:manage"] and moved["version"] == 2


@pytest.mark.needs("webhooks")
@pytest.mark.parametrize(
    ("former", "singular"), [("notes", "note"), ("boxes", "box"), ("stories", "story"), ("staff", "staff")]
)
def test_types_without_events(programs: Programs, former: str, singular: str) -> None:
    """What they are called follows from the name of the collection then."""
    old = programs.serve(declared(former, singular))
    made = post(old, "/api/v1/webhooks", {"url": "https://a.example/", "types": [f"{singular}.*"]})
    new = programs.migrate(declared("memos", "memo", formerly=former))
    assert new.get(f"/api/v1/webhooks/{made['id']}").json["types"] == ["memo.*"]


@pytest.mark.needs("webhooks")
def test_queued_deliveries(programs: Programs) -> None:
    """They are sent, each under the new name, and those of one item in order."""
    got, is_broken = list[Any](), [True]

    def send(url: str, headers: Any, body: bytes) -> DeliveryResult:
        got.append(orjson.loads(body))
        return DeliveryResult(500 if is_broken else 200, "", None)

    old = programs.serve(NOTES)
    post(old, "/api/v1/webhooks", {"url": "https://a.example/", "types": ["note.*"]})
    note = post(old, "/notes", {"name": "a"})
    former = deliverer_of(service_of(old.application), send)
    assert former.deliver_once() == 1 and got[0]["type"] == "note.created"  # which fails: there will be a retry
    former.close()
    new = programs.migrate(MEMOS)
    post(new, "/memos", {"name": "b"})
    assert new.patch(f"/memos/{note['id']}", json={"name": "c"}).status_code == 200
    is_broken.clear()
    got.clear()
    latter = deliverer_of(service_of(new.application), send)
    while latter.deliver_once():
        pass
    assert [each["type"] for each in got] == ["memo.created"]  # of b: an event of a waits for the retry
    (webhook,) = new.get("/api/v1/webhooks").json
    assert new.patch(f"/api/v1/webhooks/{webhook['id']}", json={"status": "paused"}).status_code == 200
    assert new.patch(f"/api/v1/webhooks/{webhook['id']}", json={"status": "active"}).status_code == 200  # all is due
    while latter.deliver_once():
        pass
    latter.close()
    assert [(each["type"], each["data"]["name"]) for each in got[1:]] == [("memo.created", "a"), ("memo.updated", "c")]


@pytest.mark.needs("keys")
def test_a_scope_that_something_else_needs_stays_beside_the_new_one(tmp_path: Path) -> None:
    programs = Programs(tmp_path, auth="required", admin_key=ADMIN_KEY)
    callers = make_key(programs.serve(NOTES), "notes:read", "notes:write", "admin")
    counting = declared("tasks", "task")
    counting.action("count", scope="notes:read", of="collection")(lambda items: 0)
    new = programs.migrate(MEMOS, counting)
    (key,) = new.get("/api/v1/keys", headers={"X-API-Key": callers["secret"]}).json
    assert key["scopes"] == ["memos:read", "notes:read", "memos:write", "admin"]


@pytest.mark.needs("keys")
def test_the_path_can_stay(tmp_path: Path) -> None:
    """And the scopes with it."""
    programs = Programs(tmp_path, auth="required", admin_key=ADMIN_KEY)
    old = programs.serve(NOTES)
    caller = key_of(old, "notes:read", "notes:write")
    note = post(old, "/notes", {"name": "a"}, headers=caller)
    new = programs.migrate(declared("memos", "memo", formerly="notes", path="notes"))
    assert new.get("/notes", headers=caller).json == [note]


def test_it_is_done_once(programs: Programs) -> None:
    programs.serve(NOTES).post("/notes", json={"name": "a"})
    new = programs.migrate(MEMOS)
    before = new.get("/memos")
    done = programs.run((MEMOS,), "migrate")
    assert (done.exit_code, done.stdout) == (0, "memos: 1 items, 0 of them completed now\n")
    assert new.get("/memos").headers["ETag"] == before.headers["ETag"]


def test_both_have_items(programs: Programs) -> None:
    """Then it is refused, with what to do, and changes nothing."""
    both = programs.serve(NOTES, declared("memos", "memo"))
    for path in ("/notes", "/memos"):
        post(both, path, {"name": "a"})
    done = programs.run((MEMOS,), "migrate")
    assert done.exit_code == 1 and "memos has 1 items, so that those of notes cannot be moved: " in done.stderr
    assert len(both.get("/notes").json) == len(both.get("/memos").json) == 1
    both.delete(f"/memos/{both.get('/memos').json[0]['id']}")
    assert len(programs.migrate(MEMOS).get("/memos").json) == 1


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ([NOTES, MEMOS], "formerly='notes': is served: rename that collection first, and this one a release later"),
        ([declared("a", "b", formerly="b"), declared("b", "c", formerly="a")], "formerly='b': is served: "),
        ([declared("a", "b", path="notes"), MEMOS], "formerly='notes': is served: "),
        ([declared("notes", "note", formerly="notes")], "formerly='notes': is served: "),
        ([declared("a", "b", formerly="notes"), MEMOS], "formerly='notes': is that of two collections"),
        ([declared("a", "b", formerly="keys")], "formerly='keys': is that of the service"),
    ],
    ids=["served", "an exchange", "a path", "itself", "two", "keys"],
)
def test_names_that_cannot_be(resources: list[Resource], reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        create_app(Config(), resources)


def test_a_name_that_is_none() -> None:
    with pytest.raises(ValueError, match="'my notes' is no name"):
        declared("memos", "memo", formerly="my notes")


def test_a_release_later_the_name_can_be_used_again(programs: Programs) -> None:
    """By the next rename of the same items, and after `restkeeper forget` by a new collection."""
    programs.serve(NOTES).post("/notes", json={"name": "a"})
    programs.migrate(MEMOS)
    records = declared("records", "record", formerly="memos")
    assert len(programs.migrate(records).get("/records").json) == 1
    with pytest.raises(
        StoreUnavailable, match="of another collection now: .* `restkeeper forget notes`, which deletes no"
    ):
        programs.serve(NOTES, records)
    refused = programs.run((NOTES, records), "forget", "notes", "--yes")
    assert refused.exit_code == 1 and "let the program that serves those items run" in refused.stderr, refused.stderr
    done = programs.run((records,), "forget", "notes", "--yes")
    assert done.exit_code == 0, (done.output, done.exception)
    again = programs.serve(NOTES, records)
    assert again.get("/notes").json == [] and post(again, "/notes", {"name": "a"})
    assert len(again.get("/notes?name=a").json) == 1


class TestFormerProgram:
    """What runs while its collection is moved, or starts after it."""

    @pytest.fixture
    def old(self, programs: Programs) -> FlaskClient:
        return programs.serve(NOTES, tasks("notes"))

    @pytest.fixture
    def task(self, old: FlaskClient) -> Any:
        return post(old, "/tasks", {"about": post(old, "/notes", {"name": "a"})["id"]})

    @pytest.mark.needs("batch", "events")
    def test_it_is_refused(self, programs: Programs, old: FlaskClient, task: Any) -> None:
        """Lists, creates and events are a 503, one item is not there, and nothing is stored; others go on."""
        after = old.get("/api/v1/events?limit=1").json[0]["id"]
        programs.migrate(MEMOS, tasks("memos"))
        note, operation = f"/notes/{task['about']}", {"method": "POST", "path": "/notes", "body": {"name": "b"}}
        for method, path, sent in (
            ("GET", note, None),
            ("GET", f"{note}/tasks", None),
            ("PUT", note, {"name": "b"}),
            ("PATCH", note, {"name": "b"}),
            ("DELETE", note, None),
        ):
            assert old.open(path, method=method, json=sent).status_code == 404
        assert old.post("/tasks", json={"about": task["about"]}).status_code == 422
        for method, path, sent in (
            ("GET", "/notes", None),
            ("GET", "/notes?name=a", None),
            ("GET", "/notes?tags=a", None),
            ("POST", "/notes", {"name": "b"}),
            ("POST", "/notes", [{"name": "b"}]),
            ("POST", "/api/v1/batch", {"operations": [operation]}),
            ("GET", f"/api/v1/events?after={after}", None),
            ("GET", "/api/v1/events?collection=notes", None),
        ):
            refused = old.open(path, method=method, json=sent)
            assert refused.status_code == 503, (method, path, refused.json)
            assert "of another collection now" in refused.json["detail"] or "another revision" in refused.json["detail"]
        assert old.get("/tasks").json == [task] and post(old, "/tasks", {})
        assert old.get("/api/v1/events?collection=tasks&limit=1").status_code == 200
        ready = old.get("/readyz").json
        assert "notes are of another collection now" in ready["differing"][0]
        assert "memos, which no resource serves: update this program" in ready["unserved"][0]
        assert "forget" not in str(ready)

    @pytest.mark.needs("webhooks")
    def test_its_worker_skips_no_event(self, programs: Programs, old: FlaskClient) -> None:
        """It sends nothing any more, and the one of the next program all."""
        post(old, "/api/v1/webhooks", {"url": "https://a.example/"})
        new, types = programs.migrate(MEMOS, tasks("memos")), list[str]()

        def send(url: str, headers: Any, body: bytes) -> DeliveryResult:
            types.append(orjson.loads(body)["type"])
            return DeliveryResult(200, "", None)

        post(new, "/tasks", {})
        former, latter = (deliverer_of(service_of(each.application), send) for each in (old, new))
        post(new, "/memos", {"name": "a"})
        assert former.deliver_once() == 0
        while latter.deliver_once():
            pass
        assert sorted(types) == ["memo.created", "task.created"]
        former.close()
        latter.close()

    def test_it_does_not_start(self, programs: Programs, task: Any) -> None:
        new = programs.migrate(MEMOS, tasks("memos"))
        with pytest.raises(StoreUnavailable, match="the items of notes are of another collection now: update this"):
            programs.serve(NOTES, tasks("notes"))
        assert len(new.get("/memos").json) == 1

    def test_what_is_stored_by_no_command(
        self, programs: Programs, old: FlaskClient, task: Any, tmp_path: Path
    ) -> None:
        """Before the items are moved, none reads or writes the collection without them."""
        (tmp_path / "memos.ndjson").write_text('{"name":"b"}')
        for arguments in (("export", "memos"), ("import", "memos", f"{tmp_path}/memos.ndjson")):
            refused = programs.run((MEMOS, tasks("memos")), *arguments)
            assert refused.exit_code == 1 and "the items of memos " in refused.stderr, refused.stderr
        assert len(old.get("/notes").json) == 1

    def test_a_start(
        self, programs: Programs, task: Any, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
    ) -> None:
        """It moves them on SQLite, as it converts; on PostgreSQL it names the command."""
        if request.config.getoption("--store") == "postgresql":
            with pytest.raises(StoreUnavailable, match="items of notes are to be those of memos: run `restkeeper mig"):
                programs.serve(MEMOS, tasks("memos"))
            return
        new = programs.serve(MEMOS, tasks("memos"))
        assert capfd.readouterr().err == "restkeeper: the items of memos have come from notes\n"
        assert len(new.get("/memos").json) == 1


class TestUnserved:
    @pytest.fixture
    def old(self, programs: Programs) -> FlaskClient:
        """A service with two notes, a key and a webhook."""
        old = programs.serve(declared(ids="integer"), declared("tasks", "task"))
        for name in "ab":
            post(old, "/notes", {"name": name})
        return old

    @pytest.mark.needs("keys", "webhooks", "health")
    def test_it_is_said(self, programs: Programs, old: FlaskClient, capfd: pytest.CaptureFixture[str]) -> None:
        """By a start, `migrate` and `/readyz`, which stays 200; keys and what closed features have are not."""
        post(old, "/api/v1/keys", {"name": "x", "scopes": ["notes:read"]})
        post(old, "/api/v1/webhooks", {"url": "https://a.example/"})
        capfd.readouterr()
        new = programs.serve(declared("memos", "memo"), without={"keys", "webhooks"})
        line = f"the store has 2 items {NO_RESOURCE}"
        assert capfd.readouterr().err == f"restkeeper: {line}\n"
        ready = new.get("/readyz")
        assert (ready.status_code, ready.json) == (200, {"status": "ok", "store": "ok", "unserved": [line]})
        assert programs.run((declared("memos", "memo"),), "migrate").stderr == f"{line}\n"
        refused = programs.run((declared("memos", "memo"),), "export", "notes")
        assert refused.stderr == f"Error: there is no collection 'notes'; {line}\n"
        old.delete("/notes/1")
        assert f"1 item {NO_RESOURCE}" in new.get("/readyz").json["unserved"][0]
        old.delete("/notes/2")
        assert "unserved" not in new.get("/readyz").json

    def test_not_what_is_served_or_in_memory(self, old: FlaskClient, capfd: pytest.CaptureFixture[str]) -> None:
        assert "unserved" not in old.get("/readyz").json
        memory = create_app(Config(), [NOTES]).test_client()
        assert "unserved" not in memory.get("/readyz").json and capfd.readouterr().err == ""

    @pytest.mark.parametrize(
        ("resources", "name", "reason"),
        [
            (
                (declared(ids="integer"), declared("tasks", "task")),
                "notes",
                "'notes' is served, or the store has nothing of it; it has nothing of others",
            ),
            ((declared("memos", "memo", formerly="notes"),), "notes", "notes is the former name of memos: run `restk"),
            (
                (declared("tasks", "task"),),
                "keys",
                "'keys' is served, or the store has nothing of it; it has something of notes",
            ),
            (
                (declared("tasks", "task"),),
                "_ids",
                "'_ids' is served, or the store has nothing of it; it has something of notes",
            ),
            (
                (declared("tasks", "task"),),
                "other",
                "'other' is served, or the store has nothing of it; it has something of notes",
            ),
            (
                (declared("tasks", "task"),),
                "notes",
                "2 items of notes would be deleted, and nobody can be asked: add --yes",
            ),
        ],
    )
    def test_forget_refuses(
        self, programs: Programs, old: FlaskClient, resources: tuple[Resource, ...], name: str, reason: str
    ) -> None:
        done = programs.run(resources, "forget", name)
        assert done.exit_code == 2 and done.stderr.startswith(f"Error: {reason}"), done.stderr
        assert len(old.get("/notes").json) == 2

    @pytest.mark.parametrize("answer", ["n", "y"])
    def test_forget_asks(
        self, programs: Programs, old: FlaskClient, monkeypatch: pytest.MonkeyPatch, answer: str
    ) -> None:
        monkeypatch.setattr("restkeeper.cli.upkeep._is_terminal", lambda: True)
        done = programs.run((declared("tasks", "task"),), "forget", "notes", input=answer)
        assert "Delete 2 items of notes, for ever? [y/N]" in done.stderr
        assert done.exit_code == (0 if answer == "y" else 1)
        assert len(old.get("/notes").json) == (0 if answer == "y" else 2)
        assert old.post("/notes", json={"name": "c"}).status_code == (503 if answer == "y" else 200)

    @pytest.mark.needs("events", "webhooks")
    def test_forget(self, programs: Programs, old: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
        """All that the store has of it is gone, in transactions of bounded length. Cursors of others stay valid."""
        monkeypatch.setattr("restkeeper.cli.upkeep.FORGOTTEN", 1)
        post(old, "/api/v1/webhooks", {"url": "https://a.example/"})
        post(old, "/notes", {"name": "secret"})
        cursor = old.get("/api/v1/events?limit=100").json[-1]["id"]
        deliverer = deliverer_of(service_of(old.application), lambda *sent: DeliveryResult(500, "", None))
        assert deliverer.deliver_once() == 1
        deliverer.close()
        done = programs.run((declared("tasks", "task"),), "forget", "notes", "--yes")
        assert (done.exit_code, done.stdout) == (0, "3 items of notes are deleted\n"), (done.stderr, done.exception)
        assert b"secret" not in orjson.dumps(
            [
                stores.execute(programs.url, f"SELECT * FROM {table}")  # noqa: S608
                for table in ("items", "events", "deliveries")
            ],
            default=str,
        )
        new = programs.serve(declared("tasks", "task"))
        post(new, "/tasks", {"name": "x"})
        (event,) = new.get(f"/api/v1/events?after={cursor}").json
        assert event["type"] == "task.created"
        again = programs.serve(declared(ids="integer"), declared("tasks", "task"))
        assert again.get("/notes").json == [] and post(again, "/notes", {"name": "a"})["id"] == 1

    def test_forget_goes_on_after_an_interruption(
        self, programs: Programs, old: FlaskClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("restkeeper.cli.upkeep.FORGOTTEN", 1)
        monkeypatch.setattr("restkeeper.cli.upkeep.PAUSE_SECONDS", None)  # which no sleep can have
        assert programs.run((declared("tasks", "task"),), "forget", "notes", "--yes").exit_code == 1
        assert store_of(old).stored()["notes"][:2] == (GONE, 1)
        ready = programs.serve(declared("tasks", "task")).get("/readyz")
        assert ready.json["unserved"][0].endswith(
            "has 1 item of notes, which no resource serves: if no newer program does, `restkeeper forget notes`"
        )
        monkeypatch.undo()
        done = programs.run((declared("tasks", "task"),), "forget", "notes", "--yes")
        assert (done.exit_code, done.stdout) == (0, "1 items of notes are deleted\n")
        assert "notes" not in store_of(old).stored()

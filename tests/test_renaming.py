"""A collection that has another name, or goes: its items, and all that is named after it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import Result
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.features.transfer import renaming as command
from restkeeper.features.webhooks.deliverer import deliverer_of
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.resources.evolution import Rename
from restkeeper.resources.resource import Resource
from restkeeper.schemas.fields import ListOf, Reference, Text
from restkeeper.schemas.item import ItemSchema
from restkeeper.service import service_of
from restkeeper.storage.base import Store
from restkeeper.storage.errors import GONE, StoreUnavailable
from restkeeper.storage.interface import Index
from restkeeper.web.application import Application
from tests import stores
from tests.callers import ADMIN, ADMIN_KEY, make_key
from tests.live import ROOT
from tests.shop import create_app
from tests.waiting import SECONDS

NAME = Text(1, 50, required=True)
TAGS = ListOf(Text(), load_default=list)
INDEXES = (Index("name", unique=True), Index("tags"))
NO_RESOURCE = (
    "of notes, which no resource serves: if no newer program does, run `restkeeper rename notes NEW` if it has another "
    "name now, or `restkeeper forget notes`"
)

pytestmark = pytest.mark.needs("transfer")


def declared(name: str = "notes", singular: str = "note", fields: dict[str, Any] | None = None, **options: Any) -> Any:
    schema = ItemSchema.from_dict(fields or {"name": NAME, "tags": TAGS}, name="Notes")
    return Resource(name, singular, schema, **{"indexes": INDEXES} | options)  # type: ignore[arg-type]


NOTES = declared()
MEMOS = declared("memos", "memo")
TASKS = declared("tasks", "task")


def tasks(to: str) -> Resource:
    schema = ItemSchema.from_dict({"about": Reference(to, load_default=None, allow_none=True)}, name="Tasks")
    return Resource("tasks", "task", schema)  # type: ignore[arg-type]


class Programs:
    """Programs that follow each other on the store of a folder."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.url = f"sqlite:///{folder}/store.db"
        settings = {"idempotency": "optional", "rate_limit": "off"} | settings
        self._config = Config(database_url=self.url, **settings)
        self._served = list[FlaskClient]()

    def serve(self, *resources: Resource, **options: Any) -> FlaskClient:
        self._served.append(client := create_app(self._config, resources, **options).test_client())
        return client

    def stop(self) -> None:
        for each in self._served:
            store_of(each).close()

    def run(self, resources: tuple[Resource, ...], *arguments: str, **options: Any) -> Result:
        client = self.serve(*resources, serves=False)
        done = client.application.test_cli_runner().invoke(args=arguments, **options)
        store_of(client).close()
        return done

    def rename(self, *resources: Resource, old: str = "notes") -> FlaskClient:
        """Stop all programs, give the items of `old` to the first of these collections, and serve them."""
        self.stop()
        done = self.run(resources, "rename", old, resources[0].name)
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


def delivered(client: FlaskClient, status: int = 200) -> list[tuple[str, str]]:
    """The types of the events that are due, and the names of their items; each message gets this status."""
    got = list[Any]()

    def send(url: str, headers: Any, body: bytes) -> DeliveryResult:
        got.append(orjson.loads(body))
        return DeliveryResult(status, "", None)

    deliverer = deliverer_of(service_of(client.application), send)
    while deliverer.deliver_once():
        pass
    deliverer.close()
    return [(each["type"], each["data"]["name"]) for each in got]


@pytest.mark.parametrize("has_started", [False, True])
def test_it_has_the_items_under_the_new_name(programs: Programs, has_started: bool) -> None:
    """Each as it was, and found by the indexes of the new name; also if its program has started before."""
    old = programs.serve(NOTES)
    items = [post(old, "/notes", {"name": name, "tags": [name, "all"]}) for name in "abc"]
    before = programs.serve(MEMOS).get("/memos") if has_started else None
    new = programs.rename(MEMOS)
    listed = new.get("/memos")
    assert listed.json == items and listed.headers["X-Total-Count"] == "3" and new.get("/notes").status_code == 404
    assert not before or listed.headers["ETag"] != before.headers["ETag"]
    for item in items:
        assert new.get(f"/memos/{item['id']}").json == item
        assert new.get(f"/memos?name={item['name']}").json == new.get(f"/memos?tags={item['name']}").json == [item]
    assert new.post("/memos", json={"name": "a"}).status_code == 409
    assert new.delete(f"/memos/{items[0]['id']}").status_code == 200
    assert new.get("/memos?tags=all").json == items[1:] and post(new, "/memos", {"name": "a"})
    assert "unserved" not in new.get("/readyz").json and store_of(new).tidy("notes") == []


def test_an_integer_id_is_greater_than_all_before(programs: Programs) -> None:
    """Under both names, also deleted ones."""
    both = programs.serve(declared(ids="integer"), declared("memos", "memo", ids="integer"))
    for path, last in (("notes", 3), ("memos", 5)):
        assert [post(both, f"/{path}", {"name": f"{n}"})["id"] for n in range(last)][-1] == last
    for n in range(1, 6):
        assert both.delete(f"/memos/{n}").status_code == 200
    new = programs.rename(declared("memos", "memo", ids="integer"))
    assert post(new, "/memos", {"name": "d"})["id"] == 6 and new.delete("/memos/6").status_code == 200
    again = programs.rename(declared("records", "record", ids="integer"), old="memos")
    assert post(again, "/records", {"name": "d"})["id"] == 7


def test_a_singleton(programs: Programs) -> None:
    fields = {"name": Text(load_default="")}
    old = programs.serve(declared("settings", "setting", fields, singleton=True, indexes=()))
    assert old.patch("/settings", json={"name": "x"}).status_code == 200
    new = programs.rename(declared("options", "option", fields, singleton=True, indexes=()), old="settings")
    assert new.get("/options").json == {"name": "x"}
    assert new.patch("/options", json={"name": "y"}).json == new.get("/options").json == {"name": "y"}


def test_what_refers_to_the_items(programs: Programs) -> None:
    old = programs.serve(NOTES, tasks("notes"))
    note = post(old, "/notes", {"name": "a"})
    task = post(old, "/tasks", {"about": note["id"]})
    new = programs.rename(MEMOS, tasks("memos"))
    assert new.get(f"/tasks/{task['id']}?embed=about").json["about"] == note
    assert new.get(f"/memos/{note['id']}?embed=tasks").json["tasks"] == [task]
    assert new.delete(f"/memos/{note['id']}").status_code == 409


def test_another_schema_needs_a_step(programs: Programs) -> None:
    """Also if its program has started before: then it does not start any more, and says which."""
    note = post(programs.serve(NOTES), "/notes", {"name": "a"})
    options: dict[str, Any] = {"fields": {"title": NAME, "tags": TAGS}, "indexes": (Index("title"),)}
    programs.serve(declared("memos", "memo", **options))
    with pytest.raises(StoreUnavailable, match=re.escape('Rename("name", "title")')):
        programs.rename(declared("memos", "memo", **options))
    latter = (declared("memos", "memo", **options, upgrades={2: [Rename("name", "title")]}),)
    assert programs.run(latter, "migrate").exit_code == 0
    assert programs.serve(*latter).get("/memos?title=a").json[0]["id"] == note["id"]


@pytest.mark.needs("events")
def test_events(programs: Programs) -> None:
    """They are those of the new name; a cursor from before continues."""
    old = programs.serve(NOTES, tasks("notes"))
    post(old, "/notes", {"name": "a"})
    first = old.get("/api/v1/events?limit=1").json
    item = post(old, "/notes", {"name": "b"})
    post(old, "/tasks", {})
    new = programs.rename(MEMOS, tasks("memos"))
    assert new.patch(f"/memos/{item['id']}", json={"name": "c"}).status_code == 200
    events = new.get(f"/api/v1/events?after={first[0]['id']}").json
    assert [each["type"] for each in events] == ["memo.created", "task.created", "memo.updated"]
    assert events[0]["data"] == item
    assert new.get("/api/v1/events?type=memo.created&limit=1").json[0]["id"] == first[0]["id"]


@pytest.mark.needs("webhooks")
def test_queued_deliveries(programs: Programs) -> None:
    """They are sent, each under the new name, and those of one item in order."""
    old = programs.serve(NOTES)
    webhook = post(old, "/api/v1/webhooks", {"url": "https://a.example/"})
    note = post(old, "/notes", {"name": "a"})
    assert delivered(old, 500) == [("note.created", "a")]  # which fails: there will be a retry
    new = programs.rename(MEMOS)
    post(new, "/memos", {"name": "b"})
    assert new.patch(f"/memos/{note['id']}", json={"name": "c"}).status_code == 200
    assert delivered(new) == [("memo.created", "b")]  # an event of a waits for the retry
    for status in ("paused", "active"):  # after which all is due
        assert new.patch(f"/api/v1/webhooks/{webhook['id']}", json={"status": status}).status_code == 200
    assert delivered(new) == [("memo.created", "a"), ("memo.updated", "c")]


@pytest.mark.needs("keys", "webhooks")
def test_keys_and_webhooks_are_listed(tmp_path: Path) -> None:
    """Those with scopes or types that there are no more, with what to do. They stay as they are.

    A webhook that is paused before, and then gets new types, misses no event.
    """
    programs = Programs(tmp_path, auth="required", admin_key=ADMIN_KEY)
    old = programs.serve(NOTES, tasks("notes"))
    one, _ = make_key(old, "notes:read", "notes:write", "tasks:read", name="one"), make_key(old, "tasks:read")
    sent = [{"url": f"https://a.example/{n}", "types": types} for n, types in enumerate((["note.*"], ["task.*"]))]
    webhook, _ = [post(old, "/api/v1/webhooks", each, headers=ADMIN) for each in sent]
    path = f"/api/v1/webhooks/{webhook['id']}"
    assert old.patch(path, json={"status": "paused"}, headers=ADMIN).status_code == 200
    post(old, "/notes", {"name": "a"}, headers=ADMIN)
    programs.stop()
    done = programs.run((MEMOS, tasks("memos")), "rename", "notes", "memos")
    assert done.exit_code == 0 and done.stdout == (
        "1 items of notes are those of memos now\n"
        f"keys: {one['id']} (one) has notes:read, notes:write, of no collection now: make another one by "
        f"`restkeeper keys create`, and then run `restkeeper keys revoke {one['id']}`\n"
        f"webhooks: {webhook['id']} (https://a.example/0) has note.*, of no collection now: "
        f"change it by PATCH {path}\n"
    )
    new = programs.serve(MEMOS, tasks("memos"))
    assert new.get("/memos", headers={"X-API-Key": one["secret"]}).status_code == 403
    post(new, "/memos", {"name": "b"}, headers=ADMIN)
    assert new.patch(path, json={"types": ["memo.*"], "status": "active"}, headers=ADMIN).status_code == 200
    assert sorted(delivered(new)) == [("memo.created", "a"), ("memo.created", "b")]


@pytest.mark.needs("keys")
def test_scopes_of_a_path_that_stays_are_not(tmp_path: Path) -> None:
    programs = Programs(tmp_path, auth="required", admin_key=ADMIN_KEY)
    caller = {"X-API-Key": make_key(old := programs.serve(NOTES), "notes:read", "notes:write")["secret"]}
    note = post(old, "/notes", {"name": "a"}, headers=caller)
    programs.stop()
    memos = declared("memos", "memo", path="notes")
    assert programs.run((memos,), "rename", "notes", "memos").stdout == "1 items of notes are those of memos now\n"
    assert programs.serve(memos).get("/notes", headers=caller).json == [note]


def create_killed() -> Application:
    """The program of memos, whose `restkeeper rename` is killed when it has changed all, and has not committed."""
    command._outdated = lambda *of: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment,return-value]
    return create_app(None, [MEMOS])


@pytest.mark.needs("events")
def test_one_that_is_killed_has_changed_nothing(programs: Programs) -> None:
    old = programs.serve(NOTES)
    items = [post(old, "/notes", {"name": name, "tags": ["x"]}) for name in "ab"]
    programs.stop()
    environ = {"DATABASE_URL": stores.url(programs.url), "FLASK_APP": "tests.test_renaming:create_killed"}
    flask = [sys.executable, "-m", "flask", "rename", "notes", "memos"]
    done = subprocess.run(
        flask, cwd=ROOT, env={"PATH": os.environ["PATH"]} | environ, capture_output=True, timeout=SECONDS
    )
    assert done.returncode == -signal.SIGKILL, done
    for table in ("items", "events"):
        assert stores.execute(programs.url, f"SELECT DISTINCT collection FROM {table}") == [("notes",)]  # noqa: S608
    assert programs.rename(MEMOS).get("/memos?tags=x").json == items
    assert programs.rename(NOTES, old="memos").get("/notes?tags=x").json == items


def test_the_service_must_be_stopped(programs: Programs) -> None:
    old = programs.serve(NOTES)
    post(old, "/notes", {"name": "a"})
    refused = programs.run((MEMOS,), "rename", "notes", "memos")
    assert refused.exit_code == 1 and "is in use: stop the service, its delivery workers and all " in refused.stderr
    assert refused.stderr.count("\n") == 1 and len(old.get("/notes").json) == 1


@pytest.mark.parametrize(
    ("resources", "names", "reason"),
    [
        ((NOTES, MEMOS), ("notes", "memos"), "'notes' is served, or the store has nothing of it; it has some"),
        ((MEMOS,), ("notes", "my memos"), "no resource serves 'my memos': let one do so, and none 'notes', before "),
        ((MEMOS,), ("other", "memos"), "'other' is served, or the store has nothing of it; it has something of notes"),
        ((MEMOS,), ("keys", "memos"), "'keys' is served, or the store has nothing of it; it has something of notes"),
        ((MEMOS,), ("tasks", "memos"), "tasks has no items, or is being deleted"),
        ((tasks("tasks"), MEMOS), ("notes", "memos"), "memos has 1 items already: export and delete these first, and "),
    ],
    ids=["served", "no name", "unknown", "of the service", "empty", "both"],
)
def test_what_is_refused(
    programs: Programs, resources: tuple[Resource, ...], names: tuple[str, ...], reason: str
) -> None:
    """In one line, and nothing is changed."""
    old = programs.serve(NOTES, MEMOS, tasks("notes"))
    post(old, "/notes", {"name": "a"})
    if "already" in reason:
        post(old, "/memos", {"name": "a"})
    programs.stop()
    refused = programs.run(resources, "rename", *names)
    assert refused.exit_code == 2 and refused.stderr.startswith(f"Error: {reason}"), refused.stderr
    assert refused.stderr.count("\n") == 1 and len(programs.serve(NOTES, MEMOS).get("/notes").json) == 1


def test_a_former_program_does_not_start(programs: Programs) -> None:
    """Until `restkeeper forget` leaves its name to a new collection; or it can have the items again."""
    post(programs.serve(NOTES), "/notes", {"name": "a"})
    programs.rename(MEMOS)
    programs.stop()
    with pytest.raises(StoreUnavailable, match="^[^\n]*notes has another name now, or is being deleted: update this "):
        programs.serve(NOTES)
    assert len(programs.rename(NOTES, old="memos").get("/notes?name=a").json) == 1
    programs.rename(MEMOS)
    refused = programs.run((NOTES, MEMOS), "forget", "notes", "--yes")
    assert refused.exit_code == 1 and "let a program that does not serve it run `restkeeper forget n" in refused.stderr
    done = programs.run((MEMOS,), "forget", "notes", "--yes")
    assert done.exit_code == 0, (done.output, done.exception)
    again = programs.serve(NOTES, MEMOS)
    assert again.get("/notes").json == [] and post(again, "/notes", {"name": "a"})
    assert len(again.get("/notes?name=a").json) == len(again.get("/memos?name=a").json) == 1


class TestUnserved:
    @pytest.fixture
    def old(self, programs: Programs) -> FlaskClient:
        """A service with two notes, a key and a webhook."""
        old = programs.serve(declared(ids="integer"), TASKS)
        for name in "ab":
            post(old, "/notes", {"name": name})
        return old

    @pytest.mark.needs("keys", "webhooks", "health")
    def test_it_is_said(self, programs: Programs, old: FlaskClient, capfd: pytest.CaptureFixture[str]) -> None:
        """By a start, `migrate` and `/readyz`, which stays 200; keys and what closed features have are not."""
        post(old, "/api/v1/keys", {"name": "x", "scopes": ["notes:read"]})
        post(old, "/api/v1/webhooks", {"url": "https://a.example/"})
        capfd.readouterr()
        new = programs.serve(MEMOS, without={"keys", "webhooks"})
        line = f"the store has 2 items {NO_RESOURCE}"
        assert capfd.readouterr().err == f"restkeeper: {line}\n"
        ready = new.get("/readyz")
        assert (ready.status_code, ready.json) == (200, {"status": "ok", "store": "ok", "unserved": [line]})
        assert programs.run((MEMOS,), "migrate").stderr == f"{line}\n"
        refused = programs.run((MEMOS,), "export", "notes")
        assert refused.stderr == f"Error: there is no collection 'notes'; {line}\n"
        old.delete("/notes/1")
        assert f"1 item {NO_RESOURCE}" in new.get("/readyz").json["unserved"][0]
        old.delete("/notes/2")
        assert "unserved" not in new.get("/readyz").json

    def test_forget_refuses(self, programs: Programs, old: FlaskClient) -> None:
        for resources, name in (((declared(ids="integer"), TASKS), "notes"), ((TASKS,), "_ids")):
            done = programs.run(resources, "forget", name)
            assert done.exit_code == 2 and f"'{name}' is served, or the store has nothing of it; " in done.stderr
        assert len(old.get("/notes").json) == 2

    @pytest.mark.parametrize("answer", ["n", "y", ""])
    def test_forget_asks(self, programs: Programs, old: FlaskClient, answer: str) -> None:
        done = programs.run((TASKS,), "forget", "notes", input=answer)
        assert "Delete 2 items of notes, for ever? [y/N]" in done.stderr
        assert done.exit_code == (0 if answer == "y" else 1)
        assert len(old.get("/notes").json) == (0 if answer == "y" else 2)
        assert old.post("/notes", json={"name": "c"}).status_code == (503 if answer == "y" else 200)

    @pytest.mark.needs("events", "webhooks")
    def test_forget(self, programs: Programs, old: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
        """All that the store has of it is gone, in transactions of bounded length. Cursors of others stay valid."""
        monkeypatch.setattr("restkeeper.features.transfer.renaming.FORGOTTEN", 1)
        post(old, "/api/v1/webhooks", {"url": "https://a.example/"})
        post(old, "/notes", {"name": "secret"})
        cursor = old.get("/api/v1/events?limit=100").json[-1]["id"]
        assert delivered(old, 500)
        done = programs.run((TASKS,), "forget", "notes", "--yes")
        assert (done.exit_code, done.stdout) == (0, "3 items of notes are deleted\n"), (done.stderr, done.exception)
        for table in ("items", "events", "deliveries"):
            assert "secret" not in repr(stores.execute(programs.url, f"SELECT * FROM {table}"))  # noqa: S608
        new = programs.serve(TASKS)
        post(new, "/tasks", {"name": "x"})
        (event,) = new.get(f"/api/v1/events?after={cursor}").json
        assert event["type"] == "task.created"
        again = programs.serve(declared(ids="integer"), TASKS)
        assert again.get("/notes").json == [] and post(again, "/notes", {"name": "a"})["id"] == 1

    def test_forget_goes_on_after_an_interruption(
        self, programs: Programs, old: FlaskClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("restkeeper.features.transfer.renaming.FORGOTTEN", 1)
        monkeypatch.setattr("restkeeper.features.transfer.renaming.PAUSE_SECONDS", None)  # which no sleep can have
        assert programs.run((TASKS,), "forget", "notes", "--yes").exit_code == 1
        assert store_of(old).stored()["notes"][:2] == (GONE, 1)
        ready = programs.serve(TASKS).get("/readyz")
        assert ready.json["unserved"][0].endswith(
            "has 1 item of notes, which no resource serves: if no newer program does, run `restkeeper forget notes`"
        )
        monkeypatch.undo()
        done = programs.run((TASKS,), "forget", "notes", "--yes")
        assert (done.exit_code, done.stdout) == (0, "1 items of notes are deleted\n")
        assert "notes" not in store_of(old).stored()

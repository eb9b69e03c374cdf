"""`restkeeper copy`: another store continues exactly where the first one was, and only that one is opened."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from restkeeper import ItemSchema, Resource, Text
from restkeeper.cli import upkeep as command
from restkeeper.config import Config
from restkeeper.service import Service, service_of
from restkeeper.storage import Options, locate, open_store
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection, Record, StoredSchema
from restkeeper.storage.location import Table
from restkeeper.storage.outbox import Attempt, Event, EventFilter, LogEntry
from restkeeper.storage.postgresql import copying as postgresql_copying
from restkeeper.storage.postgresql.copying import PostgresCopy, PostgresCopyable
from restkeeper.storage.sqlite import location as sqlite_location
from restkeeper.storage.sqlite import lockfile
from restkeeper.storage.sqlite.location import SqliteCopy, SqliteCopyable
from restkeeper.web.application import Application
from tests.live import ROOT
from tests.postgresql_server import Databases
from tests.recorder import next_of
from tests.shop import create_app
from tests.shop.products import RESOURCE as PRODUCTS
from tests.shop.users import RESOURCE as USERS
from tests.test_permissions import ADMIN, ADMIN_KEY, NOTES, key

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.sqlite,
    pytest.mark.needs("keys", "ownership", "events", "webhooks", "idempotency"),
]

CREATE = {**ADMIN, "Idempotency-Key": "a-create-that-is-repeated"}
LAMP = {"name": "Lämp", "price": 49.90, "sku": "L", "attributes": {"z": [1e2, None, 12345678901234567], "a": "\\"}}
NOW = 1_800_000_000.0

# `restkeeper copy`, which stops after the first items until it is killed.
STOPPED_COPY = """\
import sys, threading
from restkeeper.cli.main import main
from restkeeper.storage.postgresql.copying import PostgresCopy
from restkeeper.storage.sqlite.location import SqliteCopy

def stopped(add):
    def begin(rows):
        for number, row in enumerate(rows):
            if number == 5:
                print("stopped", flush=True)
                threading.Event().wait()
            yield row
    return lambda store, table, rows: add(store, table, begin(rows))

for each in (PostgresCopy, SqliteCopy):
    each.add = stopped(each.add)
main(["copy", *sys.argv[1:]])
"""

Url = Callable[[str], str]


class NameSchema(ItemSchema):
    """Products as an older program has them."""

    name = Text(1, 200, required=True)


OLDER = Resource(name="products", singular="product", schema=NameSchema)


@pytest.fixture
def url(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Url]:
    """The URL of a new and empty place for a store, of a kind."""
    made: list[str] = []
    numbers = count()

    def new(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/{next(numbers)}.db"
        databases: Databases = request.getfixturevalue("databases")
        made.append(databases.create_database())
        return made[-1]

    yield new
    for each in made:
        request.getfixturevalue("databases").drop_database(each)


@pytest.fixture
def serve() -> Iterator[Callable[..., Application]]:
    """Starts services, whose stores are closed at the end."""
    made: list[Application] = []

    def start(url: str, *resources: Resource) -> Application:
        config = Config(database_url=url, auth="required", admin_key=ADMIN_KEY)
        made.append(create_app(config, resources or (PRODUCTS, USERS, NOTES)))
        return made[-1]

    yield start
    for app in made:
        service_of(app).store.close()


def copy(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(command.copy, arguments)


def moved(source: str, target: str) -> str:
    """Run the command, which succeeds, and return its output."""
    result = copy(source, target)
    assert result.exit_code == 0, result.output
    return result.output


class Shop(NamedTuple):
    """A client of a service, the credentials of an owner of notes, and a webhook."""

    client: FlaskClient
    owner: dict[str, str]
    webhook: str

    @property
    def service(self) -> Service:
        return service_of(self.client.application)  # type: ignore[arg-type]

    def log(self) -> list[LogEntry]:
        """All deliveries. No database but SQLite stores U+0000."""
        entries = self.service.store.deliveries(self.webhook, None, 100)
        return [each._replace(excerpt=each.excerpt and each.excerpt.replace("\0", "\ufffd")) for each in entries]

    def get(self, path: str, **headers: str) -> TestResponse:
        credentials = self.owner if "notes" in path else ADMIN
        return self.client.get(path, headers={**credentials, **headers})


def filled(app: Application) -> Shop:
    """Fill a store: items, keys, stored responses, events, and deliveries in every state."""
    client = app.test_client()
    hook = client.post("/api/v1/webhooks", json={"url": "https://example.org/hook"}, headers=ADMIN).json["id"]
    owner = key(client, "notes:read", "notes:write", "products:read")
    client.post("/products", json=LAMP, headers=CREATE)
    for number in range(7):
        client.post("/products", json={"name": f"Ä{number}", "price": number % 3, "sku": f"S{number}"}, headers=ADMIN)
        client.post("/api/v1/notes", json={"name": f"N{number}"}, headers=owner)
        client.post("/api/v1/users", json={"email": f"{number}@Example.org"}, headers=ADMIN)
    listed = client.get("/products", headers=ADMIN).json
    client.patch(f"/products/{listed[2]['id']}", json={"stock": 9}, headers=ADMIN)
    client.delete(f"/products/{listed[3]['id']}", headers=ADMIN)
    made = Shop(client, owner, hook)
    made.service.store.last_event()  # in PostgreSQL, all events have positions now
    made.service.store.write(lambda transaction: deliver(transaction, hook))
    return made


def deliver(transaction: Transaction, hook: str) -> None:
    """Leave a delivery in each state: delivered, failed, waiting for the next attempt, leased, and due."""
    transaction.queue(hook, EventFilter(("products", "users")), NOW, 100)
    first, second, third, _ = transaction.lease(hook, NOW, NOW + 30, 4)
    transaction.settle(Attempt(first, NOW + 1, True, 200, 0.25, "thanks", None, 0.0))
    transaction.settle(Attempt(second, NOW + 2, False, 500, 0.5, "n\0o", None, 0.0))
    transaction.settle(Attempt(third, NOW + 3, False, None, 1.5, "", NOW + 60, 0.0))


def walk(service: Shop, path: str) -> Iterator[TestResponse]:
    """The pages from a path on, by their `next` links."""
    for _ in range(20):
        yield (page := service.get(path))
        assert page.status_code == 200, page.text
        if page.data.strip() == b"[]" or not (path := next_of(page)):
            return


LISTS = (
    "/products?limit=3",
    "/products?limit=3&sort=-price,name",
    "/products?limit=3&sort=-sku",
    "/products?limit=2&offset=1",
    "/products?q=LÄMP",
    "/api/v1/users?email=3@EXAMPLE.org",
    "/api/v1/notes?limit=3&sort=-name",
    "/api/v1/events?limit=3",
    "/api/v1/webhooks",
    "/api/v1/keys",
)
KINDS = ("sqlite", "postgresql")


class Recorded(NamedTuple):
    """What a client has received from the source: the paths of pages and items with their responses, and the log."""

    pages: dict[str, TestResponse]
    items: dict[str, TestResponse]
    log: list[LogEntry]
    schemas: list[StoredSchema]
    last_event: str


def recorded(service: Shop) -> Recorded:
    """Every list with all pages, and each of their items."""
    pages = {}
    for start in LISTS:
        found = {f"{each.request.path}?{each.request.query_string.decode()}": each for each in walk(service, start)}
        assert next(iter(found.values())).json and (len(found) > 1 or "limit" not in start)
        pages |= found
    collections = ("/products", "/api/v1/users", "/api/v1/notes", "/api/v1/webhooks", "/api/v1/keys")
    paths = [f"{each}/{item['id']}" for each in collections for item in service.get(each).json]
    store = service.service.store
    items = {path: service.get(path) for path in paths}
    return Recorded(pages, items, service.log(), list(store.schemas("products")), store.last_event())


@pytest.mark.parametrize("kinds", [(one, other) for one in KINDS for other in KINDS], ids="-".join)
def test_the_target_continues_the_source(kinds: tuple[str, str], url: Url, serve: Callable[..., Application]) -> None:
    """Every response and ETag is the same; keys and stored responses are valid; new changes follow the last ones."""
    source, target = map(url, kinds)
    older = serve(source, OLDER, USERS, NOTES)
    older.test_client().post("/products", json={"name": "Old"}, headers=ADMIN)
    shop = filled(serve(source))
    old = recorded(shop)
    for each in (service_of(older), shop.service):
        each.store.close()
    moved(source, target)
    new = shop._replace(client=serve(target).test_client())
    require_same(old, new)
    require_next(old, new)
    for path, one in old.items.items():
        if path.startswith("/products"):
            headers = {**ADMIN, "If-Match": one.headers["ETag"]}
            done = new.client.patch(path, json={"stock": 3}, headers=headers)
            assert done.status_code == 200 and done.json["version"] == one.json["version"] + 1


def require_same(old: Recorded, new: Shop) -> None:
    """Lists, pages by cursor, the feed and items; and each ETag of the source is valid on the target."""
    for path, page in (old.pages | old.items).items():
        same = new.get(path)
        assert same.data == page.data
        for name in ("ETag", "Link", "X-Total-Count"):
            assert same.headers.get(name) == page.headers.get(name)
        if tag := page.headers.get("ETag"):
            assert new.get(path, **{"If-None-Match": tag}).status_code == 304
    store = new.service.store
    assert store.schemas("products") == old.schemas and len(old.schemas) == 2
    assert (new.log(), store.last_event()) == (old.log, old.last_event)


def require_next(old: Recorded, new: Shop) -> None:
    """New changes have the next revision, event and delivery; a repeated request is answered as before."""
    again = new.client.post("/products", json=LAMP, headers=CREATE)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert new.client.post("/products", json={"name": "x"}, headers=CREATE).status_code == 422
    page, tag, log = list(walk(new, "/api/v1/events?limit=100"))[-1], new.get("/products").headers["ETag"], old.log
    assert new.client.post("/api/v1/notes", json={"name": "after"}, headers=new.owner).status_code == 200
    assert new.client.post("/products", json={"name": "after", "sku": "S5"}, headers=ADMIN).status_code == 409
    assert new.client.post("/products", json={"name": "after"}, headers=ADMIN).status_code == 200
    assert new.get("/products").headers["ETag"] != tag
    events = new.get(next_of(page)).json
    assert [event["data"]["name"] for event in events] == ["after", "after"]
    position = int(old.last_event.rpartition("_")[2], 16)
    assert [int(event["id"].rpartition("_")[2], 16) for event in events] == [position + 1, position + 2]
    store, queued = new.service.store, EventFilter(("products",))
    store.write(lambda transaction: transaction.queue(new.webhook, queued, NOW, 1000))
    assert [each.id for each in new.log()] == [log[0].id + 1, *(each.id for each in log)]
    due = store.write(lambda transaction: transaction.lease(new.webhook, NOW + 100, NOW + 130, 100))
    waiting, leased = {each.id for each in log if each.state == "pending"}, {each.id for each in due}
    assert leased - waiting == {log[0].id + 1} and {3, 4} <= leased
    assert len(waiting - leased) == 1  # it comes after another one of the same item


THINGS = Collection("things", {})


def add(url: str, first: int, last: int) -> None:
    """Add items with these numbers, and an event for each."""

    def work(transaction: Transaction) -> None:
        for number in range(first, last):
            id, body = f"{number:06}", b'{"name":"%d","list":["a"],"more":{"x":null}}' % number
            transaction.insert("things", Record(id, 1, "2026", "0123abcd", body, "owner"))
            transaction.record(Event("thing.created", "things", id, "2026", body, "owner", "0123abcd"))

    with closing(open_store(url, [THINGS], Options(synchronous="normal"))) as store:
        store.write(work)


def state(url: str) -> tuple[str, list[Record]]:
    """The revision and the items of a store."""
    with closing(open_store(url, [THINGS])) as store:
        return store.change_token("things"), list(store.scan("things"))


def has_store(url: str) -> bool:
    return locate(url).size() > 0


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of the store that a test is about."""
    return str(request.param)


@pytest.fixture
def source(kind: str, url: Url) -> str:
    """A store with ten items."""
    made = url(kind)
    add(made, 0, 10)
    return made


class TestSource:
    def test_it_is_not_opened_any_more(self, source: str, url: Url) -> None:
        """Each program that still has its URL refuses to start, and names the other store."""
        target = url("sqlite")
        moved(source, target)
        for creates in (True, False):
            store = locate(source).store([THINGS], Options(creates=creates))
            with pytest.raises(StoreUnavailable) as raised:
                store.open()
            failure = raised.value if creates else raised.value.__cause__  # which is for the log
            assert f"was moved to {target}: set DATABASE_URL" in str(failure)
        assert state(target)
        assert "was moved to" in copy(source, url("sqlite")).output

    def test_a_restore_opens_it_again(self, kind: str, source: str, url: Url, tmp_path: Path) -> None:
        """With another epoch: no token of it means another state of the target."""
        target = url("sqlite")
        moved(source, target)
        file = None
        if kind == "sqlite":
            file = Path(shutil.copy(source.removeprefix("sqlite:///"), tmp_path / "old.db"))
        locate(source).restore(file, discard=True)
        (one, items), (other, copied) = state(source), state(target)
        assert one.partition("-")[0] != other.partition("-")[0] and items == copied
        add(source, 10, 11)

    def test_a_store_in_use_is_refused(self, source: str, url: Url) -> None:
        """By any process; then nothing is changed."""
        target = url("sqlite")
        with closing(open_store(source, [THINGS])) as store:
            store.read("things", "000001")
            refused = copy(source, target)
            assert refused.exit_code == 1 and "is in use: stop the service" in refused.output
            store.write(lambda transaction: transaction.delete("things", "000001"))
        assert not has_store(target)
        before = state(source)
        moved(source, target)
        assert state(target) == before

    def test_nobody_uses_it_meanwhile(self, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A program that starts is refused, and so is a new connection of one that runs."""
        monkeypatch.setattr(lockfile, "SHARE_SECONDS", 0.1)
        with locate(source).as_source(time), pytest.raises(StoreUnavailable, match="is being (restored or )?moved"):
            open_store(source, [THINGS])
        add(source, 10, 11)

    def test_events_of_late_transactions_are_copied(self, url: Url) -> None:
        """In PostgreSQL an event has no position until somebody reads the feed."""
        source, target = url("postgresql"), url("sqlite")
        add(source, 0, 3)
        moved(source, target)
        with closing(open_store(target, [THINGS])) as store:
            assert len(store.events("", EventFilter(("things",)), 10).events) == 3


class TestInterrupted:
    def test_it_begins_anew_after_a_kill(self, kind: str, url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
        """After kill -9 there is no target, and the source can be used; the same command copies all."""
        source, target = url("sqlite"), url(kind)
        add(source, 0, 10)
        run = [sys.executable, "-c", STOPPED_COPY, source, target]
        with subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout and process.stdout.readline() == "stopped\n"
                monkeypatch.setattr(lockfile, "SHARE_SECONDS", 0.1)
                assert "is being restored or moved" in copy(source, url("sqlite")).output
            finally:
                process.kill()
        assert not has_store(target)
        add(source, 10, 12)
        before = state(source)
        assert "items: 12 rows" in moved(source, target)
        assert state(target) == before
        assert not [*Path(source.removeprefix("sqlite:///")).parent.glob(".*.copy")]

    def test_it_begins_anew_after_its_last_step(
        self, source: str, kind: str, url: Url, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the mark of the source and the end of the target, no program opens either of the two."""
        target, before = url(kind), state(source)
        with monkeypatch.context() as patch:
            for each in (SqliteCopyable, PostgresCopyable):
                patch.setattr(each, "end", lambda self, name, end=each.end: end(self, name) or 1 / 0)  # type: ignore[attr-defined]
            assert isinstance(copy(source, target).exception, ZeroDivisionError)
        assert not has_store(target)
        with pytest.raises(StoreUnavailable, match="was moved"):
            open_store(source, [THINGS])
        assert "was moved to" in copy(source, url("sqlite")).output
        moved(source, target)
        assert state(target) == before

    def test_a_target_that_cannot_be_finished_moves_nothing(
        self, source: str, kind: str, url: Url, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on a full disk: the source can be used as before, and the same command copies all later."""
        target, before = url(kind), state(source)
        with monkeypatch.context() as patch:
            patch.setattr(sqlite_location, "sync", lambda path: os.open(f"{path}/none", os.O_RDONLY))
            patch.setattr(postgresql_copying, "_NUMBERS", ("SELECT 1 / 0",))
            message = copy(source, target).output
        assert ("Not a directory" if kind == "sqlite" else "division by zero") in message
        assert not has_store(target)
        open_store(source, [THINGS]).close()
        assert state(source) == before
        moved(source, target)

    def test_a_difference_is_found(self, kind: str, url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
        """A row that is changed or missing: nothing is moved."""
        source, target = url("sqlite"), url(kind)
        add(source, 0, 10)
        before = state(source)
        changes: dict[str, Callable[[list[Any]], list[Any]]] = {
            r"items differs from its source \(9 of 10 rows, digest": lambda rows: rows[1:],
            r"items differs from its source \(10 of 10 rows, digest": lambda rows: [(*rows[0][:-1], "{}"), *rows[1:]],
        }
        for message, change in changes.items():
            with monkeypatch.context() as patch:
                for each in (SqliteCopy, PostgresCopy):
                    patch.setattr(each, "add", changed(each.add, change))
                result = copy(source, target)
            assert result.exit_code == 1 and re.search(message, result.output)
            assert not has_store(target) and state(source) == before


def changed(add: Callable[..., None], change: Callable[[list[Any]], list[Any]]) -> Callable[..., None]:
    """Writes other items than those that are read."""

    def other(store: Any, table: Table, rows: Iterable[Any]) -> None:
        add(store, table, change(list(rows)) if table.name == "items" else rows)

    return other


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{source}", "memory://"), "ends with its process"),
        (("mysql://a/b", "{source}"), "the URL of a store must be"),
        (("{folder}/missing.db", "{source}"), "there is no store at"),
        (("{source}", "{source}"), "has a store already"),
        (("{source}", "postgresql://user:secret@127.0.0.1:1/none"), "the database does not answer"),
    ],
)
def test_a_refusal_changes_nothing(url: Url, arguments: tuple[str, ...], message: str) -> None:
    """No password is shown."""
    source = url("sqlite")
    add(source, 0, 1)
    result = copy(*(each.format(source=source, folder=source.rpartition("/")[0]) for each in arguments))
    assert result.exit_code and message in result.output and "secret" not in result.output
    add(source, 1, 2)

"""`restkeeper copy`: another store continues exactly where the first one was, and only one of the two changes."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from click.testing import CliRunner, Result
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from restkeeper import ItemSchema, Resource, Text
from restkeeper.cli import copying
from restkeeper.config import Config
from restkeeper.service import Service, service_of
from restkeeper.storage import locate, open_store
from restkeeper.storage.contract import Collection, Record, Transaction
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.outbox import Attempt, Event, EventFilter, LogEntry
from restkeeper.storage.postgresql.transfer import PostgresTransfer
from restkeeper.storage.sqlite import migrations
from restkeeper.storage.sqlite.transfer import SqliteTransfer
from restkeeper.storage.transfer import PARTS, Part, Row
from restkeeper.web.application import Application
from tests.live import ROOT, Gunicorn
from tests.postgresql_server import Databases
from tests.shop import create_app
from tests.shop.products import RESOURCE as PRODUCTS
from tests.shop.users import RESOURCE as USERS
from tests.test_permissions import ADMIN, ADMIN_KEY, NOTES, key
from tests.waiting import SECONDS

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.sqlite,
    pytest.mark.needs("keys", "ownership", "events", "webhooks", "idempotency"),
]

CREATE = {**ADMIN, "Idempotency-Key": "a-create-that-is-repeated"}
LAMP = {"name": "Lämp", "price": 49.90, "sku": "L", "attributes": {"z": [1e2, None, 12345678901234567], "a": "\\"}}
NOW = 1_800_000_000.0
MANY = 30_000  # items, which are several batches

# `restkeeper copy` with a pause after each batch, so that it can be killed between the first one and the last.
SLOW_COPY = """\
import sys, time
from restkeeper.cli.main import main
from restkeeper.storage.postgresql.transfer import PostgresTransfer
from restkeeper.storage.sqlite.transfer import SqliteTransfer

def slow(write):
    return lambda *arguments: (write(*arguments), time.sleep(0.5))

for each in (PostgresTransfer, SqliteTransfer):
    each.write = slow(each.write)
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
    return CliRunner().invoke(copying.copy, arguments)


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


def next_of(page: TestResponse) -> str:
    """The path of the next page; empty if there is none."""
    found = re.search(r'<([^>]+)>; rel="next"', page.headers.get("Link", ""))
    return found[1] if found else ""


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


@pytest.mark.parametrize("kinds", [(one, other) for one in KINDS for other in KINDS], ids="-".join)
class TestMoved:
    @pytest.fixture
    def both(self, kinds: tuple[str, str], url: Url, serve: Callable[..., Application]) -> tuple[Shop, Shop]:
        """A service that has run since before the move, and the service on the target."""
        source, target = map(url, kinds)
        serve(source, OLDER, USERS, NOTES).test_client().post("/products", json={"name": "Old"}, headers=ADMIN)
        old = filled(serve(source))
        moved(source, target)
        return old, old._replace(client=serve(target).test_client())

    def test_every_response_is_the_same(self, both: tuple[Shop, Shop]) -> None:
        """Lists, pages by cursor and the feed; and each ETag of the source is valid on the target."""
        old, new = both
        for start in LISTS:
            pages = list(walk(old, start))
            assert pages[0].json and (len(pages) > 1 or "limit" not in start)
            for page in pages:
                path = f"{page.request.path}?{page.request.query_string.decode()}"
                same = new.get(path)
                assert same.data == page.data
                for name in ("ETag", "Link", "X-Total-Count", "Last-Modified"):
                    assert same.headers.get(name) == page.headers.get(name)
                if tag := page.headers.get("ETag"):
                    assert new.get(path, **{"If-None-Match": tag}).status_code == 304

    def test_each_item_is_the_same(self, both: tuple[Shop, Shop]) -> None:
        """The ETag that a client received from the source makes the target respond 304, and is a precondition there."""
        old, new = both
        for collection in ("/products", "/api/v1/users", "/api/v1/notes", "/api/v1/webhooks", "/api/v1/keys"):
            for item in old.get(collection).json:
                path = f"{collection}/{item['id']}"
                one = old.get(path)
                tag = one.headers["ETag"]
                assert (new.get(path).data, new.get(path).headers["ETag"]) == (one.data, tag)
                assert new.get(path, **{"If-None-Match": tag}).status_code == 304
                if collection == "/products":
                    done = new.client.patch(path, json={"stock": 3}, headers={**ADMIN, "If-Match": tag})
                    assert done.status_code == 200 and done.json["version"] == one.json["version"] + 1

    @pytest.mark.needs("health")
    def test_the_source_is_read_only(self, both: tuple[Shop, Shop], serve: Callable[..., Application]) -> None:
        """In a service that runs and in one that starts after it: writes are 503, and it is not ready."""
        old, _ = both
        url = old.service.config.database_url
        for service in (old, old._replace(client=serve(url).test_client())):
            path = f"/products/{service.get('/products').json[0]['id']}"
            for response in (
                service.client.post("/products", json=LAMP | {"sku": "x"}, headers=ADMIN),
                service.client.patch(path, json={"stock": 1}, headers=ADMIN),
                service.client.delete(path, headers=ADMIN),
                service.client.post("/api/v1/keys", json={"name": "k", "scopes": ["admin"]}, headers=ADMIN),
                service.client.get("/readyz"),
            ):
                assert response.status_code == 503, response.text
                assert "the store was moved to another one: this one can be read, and not changed" in response.text
            assert service.get(path).status_code == service.get("/api/v1/events").status_code == 200
            with pytest.raises(StoreUnavailable, match="was moved"):
                service.service.store.write(lambda transaction: transaction.lease(old.webhook, NOW, NOW, 1))

    def test_a_repeated_request_gets_the_stored_response(self, both: tuple[Shop, Shop]) -> None:
        """Also on the target; another request with the same key is refused."""
        for service in both:
            again = service.client.post("/products", json=LAMP, headers=CREATE)
            assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
            assert service.client.post("/products", json={"name": "x"}, headers=CREATE).status_code == 422

    def test_the_target_continues(self, both: tuple[Shop, Shop]) -> None:
        """Keys are valid; new changes have the next revision, event and delivery."""
        old, new = both
        assert new.log() == old.log()
        last, page = new.service.store.last_event(), list(walk(new, "/api/v1/events?limit=100"))[-1]
        tag, log = new.get("/products").headers["ETag"], new.log()
        assert new.client.post("/api/v1/notes", json={"name": "after"}, headers=new.owner).status_code == 200
        assert new.client.post("/products", json={"name": "after", "sku": "S5"}, headers=ADMIN).status_code == 409
        assert new.client.post("/products", json={"name": "after"}, headers=ADMIN).status_code == 200
        assert new.get("/products").headers["ETag"] != tag
        events = new.get(next_of(page)).json
        assert [event["data"]["name"] for event in events] == ["after", "after"]
        position = int(last.rpartition("_")[2], 16)
        assert [int(event["id"].rpartition("_")[2], 16) for event in events] == [position + 1, position + 2]
        store, queued = new.service.store, EventFilter(("products",))
        store.write(lambda transaction: transaction.queue(new.webhook, queued, NOW, 1000))
        assert [each.id for each in new.log()] == [log[0].id + 1, *(each.id for each in log)]
        due = store.write(lambda transaction: transaction.lease(new.webhook, NOW + 100, NOW + 130, 100))
        waiting, leased = {each.id for each in log if each.state == "pending"}, {each.id for each in due}
        assert leased - waiting == {log[0].id + 1} and {3, 4} <= leased
        assert len(waiting - leased) == 1  # it comes after another one of the same item

    def test_schemas_are_registered(self, both: tuple[Shop, Shop]) -> None:
        """In the order in which items were stored with them."""
        old, new = (each.service.store.schemas("products") for each in both)
        assert old == new and len(new) == 2

    def test_the_same_command_again_changes_nothing(self, both: tuple[Shop, Shop]) -> None:
        """The copy is complete: it says so, also after the target has changed."""
        urls = [each.service.config.database_url for each in both]
        both[1].client.post("/products", json={"name": "after"}, headers=ADMIN)
        assert "is complete already" in moved(urls[0], urls[1])
        assert both[1].client.post("/products", json={"name": "later"}, headers=ADMIN).status_code == 200


@pytest.fixture
def source(url: Url) -> str:
    """A store in SQLite with some items of a collection."""
    made = url("sqlite")
    add(made, 0, 10)
    return made


THINGS = Collection("things", {})


def add(url: str, first: int, last: int) -> None:
    """Add items with these numbers, and an event for each."""

    def work(transaction: Transaction) -> None:
        for number in range(first, last):
            id, body = f"{number:06}", b'{"name":"%d","list":["a"],"more":{"x":null}}' % number
            transaction.insert("things", Record(id, 1, "2026", "0123abcd", body, "owner"))
            transaction.record(Event("thing.created", "things", id, "2026", body, "owner", "0123abcd"))

    with closing(open_store(url, [THINGS], synchronous="normal")) as store:
        store.write(work)


def rows(url: str) -> dict[str, list[Any]]:
    """All rows of a store."""
    with closing(locate(url).transfer(time)) as store:
        return {part.name: list(store.read(part)) for part in PARTS}


def interrupted(source: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that ends before it compares the stores."""
    with monkeypatch.context() as patch:
        patch.setattr(copying._Copy, "_compare", lambda *arguments: 1 / 0)
        assert isinstance(copy(source, target).exception, ZeroDivisionError)


@pytest.mark.parametrize("kind", KINDS)
class TestInterrupted:
    @pytest.mark.timeout(180)
    def test_it_continues_after_a_kill(self, kind: str, url: Url) -> None:
        """After kill -9 no program opens the target. The same command copies the rest, and then all is there."""
        source, target = url("sqlite"), url(kind)
        add(source, 0, MANY)
        command = [sys.executable, "-c", SLOW_COPY, source, target]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        end = time.monotonic() + SECONDS
        while not 0 < items_in(target) < MANY:
            assert time.monotonic() < end and process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait(SECONDS)
        copied = items_in(target)
        assert 0 < copied < MANY
        with pytest.raises(StoreUnavailable, match="is an incomplete copy: run restkeeper copy again"):
            open_store(target, [THINGS])
        with closing(open_store(source, [THINGS])) as store:
            assert store.count("things") == MANY
            with pytest.raises(StoreUnavailable, match="is being moved"):
                store.write(lambda transaction: transaction.delete("things", "000001"))
            store.check()  # it is ready: it serves what can be served
        assert f"items: {MANY} rows" in moved(source, target)
        assert rows(target) == rows(source)

    def test_a_difference_is_found(self, kind: str, url: Url, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A row that was changed, or is missing, or was added: it is named, and the target stays closed."""
        target = url(kind)
        interrupted(source, target, monkeypatch)
        changes = {
            "counters zzz is not in the source": "INSERT INTO {} VALUES ('zzz', 0, 0)",
            "items things/000004 is not as in the source": "UPDATE items SET body = '{{}}' WHERE id = '000004'",
            "items things/000003 is missing": "DELETE FROM items WHERE id = '000003'",
        }
        for message, statement in changes.items():
            table = "collections (name, items, revision)" if kind == "sqlite" else "counters (collection, shard, items)"
            execute(target, statement.format(table))
            result = copy(source, target)
            assert result.exit_code == 1 and message in result.output
            execute(target, "DELETE FROM counters WHERE collection = 'zzz'".replace(*_TABLE[kind]))
            with pytest.raises(StoreUnavailable, match="incomplete copy"):
                open_store(target, [THINGS])

    def test_a_release_ends_it(self, kind: str, url: Url, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The source can be changed again. The next copy begins anew, and has these changes."""
        target = url(kind)
        interrupted(source, target, monkeypatch)
        assert copy("--release", source).exit_code == 0
        with closing(open_store(source, [THINGS])) as store:
            store.write(lambda transaction: transaction.delete("things", "000002"))
            add(source, 10, 12)
            moved(source, target)
            with closing(open_store(target, [THINGS])) as other:
                assert list(other.scan("things")) == list(store.scan("things"))
                assert other.revision("things") == store.revision("things")

    def test_it_ends_in_the_right_order(
        self, kind: str, url: Url, source: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Killed between its last two steps, the source is not released any more, and the target not open yet."""
        first, target = url(kind), url(kind)
        moved(source, first)
        with monkeypatch.context() as patch:
            for each in (PostgresTransfer, SqliteTransfer):
                patch.setattr(each, "release", lambda *arguments: 1 / 0)
            assert isinstance(copy(first, target).exception, ZeroDivisionError)
        assert "was moved completely" in copy("--release", first).output
        with pytest.raises(StoreUnavailable, match="incomplete copy"):
            open_store(target, [THINGS])
        moved(first, target)
        assert rows(target) == rows(first)
        open_store(target, [THINGS]).close()

    def test_a_source_says_that_it_is_being_moved(
        self, kind: str, url: Url, source: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Until the copy is complete: it refuses changes, and is ready, as it serves all that can be served."""
        first = url(kind)
        moved(source, first)
        with closing(open_store(first, [THINGS])) as store:
            interrupted(first, url("sqlite"), monkeypatch)
            with pytest.raises(StoreUnavailable, match="is being moved to another one: until then it can be read"):
                store.write(lambda transaction: transaction.delete("things", "000001"))
            store.check()
            assert store.count("things") == 10

    def test_another_target_or_source_is_refused(
        self, kind: str, url: Url, source: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A target has the rows of one source, and a source one target."""
        target, other = url(kind), url("sqlite")
        add(other, 0, 3)
        interrupted(source, target, monkeypatch)
        assert "is being moved, or was moved" in copy(source, url(kind)).output
        assert "is an incomplete copy of another store" in copy(other, target).output
        assert "is an incomplete copy of" in copy(target, url(kind)).output
        assert "is an incomplete copy of" in copy("--release", target).output
        add(other, 3, 4)  # it was not marked
        moved(source, target)


_TABLE = {"sqlite": ("counters WHERE collection", "collections WHERE name"), "postgresql": ("", "")}


def execute(url: str, statement: str) -> None:
    """Change a store as another program does."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.execute(statement)
        return
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(statement)


def items_in(url: str) -> int:
    """The committed items in a store, which may not exist yet."""
    with closing(locate(url).transfer(time)) as store:
        try:
            return store.count(PARTS[2]) if store.epoch else 0
        except StoreUnavailable:  # the tables are being created
            return 0


class TestRelease:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_store_that_was_moved_is_released_by_force_only(self, kind: str, url: Url, source: str) -> None:
        """Then it has another epoch, so that no token of it means another state of the target."""
        first, target = url(kind), url("sqlite")
        moved(source, first)
        moved(first, target)
        before = revision(first)
        refused = copy("--release", first)
        assert refused.exit_code == 2 and f"was moved completely to {target}" in refused.output
        assert copy("--release", "--force", first).exit_code == 0
        assert revision(first).partition("-")[0] != before.partition("-")[0] == revision(target).partition("-")[0]
        add(first, 20, 21)
        assert "has a store already" in copy(first, target).output

    def test_a_store_that_was_not_moved_stays_as_it_is(self, source: str) -> None:
        """Nothing is to be released."""
        before = revision(source)
        assert "can be changed" in copy("--release", source).output
        assert revision(source) == before


def revision(url: str) -> str:
    with closing(open_store(url, [THINGS])) as store:
        return store.revision("things")


class TestRefused:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("{source}",), "give a SOURCE and a TARGET"),
            (("{source}", "{source}", "--release"), "give a SOURCE and a TARGET"),
            (("{source}", "memory://"), "ends with its process"),
            (("mysql://a/b", "{source}"), "the URL of a store must be"),
            (("{folder}/missing.db", "{source}"), "there is no store at"),
            (("{source}", "{source}"), "has a store already"),
            (("{source}", "postgresql://user:secret@127.0.0.1:1/none"), "the database does not answer"),
        ],
    )
    def test_nothing_is_changed(self, source: str, arguments: tuple[str, ...], message: str) -> None:
        """The source is not marked before it is clear that the target can be used. No password is shown."""
        result = copy(*(each.format(source=source, folder=source.rpartition("/")[0]) for each in arguments))
        assert result.exit_code and message in result.output and "secret" not in result.output
        add(source, 10, 11)

    def test_a_database_with_a_store_is_no_target(self, source: str, url: Url) -> None:
        """Also if that has no items."""
        target = url("postgresql")
        open_store(target, [THINGS]).close()
        assert "has a store already: name an empty database" in copy(source, target).output
        add(source, 10, 11)


class TestMark:
    def test_a_program_from_before_there_were_marks_refuses_to_write(self, source: str, url: Url) -> None:
        """It compares two numbers at each write and each start; both are above all that it knows."""
        moved(source, url("sqlite"))
        with closing(sqlite3.connect(source.removeprefix("sqlite:///"))) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (oldest,) = connection.execute("SELECT oldest FROM store").fetchone()
        assert version > len(migrations.MIGRATIONS) and oldest > len(migrations.MIGRATIONS)

    def test_a_start_with_other_declarations_is_refused(self, source: str, url: Url) -> None:
        """A store that was moved is not migrated, and gets no new collection."""
        moved(source, url("sqlite"))
        with pytest.raises(StoreUnavailable, match="was moved"):
            open_store(source, [THINGS, Collection("others", {})])

    def test_a_newer_program_does_not_migrate_it(
        self, source: str, url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It would be a store that can be changed again."""
        moved(source, url("sqlite"))
        later = tmp_path / "9999_later.sql"
        later.write_text("-- oldest: 1\nCREATE TABLE later (id TEXT) STRICT;\n")
        monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, later])
        with pytest.raises(StoreUnavailable, match="was moved"):
            open_store(source, [THINGS])

    def test_a_backup_of_a_moved_store_has_no_mark(self, source: str, url: Url, tmp_path: Path) -> None:
        """It can be restored: it gets another epoch then."""
        moved(source, url("sqlite"))
        with closing(open_store(source, [THINGS])) as store:
            store.backup(tmp_path / "backup.db")
        other = url("sqlite")
        locate(other).restore(tmp_path / "backup.db", discard=True)
        add(other, 10, 11)
        assert revision(other).partition("-")[0] != revision(source).partition("-")[0]


def test_a_running_server_continues_to_read(tmp_path: Path, databases: Databases) -> None:
    """Under gunicorn: the copy runs beside it, with requests; no write that was acknowledged is missing in the copy."""
    target = databases.create_database()
    with Gunicorn(tmp_path) as server:
        source = f"sqlite:///{tmp_path}/restkeeper.db"
        command = [sys.executable, "-m", "restkeeper", "copy", source, target]
        made = [server.post("/products", {"name": "before"}).json()["id"]]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        status, end = 200, time.monotonic() + SECONDS
        while status == 200:
            assert time.monotonic() < end
            response = server.post("/products", {"name": "meanwhile"})
            status = response.status
            made += [response.json()["id"]] if status == 200 else []
        assert status == 503 and "moved" in response.json()["detail"] and response.headers["retry-after"]
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, output
        listed = server.get("/products?limit=1")
        assert listed.status == 200 and listed.headers["x-total-count"] == str(len(made))
    with closing(open_store(target, [Collection("products", {})])) as store:
        assert sorted(record.id for record in store.scan("products")) == sorted(made)
    databases.drop_database(target)


def test_a_transaction_that_commits_late_is_waited_for(url: Url, databases: Databases) -> None:
    """In PostgreSQL: the source is marked when no transaction is open, and its events have positions then."""
    source, target = url("postgresql"), url("sqlite")
    add(source, 0, 3)
    with psycopg.connect(source) as late:
        late.execute("INSERT INTO events (type, collection, item, at, data) VALUES ('x', 'things', 'x', '2026', '{}')")
        command = [sys.executable, "-m", "restkeeper", "copy", source, target]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        end = time.monotonic() + SECONDS
        with psycopg.connect(source, autocommit=True) as other:
            while other.execute(waiting).fetchone() == (0,):
                assert time.monotonic() < end and process.poll() is None
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    with closing(open_store(target, [THINGS])) as store:
        assert len(store.events("", EventFilter(("things",)), 10).events) == 4
        assert store.count("things") == 3


def test_large_rows_are_copied_in_small_batches(url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the memory nor a transaction grows with their size."""
    source, target, sizes = url("sqlite"), url("sqlite"), []
    body = b'{"text":"%s"}' % (b"x" * 3_000_000)
    with closing(open_store(source, [THINGS])) as store:
        for number in range(7):
            one = Record(str(number), 1, "2026", "0123abcd", body)
            store.write(lambda transaction, one=one: transaction.insert("things", one))  # type: ignore[misc]
    write = SqliteTransfer.write

    def note(self: SqliteTransfer, part: Part, rows: Sequence[Row]) -> None:
        sizes.append(len(rows))
        write(self, part, rows)

    monkeypatch.setattr(SqliteTransfer, "write", note)
    moved(source, target)
    assert sizes == [1, 3, 3, 1]  # the counters, and the items


def test_a_copy_beside_another_one_is_refused(
    url: Url, source: str, monkeypatch: pytest.MonkeyPatch, databases: Databases
) -> None:
    """The second one that adds the same rows fails, and the first one continues."""
    target = url("postgresql")
    write = PostgresTransfer.write

    def write_twice(self: PostgresTransfer, *arguments: Any) -> None:
        write(self, *arguments)
        with closing(PostgresTransfer(target, time)) as other, pytest.raises(StoreUnavailable, match="duplicate key"):
            write(other, *arguments)

    monkeypatch.setattr(PostgresTransfer, "write", write_twice)
    moved(source, target)

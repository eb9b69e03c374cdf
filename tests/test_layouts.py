"""A store of each layout that ever landed is opened, migrated and used by this program."""

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from restkeeper.config import Config
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.postgresql.migrations import USES
from restkeeper.storage.sql import MIGRATIONS
from restkeeper.storage.sqlite.file import LockFile
from tests.layouts.sample import ADMIN, BOOK, FOLDER, REPEATED, Kept, load, recorded, restore
from tests.things import THINGS, close_all, open_store

pytestmark = [pytest.mark.sqlite, pytest.mark.needs("keys", "events", "webhooks", "idempotency", "ownership")]

RETRIES = Config().webhook_retries
KEPT = sorted((int(path.name[:4]), path.suffixes[0][1:]) for path in FOLDER.glob("*.sql"))


@pytest.fixture(params=KEPT, ids=lambda kept: f"{kept[1]}-{kept[0]}")
def layout(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def kept(layout: tuple[int, str], tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """The present service on a store of a layout, some seconds after the program that made it."""
    number, kind = layout
    url = f"sqlite:///{tmp_path}/store.db" if kind == "sqlite" else request.getfixturevalue("url")
    opened = load(number, url)
    opened.clock.now = recorded(number, kind)["now"]
    yield opened
    opened.store.close()


@pytest.fixture
def answers(layout: tuple[int, str]) -> Any:
    """What the program that made the store answered last, by path."""
    return recorded(*layout)["answers"]


def test_each_layout_is_kept() -> None:
    """Of both databases: `python -m tests.layouts.sample`, before the next migration is added."""
    former = range(1, max(len(MIGRATIONS), 2))
    assert {(number, kind) for number in former for kind in ("sqlite", "postgresql")} <= set(KEPT)


def test_what_is_stored_is_answered_as_before(kept: Kept, answers: dict[str, Any]) -> None:
    """Items, by their indexes and owners, keys, webhooks with their deliveries, and each event with its cursor."""
    kept.store.check()
    revisions = {name: revision for name, (revision, *_) in kept.store.stored().items()}
    assert revisions == dict.fromkeys(revisions, 1) | {"keys": 2}  # also of what is empty
    for each in answers["/api/v1/keys"]:
        each.setdefault("owners", [owner] if (owner := each.pop("owner", None)) else [])
    for each in answers["/api/v1/webhooks"]:
        each.setdefault("scopes", [])  # which the programs of the first layouts did not know
    assert kept.answers() == answers
    events = answers["/api/v1/events"]
    assert kept.call("GET", f"/api/v1/events?after={events[4]['id']}") == events[5:]


def test_what_was_done_is_not_done_again(kept: Kept, answers: dict[str, Any]) -> None:
    """A repeated request gets the stored response; a unique value, an id and a counter are taken."""
    assert kept.call("POST", "/api/v1/books", BOOK, **REPEATED) in answers["/api/v1/books?sort=-price"]
    assert kept.call("GET", "/api/v1/events")[-1] == answers["/api/v1/events"][-1]
    assert kept.status("PUT", "/api/v1/authors/carl", {"mail": "ada@EXAMPLE.org"}) == 409
    assert kept.call("POST", "/api/v1/books", BOOK)["id"] == 7


def test_the_store_goes_on(kept: Kept, answers: dict[str, Any]) -> None:
    """Writes, cascades, events and deliveries continue where the program that made the store ended."""
    kept.call("PATCH", "/api/v1/books/1", {"tags": ["old"]})
    assert [book["id"] for book in kept.call("GET", "/api/v1/books?tags=new")] == [2, 3]
    kept.call("DELETE", "/api/v1/authors/ada")
    assert [book["id"] for book in kept.call("GET", "/api/v1/books")] == [2, 6]
    found = kept.call("GET", f"/api/v1/events?after={answers['/api/v1/events'][-1]['id']}")
    assert [event["type"] for event in found] == ["book.updated", "author.deleted", *["book.deleted"] * 3]
    kept.clock.now += RETRIES[0]
    failed, last = answers["/api/v1/events"][3], answers["/api/v1/events"][-1]
    assert set(kept.deliver()) == {event["id"] for event in (failed, last, found[0], *found[2:])}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_former_program_is_shut_out(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not know the revision of items: while it runs, this one does not start; then it cannot."""
    monkeypatch.setattr("restkeeper.storage.sqlite.file.SHARE_SECONDS", 0.1)
    path = tmp_path / "store.db"
    url = f"sqlite:///{path}" if kind == "sqlite" else request.getfixturevalue("url")
    restore(2, url)
    with ExitStack() as former:
        if kind == "sqlite":
            former.enter_context(closing(LockFile(str(path)))).share()
        else:
            connection = former.enter_context(psycopg.connect(url))
            connection.execute("SELECT pg_advisory_lock_shared(%s)", (USES.key,))
        with pytest.raises(StoreUnavailable, match="must be migrated: stop all that uses it with a former program"):
            Kept(url, ADMIN)
    kept = Kept(url, recorded(2, kind)["key"])
    assert kept.store.stored()["books"][:2] == (1, 5)
    kept.store.close()
    assert oldest_of(url) >= 3


def oldest_of(url: str) -> int:
    """The oldest program that can use a store."""
    statement = "SELECT oldest FROM store"
    if not url.startswith("sqlite:"):
        with psycopg.connect(url) as database:
            return int(database.execute(statement.encode()).fetchall()[0][0])
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        return int(file.execute(statement).fetchone()[0])


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("ALTER TABLE items DROP COLUMN _position; UPDATE store SET migration = 1", "of an earlier layout, .*: export"),
        (
            "ALTER TABLE items DROP COLUMN _position; ALTER TABLE store DROP moved_to",
            "of an earlier layout, .*: export",
        ),
        ("DROP TABLE items; CREATE TABLE items (id integer)", "the tables of another program"),
        ("DROP TABLE items, store; CREATE TABLE store (address text)", "the tables of another program"),
    ],
)
def test_another_layout_is_refused_on_postgresql(url: str, statements: str, message: str) -> None:
    """One line says what the database has, and what to do; nothing is changed. For SQLite see test_opening.py."""
    open_store(url, [THINGS])
    close_all()
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(statements.encode())
        query = "SELECT relname, (SELECT count(*) FROM pg_attribute WHERE attrelid = pg_class.oid) FROM pg_class"
        before = database.execute(f"{query} ORDER BY 1").fetchall()
        with pytest.raises(StoreUnavailable, match=f"^the database has .*{message}"):
            open_store(url, [THINGS])
        assert database.execute(f"{query} ORDER BY 1").fetchall() == before

"""`restkeeper copy`: another store has the items of the first one, and only that one is opened."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from restkeeper.config import Config
from restkeeper.features.transfer import stores as command
from restkeeper.service import service_of
from restkeeper.storage import Options, locate, open_store
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.copying import Table
from restkeeper.storage.deliveries import Deliveries
from restkeeper.storage.errors import DuplicateValue, EventsExpired, StoreUnavailable
from restkeeper.storage.feed import find_events, last_event
from restkeeper.storage.interface import POSITION, Collection, Record, Sort, StoredResponse, StoredSchema
from restkeeper.storage.postgresql import store as postgresql_store
from restkeeper.storage.postgresql.store import PostgresCopy
from restkeeper.storage.sqlite import copying as sqlite_copying
from restkeeper.storage.sqlite import file
from restkeeper.storage.sqlite.copying import SqliteCopy
from restkeeper.storage.transactions import Event
from tests.live import ROOT
from tests.outbox import SECRETS, event, lease, queue, settle, subscribe
from tests.outbox import THINGS as FILTER
from tests.outbox import record as record_events
from tests.postgresql_server import Databases
from tests.shop import create_app
from tests.things import OTHERS, SAMPLE, ids, insert, record, schemas_of
from tests.things import THINGS as INDEXED

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.sqlite,
    pytest.mark.needs("events", "webhooks", "idempotency"),
]

NOW = 1_800_000_000.0

# `restkeeper copy`, which stops after the first items until it is killed.
STOPPED_COPY = """\
import sys, threading
from restkeeper.__main__ import main
from restkeeper.storage.postgresql.store import PostgresCopy
from restkeeper.storage.sqlite.copying import SqliteCopy

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


def copy(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(command.copy, arguments)


def moved(source: str, target: str) -> str:
    """Run the command, which succeeds, and return its output."""
    result = copy(source, target)
    assert result.exit_code == 0, result.output
    return result.output


def fill(store: Store) -> None:
    """Fill a store: items, a stored response, events, and a webhook."""

    def work(transaction: Transaction) -> None:
        transaction.store_response(b"\0r", StoredResponse(NOW, b"\xff"), expired_before=0.0)
        for each in SAMPLE:
            transaction.insert("things", each._replace(fingerprint="b", owner="me", removed_fields=b'{"x": 1.50}'))
            transaction.add_event(Event("thing.created", "things", each.id, "2026", each.body, "me", "b", b"{}"))
        transaction.delete("things", "b")
        transaction.insert("others", record("a"))

    store.write(work)
    store.write(lambda transaction: Deliveries(transaction).subscribe("w", SECRETS))


def content(store: Store) -> dict[str, Any]:
    """All that the copy has."""
    return {
        "stored": store.stored(),
        "items": [list(store.scan(name)) for name in ("things", "others")],
        "order": ids(store, sort=(Sort(POSITION),)),
        "schemas": schemas_of(store, "things"),
        "responses": store.look_up([b"\0r", b"r"]),
        "secrets": store.write(lambda transaction: Deliveries(transaction).secrets("w")),
    }


KINDS = ("sqlite", "postgresql")
OLDER, *DECLARED = (
    replace(INDEXED, schema=StoredSchema("a", 1, "{}")),
    replace(INDEXED, schema=StoredSchema("b", 1, "{}")),
    OTHERS,
)


@pytest.mark.parametrize("kinds", [(one, other) for one in KINDS for other in KINDS], ids="-".join)
def test_the_target_has_what_the_source_had(kinds: tuple[str, str], url: Url) -> None:
    """What is new follows the last: values stay unique. The feed of events begins anew, and so do deliveries."""
    source, target = map(url, kinds)
    open_store(source, [OLDER]).close()
    with closing(open_store(source, DECLARED)) as store:
        fill(store)
        before, change_token, last = content(store), store.change_token("things"), last_event(store)
    assert len(before["schemas"]) == 2
    moved(source, target)
    with closing(open_store(target, DECLARED)) as store:
        assert content(store) == before and store.change_token("things") != change_token
        with pytest.raises(DuplicateValue):
            insert(store, record("e", sku="L1"))
        insert(store, record("0"))
        assert ids(store, sort=(Sort(POSITION),)) == [*before["order"], "0"]
        with pytest.raises(EventsExpired) as raised:
            find_events(store, last, FILTER, 10)
        assert not find_events(store, raised.value.resume, FILTER, 10).events
        (new,) = record_events(store, event())
        assert [each.id for each in find_events(store, raised.value.resume, FILTER, 10).events] == [new]
        queue(store)
        assert [each.event.id for each in lease(store)] == [new]


def test_clients_of_items_notice_nothing(url: Url) -> None:
    """Of a service that is started with the other URL: a create is not repeated, and an ETag is valid."""
    source, target = map(url, KINDS)
    create = {"json": {"name": "Lämp", "price": 49.9}, "headers": {"Idempotency-Key": "repeated"}}
    shown = []
    for each in (source, target):
        app = create_app(Config(database_url=each))
        made = app.test_client().post("/products", **create)  # type: ignore[arg-type]
        shown.append([made.data, made.headers["ETag"], app.test_client().get(made.headers["Location"]).headers["ETag"]])
        service_of(app).store.close()
        if each == source:
            moved(source, target)
    assert shown[0] == shown[1]


THINGS = Collection("things", {})


def add(url: str, first: int, last: int) -> None:
    """Add items with these numbers, and an event for each."""

    def work(transaction: Transaction) -> None:
        for number in range(first, last):
            id, body = f"{number:06}", b'{"name":"%d","list":["a"],"more":{"x":null}}' % number
            transaction.insert("things", Record(id, 1, "2026", "0123abcd", body, "owner"))
            transaction.add_event(Event("thing.created", "things", id, "2026", body, "owner", "0123abcd"))

    with closing(open_store(url, [THINGS], Options(synchronous="normal"))) as store:
        store.write(work)


def items(url: str) -> list[Record]:
    with closing(open_store(url, [THINGS])) as store:
        return list(store.scan("things"))


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
        assert items(target)
        assert "was moved to" in copy(source, url("sqlite")).output

    def test_a_restore_opens_it_again(self, kind: str, source: str, url: Url, tmp_path: Path) -> None:
        target = url("sqlite")
        moved(source, target)
        file = None
        if kind == "sqlite":
            file = Path(shutil.copy(source.removeprefix("sqlite:///"), tmp_path / "old.db"))
        locate(source).restore(file, discard=True)
        assert items(source) == items(target)
        add(source, 10, 11)

    def test_a_store_in_use_is_refused(self, source: str, url: Url) -> None:
        target = url("sqlite")
        with closing(open_store(source, [THINGS])) as store:
            store.read("things", "000001")
            refused = copy(source, target)
            assert refused.exit_code == 1 and "is in use: stop the service" in refused.output
            store.write(lambda transaction: transaction.delete("things", "000001"))
        assert not has_store(target)
        before = items(source)
        moved(source, target)
        assert items(target) == before

    def test_nobody_uses_it_meanwhile(self, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A program that starts is refused, and so is a new connection of one that runs."""
        monkeypatch.setattr(file, "SHARE_SECONDS", 0.1)
        with locate(source).alone(time), pytest.raises(StoreUnavailable, match="is being (restored or )?moved"):
            open_store(source, [THINGS])
        add(source, 10, 11)

    def test_what_waits_for_a_webhook_is_left_behind_only_where_asked(self, source: str, url: Url) -> None:
        """It is refused while an event is neither queued nor numbered, and while its delivery has not ended."""
        target = url("sqlite")
        with closing(open_store(source, [THINGS])) as store:
            subscribe(store)

        def is_refused() -> bool:
            result = copy(source, target)
            return "were not sent all events: 1; run" in result.output and not has_store(target)

        add(source, 10, 11)
        assert is_refused()
        with closing(open_store(source, [THINGS])) as store:
            last_event(store)
            queue(store)
            (leased,) = lease(store)
        assert is_refused()
        with closing(open_store(source, [THINGS])) as store:
            settle(store, leased, ok=True)
        moved(source, target)
        add(target, 11, 12)
        assert copy(target, other := url("sqlite")).exit_code == 1
        assert copy("--discard", target, other).exit_code == 0 and has_store(other)


class TestInterrupted:
    def test_it_begins_anew_after_a_kill(self, kind: str, url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
        """After kill -9 there is no target, and the source can be used; the same command copies all."""
        source, target = url("sqlite"), url(kind)
        add(source, 0, 10)
        run = [sys.executable, "-c", STOPPED_COPY, source, target]
        with subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout and process.stdout.readline() == "stopped\n"
                monkeypatch.setattr(file, "SHARE_SECONDS", 0.1)
                assert "is being restored or moved" in copy(source, url("sqlite")).output
            finally:
                process.kill()
        assert not has_store(target)
        add(source, 10, 12)
        before = items(source)
        assert "items: 12 rows" in moved(source, target)
        assert items(target) == before
        assert not [*Path(source.removeprefix("sqlite:///")).parent.glob(".*.copy")]

    def test_it_begins_anew_after_its_last_step(
        self, source: str, kind: str, url: Url, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the mark of the source and the end of the target, no program opens either of the two."""
        target, before = url(kind), items(source)
        with monkeypatch.context() as patch:
            for each in (SqliteCopy, PostgresCopy):
                patch.setattr(each, "end", lambda self, name, end=each.end: end(self, name) or 1 / 0)  # type: ignore[attr-defined]
            assert isinstance(copy(source, target).exception, ZeroDivisionError)
        assert not has_store(target)
        with pytest.raises(StoreUnavailable, match="was moved"):
            open_store(source, [THINGS])
        assert "was moved to" in copy(source, url("sqlite")).output
        moved(source, target)
        assert items(target) == before

    def test_a_target_that_cannot_be_finished_moves_nothing(
        self, source: str, kind: str, url: Url, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on a full disk: the source can be used as before, and the same command copies all later."""
        target, before = url(kind), items(source)
        with monkeypatch.context() as patch:
            patch.setattr(sqlite_copying, "sync", lambda path: os.open(f"{path}/none", os.O_RDONLY))
            patch.setattr(postgresql_store, "_NUMBERS", ("SELECT 1 / 0",))
            message = copy(source, target).output
        assert ("Not a directory" if kind == "sqlite" else "division by zero") in message
        assert not has_store(target)
        open_store(source, [THINGS]).close()
        assert items(source) == before
        moved(source, target)

    def test_a_difference_is_found(self, kind: str, url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
        source, target = url("sqlite"), url(kind)
        add(source, 0, 10)
        before = items(source)
        other: list[Callable[[list[Any]], list[Any]]] = [
            lambda rows: rows[1:],
            lambda rows: [(*rows[0][:-2], "{}", rows[0][-1]), *rows[1:]],
        ]
        for left, change in zip((9, 10), other, strict=True):
            with monkeypatch.context() as patch:
                for each in (SqliteCopy, PostgresCopy):
                    patch.setattr(each, "add", changed(each.add, change))
                result = copy(source, target)
            message = rf"items differs from its source \({left} of 10 rows, digest"
            assert result.exit_code == 1 and re.search(message, result.output)
            assert not has_store(target) and items(source) == before


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
    source = url("sqlite")
    add(source, 0, 1)
    result = copy(*(each.format(source=source, folder=source.rpartition("/")[0]) for each in arguments))
    assert result.exit_code and message in result.output and "secret" not in result.output
    add(source, 1, 2)

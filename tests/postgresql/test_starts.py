"""Programs that start on one database, at the same time or beside others that write: migrations and indexes."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from restkeeper.storage import Options, locate
from restkeeper.storage.base import Store
from restkeeper.storage.errors import DuplicateValue, StoreUnavailable
from restkeeper.storage.interface import Collection, Field, Index, Kind, Query, Sort, StoredSchema
from restkeeper.storage.postgresql import limits, migrations
from restkeeper.storage.postgresql.session import Session
from tests.clock import SetClock
from tests.postgresql.helpers import Parallel
from tests.postgresql_server import Databases
from tests.things import DUPLICATES, DUPLICATES_REFUSED, FIELDS, THINGS, ids, insert, open_store, record, schemas_of
from tests.waiting import SECONDS, until

pytestmark = pytest.mark.matrix

ROUNDS = 20
# Whoever builds an index, and waits for an open transaction.
BUILDER = """\
FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE 'CREATE%INDEX%' AND wait_event_type = 'Lock'"""
# For how many seconds a statement with this beginning waits for a lock.
WAITING = """\
SELECT extract(epoch FROM clock_timestamp() - query_start)
FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE %s AND wait_event_type = 'Lock'"""
WITHOUT_INDEXES = Collection("things", FIELDS)
SCHEMA = StoredSchema("shape", 1, "{}")


def open_all(url: str, collections: list[Collection], count: int = 1) -> list[Store]:
    """Stores of as many instances, which start at the same time."""
    barrier, parallel = threading.Barrier(count), Parallel()

    def start(collection: Collection) -> Store:
        barrier.wait()
        return open_store(url, [collection])

    started = [parallel.start(start, collection) for collection in collections]
    parallel.join()
    return [each.result() for each in started]


@pytest.mark.parametrize("after", [1, 2])
def test_a_start_that_looks_at_the_database_while_another_creates_the_store(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """It takes what it finds then for a store of ours, after whichever of its questions the other one commits."""
    url, fetch, asked = databases.create_database(), Session.fetch, count(1)

    def ask(session: Session, statement: str, *more: Any) -> Any:
        found = fetch(session, statement, *more)
        if ("relname = 'store'" in statement or statement == migrations._COLUMNS) and next(asked) == after:
            monkeypatch.setattr(Session, "fetch", fetch)
            open_store(url, [THINGS]).close()
        return found

    monkeypatch.setattr(Session, "fetch", ask)
    store = open_store(url, [THINGS])
    insert(store, record("a"))
    store.close()
    databases.drop_database(url)


def indexes(url: str) -> dict[str, bool]:
    """The declared indexes of the collection: name to whether it is complete."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
            "WHERE relname LIKE 'items.%'"
        )
        return dict(found.fetchall())


def limited(url: str, milliseconds: int) -> str:
    """A URL, of whose connections a statement fails that waits longer for a lock."""
    return f"{url}{'&' if '?' in url else '?'}options=-c%20lock_timeout%3D{milliseconds}"


@contextmanager
def transaction(url: str, statement: str = "SELECT FROM items") -> Iterator[psycopg.Connection]:
    """A transaction of an analyst, which is open after a statement until the end of the block."""
    with psycopg.connect(url, application_name="analyst") as connection:
        connection.execute(statement.encode())
        yield connection


def wait_until_waiting(url: str, beginning: str, seconds: float) -> None:
    """Wait until a statement has waited for a lock for some time."""
    with psycopg.connect(url, autocommit=True) as connection:
        until(lambda: any(row[0] >= seconds for row in connection.execute(WAITING, (f"{beginning}%",)).fetchall()))


def test_instances_start_on_an_empty_database_together(databases: Databases) -> None:
    """Each of them comes up, however their statements meet, and the indexes are built once."""
    for _ in range(ROUNDS):
        url = databases.create_database()
        stores = open_all(url, [THINGS, WITHOUT_INDEXES, THINGS], 3)
        insert(stores[1], record("a", sku="s"))
        assert [ids(store) for store in stores] == [["a"]] * 3
        assert sorted(indexes(url).values()) == [True] * len(THINGS.indexes)
        assert len({store.epoch for store in stores}) == 1  # type: ignore[attr-defined]
        for store in stores:
            store.close()
        databases.drop_database(url)


def test_an_index_waits_for_a_long_transaction(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """For longer than any request waits for a lock, as nobody waits for it; the log says so. So does its deletion."""
    caplog.set_level(logging.INFO, "restkeeper")
    (old,) = open_all(url, [WITHOUT_INDEXES])
    insert(old, record("a"))
    parallel = Parallel()
    with transaction(url, "UPDATE items SET version = version"):
        started = parallel.start(open_store, limited(url, 10), [THINGS])
        wait_until_waiting(url, "CREATE", 0.1)
        insert(old, record("b"))
        assert "; this waits for others (see pg_stat_progress_create_index)" in caplog.text
    started.result(SECONDS)
    assert set(indexes(url).values()) == {True} and len(indexes(url)) == len(THINGS.indexes)
    (fewer,) = open_all(limited(url, 10), [WITHOUT_INDEXES])
    with transaction(url):
        dropped = parallel.start(fewer.tidy)
        wait_until_waiting(url, "DROP", 0.1)
    assert len(dropped.result(SECONDS)) == len(THINGS.indexes) and not indexes(url)


@pytest.mark.parametrize("lock", [migrations.BUILDS, migrations.MIGRATES])
def test_a_wait_for_another_program_is_logged(
    url: str, lock: migrations.Lock, caplog: pytest.LogCaptureFixture
) -> None:
    """After some seconds and then rarely."""
    (old,) = open_all(url, [WITHOUT_INDEXES])
    clock, parallel = SetClock(), Parallel()
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (lock.key,))
        line = f"waits for another program, which {lock.task} (see pg_stat_activity)"
        start = clock.now
        started = parallel.start(partial(open_store, url, [replace(THINGS, schema=SCHEMA)], Options(clock=clock)))
        until(lambda: len(caplog.messages) >= 2)
    started.result(SECONDS)
    assert set(caplog.messages) == {line}
    assert len(caplog.messages) - 1 <= (clock.now - start) / limits.LOG_SECONDS


def test_a_store_that_is_being_restored_is_unavailable(url: str) -> None:
    """Its tables are there before their rows, while pg_restore works: both for programs that run and that start."""
    (store,) = open_all(url, [THINGS])
    with psycopg.connect(url) as restoring:
        restoring.execute("DELETE FROM store")
    for use in (store.check, lambda: open_all(url, [THINGS])):
        with pytest.raises(StoreUnavailable, match="the store is being restored"):
            use()


def test_an_interrupted_index_is_built_again(url: str) -> None:
    """One whose build was cancelled is invalid: it refuses duplicates, but no query uses it."""
    (store,) = open_all(url, [WITHOUT_INDEXES])
    insert(store, record("a"))
    with psycopg.connect(url, autocommit=True) as held, psycopg.connect(url, autocommit=True) as other:
        held.execute("BEGIN")
        held.execute("UPDATE items SET version = 1")
        builder = threading.Thread(target=_fail_to_open, args=(url,))
        builder.start()
        until(lambda: other.execute(f"SELECT count(*) {BUILDER}").fetchone() == (1,))
        other.execute(f"SELECT pg_terminate_backend(pid) {BUILDER}")
        builder.join()
        held.execute("COMMIT")
    assert False in indexes(url).values()
    (again,) = open_all(url, [THINGS])
    assert set(indexes(url).values()) == {True} and len(indexes(url)) == len(THINGS.indexes)


def _fail_to_open(url: str) -> None:
    with pytest.raises(StoreUnavailable):
        open_store(url, [THINGS])


def test_a_unique_index_over_duplicates_is_refused(url: str) -> None:
    """With a clear message; the program before continues, and no invalid index is left."""
    (old,) = open_all(url, [WITHOUT_INDEXES])
    insert(old, *DUPLICATES)
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            open_store(url, [THINGS])
        assert str(caught.value) == DUPLICATES_REFUSED
        assert not any("mail" in name for name in indexes(url)) and set(indexes(url).values()) <= {True}
    insert(old, record("g", mail="a@x"))
    old.write(lambda transaction: [transaction.delete("things", each.id) for each in DUPLICATES])  # type: ignore[func-returns-value]
    (new,) = open_all(url, [THINGS])


LONG = "x" * 120


def test_long_names_have_indexes_of_their_own(url: str) -> None:
    """PostgreSQL cuts a name after 63 bytes; digests distinguish those that begin in the same way.

    The error about a duplicate has the whole name of its field.
    """
    fields = {name: Field(name, Kind.TEXT, nullable=True) for name in ("id", f"{LONG}_a", f"{LONG}_b")}
    made = [Index(name, unique=unique) for name in list(fields)[1:] for unique in (True, False)]
    collections = [Collection(f"{LONG}{n}", fields, tuple(made), has_owner_index=True) for n in "ab"]
    store = open_store(url, collections)
    assert len(indexes(url)) == 10 and all(indexes(url).values())
    again = open_store(url, collections)
    assert len(indexes(url)) == 10
    assert again.tidy() == []
    fewer = open_store(url, [replace(collections[0], indexes=()), collections[1]])
    assert len(fewer.tidy()) == 4 and len(indexes(url)) == 6
    body = f'{{"{LONG}_a":"s"}}'.encode()
    insert(store, record("a")._replace(body=body), collection=f"{LONG}b")
    with pytest.raises(DuplicateValue) as caught:
        insert(store, record("b")._replace(body=body), collection=f"{LONG}b")
    assert caught.value.fields == (f"{LONG}_a",)


ADDITIVE = """\
-- oldest: {}
ALTER TABLE items ADD COLUMN note text COLLATE "C";
CREATE TABLE notes (id text PRIMARY KEY);
"""

# The attempts to migrate that wait for a lock: the begin of each.
MIGRATING = """\
SELECT xact_start
FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE '-- oldest%' AND wait_event_type = 'Lock'"""


@pytest.fixture
def add_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets programs that start from now on have one migration more, which older ones can work with, or not."""

    def add(oldest: int) -> None:
        file = tmp_path / f"{len(migrations.MIGRATIONS) + 1:04}.sql"
        file.write_text(ADDITIVE.format(oldest))
        known = [*migrations.MIGRATIONS, file]
        monkeypatch.setattr(migrations, "MIGRATIONS", known)
        monkeypatch.setattr("restkeeper.storage.postgresql.store.MIGRATIONS", known)

    return add


def test_a_migration_runs_beside_an_older_program(url: str, add_migration: Callable[[int], None]) -> None:
    """It writes and reads all the time: no change fails, and all of them are there."""
    (old,) = open_all(url, [THINGS])
    parallel, is_end = Parallel(), threading.Event()

    def write(name: str) -> int:
        for n in count():
            insert(old, record(f"{name}{n}", name=name))
            old.write(lambda transaction: transaction.update("things", record(f"{name}{n}", 2, name=name)))  # noqa: B023
            assert old.read("things", f"{name}{n}").version == 2
            assert old.page("things", Query(sort=(Sort("name"),), limit=2)).bodies
            if is_end.is_set():
                return n + 1
        raise AssertionError

    written = [parallel.start(write, name) for name in "ab"]
    until(lambda: old.count("things") > 10)
    add_migration(1)
    new = open_all(url, [THINGS] * 2, 2)
    before = old.count("things")
    until(lambda: old.count("things") > before + 10)
    is_end.set()
    parallel.join()
    assert new[0].count("things") == sum(each.result() for each in written) == len(list(new[1].scan("things")))


def test_a_migration_waits_for_a_long_transaction(
    url: str, add_migration: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tries again and again, and does not hold up requests meanwhile: none waits for a lock for four seconds."""
    monkeypatch.setattr(limits, "MIGRATION_PAUSE_SECONDS", 0.2)
    (old,) = open_all(limited(url, 4000), [THINGS])
    parallel = Parallel()
    with transaction(url), psycopg.connect(url, autocommit=True) as other:
        add_migration(1)
        started = parallel.start(open_store, url, [THINGS])
        attempts: set[Any] = set()
        for n in count():
            insert(old, record(str(n)))
            assert old.read("things", str(n)).version == 1
            attempts.update(other.execute(MIGRATING).fetchall())
            if len(attempts) == 3:
                break
        assert not started.done()
    new = started.result(SECONDS)
    new.check()
    assert new.count("things") == n + 1


def test_requests_do_not_wait_for_a_migration_that_waits_for_a_vacuum(
    url: str, add_migration: Callable[[int], None]
) -> None:
    """It waits for longer than PostgreSQL needs to cancel an autovacuum, in a way that only a vacuum waits for."""
    (old,) = open_all(limited(url, 10), [THINGS])
    with transaction(url, "LOCK TABLE items IN SHARE UPDATE EXCLUSIVE MODE"):  # as a VACUUM does
        add_migration(1)
        started = Parallel().start(open_store, url, [THINGS])
        wait_until_waiting(url, "LOCK", 1.1)  # `deadlock_timeout`, after which it is cancelled, is 1 s
        insert(old, record("a"))
        assert ids(old) == ["a"]
    new = started.result(SECONDS)
    new.check()


def test_a_migration_waits_for_whoever_builds_an_index(url: str, add_migration: Callable[[int], None]) -> None:
    """In a way that the index does not wait for, which would be a deadlock."""
    (old,) = open_all(url, [WITHOUT_INDEXES])
    insert(old, record("a"))
    parallel = Parallel()
    with transaction(url, "UPDATE items SET version = version"):
        builder = parallel.start(open_store, url, [THINGS])
        wait_until_waiting(url, "CREATE", 0.0)
        add_migration(1)
        clock = SetClock()
        started = parallel.start(partial(open_store, url, [WITHOUT_INDEXES], Options(clock=clock)))
        until(lambda: limits.OTHERS_SECONDS in clock.slept)
        assert not builder.done()
    stores = [builder.result(SECONDS), started.result(SECONDS)]
    stores[1].check()
    assert set(indexes(url).values()) == {True} and len(indexes(url)) == len(THINGS.indexes)


def test_a_migration_that_waits_too_long_is_refused(
    url: str, add_migration: Callable[[int], None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is changed, and the log has few lines about it."""
    monkeypatch.setattr(limits, "MIGRATION_LOCK_SECONDS", 0.01)
    (old,) = open_all(url, [THINGS])
    present = len(migrations.MIGRATIONS)
    add_migration(present + 1)  # older programs cannot work with it
    clock = SetClock()
    start = clock.now
    with transaction(url):
        with pytest.raises(StoreUnavailable, match="others used its tables for 60 s"):
            open_store(url, [replace(THINGS, schema=SCHEMA)], Options(clock=clock))
        insert(old, record("a"))
    assert clock.now - start == limits.MIGRATION_SECONDS
    assert caplog.messages == ["waits for transactions that use its tables (see pg_stat_activity)"]
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT migration, to_regclass('notes') FROM store").fetchall() == [(present, None)]
    assert schemas_of(old, "things") == []
    (new,) = open_all(url, [THINGS])
    new.check()


def test_a_former_program_is_shut_out(
    url: str, add_migration: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one runs that cannot work with the store after a migration, this one does not start."""
    (former,) = open_all(url, [THINGS])
    former.check()  # its pool opens connections meanwhile, and each one uses the store
    add_migration(len(migrations.MIGRATIONS) + 1)
    monkeypatch.setattr("restkeeper.storage.sql.MIGRATIONS", migrations.MIGRATIONS)
    with pytest.raises(StoreUnavailable, match="must be migrated: stop all that uses it with a former program"):
        open_store(url, [THINGS], Options(clock=SetClock()))
    insert(former, record("a"))
    former.close()
    open_store(url, [THINGS]).check()


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("UPDATE store SET moved_to = 'x'; ALTER TABLE store DROP layout_4", r"made by a version before 1\.0: "),
        ("DROP TABLE items; CREATE TABLE items (id integer)", "the tables of another program"),
        ("DROP TABLE items, store; CREATE TABLE store (address text)", "the tables of another program"),
    ],
)
def test_another_layout_is_refused(url: str, statements: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By each command, in one line that says what to do; nothing is changed. For SQLite see test_opening.py."""
    monkeypatch.setattr(limits, "CLOSED_SECONDS", SECONDS)  # the server is busy
    open_store(url, [THINGS]).close()
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(statements.encode())
        query = "SELECT relname, (SELECT count(*) FROM pg_attribute WHERE attrelid = pg_class.oid) FROM pg_class"
        before = database.execute(f"{query} ORDER BY 1").fetchall()
        location = locate(url)
        for use in (
            lambda: open_store(url, [THINGS]),
            lambda: location.alone(time).__enter__(),
            lambda: location.restore(None, discard=False),
        ):
            with pytest.raises(StoreUnavailable, match=f"^the database has .*{message}"):
                use()
        assert database.execute(f"{query} ORDER BY 1").fetchall() == before

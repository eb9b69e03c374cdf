"""Programs that start on one database, at the same time or beside others that write: migrations and indexes."""

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from restkeeper.storage import open_store
from restkeeper.storage.contract import Collection, Field, Index, Kind, Query, Sort, Store
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.postgresql import migrations
from tests.postgresql.helpers import Parallel
from tests.postgresql_server import Databases, until
from tests.things import FIELDS, THINGS, ids, insert, record

pytestmark = pytest.mark.matrix

ROUNDS = 20
# Whoever builds an index, and waits for an open transaction.
BUILDER = """\
FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE 'CREATE%INDEX%' AND wait_event_type = 'Lock'"""
WITHOUT_INDEXES = Collection("things", FIELDS)


def open_all(url: str, collections: list[Collection], count: int = 1) -> list[Store]:
    """Stores of as many instances, which start at the same time."""
    barrier, parallel = threading.Barrier(count), Parallel()

    def start(collection: Collection) -> Store:
        barrier.wait()
        return open_store(url, [collection])

    started = [parallel.start(start, collection) for collection in collections]
    parallel.join()
    return [each.result() for each in started]


def indexes(url: str) -> dict[str, bool]:
    """The declared indexes of the collection: name to whether it is complete."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
            "WHERE relname LIKE 'items.%'"
        )
        return dict(found.fetchall())


def test_instances_start_on_an_empty_database_together(databases: Databases) -> None:
    """Each of them comes up, however their statements meet, and the indexes are built once."""
    for _ in range(ROUNDS):
        url = databases.create_database()
        stores = open_all(url, [THINGS, WITHOUT_INDEXES, THINGS], 3)
        insert(stores[1], record("a", sku="s"))
        assert [ids(store) for store in stores] == [["a"]] * 3
        assert sorted(indexes(url).values()) == [True] * 4
        assert len({store.epoch for store in stores}) == 1  # type: ignore[attr-defined]
        for store in stores:
            store.close()
        databases.drop_database(url)


def test_an_index_is_built_while_others_write(url: str) -> None:
    """A new program waits for an open transaction, as the index must have its rows; writers wait for nobody."""
    (old,) = open_all(url, [WITHOUT_INDEXES])
    insert(old, record("a", name="a"))
    parallel, is_open, ends = Parallel(), threading.Event(), threading.Event()

    def hold(transaction: Any) -> None:
        transaction.insert("things", record("late", name="late"))
        transaction._session.flush()
        is_open.set()
        while not ends.wait(0.5):
            transaction.read("things", "a", lock=False)  # it is not idle

    parallel.start(old.write, hold)
    is_open.wait()
    started = parallel.start(open_store, url, [THINGS])
    with psycopg.connect(url, autocommit=True) as connection:
        until(lambda: connection.execute(f"SELECT count(*) {BUILDER}").fetchone() == (1,))
    for n in range(20):
        insert(old, record(str(n), name=str(n)))
    assert not started.done()
    ends.set()
    parallel.join()
    new = started.result()
    assert set(indexes(url).values()) == {True} and len(indexes(url)) == 4
    assert ids(new, sort=(Sort("name"),)) == sorted([*map(str, range(20)), "a", "late"])
    for store in (old, new):
        store.close()


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
    assert set(indexes(url).values()) == {True} and len(indexes(url)) == 4
    for each in (store, again):
        each.close()


def _fail_to_open(url: str) -> None:
    with pytest.raises(StoreUnavailable):
        open_store(url, [THINGS])


def test_a_unique_index_over_duplicates_is_refused(url: str) -> None:
    """With a clear message; the program before continues, and no invalid index is left."""
    (old,) = open_all(url, [WITHOUT_INDEXES])
    insert(old, record("a", sku="s"), record("b", sku="s"))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="some items of things have the same sku, which must be unique"):
            open_store(url, [THINGS])
        assert not any("sku" in name for name in indexes(url)) and set(indexes(url).values()) <= {True}
    insert(old, record("c", sku="s"))
    old.write(lambda transaction: [transaction.delete("things", id) for id in "ab"])  # type: ignore[func-returns-value]
    (new,) = open_all(url, [THINGS])
    for store in (old, new):
        store.close()


LONG = "x" * 120


def test_long_names_have_indexes_of_their_own(url: str) -> None:
    """PostgreSQL cuts a name after 63 bytes; digests distinguish those that begin in the same way."""
    fields = {name: Field(name, Kind.TEXT, nullable=True) for name in ("id", f"{LONG}_a", f"{LONG}_b")}
    made = [Index(name, unique=unique) for name in list(fields)[1:] for unique in (True, False)]
    collections = [Collection(f"{LONG}{n}", fields, tuple(made), owned=True) for n in "ab"]
    store = open_store(url, collections)
    assert len(indexes(url)) == 10 and all(indexes(url).values())
    again = open_store(url, collections)
    assert len(indexes(url)) == 10
    assert again.tidy() == []
    fewer = open_store(url, [replace(collections[0], indexes=()), collections[1]])
    assert len(fewer.tidy()) == 4 and len(indexes(url)) == 6
    for each in (store, again, fewer):
        each.close()


def test_a_duplicate_of_a_long_name_is_named(url: str) -> None:
    """The error has the whole name of the field."""
    name = f"{LONG}_a"
    fields = {each: Field(each, Kind.TEXT, nullable=True) for each in ("id", name)}
    store = open_store(url, [Collection(LONG, fields, (Index(name, unique=True),))])
    body = f'{{"id":"a","{name}":"s"}}'.encode()
    insert(store, record("a")._replace(body=body), collection=LONG)
    with pytest.raises(Exception) as caught:
        insert(store, record("b")._replace(body=body), collection=LONG)
    assert getattr(caught.value, "field", None) == name
    store.close()


ADDITIVE = """\
-- oldest: {}
ALTER TABLE items ADD COLUMN note text COLLATE "C";
CREATE TABLE notes (id text PRIMARY KEY);
"""


@pytest.fixture
def add_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets programs that start from now on have one migration more, which older ones can work with, or not."""

    def add(oldest: int) -> None:
        file = tmp_path / "0002.sql"
        file.write_text(ADDITIVE.format(oldest))
        monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, file])

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
    for store in (old, *new):
        store.close()


def test_a_migration_that_older_programs_cannot_work_with(url: str, add_migration: Callable[[int], None]) -> None:
    """They refuse to start, and their new connections are refused, with the reason; the new one works."""
    (old,) = open_all(url, [THINGS])
    of_old = migrations.MIGRATIONS
    add_migration(2)
    (new,) = open_all(url, [THINGS])
    new.check()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", of_old)
        with pytest.raises(StoreUnavailable, match="of a newer program .migration 2 of 1"):
            open_store(url, [THINGS])
        with pytest.raises(StoreUnavailable, match="of a newer program"):
            old.check()
    for store in (old, new):
        store.close()

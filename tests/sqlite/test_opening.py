"""Files: opening, contents, permissions and copies."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from restkeeper.storage import locate
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import EventsExpired, StoreUnavailable
from restkeeper.storage.feed import find_events, sweep_events
from restkeeper.storage.interface import Collection, StoredSchema
from restkeeper.storage.sql import LAYOUT
from restkeeper.storage.sqlite.store import CLOSE_SECONDS, SqliteStore
from tests import outbox, stores
from tests.sqlite.helpers import Clock, opened, reading
from tests.things import OTHERS, SAMPLE, THINGS, insert, kept, open_store, record
from tests.waiting import SECONDS, join


def test_a_store_opens_while_another_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that needs no migration and has the schema is opened, and read, without waiting for the write lock."""
    monkeypatch.setattr("restkeeper.storage.sqlite.connection.BUSY_SECONDS", 0.05)
    url = f"sqlite:///{tmp_path}/store.db"
    things = replace(THINGS, schema=StoredSchema("a", 1, "{}"))
    first = open_store(url, [things])
    insert(first, *SAMPLE)
    with stores.held(url):
        second = open_store(url, [things])
        assert second.count("things") == len(SAMPLE)
        second.close()


FOREIGN = {
    "of one table": "CREATE TABLE songs (title TEXT);",
    "of our version": "CREATE TABLE items (id INTEGER PRIMARY KEY, body TEXT); PRAGMA user_version = 1;",
    "with a number": "PRAGMA application_id = 252006673;",
    "with a log": "PRAGMA journal_mode = WAL; CREATE TABLE songs (title TEXT);",
}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
@pytest.mark.parametrize("script", FOREIGN.values(), ids=FOREIGN)
def test_the_file_of_another_program_is_not_touched(tmp_path: Path, script: str, is_open: bool) -> None:
    """It is refused by each command, byte for byte the same afterwards, and there is nothing new beside it.

    Whoever has it open can have everything in its log. No backup replaces it.
    """
    (ours := open_store(f"sqlite:///{tmp_path}/backup", [THINGS])).close()
    (folder := tmp_path / "theirs").mkdir()
    location = locate(f"sqlite:///{folder}/store.db")
    with closing(sqlite3.connect(folder / "store.db", isolation_level=None)) as theirs:
        theirs.executescript(script)
        if not is_open:
            theirs.close()
        before = content(folder)
        for use in (
            lambda: open_store(location.name, [THINGS]),
            lambda: location.restore(tmp_path / "backup", discard=True),
            lambda: location.alone(Clock()).__enter__(),
            lambda: ours.backup(folder / "store.db", replace=True),
        ):
            with pytest.raises(StoreUnavailable, match="of another program") as refused:
                use()
            assert "\n" not in str(refused.value) and str(folder / "store.db") in str(refused.value)
            assert content(folder) == before


def test_a_store_of_before_1_0_is_refused(tmp_path: Path) -> None:
    """By each command, in one line that says what to do, also if it was moved; nothing is changed."""
    (store := open_store(f"sqlite:///{tmp_path}/store.db", [THINGS])).backup(tmp_path / "backup.db")
    store.close()
    for name in ("store.db", "backup.db"):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.execute(f"ALTER TABLE store DROP {LAYOUT}")
            connection.execute("PRAGMA user_version = 5")
            connection.execute("UPDATE store SET moved_to = 'another'")
            connection.commit()
    before = content(tmp_path)
    location = locate(f"sqlite:///{tmp_path}/store.db")
    for use in (
        lambda: open_store(location.name, [THINGS]),
        lambda: location.alone(Clock()).__enter__(),
        lambda: location.restore(tmp_path / "backup.db", discard=True),
    ):
        with pytest.raises(StoreUnavailable, match=r"^.* made by a version before 1\.0: export its items there, and "):
            use()
    assert content(tmp_path) == before


def test_a_store_has_our_number_from_the_beginning(tmp_path: Path) -> None:
    """In the file itself, where it can be read without its log; also in a backup, and after a migration."""
    store = opened(tmp_path)
    assert (tmp_path / "store.db").read_bytes()[68:72] == b"RstK" and (tmp_path / "store.db-wal").stat().st_size
    store.backup(tmp_path / "backup.db")
    assert (tmp_path / "backup.db").read_bytes()[68:72] == b"RstK"


def test_an_empty_database_becomes_a_store(tmp_path: Path) -> None:
    """As one that a program left which ended before it had created the tables."""
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    insert(opened(tmp_path), record("a"))


def test_a_symbolic_link_opens_the_same_store(tmp_path: Path) -> None:
    """Changes through one name are visible through the other."""
    first = open_store(f"sqlite:///{tmp_path}/a.db", [THINGS])
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    second = open_store(f"sqlite:///{tmp_path}/link.db", [THINGS])
    insert(first, record("a"))
    assert second.read("things", "a").version == 1
    first.write(lambda transaction: transaction.update("things", record("a", version=2)))
    assert second.read("things", "a").version == 2


def test_closing_another_store_releases_no_lock(tmp_path: Path) -> None:
    """Closing a file releases all locks of the process on it; closing a store does not release those of others."""
    path = tmp_path / "a.db"
    store = open_store(f"sqlite:///{path}", [THINGS])
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"

    def work(transaction: Transaction) -> int:
        transaction.insert("things", record("a"))
        open_store(f"sqlite:///{path}", [THINGS]).close()
        return subprocess.run(
            [sys.executable, "-c", code, str(path)], check=False, stderr=subprocess.DEVNULL
        ).returncode

    assert store.write(work) == 1  # the other process finds the database locked


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    """The store, SQLite's other files, and backups contain secrets: only their owner can read them."""
    store = opened(tmp_path)
    insert(store, record("a"))
    store.backup(tmp_path / "backup.db")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["store.db", "store.db-lock", "store.db-wal", "store.db-shm", "backup.db"], 0o600)


def test_the_mode_of_an_existing_file_does_not_change(tmp_path: Path) -> None:
    """An operator may let a group read the store."""
    opened(tmp_path).close()
    os.chmod(tmp_path / "store.db", 0o640)
    opened(tmp_path).close()
    assert (tmp_path / "store.db").stat().st_mode & 0o777 == 0o640


def test_no_connection_crosses_a_fork(tmp_path: Path) -> None:
    """A forked process cannot use a file that was open before, and opens one that was not."""
    store, same = opened(tmp_path), kept(SqliteStore(str(tmp_path / "store.db"), [THINGS, OTHERS]))
    unopened = kept(SqliteStore(str(tmp_path / "other.db"), [THINGS, OTHERS]))
    insert(store, record("a"))
    assert store.read("things", "a").id == "a"
    if (child := os.fork()) == 0:
        status = 1
        try:
            for use in (lambda: store.read("things", "a"), lambda: insert(store, record("x")), store.open, same.open):
                with pytest.raises(StoreUnavailable, match="before this process was forked"):
                    use()
            insert(unopened, record("b"))
            assert unopened.read("things", "b").id == "b"
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    insert(store, record("c"))
    assert [each.id for each in store.scan("things")] == ["a", "c"]
    assert [each.id for each in unopened.scan("things")] == ["b"]


def test_the_last_one_that_closes_leaves_one_file(tmp_path: Path) -> None:
    """While another process reads, closing waits a bounded time; after the last one has closed there is no log."""
    clock = Clock()
    first, last = opened(tmp_path), opened(tmp_path, clock=clock)
    insert(first, record("a"))
    insert(last, record("b"))
    log = tmp_path / "store.db-wal"
    first.close()
    assert log.stat().st_size
    with reading(tmp_path):
        last.close()
    assert CLOSE_SECONDS <= clock.now < CLOSE_SECONDS + 1
    opened(tmp_path).close()
    assert not log.exists()
    with closing(sqlite3.connect(shutil.copy(tmp_path / "store.db", tmp_path / "copy.db"))) as copy:
        assert copy.execute("SELECT id FROM items ORDER BY id").fetchall() == [("a",), ("b",)]


def test_the_end_of_a_store_does_not_wait_for_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing raises an error if a write of this process does not end; the store stays open."""
    monkeypatch.setattr("restkeeper.storage.sqlite.store.CLOSE_SECONDS", 0.01)
    store = opened(tmp_path)
    began, end = threading.Event(), threading.Event()
    writer = threading.Thread(target=lambda: store.write(lambda _: began.set() or end.wait(SECONDS)))
    writer.start()
    began.wait(SECONDS)
    with pytest.raises(StoreUnavailable, match="other callers write"):
        store.close()
    end.set()
    join(writer)
    insert(store, record("a"))


def test_the_end_of_a_store_does_not_change_another_file(tmp_path: Path) -> None:
    """A backup that was copied over a store in use stays as it is when the store is closed."""
    store = opened(tmp_path)
    insert(store, record("a"))
    store.backup(tmp_path / "backup.db")
    insert(store, *(record(f"{n}", name="x" * 1000) for n in range(100)))
    shutil.copyfile(tmp_path / "backup.db", tmp_path / "store.db")
    store.close()
    assert (tmp_path / "store.db").read_bytes() == (tmp_path / "backup.db").read_bytes()


def test_a_copy_shares_only_the_history_before_it(tmp_path: Path) -> None:
    """A cursor from before the backup is valid in each copy; a later one only in its own store."""
    things = [Collection("things", {})]
    original = open_store(f"sqlite:///{tmp_path}/a.db", things)
    before = outbox.record(original, outbox.event("a"), outbox.event("b"))
    original.backup(tmp_path / "b.db")
    (tmp_path / "c.db").write_bytes((tmp_path / "b.db").read_bytes())
    stores = [original, *(open_store(f"sqlite:///{tmp_path}/{name}.db", things) for name in "bc")]
    after = [outbox.record(store, outbox.event("c"), outbox.event("d")) for store in stores]
    assert len({id for ids in after for id in ids}) == 6
    for store, own in zip(stores, after, strict=True):
        assert outbox.all_of(store) == before + own
        assert len(find_events(store, before[-1], outbox.THINGS, 10).events) == 2
        for other in (ids for ids in after if ids is not own):
            for id in other:
                with pytest.raises(EventsExpired):
                    find_events(store, id, outbox.THINGS, 10)
        outbox.record(store, outbox.event("e", at="2028"))
        store.write(lambda transaction: sweep_events(transaction, "2027", 10))
        with pytest.raises(EventsExpired):  # it has the position of this store's deleted event
            find_events(store, next(ids for ids in after if ids is not own)[-1], outbox.THINGS, 10)
        assert len(find_events(store, own[-1], outbox.THINGS, 10).events) == 1
        store.close()

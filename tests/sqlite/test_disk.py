"""The disk: a store with little free space, and the size of the log."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from restkeeper import create_app
from restkeeper.config import Config
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import StoreFailing, StoreFull, StoreUnavailable, StoreUnopened
from restkeeper.storage.interface import Filter, Op, Query, Sort
from restkeeper.storage.sqlite.connection import LOG_BYTES
from restkeeper.storage.sqlite.search import READ_SECONDS, WORK_SECONDS
from restkeeper.storage.sqlite.store import SPACE_SECONDS, SqliteStore
from restkeeper.storage.sqlite.writer import CHECKPOINT_SECONDS, LOG_FULL, PINNED_SECONDS
from tests.callers import ADMIN_KEY, key
from tests.clock import SetClock
from tests.shop import RESOURCES
from tests.sqlite.helpers import MIB, Clock, file_limit, opened, reading
from tests.things import OTHERS, THINGS, insert, kept, record


def test_a_store_that_cannot_grow(tmp_path: Path) -> None:
    """Each write fails as on a full disk, and `check` says so until there is space again. Nothing stored is lost."""
    store, other = opened(tmp_path), opened(tmp_path)
    insert(store, *(record(f"{n}", name="x" * 1000) for n in range(50)))
    log = tmp_path / "store.db-wal"
    with file_limit(log.stat().st_size + 20_001):  # it cuts a page
        written = 50
        with pytest.raises(StoreFull, match="disk is full"):
            for written in range(50, 100):
                insert(store, record(f"{written}", name="x" * 4000))
        for _ in range(3):
            with pytest.raises(StoreFull, match="disk is full"):
                insert(store, record("large", name="x" * 2 * MIB))
            with pytest.raises(StoreUnavailable, match="disk is full"):
                store.check()
        assert store.count("things") == other.count("things") == written
    store.check()
    other.check()
    store.write(lambda transaction: transaction.delete("things", "0"), use_reserve=True)
    insert(other, record("large", name="x" * 2 * MIB))
    assert store.count("things") == other.count("things") == written


def test_another_process_completes_what_a_full_disk_cut(tmp_path: Path) -> None:
    """Its check moves the log into the store when there is space again: a part of a page is no damage."""
    store, other = opened(tmp_path), opened(tmp_path)
    file = tmp_path / "store.db"
    insert(store, record("a", name="x" * 300_000))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with file_limit(file.stat().st_size + 1000):
            insert(store, record("b", name="x" * 50_000))
            with pytest.raises(sqlite3.OperationalError):
                connection.execute("PRAGMA wal_checkpoint")
    assert file.stat().st_size % 4096 == 1000
    other.check()
    assert file.stat().st_size % 4096 == 0


def test_a_store_on_a_full_disk_is_opened(tmp_path: Path) -> None:
    """Without space for `-shm` it is read as it is, by one process, also after a crash, which counts as no damage."""
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    store = opened(tmp_path)
    insert(store, record("a", name="x" * 10_000))
    for name in ("store.db", "store.db-wal"):
        shutil.copy(tmp_path / name, crashed)
    store.close()
    for folder in (tmp_path, crashed):
        with file_limit(8192):
            with pytest.raises(StoreFull):
                opened(folder)  # it would stay alone when there is space again
            store = kept(SqliteStore(str(folder / "store.db"), [THINGS, OTHERS]))
            store.open(alone=True)
            assert [each.id for each in store.scan("things")] == ["a"]
            assert store.count("things") == 1
            with pytest.raises(StoreFull):
                insert(store, record("b", name="x" * 10_000))
            store.close()
            with pytest.raises(StoreUnopened):
                opened(folder, creates=False)  # as a worker, beside others
        store = opened(folder)
        store.check()
        insert(store, record("b"))
        store.close()


@pytest.mark.needs("webhooks")
def test_commands_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ends opens the store; one that runs on would lock it for all others, also when there is space again."""
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/store.db", min_free_space=0), RESOURCES)
    monkeypatch.setattr("restkeeper.features.webhooks.command.stop_requested", lambda: lambda: True)
    store, runner = app.extensions["restkeeper"].store, app.test_cli_runner()
    store.close()
    with file_limit(8192):
        assert runner.invoke(args=["export", "products", str(tmp_path / "products")]).exit_code == 0
        store.close()
        refused = runner.invoke(args=["deliver"])
        assert refused.exit_code == 1 and "disk is full" in refused.output


class Failing:
    """A connection of a disk that refuses to write: each COMMIT fails while it `fails`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.fails = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: str, *parameters: object) -> sqlite3.Cursor:
        if statement == "COMMIT" and self.fails:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
            raise error
        return self._connection.execute(statement, *parameters)


@pytest.fixture
def failing(store: SqliteStore) -> Failing:
    """The connection of the store."""
    connection = store._writer.connection = Failing(store._writer.connection)
    return connection


def test_a_write_that_failed_is_remembered(tmp_path: Path, store: SqliteStore, failing: Failing) -> None:
    """The store is not ready until a write succeeds, not even where other files can be written: it is not full."""
    with pytest.raises(StoreFailing, match="cannot be written to: disk I/O error"):
        insert(store, record("a"))
    for _ in range(2):
        with pytest.raises(StoreFailing, match="disk I/O error"):
            store.check()
    failing.fails = False
    store.check()
    log = (tmp_path / "store.db-wal").read_bytes()
    store.check()
    assert (tmp_path / "store.db-wal").read_bytes() == log  # it writes nothing while nothing fails


def test_a_file_that_may_not_be_written_is_tried(
    store: SqliteStore, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its permissions do not decide whether the store is ready, but a write: the file can be open since before."""
    store.check()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StoreFailing, match="disk I/O error"):
        store.check()
    failing.fails = False
    store.check()


def test_a_full_disk_in_requests() -> None:
    """A POST gets 507, GET and DELETE succeed, and /readyz returns 503 and names the disk."""
    clock = SetClock()
    app = create_app(Config(auth="required", admin_key=ADMIN_KEY, min_free_space=1), RESOURCES, clock=clock)
    store, client = app.extensions["restkeeper"].store, app.test_client()
    writer = key(client, "products:read", "products:write")
    made = client.post("/products", json={"name": "x"}, headers=writer).headers["Location"]
    free = 0
    store._free_space = lambda: free
    clock.now += SPACE_SECONDS
    refused = client.post("/products", json={"name": "x"}, headers=writer)
    assert (refused.status_code, refused.json["title"]) == (507, "The disk is full")
    assert client.get("/readyz").status_code == 503
    assert "disk" in client.get("/readyz").json["detail"]
    assert client.get(made, headers=writer).status_code == 200
    assert client.delete(made, headers=writer).status_code == 200
    free = 1
    assert client.get("/readyz").status_code == 200
    assert client.post("/products", json={"name": "x"}, headers=writer).status_code == 200


def test_a_slow_scan_does_not_block_the_log(tmp_path: Path) -> None:
    """A slow reader of an export does not make the log grow, and gets a consistent state."""
    store = opened(tmp_path, synchronous="normal")
    insert(store, *(record(f"{n:04}", name="x" * 1000) for n in range(2000)))
    scan = store.scan("things")
    seen = [next(scan).id]
    sizes = []
    for n in range(40):
        insert(store, record(f"late {n}", name="x" * MIB))
        sizes.append((tmp_path / "store.db-wal").stat().st_size)
    assert max(sizes) <= LOG_BYTES
    assert [*seen, *(each.id for each in scan)] == [f"{n:04}" for n in range(2000)]


def test_a_log_that_grew_becomes_short_again(tmp_path: Path) -> None:
    """A long read of another program makes the log grow; the first write after it truncates the log."""
    clock = Clock()
    store = opened(tmp_path, synchronous="normal", clock=clock)
    log = tmp_path / "store.db-wal"
    insert(store, record("a"))
    with reading(tmp_path):
        for n in range(20):
            insert(store, record(f"{n}", name="x" * MIB))
        assert log.stat().st_size > LOG_BYTES
    clock.now += CHECKPOINT_SECONDS
    insert(store, record("b"))
    assert log.stat().st_size < MIB


class Busy(Clock):
    """A clock that advances each time it is read, and whose first `times` pauses run other work."""

    def __init__(self, work: Callable[[], object], times: int) -> None:
        super().__init__()
        self._work = work
        self.left = times

    def monotonic(self) -> float:
        self.now += WORK_SECONDS
        return self.now

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.left > 0:
            self.left -= 1
            self._work()


def test_a_search_ends_if_it_blocks_the_log(tmp_path: Path) -> None:
    """Writes of another process make the log grow up to a limit; then the search fails, and the log is truncated."""
    numbers = iter(range(1000))
    writer = opened(tmp_path, synchronous="normal")
    insert(writer, *(record(f"m{n:05}", name="x" * 100) for n in range(20_000)))
    clock = Busy(lambda: insert(writer, record(f"{next(numbers)}", name="x" * MIB)), 100)
    searcher = opened(tmp_path, clock=clock)
    with pytest.raises(StoreUnavailable, match="written"):
        searcher.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1))
    log = tmp_path / "store.db-wal"
    assert 64 * MIB <= log.stat().st_size < 72 * MIB
    assert writer.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1)).bodies == []
    assert log.stat().st_size < MIB


def test_a_search_runs_if_another_program_blocks_the_log(tmp_path: Path) -> None:
    """It waits as long as our own searches can take, and then runs; the next ones do not wait."""
    clock = Clock()
    store = opened(tmp_path, synchronous="normal", clock=clock)
    insert(store, record("a"))
    sorted_ = Query(sort=(Sort("stock"),), limit=100)
    with reading(tmp_path):
        for n in range(70):
            insert(store, record(f"{n}", name="x" * MIB))
        assert (tmp_path / "store.db-wal").stat().st_size > LOG_FULL
        began = clock.now
        assert len(store.page("things", sorted_).bodies) == 71
        assert READ_SECONDS <= clock.now - began < READ_SECONDS + 1
        began = clock.now
        assert len(store.page("things", sorted_).bodies) == store.count("things", sorted_) == 71
        assert clock.now == began
        clock.now += PINNED_SECONDS
    began = clock.now
    assert len(store.page("things", sorted_).bodies) == 71
    assert clock.now - began < 1 and (tmp_path / "store.db-wal").stat().st_size < MIB


def test_ended_searches_do_not_count_as_another_program(tmp_path: Path) -> None:
    """After they have ended, the next ones wait again, and the log is truncated."""
    numbers = iter(range(1000))
    writer = opened(tmp_path, synchronous="normal")
    insert(writer, *(record(f"m{n:05}", name="x" * 100) for n in range(500)))
    clock = Busy(lambda: insert(writer, record(f"{next(numbers)}", name="x" * MIB)), 0)
    searched = Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1)
    with reading(tmp_path):
        insert(writer, *(record(f"first {n}", name="x" * MIB) for n in range(20)))
        searcher = opened(tmp_path, clock=clock)
        assert searcher.page("things", searched).bodies == []  # after a wait without effect
    clock.left = 100
    with pytest.raises(StoreUnavailable, match="written"):
        searcher.page("things", searched)
    clock.left = 0
    assert searcher.page("things", searched).bodies == []
    assert (tmp_path / "store.db-wal").stat().st_size < MIB


@pytest.mark.parametrize("keeps", [False, True])
def test_a_conversion_needs_free_space(tmp_path: Path, keeps: bool) -> None:
    """Of twice the file, and once more for a backup: without it, nothing begins."""
    store, worked = opened(tmp_path), list[Transaction]()
    insert(store, record("a"))
    store.write(lambda transaction: transaction.set_revision("things", 1, 0, ""))
    least = (2 + keeps) * (tmp_path / "store.db").stat().st_size
    store._free_space = lambda: least - 1
    with pytest.raises(StoreFull, match=f"{least - 1} free bytes, and {least} are needed"):
        store.convert(["things"], worked.append, "", keeps=keeps)
    assert not worked and not list(tmp_path.glob("store.db.things-*"))
    store._free_space = lambda: least
    store.convert(["things"], worked.append, "", keeps=keeps)
    assert len(worked) == 1

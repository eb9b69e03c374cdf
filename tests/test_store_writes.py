"""The store's writes: who waits for how long, what one commit takes, and what the disk has to have."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from restkeeper.clock import TURN
from restkeeper.config import Config
from restkeeper.storage.contract import Filter, Op, Query, Sort, Transaction
from restkeeper.storage.errors import StoreFull, StoreUnavailable
from restkeeper.storage.sqlite.files import CHECKPOINT_SECONDS, LOG_BYTES, LOG_FULL, PINNED_SECONDS
from restkeeper.storage.sqlite.lockfile import LockFile
from restkeeper.storage.sqlite.search import READ_SECONDS, YIELD_SECONDS
from restkeeper.storage.sqlite.store import SqliteStore
from restkeeper.storage.sqlite.waiting import BUSY_SECONDS
from restkeeper.storage.sqlite.writer import BATCH_SECONDS, LONG_SECONDS, OTHERS_SECONDS, _Work
from tests.live import ROOT
from tests.shop import create_app
from tests.test_store import OTHERS, THINGS, keep, record
from tests.waiting import SECONDS, join

MIB = 1024 * 1024


class Clock:
    """A clock that goes on only when somebody sleeps. The first `together` who let others work meet there."""

    def __init__(self, together: int = 1) -> None:
        self.now = 0.0
        self._meeting = threading.Barrier(together)
        self._expected = together
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        with self._lock:
            self._expected -= seconds == 0
            meets = seconds == 0 and self._expected >= 0
        if meets:
            self._meeting.wait(SECONDS)


def opened(folder: Path, **options: Any) -> SqliteStore:
    return SqliteStore(str(folder / "store.db"), [THINGS, OTHERS], **options)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = opened(tmp_path)
    yield store
    store.close()


def together(works: list[Callable[[], object]]) -> list[object]:
    """What each of the works returns or raises, each on a thread of its own."""
    results: list[object] = [None] * len(works)

    def run(number: int) -> None:
        try:
            results[number] = works[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    join(*threads)
    return results


def test_all_who_wait_for_another_process_have_one_deadline(tmp_path: Path) -> None:
    """200 writes behind a held lock are all given up 5 seconds after their call, and none of them is done later."""
    clock = Clock(200)
    store = opened(tmp_path, clock=clock)
    ran: list[int] = []
    holder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    results = together([lambda: store.write(lambda _: ran.append(1))] * 200)
    assert {type(result) for result in results} == {StoreUnavailable}
    assert BUSY_SECONDS <= clock.now < BUSY_SECONDS + 0.01
    holder.execute("ROLLBACK")
    holder.close()
    assert store.write(lambda _: "done") == "done"
    assert ran == []
    store.close()


def test_a_write_whose_time_is_over_leaves_the_queue(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits behind a long work of the same process is answered in time, and its work is not done later."""
    begun, end = threading.Event(), threading.Event()
    ran: list[int] = []

    def long(_: Transaction) -> None:
        begun.set()
        assert end.wait(10)

    first = threading.Thread(target=store.write, args=(long,))
    first.start()
    assert begun.wait(SECONDS)
    monkeypatch.setattr("restkeeper.storage.sqlite.waiting.BUSY_SECONDS", 0.01)
    with pytest.raises(StoreUnavailable):
        store.write(lambda _: ran.append(1))
    end.set()
    join(first)
    store.write(lambda _: None)
    assert ran == []


def test_a_write_has_the_deadline_that_it_is_given(tmp_path: Path) -> None:
    """What a request has waited elsewhere is not there for the lock of another process."""
    clock = Clock()
    store = opened(tmp_path, clock=clock)
    holder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    for seconds in (0.5, BUSY_SECONDS + 1):
        began = clock.now
        with pytest.raises(StoreUnavailable):
            store.write(lambda _: None, deadline=began + seconds)
        assert seconds <= clock.now - began < seconds + 0.1
    holder.close()
    store.close()


def test_a_write_that_is_under_way_waits_for_its_result(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a work is in a commit it is not given up: whether it was done is not known before the end."""
    monkeypatch.setattr("restkeeper.storage.sqlite.waiting.BUSY_SECONDS", 0.5)
    monkeypatch.setattr("restkeeper.storage.sqlite.writer.BATCH_SECONDS", 60.0)
    writer = store._writer
    begun, refused = threading.Event(), threading.Event()
    withdraw = writer._withdraw

    def watched(work: Any) -> bool:
        if not (was_there := withdraw(work)):
            refused.set()
        return was_there

    monkeypatch.setattr(writer, "_withdraw", watched)

    def first(_: Transaction) -> None:
        begun.set()
        while not writer._queue:
            threading.Event().wait(0.001)

    def second(transaction: Transaction) -> str:
        assert refused.wait(10)  # its caller has tried to withdraw it, in vain
        transaction.insert("things", record("a"))
        return "done"

    leader = threading.Thread(target=store.write, args=(first,))
    leader.start()
    assert begun.wait(SECONDS)
    assert store.write(second) == "done"
    join(leader)
    assert store.count("things") == 1


def test_a_commit_ends_by_time(tmp_path: Path) -> None:
    """A commit takes works for some 50 ms; the others go into the next ones."""
    clock = Clock(10)
    store = opened(tmp_path, clock=clock)
    statements: list[str] = []
    store._writer.connection.set_trace_callback(statements.append)

    def work(_: Transaction) -> None:
        clock.now += BATCH_SECONDS * 0.4  # three of these are more than a commit's time

    together([lambda: store.write(work)] * 10)
    assert statements.count("COMMIT") == 4
    store.close()


def test_a_disk_that_is_nearly_full_takes_deletes_alone(tmp_path: Path) -> None:
    """Below the reserve writes are refused; reads and deletes go on, and so do writes once there is space again."""
    free = 100
    store = opened(tmp_path, min_free_space=50, free_space=lambda: free)
    keep(store, record("a"), record("b"))
    free = 49
    with pytest.raises(StoreFull, match="disk"):
        keep(store, record("c"))
    with pytest.raises(StoreUnavailable, match="disk"):
        store.check()
    assert store.read("things", "a") == record("a")
    store.write(lambda transaction: transaction.delete("things", "a"), use_reserve=True)
    assert store.count("things") == 1
    free = 50
    store.check()
    keep(store, record("c"))
    store.close()


def test_a_disk_that_is_full_is_called_so(store: SqliteStore) -> None:
    """What SQLite cannot write for lack of space is not the fault of a busy store."""
    (pages,) = store._writer.connection.execute("PRAGMA page_count").fetchone()
    store._writer.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull, match="full"):
        keep(store, record("a", name="x" * MIB))
    assert store.count("things") == 0


def test_a_full_disk_in_requests() -> None:
    """A POST is answered 507, GET and DELETE by a key as ever, and /readyz 503 naming the disk."""
    app = create_app(Config(auth="required", admin_key="admin-key-admin-key-admin-key", min_free_space=1))
    store, client = app.extensions["restkeeper"].store, app.test_client()
    admin = {"Authorization": "Bearer admin-key-admin-key-admin-key"}
    sent = {"name": "x", "scopes": ["products:read", "products:write"]}
    key = {"Authorization": f"Bearer {client.post('/api/v1/keys', json=sent, headers=admin).json['secret']}"}
    made = client.post("/products", json={"name": "x"}, headers=key).headers["Location"]
    free = 0
    store._free_space = lambda: free
    refused = client.post("/products", json={"name": "x"}, headers=key)
    assert (refused.status_code, refused.json["title"]) == (507, "The disk is full")
    assert client.get("/readyz").status_code == 503
    assert "disk" in client.get("/readyz").json["detail"]
    assert client.get(made, headers=key).status_code == 200
    assert client.delete(made, headers=key).status_code == 200
    free = 1
    assert client.get("/readyz").status_code == 200
    assert client.post("/products", json={"name": "x"}, headers=key).status_code == 200


def test_a_stalled_scan_does_not_hold_the_log(tmp_path: Path) -> None:
    """Who is slow to take an export's items keeps the log within its bytes, and still gets those of one moment."""
    store = opened(tmp_path, synchronous="normal")
    keep(store, *(record(f"{n:04}", name="x" * 1000) for n in range(2000)))
    scan = store.scan("things")
    seen = [next(scan).id]
    sizes = []
    for n in range(40):
        keep(store, record(f"late {n}", name="x" * MIB))
        sizes.append((tmp_path / "store.db-wal").stat().st_size)
    assert max(sizes) <= LOG_BYTES
    assert [*seen, *(each.id for each in scan)] == [f"{n:04}" for n in range(2000)]
    store.close()


def test_a_log_that_grew_becomes_short_again(tmp_path: Path) -> None:
    """Another program that reads for long makes the log grow; the first write after its end makes it short."""
    clock = Clock()
    store = opened(tmp_path, synchronous="normal", clock=clock)
    log = tmp_path / "store.db-wal"
    keep(store, record("a"))
    reader = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM items").fetchone()
    for n in range(20):
        keep(store, record(f"{n}", name="x" * MIB))
    assert log.stat().st_size > LOG_BYTES
    reader.execute("ROLLBACK")
    reader.close()
    clock.now += CHECKPOINT_SECONDS
    keep(store, record("b"))
    assert log.stat().st_size < MIB
    store.close()


class Exit(BaseException):
    """As a greenlet that is killed, or a time-out."""


def await_that(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_writer_that_leaves_wakes_the_next(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn that was meant for one that is interrupted as it gets it is not lost for those behind it."""

    waiting: list[threading.Event] = []

    class Noted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waiting.append(self)
            return super().wait(timeout)

    class Interrupted(Noted):
        def wait(self, timeout: float | None = None) -> bool:
            super().wait(timeout)
            raise Exit

    kinds = iter([Interrupted])
    fake = SimpleNamespace(Event=lambda: next(kinds, Noted)(), RLock=threading.RLock)
    monkeypatch.setattr("restkeeper.storage.sqlite.writer.threading", fake)
    told: list[str] = []

    def write(name: str) -> None:
        try:
            store.write(lambda _: told.append(name))
        except Exit:
            told.append("interrupted")

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    with store._writer.in_turn():
        for number, thread in enumerate(threads):
            thread.start()
            await_that(lambda number=number: len(waiting) > number)  # type: ignore[misc]
    join(*threads)
    assert sorted(told) == ["b", "interrupted"]


def test_a_transaction_that_is_lost_without_an_error_is_no_success(store: SqliteStore) -> None:
    """SQLite may roll back by itself; a work that did not notice is not answered as done."""
    with pytest.raises(StoreUnavailable):
        store.write(lambda transaction: transaction._connection.execute("ROLLBACK"))  # type: ignore[attr-defined]
    store.write(lambda transaction: transaction.insert("things", record("a")))
    assert store.read("things", "a").id == "a"


def test_a_writer_is_told_after_the_store_knows_of_its_commit(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads then reads what was written, also where another has committed it."""
    order: list[str] = []
    finish = _Work.finish
    monkeypatch.setattr(store._writer, "_after_commit", lambda: order.append("known"))
    monkeypatch.setattr(_Work, "finish", lambda self: (order.append("told"), finish(self)))
    store.write(lambda _: None)
    assert order == ["known", "told"]


def test_readers_of_a_store_in_memory_let_writers_in() -> None:
    """However many search without an end, a writer has its turn long before its time is over."""
    script = """
from gevent import monkey; monkey.patch_all()
import gevent
from restkeeper.storage.contract import Filter, Op, Query
from tests.test_store import THINGS, keep, record
from restkeeper.storage.sqlite.store import SqliteStore
store = SqliteStore(":memory:", [THINGS])
keep(store, *(record(f"m{n:05}", name="x" * 100) for n in range(20_000)))
done = []
def search():
    while not done:
        store.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1))
searches = [gevent.spawn(search) for _ in range(4)]
gevent.sleep(0.05)
for n in range(10):
    keep(store, record(f"w{n}"))
done.append(1)
gevent.joinall(searches, raise_error=True)
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=SECONDS)


def test_a_writer_is_answered_when_its_own_work_is_done(tmp_path: Path) -> None:
    """Also one that was woken for a turn that another took: it does not wait for what that one does next."""
    script = """
from gevent import monkey; monkey.patch_all()
import gevent, sys
from restkeeper.storage.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1], [])
answered = []
def first(transaction):
    gevent.sleep(0.06)  # longer than a commit takes works
    running.append(gevent.spawn(write, "last", 0.5))
    gevent.sleep(0)  # it is in the queue now, and has the turn before "second" runs
def write(name, seconds):
    store.write(lambda transaction: gevent.sleep(seconds))
    answered.append(name)
running = [gevent.spawn(store.write, first)]
gevent.sleep(0.02)
running.append(gevent.spawn(write, "second", 0.06))
gevent.sleep(0.3)
assert answered == ["second"], answered
gevent.joinall(running, raise_error=True)
assert answered == ["second", "last"], answered
"""
    command = [sys.executable, "-c", script, str(tmp_path / "store.db")]
    subprocess.run(command, cwd=ROOT, check=True, timeout=SECONDS)


def test_a_search_that_is_interrupted_says_by_what(tmp_path: Path) -> None:
    """SQLite knows only that it was."""

    class Killing(Clock):
        def monotonic(self) -> float:
            self.now += YIELD_SECONDS
            return self.now

        def sleep(self, seconds: float) -> None:
            raise Exit

    store = opened(tmp_path)
    keep(store, *(record(f"{n}") for n in range(1000)))
    searcher = opened(tmp_path, clock=Killing())
    with pytest.raises(Exit):
        searcher.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1))
    assert store.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1)).bodies == []
    searcher.close()
    store.close()


class Busy(Clock):
    """A clock that goes on whenever it is looked at, and in whose pauses something else is done, so many times."""

    def __init__(self, work: Callable[[], object], times: int) -> None:
        super().__init__()
        self._work = work
        self.left = times

    def monotonic(self) -> float:
        self.now += YIELD_SECONDS
        return self.now

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.left > 0:
            self.left -= 1
            self._work()


def test_a_search_ends_where_it_keeps_the_log_from_being_begun_anew(tmp_path: Path) -> None:
    """What another process writes meanwhile makes the log grow up to a bound; then the search is 503, the log short."""
    numbers = iter(range(1000))
    writer = opened(tmp_path, synchronous="normal")
    keep(writer, *(record(f"m{n:05}", name="x" * 100) for n in range(20_000)))
    clock = Busy(lambda: keep(writer, record(f"{next(numbers)}", name="x" * MIB)), 100)
    searcher = opened(tmp_path, clock=clock)
    with pytest.raises(StoreUnavailable, match="written"):
        searcher.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1))
    log = tmp_path / "store.db-wal"
    assert 64 * MIB <= log.stat().st_size < 72 * MIB
    assert writer.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1)).bodies == []
    assert log.stat().st_size < MIB
    searcher.close()
    writer.close()


def test_a_search_goes_on_where_another_program_keeps_the_log(tmp_path: Path) -> None:
    """It is held for a time in which searches of ours would have ended, and is then answered; the next ones at once."""
    clock = Clock()
    store = opened(tmp_path, synchronous="normal", clock=clock)
    keep(store, record("a"))
    reader = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM items").fetchone()
    for n in range(70):
        keep(store, record(f"{n}", name="x" * MIB))
    assert (tmp_path / "store.db-wal").stat().st_size > LOG_FULL
    began, sorted_ = clock.now, Query(sort=(Sort("name"),), limit=100)
    assert len(store.page("things", sorted_).bodies) == 71
    assert READ_SECONDS <= clock.now - began < READ_SECONDS + 1
    began = clock.now
    assert len(store.page("things", sorted_).bodies) == store.count("things", sorted_) == 71
    assert clock.now == began
    clock.now += PINNED_SECONDS
    reader.execute("ROLLBACK")
    began = clock.now
    assert len(store.page("things", sorted_).bodies) == 71
    assert clock.now - began < 1 and (tmp_path / "store.db-wal").stat().st_size < MIB
    reader.close()
    store.close()


def test_searches_that_had_to_end_are_no_other_program(tmp_path: Path) -> None:
    """Once they have ended, those that come next wait again, and the log becomes short."""
    numbers = iter(range(1000))
    writer = opened(tmp_path, synchronous="normal")
    keep(writer, *(record(f"m{n:05}", name="x" * 100) for n in range(500)))
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM items").fetchone()
    for n in range(20):
        keep(writer, record(f"first {n}", name="x" * MIB))
    clock = Busy(lambda: keep(writer, record(f"{next(numbers)}", name="x" * MIB)), 0)
    searcher = opened(tmp_path, clock=clock)
    searched = Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1)
    assert searcher.page("things", searched).bodies == []  # after a wait in vain
    other.close()
    clock.left = 100
    with pytest.raises(StoreUnavailable, match="written"):
        searcher.page("things", searched)
    clock.left = 0
    assert searcher.page("things", searched).bodies == []
    assert (tmp_path / "store.db-wal").stat().st_size < MIB
    searcher.close()
    writer.close()


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    """The store, what SQLite puts beside it, and backups have secrets in them: nobody else reads them."""
    store = opened(tmp_path)
    keep(store, record("a"))
    store.backup(tmp_path / "backup.db")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["store.db", "store.db-lock", "store.db-wal", "store.db-shm", "backup.db"], 0o600)
    store.close()


def test_the_mode_of_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    """An operator may let a group read the store."""
    opened(tmp_path).close()
    os.chmod(tmp_path / "store.db", 0o640)
    opened(tmp_path).close()
    assert (tmp_path / "store.db").stat().st_mode & 0o777 == 0o640


ASKING = """
import sys
from restkeeper.storage.sqlite.lockfile import LockFile
lock = LockFile(sys.argv[1])
lock.ask_for_write()
print("asks", flush=True)
sys.stdin.readline()
lock.stop_asking()
print("asks no more", flush=True)
sys.stdin.readline()
"""


def test_who_looks_does_not_ask(tmp_path: Path) -> None:
    """That a process has looked whether others wait is no sign to those that look after it."""
    path = str(tmp_path / "store.db")
    lock = LockFile(path)
    script = (
        "import sys; from restkeeper.storage.sqlite.lockfile import LockFile; "
        "sys.exit(LockFile(sys.argv[1]).others_ask())"
    )
    for asks in (False, True):
        if asks:
            lock.ask_for_write()
        else:
            assert not lock.others_ask()
        assert subprocess.run([sys.executable, "-c", script, path], cwd=ROOT, timeout=SECONDS).returncode == asks
    lock.close()


class Slow:
    """A work that takes longer than a commit without consequences, by a clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ended = 0.0

    def __call__(self, _: Transaction) -> None:
        self._clock.now += LONG_SECONDS + 0.001
        self.ended = self._clock.now


def test_another_process_that_waits_has_its_turn(tmp_path: Path) -> None:
    """After a long commit the next one waits for those that ask, for a while at most, and else not at all."""
    clock = Clock()
    store, slow = opened(tmp_path, clock=clock), Slow(clock)
    command = [sys.executable, "-c", ASKING, str(tmp_path / "store.db")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin and other.stdout
        assert other.stdout.readline() == "asks\n"
        store.write(slow)
        assert clock.now == slow.ended  # whose own response waits for nobody
        store.write(lambda _: None)
        assert clock.now - slow.ended >= OTHERS_SECONDS
        before = clock.now
        store.write(lambda _: None)
        assert clock.now == before
        print(file=other.stdin, flush=True)
        assert other.stdout.readline() == "asks no more\n"
        store.write(slow)
        store.write(lambda _: None)
        assert 0 < clock.now - slow.ended < 2 * TURN
        print(file=other.stdin, flush=True)

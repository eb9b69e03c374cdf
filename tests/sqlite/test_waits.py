"""Turns to write: writers and readers of one process, and other processes."""

import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from restkeeper.clock import YIELD_SECONDS
from restkeeper.storage.base import Transaction
from restkeeper.storage.sqlite.file import LockFile
from restkeeper.storage.sqlite.writer import LONG_SECONDS, OTHERS_SECONDS
from tests.live import ROOT
from tests.sqlite.helpers import Clock, opened
from tests.waiting import SECONDS, until


def test_readers_of_a_store_in_memory_let_writers_in() -> None:
    """While many searches run without a pause, writers get their turn before their deadline."""
    script = """
from gevent import monkey; monkey.patch_all()
import gevent
from restkeeper.storage.interface import Filter, Op, Query
from tests.things import THINGS, insert, record
from restkeeper.storage.sqlite.store import SqliteStore
store = SqliteStore(":memory:", [THINGS])
insert(store, *(record(f"m{n:05}", name="x" * 100) for n in range(20_000)))
done = []
def search():
    while not done:
        store.page("things", Query(filters=(Filter("name", Op.LIKE, "y"),), limit=1))
searches = [gevent.spawn(search) for _ in range(4)]
gevent.sleep(0.05)
for n in range(10):
    insert(store, record(f"w{n}"))
done.append(1)
gevent.joinall(searches, raise_error=True)
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=SECONDS)


def test_a_writer_returns_when_its_own_work_is_done(tmp_path: Path) -> None:
    """This is also true if another writer took its turn: it does not wait for the works of that one."""
    script = """
from gevent import monkey; monkey.patch_all()
import gevent, sys
from gevent.event import Event
from restkeeper.storage.sqlite.connection import BUSY_SECONDS
from restkeeper.storage.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1], [])
begun, end, answered = Event(), Event(), Event()
names = []
def first(transaction):
    begun.set()
    gevent.sleep(0.06)  # longer than a commit takes works
    running.append(gevent.spawn(write, "last", end.wait))
    gevent.sleep(0)  # it is in the queue now, and has the turn before "second" runs
def write(name, work):
    store.write(lambda transaction: work())
    names.append(name)
    answered.set()
running = [gevent.spawn(store.write, first)]
begun.wait()
running.append(gevent.spawn(write, "second", lambda: gevent.sleep(0.06)))
assert answered.wait(BUSY_SECONDS / 2), "only its deadline woke it"
assert names == ["second"], names
end.set()
gevent.joinall(running, raise_error=True)
assert names == ["second", "last"], names
"""
    command = [sys.executable, "-c", script, str(tmp_path / "store.db")]
    subprocess.run(command, cwd=ROOT, check=True, timeout=SECONDS)


ASKING = """
import sys
import time
from restkeeper.storage.sqlite.file import LockFile
lock = LockFile(sys.argv[1])
lock.show_waiting()
print("asks", flush=True)
sys.stdin.readline()
lock.hide_waiting()
print("asks no more", flush=True)
sys.stdin.readline()
"""


def is_waiting(path: str) -> bool:
    """Whether this process waits to write, as another one sees it."""
    script = (
        "import sys; from restkeeper.storage.sqlite.file import LockFile; sys.exit(LockFile(sys.argv[1]).others_wait())"
    )
    return subprocess.run([sys.executable, "-c", script, path], cwd=ROOT, timeout=SECONDS).returncode == 1


def test_a_check_for_waiters_is_no_waiter(tmp_path: Path) -> None:
    """A check for waiting processes is not taken for a waiting process."""
    path = str(tmp_path / "store.db")
    lock = LockFile(path)
    for waits in (False, True):
        if waits:
            lock.show_waiting()
        else:
            assert not lock.others_wait()
        assert is_waiting(path) == waits
    lock.close()


def test_a_write_is_a_waiter_until_it_begins(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    store = opened(tmp_path)
    store.open()
    with ThreadPoolExecutor(1) as pool, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = pool.submit(store.write, lambda _: None, deadline=time.monotonic() + SECONDS)
        until(lambda: is_waiting(path))
        other.execute("COMMIT")
        writing.result(SECONDS)
        assert not is_waiting(path)
    store.close()


class Slow:
    """A work that makes its commit long, by advancing a clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ended = 0.0

    def __call__(self, _: Transaction) -> None:
        self._clock.now += LONG_SECONDS + 0.001
        self.ended = self._clock.now


def test_a_waiting_process_gets_its_turn(tmp_path: Path) -> None:
    """After a long commit the next one waits for waiting processes, for a limited time, and otherwise not."""
    clock = Clock()
    store, slow = opened(tmp_path, clock=clock), Slow(clock)
    command = [sys.executable, "-c", ASKING, str(tmp_path / "store.db")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin and other.stdout
        assert other.stdout.readline() == "asks\n"
        store.write(slow)
        assert clock.now == slow.ended  # the writer itself does not wait
        store.write(lambda _: None)
        assert clock.now - slow.ended >= OTHERS_SECONDS
        before = clock.now
        store.write(lambda _: None)
        assert clock.now == before
        print(file=other.stdin, flush=True)
        assert other.stdout.readline() == "asks no more\n"
        store.write(slow)
        store.write(lambda _: None)
        assert 0 < clock.now - slow.ended < 2 * YIELD_SECONDS
        print(file=other.stdin, flush=True)

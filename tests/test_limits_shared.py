"""Counters in shared memory: equal to the storages of the limits library, and correct for several processes."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import cycle

import pytest
from limits import RateLimitItemPerMinute
from limits.storage import Storage, storage_from_string
from limits.strategies import FixedWindowRateLimiter

from restkeeper.features.limits.counters import PROBES, SharedStorage
from restkeeper.features.limits.shared import SharedTable
from tests.redis_server import empty_redis
from tests.waiting import SECONDS, join, until


@pytest.fixture(params=["shared", "redis"])
def storage(request: pytest.FixtureRequest) -> Iterator[Storage]:
    with empty_redis() if request.param == "redis" else nullcontext() as redis:
        made = storage_from_string(redis.url) if redis else storage_from_string("shared://", table=SharedTable())
        assert isinstance(made, Storage)
        yield made


def shared(slots: int = 1024, table: SharedTable | None = None, now: Callable[[], float] = time.time) -> SharedStorage:
    return SharedStorage("shared://", table=table or SharedTable(slots), now=now)


def test_incr_returns_the_count(storage: Storage) -> None:
    """Each increment returns the new count, like get; keys are independent; the first increment sets the expiry."""
    before = time.time()
    assert [storage.incr("a", 100), storage.incr("a", 500), storage.incr("a", 60, amount=5)] == [1, 2, 7]
    assert (storage.incr("b", 60), storage.get("a"), storage.get("c")) == (1, 7, 0)
    assert before + 98 <= storage.get_expiry("a") <= time.time() + 101
    assert before - 1 <= storage.get_expiry("none") <= time.time()
    limiter, quota = FixedWindowRateLimiter(storage), RateLimitItemPerMinute(1)
    assert limiter.hit(quota, "a") and limiter.hit(quota, "b") and storage.check()
    reset, remaining = limiter.get_window_stats(quota, "a")
    assert remaining == 0 and time.time() + 50 < reset <= time.time() + 61
    limiter.clear(quota, "a")
    assert (limiter.hit(quota, "a"), limiter.hit(quota, "b")) == (True, False)
    storage.reset()
    assert limiter.hit(quota, "b")


def test_threads_lose_nothing(storage: Storage) -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.extend(storage.incr("a", 60) for _ in range(200))) for _ in "abcd"]
    for thread in threads:
        thread.start()
    join(*threads)
    assert storage.get("a") == 800
    assert sorted(found) == list(range(1, 801))


def test_an_expired_count_frees_its_slot() -> None:
    now = [1000.0]
    storage = shared(PROBES, now=lambda: now[0])
    for key in range(PROBES):
        storage.incr(f"{key}", 60)
    now[0] = 1059.9
    assert (storage.get("0"), storage.get_expiry("0")) == (1, 1060.0)
    now[0] = 1060.0
    assert (storage.get("0"), storage.get_expiry("0")) == (0, 1060.0)
    assert [storage.incr(f"new {key}", 60) for key in range(PROBES)] == [1] * PROBES
    assert [storage.incr(f"new {key}", 60) for key in range(PROBES)] == [2] * PROBES


@pytest.mark.parametrize("by_count", [True, False])
def test_a_full_table_removes_the_lowest_count(caplog: pytest.LogCaptureFixture, by_count: bool) -> None:
    """Of equal counts that of the first to expire. The log says so, once."""
    storage = shared(PROBES)
    for key in range(PROBES):
        rank = (key - 5) % PROBES
        storage.incr(f"{key}", 100 + rank, amount=5 + rank if by_count else 1)
    assert not caplog.records
    assert [storage.incr("more", 200), storage.incr("more", 200), storage.incr("and more", 200)] == [1, 2, 1]
    # Then "and more" takes the slot of "more" if all others have more, or else the next one.
    assert [key for key in range(PROBES) if not storage.get(f"{key}")] == [5] if by_count else [5, 6]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("window", [60, 3600])
def test_rare_keys_never_reset_a_frequent_one(window: int) -> None:
    """New keys, forty for each slot, replace one another and never the count of a busy caller, in any window."""
    now = [1_000_000.0]
    storage = shared(256, now=lambda: now[0])
    for moment in range(3):
        now[0] = 1_000_000.0 + moment * window
        busy = [storage.incr(f"{moment}/busy", window) for _ in range(3)]
        for key in range(40 * 256):
            storage.incr(f"{moment}/{key}", window)
            if key % 256 == 0:
                busy.append(storage.incr(f"{moment}/busy", window))
        assert busy == list(range(1, 44))


def test_many_keys_have_separate_counts() -> None:
    """Of thirty thousand keys, near half of the table, at most one in a thousand shares its count."""
    storage = shared(table=SharedTable())
    for key in range(30_000):
        storage.incr(f"{key}", 600, amount=key + 1)
    assert sum(storage.get(f"{key}") != key + 1 for key in range(30_000)) <= 30
    one, other = SharedTable(), SharedTable()
    homes = [[table.find(f"{key}", 0.0)[0] for key in range(1000)] for table in (one, one, other)]
    assert homes[0] == homes[1]
    assert sum(here == there for here, there in zip(homes[0], homes[2], strict=True)) < 10


def forked(work: Callable[[], object]) -> int:
    if process := os.fork():
        return process
    status = 1
    try:
        signal.alarm(int(SECONDS))
        work()
        status = 0
    finally:
        os._exit(status)


def test_processes_lose_nothing() -> None:
    storage = shared()
    processes = [forked(lambda: [storage.incr(f"{number % 7}", 600) for number in range(7000)]) for _ in range(3)]
    assert [os.waitpid(process, 0)[1] for process in processes] == [0, 0, 0]
    assert [storage.get(f"{number}") for number in range(7)] == [3000] * 7


def test_a_forked_process_excludes_its_parent() -> None:
    """It does not have the parent's lock: it waits until the parent has released it."""
    table = SharedTable()
    storage = shared(table=table)
    storage.incr("a", 600)
    locked, lock = os.pipe()
    begun, begin = os.pipe()

    def count() -> None:
        os.read(locked, 1)
        os.write(begin, b"x")
        shared(table=table).incr("a", 600)

    child = forked(count)
    with table.locked():
        os.write(lock, b"x")
        os.read(begun, 1)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        slot, _ = table.find("a", 0.0)
        assert [table.words[slot + 2] for _ in range(100_000)] == [1] * 100_000
    assert os.waitpid(child, 0)[1] == 0 and storage.get("a") == 2


def test_a_killed_process_leaves_no_lock_and_no_broken_count() -> None:
    """However often a process is killed while it counts, the others continue, and every count is exact."""
    storage = shared(4096)

    def count() -> None:
        for number in cycle(range(1000)):
            storage.incr("all", 600)
            storage.incr(f"{number}", 600)

    kills = 10
    for kill in range(kills):
        before, process = storage.get("all"), forked(count)
        until(lambda before=before: storage.get("all") > before + 500)  # type: ignore[misc]
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        assert storage.incr("mine", 600) == kill + 1
    assert 0 <= storage.get("all") - sum(storage.get(f"{number}") for number in range(1000)) <= kills

"""Counters in a mapped file: equal to the storages of the limits library, and correct for several processes."""

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from limits import RateLimitItemPerMinute, RateLimitItemPerSecond
from limits.errors import StorageError
from limits.storage import MemoryStorage, RedisStorage, Storage, storage_from_string
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

from restkeeper.features.limits import mapped
from restkeeper.features.limits.mapped import PROBES, MappedStorage, shared_path, uri_of
from tests.live import ROOT
from tests.redis_server import empty_redis
from tests.waiting import join, until


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with empty_redis() as redis:
        yield redis.url


@pytest.fixture(params=["memory", "mapped", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """An empty storage of each kind, opened by its URI."""
    uri = {"memory": "memory://", "mapped": uri_of(tmp_path / "counters")}.get(request.param)
    made = storage_from_string(uri or request.getfixturevalue("redis_url"))
    assert isinstance(made, (MemoryStorage, MappedStorage, RedisStorage))
    made.reset()
    yield made
    made.reset()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "counters"


def test_a_quota_lasts_until_its_window_ends(storage: Storage) -> None:
    """In a fixed window only the quota is admitted; after the window it is admitted again."""
    limiter, quota = FixedWindowRateLimiter(storage), RateLimitItemPerSecond(10, 2)
    assert [limiter.hit(quota) for _ in range(11)] == [True] * 10 + [False]
    until(lambda: storage.get(quota.key_for()) == 0)
    assert limiter.hit(quota)


def test_clear_resets_one_key(storage: Storage) -> None:
    """Its quota is whole again; another key's does not change."""
    limiter, quota = FixedWindowRateLimiter(storage), RateLimitItemPerMinute(1)
    assert limiter.hit(quota, "a") and limiter.hit(quota, "b")
    limiter.clear(quota, "a")
    assert (limiter.hit(quota, "a"), limiter.hit(quota, "b")) == (True, False)


def test_reset_resets_all_keys(storage: Storage) -> None:
    """Every quota is unused again; the number of deleted counts is returned."""
    limiter, quota = FixedWindowRateLimiter(storage), RateLimitItemPerMinute(10)
    assert [limiter.hit(quota) for _ in range(11)] == [True] * 10 + [False]
    assert storage.reset() == 1
    assert [limiter.hit(quota) for _ in range(11)] == [True] * 10 + [False]


def test_incr_returns_the_count(storage: Storage) -> None:
    """Each increment returns the new count, like get; amounts are added; keys are independent."""
    assert [storage.incr("a", 60), storage.incr("a", 60), storage.incr("a", 60, amount=5)] == [1, 2, 7]
    assert (storage.incr("b", 60), storage.get("a"), storage.get("c")) == (1, 7, 0)


def test_the_first_increment_sets_the_expiry(storage: Storage) -> None:
    """Later increments do not change it; a missing count expires now."""
    before = time.time()
    storage.incr("a", 100)
    storage.incr("a", 500)
    assert before + 98 <= storage.get_expiry("a") <= time.time() + 101
    assert before - 1 <= storage.get_expiry("none") <= time.time()


def test_window_stats_are_right(storage: Storage) -> None:
    """The library's own strategy gets the remaining quota and the time of the reset."""
    limiter, quota = FixedWindowRateLimiter(storage), RateLimitItemPerMinute(10)
    limiter.hit(quota, cost=3)
    reset, remaining = limiter.get_window_stats(quota)
    assert remaining == 7 and time.time() + 50 < reset <= time.time() + 61


def test_check_succeeds(storage: Storage) -> None:
    """A usable storage passes its check."""
    assert storage.check()


def test_threads_lose_nothing(storage: Storage) -> None:
    """Threads that increment the same key concurrently get every number once."""
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(storage.incr("a", 60) for _ in range(200))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    join(*threads)
    assert storage.get("a") == 800
    if not isinstance(storage, MemoryStorage):  # which reads the count back after its lock
        assert sorted(found) == list(range(1, 801))


def test_moving_windows_are_not_supported(path: Path) -> None:
    """For a strategy that needs more than counters the library raises an error."""
    with pytest.raises(NotImplementedError):
        MovingWindowRateLimiter(MappedStorage(uri_of(path)))


def test_an_expired_count_frees_its_slot(path: Path) -> None:
    """The count is 0 again, and another key can use the slot."""
    now = [1000.0]
    storage = MappedStorage(uri_of(path), slots=PROBES, now=lambda: now[0])
    for key in range(PROBES):
        storage.incr(f"{key}", 60)
    now[0] = 1059.9
    assert (storage.get("0"), storage.get_expiry("0")) == (1, 1060.0)
    now[0] = 1060.0
    assert (storage.get("0"), storage.get_expiry("0")) == (0, 1060.0)
    assert [storage.incr(f"new {key}", 60) for key in range(PROBES)] == [1] * PROBES
    assert [storage.incr(f"new {key}", 60) for key in range(PROBES)] == [2] * PROBES


def test_a_full_table_removes_the_lowest_count(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A key without a free slot gets that of the lowest count, and the log says so, once."""
    storage = MappedStorage(uri_of(path), slots=PROBES)
    for key in range(PROBES):
        storage.incr(f"{key}", 100, amount=5 + (key - 5) % PROBES)
    assert not caplog.records
    assert [storage.incr("more", 200), storage.incr("more", 200), storage.incr("and more", 200)] == [1, 2, 1]
    assert [key for key in range(PROBES) if not storage.get(f"{key}")] == [5]  # "and more" took the slot of "more"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_of_equal_counts_the_first_to_expire_is_removed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The one that would be removed soonest anyway."""
    storage = MappedStorage(uri_of(path), slots=PROBES)
    for key in range(PROBES):
        storage.incr(f"{key}", 100 + (key - 5) % PROBES)
    assert not caplog.records
    assert [storage.incr("more", 200), storage.incr("more", 200), storage.incr("and more", 200)] == [1, 2, 1]
    assert [key for key in range(PROBES) if not storage.get(f"{key}")] == [5, 6]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("window", [60, 3600])
def test_rare_keys_never_reset_a_frequent_one(path: Path, window: int) -> None:
    """New keys, forty for each slot, replace one another and never the count of a busy caller, in any window."""
    now = [1_000_000.0]
    storage = MappedStorage(uri_of(path), slots=256, now=lambda: now[0])
    for moment in range(3):
        now[0] = 1_000_000.0 + moment * window
        busy = [storage.incr(f"{moment}/busy", window) for _ in range(3)]
        for key in range(40 * 256):
            storage.incr(f"{moment}/{key}", window)
            if key % 256 == 0:
                busy.append(storage.incr(f"{moment}/busy", window))
        assert busy == list(range(1, 44))


def test_the_slot_of_a_key_cannot_be_chosen(tmp_path: Path) -> None:
    """Each table has its own hash secret, so that nobody can choose keys that share a slot."""
    one, other = (MappedStorage(uri_of(tmp_path / name)) for name in ("one", "other"))
    homes: list[list[int]] = []
    for storage in (one, MappedStorage(uri_of(tmp_path / "one")), other):
        with storage._locked() as table:
            homes.append([mapped._digest(table.key, f"{key}")[0] % table.homes for key in range(1000)])
    assert homes[0] == homes[1]
    assert sum(here == there for here, there in zip(homes[0], homes[2], strict=True)) < 10


def test_many_keys_have_separate_counts(path: Path) -> None:
    """Of thirty thousand keys, near half of the table, at most one in a thousand shares its count."""
    storage = MappedStorage(uri_of(path))
    for key in range(30_000):
        storage.incr(f"{key}", 600, amount=key + 1)
    assert sum(storage.get(f"{key}") != key + 1 for key in range(30_000)) <= 30
    assert storage.reset() >= 29_970


def _count(path: Path, times: int) -> None:
    storage = MappedStorage(uri_of(path))
    for _ in range(times):
        storage.incr("a", 600)


def test_processes_lose_nothing(path: Path) -> None:
    """Processes that create the file and increment the same key concurrently lose no count."""
    start = multiprocessing.get_context("spawn")
    processes = [start.Process(target=_count, args=(path, 5000)) for _ in range(3)]
    for process in processes:
        process.start()
    join(*processes)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert MappedStorage(uri_of(path)).get("a") == 15_000


def test_a_forked_process_excludes_its_parent(path: Path) -> None:
    """A forked child has its own lock: it waits while the parent has the lock, and then counts in the same file."""
    script = f"""
import os, signal, threading
from fcntl import LOCK_EX, LOCK_NB, flock
from restkeeper.features.limits.mapped import MappedStorage
storage = MappedStorage({uri_of(path)!r})
storage.incr("a", 600)
locked, over = os.pipe(), os.pipe()
held, end = threading.Event(), threading.Event()
def hold():
    with storage._lock:
        held.set()
        end.wait(30)
threading.Thread(target=hold).start()
held.wait(30)
child = os.fork()  # while a thread of the parent has the lock
end.set()
if child:
    with storage._locked():
        os.write(locked[1], b"x")
        assert os.read(over[0], 1) == b"r", "the child had the parent's lock"
    _, status = os.waitpid(child, 0)
    raise SystemExit(status)
signal.alarm(20)
os.read(locked[0], 1)
descriptor = storage._table.descriptor if storage._table else os.open({str(path)!r}, os.O_RDWR)
try:
    flock(descriptor, LOCK_EX | LOCK_NB)
except BlockingIOError:
    os.write(over[1], b"r")
else:
    os.write(over[1], b"-")
storage.incr("a", 600)
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)
    assert MappedStorage(uri_of(path)).get("a") == 2


def test_a_killed_process_leaves_no_lock_and_no_broken_count(path: Path) -> None:
    """However often a process is killed while it counts, the others continue, and every count is exact."""
    script = f"""
from itertools import cycle
from restkeeper.features.limits.mapped import MappedStorage
storage = MappedStorage({uri_of(path)!r})
print("up", flush=True)
for number in cycle(range(1000)):
    storage.incr("all", 600)
    storage.incr(f"{{number}}", 600)
"""
    storage = MappedStorage(uri_of(path))
    kills = 5
    for kill in range(kills):
        with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stdout.readline() == "up\n"
            before = storage.get("all")
            until(lambda before=before: storage.get("all") > before + 500)  # type: ignore[misc]
            process.send_signal(signal.SIGKILL)
        assert storage.incr("mine", 600) == kill + 1
    assert 0 <= storage.get("all") - sum(storage.get(f"{number}") for number in range(1000)) <= kills


def test_a_partly_written_file_is_written_again(path: Path) -> None:
    """A file without a complete header is treated as new."""
    path.write_bytes(bytes(1000))
    path.chmod(0o600)
    assert MappedStorage(uri_of(path)).incr("a", 60) == 1


def test_a_deleted_file_is_created_again(path: Path) -> None:
    """All processes share the new file from their next new key on."""
    one, other = MappedStorage(uri_of(path)), MappedStorage(uri_of(path))
    one.incr("a", 60)
    other.incr("a", 60)
    path.unlink()
    assert [one.incr("b", 60), other.incr("b", 60), one.incr("b", 60)] == [1, 2, 3]
    assert MappedStorage(uri_of(path)).get("b") == 3  # in the file that the name leads to now


def test_the_file_is_private_and_allocated(path: Path) -> None:
    """Nobody else can open it, and its whole space is allocated, so that a full disk cannot end a process later."""
    MappedStorage(uri_of(path)).incr("a", 60)
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_blocks * 512 >= found.st_size > 2 * 1024 * 1024


def _other(path: Path) -> None:
    path.write_bytes(b"something else")
    path.chmod(0o600)


def _open_to_all(path: Path) -> None:
    path.touch()
    path.chmod(0o666)


def _link(path: Path) -> None:
    """A link to a file that would be valid itself."""
    (path.parent / "target").touch(mode=0o600)
    path.symlink_to("target")


def _second_name(path: Path) -> None:
    (path.parent / "target").touch(mode=0o600)
    path.hardlink_to(path.parent / "target")


def _other_size(path: Path) -> None:
    MappedStorage(uri_of(path), slots=128).incr("a", 60)


@pytest.mark.parametrize("prepare", [_other, _open_to_all, _link, _second_name, _other_size, Path.mkdir])
def test_any_other_file_is_refused(path: Path, prepare: Callable[[Path], None]) -> None:
    """A file of another kind, layout or size, a link, and a file that others may open are refused and not changed."""
    prepare(path)
    before = path.lstat()
    storage = MappedStorage(uri_of(path))
    with pytest.raises(OSError, match="counters"):
        storage.incr("a", 60)
    assert not storage.check()
    assert (path.lstat().st_size, path.lstat().st_mode) == (before.st_size, before.st_mode)
    assert not path.is_symlink() or path.stat().st_size == 0


def test_another_users_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another user is refused."""
    MappedStorage(uri_of(path)).incr("a", 60)
    monkeypatch.setattr(mapped.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OSError, match="this user"):
        MappedStorage(uri_of(path)).incr("a", 60)


def test_errors_are_wrapped_like_those_of_the_library(tmp_path: Path) -> None:
    """With wrap_exceptions they are the library's StorageError."""
    storage = storage_from_string(uri_of(tmp_path / "no folder" / "counters"), wrap_exceptions=True)
    assert isinstance(storage, MappedStorage)
    with pytest.raises(StorageError):
        storage.incr("a", 60)


def test_closing_leaves_nothing_open(path: Path) -> None:
    """A closed or deleted storage has no open file; a closed one opens it again when it is used."""
    descriptors = set(os.listdir("/proc/self/fd"))
    storage = MappedStorage(uri_of(path))
    storage.incr("a", 60)
    storage.close()
    assert set(os.listdir("/proc/self/fd")) == descriptors
    assert storage.incr("a", 60) == 2
    del storage
    assert set(os.listdir("/proc/self/fd")) == descriptors


def test_a_path_can_have_any_characters(tmp_path: Path) -> None:
    """Special characters of URIs have no meaning in a path."""
    path = tmp_path / "a b?c#d%20"
    storage = storage_from_string(uri_of(path))
    assert isinstance(storage, MappedStorage)
    assert storage.incr("a", 60) == 1 and path.exists()


def test_the_file_s_name_is_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name has the user, and a secret that only the processes of the store know.

    It is the same for each of them, and another one after a restart of the machine, because others may have read it in
    the folder before.
    """
    one = shared_path("one secret")
    assert one == shared_path("one secret") != shared_path("another secret")
    assert f"-{os.geteuid()}-" in one.name and "secret" not in one.name
    monkeypatch.setattr(mapped, "_BOOT_ID", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("another boot")
    assert shared_path("one secret") != one

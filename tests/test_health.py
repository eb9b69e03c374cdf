"""Readiness: a replaced or damaged file is detected, at a cost that does not grow."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from restkeeper.storage import Store
from restkeeper.storage.deliveries import find_subscriptions
from restkeeper.storage.errors import StoreDamaged, StoreFailing, StoreGone, StoreUnavailable
from restkeeper.storage.sqlite import file
from restkeeper.storage.sqlite.file import LockFile, StoreFile
from tests.test_restore import crash, ids, insert, opened, restore
from tests.waiting import SECONDS


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = opened(tmp_path)
    insert(made, "a")
    yield made
    made.close()


def fill(store: Store) -> None:
    for number in range(300):
        insert(store, f"{number:03}")


def overwrite(path: Path, at: int, data: bytes) -> None:
    """Change some bytes of a file. The descriptor stays open, because closing it would release this process's locks."""
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, data, at)


def test_a_copy_over_a_store_in_use_is_detected(tmp_path: Path, store: Store) -> None:
    """Readiness and writes detect it at once, though it is the same file for the operating system."""
    store.backup(tmp_path / "backup.db")
    content = (tmp_path / "backup.db").read_bytes()
    overwrite(tmp_path / "store.db", 0, content)
    with pytest.raises(StoreGone):
        store.check()
    with pytest.raises(StoreGone):
        insert(store, "lost")


def test_a_worker_detects_a_replaced_store(tmp_path: Path, store: Store) -> None:
    """Reading subscriptions is no write, but does not read another file with the same name."""
    assert find_subscriptions(store, ["products"], 0.0) == []  # there is a connection now
    (tmp_path / "store.db").rename(tmp_path / "away.db")
    with pytest.raises(StoreGone):
        find_subscriptions(store, ["products"], 0.0)


@pytest.mark.parametrize(
    ("at", "data", "message"),
    [
        (0, b"nothing", "not the one that was opened"),
        (16, b"\x00\x03", "no whole number of pages"),
        (24, b"\xff\xff\xff\xff", "its header contradicts itself"),
        (10**6, b"x", "no whole number of pages"),
    ],
)
def test_a_damaged_header_or_size_is_reported(tmp_path: Path, store: Store, at: int, data: bytes, message: str) -> None:
    """The header's first bytes, its page size, its counters, the size of the file, if the log does not replace it."""
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
    store.check()
    overwrite(tmp_path / "store.db", at, data)
    with pytest.raises(StoreUnavailable, match=message):
        store.check()


def test_a_file_that_was_cut_takes_no_write(tmp_path: Path, store: Store) -> None:
    """Also while all that a write reads is in memory. Nothing makes it whole, which would hide what is missing."""
    fill(store)
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
    insert(store, "before")
    os.truncate(path, 8192)
    for call in (lambda: insert(store, "lost"), store.check):
        with pytest.raises(StoreDamaged, match="it was cut to 8192 of"):
            call()
    store.close()
    assert path.stat().st_size == 8192
    lock = LockFile(str(path))
    assert lock.note.startswith("it was cut to 8192 of")  # which the next start looks into
    lock.close()


def test_a_file_that_vacuum_made_shorter_is_whole(tmp_path: Path) -> None:
    """Also while the next log is moved into it: then its header, the first page, has its next length already."""
    opened(tmp_path).close()
    path = tmp_path / "store.db"
    pages, store_file = path.stat().st_size // 4096, StoreFile(str(path))
    for length, in_header in ((pages, pages), (pages, pages - 3), (pages - 3, pages - 3), (pages - 3, pages - 1)):
        os.truncate(path, length * 4096)
        overwrite(path, 28, in_header.to_bytes(4))
        store_file.require()
    os.truncate(path, (pages - 4) * 4096)
    with pytest.raises(StoreDamaged, match="it was cut"):
        store_file.require()
    store_file.close()


def test_a_file_that_was_cut_before_a_start_takes_no_write(tmp_path: Path) -> None:
    """After a crash, as the log that is left does not have all that is missing."""
    store = opened(tmp_path)
    fill(store)
    store.close()
    crash(tmp_path)
    path = tmp_path / "store.db"
    os.truncate(path, size := path.stat().st_size - 20 * 4096)
    store = opened(tmp_path)
    with pytest.raises(StoreDamaged, match=f"it was cut to {size} of"):
        insert(store, "lost")
    store.close()
    assert path.stat().st_size == size


def test_damage_that_a_request_meets_makes_the_store_unready(tmp_path: Path, store: Store) -> None:
    """Until SQLite finds none any more: a disk that fails to read looks like that, too."""
    fill(store)
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
    content = (tmp_path / "store.db").read_bytes()
    at = content.rindex(b'{"id":"150"') // 4096 * 4096
    overwrite(tmp_path / "store.db", at, b"\xee" * 100)
    store.check()
    with pytest.raises(StoreDamaged, match="malformed"):
        ids(store)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="the store is damaged: "):
            store.check()
    overwrite(tmp_path / "store.db", at, content[at : at + 100])
    store.check()


def test_a_file_that_cannot_be_read_is_no_unexpected_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that fails by EIO is a failure of the store for writes and for readiness."""

    def fail(descriptor: int, size: int, at: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as context:
        context.setattr(os, "pread", fail)
        for call in (lambda: insert(store, "b"), store.check):
            with pytest.raises(StoreFailing, match="cannot be read: Input/output error"):
                call()
    insert(store, "c")
    store.check()


def test_readiness_costs_the_same_at_any_size(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads a few headers of the file, and a few rows, however large the file is."""
    pread, read = os.pread, []

    def count(descriptor: int, size: int, at: int) -> bytes:
        read.append(size)
        return pread(descriptor, size, at)

    monkeypatch.setattr(os, "pread", count)
    store.check()
    row_count = sum(read)
    assert 0 < row_count <= 2000
    fill(store)
    read.clear()
    store.check()
    assert sum(read) <= row_count


def test_a_store_is_checked_only_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process that opens it checks it; later ones do not, and not after a normal end."""
    checked_paths = []
    monkeypatch.setattr(file, "find_damage", lambda path: checked_paths.append(path) or "")
    opened(tmp_path).close()
    opened(tmp_path).close()
    assert checked_paths == []
    crash(tmp_path)
    first, second = opened(tmp_path), opened(tmp_path)
    assert len(checked_paths) == 1
    first.close()
    second.close()
    opened(tmp_path).close()
    assert len(checked_paths) == 1


@pytest.mark.sqlite
def test_damage_makes_the_store_unready_until_it_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process after a crash finds the damage; all processes are unready, also after a restart."""
    monkeypatch.setattr(file, "find_damage", partial(file.find_damage, seconds=SECONDS))
    store = opened(tmp_path)
    fill(store)
    store.backup(tmp_path / "backup.db")
    store.close()
    crash(tmp_path)
    path = tmp_path / "store.db"
    pages = path.stat().st_size // 4096
    for number in range(pages - 10, pages):
        overwrite(path, number * 4096, b"\xee" * 100)
    first, second = opened(tmp_path), opened(tmp_path)
    for each in (first, second):
        with pytest.raises(StoreUnavailable, match="the store is damaged: "):
            each.check()
        each.close()
    again = opened(tmp_path)
    with pytest.raises(StoreUnavailable, match="the store is damaged: "):
        again.check()
    again.close()
    assert restore(tmp_path, "--discard", str(tmp_path / "backup.db")).exit_code == 0
    store = opened(tmp_path)
    store.check()
    assert len(ids(store)) == 300
    store.close()


def test_the_check_of_a_file_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time limit the result is unknown; damage that was found before stays recorded."""
    monkeypatch.setattr(file, "CHECK_STEPS", 1)
    store = opened(tmp_path)
    insert(store, "a")
    store.close()
    clock = iter(range(10**9))
    assert file.find_damage(f"{tmp_path}/store.db", 3.0, lambda: float(next(clock))) is None
    assert file.find_damage(f"{tmp_path}/store.db") == ""
    lock = LockFile(f"{tmp_path}/store.db")
    lock.note = "page 7"
    monkeypatch.setattr(file, "find_damage", lambda path: None)
    store = opened(tmp_path)
    assert lock.note == "page 7"
    store.close()
    lock.close()


def test_an_opening_waits_for_a_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If that takes too long, the error says so."""
    monkeypatch.setattr("restkeeper.storage.sqlite.file.SHARE_SECONDS", 0.0)
    lock = LockFile(f"{tmp_path}/store.db")
    assert lock.try_exclusive()
    with pytest.raises(StoreUnavailable, match="is being restored"):
        opened(tmp_path)
    lock.close()
    opened(tmp_path).close()
    opened(tmp_path).close()
    (tmp_path / "store.db-lock").unlink()
    opened(tmp_path).close()
    assert (tmp_path / "store.db-lock").exists()

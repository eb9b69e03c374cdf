"""Locations of stores, and when a process opens one: one use at a time, and after a failure again."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from threading import Event

import pytest

from restkeeper.storage import locate, opening
from restkeeper.storage.errors import (
    RevisionDiffers,
    SearchTooLong,
    StoreError,
    StoreFull,
    StoreGone,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnopened,
)
from restkeeper.storage.interface import Collection
from restkeeper.storage.opening import OpenGate
from restkeeper.storage.sqlite.store import SqliteStore
from tests.clock import SetClock
from tests.waiting import SECONDS


class Store:
    """Each of its attempts takes `seconds` and raises `failure`, if there is one."""

    def __init__(self, *, creates: bool = False, pause: float = 0.0) -> None:
        self.clock = SetClock()
        self.opening = OpenGate(self.clock, creates=creates, pause=pause)
        self.attempts = 0
        self.seconds = 0.0
        self.failure: StoreError | OSError | None = StoreUnavailable("locked")
        self.works: Callable[[], object] = lambda: None

    def open(self) -> None:
        with self.opening.lock():
            self.attempts += 1
            self.works()
            self.clock.now += self.seconds
            if self.failure:
                raise self.failure

    def fails(self) -> StoreError:
        with pytest.raises(StoreError) as raised:
            self.open()
        return raised.value


@pytest.mark.parametrize(("pause", "seconds", "waited"), [(0.0, 2.0, 2.0), (0.5, 0.1, 0.5), (0.0, 60.0, 5.0)])
def test_a_failure_is_repeated_for_as_long_as_the_attempt_took(pause: float, seconds: float, waited: float) -> None:
    """And then one use tries again; five seconds are the longest."""
    store = Store(pause=pause)
    store.seconds = seconds
    assert store.fails().detail == store.fails().detail == "the store cannot be opened"
    store.clock.now += waited - 0.01
    store.fails()
    assert store.attempts == 1
    store.clock.now += 0.02
    store.failure = None
    store.open()
    assert store.attempts == 2


def test_a_failure_that_costs_nothing_is_looked_for_again_at_once() -> None:
    """As a file that is missing."""
    store = Store()
    assert [type(store.fails()) for _ in range(3)] == [StoreUnopened] * 3
    assert store.attempts == 3


def test_uses_do_not_wait_behind_an_attempt_that_follows_a_failure() -> None:
    store, under_way, end = Store(), Event(), Event()
    store.fails()
    store.works = lambda: (under_way.set(), end.wait(SECONDS))
    with ThreadPoolExecutor(1) as pool:
        trying = pool.submit(store.fails)
        assert under_way.wait(SECONDS)
        assert {type(store.fails()) for _ in range(100)} == {StoreUnopened}
        end.set()
        trying.result(SECONDS)
    assert store.attempts == 2


def test_uses_wait_for_the_first_attempt_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "WAIT_SECONDS", 0.01)
    store, under_way, end = Store(), Event(), Event()
    store.failure, store.works = None, lambda: (under_way.set(), end.wait(SECONDS))
    with ThreadPoolExecutor(1) as pool:
        trying = pool.submit(store.open)
        assert under_way.wait(SECONDS)
        assert store.fails().detail == "the store is still being opened"
        monkeypatch.setattr(opening, "WAIT_SECONDS", 2 * SECONDS)
        store.fails()
        end.set()
        trying.result(SECONDS)
    store.open()


def test_a_use_that_waited_too_long_fails_also_if_the_store_is_opened_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an error of the store: the failure that it would repeat is gone whenever it looks."""

    class Opened(OpenGate):
        _failure = property(lambda self: None, lambda self, failure: None)  # type: ignore[assignment]

    monkeypatch.setattr(opening, "WAIT_SECONDS", 0.01)
    gate = Opened(SetClock(), creates=True)
    with gate.lock(), pytest.raises(StoreUnavailable, match="still being opened"), gate.lock():
        pass


@pytest.mark.parametrize(
    ("failure", "creates", "kind"),
    [
        (StoreUnavailable("of a newer program"), False, StoreUnopened),
        (StoreUnavailable("of a newer program"), True, StoreUnavailable),
        (OSError(24, "Too many open files"), False, StoreUnopened),
        (OSError(24, "Too many open files"), True, StoreUnavailable),
        (StoreGone("missing"), False, StoreGone),
        (StoreFull("full"), False, StoreUnopened),
    ],
)
def test_a_start_shows_the_failure(failure: StoreError | OSError, creates: bool, kind: type[StoreError]) -> None:
    """A worker hides it from clients; its cause is for the log."""
    store = Store(creates=creates)
    store.failure = failure
    shown = store.fails()
    assert type(shown) is kind
    assert str(failure).rpartition("] ")[2] in f"{shown.detail} {shown.__cause__}"


NO_FAILURES = (RevisionDiffers, SearchTooLong)  # of an opening


def test_a_failure_can_be_raised_again() -> None:
    """Each kind of it, by the next uses and by those that wait for a connection."""
    kinds = [StoreUnavailable]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each not in NO_FAILURES]
        again = copy(kind("it is away", reason="it stops"))
        assert (type(again), again.detail, again.reason) == (kind, "it is away", "it stops")
    assert StoreReadOnly in kinds


def test_a_location_creates_no_file(tmp_path: Path) -> None:
    file = locate(f"sqlite:///{tmp_path}/a.db")
    assert (file.temporary, file.folder, file.size()) == (False, os.path.realpath(tmp_path), 0)
    with pytest.raises(
        StoreUnavailable,
        match=f"^there is no store at '{tmp_path}/a.db'; DATABASE_URL=.*, and the first start creates it$",
    ):
        file.require()
    assert list(tmp_path.iterdir()) == []
    store = SqliteStore(f"{tmp_path}/a.db", [Collection("things", {})])
    assert list(tmp_path.iterdir()) == []  # a store neither, until it is used
    store.open()
    store.close()
    file.require()
    assert file.size() == (tmp_path / "a.db").stat().st_size > 0


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """A store creates its file, and no folder: that can be a disk which is not mounted."""
    store = SqliteStore(f"{tmp_path}/none/a.db", [Collection("things", {})])
    with pytest.raises(StoreUnavailable, match="/none/a.db' cannot be opened: its folder does not exist$"):
        store.open()


def test_memory_belongs_to_one_process(tmp_path: Path) -> None:
    """It has no file, size or folder, does not exist before it is opened, and cannot be restored."""
    memory = locate("memory://")
    assert (memory.name, memory.temporary, memory.folder, memory.size()) == ("memory://", True, None, 0)
    for work in (memory.require, lambda: memory.restore(tmp_path / "backup.db", discard=False)):
        with pytest.raises(StoreUnavailable, match="memory://"):
            work()

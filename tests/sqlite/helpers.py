"""Common helpers of the tests of SQLite."""

import resource
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from restkeeper.storage import Options
from restkeeper.storage.sqlite.store import SqliteStore
from tests.clock import SetClock
from tests.things import OTHERS, THINGS, kept
from tests.waiting import SECONDS, join

MIB = 1024 * 1024


class Clock(SetClock):
    """A clock at 0. The first `together` calls of sleep(0) wait for each other."""

    def __init__(self, together: int = 1) -> None:
        super().__init__(0.0)
        self._meeting = threading.Barrier(together)
        self._expected = together
        self._lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        with self._lock:
            self._expected -= seconds == 0
            meets = seconds == 0 and self._expected >= 0
        if meets:
            self._meeting.wait(SECONDS)


def opened(folder: Path, **options: Any) -> SqliteStore:
    store: SqliteStore = kept(SqliteStore(str(folder / "store.db"), [THINGS, OTHERS], Options(**options)))
    store.open()
    return store


def together(works: list[Callable[[], object]]) -> list[object]:
    """Run the works on a thread each, and return what each returns or raises."""
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


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Another program reads the store meanwhile, in one transaction."""
    with closing(sqlite3.connect(folder / "store.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM items").fetchone()
        yield


@contextmanager
def file_limit(most: int) -> Iterator[None]:
    """No file of this process can have more bytes: the system refuses them, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # Python would keep a part of a module
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_none
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Exit(BaseException):
    """An exception that stands for the end of a greenlet, or a time-out."""

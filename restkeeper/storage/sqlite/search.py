"""Searches in SQLite, limited in time, and interrupted so that others continue."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from restkeeper.clock import YIELD_SECONDS, Clock
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.shares import Shares
from restkeeper.storage.sqlite.connection import SqliteConnection, interrupt_after, snapshot
from restkeeper.storage.sqlite.writer import LogLimit

T = TypeVar("T")
R = TypeVar("R")
Find = Callable[[SqliteConnection], T]

SEARCHES = 8  # at the same time in each process
SHARE = 2  # of them, of each caller
READ_SECONDS = 5.0  # that a search may take
WORK_SECONDS = 0.005  # of work between two interruptions
STEPS = 20  # of SQLite's virtual machine between two reads of the clock: with large items one step takes milliseconds


class _TakesLonger(Exception):
    """An index does not answer a query soon."""


class Searches:
    """The limits of searches: how many run at the same time, in all and of each caller, and how long each.

    `truncate_log` tries to truncate the log, for which a search waits if the log is long: no search may read from it.
    """

    def __init__(self, clock: Clock, log_limit: LogLimit, truncate_log: Callable[[], object]) -> None:
        self._clock = clock
        self._log_limit = log_limit
        self._truncate_log = truncate_log
        self._slots = Shares("slots for searches; narrow yours by a field with an index", SEARCHES, SHARE, clock)
        self._slot = threading.Lock()

    def answer(self, read: Callable[[Find[T]], R], find: Find[T], *, indexed: bool) -> R:
        """The result of `find`, which `read` calls with a connection. Raises StoreUnavailable.

        If an index answers it soon, it is no search and takes no slot; else it needs a connection for longer.
        """
        if indexed:
            with suppress(_TakesLonger):
                return read(partial(self._run_soon, find=find))
        self._log_limit.wait(READ_SECONDS, self._truncate_log)
        with self._slots.use(self._clock.monotonic() + READ_SECONDS):
            return read(partial(self._run, find=find))

    def _run_soon(self, connection: SqliteConnection, find: Find[T]) -> T:
        """Raises _TakesLonger after WORK_SECONDS: so long others can wait."""
        soon = interrupt_after(connection, WORK_SECONDS, self._clock.monotonic, _TakesLonger)
        with snapshot(connection), soon:  # in this order: a ROLLBACK is not interrupted
            return find(connection)

    def _run(self, connection: SqliteConnection, find: Find[T]) -> T:
        """The result of `find` in one snapshot. Raises StoreUnavailable if it takes too long."""
        with snapshot(connection), time_limit(connection, self._clock, self._slot, self._log_limit):
            return find(connection)


@contextmanager
def time_limit(connection: SqliteConnection, clock: Clock, slot: threading.Lock, log_limit: LogLimit) -> Iterator[None]:
    """End a search that takes longer than READ_SECONDS, or that keeps the log until it is full.

    Every few milliseconds, while SQLite seeks, sorts or returns rows, it sleeps so that a cooperative server continues.
    Only the search that has the `slot` works, so that other requests wait for one search and not for all.
    """
    end_of_log = log_limit.next_end()
    slot.acquire()
    monotonic = clock.monotonic
    deadline, end = monotonic() + READ_SECONDS, monotonic() + WORK_SECONDS
    has_slot = True
    detail, failure = "", None

    def must_end() -> bool:  # called some hundred times for a page: it makes one call only
        nonlocal failure
        if (now := monotonic()) < end:
            return False
        try:
            return pause(now)
        except BaseException as error:  # SQLite would raise only that it was interrupted
            failure = error
            return True

    def pause(now: float) -> bool:
        nonlocal deadline, end, has_slot, detail
        if now > deadline:
            detail = f"the search took more than {READ_SECONDS:g} s; narrow it by a field with an index"
        elif log_limit.has_reached(end_of_log):
            detail = "too much was written during the search; try again, or narrow it by a field with an index"
        clock.sleep(YIELD_SECONDS)  # with the slot, so that the server runs before other searches
        slot.release()
        has_slot = False
        clock.sleep(0)
        has_slot = slot.acquire()
        after = monotonic()
        deadline += after - now  # the time of other requests does not count
        end = after + WORK_SECONDS
        return bool(detail)

    connection.set_progress_handler(must_end, STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        raise failure or StoreUnavailable(detail) from None
    finally:
        connection.set_progress_handler(None, STEPS)
        if has_slot:
            slot.release()

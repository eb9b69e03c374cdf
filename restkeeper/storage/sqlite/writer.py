"""The writing connection of a process, its queue of works, and the log.

The writers of a process share commits: each queues its work, and the first that gets the lock runs the queued works,
each in a savepoint, and commits once. Their order gives each caller a share of the time. Nothing waits inside SQLite:
while another process writes, the lock is tried again at short intervals, so that a cooperative server continues. Each
work has its own deadline: it leaves the queue when that has passed, and is not done later.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from restkeeper.clock import YIELD_SECONDS, Clock
from restkeeper.hook import Hook
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection
from restkeeper.storage.location import size_of
from restkeeper.storage.shares import FairQueue, current_caller
from restkeeper.storage.sql import MIGRATIONS, require_known
from restkeeper.storage.sqlite import connection as sqlite_connection
from restkeeper.storage.sqlite.connection import (
    EPOCH,
    LOG_BYTES,
    RETRY_SECONDS,
    SqliteConnection,
    execute_waiting,
    make_epoch,
)
from restkeeper.storage.sqlite.failures import store_error
from restkeeper.storage.sqlite.items import SqliteTransaction
from restkeeper.storage.transactions import Transaction

if TYPE_CHECKING:
    from restkeeper.storage.sqlite.file import LockFile, StoreFile

T = TypeVar("T")

BATCH = 64  # works in one commit
BATCH_SECONDS = 0.05  # after which a commit takes no more works: the first one waits for the last one
WORK_SECONDS = 0.02  # likewise after one work that took so long: nobody waits for two of these
LONG_SECONDS = 0.01  # a commit that took longer lets other processes write
OTHERS_SECONDS = 0.1  # for which it waits until they have started
TAKEN_SECONDS = 0.01  # between two checks of a work that is in a commit after its deadline

LOG_FULL = 4 * LOG_BYTES  # at each multiple all searches end, so that the log can be restarted
CHECKPOINT_SECONDS = 0.1  # between two checks of its size
PINNED_SECONDS = 60.0  # without another wait, after a wait without effect: another program reads from the log

_FAILED = "the store cannot be written to"
_OTHERS_WRITE = f"{_FAILED}: other callers write"
_TRUNCATE = "PRAGMA wal_checkpoint(TRUNCATE)"  # its first value is 1 if others prevent it

_STATE = f"SELECT {EPOCH}, user_version, oldest FROM store, pragma_schema_version, pragma_user_version"  # noqa: S608 - a constant expression


class LogLimit:
    """Truncates a store's log that is longer than LOG_BYTES, once no reader needs it."""

    def __init__(self, path: str, clock: Clock) -> None:
        self.path = path
        self._log = f"{os.path.realpath(path)}-wal"
        self._clock = clock
        self._next = 0.0
        self._pinned_until = 0.0

    def apply(self, connection: SqliteConnection) -> None:
        """Truncate the log if necessary. It must not wait: `connection` needs a busy time-out of 0."""
        if (now := self._clock.monotonic()) < self._next:
            return
        self._next = now + CHECKPOINT_SECONDS
        if self.size() <= LOG_BYTES:
            return
        self.end(connection, 0)  # without effect if a reader needs it, or the disk fails; the next commit tries again

    def end(self, connection: SqliteConnection, seconds: float) -> None:
        """Move all of the log into the store, so that this is one file. It waits some seconds for those who read it."""
        end = self._clock.monotonic() + seconds
        with suppress(sqlite3.Error):  # the disk is full: the log stays
            while connection.execute(_TRUNCATE).fetchone()[0] and self._clock.monotonic() < end:
                self._clock.sleep(CHECKPOINT_SECONDS)

    def wait(self, seconds: float, truncate: Callable[[], object]) -> None:
        """Wait until the log is short, at most for some seconds; call `truncate` repeatedly."""
        end = self._clock.monotonic() + seconds
        while self.size() > LOG_BYTES and (now := self._clock.monotonic()) >= self._pinned_until:
            if now >= end:
                self._pinned_until = now + PINNED_SECONDS
            truncate()
            self._clock.sleep(CHECKPOINT_SECONDS)

    def next_end(self) -> int:
        """The size of the log at which a search that starts now must end."""
        return LOG_FULL * (1 + self.size() // LOG_FULL)

    def has_reached(self, end: int) -> bool:
        """Whether a search must end. Then the next searches wait for a short log again."""
        if self.size() < end:
            return False
        self._pinned_until = 0.0
        return True

    def size(self) -> int:
        return size_of(self._log)


class Writer:
    """Runs works in shared commits. A store in memory has no `lock` and no `file`."""

    def __init__(
        self,
        connection: SqliteConnection,
        lock: "LockFile | None",
        file: "StoreFile | None",
        log_limit: LogLimit,
        collections: Mapping[str, Collection],
        clock: Clock,
        begin: Callable[[], None],
        committing: Hook[Callable[[Transaction], object]],
    ) -> None:
        self._lock = lock
        self._collections = collections
        self.connection = connection
        self._write_lock = threading.RLock()
        self._file = file
        self._log_limit = log_limit
        self._clock = clock
        self._queue: FairQueue[_Work] = FairQueue()
        self._was_long = False  # the last commit
        self._runs_in = 0  # the thread, or the greenlet, that runs a work
        self._call_beginning, self._committing = begin, committing

    def write(self, work: Callable[[SqliteTransaction], T], *, wait: bool = True, deadline: float | None = None) -> T:
        """See `base.Store.write`."""
        if self._runs_in == threading.get_ident():  # BEGIN would fail, and all works of this commit with it
            raise StoreUnavailable("a function of the service sends a request that writes: use its `items`")
        if deadline is None:
            deadline = self._clock.monotonic() + (sqlite_connection.BUSY_SECONDS if wait else 0.0)
        queued = _Work(work, deadline)
        if not wait:
            with self.exclusively(0):
                self._begin(deadline)
                self._commit(iter([queued]))
            return queued.outcome()  # type: ignore[no-any-return]
        self._queue.add(queued.caller, queued)
        try:
            self._clock.sleep(0)  # other ready writers join this commit
            self._finish(queued)
        except BaseException:
            self._queue.remove(queued.caller, queued)
            self._wake_first()  # this work may have been woken to lock next
            raise
        return queued.outcome()  # type: ignore[no-any-return]

    def _finish(self, queued: "_Work") -> None:
        """Wait until another caller has committed this work, or commit it. Raises StoreUnavailable at its deadline."""
        seconds = 0.0  # a new work does not overtake those that wait
        while not queued.done:
            if self._write_lock.acquire(blocking=seconds > 0, timeout=seconds or -1):
                try:
                    self._commit_until(queued)
                finally:
                    self._unlock()
            elif queued.woken.wait(self._remaining(queued)):
                queued.woken.clear()
                seconds = TAKEN_SECONDS if self._lock else self._remaining(queued)  # in memory readers lock it, too
            elif self._queue.remove(queued.caller, queued):
                raise StoreUnavailable(_OTHERS_WRITE)

    def _remaining(self, queued: "_Work") -> float:
        return max(queued.deadline - self._clock.monotonic(), TAKEN_SECONDS)

    @contextmanager
    def exclusively(self, seconds: float = -1) -> Iterator[None]:
        """Use the connection exclusively. Raises StoreUnavailable if it is not free in so many seconds."""
        if not self._write_lock.acquire(blocking=seconds != 0, timeout=seconds or -1):
            raise StoreUnavailable(_OTHERS_WRITE)
        try:
            yield
        finally:
            self._unlock()

    def _unlock(self) -> None:
        self._write_lock.release()
        self._wake_first()

    def _wake_first(self) -> None:
        """Let the work lock next whose turn is next."""
        if work := self._queue.first():
            work.woken.set()

    def _commit_until(self, work: "_Work") -> None:
        """Commit works in the order of the queue until this one is done, or its deadline has passed."""
        while not work.done:
            if self._was_long:
                # Other requests of this process continue, and then other processes write: SQLite has no queue, and one
                # that starts the next transaction at once would never let them start.
                end = self._clock.monotonic() + OTHERS_SECONDS
                self._clock.sleep(YIELD_SECONDS)
                while self._lock and self._lock.others_wait() and self._clock.monotonic() < end:
                    self._clock.sleep(RETRY_SECONDS)
            try:
                self._begin(work.deadline)
            except StoreUnavailable as error:
                self._queue.remove(work.caller, work)
                work.finish(error)
                return
            start = self._clock.monotonic()
            self._commit(self._take())
            self._was_long = self._clock.monotonic() - start > LONG_SECONDS

    def _take(self) -> Iterator["_Work"]:
        """The works of a commit, in the order of the queue. One that has waited for too long is refused."""
        end = self._clock.monotonic() + BATCH_SECONDS
        for _ in range(BATCH):
            if (queued := self._queue.take()) is None:
                return
            if self._clock.monotonic() > queued.deadline:
                queued.finish(StoreUnavailable(_OTHERS_WRITE))
                continue
            began = self._clock.monotonic()
            yield queued
            if (now := self._clock.monotonic()) >= end or now - began >= WORK_SECONDS:
                return

    def _begin(self, deadline: float) -> None:
        """Start a transaction, in which the file has an epoch. Raises StoreUnavailable, also as `require_known`."""
        if self._file:
            self._file.require()
        self._call_beginning()
        when_busy = self._lock.show_waiting if self._lock else lambda: None
        try:
            while True:
                execute_waiting(self.connection, "BEGIN IMMEDIATE", deadline, self._clock, when_busy)
                epoch, migration, oldest = self.connection.execute(_STATE).fetchone()
                if migration > len(MIGRATIONS):
                    require_known(migration, oldest, len(MIGRATIONS))
                if epoch:
                    return
                make_epoch(self.connection)
                self.connection.execute("COMMIT")  # before any work, so that readers see the same epoch
        except sqlite3.Error as error:
            self._roll_back()
            raise store_error(_FAILED, error, self._log_limit.path) from error
        except BaseException:
            self._roll_back()
            raise
        finally:
            if self._lock:
                self._lock.hide_waiting()

    def _commit(self, works: Iterator["_Work"]) -> None:
        """Run works in the open transaction, and commit. A work fails alone; if the transaction fails, all fail."""
        batch: list[_Work] = []
        failure: StoreUnavailable | None = None
        try:
            for queued in works:
                batch.append(queued)
                began = self._clock.monotonic()
                try:
                    self._run(queued, sole=len(batch) == 1 and not self._queue)
                finally:
                    self._queue.charge(queued.caller, self._clock.monotonic() - began)
                if queued.error is not None and not self.connection.in_transaction:
                    return  # the only work has failed
            for commit in self._committing.functions:
                commit(SqliteTransaction(self.connection, self._collections))
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            failure = store_error(_FAILED, error, self._log_limit.path)
            failure.__cause__ = error
        except StoreUnavailable as error:
            failure = error
        except BaseException:  # a time-out or an exit in one work rolls back all
            failure = StoreUnavailable("the write was interrupted")
            raise
        else:
            self._log_limit.apply(self.connection)
        finally:
            try:
                self._roll_back()
            finally:  # whatever happens, nobody waits for ever
                for queued in batch:
                    queued.finish(failure)

    def _run(self, queued: "_Work", *, sole: bool) -> None:
        """Run a work; if it fails, roll back to its savepoint.

        The `sole` work of a transaction has no savepoint, because SQLite copies every page that changes after one.
        """
        if not sole:
            self.connection.execute("SAVEPOINT work")
        self._runs_in = threading.get_ident()
        try:
            queued.run(SqliteTransaction(self.connection, self._collections))
        finally:
            self._runs_in = 0
        if not sole:
            if queued.error is not None:
                self.connection.execute("ROLLBACK TO work")
            self.connection.execute("RELEASE work")
        elif queued.error is not None:
            self._roll_back()

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")


class _Work:
    """A queued work, with the context of its caller.

    The caller waits for `woken`: its work is done, or it has the lock to commit it.
    """

    __slots__ = ("_context", "_work", "caller", "deadline", "done", "error", "result", "woken")

    def __init__(self, work: Callable[[SqliteTransaction], Any], deadline: float) -> None:
        self._work = work
        self._context = copy_context()
        self.caller = current_caller.get()
        self.deadline = deadline
        self.done = False
        self.error: Exception | None = None
        self.result: Any = None
        self.woken = threading.Event()

    def finish(self, failure: Exception | None) -> None:
        self.error = self.error or failure
        self.done = True
        self.woken.set()

    def run(self, transaction: SqliteTransaction) -> None:
        try:
            self.result = self._context.run(self._work, transaction)
            transaction.require_success()
        except sqlite3.Error:
            raise  # the whole transaction fails
        except Exception as error:
            self.error = error

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result

"""The connection of a process that writes, and the queue of works for it.

Writers of one process share commits: each queues its work and lets whoever is ready join; the first to get the turn
runs what is queued, each work in a savepoint, and commits once. Nothing waits inside SQLite: a file that another
process is writing to is asked again at short intervals, so that a cooperative server goes on answering meanwhile. Each
work has a deadline of its own, and leaves the queue when that has passed.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, TypeVar

from restkeeper.clock import TURN, Clock
from restkeeper.storage.errors import StoreFull, StoreUnavailable
from restkeeper.storage.sqlite import waiting
from restkeeper.storage.sqlite.errors import store_error
from restkeeper.storage.sqlite.identity import epoch_of, make_epoch
from restkeeper.storage.sqlite.items import SqliteTransaction
from restkeeper.storage.sqlite.lockfile import LockFile
from restkeeper.storage.sqlite.waiting import RETRY_SECONDS, patiently

T = TypeVar("T")

BATCH = 64  # works in one commit, at most
BATCH_SECONDS = 0.05  # for which a commit takes works: bounds how long the first of them waits for the last
LONG_SECONDS = 0.01  # a commit after which others have their turn
OTHERS_SECONDS = 0.1  # for which it waits until they have begun
TAKEN_SECONDS = 0.01  # from look to look of a work whose time is over, but whose commit is under way

_FAILED = "the store cannot be written to"


class Writer:
    """Runs works in shared commits. `require_file` raises StoreUnavailable when writes would go to a wrong file.

    After each commit it calls `after_commit`, still in its turn.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        lock: LockFile | None,
        require_file: Callable[[], None],
        after_commit: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._lock = lock
        self.connection = connection
        self._turn = threading.RLock()
        self._require_file = require_file
        self._after_commit = after_commit
        self._clock = clock
        self._queue: deque[_Work] = deque()
        self._was_long = False  # the last commit

    def write(
        self, work: Callable[[SqliteTransaction], T], *, patient: bool = True, deadline: float | None = None
    ) -> T:
        """See `contract.Store.write`."""
        if deadline is None:
            deadline = self._clock.monotonic() + (waiting.BUSY_SECONDS if patient else 0.0)
        queued = _Work(work, deadline)
        if not patient:
            self._try(queued)
            return queued.outcome()  # type: ignore[no-any-return]
        self._queue.append(queued)
        try:
            self._clock.sleep(0)  # whoever is ready to write joins this commit
            self._finish(queued)
        except BaseException:
            self._withdraw(queued)  # nobody waits for it any more
            self._wake_first()  # it may have been this one, with the next turn
            raise
        return queued.outcome()  # type: ignore[no-any-return]

    def _finish(self, queued: "_Work") -> None:
        """Wait until somebody has committed this work, or do it oneself. Raises StoreUnavailable at its deadline."""
        patience = 0.0  # who comes anew lets those go first who wait
        while not queued.done:
            if self._turn.acquire(blocking=patience > 0, timeout=patience or -1):
                try:
                    self._lead(queued)
                finally:
                    self._end_turn()
            elif queued.woken.wait(self._left(queued)):
                queued.woken.clear()
                patience = TAKEN_SECONDS if self._lock else self._left(queued)  # in memory readers are in the way
            elif self._withdraw(queued):
                raise StoreUnavailable(f"{_FAILED}: others write")

    def _left(self, queued: "_Work") -> float:
        """Seconds that a work may wait still."""
        return max(queued.deadline - self._clock.monotonic(), TAKEN_SECONDS)

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """While the connection is somebody's own."""
        self._turn.acquire()
        try:
            yield
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        self._turn.release()
        self._wake_first()

    def _wake_first(self) -> None:
        """Let the work that has waited longest have the next turn."""
        if self._queue:
            with suppress(IndexError):  # it has just been taken
                self._queue[0].woken.set()

    def _lead(self, own: "_Work") -> None:
        """Commit works in the order of the queue until this one is among them, or its time is over."""
        while not own.done:
            if self._was_long:
                self._let_others_write()
            try:
                epoch = self._begin(own.deadline)
            except (StoreUnavailable, StoreFull) as error:
                self._withdraw(own)
                _fail([own], error)
                return
            began = self._clock.monotonic()
            self._commit(self._taken(), epoch)
            self._was_long = self._clock.monotonic() - began > LONG_SECONDS

    def _let_others_write(self) -> None:
        """Let other requests of this process be looked at, and then other processes write; in turn already.

        SQLite has no queue: a process that begins anew at once would leave the others no moment to begin.
        """
        end = self._clock.monotonic() + OTHERS_SECONDS
        self._clock.sleep(TURN)
        while self._lock and self._lock.others_ask() and self._clock.monotonic() < end:
            self._clock.sleep(RETRY_SECONDS)

    def _try(self, queued: "_Work") -> None:
        """Commit a work by itself, if nobody is in the way. Raises StoreUnavailable."""
        if not self._turn.acquire(blocking=False):
            raise StoreUnavailable("the store is being written to")
        try:
            self._commit(iter([queued]), self._begin(queued.deadline))
        finally:
            self._end_turn()

    def _withdraw(self, queued: "_Work") -> bool:
        """Take a work out of the queue; whether it was there. Atomic: who takes it from there, has it."""
        try:
            self._queue.remove(queued)
        except ValueError:
            return False
        return True

    def _taken(self) -> Iterator["_Work"]:
        """Works from the queue, for one commit."""
        end = self._clock.monotonic() + BATCH_SECONDS
        for _ in range(BATCH):
            try:
                queued = self._queue.popleft()
            except IndexError:
                return
            yield queued
            if self._clock.monotonic() >= end:
                return

    def _begin(self, deadline: float) -> str:
        """Open a transaction that writes; the file's epoch. Raises StoreUnavailable."""
        self._require_file()
        try:
            self._begin_write(deadline)
            try:
                while not (epoch := epoch_of(self.connection)):
                    make_epoch(self.connection)
                    self.connection.execute("COMMIT")  # before any work, so that readers have the same one
                    self._begin_write(deadline)
            except BaseException:
                self._roll_back()
                raise
        except sqlite3.Error as error:
            raise store_error(_FAILED, error) from error
        return epoch

    def _begin_write(self, deadline: float) -> None:
        if self._lock is None:
            self.connection.execute("BEGIN IMMEDIATE")
            return
        try:
            patiently(self.connection, "BEGIN IMMEDIATE", deadline, self._clock, self._lock.ask_for_write)
        finally:
            self._lock.stop_asking()

    def _commit(self, works: Iterator["_Work"], epoch: str) -> None:
        """Run works in the open transaction. Each fails alone; when the transaction fails, all do."""
        batch: list[_Work] = []
        try:
            for queued in works:
                batch.append(queued)
                self._run(queued, epoch, sole=len(batch) == 1 and not self._queue)
                if queued.error is not None and not self.connection.in_transaction:
                    return  # it was the sole work, and there is nothing else to commit
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            failure = store_error(_FAILED, error)
            failure.__cause__ = error
            _fail(batch, failure)
        except BaseException:  # a time-out or an exit in one work: what the others did is rolled back with it
            _fail(batch, StoreUnavailable("the write was interrupted"))
            raise
        else:
            self._after_commit()
        finally:
            self._roll_back()
            for queued in batch:
                queued.finish()

    def _run(self, queued: "_Work", epoch: str, *, sole: bool) -> None:
        """Run a work, and undo it if it fails: the whole transaction, if it is the sole work there.

        Otherwise it has a savepoint, for which SQLite copies every page that the work changes.
        """
        if not sole:
            self.connection.execute("SAVEPOINT work")
        queued.run(SqliteTransaction(self.connection, epoch))
        if sole:
            if queued.error is not None:
                self._roll_back()
            return
        if queued.error is not None:
            self.connection.execute("ROLLBACK TO work")
        self.connection.execute("RELEASE work")

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")


def _fail(batch: list["_Work"], error: Exception) -> None:
    for queued in batch:
        queued.error = queued.error or error
        queued.finish()


class _Work:
    """A caller's work on its way through a shared commit, in that caller's context.

    A caller who has to wait does so for `woken`: for the end of its work, or for its turn to commit it itself.
    """

    __slots__ = ("_context", "_work", "deadline", "done", "error", "result", "woken")

    def __init__(self, work: Callable[[SqliteTransaction], Any], deadline: float) -> None:
        self._work = work
        self._context = copy_context()
        self.deadline = deadline
        self.done = False
        self.error: Exception | None = None
        self.result: Any = None
        self.woken = threading.Event()

    def finish(self) -> None:
        self.done = True
        self.woken.set()

    def run(self, transaction: SqliteTransaction) -> None:
        try:
            self.result = self._context.run(self._work, transaction)
        except sqlite3.Error:
            raise  # not this work's fault: the whole transaction is lost
        except Exception as error:
            self.error = error

    def outcome(self) -> Any:
        """What the work returned, once it is durable; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.result

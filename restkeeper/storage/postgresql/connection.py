"""Connections to PostgreSQL: the pool of a process, a share of it for each caller, time-outs, and errors.

psycopg waits cooperatively if gevent has patched the process before psycopg's first import; `require_cooperation`
checks it. A server that does not answer at all, as one that is paused, cannot end a statement: a watch closes the
connection.
"""

import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import psycopg.waiting
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout, TooManyRequests

from restkeeper.clock import Clock
from restkeeper.storage.caller import caller
from restkeeper.storage.errors import StoreFull, StoreUnavailable
from restkeeper.storage.transfer import DETAILS, Kind

ANSWER_SECONDS = 5.0  # for which a statement may work or wait for a lock, and a caller may wait for a connection
IDLE_SECONDS = 5.0  # between two statements of a transaction
TRANSACTION_SECONDS = 15.0  # of a whole transaction (PostgreSQL 17 and later)
CUT_SECONDS = 1.0  # beyond ANSWER_SECONDS, after which the watch closes a connection whose server is silent
WAITING = 500  # callers that wait for a connection in each process
RECONNECT_SECONDS = 2.0  # for which the pool tries again, before it waits for the next caller
LONGEST_IDLE_SECONDS = 300.0  # of a connection that is not needed

PREPARED = 5  # uses of a statement, after which its plan is kept

Parameters = Mapping[str, Any] | Sequence[Any] | None
Row = tuple[Any, ...]

_FAILED = "the database does not answer"

REFUSED = {Kind.MOVING: "RK001", Kind.MOVED: "RK002"}  # the errors of our triggers, see `transfer.py`

# What errors mean to a caller. The message of the server is for the log.
_CAUSES = {
    "57014": f"the database worked for more than {ANSWER_SECONDS:g} s; narrow a search by a field with an index",
    "55P03": "others change the same items; try again",
    "40001": "others change the same items; try again",
    "40P01": "others change the same items; try again",
    "25P03": "the transaction took too long",
    "25P04": "the transaction took too long",
    "25006": "the database is a copy that can only be read",
    "53300": "the database has no connection left",
    "57P03": "the database starts or stops",
    **{code: DETAILS[kind] for kind, code in REFUSED.items()},
}


class Session(psycopg.Connection[Row]):
    """A connection that sends changes together with the next statement that needs a result, in one round trip.

    Outside of a transaction each statement is one of its own. Parameters are named or positional; results are binary.
    """

    _queue: list[tuple[str, Parameters, Callable[[int], None] | None]]
    _reused: psycopg.Cursor[Row]
    deadline: float | None = None  # of the present use, by time.monotonic

    def prepare(self) -> None:
        """Make it ready for use, once after it was opened."""
        self._queue = []
        self._reused = self.cursor(binary=True)

    def rows(self, statement: str, parameters: Parameters = None) -> list[Row]:
        """The rows of a statement, after all queued changes."""
        return self._run(statement, parameters).fetchall()

    def row(self, statement: str, parameters: Parameters = None) -> Row | None:
        """The first row of a statement, if it has one, after all queued changes."""
        return self._run(statement, parameters).fetchone()

    def change(self, statement: str, parameters: Parameters = None) -> int:
        """Execute a change now, after all queued ones, and return the number of its rows."""
        return self._run(statement, parameters).rowcount

    def send(self, statement: str, parameters: Parameters = None, *, done: Callable[[int], None] | None = None) -> None:
        """Queue a change. `done` is called with the number of its rows when that is known, and may raise an error."""
        self._queue.append((statement, parameters, done))

    def flush(self) -> None:
        """Send all queued changes, and wait for their results."""
        if self._queue:
            self._run(*self._queue.pop())

    def begin(self) -> None:
        """Begin a transaction, with the first statement that is sent."""
        self._queue = [("BEGIN", None, None)]

    def end(self, statement: str = "COMMIT") -> None:
        """End the transaction, or with another statement a savepoint, if no queued change fails."""
        if any(done for _, _, done in self._queue):
            self.flush()
        self.send(statement)
        self.flush()

    def undo(self) -> None:
        """Roll back the transaction, if one has begun; a broken connection has none."""
        self._queue = []
        if not self.closed and self.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            with suppress(psycopg.Error):  # then the connection is lost, and so is the transaction
                self.rollback()  # which also makes psycopg forget statements that the server did not get to prepare
        self.prepare_threshold = PREPARED

    def protect(self, savepoint: str) -> None:
        """Begin a savepoint, after all queued changes.

        No further statement of the transaction is prepared: psycopg would take one for prepared that the server has not
        seen, because a statement before it had failed.
        """
        self.flush()
        self.prepare_threshold = None
        self.send(f"SAVEPOINT {savepoint}")

    def undo_to(self, savepoint: str) -> None:
        """Undo what was done since a savepoint, which may be still in the queue."""
        was_sent = not any(statement.startswith("SAVEPOINT") for statement, _, _ in self._queue)
        self._queue = []
        if was_sent and not self.closed:
            self._reused.execute(f"ROLLBACK TO SAVEPOINT {savepoint}")
            self._reused.execute(f"RELEASE SAVEPOINT {savepoint}")

    def _run(
        self, statement: str, parameters: Parameters, done: Callable[[int], None] | None = None
    ) -> psycopg.Cursor[Row]:
        """The cursor with the result of a statement, which is sent after the queued ones."""
        if not self._queue:
            cursor = self._reused.execute(statement, parameters)
        else:
            queue, self._queue = self._queue, []
            with self.pipeline():
                cursors = [self.cursor(binary=True).execute(*each[:2]) for each in queue]
                cursor = self.cursor(binary=True).execute(statement, parameters)
            for each, (_, _, check) in zip(cursors, queue, strict=True):
                if check:
                    check(each.rowcount)
        if done:
            done(cursor.rowcount)
        return cursor


class Connections:
    """The connections of a process: at most `most`, of which one caller uses at most half.

    `configure` is called with each new connection, which it has to `prepare`.
    """

    def __init__(self, url: str, most: int, configure: Callable[[Session], None], clock: Clock) -> None:
        require_cooperation()
        self._clock = clock
        self._shares = _Shares(max(1, most // 2), clock)
        self._used: set[Session] = set()
        self._is_closed = threading.Event()
        self._pool = ConnectionPool(
            with_limits(url),
            connection_class=Session,
            kwargs={"autocommit": True},
            min_size=1,
            max_size=most,
            max_waiting=WAITING,
            max_idle=LONGEST_IDLE_SECONDS,
            reconnect_timeout=RECONNECT_SECONDS,
            configure=configure,
            check=_require_open,
            open=True,
        )
        threading.Thread(target=self._watch, name="restkeeper-database", daemon=True).start()

    @contextmanager
    def session(self, *, deadline: float | None = None, is_long: bool = False) -> Iterator[Session]:
        """A connection that nobody else uses meanwhile; errors are raised as `store_error`.

        It waits for one until `deadline`. A `long` use is not ended by the watch.
        """
        start = self._clock.monotonic()
        deadline = start + ANSWER_SECONDS if deadline is None else deadline
        with self._shares.of(caller(), deadline):
            session = self._take(max(0.001, deadline - self._clock.monotonic()))
            session.deadline = None if is_long else max(start, deadline) + ANSWER_SECONDS + CUT_SECONDS
            self._used.add(session)
            try:
                yield session
            except psycopg.Error as error:
                raise store_error(error) from error
            finally:
                self._used.discard(session)
                self._pool.putconn(session)

    def close(self) -> None:
        """Close all connections."""
        self._is_closed.set()
        self._pool.close(timeout=CUT_SECONDS)

    def _take(self, seconds: float) -> Session:
        try:
            return self._pool.getconn(timeout=seconds)
        except (PoolTimeout, TooManyRequests) as error:
            raise StoreUnavailable(f"{_FAILED}, or all of its connections are in use") from error

    def _watch(self) -> None:
        while not self._is_closed.wait(CUT_SECONDS):
            now = self._clock.monotonic()
            for session in list(self._used):
                if session.deadline is not None and now > session.deadline:
                    _cut(session)


class _Shares:
    """The connections that each caller uses: at most `share`."""

    def __init__(self, share: int, clock: Clock) -> None:
        self._share = share
        self._clock = clock
        self._used: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def of(self, name: str, deadline: float) -> Iterator[None]:
        """A place for one use. Raises StoreUnavailable if there is none until the deadline."""
        with self._changed:
            while self._used[name] >= self._share:
                if not self._changed.wait(max(0.0, deadline - self._clock.monotonic())):
                    raise StoreUnavailable(f"your other requests use {self._share} connections of the database")
            self._used[name] += 1
        try:
            yield
        finally:
            with self._changed:
                self._used[name] -= 1
                if not self._used[name]:
                    del self._used[name]
                self._changed.notify_all()


def connect(url: str, *, is_long: bool = False) -> Session:
    """Open a connection besides the pool, for a migration. The statements of a `long` one have no time-out."""
    try:
        session = Session.connect(with_limits(url), autocommit=True)
        session.prepare()
        if is_long:
            session.change("SET statement_timeout = 0")
            session.change("SET transaction_timeout = 0") if session.info.server_version >= 170_000 else None
    except psycopg.Error as error:
        raise store_error(error) from error
    return session


def with_limits(url: str) -> str:
    """The connection string of a URL with our time-outs, which those in the URL's `options` override."""
    limits = {
        "statement_timeout": ANSWER_SECONDS,
        "lock_timeout": ANSWER_SECONDS,
        "idle_in_transaction_session_timeout": IDLE_SECONDS,
    }
    given = conninfo_to_dict(url)
    options = [f"-c {name}={seconds * 1000:.0f}" for name, seconds in limits.items()]
    defaults = {"connect_timeout": f"{ANSWER_SECONDS:.0f}", "application_name": "restkeeper"}
    text = " ".join([*options, str(given.get("options") or "")])
    return make_conninfo(url, **{**defaults, **given, "options": text.strip(), "client_encoding": "utf8"})


def store_error(error: psycopg.Error) -> StoreUnavailable | StoreFull:
    """The error of a store: what a caller can know of the reason."""
    code = error.sqlstate or ""
    if code == "53100":
        return StoreFull("the disk of the database is full")
    return StoreUnavailable(_CAUSES.get(code, _FAILED))


def require_cooperation() -> None:
    """Raises RuntimeError if gevent has patched this process, but only after psycopg had chosen how to wait."""
    gevent = sys.modules.get("gevent.monkey")
    if (
        gevent
        and gevent.is_module_patched("select")
        and psycopg.waiting.wait is getattr(psycopg.waiting, "wait_c", None)
    ):
        raise RuntimeError("psycopg was imported before gevent had patched this process: queries would block it")


def _require_open(session: Session) -> None:
    """Raises psycopg.OperationalError if the server has closed the connection. It sends nothing, and does not wait."""
    session.pgconn.consume_input()


def _cut(session: Session) -> None:
    """Close the socket of a connection, so that whoever waits for its server gets an error."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(session.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)

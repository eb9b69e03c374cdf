"""Connections to PostgreSQL: the pool of a process, a share of it for each caller, time-outs, and errors.

psycopg waits cooperatively if gevent has patched the process before psycopg's first import; `require_cooperation`
checks it. A server that does not answer at all, as one that is paused, cannot end a statement: a watch closes the
connection. While no connection can be opened, requests fail at once, and one thread tries to open one.
"""

import logging
import os
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psycopg
import psycopg.waiting
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.generators import send
from psycopg_pool import ConnectionPool, PoolTimeout

from restkeeper.clock import Clock
from restkeeper.storage.caller import caller
from restkeeper.storage.errors import StoreFull, StoreUnavailable, StoreUnreachable
from restkeeper.storage.postgresql import waiting
from restkeeper.storage.postgresql.chain import can_be_chained, chained
from restkeeper.storage.transfer import DETAILS, Kind

ANSWER_SECONDS = 5.0  # for which a statement may work, and a caller may wait for a connection
LOCK_SECONDS = 4.5  # for which a statement may wait for a lock: less, as the error is another one
IDLE_SECONDS = 5.0  # between two statements of a transaction
TRANSACTION_SECONDS = 15.0  # of a whole transaction (PostgreSQL 17 and later), if the server has no other limit
CUT_SECONDS = 0.5  # beyond ANSWER_SECONDS, after which the watch closes a connection whose server is silent
WAITING = 500  # uses that wait for a connection in each process
OPEN_SECONDS = 0.25  # for which a use waits for the pool, before it looks whether connections can be opened
RECONNECT_SECONDS = 0.5  # between two attempts to connect while the database does not answer
LOG_SECONDS = 60.0  # between two lines of a process about the same failure
LONGEST_IDLE_SECONDS = 300.0  # of a connection that is not needed

PREPARED = 5  # uses of a statement, after which its plan is kept

# Servers before PostgreSQL 17 would refuse a connection that sets it, and have no such setting here.
_LIMIT_TRANSACTIONS = """\
SELECT set_config(name, %s, false)
FROM pg_settings
WHERE name = 'transaction_timeout' AND setting = '0'"""

_LIFT_LIMITS = """\
SELECT set_config(name, '0', %s)
FROM pg_settings
WHERE name IN ('statement_timeout', 'transaction_timeout')"""

Parameters = Mapping[str, Any] | Sequence[Any] | None
Row = tuple[Any, ...]

_FAILED = "the database does not answer"
UNKNOWN = "the connection to the database was lost: it is not known whether the change was stored"

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
    "57P01": "the database starts or stops",
    "57P02": "the database starts or stops",
    "57P03": "the database starts or stops",
    **{code: DETAILS[kind] for kind, code in REFUSED.items()},
}

_log = logging.getLogger("restkeeper")
_logged: dict[str, float] = {}  # the time of the last line about each kind of failure


class _Pipeline(psycopg.Pipeline):
    """Several statements in one round trip, whose last message is Sync.

    psycopg sends a Flush after it. A server that gets that stops to measure the idle time of the transaction, which
    would never end if this process did not continue.
    """

    def _fetch_gen(self, *, flush: bool) -> PQGen[None]:
        if flush:
            yield from send(self.pgconn)  # large changes are not sent in one go
        yield from super()._fetch_gen(flush=False)


class Session(psycopg.Connection[Row]):
    """A connection that sends changes together with the next statement that needs a result, in one round trip.

    Outside of a transaction each statement is one of its own. Parameters are named or positional; results are binary.
    """

    _queue: list[tuple[str, Parameters, Callable[[int], None] | None]]
    _reused: psycopg.Cursor[Row]
    used_at = 0.0  # when it has sent something last, by time.monotonic
    is_long = False  # whether the present use may take any time

    def prepare(self) -> None:
        """Make it ready for use, once after it was opened."""
        self._queue = []
        self._reused = self.cursor(binary=True)
        self.rows(_LIMIT_TRANSACTIONS, (f"{TRANSACTION_SECONDS * 1000:.0f}",))

    def lift_limits(self, *, local: bool = False) -> None:
        """Let statements and transactions take any time from now on, or if it is `local` those of this transaction."""
        self.rows(_LIFT_LIMITS, (local,))

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """See `psycopg.Connection.wait`: all that is sent and received comes through here."""
        if timeout is None and waiting.is_patched():
            return waiting.run(gen, self.pgconn.socket)
        return super().wait(gen, interval, timeout)

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
        if statement == "COMMIT" and self._chain():
            return
        self.send(statement)
        self.flush()

    def _chain(self) -> bool:
        """Make all changes of a transaction, of which nothing was sent, by one statement; False if that cannot be."""
        (first, _, _), *changes = self._queue or [("", None, None)]
        statements = tuple(statement for statement, _, _ in changes)
        if first != "BEGIN" or not can_be_chained(statements):
            return False
        self._queue = []
        self._run(chained(statements), [value for _, values, _ in changes for value in values or ()])
        return True

    def undo(self) -> None:
        """Roll back the transaction, if one has begun; a broken connection has none."""
        self._queue = []
        self.used_at = time.monotonic()
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
        self.used_at = time.monotonic()
        if not self._queue:
            cursor = self._reused.execute(statement, parameters)
        else:
            queue, self._queue = self._queue, []
            self._pipeline = _Pipeline(self)
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
        logging.getLogger("psycopg").addHandler(logging.NullHandler())  # the log has one line about an outage: ours
        self._url = with_limits(url)
        self._clock = clock
        self._configure = configure
        self._shares = _Shares(most, max(1, most // 2), clock)
        self._used: set[Session] = set()
        self._new: set[Session] = set()  # that are being prepared
        self._is_closed = threading.Event()
        self._failure: StoreUnavailable | None = None  # of the last attempt to connect
        self._has_failed = threading.Event()
        self._pool = ConnectionPool(
            self._url,
            connection_class=Session,
            kwargs={"autocommit": True},
            min_size=1,
            max_size=most,
            max_idle=LONGEST_IDLE_SECONDS,
            reconnect_timeout=0.0,
            reconnect_failed=lambda _: self._fail(),
            configure=self._prepare,
            open=True,
        )
        for task in (self._watch, self._reconnect):
            threading.Thread(target=task, name="restkeeper-database", daemon=True).start()

    @contextmanager
    def session(self, *, deadline: float | None = None, is_long: bool = False) -> Iterator[Session]:
        """A connection that nobody else uses meanwhile; errors are raised as `store_error`.

        It waits for one until `deadline`. A `long` use is not ended by the watch.
        """
        deadline = self._clock.monotonic() + ANSWER_SECONDS if deadline is None else deadline
        with self._shares.of(caller(), deadline):
            session = self._take(deadline)
            session.is_long, session.used_at = is_long, time.monotonic()
            self._used.add(session)
            try:
                yield session
            except psycopg.Error as error:
                raise store_error(error) from cause_of(error)
            finally:
                self._used.discard(session)
                self._pool.putconn(session)

    def close(self) -> None:
        """Close all connections."""
        self._is_closed.set()
        self._has_failed.set()
        self._pool.close(timeout=CUT_SECONDS)

    def _take(self, deadline: float) -> Session:
        """An open connection: an idle one, or one that the pool opens. Raises StoreUnavailable."""
        while True:
            if (failure := self._failure) and not self._used and not self._pool.get_stats()["pool_available"]:
                raise type(failure)(failure.detail)
            with suppress(PoolTimeout):
                session = self._pool.getconn(timeout=OPEN_SECONDS)
                if _is_open(session):
                    return session
                self._pool.putconn(session)  # which opens another
                continue
            if self._clock.monotonic() >= deadline:
                raise StoreUnavailable(_FAILED)

    def _prepare(self, session: Session) -> None:
        """Prepare a new connection, while the watch looks."""
        session.used_at = time.monotonic()
        self._new.add(session)
        try:
            self._configure(session)
        except BaseException:
            session.close()
            raise
        finally:
            self._new.discard(session)

    def _watch(self) -> None:
        """Close the connections whose server is silent."""
        while not self._is_closed.wait(CUT_SECONDS):
            latest = time.monotonic() - ANSWER_SECONDS - CUT_SECONDS
            for session in [each for each in self._used | self._new if not each.is_long and each.used_at < latest]:
                _cut(session)
                self._fail()

    def _fail(self) -> None:
        """Let requests fail that have no connection, until one can be opened."""
        self._failure = self._failure or StoreUnavailable(_FAILED)
        self._has_failed.set()

    def _reconnect(self) -> None:
        """After a failure, try to connect until it succeeds."""
        while self._has_failed.wait() and not self._is_closed.is_set():
            since = time.monotonic()
            while not self._can_connect() and not self._is_closed.wait(RECONNECT_SECONDS):
                pass
            self._failure = None
            self._has_failed.clear()
            _log_rarely("reconnected", "the database answers again after %.1f s", time.monotonic() - since)

    def _can_connect(self) -> bool:
        try:
            with Session.connect(self._url, autocommit=True) as session:
                self._prepare(session)
        except psycopg.Error as error:
            self._failure = store_error(error)  # type: ignore[assignment]
        except StoreUnavailable as error:
            self._failure = error
        else:
            return True
        return False


class _Place(NamedTuple):
    """A use that waits."""

    name: str
    given: threading.Event


class _Shares:
    """The connections in use: at most `most`, and at most `share` of each caller. Others wait in order of arrival."""

    def __init__(self, most: int, share: int, clock: Clock) -> None:
        self._most = most
        self._share = share
        self._clock = clock
        self._used: Counter[str] = Counter()
        self._waiting: deque[_Place] = deque()
        self._changing = threading.Lock()

    @contextmanager
    def of(self, name: str, deadline: float) -> Iterator[None]:
        """A place for one use. Raises StoreUnavailable if there is none until the deadline."""
        with self._changing:
            place = self._take_or_queue(name)
        if place and not place.given.wait(max(0.0, deadline - self._clock.monotonic())):
            self._leave(place)
        try:
            yield
        finally:
            with self._changing:
                self._release(name)

    def _has_room(self, name: str) -> bool:
        return self._used[name] < self._share and self._used.total() < self._most

    def _take_or_queue(self, name: str) -> _Place | None:
        if self._has_room(name):
            self._used[name] += 1
            return None
        if len(self._waiting) >= WAITING:
            raise StoreUnavailable(f"{WAITING} requests already wait for a connection of the database")
        place = _Place(name, threading.Event())
        self._waiting.append(place)
        return place

    def _leave(self, place: _Place) -> None:
        """Raises StoreUnavailable if it still waits."""
        with self._changing:
            if place.given.is_set():
                return
            self._waiting.remove(place)
            is_own = self._used[place.name] >= self._share
        used = f"your other requests use {self._share}" if is_own else f"other requests use all {self._most}"
        raise StoreUnavailable(f"{used} connections of the database")

    def _release(self, name: str) -> None:
        """Give a place to the first that waits and may have it."""
        self._used[name] -= 1
        if not self._used[name]:
            del self._used[name]
        if place := next((each for each in self._waiting if self._has_room(each.name)), None):
            self._waiting.remove(place)
            self._used[place.name] += 1
            place.given.set()


def connect(url: str, *, is_long: bool = False) -> Session:
    """Open a connection besides the pool, for a migration. The statements of a `long` one have no time-out."""
    try:
        session = Session.connect(with_limits(url), autocommit=True)
        session.prepare()
        if is_long:
            session.lift_limits()
    except psycopg.Error as error:
        raise store_error(error) from cause_of(error)
    return session


def with_limits(url: str) -> str:
    """The connection string of a URL with our time-outs, which those in the URL's `options` override."""
    limits = {
        "statement_timeout": ANSWER_SECONDS,
        "lock_timeout": LOCK_SECONDS,
        "idle_in_transaction_session_timeout": IDLE_SECONDS,
    }
    given = conninfo_to_dict(url)
    options = [f"-c {name}={seconds * 1000:.0f}" for name, seconds in limits.items()]
    defaults = {"connect_timeout": f"{ANSWER_SECONDS:.0f}", "application_name": "restkeeper"}
    text = " ".join([*options, str(given.get("options") or "")])
    return make_conninfo(url, **{**defaults, **given, "options": text.strip(), "client_encoding": "utf8"})


def store_error(error: psycopg.Error) -> StoreUnavailable | StoreFull:
    """The error of a store: what a caller can know of the reason. The log gets the server's message, not too often."""
    code = error.sqlstate or "08000"  # the connection is lost
    is_away = code[:2] in ("08", "57") and code != "57014"
    if cause_of(error) is None:
        kind = "outage" if is_away else code
        _log_rarely(kind, "requests get 503: the database does not do its work: %s", str(error).partition("\n")[0])
    if code == "53100":
        return StoreFull("the disk of the database is full")
    unavailable = StoreUnreachable if is_away or code == "53300" else StoreUnavailable
    return unavailable(_CAUSES.get(code, _FAILED))


def cause_of(error: psycopg.Error) -> psycopg.Error | None:
    """The cause to log in full for each request: a mistake in a statement, but not what happens in an outage."""
    code = error.sqlstate or "08000"  # lost
    return None if code in _CAUSES or code[:2] in ("08", "53", "57", "58") else error


def _log_rarely(kind: str, message: str, *arguments: object) -> None:
    """Log a line, unless there was one of its kind in the last LOG_SECONDS."""
    now = time.monotonic()
    if now - _logged.get(kind, -LOG_SECONDS) >= LOG_SECONDS:
        _logged[kind] = now
        _log.warning(message, *arguments)


def require_cooperation() -> None:
    """Raises RuntimeError if gevent has patched this process, but only after psycopg had chosen how to wait."""
    gevent = sys.modules.get("gevent.monkey")
    if (
        gevent
        and gevent.is_module_patched("select")
        and psycopg.waiting.wait is getattr(psycopg.waiting, "wait_c", None)
    ):
        raise RuntimeError("psycopg was imported before gevent had patched this process: queries would block it")


def _is_open(session: Session) -> bool:
    """Whether the server has not closed the connection. It sends nothing, and does not wait."""
    try:
        session.pgconn.consume_input()  # the server's last words, if there are any,
        session.pgconn.consume_input()  # and then the end
    except psycopg.Error:
        return False
    return not session.closed


def _cut(session: Session) -> None:
    """Close the socket of a connection, so that whoever waits for its server gets an error."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(session.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)

"""A connection to PostgreSQL, which sends the changes of a transaction together, in one round trip."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import psycopg
from gevent import get_hub, monkey
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from restkeeper.storage.errors import StoreError, StoreUnavailable
from restkeeper.storage.postgresql import limits
from restkeeper.storage.postgresql.failures import cause_of, store_error

# Each limit that the server knows (PostgreSQL 17 has one for transactions), if the URL's `options` do not set it. The
# server's own limit for transactions stays. As options, PgBouncer would refuse or drop them.
_SET_LIMITS = """\
SELECT set_config(name, value, false)
FROM (VALUES
    ('statement_timeout', %s),
    ('lock_timeout', %s),
    ('idle_in_transaction_session_timeout', %s),
    ('transaction_timeout', %s),
    ('default_transaction_isolation', 'read committed')
) AS ours (name, value) JOIN pg_settings USING (name)
WHERE source <> 'client' AND (name <> 'transaction_timeout' OR setting = '0')"""

_LIFT_LIMITS = """\
SELECT set_config(name, '0', %s)
FROM pg_settings
WHERE name IN ('statement_timeout', 'transaction_timeout')"""

_DEFAULTS = {
    "connect_timeout": f"{limits.ANSWER_SECONDS:.0f}",
    "application_name": "restkeeper",
    "keepalives_idle": f"{limits.SILENT_SECONDS:.0f}",
    "tcp_user_timeout": f"{limits.SILENT_SECONDS * 1000:.0f}",
}

_IDLE = psycopg.pq.TransactionStatus.IDLE

T = TypeVar("T")
Row = tuple[Any, ...]
Parameters = Mapping[str, Any] | Sequence[Any] | None


class Statement(NamedTuple):
    """A statement that waits to be sent. `refusal` is the error if it changes no row."""

    sql: str
    parameters: Parameters = None
    refusal: StoreError | None = None


_BEGIN = Statement("BEGIN")
_COMMIT = Statement("COMMIT")

# A change that must find a row. If it finds none, the server raises an error (a division by zero), because what was
# sent after it, such as the COMMIT, shall not be executed.
_REQUIRED = """\
WITH found AS (
{}
RETURNING 1)
SELECT 1 / count(*) FROM found"""


class Session(psycopg.Connection[Row]):
    """A connection. It queues the changes of a transaction until a result is needed, or until the end.

    What is queued is sent at once (libpq's pipeline mode). Outside of a transaction each statement is one of its own.
    Parameters are named or positional; results are binary. What is inherited (`execute`, `cursor`, `transaction`) does
    not use the queue. `savepoint` and `commit` need `begin`.
    """

    _queue: list[Statement]
    _failure: Exception | None = None  # of the transaction, or of the innermost savepoint
    _reused: psycopg.Cursor[Row]
    used_at = 0.0  # when it has sent something last, by time.monotonic
    is_long = False  # whether the present use may take any time

    def prepare(self) -> None:
        """Make it ready for use, once after it was opened: its statements, waits and transactions have limits."""
        self._queue = []
        self._reused = self.cursor(binary=True)
        seconds = (limits.ANSWER_SECONDS, limits.LOCK_SECONDS, limits.IDLE_SECONDS, limits.TRANSACTION_SECONDS)
        self.rows(_SET_LIMITS, [f"{each * 1000:.0f}" for each in seconds])

    def lift_limits(self, *, local: bool = False) -> None:
        """Let statements and transactions take any time from now on, or if it is `local` those of this transaction."""
        self.rows(_LIFT_LIMITS, (local,))

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """See `psycopg.Connection.wait`: all that is sent and received comes through here."""
        if timeout is None and monkey.is_module_patched("select"):
            return _wait_with_gevent(gen, self.pgconn.socket)
        return super().wait(gen, interval, timeout)

    def rows(self, statement: str, parameters: Parameters = None) -> list[Row]:
        """The rows of a statement, after all queued changes."""
        return self._run(statement, parameters).fetchall()

    def rows_before(self, statement: str) -> list[Row]:
        """As `rows`, but before all queued changes if the transaction has not begun: these can then be sent with it."""
        if self.info.transaction_status == _IDLE:
            return self._execute(statement).fetchall()
        return self.rows(statement)

    def row(self, statement: str, parameters: Parameters = None) -> Row | None:
        """The first row of a statement, if it has one, after all queued changes."""
        return self._run(statement, parameters).fetchone()

    def change(self, statement: str, parameters: Parameters = None) -> int:
        """Make a change now, after all queued ones, and return the number of its rows."""
        return self._run(statement, parameters).rowcount

    def queue(self, statement: str, parameters: Parameters = None, *, refusal: StoreError | None = None) -> None:
        """Queue a change. `refusal` is raised when it is made and changes no row, or locks none."""
        self._queue.append(Statement(statement, parameters, refusal))

    def flush(self) -> None:
        """Make all queued changes, in one round trip.

        In a transaction another statement must follow soon: psycopg ends a pipeline with a message that stops the
        server's clock for transactions that do nothing.
        """
        queue, self._queue = self._queue, []
        self.used_at = time.monotonic()
        statements = [_required(each.sql) if each.refusal else each.sql for each in queue]
        cursors = [self.cursor(binary=True) for _ in queue]
        try:
            with self.pipeline() if len(queue) > 1 else nullcontext():
                for cursor, statement, each in zip(cursors, statements, queue, strict=True):
                    cursor.execute(statement, each.parameters)
        except psycopg.errors.DivisionByZero:
            failed = next(each for cursor, each in zip(cursors, queue, strict=True) if cursor.pgresult is None)
            error = failed.refusal or StoreUnavailable("a statement has divided by zero")
            self._note_failure(error)
            raise error from None
        except Exception as error:
            self._note_failure(error)
            raise

    def begin(self) -> None:
        """Begin a transaction, when the first statement is executed."""
        self._queue = [_BEGIN]
        self._failure = None

    def commit(self) -> None:
        """Make all queued changes and end the transaction.

        Raises the error of a statement that failed outside of a savepoint, if the work has caught it.
        """
        if self._failure:
            raise self._failure
        if self._queue != [_BEGIN]:
            self._queue.append(_COMMIT)
            self.flush()

    def undo(self) -> None:
        """Roll back the transaction, if one has begun; a broken connection has none.

        With it psycopg forgets its prepared statements: those after an error in a pipeline were not prepared. This is
        why what is sent together begins with BEGIN, though a pipeline is a transaction without it.
        """
        self._queue = []
        self._failure = None
        self.used_at = time.monotonic()
        if not self.closed and self.info.transaction_status != _IDLE:
            with suppress(psycopg.Error):  # then the connection is lost, and so is the transaction
                self.rollback()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of a transaction, which is undone alone if an exception is raised in it, or by one of its changes."""
        self.flush()
        before = self._failure
        try:
            # Not ROLLBACK TO alone: psycopg then forgets what an aborted pipeline did not prepare.
            with self.transaction():
                yield
                self.flush()
                if self._failure:
                    raise self._failure
        except BaseException:
            self._queue = []
            self._failure = before
            raise

    def _run(self, statement: str, parameters: Parameters = None) -> psycopg.Cursor[Row]:
        """The cursor with the result of a statement, which is executed after the queued ones."""
        self.flush()
        return self._execute(statement, parameters)

    def _execute(self, statement: str, parameters: Parameters = None) -> psycopg.Cursor[Row]:
        self.used_at = time.monotonic()
        try:
            return self._reused.execute(statement, parameters)
        except Exception as error:
            self._note_failure(error)
            raise

    def _note_failure(self, error: Exception) -> None:
        """Note the first error of a transaction. Who catches it cannot commit: the server would roll back silently."""
        if self.info.transaction_status != _IDLE:
            self._failure = self._failure or error


def _wait_with_gevent(generator: Generator[int, int, T], fileno: int) -> T:
    """The result of a generator of psycopg, which yields the events it waits for; other greenlets run meanwhile.

    psycopg and gevent's loop have the same numbers for them. It is told that all have come, when one has: psycopg then
    reads nothing, or waits again for its turn to write. Its own way, on gevent's `select.poll`, takes twice the
    processor time for a short statement.
    """
    hub = get_hub()
    try:
        events = next(generator)
        while True:
            watcher: Any = hub.loop.io(fileno, events)
            try:
                hub.wait(watcher)
            finally:
                watcher.close()
            events = generator.send(events)
    except StopIteration as end:
        result: T = end.value
        return result


@lru_cache(maxsize=16)  # all that there are
def _required(statement: str) -> str:
    """See _REQUIRED. A query that locks rows has some without RETURNING."""
    required = _REQUIRED.format(statement)
    return required.replace("\nRETURNING 1", "") if statement.startswith("SELECT") else required


def connect(url: str, *, is_long: bool = False) -> Session:
    """Open a connection besides the pool. If it `is_long`, as for a migration, its statements have no time-out."""
    conninfo = conninfo_of(url)
    try:
        session = Session.connect(conninfo, autocommit=True)
        encoding = session.info.parameter_status("server_encoding")
        if encoding not in (None, "UTF8"):
            session.close()
            raise StoreUnavailable(f"the database has the encoding {encoding}; create it with ENCODING 'UTF8'")
        session.prepare()
        if is_long:
            session.lift_limits()
    except psycopg.Error as error:
        raise store_error(error) from cause_of(error)
    return session


def conninfo_of(url: str) -> str:
    """The connection string of a URL with our defaults: a server that is gone is noticed also by a long statement.

    Raises StoreUnavailable if libpq does not understand it.
    """
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # whose text can have the password
        raise StoreUnavailable("the URL has a parameter that does not exist, or a part that is not escaped") from None
    return make_conninfo(url, **{**_DEFAULTS, **given, "client_encoding": "utf8"})

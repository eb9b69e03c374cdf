"""A connection to PostgreSQL, which sends changes together with what waits for a result."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.generators import send

from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.postgresql import limits, waiting
from restkeeper.storage.postgresql.chain import can_be_chained, chained
from restkeeper.storage.postgresql.failures import cause_of, store_error

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
        self.rows(_LIMIT_TRANSACTIONS, (f"{limits.TRANSACTION_SECONDS * 1000:.0f}",))

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


def connect(url: str, *, is_long: bool = False) -> Session:
    """Open a connection besides the pool, for a migration. The statements of a `long` one have no time-out."""
    conninfo = with_limits(url)
    try:
        session = Session.connect(conninfo, autocommit=True)
        session.prepare()
        if is_long:
            session.lift_limits()
    except psycopg.Error as error:
        raise store_error(error) from cause_of(error)
    return session


def with_limits(url: str) -> str:
    """The connection string of a URL with our time-outs, which those in the URL's `options` override.

    Raises StoreUnavailable if libpq does not understand it.
    """
    timeouts = {
        "statement_timeout": limits.ANSWER_SECONDS,
        "lock_timeout": limits.LOCK_SECONDS,
        "idle_in_transaction_session_timeout": limits.IDLE_SECONDS,
    }
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # whose text can have the password
        raise StoreUnavailable("the URL has a parameter that does not exist, or a part that is not escaped") from None
    options = [f"-c {name}={seconds * 1000:.0f}" for name, seconds in timeouts.items()]
    defaults = {"connect_timeout": f"{limits.ANSWER_SECONDS:.0f}", "application_name": "restkeeper"}
    text = " ".join([*options, str(given.get("options") or "")])
    return make_conninfo(url, **{**defaults, **given, "options": text.strip(), "client_encoding": "utf8"})

"""A connection to PostgreSQL, which sends the changes of a transaction together, in one round trip."""

import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, ClassVar, TypeVar

import psycopg
from gevent import Timeout, get_hub, monkey
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait

from restkeeper.storage.errors import SearchTooLong, StoreError
from restkeeper.storage.interface import Collection, Page, Query
from restkeeper.storage.planning import plan_of, with_few
from restkeeper.storage.plans import ANY_PLAN, Plan
from restkeeper.storage.postgresql import limits
from restkeeper.storage.postgresql.dialect import COLUMNS, DIALECT, without_nul
from restkeeper.storage.postgresql.pages import select_page
from restkeeper.storage.postgresql.queries import PostgresColumn
from restkeeper.storage.postgresql.statements import NO_ROW, Parameters, Statement, raising_without_row, with_numbers
from restkeeper.storage.queries import page_of
from restkeeper.storage.records import state_of
from restkeeper.storage.sql import Row, change_token, require_revision

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

# Statements and transactions can take any time from now on, or those of this transaction if the parameter is true.
LIFT_LIMITS = """\
SELECT set_config(name, '0', %s)
FROM pg_settings
WHERE name IN ('statement_timeout', 'transaction_timeout')"""

# A limit for the statements that follow, until the savepoint before it is rolled back.
_LIMIT = "SELECT set_config('statement_timeout', %s, true)"

MOST_QUEUED = 256  # changes that are sent together: thousands would take long, and others have no turn meanwhile

_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)  # the server waits for the end of the transaction
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)

# See `sql.Database.records`.
_RECORDS = f"""\
SELECT
    number,
    value,
{COLUMNS}
FROM (
    SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS before
    FROM (SELECT *, octet_length(body) + coalesce(octet_length(removed_fields), 0) AS size FROM (
{{}}
    ) AS related) AS sized
) AS measured
WHERE before <= %(max_bytes)s"""  # noqa: S608 - constant columns

T = TypeVar("T")
_Key = tuple[bytes, tuple[int, ...]]  # a statement and the types of its parameters


_BEGIN = Statement("BEGIN")
_COMMIT = Statement("COMMIT")
_ROLLBACK = Statement("ROLLBACK")
_SAVEPOINT = Statement("SAVEPOINT work")
_RELEASE = Statement("RELEASE SAVEPOINT work")
_ROLLBACK_TO = Statement("ROLLBACK TO SAVEPOINT work")


class Session(psycopg.Connection[Row]):
    """A connection, which is a `sql.Database`, too.

    It queues the changes of a transaction until a result is needed, or until the end. What is queued is sent at once,
    by libpq's pipeline mode: psycopg's own sends it statement by statement, which takes twice the processor time.
    `queue`, `savepoint` and `commit` need `begin`; what is read without it is a statement of its own. Parameters are
    named or positional; results are binary. What is inherited (`execute`, `cursor`) does not use the queue.
    """

    columns: ClassVar[type[PostgresColumn]] = PostgresColumn

    _queue: list[Statement]
    _names: dict[_Key, bytes]  # of the queued statements that are prepared
    _numbers: Iterator[int]  # for names, none of which is used again
    _failure: Exception | None = None  # of the transaction, or of the innermost savepoint
    _reused: psycopg.Cursor[Row]
    _has_begun = False  # whether it is in a transaction, also before its first statement
    is_unlimited = False  # whether the statements of the present use may take any time

    def prepare(self) -> None:
        """Make it ready for use, once after it was opened: its statements, waits and transactions have limits."""
        self._queue, self._names, self._numbers = [], {}, count()
        self._reused = self.cursor(binary=True)
        seconds = (limits.ANSWER_SECONDS, limits.LOCK_SECONDS, limits.IDLE_SECONDS, limits.TRANSACTION_SECONDS)
        self.fetch(_SET_LIMITS, [f"{limit * 1000:.0f}" for limit in seconds])

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """See `psycopg.Connection.wait`: all that is sent and received comes through here.

        A server that is silent for longer than a statement may take is left: OperationalError is raised.
        """
        if timeout is None and not self.is_unlimited:
            timeout = limits.SILENT_SECONDS
        if monkey.is_module_patched("select"):
            return _wait_with_gevent(gen, self.pgconn.socket, timeout)
        return super().wait(gen, interval, timeout)

    def fetch(self, statement: str, parameters: Parameters = None) -> list[Row]:
        """The rows of a statement, after all queued changes."""
        return self._run(statement, parameters).fetchall()

    def apply(self, statement: str, parameters: Parameters = None) -> int:
        """Make a change now, after all queued ones, and return the number of its rows."""
        return self._run(statement, parameters).rowcount

    def queue(
        self,
        statement: str,
        parameters: Parameters = None,
        *,
        refusal: StoreError | None = None,
        duplicate: Callable[[psycopg.Error], StoreError] | None = None,
    ) -> None:
        """Queue a change. A `refusal` is raised when it is made and changes no row, or locks none; see `Statement`."""
        self._queue.append(Statement(statement, parameters, refusal, duplicate))
        if len(self._queue) > MOST_QUEUED:
            self.flush()

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        return self.fetch_together(DIALECT[statement], without_nul(parameters))

    def fetch_together(self, statement: str, parameters: Parameters = None) -> list[Row]:
        """As `fetch`, in one round trip with the queued changes, which prepares the statement: one of a fixed text."""
        if not self._queue:
            return self.fetch(statement, parameters)
        queue, self._queue = self._queue, []
        result, adapter = self._send([*queue, Statement(statement, parameters)]), Transformer(self)
        adapter.set_pgresult(result)
        return adapter.load_rows(0, result.ntuples, tuple)

    def change(self, statement: str, parameters: Mapping[str, Any]) -> None:
        self.queue(DIALECT[statement], without_nul(parameters))

    def records(self, statement: str, parameters: Mapping[str, Any], max_bytes: int) -> list[Row]:
        return self.fetch(_RECORDS.format(statement), without_nul({**parameters, "max_bytes": max_bytes}))

    def page(self, collection: Collection, query: Query, max_bytes: int | None, *, bounded: bool = False) -> Page:
        plan = ANY_PLAN
        if bounded or query.joins:
            query, plan = self._plan(collection, query, bounded=bounded)
        statement, values = select_page(collection, query, plan)
        rows = self.fetch(statement, {**values, "most_bytes": sys.maxsize if max_bytes is None else max_bytes})
        epoch, changes, items, revision, *_ = rows[0]
        require_revision(collection, revision)
        total = None if query.narrows else items or 0
        page = page_of((row[4:] for row in rows if row[4] is not None), query, max_bytes, PostgresColumn)
        return page._replace(change_token=change_token(epoch, changes), total=total)

    def _plan(self, collection: Collection, query: Query, *, bounded: bool = True) -> tuple[Query, Plan]:
        """The plan of a page for which others wait, or with joins: it may take more statements than that of a list."""
        query = with_few(self, query, items := lambda: state_of(self, collection)[1])
        return query, plan_of(self, collection, query, items, bounded=bounded)

    def explain(self, collection: Collection, query: Query) -> list[str]:
        statement, values = select_page(collection, *self._plan(collection, query))
        rows = self.fetch(f"EXPLAIN {statement}", {**values, "most_bytes": 1})
        steps = (str(step).strip(" ->") for (step,) in rows)  # others have values, which are not for the log
        return [step for step in steps if " on items" in step or 'on "items.' in step]

    @contextmanager
    def limit(self, seconds: float, most: float) -> Iterator[None]:
        """Let each statement, which only reads, take `most` seconds. Raises SearchTooLong, with the `seconds` of work.

        The transaction can only read after that.
        """
        self._queue += [_SAVEPOINT, Statement(_LIMIT, (f"{max(1, most * 1000):.0f}",))]
        self.flush()  # what is queued may wait for locks
        try:
            yield
        except psycopg.errors.QueryCanceled:
            self._failure = SearchTooLong(seconds)
            self._send([_ROLLBACK_TO, _RELEASE])
            raise self._failure from None
        self._queue += [_ROLLBACK_TO, _RELEASE]

    def flush(self) -> None:
        """Make all queued changes, in one round trip."""
        queue, self._queue = self._queue, []
        if queue:
            self._send(queue)

    def begin(self) -> None:
        """Begin a transaction, when the first statement is executed."""
        self._queue = [_BEGIN]
        self._failure, self._has_begun = None, True

    def commit(self) -> None:
        """Make all queued changes and end the transaction.

        Raises the error of a statement that failed outside of a savepoint, if the work has caught it.
        """
        if self._failure:
            raise self._failure
        if self._queue != [_BEGIN]:
            self._queue.append(_COMMIT)
            self.flush()
        self._has_begun = False

    def roll_back_if_open(self) -> None:
        """Roll back the transaction, if one has begun; a broken connection has none.

        It is not psycopg's `rollback`, which also deletes what is prepared.
        """
        self._queue = []
        self._failure, self._has_begun = None, False
        if self.info.transaction_status in _OPEN:
            with suppress(psycopg.Error):  # then the connection is lost, and so is the transaction
                self._send([_ROLLBACK])

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of a transaction, which is undone alone if an exception is raised in it, or by one of its changes."""
        self._queue.append(_SAVEPOINT)
        self.flush()
        before = self._failure
        try:
            yield
            if self._failure:
                raise self._failure
            self._queue.append(_RELEASE)
            self.flush()
        except BaseException:
            self._queue = []
            if self.info.transaction_status in _OPEN:
                self._send([_ROLLBACK_TO, _RELEASE])
            self._failure = before
            raise

    def _send(self, statements: Sequence[Statement]) -> PGresult:
        """Execute statements in one round trip, and return the result of the last one.

        Raises the error of one that fails; those after it are not executed.
        """
        try:
            results: list[tuple[Statement, PGresult]] = self.wait(self._exchange(statements))
            for statement, result in results:
                if result.status not in _DONE:
                    error = psycopg.errors.error_from_result(result)
                    if statement.duplicate and isinstance(error, psycopg.errors.UniqueViolation):
                        raise statement.duplicate(error)
                    raise statement.refusal if statement.refusal and error.sqlstate == NO_ROW else error
            return results[-1][1]
        except Exception as error:
            self._note_failure(error)
            raise

    def _exchange(self, statements: Sequence[Statement]) -> Generator[int, int, list[tuple[Statement, PGresult]]]:
        """Send statements, and receive their results. For `wait`: it yields what it waits for.

        At its first use a statement is prepared, which has a result, too. Those after an error are not.
        """
        adapted = []
        for statement in statements:  # with the types of its parameters, the values of these, and their formats
            sql, names = with_numbers(raising_without_row(statement.sql) if statement.refusal else statement.sql)
            parameters, adapter = statement.parameters or (), Transformer(self)
            parameters = [parameters[name] for name in names] if isinstance(parameters, Mapping) else parameters
            values = adapter.dump_sequence(parameters, [PyFormat.AUTO] * len(parameters))
            adapted.append((statement, (sql, adapter.types or ()), values, adapter.formats))
        sent: list[tuple[Statement, _Key | None]] = []  # with what is prepared
        self.pgconn.enter_pipeline_mode()
        for statement, key, values, formats in adapted:
            if (name := self._names.get(key)) is None:
                name = self._names[key] = b"queued_%d" % next(self._numbers)
                self.pgconn.send_prepare(name, *key)
                sent.append((statement, key))
            self.pgconn.send_query_prepared(name, values, formats, Format.BINARY)
            sent.append((statement, None))
        self.pgconn.pipeline_sync()
        while self.pgconn.flush():
            if (yield Wait.RW) & Ready.R:
                self.pgconn.consume_input()
        results = []
        for statement, prepared in sent:
            if (result := (yield from self._receive())) is None:
                raise self._lost()
            if prepared and result.status not in _DONE:
                del self._names[prepared]
            results.append((statement, result))
            yield from self._receive()  # nothing, which ends the results of a statement
        end = yield from self._receive()
        if end is None or end.status != ExecStatus.PIPELINE_SYNC:  # the server has ended after its last result
            raise self._lost()
        self.pgconn.exit_pipeline_mode()
        return results

    def _lost(self) -> psycopg.OperationalError:
        """The error of a connection that has ended between two results: libpq may still take it for an open one."""
        self.close()
        return psycopg.OperationalError("the connection is lost")

    def _receive(self) -> Generator[int, int, PGresult | None]:
        """The next result."""
        while self.pgconn.is_busy():
            yield Wait.R
            self.pgconn.consume_input()
        return self.pgconn.get_result()

    def _run(self, statement: str, parameters: Parameters = None) -> psycopg.Cursor[Row]:
        """The cursor with the result of a statement, which is executed after the queued ones."""
        self.flush()
        try:
            return self._reused.execute(statement, parameters)
        except Exception as error:
            self._note_failure(error)
            raise

    def _note_failure(self, error: Exception) -> None:
        """Note the first error of a transaction. Who catches it cannot commit: the server would roll back silently.

        Or it would have nothing: what could not be sent was to begin the transaction. Raises the first one in place of
        a later one that says no more than that.
        """
        if self._has_begun:
            self._failure = self._failure or error
            if isinstance(error, psycopg.errors.InFailedSqlTransaction):
                raise self._failure from None


def _wait_with_gevent(generator: Generator[int, int, T], fileno: int, timeout: float | None) -> T:
    """The result of a generator of psycopg, which yields the events it waits for; other greenlets run meanwhile.

    psycopg and gevent's loop have the same numbers for them. It is told that all have come, when one has: psycopg then
    reads nothing, or waits again for its turn to write. Its own way, on gevent's `select.poll`, takes a
    fifth more processor time for a short statement.
    """
    hub = get_hub()
    try:
        events = next(generator)
        with Timeout(timeout, psycopg.OperationalError("the server is silent")):
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

"""The store in PostgreSQL: any number of processes and machines can use one database.

Each statement sees one moment (READ COMMITTED). A change locks its item and compares what it was computed from; the
responses to requests with an idempotency key are claimed by a unique key. So no transaction fails for its snapshot, and
writers of different items do not wait for each other. A change keeps its item's id and locks it so (FOR NO KEY UPDATE),
which lets others refer to it (FOR KEY SHARE); a deletion locks it against both (FOR UPDATE). A change also has the
shared advisory lock of its collection: who looks for items before it writes takes that lock alone (`lock_collection`),
and then sees all that was committed before. If two changes wait for each other, the database ends one, which `write`
can repeat.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Concatenate, ParamSpec, TypeVar

import psycopg

from restkeeper.clock import Clock
from restkeeper.storage.base import SCAN, Store, spool
from restkeeper.storage.copying import Copy, Restored, Table
from restkeeper.storage.errors import StoreGone, StoreReadOnly, StoreUnavailable
from restkeeper.storage.feed import last_event
from restkeeper.storage.interface import POSITION, Collection, Query
from restkeeper.storage.location import DEFAULTS, Options
from restkeeper.storage.opening import OpenGate
from restkeeper.storage.plans import is_search
from restkeeper.storage.postgresql import limits
from restkeeper.storage.postgresql.dialect import DIALECT, NEW_EPOCH, query_columns
from restkeeper.storage.postgresql.failures import UNKNOWN, cause_of, first_line, log_rarely, translated
from restkeeper.storage.postgresql.feed import sequence
from restkeeper.storage.postgresql.items import CREATE_COUNTERS, PostgresTransaction, change_error
from restkeeper.storage.postgresql.migrations import (
    CONVERTS,
    MIGRATES,
    TABLES,
    USES,
    drop_undeclared,
    holding,
    is_empty,
    migrate,
    present_indexes,
    require_layout_of,
    run_missing,
    share,
    unique_fields,
)
from restkeeper.storage.postgresql.pool import Connections, connect
from restkeeper.storage.postgresql.session import LIFT_LIMITS, Session
from restkeeper.storage.sql import MIGRATIONS, Row, require_usable
from restkeeper.storage.transactions import LockPlan, Transaction

T = TypeVar("T")
P = ParamSpec("P")

SEQUENCED = 64  # changes of a process, after which it numbers events, so that no reader finds many without a number
WAITED_SECONDS = 0.5  # for a connection or a lock, after which a write waits for locks for a shorter time
SCANNED = 500  # records that a scan receives at a time
COPIED = 200  # rows that a copy receives at a time

_LIMIT_WAITS = "SELECT set_config('lock_timeout', %s, true)"

_CHECK = "SELECT current_setting('transaction_read_only'), EXISTS (SELECT 1 FROM items)"  # needs the right to read

_ITEMS = """\
SELECT collection, sum(items)::bigint
FROM counters
GROUP BY collection
HAVING sum(items) > 0
ORDER BY collection"""

# The columns that only PostgreSQL has, after the others, and their values in a row that is copied.
_MORE: dict[str, tuple[Sequence[str], Callable[[Row], Row]]] = {
    "counters": (("shard",), lambda row: (0,)),
    "items": (("fields", "folded"), lambda row: query_columns(row[6])),
}

# After rows with numbers were added: the next number of each kind.
_NUMBERS = tuple(
    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) FROM {table}"  # noqa: S608
    for table, column in (("schemas", "number"), ("items", POSITION))
)

_SIZES = "SELECT pg_total_relation_size(to_regclass(name)) FROM unnest(%s::text[]) AS name"


class PostgresStore(Store):
    """See `base.Store`. A process uses at most `connections`; others are open for a moment to open and examine it."""

    feed = PostgresTransaction.feed

    def __init__(self, url: str, collections: Iterable[Collection], options: Options = DEFAULTS) -> None:
        super().__init__(collections)
        self._url = url
        self._most = options.connections
        self._creates = options.creates
        self._clock = options.clock
        self._unique = {
            name: fields
            for collection in self._collections.values()
            for name, fields in unique_fields(collection).items()
        }
        self._opening = OpenGate(options.clock, creates=options.creates, pause=limits.REOPEN_SECONDS)
        self._changes = 0  # since events were numbered

    def _open(self, alone: bool, indexed: bool) -> Connections:
        session = connect(self._url, is_unlimited=True)
        try:
            if not self._creates and is_empty(session):
                raise StoreGone("the database has no store")
            share(session)
            migrate(session, list(self._collections.values()), self._clock, indexed=indexed)
        except psycopg.Error as error:
            raise change_error(error, self._unique) from cause_of(error)
        finally:
            session.close()
        return Connections(self._url, self._most, self._configure, self._clock)

    def _configure(self, session: Session) -> None:
        """Prepare and check a new connection: the database can be another one than before."""
        session.prepare()
        if is_empty(session):
            raise StoreGone("the database has no store")
        share(session)
        require_usable(session, len(MIGRATIONS))

    def read_with(self, read: Callable[Concatenate[Session, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        with self._parts.session() as session:
            return read(session, *arguments, **options)

    def _search(
        self, find: Callable[[Session], T], collection: Collection, query: Query, *, reads_all: bool = True
    ) -> T:
        with self._parts.session(is_search=is_search(collection, query, reads_all=reads_all)) as session:
            return find(session)

    def _write(
        self, work: Callable[[Transaction], T], plan: LockPlan | None, deadline: float | None, wait: bool, reserve: bool
    ) -> T:
        now = self._clock.monotonic()
        deadline = (now + limits.ANSWER_SECONDS if deadline is None else deadline) if wait else now
        self._begin()
        with self._parts.session(deadline=deadline) as session:
            session.begin()
            if (remaining := deadline - self._clock.monotonic()) < limits.ANSWER_SECONDS - WAITED_SECONDS:
                session.queue(_LIMIT_WAITS, (str(max(1, round(remaining * 1000))),))
            transaction = PostgresTransaction(session, self._collections, self._unique, plan)
            is_ending = False
            try:
                result = work(transaction)
                if self.committing.functions:
                    transaction.flush()  # else they would see what the store refuses
                for commit in self.committing.functions:
                    commit(transaction)
                is_ending = True
                transaction.finish()
            except psycopg.Error as error:
                if is_ending and (session.closed or not error.sqlstate):
                    log_rarely("unknown", "requests get 503: %s: %s", UNKNOWN, first_line(error))
                    raise StoreUnavailable(UNKNOWN, reason=first_line(error)) from None
                raise change_error(error, self._unique) from cause_of(error)
            finally:
                session.roll_back_if_open()
            self._changes += 1
            if self._changes >= SEQUENCED:
                self._changes = 0
                with suppress(psycopg.Error):  # the change is stored; readers number events, too
                    sequence(session, waits=False)
        return result

    def convert(
        self, collections: Sequence[str], work: Callable[[Transaction], object], now: str, *, keeps: bool = False
    ) -> None:
        """See `base.Store`. Revisions are negated before: a writer that has begun fails, who reads many is told."""
        with _connected(self._url, is_unlimited=True) as session, holding(session, CONVERTS, self._clock):
            share(session)
            session.apply("SET idle_in_transaction_session_timeout = 0")  # some steps take long
            if not (unconverted := self._unconverted(self.stored(), collections)):
                return  # another program was first

            def negate(transaction: Transaction) -> None:
                for name, revision in unconverted.items():
                    if revision > 0:
                        transaction.set_revision(name, revision, -revision, now)

            def restore(transaction: Transaction) -> None:
                for name, revision in unconverted.items():
                    transaction.set_revision(name, -abs(revision), abs(revision), now)

            self.write(negate)
            last_event(self)  # nobody adds events of these collections: all of them have positions
            session.begin()
            try:
                transaction = PostgresTransaction(session, self._collections, self._unique)
                work(transaction)
                for name, revision in unconverted.items():
                    transaction.set_revision(name, -abs(revision), self._collections[name].revision, now)
                transaction.finish()
            except BaseException as error:
                session.roll_back_if_open()
                with suppress(StoreUnavailable):  # else `restkeeper migrate` does it again, or with --cancel this
                    self.write(restore)
                if isinstance(error, psycopg.Error):
                    raise change_error(error, self._unique) from cause_of(error)
                raise

    def _spooled(self, collection: str) -> IO[bytes]:
        with self._parts.session(is_unlimited=True) as session:
            session.begin()
            try:
                session.fetch(LIFT_LIMITS, (True,))
                with session.cursor("scan", binary=True) as cursor:
                    cursor.itersize = SCANNED
                    return spool(cursor.execute(DIALECT[SCAN], {"collection": collection}))
            finally:
                session.roll_back_if_open()

    def tidy(self, *gone: str) -> list[str]:
        collections = [Collection(name, {}) for name in gone] or self._collections.values()
        with _connected(self._url, is_unlimited=True) as session:
            return drop_undeclared(session, collections, self._clock)

    def backup(self, target: Path, *, replace: bool = False) -> None:
        raise StoreUnavailable("PostgreSQL has its own tool for a backup: pg_dump; or use continuous archiving")

    def check(self) -> None:
        with self._parts.session() as session:
            require_usable(session, len(MIGRATIONS), complete=True)
            if session.fetch(_CHECK)[0][0] == "on":
                raise StoreReadOnly

    def close(self) -> None:
        connections, self._opened = self._opened, None
        if connections:
            connections.close()


def size_of(url: str) -> int | None:
    """The bytes of a store's tables and indexes; None if the database has no store."""
    with _connected(url) as session:
        if is_empty(session):
            return None
        return sum(int(size) for (size,) in session.fetch(_SIZES, (list(TABLES),)))


def renewed(url: str) -> Restored:
    """Give a store with another history a new epoch, a random text.

    What was restored, or has lost commits, will have the same revisions and positions again, with other contents.
    """
    with _connected(url) as session:
        if is_empty(session):
            raise StoreUnavailable("the database has no store")
        require_layout_of(session)
        session.apply(f"UPDATE store SET epoch = {NEW_EPOCH}, moved_to = ''")  # noqa: S608 - a constant expression
        return Restored(dict(session.fetch(_ITEMS)), None, None)


@contextmanager
def _connected(url: str, *, is_unlimited: bool = False) -> Iterator[Session]:
    """A connection for one use."""
    with closing(connect(url, is_unlimited=is_unlimited)) as session, translated():
        yield session


class PostgresCopy(Copy):
    """See `location.Copy`."""

    database: Session

    def rows(self, table: Table) -> Iterator[Row]:
        self.database.flush()
        with self.database.cursor("copy", binary=True) as cursor:
            cursor.itersize = COPIED
            yield from cursor.execute(table.query)

    def drop_indexes(self, *collections: str) -> None:
        for collection in collections:
            for index in present_indexes(self.database, Collection(collection, {})):
                self.database.apply(f'DROP INDEX "{index}"')

    def add(self, table: Table, rows: Iterable[Row]) -> None:
        more_columns, values = _MORE.get(table.name, ((), lambda row: ()))
        columns = ", ".join((*table.columns, *more_columns))
        with self.database.cursor() as cursor, cursor.copy(f"COPY {table.name} ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row((*row, *values(row)))

    def finish(self) -> None:
        for statement in _NUMBERS:
            self.database.apply(statement)
        for counted in self.database.fetch("SELECT collection, revision FROM counters"):
            self.database.apply(CREATE_COUNTERS, counted)
        self.database.apply(f"ANALYZE {', '.join(TABLES)}")


@contextmanager
def alone(url: str, clock: Clock) -> Iterator[PostgresCopy]:
    """See `location.Location`. Each connection of a program that uses the store has the lock USES, shared."""
    with _waiting(url) as session:
        if is_empty(session):
            raise StoreUnavailable("there is no store in the database")
        # A connection that has just been closed may use it for a moment.
        used = StoreUnavailable("the store is in use: stop the service, its delivery workers and all commands first")
        with holding(session, USES, clock, limits.CLOSED_SECONDS, used):
            require_layout_of(session)
            ((moved_to,),) = session.fetch("SELECT moved_to FROM store")
            if not moved_to:
                migrate(session, (), clock)
            session.begin()
            session.apply(f"LOCK TABLE {', '.join(TABLES)} IN SHARE ROW EXCLUSIVE MODE")  # other programs wait
            yield PostgresCopy(session, moved_to)


@contextmanager
def as_target(url: str, clock: Clock) -> Iterator[PostgresCopy]:
    """See `location.Location`. All of the copy is one transaction; programs that start meanwhile wait for its end."""
    with _waiting(url) as session:
        if not is_empty(session):
            raise StoreUnavailable("the database has a store already: name an empty one")
        with holding(session, MIGRATES, clock):
            session.begin()
            if not is_empty(session):  # another program was first
                raise StoreUnavailable("the database has a store already: name an empty one")
            run_missing(session)
            yield PostgresCopy(session)
            session.commit()


@contextmanager
def _waiting(url: str) -> Iterator[Session]:
    """A connection that may wait for the other store, also in a transaction."""
    with closing(connect(url, is_unlimited=True)) as session:
        try:
            session.apply("SET idle_in_transaction_session_timeout = 0")
            yield session
        except psycopg.Error as error:
            raise StoreUnavailable(f"the store cannot be used: {first_line(error)}") from error

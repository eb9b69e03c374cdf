"""A store in PostgreSQL that is copied, or that is a copy. See `storage.location`."""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

import psycopg

from restkeeper.clock import Clock
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import POSITION
from restkeeper.storage.location import Copy, Copyable, Table
from restkeeper.storage.postgresql.dialect import PostgresDatabase, fields_of
from restkeeper.storage.postgresql.failures import first_line
from restkeeper.storage.postgresql.feed import sequence_inside
from restkeeper.storage.postgresql.items import CREATE_COUNTERS
from restkeeper.storage.postgresql.migrations import is_empty, locks, migrate, run_missing
from restkeeper.storage.postgresql.pool import connect
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.records import epoch_of
from restkeeper.storage.sql import Row

FETCHED = 200  # rows that are received at a time

# The columns that only PostgreSQL has, after the others.
_OWN_COLUMNS = {"counters": ("shard",), "items": ("fields", "folded"), "events": ("seq",)}

# After rows with numbers were added: the newest event, and the next number of each kind.
_NUMBERS = (
    "UPDATE feed SET newest = (SELECT coalesce(max(position), 0) FROM events)",
    *(
        f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) FROM {table}"  # noqa: S608
        for table, column in (("schemas", "number"), ("items", POSITION), ("events", "seq"), ("deliveries", "id"))
    ),
)


class PostgresCopyable(Copyable):
    """See `location.Copyable`."""

    def __init__(self, session: Session, epoch: str, moved_to: str = "") -> None:
        super().__init__(PostgresDatabase(session), epoch, moved_to)
        self._session = session

    def rows(self, table: Table) -> Iterator[Row]:
        self._session.flush()
        with self._session.cursor("copy", binary=True) as cursor:
            cursor.itersize = FETCHED
            yield from cursor.execute(table.query)

    def end(self, moved_to: str) -> None:
        self._session.change("UPDATE store SET moved_to = %s", (moved_to,))
        self._session.commit()


class PostgresCopy(PostgresCopyable, Copy):
    """See `location.Copy`."""

    def add(self, table: Table, rows: Iterable[Row]) -> None:
        columns = ", ".join((*table.columns, *_OWN_COLUMNS.get(table.name, ())))
        with self._session.cursor() as cursor, cursor.copy(f"COPY {table.name} ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row((*row, *_own_values(table, row)))

    def finish(self) -> None:
        for statement in _NUMBERS:
            self._session.change(statement)
        for (collection,) in self._session.rows("SELECT collection FROM counters"):
            self._session.change(CREATE_COUNTERS, (collection,))
        self._session.change(f"ANALYZE {', '.join(locks.TABLES)}")


def _own_values(table: Table, row: Row) -> Row:
    """The values of the columns that only PostgreSQL has."""
    match table.name:
        case "counters":
            return (0,)
        case "items":
            return fields_of(row[6])
        case "events":
            return row[:1]
    return ()


@contextmanager
def as_source(url: str, clock: Clock) -> Iterator[PostgresCopyable]:
    """See `location.Location`. Each connection of a program that uses the store has the lock USES, shared."""
    with _connected(url) as session:
        if is_empty(session):
            raise StoreUnavailable("there is no store in the database")
        locks.use_alone(session)
        ((moved_to,),) = session.rows("SELECT moved_to FROM store")
        if not moved_to:
            migrate(session, (), clock)
        session.begin()
        session.change(f"LOCK TABLE {', '.join(locks.TABLES)} IN SHARE ROW EXCLUSIVE MODE")  # other programs wait
        sequence_inside(session)
        yield PostgresCopyable(session, epoch_of(PostgresDatabase(session)), moved_to)


@contextmanager
def as_target(url: str, epoch: str, clock: Clock) -> Iterator[PostgresCopy]:
    """See `location.Location`. All of the copy is one transaction; programs that start meanwhile wait for its end."""
    with _connected(url) as session:
        if not is_empty(session):
            raise StoreUnavailable("the database has a store already: name an empty one")
        with locks.holding(session, locks.MIGRATES, clock):
            session.begin()
            try:
                if not is_empty(session):  # another program was first
                    raise StoreUnavailable("the database has a store already: name an empty one")
                run_missing(session)
                session.change("UPDATE store SET epoch = %s", (epoch,))
                yield PostgresCopy(session, epoch)
                session.commit()
            finally:
                session.undo()  # before the lock is released, which an aborted transaction could not do


@contextmanager
def _connected(url: str) -> Iterator[Session]:
    """A connection that may wait for the other store, also in a transaction."""
    with closing(connect(url, is_long=True)) as session:
        try:
            session.change("SET idle_in_transaction_session_timeout = 0")
            yield session
        except psycopg.Error as error:
            raise StoreUnavailable(f"the store cannot be copied: {first_line(error)}") from error

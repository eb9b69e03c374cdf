"""A store in PostgreSQL as a source or a target of a copy. See `transfer.Transfer`.

Triggers refuse each change of a source, so that it does not matter which programs use it.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import psycopg

from restkeeper.clock import Clock
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.postgresql import counters
from restkeeper.storage.postgresql.events import sequence_inside
from restkeeper.storage.postgresql.failures import REFUSED
from restkeeper.storage.postgresql.fields import fields_of
from restkeeper.storage.postgresql.identity import epoch_of, make_epoch
from restkeeper.storage.postgresql.migrations import create, is_empty, locks, mark_of, migrate
from restkeeper.storage.postgresql.session import Session, connect
from restkeeper.storage.transfer import PARTS, Mark, Part, Row, cleaned

FREEZE_ATTEMPTS = 12  # of some seconds each, to lock all tables at once
FETCHED = 200  # rows that are received at a time

TABLES = tuple(table for table in locks.TABLES if table != "store")

_PLACES = {
    "counters": "(SELECT collection, sum(items)::bigint AS items, sum(changes)::bigint AS changes "
    "FROM counters GROUP BY collection) AS counters",
    "deliveries": "(SELECT *, leased::int AS flag FROM deliveries) AS deliveries",
    "numbers": "(SELECT 'deliveries' AS name, last_value AS last FROM deliveries_id_seq WHERE is_called) AS numbers",
}

# The columns that a part is copied to, where they are not those of the part.
_COLUMNS = {
    "counters": ("collection", "items", "changes", "shard"),
    "items": ("collection", "id", "owner", "version", "updated_at", "fingerprint", "body", "older", "fields", "folded"),
    "events": (*next(part.columns for part in PARTS if part.name == "events"), "seq"),
}

_REFUSE = """\
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the store was moved' USING ERRCODE = '{}';
END $$"""

_TRIGGERS = """\
SELECT name
FROM unnest(%s::text[]) AS name JOIN pg_trigger ON tgrelid = to_regclass(name)
WHERE tgname = 'moved'"""

# One that is replaced is enabled.
_CREATE_TRIGGER = """\
CREATE OR REPLACE TRIGGER moved BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {}
FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"""

# The next numbers, after rows with numbers were added.
_SET_SEQUENCE = "SELECT setval(pg_get_serial_sequence(%s, %s), coalesce(%s::bigint, 1), %s)"

_FAILED = "the store cannot be copied"


class PostgresTransfer:
    """See `transfer.Transfer`."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._opened: Session | None = None

    @property
    def _session(self) -> Session:
        """The connection. It may wait for the other store, also in a transaction."""
        if self._opened is None:
            self._opened = connect(self._url, is_long=True)
            with _translated():
                self._opened.change("SET idle_in_transaction_session_timeout = 0")
                self._opened.change("SET synchronous_commit = off")  # a copy continues after the last rows
        return self._opened

    @property
    def epoch(self) -> str:
        with _translated():
            return "" if is_empty(self._session) else epoch_of(self._session)

    @property
    def mark(self) -> Mark | None:
        with _translated():
            return mark_of(self._session)

    def freeze(self, mark: Mark) -> None:
        with _translated():
            if self.mark is None:
                migrate(self._session, (), self._clock)
            for attempt in range(1, FREEZE_ATTEMPTS + 1):
                try:
                    return self._freeze(mark)
                except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                    if attempt == FREEZE_ATTEMPTS:
                        raise

    def _freeze(self, mark: Mark) -> None:
        """Wait for the transactions of others, give the last events their numbers, and refuse all changes."""
        session = self._session
        with session.transaction():
            session.change(f"LOCK TABLE {', '.join(TABLES)} IN SHARE ROW EXCLUSIVE MODE")
            self._let_change()
            sequence_inside(session)
            session.change(_REFUSE.format(REFUSED[mark.kind]))
            for table in TABLES:
                session.change(_CREATE_TRIGGER.format(table))
            self._set_mark(mark)

    def release(self, *, renew: bool = False) -> None:
        with _translated(), self._session.transaction():
            self._let_change()
            self._set_mark(None)
            if renew:
                make_epoch(self._session)
            self._session.change(f"ANALYZE {', '.join(TABLES)}")

    def create(self, epoch: str, mark: Mark) -> None:
        with _translated():
            create(self._session, epoch, mark, self._clock)

    def clear(self, mark: Mark) -> None:
        with _translated(), self._session.transaction():
            tables = [table for table in TABLES if table != "feed"]
            self._session.change(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY")
            self._session.change("UPDATE feed SET newest = 0")
            self._set_mark(mark)

    def count(self, part: Part) -> int:
        with _translated():
            return int(self._session.rows(f"SELECT count(*) FROM {_place(part)}")[0][0])  # noqa: S608

    def read(self, part: Part, after: Row = ()) -> Iterator[Row]:
        columns = ", ".join("flag" if column == "leased" else column for column in part.columns)
        key = ", ".join(part.key)
        condition = f"WHERE ({key}) > ({', '.join(['%s'] * len(after))})" if after else ""
        statement = f"SELECT {columns} FROM {_place(part)} {condition} ORDER BY {key}"  # noqa: S608 - constant names
        with _translated(), self._session.transaction(), self._session.cursor("copy", binary=True) as cursor:
            cursor.itersize = FETCHED
            yield from cursor.execute(statement, after)

    def last(self, part: Part) -> Row:
        order = ", ".join(f"{each} DESC" for each in part.key)
        statement = f"SELECT {', '.join(part.key)} FROM {_place(part)} ORDER BY {order} LIMIT 1"  # noqa: S608
        with _translated():
            return self._session.row(statement) or ()

    def write(self, part: Part, rows: Sequence[Row]) -> None:
        with _translated(), self._session.transaction():
            if part.name == "numbers":
                self._set_number("deliveries", "id", rows[0][1] if rows else None)
                return
            columns = ", ".join(_COLUMNS.get(part.name, part.columns))
            with self._session.cursor() as cursor, cursor.copy(f"COPY {part.name} ({columns}) FROM STDIN") as copy:
                for row in _stored(part, rows):
                    copy.write_row(row)
            if part.name == "counters":
                for row in rows:
                    self._session.change(counters.CREATE, row[:1])
            if part.name == "schemas":
                self._set_number("schemas", "place", rows[-1][0])
            if part.name == "events":
                self._number_events(rows[-1][0])

    def close(self) -> None:
        if self._opened:
            self._opened.close()

    def _let_change(self) -> None:
        """Disable the triggers, if there are any. Reads do not wait for this, as they would to drop them."""
        for (table,) in self._session.rows(_TRIGGERS, (list(TABLES),)):
            self._session.change(f"ALTER TABLE {table} DISABLE TRIGGER moved")

    def _set_mark(self, mark: Mark | None) -> None:
        self._session.change("SET LOCAL synchronous_commit = on")
        self._session.change("UPDATE store SET mark = %s", (mark.text if mark else "",))

    def _number_events(self, newest: int) -> None:
        self._session.change("UPDATE feed SET newest = %s", (newest,))
        self._set_number("events", "seq", newest)

    def _set_number(self, table: str, column: str, last: int | None) -> None:
        self._session.rows(_SET_SEQUENCE, (table, column, last, last is not None))


def _place(part: Part) -> str:
    """What the rows are read from."""
    return _PLACES.get(part.name, part.name)


def _stored(part: Part, rows: Iterable[Row]) -> Iterator[Row]:
    """Rows with the columns that only PostgreSQL has."""
    for row in cleaned(rows):
        if part.name == "items":
            yield (*row, *fields_of(row[6].encode()))
        elif part.name == "counters":
            yield (*row, 0)
        elif part.name == "events":
            yield (*row, row[0])
        else:
            yield row


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise StoreUnavailable(f"{_FAILED}: {' '.join(str(error).split())}") from error

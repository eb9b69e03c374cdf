"""Connections of SQLite: its words for statements of all databases, settings, waiting, and the epoch.

The epoch: a random text that distinguishes a SQLite file and its present history from every other.

A copy that replaces a file continues an older history: the same revisions and positions occur again, with other
contents. So it needs another epoch. SQLite's schema version (a number in the file's header) is stored with the epoch.
Copies of a whole database have another one: the backup API (`.restore` and `.backup` of the shell) sets the former
number of the target plus one, VACUUM that of the source plus one. If the two numbers differ, the epoch is of another
history and counts as missing; so does an empty one, which our backups have. Our own changes of the schema store the new
number in their transaction.

This detects every restore by the backup API, also while the store is in use, and every copy by that API, by VACUUM INTO
or by `flask backup`, once it is opened. It does not detect a file that was copied byte for byte, as by `cp`, and put in
place while no process used the store. After an operator's own VACUUM or change of the schema the epoch changes without
need, which costs clients their cached responses.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, ClassVar
from urllib.parse import quote

import orjson

from restkeeper.clock import Clock
from restkeeper.storage.interface import Collection, Page, Query
from restkeeper.storage.planning import plan_of, with_few
from restkeeper.storage.queries import page_of
from restkeeper.storage.records import state_of
from restkeeper.storage.sql import Dialect, Row
from restkeeper.storage.sqlite.functions import ExactSum, fold, is_found, is_inside, local_time
from restkeeper.storage.sqlite.queries import AS_BYTES, SqliteColumn, select_page

APPLICATION_ID = int.from_bytes(b"RstK")  # of our files, in their header
BUSY_SECONDS = 5.0  # for which a write waits, from its call on
RETRY_SECONDS = 0.0005  # about one durable commit on a fast disk
LOG_BYTES = 16 * 1024 * 1024  # of the -wal file; SQLite restarts it every 4 MiB unless a reader needs it
STEPS = 100  # of SQLite's virtual machine between two reads of the clock: with items of 128 KiB, up to 2 ms
STATEMENTS = 32  # prepared statements that each connection caches

EPOCH = "CASE schema_cookie WHEN schema_version THEN epoch ELSE '' END"

NEW_EPOCH = "lower(hex(randomblob(4)))"

DIALECT = Dialect(
    "SQLite",
    ":{}",
    as_bytes=AS_BYTES,
    is_in="IN (SELECT value FROM json_each(:{}))",
    is_like="EXISTS (SELECT 1 FROM json_each(:types) WHERE {} GLOB value)",
    text="TEXT",
    integer="INTEGER",
    real="REAL",
    bytes="BLOB",
    boolean="INTEGER",
    number="INTEGER PRIMARY KEY AUTOINCREMENT",
    strict="STRICT",
    application_id=str(APPLICATION_ID),
    new_epoch=NEW_EPOCH,
    is_unnumbered="0",
    store="store, pragma_schema_version",
    epoch=EPOCH,
    origin=f"(SELECT {EPOCH} FROM store, pragma_schema_version)",  # noqa: S608 - a constant expression
    is_new="position = (SELECT last_insert_rowid())",
    migration="(SELECT user_version FROM pragma_user_version)",
    newest="(SELECT coalesce(max(position), 0) FROM events)",
    **dict.fromkeys(("for_update", "for_change", "for_update_of_free", "for_key_share"), ""),  # there is one writer
    **dict.fromkeys(("own_columns", "own_values", "own_changes"), ""),
    by_event="INDEXED BY deliveries_event",
    is_leased="leased = 1",  # as in the condition of its index
    is_chosen="deliveries.id IN (SELECT value FROM json_each(:ids))",
    is_active="webhook IN (SELECT value FROM json_each(:active))",
)


class SqliteConnection(sqlite3.Connection):
    """A connection, which is a `sql.Database`, too."""

    columns: ClassVar[type[SqliteColumn]] = SqliteColumn

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        return self.execute(statement, parameters).fetchall()

    def records(self, statement: str, parameters: Mapping[str, Any], max_bytes: int) -> sqlite3.Cursor:
        return self.execute(statement, _with_lists(parameters))

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        return self.execute(DIALECT[statement], _with_lists(parameters)).fetchall()

    def select(self, statement: str, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
        """As `rows`, which are read one by one."""
        return self.execute(DIALECT[statement], _with_lists(parameters))

    def page(self, collection: Collection, query: Query, max_bytes: int | None, *, bounded: bool = False) -> Page:
        """See `sql.Database`: the page and its change token at one moment."""
        with snapshot(self):
            change_token, items = state_of(self, collection)
            query = with_few(self, query, lambda: items)
            plan = plan_of(self, collection, query, lambda: items, bounded=bounded)
            statements, values = select_page(collection, query, plan)
            rows = chain.from_iterable(self.execute(statement, values) for statement in statements)
            page = page_of(rows, query, max_bytes, SqliteColumn)
            return page._replace(change_token=change_token, total=None if query.narrows else items)

    def explain(self, collection: Collection, query: Query) -> list[str]:
        query = with_few(self, query, items := lambda: state_of(self, collection)[1])
        plan = plan_of(self, collection, query, items, bounded=True)
        (statement, *_), values = select_page(collection, query, plan)
        steps = self.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
        return [step for *_, step in steps if any(name in step for name in ("items", " other ", "ORDER BY"))]

    def change(self, statement: str, parameters: Mapping[str, Any]) -> None:
        self.execute(DIALECT[statement], _with_lists(parameters)).fetchall()


def _with_lists(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    lists = {name: orjson.dumps(value).decode() for name, value in parameters.items() if isinstance(value, list)}
    return {**parameters, **lists} if lists else parameters


def connect(path: str, synchronous: str, clock: Clock, *, system: str = "unix") -> SqliteConnection:
    """Open a connection in WAL mode that any thread can use. `synchronous` is SQLite's setting, `system` its VFS.

    The file must exist: SQLite would create one with other permissions, also when a disk is not mounted.
    """
    name = path if path == ":memory:" else f"file://{quote(os.path.realpath(path))}?mode=rw&vfs={system}"
    connection = sqlite3.connect(
        name,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
        uri=True,
        factory=SqliteConnection,
    )
    connection.create_function("fold", 1, fold, deterministic=True)
    connection.create_function("is_found", -1, is_found, deterministic=True)
    connection.create_function("is_inside", 2, is_inside, deterministic=True)
    connection.create_function("local_time", 2, local_time, deterministic=True)
    connection.create_aggregate("exact_sum", 1, ExactSum)  # type: ignore[arg-type] # it returns a text or null
    deadline = clock.monotonic() + BUSY_SECONDS
    try:
        execute_waiting(connection, "PRAGMA journal_mode = WAL", deadline, clock)  # it ignores the busy time-out
    except sqlite3.Error:
        connection.close()  # its locks
        raise
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def execute_waiting(
    connection: sqlite3.Connection,
    statement: str,
    deadline: float,
    clock: Clock,
    when_busy: Callable[[], None] = lambda: None,
) -> None:
    """Execute a statement that needs a lock; repeat it until the lock is free or the deadline has passed.

    It calls `when_busy` before each repetition, and does not wait inside SQLite, so that other requests continue.
    """
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_busy or clock.monotonic() >= deadline:
                raise
        when_busy()
        clock.sleep(RETRY_SECONDS)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """All reads see one moment, as they do inside a transaction."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


@contextmanager
def interrupt_after(
    connection: sqlite3.Connection, seconds: float, now: Callable[[], float], error: Callable[[], Exception]
) -> Iterator[None]:
    """Interrupt what is read after some seconds, by the clock `now`, and raise an error."""
    end = now() + seconds
    connection.set_progress_handler(lambda: now() > end, STEPS)
    try:
        yield
    except sqlite3.OperationalError as interruption:
        if interruption.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        raise error() from None
    finally:
        connection.set_progress_handler(None, STEPS)


def make_epoch(connection: sqlite3.Connection) -> None:
    """Set a new epoch, in the transaction that is open."""
    connection.execute(f"UPDATE store SET epoch = {NEW_EPOCH}")  # noqa: S608 - a constant expression
    note_schema(connection)


def note_schema(connection: sqlite3.Connection) -> None:
    """Keep the epoch valid after a change of the schema, in the transaction of the change."""
    connection.execute("UPDATE store SET schema_cookie = (SELECT schema_version FROM pragma_schema_version)")

"""The tables of a SQLite file, the indexes that the collections declare, and their schemas: completed at each start.

The first line of a migration is `-- oldest: N`: a program that has the first N migrations can work with the store after
this one, too. Old and new programs can then use it at the same time.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection
from restkeeper.storage.records import epoch_of, is_registered, register
from restkeeper.storage.sql import literal, oldest_of, require_current, require_known
from restkeeper.storage.sqlite.connection import SqliteConnection, note_schema
from restkeeper.storage.sqlite.indexes import drop_index, indexes_of, present_indexes

MIGRATIONS = sorted(Path(__file__).parent.glob("[0-9]*.sql"))


def migrate(connection: SqliteConnection, collections: Sequence[Collection] = ()) -> None:
    """Run the migrations that are missing, create the row and the indexes of each collection, and register its schema.

    That is one transaction: a start that is refused changes nothing, so that the program before can start again. One
    process does it at a time. Raises StoreUnavailable as `require_readable` and as `register`.
    """
    if _version(connection) >= len(MIGRATIONS):
        require_readable(connection)
        if all(_is_declared(connection, collection) for collection in collections):
            return  # without the write lock, which an import can hold for long
    with _changing_schema(connection):
        run_missing(connection)
        require_readable(connection)  # a newer program can have been first
        for collection in collections:
            register(connection, collection)
            for statement in _missing(connection, collection):  # again: another process can have been first
                connection.execute(statement)


def run_missing(connection: sqlite3.Connection) -> None:
    """Run the migrations that are missing, in the transaction that is open."""
    present = _version(connection)
    for number, migration in enumerate(MIGRATIONS[present:], start=present + 1):
        script = migration.read_text(encoding="utf-8")
        for statement in _statements(script):
            connection.execute(statement)
        connection.execute("UPDATE store SET oldest = max(oldest, ?)", (oldest_of(script),))
        connection.execute(f"PRAGMA user_version = {number}")


def require_writable(connection: sqlite3.Connection, name: str = "the store") -> None:
    """Raises StoreUnavailable if a newer program has migrated the store so that this one cannot work with it."""
    if (version := _version(connection)) > len(MIGRATIONS):
        (oldest,) = connection.execute("SELECT oldest FROM store").fetchone()
        require_known(version, oldest, len(MIGRATIONS), name)


def require_readable(connection: sqlite3.Connection) -> None:
    """As `require_writable`; also raises StoreUnavailable if the store was moved to another one."""
    require_writable(connection)
    require_current(connection.execute("SELECT moved_to FROM store").fetchone()[0])


def require_present(connection: sqlite3.Connection) -> None:
    """As `require_readable`; also raises StoreUnavailable if migrations are missing, as in another file."""
    if (version := _version(connection)) < len(MIGRATIONS):
        raise StoreUnavailable(f"the store has migration {version}, this program needs {len(MIGRATIONS)}")
    require_readable(connection)


def _version(connection: sqlite3.Connection) -> int:
    """The number of migrations that have run."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _changing_schema(connection: SqliteConnection) -> Iterator[None]:
    """A transaction that changes the schema and keeps a valid epoch."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        has_epoch = not _version(connection) or bool(epoch_of(connection))
        yield
        if has_epoch:
            note_schema(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def drop_undeclared(connection: sqlite3.Connection, collections: Iterable[Collection]) -> str:
    """Drop an index of these collections that they do not declare; return its name, or an empty text."""
    for collection in collections:
        declared = indexes_of(collection)
        for name in present_indexes(connection, collection):
            if name not in declared:
                drop_index(connection, name)
                note_schema(connection)
                return name
    return ""


def _is_declared(connection: SqliteConnection, collection: Collection) -> bool:
    return is_registered(connection, collection) and not any(_missing(connection, collection))


def _missing(connection: sqlite3.Connection, collection: Collection) -> Iterator[str]:
    """The statements that create what a collection declares and the file does not have."""
    name = literal(collection.name)
    if not connection.execute("SELECT 1 FROM counters WHERE collection = ?", (collection.name,)).fetchone():
        yield f"INSERT INTO counters (collection) VALUES ({name})"  # noqa: S608 - a checked literal
    present = present_indexes(connection, collection)
    for index, statements in indexes_of(collection).items():
        yield from statements if index not in present else ()

"""The tables of a SQLite file, and the indexes that the collections declare: created and migrated at each start."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from restkeeper.storage.contract import Collection
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.sqlite import sql
from restkeeper.storage.sqlite.identity import epoch_of, note_schema

MIGRATIONS = sorted(Path(__file__).parent.glob("[0-9]*.sql"))

_IDENTITY = 4  # the first migration with which the file stores its schema version


def migrate(connection: sqlite3.Connection) -> None:
    """Run the migrations that are missing, in one transaction; one process at a time."""
    if _version(connection) == len(MIGRATIONS):
        return  # without the write lock, which an import can hold for long
    with _changing_schema(connection):
        version = _version(connection)
        if version > len(MIGRATIONS):
            raise StoreUnavailable(
                f"the store was written by a newer program (migration {version} of {len(MIGRATIONS)})"
            )
        for number, migration in enumerate(MIGRATIONS[version:], start=version + 1):
            for statement in _statements(migration.read_text(encoding="utf-8")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _changing_schema(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that changes the schema and keeps a valid epoch."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        has_epoch = _version(connection) < _IDENTITY or bool(epoch_of(connection))
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


def declare(connection: sqlite3.Connection, collections: Iterable[Collection]) -> None:
    """Create the row of every collection, and exactly the indexes that it declares."""
    statements = [statement for collection in collections for statement in _undeclared(connection, collection)]
    if not statements:
        return  # as above, without the write lock
    with _changing_schema(connection):
        for collection in collections:
            for statement in _undeclared(connection, collection):  # again: another process can have been first
                connection.execute(statement)


def _undeclared(connection: sqlite3.Connection, collection: Collection) -> Iterator[str]:
    """The statements that create or drop what differs from the declaration of a collection."""
    name = sql.literal(collection.name)
    if not connection.execute("SELECT 1 FROM collections WHERE name = ?", (collection.name,)).fetchone():
        yield f"INSERT INTO collections (name) VALUES ({name})"  # noqa: S608 - a checked literal
    declared, prefix = sql.indexes_of(collection), sql.index_prefix(collection)
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND substr(name, 1, ?) = ?"
    present = dict(connection.execute(query, (len(prefix), prefix)).fetchall())
    for index in present:
        if declared.get(index) != present[index]:
            yield f'DROP INDEX "{index}"'
    for index, statement in declared.items():
        if present.get(index) != statement:
            yield statement

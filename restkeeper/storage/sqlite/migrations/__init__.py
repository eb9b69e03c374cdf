"""The tables of a SQLite file, the indexes that the collections declare, and their schemas: completed at each start.

The first line of a migration is `-- oldest: N`: a program that has the first N migrations can work with the store after
this one, too. Old and new programs can then use it at the same time.

A store with a mark (`transfer.Mark`) has higher numbers than any program has migrations: also a program from before
there were marks checks them before it writes.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from restkeeper.storage.contract import Collection
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.sqlite import schemas, sql
from restkeeper.storage.sqlite.identity import epoch_of, note_schema
from restkeeper.storage.statements import literal
from restkeeper.storage.transfer import Mark, mark_in

MIGRATIONS = sorted(Path(__file__).parent.glob("[0-9]*.sql"))

_IDENTITY = 4  # the first migration with which the file stores its schema version
_OLDEST = 7  # the first one with which it stores the oldest program
MARKED = 1_000_000  # is added to the numbers of a store with a mark


def migrate(connection: sqlite3.Connection, collections: Sequence[Collection] = ()) -> None:
    """Run the migrations that are missing, create the row and the indexes of each collection, and register its schema.

    That is one transaction: a start that is refused changes nothing, so that the program before can start again. One
    process does it at a time. Raises StoreUnavailable as `require_known` and as `schemas.register`.
    """
    if mark := mark_of(connection):
        mark.require_readable()
    if _version(connection) >= len(MIGRATIONS):
        _require_oldest(connection)
        if all(_is_declared(connection, collection) for collection in collections):
            return  # without the write lock, which an import can hold for long
    with _changing_schema(connection):
        if mark := mark_of(connection):
            mark.require_writable()
        _run_missing(connection)
        require_known(connection)  # a newer program can have been first
        for collection in collections:
            schemas.register(connection, collection)
            for statement in _missing(connection, collection):  # again: another process can have been first
                connection.execute(statement)


def _run_missing(connection: sqlite3.Connection) -> None:
    for number, migration in enumerate(MIGRATIONS[_version(connection) :], start=_version(connection) + 1):
        script = migration.read_text(encoding="utf-8")
        for statement in _statements(script):
            connection.execute(statement)
        if number >= _OLDEST:
            connection.execute("UPDATE store SET oldest = max(oldest, ?)", (_oldest_of(script),))
        connection.execute(f"PRAGMA user_version = {number}")


def require_known(connection: sqlite3.Connection, name: str = "the store") -> None:
    """Raises StoreUnavailable if this program may not write to the store.

    A newer program has migrated it so that this one cannot work with it, or it has a mark.
    """
    if connection.execute("PRAGMA user_version").fetchone()[0] <= len(MIGRATIONS):
        return
    if mark := mark_of(connection):
        mark.require_writable()
    _require_oldest(connection, name)


def require_present(connection: sqlite3.Connection) -> None:
    """Raises StoreUnavailable if migrations are missing (it is another file), or if this program may not read it."""
    if (version := _version(connection)) < len(MIGRATIONS):
        raise StoreUnavailable(f"the store has migration {version}, this program needs {len(MIGRATIONS)}")
    if mark := mark_of(connection):
        mark.require_current()
    _require_oldest(connection)


def mark_of(connection: sqlite3.Connection) -> Mark | None:
    """The mark of the store."""
    marked = connection.execute("PRAGMA user_version").fetchone()[0] > MARKED
    return mark_in(connection.execute("SELECT mark FROM store").fetchone()[0]) if marked else None


def set_mark(connection: sqlite3.Connection, mark: Mark | None) -> None:
    """Set or delete the mark, in the transaction that is open. All migrations have run."""
    added = MARKED if mark else 0
    version = _version(connection) + added
    statement = "UPDATE store SET mark = ?, oldest = oldest % ? + ?"
    connection.execute(statement, (mark.text if mark else "", MARKED, added))
    connection.execute(f"PRAGMA user_version = {version}")


def create(connection: sqlite3.Connection, epoch: str, mark: Mark) -> None:
    """Create the tables of a store that has this epoch and mark. Raises StoreUnavailable if there is one."""
    with _changing_schema(connection):
        if _version(connection):
            raise StoreUnavailable("the file has a store already")
        _run_missing(connection)
        connection.execute("UPDATE store SET epoch = ?", (epoch,))
        set_mark(connection, mark)


def _require_oldest(connection: sqlite3.Connection, name: str = "the store") -> None:
    version, known = _version(connection), len(MIGRATIONS)
    if version <= known:
        return
    (oldest,) = connection.execute("SELECT oldest % ? FROM store", (MARKED,)).fetchone()
    if oldest > known:
        raise StoreUnavailable(
            f"{name} is of a newer program (migration {version} of {known}): use one that has migration {oldest}"
        )


def _oldest_of(script: str) -> int:
    """The number in the first line of a migration. Raises ValueError."""
    if not (found := re.match(r"-- oldest: (\d+)\n", script)):
        raise ValueError("the first line of a migration is: -- oldest: N")
    return int(found[1])


def _version(connection: sqlite3.Connection) -> int:
    """The number of migrations that have run."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0]) % MARKED


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


def drop_undeclared(connection: sqlite3.Connection, collections: Iterable[Collection]) -> str:
    """Drop an index of these collections that they do not declare; return its name, or an empty text."""
    for collection in collections:
        for name in _undeclared(connection, collection):
            connection.execute(f'DROP INDEX "{name}"')
            note_schema(connection)
            return name
    return ""


def _is_declared(connection: sqlite3.Connection, collection: Collection) -> bool:
    return schemas.is_registered(connection, collection) and not any(_missing(connection, collection))


def _missing(connection: sqlite3.Connection, collection: Collection) -> Iterator[str]:
    """The statements that create what a collection declares and the file does not have.

    An index is recognised by its definition: one of the same name can be of an older program, which needs it.
    """
    name = literal(collection.name)
    if not connection.execute("SELECT 1 FROM collections WHERE name = ?", (collection.name,)).fetchone():
        yield f"INSERT INTO collections (name) VALUES ({name})"  # noqa: S608 - a checked literal
    present = _present(connection, collection)
    for index, statement in sql.indexes_of(collection).items():
        if sql.definition_of(index, statement) not in present.values():
            yield sql.renamed(index, statement) if index in present else statement


def _undeclared(connection: sqlite3.Connection, collection: Collection) -> list[str]:
    """The names of the indexes that a collection does not declare."""
    declared = {sql.definition_of(*index) for index in sql.indexes_of(collection).items()}
    return [name for name, definition in _present(connection, collection).items() if definition not in declared]


def _present(connection: sqlite3.Connection, collection: Collection) -> dict[str, str]:
    """The indexes of a collection in the file: name to definition."""
    prefix = sql.index_prefix(collection)
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND substr(name, 1, ?) = ?"
    rows = connection.execute(query, (len(prefix), prefix)).fetchall()
    return {name: sql.definition_of(name, statement) for name, statement in rows}

"""The tables of a SQLite file, the indexes that the collections declare, and their schemas: completed at each start.

The indexes are on the expressions by which fields are compared and sorted, and partial: their condition is the name of
the collection, as a literal, which all queries repeat. They start with the (constant) collection, because without
statistics SQLite would otherwise prefer the primary key, and sort.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from restkeeper.storage.interface import Collection
from restkeeper.storage.records import epoch_of, is_registered, register
from restkeeper.storage.sql import (
    BETWEEN_FIELDS,
    MIGRATIONS,
    literal,
    not_unique,
    oldest_of,
    require_layout,
    require_usable,
)
from restkeeper.storage.sqlite.connection import DIALECT, SqliteConnection, note_schema
from restkeeper.storage.sqlite.queries import SqliteColumn


def migrate(connection: SqliteConnection, collections: Sequence[Collection] = (), *, indexed: bool = True) -> None:
    """Run the migrations that are missing, create the row of each collection, and register its schema.

    If `indexed`, create its indexes, too. That is one transaction: a start that is refused changes nothing, so that the
    program before can start again. One process does it at a time. Raises StoreUnavailable as `require_layout`,
    `require_usable`, `register` and `not_unique`.
    """
    if version_of(connection):
        require_layout_of(connection, "the store")
    if version_of(connection) >= len(MIGRATIONS):
        require_usable(connection, len(MIGRATIONS))
        if all(
            is_registered(connection, collection) and not any(_missing(connection, collection, indexed))
            for collection in collections
        ):
            return  # without the write lock, which an import can hold for long
    connection.execute("BEGIN IMMEDIATE")
    try:
        has_epoch = not version_of(connection) or bool(epoch_of(connection))
        run_missing(connection)
        require_usable(connection, len(MIGRATIONS))  # a newer program can have been first
        for collection in collections:
            register(connection, collection)
            for statement in _missing(connection, collection, indexed):  # again: another process can have been first
                try:
                    connection.execute(statement)
                except sqlite3.IntegrityError as error:
                    raise not_unique(connection, collection, fields_of(error)) from error
        if has_epoch:
            note_schema(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def run_missing(connection: sqlite3.Connection) -> None:
    """Run the migrations that are missing, in the transaction that is open."""
    present = version_of(connection)
    for number, migration in enumerate(MIGRATIONS[present:], start=present + 1):
        script, statement = DIALECT.script(migration), ""
        for line in script.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                connection.execute(statement)
                statement = ""
        connection.execute("UPDATE store SET oldest = max(oldest, ?)", (oldest_of(script),))
        connection.execute(f"PRAGMA user_version = {number}")


def require_layout_of(connection: sqlite3.Connection, name: str) -> None:
    """Raises StoreUnavailable as `require_layout`."""
    columns = "SELECT name FROM pragma_table_info('items') UNION ALL SELECT name FROM pragma_table_info('store')"
    require_layout([column for (column,) in connection.execute(columns)], name)


def version_of(connection: sqlite3.Connection) -> int:
    """The number of migrations that a file has."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def drop_undeclared(connection: sqlite3.Connection, collections: Iterable[Collection]) -> str:
    """Drop an index of these collections that they do not declare; return its name, or an empty text."""
    for collection in collections:
        declared = indexes_of(collection)
        for name in present_indexes(connection, collection):
            if name not in declared:
                (kind,) = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (name,)).fetchone()
                for event in ("INSERT", "UPDATE", "DELETE"):  # of one that is a table, its triggers first
                    connection.execute(f'DROP TRIGGER IF EXISTS "{name}.{event}"')
                connection.execute(f'DROP {kind} "{name}"')
                note_schema(connection)
                return name
    return ""


def fields_of(error: sqlite3.IntegrityError) -> list[str]:
    """The fields of the unique index that refuses their values; without an index it is the id."""
    index = re.search(r"index '(.+)'", str(error))
    return index[1].split(".")[2].split(BETWEEN_FIELDS) if index else ["id"]


def _missing(connection: SqliteConnection, collection: Collection, indexed: bool) -> Iterator[str]:
    """The statements that create what a collection declares and the file does not have: indexes if `indexed`."""
    name = literal(collection.name)
    if not connection.execute(f"SELECT 1 FROM counters WHERE collection = {name}").fetchone():  # noqa: S608 - a checked literal
        yield f"INSERT INTO counters (collection, revision) VALUES ({name}, {collection.revision})"  # noqa: S608 - likewise
    present = present_indexes(connection, collection)
    for index, statements in indexes_of(collection).items() if indexed else ():
        yield from statements if index not in present else ()


def indexes_of(collection: Collection) -> dict[str, list[str]]:
    """The declared indexes: name to the statements that create each.

    A name has a digest of the definition: an older program can need one of the same field that is defined otherwise.
    """
    where = f"collection = {literal(collection.name)}"
    definitions = []
    tables: dict[str, list[str]] = {}
    for index in collection.indexes:
        columns = [SqliteColumn.of(collection, field) for field in index.fields]
        column, suffix = columns[0], BETWEEN_FIELDS.join(index.fields)
        if column.field.is_many:
            tables[column.table] = _table_of(column, where)
        elif index.unique:  # in which nulls are all different
            not_null = f" AND {column.value} IS NOT NULL" if column.field.nullable and len(columns) == 1 else ""
            keys = ", ".join(column.folded for column in columns)
            definitions.append((suffix, "UNIQUE INDEX", f"(collection, {keys}) WHERE {where}{not_null}"))
        else:
            keys = ", ".join(column.key for column in columns)
            definitions.append((suffix, "INDEX", f"(collection, {keys}, id) WHERE {where}"))
    if collection.has_owner_index:
        definitions.append(("owner", "INDEX", f"(collection, owner, id) WHERE {where}"))
    indexes = tables
    for suffix, kind, definition in definitions:
        digest = blake2b(definition.encode(), digest_size=4).hexdigest()
        name = f"items.{collection.name}.{suffix}.{digest}"
        indexes[name] = [f'CREATE {kind} "{name}" ON items {definition}']
    return indexes


def _table_of(column: SqliteColumn, where: str) -> list[str]:
    """The statements that create and fill the index of a field with several values: a table, and its triggers.

    They run whatever program changes an item.
    """
    table = column.table

    def values(id: str, body: str, source: str = "") -> str:
        value, type, tables = column.values(body)
        return f"SELECT DISTINCT {value}, {id} FROM {source}{tables} WHERE {type} NOT IN ('null', 'array', 'object')"  # noqa: S608 - declared names only

    add = f'INSERT INTO "{table}" (value, id) {values("NEW.id", "NEW.body")}'  # noqa: S608 - likewise
    remove = f'DELETE FROM "{table}" WHERE (value, id) IN ({values("OLD.id", "OLD.body")})'  # noqa: S608 - likewise
    triggers = {"INSERT": ("NEW", add), "UPDATE": ("NEW", f"{remove}; {add}"), "DELETE": ("OLD", remove)}
    return [
        f'CREATE TABLE "{table}" (value NOT NULL, id TEXT NOT NULL, PRIMARY KEY (value, id)) WITHOUT ROWID',
        f'INSERT INTO "{table}" (value, id) {values("items.id", "items.body", "items, ")} AND {where}',  # noqa: S608
        *(
            f'CREATE TRIGGER "{table}.{event}" AFTER {event} ON items WHEN {row}.{where} BEGIN {work}; END'
            for event, (row, work) in triggers.items()
        ),
    ]


def present_indexes(connection: sqlite3.Connection, collection: Collection) -> list[str]:
    prefix = f"items.{collection.name}."
    query = "SELECT name FROM sqlite_master WHERE type IN ('index', 'table') AND substr(name, 1, ?) = ?"
    return [name for (name,) in connection.execute(query, (len(prefix), prefix)).fetchall()]

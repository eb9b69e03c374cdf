"""The declared indexes.

They are on the expressions by which fields are compared and sorted, and partial: their condition is the collection's
name, as a literal, which all queries repeat. They start with the (constant) collection, because without statistics
SQLite would otherwise prefer the primary key, and sort.
"""

import sqlite3
from hashlib import blake2b

from restkeeper.storage.interface import Collection
from restkeeper.storage.sql import literal, of_other_revision
from restkeeper.storage.sqlite.queries import SqliteColumn


def indexes_of(collection: Collection) -> dict[str, list[str]]:
    """The declared indexes: name to the statements that create each.

    A name has a digest of the definition: an older program can need one of the same field that is defined otherwise.
    """
    where = f"collection = {literal(collection.name)}"
    definitions = []
    tables: dict[str, list[str]] = {}
    for index in collection.indexes:
        column = SqliteColumn.of(collection, index.field)
        if column.field.is_many:
            tables[column.table] = _table_of(column, where)
        elif index.unique:  # in which nulls are all different
            not_null = f" AND {column.value} IS NOT NULL" if column.field.nullable else ""
            definitions.append((index.field, "UNIQUE INDEX", f"(collection, {column.folded}) WHERE {where}{not_null}"))
        else:
            definitions.append((index.field, "INDEX", f"(collection, {column.key}, id) WHERE {where}"))
    if collection.owned:
        definitions.append(("owner", "INDEX", f"(collection, owner, id) WHERE {where}"))
    if condition := of_other_revision(collection):
        definitions.append(("revision", "INDEX", f"(collection, fingerprint) WHERE {condition}"))
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


def drop_index(connection: sqlite3.Connection, name: str) -> None:
    """Drop an index; of one that is a table, its triggers first."""
    (kind,) = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    for event in ("INSERT", "UPDATE", "DELETE"):
        connection.execute(f'DROP TRIGGER IF EXISTS "{name}.{event}"')
    connection.execute(f'DROP {kind} "{name}"')


def field_of(index: str) -> str:
    """The field of an index, by the name of the index; names of collections and fields have no dot."""
    return index.split(".")[2]


def present_indexes(connection: sqlite3.Connection, collection: Collection) -> list[str]:
    """The names of a collection's indexes in the file."""
    prefix = f"items.{collection.name}."
    query = "SELECT name FROM sqlite_master WHERE type IN ('index', 'table') AND substr(name, 1, ?) = ?"
    return [name for (name,) in connection.execute(query, (len(prefix), prefix)).fetchall()]

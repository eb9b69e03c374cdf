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


def indexes_of(collection: Collection) -> dict[str, str]:
    """The declared indexes: name to CREATE statement.

    A name has a digest of the definition: an older program can need one of the same field that is defined otherwise.
    """
    where = f"collection = {literal(collection.name)}"
    definitions = []
    for index in collection.indexes:
        column = SqliteColumn.of(collection, index.field)
        if index.unique:  # in which nulls are all different
            not_null = f" AND {column.value} IS NOT NULL" if column.field.nullable else ""
            definitions.append((index.field, "UNIQUE INDEX", f"(collection, {column.folded}) WHERE {where}{not_null}"))
        else:
            definitions.append((index.field, "INDEX", f"(collection, {column.key}, id) WHERE {where}"))
    if collection.owned:
        definitions.append(("owner", "INDEX", f"(collection, owner, id) WHERE {where}"))
    if condition := of_other_revision(collection):
        definitions.append(("revision", "INDEX", f"(collection, fingerprint) WHERE {condition}"))
    indexes = {}
    for suffix, kind, definition in definitions:
        digest = blake2b(definition.encode(), digest_size=4).hexdigest()
        name = f"items.{collection.name}.{suffix}.{digest}"
        indexes[name] = f'CREATE {kind} "{name}" ON items {definition}'
    return indexes


def field_of(index: str) -> str:
    """The field of an index, by the name of the index; names of collections and fields have no dot."""
    return index.split(".")[2]


def present_indexes(connection: sqlite3.Connection, collection: Collection) -> list[str]:
    """The names of a collection's indexes in the file."""
    prefix = f"items.{collection.name}."
    query = "SELECT name FROM sqlite_master WHERE type = 'index' AND substr(name, 1, ?) = ?"
    return [name for (name,) in connection.execute(query, (len(prefix), prefix)).fetchall()]

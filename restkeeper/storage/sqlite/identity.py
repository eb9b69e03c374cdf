"""The epoch: a random text that distinguishes a SQLite file and its present history from every other.

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

import sqlite3

from restkeeper.storage.sql import change_token

EPOCH = "CASE schema_cookie WHEN schema_version THEN epoch ELSE '' END"

_SELECT_EPOCH = f"SELECT {EPOCH} FROM store, pragma_schema_version"  # noqa: S608 - a constant expression

_SELECT_COLLECTION = f"""\
SELECT
    {EPOCH},
    changes,
    items
FROM counters, store, pragma_schema_version
WHERE collection = ?"""  # noqa: S608 - likewise


def epoch_of(connection: sqlite3.Connection) -> str:
    """The epoch; empty if it is missing."""
    return str(connection.execute(_SELECT_EPOCH).fetchone()[0])


def make_epoch(connection: sqlite3.Connection) -> None:
    """Set a new epoch, in the transaction that is open."""
    connection.execute("UPDATE store SET epoch = lower(hex(randomblob(4)))")
    note_schema(connection)


def note_schema(connection: sqlite3.Connection) -> None:
    """Keep the epoch valid after a change of the schema, in the transaction of the change."""
    connection.execute("UPDATE store SET schema_cookie = (SELECT schema_version FROM pragma_schema_version)")


def change_token_of(connection: sqlite3.Connection, collection: str) -> str:
    """The change token of a collection; empty if the epoch is missing. One statement reads both at one moment."""
    return state_of(connection, collection)[0]


def state_of(connection: sqlite3.Connection, collection: str) -> tuple[str, int]:
    """The change token of a collection, as `change_token_of`, and the number of its items."""
    epoch, number, items = connection.execute(_SELECT_COLLECTION, (collection,)).fetchone()
    return change_token(epoch, number) if epoch else "", items

"""What distinguishes a SQLite file, with its present history, from every other: its epoch.

A copy that takes the place of a file continues an older history: its revisions and positions come again, with other
contents. So it needs an epoch of its own. Beside the epoch stands SQLite's schema version of then (a number in the
file's header). Whatever copies a database as a whole gives the result another one: the backup API (`.restore` and
`.backup` of the shell) the former number of its target plus one, VACUUM that of its source plus one. Where the two
numbers differ, the epoch is that of another history, and counts as missing; so does an empty one, which our backups
have. Our own changes of the schema note the new number in their transaction.

This detects: every restore by the backup API, while the store is in use or not, of whatever copy; every copy made by
that API, by VACUUM INTO or by `flask backup`, once it is opened. It does not detect a file that was copied byte for
byte, by `cp` and the like, and put in place while nothing ran: it is the same as the file that it was copied from. An
operator's own change of the schema, and VACUUM, give a new epoch without need, which costs clients their cached
responses.
"""

import sqlite3
from typing import TypeVar

from restkeeper.storage.errors import StoreUnavailable

T = TypeVar("T")

EPOCH = "CASE schema_cookie WHEN schema_version THEN epoch ELSE '' END"

_SELECT_EPOCH = f"SELECT {EPOCH} FROM store, pragma_schema_version"  # noqa: S608 - a constant expression

_SELECT_REVISION = f"""\
SELECT
    {EPOCH},
    revision
FROM collections, store, pragma_schema_version
WHERE name = ?"""  # noqa: S608 - likewise

_NOTE_SCHEMA = "UPDATE store SET schema_cookie = (SELECT schema_version FROM pragma_schema_version)"


def epoch_of(connection: sqlite3.Connection) -> str:
    """The epoch, empty where it is missing."""
    return str(connection.execute(_SELECT_EPOCH).fetchone()[0])


def required(found: T | None) -> T:
    """What was read of a file that had an epoch a moment ago. Raises StoreUnavailable when that is missing."""
    if not found:
        raise StoreUnavailable("the store was restored at this moment")
    return found


def make_epoch(connection: sqlite3.Connection) -> None:
    """Give the file an epoch, in the transaction that is open."""
    connection.execute("UPDATE store SET epoch = lower(hex(randomblob(4)))")
    connection.execute(_NOTE_SCHEMA)


def secret_of(connection: sqlite3.Connection) -> str:
    """What only those know who can read the store, made where there is none. 32 hexadecimal digits."""
    if not (secret := connection.execute("SELECT secret FROM store").fetchone()[0]):
        connection.execute("UPDATE store SET secret = lower(hex(randomblob(16))) WHERE secret = ''")
        (secret,) = connection.execute("SELECT secret FROM store").fetchone()
    return str(secret)


def note_schema(connection: sqlite3.Connection) -> None:
    """Keep the epoch after a change of the schema, in the transaction of that."""
    connection.execute(_NOTE_SCHEMA)


def revision_of(connection: sqlite3.Connection, collection: str) -> str:
    """The revision of a collection, empty where the epoch is missing. One statement, so that both are of one moment."""
    epoch, number = connection.execute(_SELECT_REVISION, (collection,)).fetchone()
    return revision(epoch, number) if epoch else ""


def revision(epoch: str, number: int) -> str:
    """The revision of a collection: its changes are counted."""
    return f"{epoch}-{number:x}"

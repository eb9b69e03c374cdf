"""Items, responses and change tokens by their keys: one statement reads all of them, at one moment."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from restkeeper.storage.interface import Found, Key, Record, StoredResponse
from restkeeper.storage.schemas import Registry
from restkeeper.storage.sql import Database, change_token

# Each row has the number of its key, of a response the time, and the columns of a record.
_ITEM = """\
SELECT
    NUMBER,
    CAST(NULL AS double precision),
    {item}
FROM items
WHERE collection = :collectionNUMBER AND id = :keyNUMBER"""

_RESPONSE = """\
SELECT
    NUMBER,
    stored_at,
    NULL,
    NULL,
    NULL,
    NULL,
    body,
    NULL,
    NULL
FROM responses
WHERE id = :keyNUMBER"""

_REVISION = """\
SELECT
    NUMBER,
    NULL,
    (SELECT {epoch} FROM {store}),
    CAST(sum(changes) AS bigint),
    NULL,
    NULL,
    NULL,
    NULL,
    NULL
FROM counters
WHERE collection = :keyNUMBER"""

_OF_KIND: dict[type, str] = {tuple: _ITEM, bytes: _RESPONSE, str: _REVISION}


def look_up(database: Database, keys: Sequence[Key], registry: Registry) -> list[Found]:
    """See `interface.Store.look_up`."""
    parameters: dict[str, Any] = {}
    for n, key in enumerate(keys):
        if isinstance(key, tuple):
            parameters[f"collection{n}"], parameters[f"key{n}"] = key
        else:
            parameters[f"key{n}"] = key
    found: list[Found] = [None] * len(keys)
    for number, stored_at, *row in database.rows(_statement(tuple(map(type, keys))), parameters):
        key = keys[number]
        if isinstance(key, tuple):
            record = found[number] = Record._make(row)
            registry.load_schemas(database, key[0], record.fingerprint)
        elif isinstance(key, bytes):
            found[number] = StoredResponse(stored_at, row[4])
        else:
            found[number] = change_token(row[0], row[1] or 0) if row[0] else None
    return found


@lru_cache(maxsize=16)  # of an item, a response and a change token, two at most
def _statement(kinds: tuple[type, ...]) -> str:
    """The statement that looks up keys of these types."""
    return "\nUNION ALL\n".join(_OF_KIND[kind].replace("NUMBER", str(n)) for n, kind in enumerate(kinds))

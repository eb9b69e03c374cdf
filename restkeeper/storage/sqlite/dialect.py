"""SQLite's words for the modules that are written once. See `storage.sql`."""

import sqlite3
from collections.abc import Mapping
from typing import Any

import orjson

from restkeeper.storage.outbox import EventFilter
from restkeeper.storage.sql import Dialect, Row
from restkeeper.storage.sqlite.identity import EPOCH
from restkeeper.storage.sqlite.queries import COLUMNS

# The columns of a stored event, for `stored_event`.
EVENT = """\
position,
    origin,
    type,
    at,
    CAST(data AS BLOB),
    collection,
    fingerprint,
    CAST(removed AS BLOB)"""

# The events that match a filter.
WANTED = """\
(
        collection IN (SELECT value FROM json_each(:collections))
        OR (owner = :owner AND collection IN (SELECT value FROM json_each(:own)))
    )
    AND EXISTS (SELECT 1 FROM json_each(:types) WHERE events.type GLOB value)"""

_dialect = Dialect(
    ":{}",
    is_unnumbered="0",
    store="store, pragma_schema_version",
    epoch=EPOCH,
    newest="(SELECT coalesce(max(position), 0) FROM events)",
    for_update="",
    for_update_of_free="",
    for_key_share="",
    by_event="INDEXED BY deliveries_event",
    is_leased="leased = 1",  # as in the condition of its index
    is_chosen="deliveries.id IN (SELECT value FROM json_each(:ids))",
    is_active="webhook IN (SELECT value FROM json_each(:active))",
    item=COLUMNS,
    is_of_fingerprints="fingerprint IN (SELECT value FROM json_each(:fingerprints))",
    event=EVENT,
    wanted=WANTED,
)


class SqliteConnection(sqlite3.Connection):
    """A connection, which is a `sql.Database`, too."""

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        lists = {name: orjson.dumps(value).decode() for name, value in parameters.items() if isinstance(value, list)}
        return self.execute(_dialect(statement), {**parameters, **lists}).fetchall()

    def change(self, statement: str, parameters: Mapping[str, Any]) -> None:
        self.rows(statement, parameters)

    def parameters_of(self, filter: EventFilter) -> dict[str, Any]:
        lists = {"types": filter.types, "collections": filter.collections, "own": filter.own}
        return {name: orjson.dumps(value).decode() for name, value in lists.items()} | {"owner": filter.owner}

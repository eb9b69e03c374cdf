"""PostgreSQL's words for the modules that are written once (see `storage.sql`), and how it stores texts and items."""

from collections.abc import Mapping
from typing import Any, ClassVar

import orjson

from restkeeper.storage.outbox import EventFilter
from restkeeper.storage.postgresql.expressions import PostgresColumn, clean
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.sql import Dialect, Row

# The columns of a record.
COLUMNS = """\
    id,
    version,
    updated_at,
    fingerprint,
    convert_to(body, 'UTF8'),
    owner,
    convert_to(removed, 'UTF8')"""

# The columns of a stored event, for `stored_event`.
EVENT = """\
position,
    origin,
    events.type,
    at,
    convert_to(data, 'UTF8'),
    collection,
    fingerprint,
    convert_to(removed, 'UTF8')"""

# The events that match a filter.
WANTED = """\
(collection = ANY(%(collections)s::text[]) OR (owner = %(owner)s AND collection = ANY(%(own)s::text[])))
    AND type LIKE ANY(%(types)s::text[])"""

IS_UNNUMBERED = "EXISTS (SELECT 1 FROM events WHERE position IS NULL)"

_dialect = Dialect(
    "%({})s",
    is_unnumbered=IS_UNNUMBERED,
    store="store",
    epoch="epoch",
    newest="(SELECT newest FROM feed)",
    for_update="FOR UPDATE",
    for_update_of_free="FOR UPDATE SKIP LOCKED",
    for_key_share="FOR KEY SHARE",
    by_event="",
    is_leased="leased",
    is_chosen="deliveries.id = ANY(%(ids)s)",
    is_active="webhook = ANY(%(active)s::text[])",
    item=COLUMNS,
    is_of_fingerprints="fingerprint = ANY(%(fingerprints)s)",
    event=EVENT,
    wanted=WANTED,
)


class PostgresDatabase:
    """See `sql.Database`."""

    columns: ClassVar[type[PostgresColumn]] = PostgresColumn

    def __init__(self, session: Session) -> None:
        self._session = session
        self.fetch = session.rows

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        return self._session.rows(_dialect(statement), _cleaned(parameters))

    def change(self, statement: str, parameters: Mapping[str, Any]) -> None:
        self._session.queue(_dialect(statement), _cleaned(parameters))

    def parameters_of(self, filter: EventFilter) -> dict[str, Any]:
        types, collections, own = list(map(_like, filter.types)), list(filter.collections), list(filter.own)
        return _cleaned({"types": types, "collections": collections, "own": own, "owner": filter.owner})


def _cleaned(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters whose texts can be sent to PostgreSQL."""
    return {name: _clean(value) for name, value in parameters.items()}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    return [_clean(each) for each in value] if isinstance(value, list) else value


def _like(pattern: str) -> str:
    """The pattern of LIKE for one in which `*` stands for any text."""
    for special in "\\%_":
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace("*", "%")


def fields_of(body: bytes) -> tuple[str, str | None]:
    """Two JSON objects: the values of an item that can be compared, and those texts that have another folded form.

    Null is left out, and so are objects and mixed lists. Folding is `str.casefold`; for other texts, PostgreSQL's
    `lower` of the collation "C" is the same.
    """
    item = orjson.loads(body)
    if not isinstance(item, dict):  # a record of a feature, which no query compares
        return "{}", None
    values = {name: value for name, value in item.items() if _is_comparable(value)}
    folded = {
        name: other
        for name, value in values.items()
        if not _is_ascii(value) and (other := _each(str.casefold, value)) != value
    }
    return orjson.dumps(values).decode(), orjson.dumps(folded).decode() if folded else None


def _is_comparable(value: Any) -> bool:
    if isinstance(value, list):
        return all(type(each) is str for each in value)
    return value is not None and not isinstance(value, dict)


def _is_ascii(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii()
    return not isinstance(value, list) or all(each.isascii() for each in value)


def _each(change: Any, value: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    return [change(each) for each in value] if isinstance(value, list) else value

"""Items and responses in PostgreSQL."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

import psycopg

from restkeeper.storage.errors import (
    DuplicateValue,
    RecordChanged,
    RecordNotFound,
    ReferenceMissing,
    ResponseStored,
    StoreError,
    StoreUnavailable,
)
from restkeeper.storage.interface import Query, Record, StoredResponse
from restkeeper.storage.postgresql.counters import Counters, change_token_of
from restkeeper.storage.postgresql.dialect import COLUMNS, clean, fields_of
from restkeeper.storage.postgresql.expressions import field_of
from restkeeper.storage.postgresql.failures import OTHERS, log_rarely, store_error
from restkeeper.storage.postgresql.feed import Outbox
from restkeeper.storage.postgresql.queries import select_ids
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.schemas import Registry, find_others
from restkeeper.storage.sql import select_other_fingerprints

_READ = f"""\
SELECT
{COLUMNS}
FROM items
WHERE collection = %s AND id = %s"""  # noqa: S608 - constant columns

_REQUIRE = """\
SELECT 1
FROM items
WHERE collection = %s AND id = %s AND version = %s AND updated_at = %s AND fingerprint = %s AND body = %s
    AND owner IS NOT DISTINCT FROM %s AND removed IS NOT DISTINCT FROM %s
FOR UPDATE"""

_PRESENT = "SELECT 1 FROM items WHERE collection = %s AND id = %s FOR KEY SHARE"

_INSERT = """\
INSERT INTO items
    (collection, id, version, updated_at, fingerprint, body, owner, removed, fields, folded)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s::jsonb)"""

_UPDATE = """\
UPDATE items SET
    version = %s,
    updated_at = %s,
    fingerprint = %s,
    body = %s,
    owner = %s,
    removed = %s,
    fields = %s::jsonb,
    folded = %s::jsonb
WHERE collection = %s AND id = %s"""

_DELETE = "DELETE FROM items WHERE collection = %s AND id = %s"

_STORE_RESPONSE = """\
INSERT INTO responses
    (id, stored_at, body)
VALUES (%s, %s, %s)
ON CONFLICT (id) DO UPDATE SET
    stored_at = excluded.stored_at,
    body = excluded.body
WHERE responses.stored_at < %s"""

_SWEEP = """\
DELETE FROM responses
WHERE id = ANY((
    ARRAY(
        SELECT id FROM responses
        WHERE stored_at < %(before)s ORDER BY stored_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
    || ARRAY(
        SELECT id FROM responses
        WHERE stored_at > %(latest)s ORDER BY stored_at DESC LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
)[1:%(limit)s])"""

_NOT_FOUND = "there is no such item"


class PostgresTransaction(Outbox):
    """See `interface.Transaction`. Changes are made together, before the next read or at the end."""

    def __init__(self, session: Session, registry: Registry, unique: Mapping[str, str]) -> None:
        super().__init__(session, registry)
        self._unique = unique
        self._counters = Counters(session)
        self._locked: set[tuple[str, str]] = set()  # items that this transaction has read: they exist

    def read(self, collection: str, id: str, *, lock: bool = True) -> Record:
        record = read_item(self._session, collection, id, " FOR UPDATE" if lock else "")
        self._registry.load_schemas(self._database, collection, record.fingerprint)
        if lock:
            self._locked.add((collection, id))
        return record

    def require(self, collection: str, record: Record) -> None:
        same = (collection, clean(record.id), *_columns(record)[:6])
        self._session.queue(_REQUIRE, same, refusal=RecordChanged("the item was changed meanwhile"))
        self._locked.add((collection, record.id))

    def require_present(self, collection: str, id: str, missing: ReferenceMissing) -> None:
        if (collection, id) not in self._locked:
            self._session.queue(_PRESENT, (collection, clean(id)), refusal=missing)

    def find(self, collection: str, query: Query, limit: int) -> list[str]:
        statement, parameters = select_ids(self._registry.collections[collection], query)
        return [id for (id,) in self._session.rows(statement, {**parameters, "limit": limit})]

    def change_token(self, collection: str) -> str:
        self._counters.lock(collection)
        return change_token_of(self._session, collection)

    def other_fingerprints(self, collection: str) -> list[str]:
        if (declared := self._registry.collections.get(collection)) is None:
            return []
        rows = self._session.rows if self._counters.has_changes else self._session.rows_before
        found = [fingerprint for (fingerprint,) in rows(select_other_fingerprints(declared))]
        self._registry.load_schemas(self._database, collection, *found)
        return found

    def of_fingerprints(self, collection: str, fingerprints: Sequence[str], limit: int) -> list[Record]:
        return find_others(self._database, self._registry.collections[collection], fingerprints, limit)

    def insert(self, collection: str, record: Record) -> None:
        self._session.queue(_INSERT, (collection, clean(record.id), *_columns(record)))
        self._counters.add(collection, items=1)

    def update(self, collection: str, record: Record) -> None:
        self._change(_UPDATE, (*_columns(record), collection, clean(record.id)), (collection, record.id))
        self._counters.add(collection)

    def delete(self, collection: str, id: str) -> None:
        self._change(_DELETE, (collection, clean(id)), (collection, id))
        self._locked.discard((collection, id))
        self._counters.add(collection, items=-1)

    def _change(self, statement: str, parameters: tuple[Any, ...], item: tuple[str, str]) -> None:
        """Change an item, which is checked to be there unless this transaction has it."""
        refusal = None if item in self._locked else RecordNotFound(_NOT_FOUND)
        self._session.queue(statement, parameters, refusal=refusal)

    def store_response(self, id: bytes, response: StoredResponse, *, expired_before: float) -> None:
        refusal = ResponseStored("the response to this request is stored")
        self._session.queue(_STORE_RESPONSE, (id, *response, expired_before), refusal=refusal)

    def sweep_responses(self, before: float, limit: int, *, latest: float = inf) -> int:
        return self._session.change(_SWEEP, {"before": before, "limit": limit, "latest": latest})

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        counted, locked = self._counters.copy(), self._locked.copy()
        try:
            with self._session.savepoint():
                yield
        except BaseException as error:
            self._counters.restore(counted)
            self._locked = locked
            if isinstance(error, psycopg.Error):
                raise change_error(error, self._unique) from None
            raise

    def finish(self) -> None:
        """Commit. The counters come last: nobody waits for them for longer than a commit."""
        self._counters.send()
        self._session.commit()


def read_item(session: Session, collection: str, id: str, suffix: str = "") -> Record:
    """A record. Raises RecordNotFound."""
    if (row := session.row(_READ + suffix, (collection, clean(id)))) is None:
        raise RecordNotFound(_NOT_FOUND)
    return Record._make(row)


def change_error(error: psycopg.Error, unique: Mapping[str, str]) -> StoreError:
    """The error of a change: a duplicate, or as `store_error`.

    `unique` has the fields of the unique indexes.
    """
    if isinstance(error, psycopg.errors.UniqueViolation):
        name = error.diag.constraint_name or ""
        return DuplicateValue("id" if name == "items_pkey" else unique.get(name) or field_of(name))
    if isinstance(error, psycopg.errors.QueryCanceled):  # no change works for long: it has waited for several locks
        log_rarely("waits", "requests get 503: a change has waited for several locks, together for too long")
        return StoreUnavailable(OTHERS)
    return store_error(error)


def _columns(record: Record) -> tuple[Any, ...]:
    """The values of a record in the order of _INSERT and _UPDATE, without its id."""
    _, version, updated_at, fingerprint, body, owner, removed = record
    rest = None if removed is None else removed.decode()
    owner = None if owner is None else clean(owner)
    return version, updated_at, fingerprint, body.decode(), owner, rest, *fields_of(body)

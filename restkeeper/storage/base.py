"""What stores do in the same way in all databases: what they read by short statements, and how they change items."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Concatenate, Generic, ParamSpec, TypeVar

import orjson

from restkeeper.storage.deliveries import Deliveries, read_log
from restkeeper.storage.interface import ALL, Collection, Found, Key, Query, Record, Related, Scalar, StoredSchema
from restkeeper.storage.opening import Opening
from restkeeper.storage.outbox import LogEntry
from restkeeper.storage.queries import count_groups, count_items, find_ids
from restkeeper.storage.records import (
    Registry,
    find_others,
    look_up,
    read_item,
    read_schemas,
    require_epoch,
    state_of,
)
from restkeeper.storage.sql import Database, is_search, literal, select_other_fingerprints

T = TypeVar("T")
P = ParamSpec("P")
O = TypeVar("O")  # noqa: E741 - a type

SPOOL_BYTES = 1024 * 1024  # of a scan in memory

_INSERT = """\
INSERT INTO items
    (collection, id, version, updated_at, fingerprint, body, owner, removed{own_columns})
VALUES (:collection, :id, :version, :updated_at, :fingerprint, :body, :owner, :removed{own_values})"""

_UPDATE = """\
UPDATE items SET
    version = :version,
    updated_at = :updated_at,
    fingerprint = :fingerprint,
    body = :body,
    owner = :owner,
    removed = :removed{own_changes}
WHERE collection = :collection AND id = :id"""

# Rows as of `Column.of_each`.
_OTHERS = "SELECT {number}, '\"\"', '', 0, '', fingerprint, '', NULL, NULL FROM ({others}) AS others"

_DELETE = "DELETE FROM items WHERE collection = :collection AND id = :id"


class BaseStore(ABC, Generic[O]):
    """The part of `interface.Store` that needs nothing but a `sql.Database`. `O` is what a process has open of it."""

    _opening: Opening

    def __init__(self, collections: Iterable[Collection]) -> None:
        self._opened: O | None = None
        self._collections = {collection.name: collection for collection in collections}
        self._registry = Registry(self._collections.values())

    def open(self, *, alone: bool = False) -> None:
        with self._opening.lock():
            self._opened = self._opened or self._open(alone)

    @property
    def _parts(self) -> O:
        """What is open of the store. Raises StoreUnavailable."""
        while (opened := self._opened) is None:
            self.open()
        return opened

    @abstractmethod
    def _open(self, alone: bool) -> O: ...

    @abstractmethod
    def _read(self, read: Callable[Concatenate[Any, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """The result of `read` with a database that no other caller uses meanwhile."""

    @abstractmethod
    def _search(self, find: Callable[[Any], T], collection: Collection, query: Query) -> T:
        """As `_read`, for what can read many items of a query."""

    @abstractmethod
    def _spooled(self, collection: str) -> IO[bytes]:
        """All records of a collection at one moment, in order of id, as `spool` writes them."""

    @property
    def epoch(self) -> str:
        return self._read(require_epoch)

    def read(self, collection: str, id: str) -> Record:
        return self._read(read_item, self._registry, collection, id)

    def look_up(self, keys: Sequence[Key]) -> list[Found]:
        return self._read(look_up, keys, self._registry)

    def count(self, collection: str, query: Query = ALL, *, most: int | None = None) -> int:
        if not query.narrows:  # the order does not matter
            return self._read(state_of, collection)[1]
        declared = self._collections[collection]
        return self._search(partial(count_items, collection=declared, query=query, most=most), declared, query)

    def groups(self, collection: str, query: Query, most: int) -> list[tuple[Scalar | float, int]]:
        declared = self._collections[collection]
        return self._search(partial(count_groups, collection=declared, query=query, most=most), declared, query)

    def related(self, wanted: Sequence[Related], max_bytes: int) -> list[tuple[int, str | int, Record]]:
        queries = [(self._collections[each.collection], each.query) for each in wanted]
        slowest = max(queries, key=lambda each: is_search(*each))
        return self._search(partial(self._find_related, wanted, max_bytes), *slowest)

    def _find_related(
        self, wanted: Sequence[Related], max_bytes: int, database: Database
    ) -> list[tuple[int, str | int, Record]]:
        parts, values, given = list[str](), dict[str, Any](), database.columns.parameter.format
        for n, each in enumerate(wanted):
            column = database.columns.of(collection := self._collections[each.collection], each.field)
            where = (
                f"collection = {literal(each.collection)} AND {column.condition(each.query.filters[0], column.each)}"
            )
            where += "" if each.owner is None else f" AND owner = {given(f'owner{n}')}"
            values |= {f"values{n}": [orjson.dumps(value).decode() for value in each.values]} | (
                {} if each.owner is None else {f"owner{n}": each.owner}
            )
            parts.append(column.of_each.format(number=n, values=given(f"values{n}"), where=where, most=each.most))
            if each.field != "id" and (others := select_other_fingerprints(collection)):
                parts.append(_OTHERS.format(number=n, others=others))
        found, size = list[tuple[int, str | int, Record]](), 0
        for number, value, *row in database.records("\nUNION ALL\n".join(parts), values, max_bytes):
            found.append((number, orjson.loads(value), record := Record._make(row)))
            size += len(record.body) + len(record.removed or b"")
            if size > max_bytes:
                break
        for number, _, record in found:
            self._registry.load_schemas(database, wanted[number].collection, record.fingerprint)
        return found

    def change_token(self, collection: str) -> str:
        return self._read(state_of, collection)[0]

    def schemas(self, collection: str) -> list[StoredSchema]:
        return self._read(read_schemas, collection)

    def of_fingerprints(self, wanted: Sequence[tuple[str, Sequence[str]]], limit: int) -> list[list[Record]]:
        return self._read(find_others, self._collections, wanted, limit)

    def scan(self, collection: str) -> Iterator[Record]:
        def load_schemas(fingerprint: str) -> None:
            self._read(self._registry.load_schemas, collection, fingerprint)

        yield from records_in(self._spooled(collection), load_schemas)

    def deliveries(self, webhook: str, before: int | None, limit: int, state: str | None = None) -> list[LogEntry]:
        return self._read(read_log, webhook, before, limit, state)


class BaseTransaction(Deliveries):
    """The part of `interface.Transaction` that changes items."""

    @abstractmethod
    def _change(self, statement: str, item: Mapping[str, Any], *, adds: int = 0) -> None:
        """Change an item, which has to be there unless this `adds` it, and count the change."""

    def find(self, collection: str, query: Query, limit: int) -> list[str]:
        return find_ids(self._database, self._registry.collections[collection], query, limit)

    def of_fingerprints(self, wanted: Sequence[tuple[str, Sequence[str]]], limit: int) -> list[list[Record]]:
        return find_others(self._database, self._registry.collections, wanted, limit)

    def insert(self, collection: str, record: Record) -> None:
        self._change(_INSERT, values_of(collection, record), adds=1)

    def update(self, collection: str, record: Record) -> None:
        self._change(_UPDATE, values_of(collection, record))

    def delete(self, collection: str, id: str) -> None:
        self._change(_DELETE, {"collection": collection, "id": id}, adds=-1)


def values_of(collection: str, record: Record) -> dict[str, Any]:
    """The values of a record by the names of their columns, with texts in place of bytes."""
    values = record._asdict()
    removed = record.removed and record.removed.decode()
    return {**values, "collection": collection, "body": record.body.decode(), "removed": removed}


def spool(
    rows: Iterable[tuple[str, int, str, str, bytes, str | None, bytes | None]], folder: str | None = None
) -> IO[bytes]:
    """Write records to a temporary file in a folder, by default in the system's, which may be in memory."""
    file = SpooledTemporaryFile(SPOOL_BYTES, dir=folder)
    try:
        for id, version, updated_at, fingerprint, body, owner, removed in rows:
            rest = -1 if removed is None else len(removed)
            file.write(orjson.dumps([len(body), rest, id, version, updated_at, fingerprint, owner]) + b"\n" + body)
            file.write(removed or b"")
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def records_in(file: IO[bytes], load_schemas: Callable[[str], None]) -> Iterator[Record]:
    """The records in a file that `spool` wrote; it is closed at the end.

    It calls `load_schemas` with the fingerprint of a record that has another one than the record before.
    """
    known = None
    with file:
        for head in iter(file.readline, b""):
            size, rest, id, version, updated_at, fingerprint, owner = orjson.loads(head)
            record = file.read(size), owner, None if rest < 0 else file.read(rest)
            if fingerprint != known:
                known = fingerprint
                load_schemas(fingerprint)
            yield Record(id, version, updated_at, fingerprint, *record)

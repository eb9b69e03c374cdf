"""What the stores of all databases do in the same way: they read by short statements."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import IO, Any, Concatenate, ParamSpec, TypeVar

import orjson

from restkeeper.storage.deliveries import read_log
from restkeeper.storage.interface import ALL, Collection, Found, Key, Query, Record, Related, Scalar, StoredSchema
from restkeeper.storage.outbox import LogEntry
from restkeeper.storage.queries import count_groups, count_items
from restkeeper.storage.records import (
    Registry,
    find_others,
    look_up,
    read_item,
    read_schemas,
    require_epoch,
    state_of,
)
from restkeeper.storage.spool import records_in
from restkeeper.storage.sql import Database, is_search, literal

T = TypeVar("T")
P = ParamSpec("P")


class Reading(ABC):
    """The part of `interface.Store` that needs nothing but a `sql.Database`."""

    def __init__(self, collections: Iterable[Collection]) -> None:
        self._collections = {collection.name: collection for collection in collections}
        self._registry = Registry(self._collections.values())

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
            column = database.columns.of(self._collections[each.collection], each.field)
            where = (
                f"collection = {literal(each.collection)} AND {column.condition(each.query.filters[0], column.each)}"
            )
            where += "" if each.owner is None else f" AND owner = {given(f'owner{n}')}"
            values |= {f"values{n}": [orjson.dumps(value).decode() for value in each.values]} | (
                {} if each.owner is None else {f"owner{n}": each.owner}
            )
            parts.append(column.of_each.format(number=n, values=given(f"values{n}"), where=where, most=each.most))
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

    def of_fingerprints(self, collection: str, fingerprints: Sequence[str], limit: int) -> list[Record]:
        return self._read(find_others, self._collections[collection], fingerprints, limit)

    def scan(self, collection: str) -> Iterator[Record]:
        def load_schemas(fingerprint: str) -> None:
            self._read(self._registry.load_schemas, collection, fingerprint)

        yield from records_in(self._spooled(collection), load_schemas)

    def deliveries(self, webhook: str, before: int | None, limit: int, state: str | None = None) -> list[LogEntry]:
        return self._read(read_log, webhook, before, limit, state)

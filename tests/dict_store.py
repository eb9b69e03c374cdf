"""A store of items and responses in dictionaries behind one lock.

It is as simple as possible, and has only the contract in common with SQLite.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from decimal import Decimal
from math import inf
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

from restkeeper.storage.contract import (
    ALL,
    Collection,
    Filter,
    Found,
    Key,
    Kind,
    Op,
    Page,
    Query,
    Record,
    Sort,
    StoredResponse,
    StoredSchema,
)
from restkeeper.storage.errors import (
    DuplicateValue,
    RecordChanged,
    RecordNotFound,
    ResponseStored,
    StoreError,
)

T = TypeVar("T")

COMPARISONS = {Op.EQ: eq, Op.NE: ne, Op.GT: gt, Op.GTE: ge, Op.LT: lt, Op.LTE: le}


class Row(NamedTuple):
    record: Record
    values: dict[str, Any]  # of the fields


class Table:
    """The records of one collection."""

    def __init__(self, collection: Collection) -> None:
        self.declared = collection
        self.rows: dict[str, Row] = {}
        self.changes = 0
        self._folded = {index.field for index in collection.indexes if index.fold}

    def get(self, id: str) -> Row:
        if (row := self.rows.get(id)) is None:
            raise RecordNotFound("there is no such item")
        return row

    def put(self, record: Record) -> None:
        """Insert or replace a record. Raises DuplicateValue."""
        row = Row(record, json.loads(record.body, parse_float=Decimal) | record._asdict())
        for index in self.declared.indexes:
            if index.unique and (value := self._folding(index.field, row.values.get(index.field))) is not None:
                for other in self.rows.values():
                    if other.record.id != record.id and self._value(other, index.field) == value:
                        raise DuplicateValue(index.field)
        self.rows[record.id] = row
        self.changes += 1

    def delete(self, id: str) -> None:
        self.get(id)
        del self.rows[id]
        self.changes += 1

    def found(self, query: Query) -> Iterator[Row]:
        """The rows that match the filters and the search, in any order."""
        for row in self.rows.values():
            if query.owner in (None, row.record.owner) and all(self._satisfies(row, each) for each in query.filters):
                if not query.search or any(query.search.casefold() in text for text in self._texts(row)):
                    yield row

    def page(self, query: Query, max_bytes: int | None) -> Page:
        sort = self._order(query)
        rows = [(self._position(row, sort), row.record) for row in self.found(query)]
        if query.after:
            after = tuple(self._key(key.field, value) for key, value in zip(sort, query.after, strict=True))
            rows = [each for each in rows if _is_beyond(each[0], after, sort)]
        for place, key in reversed(list(enumerate(sort))):
            rows.sort(key=lambda each, place=place: each[0][place], reverse=key.descending)  # type: ignore[misc]
        rows = rows[query.offset :]
        limit = len(rows) if query.limit is None else query.limit
        stretch, cut = _within(rows[:limit], max_bytes)
        more = len(stretch) < len(rows)
        if query.backward:
            stretch.reverse()
        if not stretch:
            return Page([], [], [])
        first, last = (tuple(map(_plain, stretch[place][0])) for place in (0, -1))
        records = [record for _, record in stretch]
        fingerprints, older = [each.fingerprint for each in records], [each.older for each in records]
        return Page([each.body for each in records], fingerprints, older, more, first, last, cut)

    def _order(self, query: Query) -> list[Sort]:
        """The sort keys, the id last; reversed for a backward query."""
        sort = [*query.sort, Sort("id", bool(query.sort) and query.sort[-1].descending)]
        sort = sort[: [key.field for key in sort].index("id") + 1]
        return [Sort(key.field, key.descending is not query.backward) for key in sort]

    def _position(self, row: Row, sort: list[Sort]) -> tuple[Any, ...]:
        return tuple(self._key(key.field, self._value(row, key.field)) for key in sort)

    def _key(self, field: str, value: Any) -> Any:
        """The sort key of a value: null and values of a wrong kind are below all others."""
        is_text = self.declared.fields[field].kind in (Kind.TEXT, Kind.TIME)
        if value is None or isinstance(value, str) is not is_text:
            return "" if is_text else -inf
        return Decimal(repr(value)) if isinstance(value, float) else value

    def _value(self, row: Row, field: str) -> Any:
        return self._folding(field, row.values.get(field))

    def _folding(self, field: str, value: Any) -> Any:
        """A text without its ASCII case, where the field's index folds."""
        return value.encode().lower().decode() if field in self._folded and value is not None else value

    def _satisfies(self, row: Row, condition: Filter) -> bool:
        value = self._value(row, condition.field)
        if value is None:
            return condition.op is Op.NE
        given = condition.value if isinstance(condition.value, tuple) else (condition.value,)
        if condition.op is Op.LIKE:
            return str(condition.value).casefold() in row.values[condition.field].casefold()
        if condition.op is Op.IN or self.declared.fields[condition.field].kind is Kind.LIST:
            values = value if isinstance(value, list) else [value]
            return any(each == self._folding(condition.field, one) for each in values for one in given)
        return COMPARISONS[condition.op](value, self._folding(condition.field, condition.value))

    def _texts(self, row: Row) -> list[str]:
        """The texts that a search looks into."""
        texts = []
        for field in self.declared.search:
            value, is_list = row.values.get(field), self.declared.fields[field].kind is Kind.LIST
            if isinstance(value, list) == is_list:
                texts += value if is_list else [value]
        return [text.casefold() for text in texts if text is not None]


class DictTransaction:
    """See `contract.Transaction`. It has no outbox."""

    def __init__(self, store: "DictStore") -> None:
        self._store = store
        self._tables = store._tables
        self._failure: StoreError | None = None

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Also the whole transaction is one."""
        state, former = self._store.state(), self._failure
        self._failure = None
        try:
            yield
            if self._failure is not None:
                raise self._failure
        except BaseException:
            self._store.restore(state)
            raise
        finally:
            self._failure = former

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Note the exception of a change."""
        try:
            yield
        except StoreError as error:
            self._failure = error
            raise

    def read(self, collection: str, id: str, *, lock: bool = True) -> Record:
        return self._tables[collection].get(id).record

    def require(self, collection: str, record: Record) -> None:
        with self._change():
            if self._store.look_up([(collection, record.id)]) != [record]:
                raise RecordChanged("the item was changed meanwhile")

    def revision(self, collection: str) -> str:
        return self._store.revision(collection)

    def other_fingerprints(self, collection: str) -> list[str]:
        return self._store.other_fingerprints(collection)

    def of_fingerprints(self, collection: str, fingerprints: Sequence[str], limit: int) -> list[Record]:
        return self._store.of_fingerprints(collection, fingerprints, limit)

    def insert(self, collection: str, record: Record) -> None:
        with self._change():
            if record.id in self._tables[collection].rows:
                raise DuplicateValue("id")
            self._tables[collection].put(record)

    def update(self, collection: str, record: Record) -> None:
        with self._change():
            self._tables[collection].get(record.id)
            self._tables[collection].put(record)

    def delete(self, collection: str, id: str) -> None:
        with self._change():
            self._tables[collection].delete(id)

    def store_response(self, id: bytes, response: StoredResponse, *, expired_before: float) -> None:
        with self._change():
            if (former := self._store._responses.get(id)) and former.stored_at >= expired_before:
                raise ResponseStored("the response to this request is stored")
        self._store._responses.pop(id, None)  # so that the newest is the last
        self._store._responses[id] = response

    def sweep_responses(self, before: float, limit: int, *, latest: float = inf) -> int:
        oldest = list(self._store._responses.items())[:limit]
        swept = [id for id, response in oldest if not before <= response.stored_at <= latest]
        for id in swept:
            del self._store._responses[id]
        return len(swept)


class DictStore:
    """See `contract.Store`. It has no outbox and no backup."""

    def __init__(self, collections: Iterable[Collection]) -> None:
        self.secret = uuid4().hex
        self._epoch = uuid4().hex
        self._lock = threading.RLock()
        self._tables = {collection.name: Table(collection) for collection in collections}
        self._responses: dict[bytes, StoredResponse] = {}
        for name, table in self._tables.items():
            table.declared.learn(self.schemas(name))

    def read(self, collection: str, id: str) -> Record:
        with self._lock:
            return self._tables[collection].get(id).record

    def page(self, collection: str, query: Query, max_bytes: int | None = None) -> Page:
        with self._lock:
            others = self.other_fingerprints(collection) if query.uses_fields else ()
            page = self._tables[collection].page(query, max_bytes)
            return page._replace(revision=self.revision(collection), others=others)

    def count(self, collection: str, query: Query = ALL, *, most: int | None = None) -> int:
        with self._lock:
            return len(list(self._tables[collection].found(query))[: most if query.narrows else None])

    def revision(self, collection: str) -> str:
        with self._lock:
            return f"{self._epoch}-{self._tables[collection].changes}"

    def schemas(self, collection: str) -> list[StoredSchema]:
        schema = self._tables[collection].declared.schema
        return [schema] if schema else []

    def other_fingerprints(self, collection: str) -> list[str]:
        table = self._tables[collection]
        if (schema := table.declared.schema) is None:
            return []
        with self._lock:
            found = {row.record.fingerprint for row in table.rows.values()}
        own = "" if schema.revision == 1 else f"{schema.revision}-"
        return sorted(each for each in found if each[: each.find("-") + 1] != own)

    def of_fingerprints(self, collection: str, fingerprints: Sequence[str], limit: int) -> list[Record]:
        records = [row.record for row in self._tables[collection].rows.values()]
        return [each for each in records if each.fingerprint in fingerprints][:limit]

    def tidy(self) -> list[str]:
        return []

    def scan(self, collection: str) -> Iterator[Record]:
        with self._lock:
            records = [row.record for row in self._tables[collection].rows.values()]
        return iter(sorted(records))

    def look_up(self, keys: Sequence[Key]) -> list[Found]:
        with self._lock:
            return list(map(self._look_up, keys))

    def _look_up(self, key: Key) -> Found:
        if isinstance(key, str):
            return self.revision(key)
        return self._responses.get(key) if isinstance(key, bytes) else self._found(*key)

    def _found(self, collection: str, id: str) -> Record | None:
        with suppress(RecordNotFound):
            return self.read(collection, id)
        return None

    def write(self, work: Callable[[DictTransaction], T], **_: Any) -> T:
        transaction = DictTransaction(self)
        with self._lock, transaction.savepoint():
            return copy_context().run(work, transaction)

    def state(self) -> Any:
        """What a savepoint has stored."""
        return {name: (dict(table.rows), table.changes) for name, table in self._tables.items()}, dict(self._responses)

    def restore(self, state: Any) -> None:
        """Undo all changes since a state."""
        tables, self._responses = state
        for name, (rows, changes) in tables.items():
            self._tables[name].rows, self._tables[name].changes = rows, changes

    def check(self) -> None:
        """It is always ready."""

    def close(self) -> None:
        """It has nothing to close."""


def _plain(key: Any) -> str | int | float | None:
    """A sort key in the form of positions."""
    return None if key == -inf else key if isinstance(key, str) else int(key) if key == int(key) else float(key)


def _is_beyond(position: tuple[Any, ...], after: tuple[Any, ...], sort: list[Sort]) -> bool:
    for one, other, key in zip(position, after, sort, strict=True):
        if one != other:
            return bool((one < other) is key.descending)
    return False


def _within(rows: list[Any], max_bytes: int | None) -> tuple[list[Any], bool]:
    """The first rows that fit into the bytes, at least one; and whether others are omitted."""
    size = 0
    for number, (_, record) in enumerate(rows):
        size += len(record.body) + len(record.older or b"")
        if max_bytes is not None and size > max_bytes and number:
            return rows[:number], True
    return rows, False

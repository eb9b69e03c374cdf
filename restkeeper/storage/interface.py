"""The interface of a store: records, responses and an outbox, for reading and inside a transaction.

It knows records and queries, and no requests. `storage.errors` has its exceptions.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, StrEnum
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from restkeeper.storage.errors import ReferenceMissing
from restkeeper.storage.outbox import OutboxStore, OutboxTransaction

T = TypeVar("T")
Scalar = str | int | Decimal | bool | None
MOST_SCHEMAS = 1000  # registered ones of a collection; the oldest is deleted when another is registered
Position = tuple[str | int | float | None, ...]  # JSON that clients receive and send back; integers have 64 bits


class Record(NamedTuple):
    """One item as stored. `body` is its complete JSON representation, byte for byte as it is sent.

    `removed` is a JSON object with what an older revision shows and `body` no longer has; None if there is none.
    """

    id: str
    version: int  # 0: it is not stored yet, as a singleton at first
    updated_at: str  # RFC 3339, UTC, microseconds: sorts as text
    fingerprint: str  # of the schema of `body`
    body: bytes
    owner: str | None = None
    removed: bytes | None = None


class Kind(Enum):
    """How a field's values are compared."""

    TEXT = "text"  # by code point
    TIME = "time"  # as TEXT: every time has one canonical form
    INTEGER = "integer"  # of 64 bits
    SERIAL = "serial"  # as TEXT: an integer id, whose texts all have one length
    NUMBER = "number"  # an integer of 64 bits, a decimal of up to 15 digits, or a double; compared exactly
    BOOLEAN = "boolean"
    LIST = "list"  # of texts; EQ and IN compare its elements
    JSON = "json"  # of any kind; EQ, NE and IN compare it with a text, with numbers, and with a boolean and its text


@dataclass(frozen=True, slots=True)
class Field:
    """A field that queries can use. If it has `choices`, it has no other values.

    If its texts have one form, such as a date, `read` returns that of a text; it raises ValueError for what is none.

    The name of one inside others is a path, such as "lines.sku". On a path, a list stands for each of its elements: the
    field can have several values, and a filter needs one that satisfies it. Of kind JSON, "attributes.*" stands for
    all paths that begin so.
    """

    name: str
    kind: Kind
    nullable: bool = False
    sortable: bool = True
    choices: tuple[Scalar, ...] = ()
    listed: bool = False  # the field has a list of such values, and is not of kind LIST
    read: Callable[[str], str] | None = dataclasses.field(default=None, compare=False)

    @property
    def is_many(self) -> bool:
        """Whether it can have several values."""
        return self.kind is Kind.LIST or self.listed or "." in self.name


@dataclass(frozen=True, slots=True)
class Index:
    """An index: queries on its field do not read the whole collection.

    In a `unique` index each value occurs once (null any number of times); `fold` ignores ASCII case. A field that can
    have several values has neither, and its index serves EQ and IN.
    """

    field: str
    unique: bool = False
    fold: bool = False


class StoredSchema(NamedTuple):
    """A schema that items of a collection were stored with.

    A program whose schema has the revision `oldest`, or a later one, can work with its items. `fields` is a JSON text
    that describes them. The fingerprint begins with the revision and a dash, but for the first revision.
    """

    fingerprint: str
    revision: int
    oldest: int
    fields: str


@dataclass(frozen=True, eq=False)  # identity as equality, so that it is hashable
class Collection:
    """The declaration of a collection. `search` names the fields of the full-text search.

    If it is `owned`, there is an index on the owner.

    When the store is opened, it registers the `schema`, unless it has it already or refuses it: `conflict` returns why
    items of a registered schema, of which there are some, do not fit the new one, or an empty text. Before the store
    returns records or events of a schema that is new to the collection, it calls `on_schemas` with all registered ones
    in order. One that it does not have is older than all.
    """

    name: str
    fields: Mapping[str, Field]
    indexes: tuple[Index, ...] = ()
    search: tuple[str, ...] = ()
    owned: bool = False
    schema: StoredSchema | None = None
    conflict: Callable[[StoredSchema], str] = lambda schema: ""
    on_schemas: Callable[[Sequence[StoredSchema]], None] = lambda schemas: None

    def field(self, name: str) -> Field:
        """The field with this name, or at this path. Raises KeyError."""
        if (found := field_in(self.fields, name)) is None:
            raise KeyError(name)
        return found


def root_of(field: str) -> str:
    """The field of the item that a field is, or is inside."""
    return field.partition(".")[0]


def field_in(fields: Mapping[str, Field], name: str) -> Field | None:
    """The one of some fields with this name, or at this path, if there is one."""
    if name in fields and "*" not in name:
        return fields[name]
    names = name.removesuffix(".*").split(".")
    is_free = any(f"{'.'.join(names[:end])}.*" in fields for end in range(1, len(names)))
    return Field(name, Kind.JSON, nullable=True, sortable=False) if is_free else None


class Op(StrEnum):
    """Comparisons. LIKE means "contains" and ignores case. Null satisfies NE only, and IS."""

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    LIKE = "like"
    STARTS = "starts"
    IS = "is"


class Filter(NamedTuple):
    """A comparison. `value` has the field's type; for IN it is a tuple of such values, for IS whether it is null.

    If the field can have several values, it can be a tuple for NE, too: none of them equals one of it.
    Of the filters with the same `group`, which is not 0, one is enough.
    """

    field: str
    op: Op
    value: Scalar | tuple[Scalar, ...]
    group: int = 0


class Sort(NamedTuple):
    """One sort key. Null sorts as the lowest value of its kind, which for a text is the empty text."""

    field: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A query: filters, an order, and a range of the result.

    Ties are sorted by id, in the direction of the last sort key. `after` is a `Page.last` (with `backward`, a
    `Page.first`): the page starts after it; an empty tuple with `backward` means the end of the list. `limit` None
    means all records, `owner` None those of all owners.

    A client may send any `after`: a value of a wrong kind gives some page, and no error. `search` and LIKE compare
    texts by `str.casefold`, also where the database has other rules. `search` is looked for in each text by itself, of
    a field or of an element of a list.
    """

    filters: tuple[Filter, ...] = ()
    search: str = ""
    sort: tuple[Sort, ...] = ()
    limit: int | None = None
    offset: int = 0
    after: Position = ()
    backward: bool = False
    owner: str | None = None

    @property
    def narrows(self) -> bool:
        """Whether it selects a part of the records only."""
        return bool(self.filters or self.search or self.owner is not None)

    @property
    def uses_fields(self) -> bool:
        """Whether its result depends on what the records have in their fields."""
        return bool(self.filters or self.search or self.sort)


ALL = Query()


class Page(NamedTuple):
    """The result of a query: the bodies of its items in order, with the `fingerprint` and `removed` of each record.

    `more` is true if items follow in the direction of the query. `first` and `last` are the positions of its ends.
    `cut` is true if the limit of bytes ended the page. `change_token` is that of the collection at that moment, and
    `total` the number of the query's records then, if it is known without counting them. If the query `uses_fields`,
    `others` are the fingerprints of the collection's items of another revision than its own.
    """

    bodies: list[bytes]
    fingerprints: list[str]
    removed: list[bytes | None]
    more: bool = False
    first: Position = ()
    last: Position = ()
    cut: bool = False
    change_token: str = ""
    total: int | None = None
    others: Sequence[str] = ()


class Related(NamedTuple):
    """Records to be found by values of a field: of each value at most `most`, those with the highest ids."""

    collection: str
    field: str
    values: Sequence[str | int]
    most: int
    owner: str | None = None

    @property
    def query(self) -> Query:
        """The query by one of the values."""
        return Query((Filter(self.field, Op.EQ, ""),), limit=self.most, owner=self.owner)


class StoredResponse(NamedTuple):
    """The response to a request, for repetitions of it. `stored_at` is in seconds since 1970."""

    stored_at: float
    body: bytes


# Of an item, its collection and id; of the response to a request, the id; of a change token, the collection.
Key = tuple[str, str] | bytes | str
Found = Record | StoredResponse | str | None


class ItemTransaction(Protocol):
    """Records inside `Store.write`."""

    def read(self, collection: str, id: str, *, lock: bool = True) -> Record:
        """Return a record; with `lock` it is locked until this transaction ends.

        Raises RecordNotFound, after which the transaction continues.
        """

    def require(self, collection: str, record: Record) -> None:
        """Lock a record until this transaction ends. Raises RecordChanged if it is not stored, or not just so."""

    def require_present(self, collection: str, missing: Mapping[str, ReferenceMissing]) -> None:
        """Lock records against deletion until this transaction ends; raises what the first has that does not exist."""

    def lock(self, items: set[tuple[str, str]]) -> None:
        """Lock records, each a collection and an id, in one order; those that are locked later are added to the set.

        After this, `read` raises StoreContended where it would wait for a record out of that order, or where another
        transaction, which has read it too, may create it. The set then has this record, so that the next transaction
        locks it in the order: no two transactions wait for each other.
        """

    def find(self, collection: str, query: Query, limit: int) -> list[str]:
        """Return the ids of at most so many records of a query, of this transaction and of all that are committed."""

    def change_token(self, collection: str) -> str:
        """As `ItemStore.change_token`, with the changes of this transaction.

        The collection is locked until this transaction ends, so a precondition on a list can compare it.
        """

    def other_fingerprints(self, collection: str) -> list[str]:
        """Return the fingerprints of the items of another revision than the collection's.

        The cost does not depend on the number of items.
        """

    def of_fingerprints(self, wanted: Sequence[tuple[str, Sequence[str]]], limit: int) -> list[list[Record]]:
        """As `ItemStore.of_fingerprints`, with the changes of this transaction."""

    def insert(self, collection: str, record: Record) -> None:
        """Add a record. Raises DuplicateValue if its id or a unique value exists."""

    def update(self, collection: str, record: Record) -> None:
        """Replace the record with this id. Raises DuplicateValue and RecordNotFound."""

    def delete(self, collection: str, id: str) -> None:
        """Delete the record. Raises RecordNotFound."""


class ItemStore(Protocol):
    """Records for reading. Each method sees one moment."""

    def read(self, collection: str, id: str) -> Record:
        """Return a record. Raises RecordNotFound."""

    def page(self, collection: str, query: Query, max_bytes: int | None = None) -> Page:
        """Return the page of a query.

        Its bodies and what is stored as `removed` have at most `max_bytes` together, except that it has at least one
        item. A backward query has the items nearest to its start.
        """

    def count(self, collection: str, query: Query = ALL, *, most: int | None = None) -> int:
        """Count the records of a query, at most so many.

        The cost depends on the number of those that are counted, but not for a query that selects all.
        """

    def groups(self, collection: str, query: Query, most: int) -> list[tuple[Scalar | float, int]]:
        """Return the values of the field that the query is sorted by, and how many of its records have each.

        They are at most so many, the most frequent first.
        """

    def related(self, wanted: Sequence[Related], max_bytes: int) -> list[tuple[int, str | int, Record]]:
        """Return the records of all that is `wanted`, each with the number of the part and the value it is found by.

        One statement finds all of them. If they have more than `max_bytes`, the last one is that which exceeds it. If
        not, a part whose field is not the id has a record of version 0 for each fingerprint as of `Page.others`.
        """

    def change_token(self, collection: str) -> str:
        """Return a token that changes with each change of the collection. Two stores never have the same token.

        This holds also for copies of a store, and after a restore into a store that is in use.
        """

    def schemas(self, collection: str) -> list[StoredSchema]:
        """Return the registered schemas of a collection in the order of their registration, the last MOST_SCHEMAS."""

    def of_fingerprints(self, wanted: Sequence[tuple[str, Sequence[str]]], limit: int) -> list[list[Record]]:
        """Return the items of each of some collections with its fingerprints, of `Page.others`, at most so many.

        One statement finds all of them.
        """

    def scan(self, collection: str) -> Iterator[Record]:
        """Yield every record in order of id. A slow reader blocks no other caller."""


class Transaction(ItemTransaction, OutboxTransaction, Protocol):
    """The operations inside `Store.write`: all are committed, or none.

    An exception, but RecordNotFound of a read, ends the transaction: nothing of it is stored, also if `work` catches
    it. That of a change is raised by that call, by a later one, or by `write`, so that a backend can send several
    changes to its server together.
    """

    def store_response(self, id: bytes, response: StoredResponse, *, expired_before: float) -> None:
        """Store the response to the request with this id; one that was stored before `expired_before` is replaced.

        Raises ResponseStored if there is another one. If another transaction stores a response to the same request, it
        waits until that has ended. So it comes before all changes that a repeated request could be refused for, such
        as a unique value: the repetition then finds the first response, and no conflict.
        """

    def sweep_responses(self, before: float, limit: int, *, latest: float = inf) -> int:
        """Delete at most `limit` responses that were stored before a time, the oldest first; return how many.

        One that was stored after the time `latest` is deleted too: a clock was wrong. The cost does not depend on
        the number of stored responses.
        """

    def savepoint(self) -> AbstractContextManager[None]:
        """A context: an exception inside undoes the changes made inside, and the transaction continues.

        Exceptions of the changes inside are raised in it, or at its end. It can be nested.
        """


class Store(ItemStore, OutboxStore, Protocol):
    """The store of some collections. Safe for threads and greenlets; several processes may share one.

    A process opens it when it first uses it; a process that is forked after that cannot use it. Every method raises
    StoreUnavailable if the store does not respond in time, cannot be opened, or was written by a newer program
    that this one cannot work with.
    """

    def open(self, *, alone: bool = False) -> None:
        """Open the store; create and migrate it, create missing indexes and register new schemas, if necessary.

        If that needs space that a disk has not, a process that soon ends can open it `alone`: no other one can then.
        Raises StoreUnavailable for a schema that cannot follow those that are registered.
        """

    def look_up(self, keys: Sequence[Key]) -> list[Found]:
        """Return what has these keys, and None for each that does not exist, at one moment.

        A database with a server is asked once.
        """

    def write(
        self,
        work: Callable[[Transaction], T],
        *,
        wait: bool = True,
        use_reserve: bool = False,
        deadline: float | None = None,
    ) -> T:
        """Run `work` in one transaction, and return its result once it is durable.

        If other callers write, it waits until `deadline` (of time.monotonic), by default some seconds, or without
        `wait` not at all; then it raises StoreUnavailable. Raises StoreFull if the disk has no space, or less than is
        reserved; work that deletes, or that the service depends on, may `use_reserve`.

        An exception of `work` rolls back its changes and is raised here. `work` runs at most once, because it may have
        other effects: if it cannot be committed, as after a deadlock, StoreUnavailable is raised. It runs in a copy of
        the caller's context (contextvars), possibly on another thread: several callers can share one commit.
        See also `Transaction`.
        """

    def tidy(self) -> list[str]:
        """Delete the indexes of these collections that are not declared (any more), and return their names.

        Until then they serve older programs that use the same store, and unique ones refuse duplicates. After it such a
        program can have StoreUnavailable for filters of a field with several values.
        """

    def backup(self, target: Path) -> None:
        """Write a consistent copy to a new file, while other callers read and write.

        Raises FileExistsError, and StoreUnavailable if the database needs a tool of its own, which it names.
        """

    def check(self) -> None:
        """Raises StoreUnavailable if the store cannot be used, or this program cannot work with its migrations."""

    def close(self) -> None:
        """Close every connection."""


class MemoryStore(Store, Protocol):
    """A store in memory, which can return to an earlier state."""

    def saved(self) -> Any:
        """Return all that it holds at this moment."""

    def load(self, saved: Any) -> None:
        """Hold what was `saved`, of a store of the same collections, and nothing else. All change tokens are new."""

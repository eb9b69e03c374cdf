"""What a store promises: records, responses and an outbox, each a pair of protocols, for reading and within a write.

It speaks in records and queries, never in requests. What a store raises is in `storage.errors`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, StrEnum
from math import inf
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from restkeeper.storage.outbox import OutboxStore, OutboxTransaction

T = TypeVar("T")
Scalar = str | int | Decimal | bool | None
Position = tuple[str | int | float | None, ...]  # of JSON: clients get it, and bring it back; integers have 64 bits


class Record(NamedTuple):
    """One item as stored. `body` is its complete JSON representation, the very bytes that are answered."""

    id: str
    version: int
    updated_at: str  # RFC 3339, UTC, microseconds: sorts as text
    fingerprint: str  # of the schema that `body` was written by
    body: bytes
    owner: str | None = None


class Kind(Enum):
    """How a field's values are compared."""

    TEXT = "text"  # by code point
    TIME = "time"  # as TEXT: every time has one canonical form
    INTEGER = "integer"  # of 64 bits
    NUMBER = "number"  # an integer of 64 bits, a decimal of up to 15 digits, or a double; compared exactly
    BOOLEAN = "boolean"
    LIST = "list"  # of texts; EQ and IN ask whether it contains


@dataclass(frozen=True, slots=True)
class Field:
    """A top-level field of a collection's items that can be asked for: whether it may be null, and be sorted by."""

    name: str
    kind: Kind
    nullable: bool = False
    sortable: bool = True


@dataclass(frozen=True, slots=True)
class Index:
    """A field that can be found and sorted by without reading the whole collection.

    `unique` admits a value once (null any number of times), `fold` compares without regard to ASCII case.
    """

    field: str
    unique: bool = False
    fold: bool = False


@dataclass(frozen=True, eq=False)  # each is itself alone, so that it can be a key
class Collection:
    """What a store has to know of a collection. `search` names the text fields that full text looks through.

    Of one that is `owned`, the items of one owner are found without reading those of others.
    """

    name: str
    fields: Mapping[str, Field]
    indexes: tuple[Index, ...] = ()
    search: tuple[str, ...] = ()
    owned: bool = False


class Op(StrEnum):
    """Comparisons. LIKE is containment without regard to case; a null satisfies NE and no other."""

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    LIKE = "like"


class Filter(NamedTuple):
    """`value` has the field's type; for IN it is a tuple of such values."""

    field: str
    op: Op
    value: Scalar | tuple[Scalar, ...]


class Sort(NamedTuple):
    """One sort key. A null sorts as the lowest value of its kind, which for a text is the empty one."""

    field: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """Which records, in which order, and which stretch of them.

    Ties are broken by id, in the direction of the last sort key. `after` is a `Page.last` (with `backward`, a
    `Page.first`): the page begins beyond it; an empty tuple with `backward` means the end of the list. `limit` None
    means all. `owner` None means everybody's.

    A client may have made up what is in `after`: a value of another kind than its key's gives some page, and no error.
    `search` and LIKE compare texts by `str.casefold`, which databases do not know and whose own rules are their
    collation's: a backend stores what it needs for that.
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
        """Whether it leaves any record out."""
        return bool(self.filters or self.search or self.owner is not None)


ALL = Query()


class Page(NamedTuple):
    """A stretch of items in the order asked for: their bodies, and the schemas' fingerprints that occur among them.

    `more` says whether items follow in the direction of the walk; `first` and `last` are the positions of its ends.
    `cut` is set where the bound of bytes ended it, before its limit and before the end of the list. `revision` is that
    of the collection which has exactly these items.
    """

    bodies: list[bytes]
    fingerprints: frozenset[str] = frozenset()
    more: bool = False
    first: Position = ()
    last: Position = ()
    cut: bool = False
    revision: str = ""


class StoredResponse(NamedTuple):
    """What a request was answered, to be answered again: `stored_at` in seconds since 1970."""

    stored_at: float
    body: bytes


class ItemTransaction(Protocol):
    """What can be done with records inside `Store.write`.

    After what these raise, the transaction goes on as if the call had not been: who imports passes over duplicates. A
    database that gives up a transaction at the first error needs a savepoint for each.
    """

    def read(self, collection: str, id: str) -> Record:
        """The record, which nobody else changes until this transaction ends. Raises RecordNotFound."""

    def revision(self, collection: str) -> str:
        """As `ItemStore.revision`, with what this transaction did so far.

        Nobody else changes the collection until this transaction ends: what is conditional on a list compares this.
        """

    def insert(self, collection: str, record: Record) -> None:
        """Add a new record. Raises DuplicateValue when its id or a unique value is taken."""

    def update(self, collection: str, record: Record) -> None:
        """Put `record` in the place of the one with its id. Raises DuplicateValue and RecordNotFound."""

    def delete(self, collection: str, id: str) -> None:
        """Remove the record. Raises RecordNotFound."""


class ItemStore(Protocol):
    """What can be read of records, each method as of one moment."""

    def read(self, collection: str, id: str) -> Record:
        """The record. Raises RecordNotFound."""

    def page(self, collection: str, query: Query, max_bytes: int | None = None) -> Page:
        """The records that the query asks for.

        With `max_bytes` it ends before the item whose body would bring the bodies over so many bytes, but not before
        the first; of a walk backwards it has the items next to where the walk begins.
        """

    def count(self, collection: str, query: Query = ALL) -> int:
        """How many records the filters and the search leave. Without either it costs the same at any size."""

    def revision(self, collection: str) -> str:
        """A token that differs whenever anything in the collection does, also from that of any other store.

        That includes copies of a store, and one that a copy was restored into while it was in use.
        """

    def scan(self, collection: str) -> Iterator[Record]:
        """Every record in order of id. A slow reader of it is in nobody's way."""


class ResponseTransaction(Protocol):
    """What can be done with stored responses inside `Store.write`."""

    def find_response(self, id: bytes) -> StoredResponse | None:
        """The response to the request with this id, if it is stored (still)."""

    def store_response(self, id: bytes, response: StoredResponse) -> None:
        """Store a response, in the place of an older one to the same request."""

    def sweep_responses(self, before: float, limit: int, *, latest: float = inf) -> int:
        """Delete at most `limit` responses that were stored before a time, the oldest first; how many there were.

        One that was stored after the time `latest` is deleted like an expired one: a clock was wrong. Costs the same at
        any size.
        """


class ResponseStore(Protocol):
    """What can be read of stored responses."""

    def find_response(self, id: bytes) -> StoredResponse | None:
        """As `ResponseTransaction.find_response`."""


class Transaction(ItemTransaction, ResponseTransaction, OutboxTransaction, Protocol):
    """What can be done inside `Store.write`: all of it is committed or none."""


class Store(ItemStore, ResponseStore, OutboxStore, Protocol):
    """Stores the records of some collections. Safe for threads and greenlets; several processes may share one.

    Any method raises StoreUnavailable when the store cannot be had in time. `secret` is random, known to those who can
    read the store, and not in a copy of it.
    """

    secret: str

    def write(
        self,
        work: Callable[[Transaction], T],
        *,
        patient: bool = True,
        use_reserve: bool = False,
        deadline: float | None = None,
    ) -> T:
        """Run `work` in one transaction and return its result once that is durable.

        While others write it waits for some seconds from its call on, or until `deadline` (of time.monotonic), or if it
        is not `patient` not at all; then it raises StoreUnavailable. Raises StoreFull when there is no space left, or
        less than is reserved, unless the work may `use_reserve`: it deletes, or the service depends on it.

        What `work` raises undoes what it did and is raised here. `work` runs once at most, for it may change more than
        the store: one that the store cannot commit, as after a deadlock, is StoreUnavailable. It runs in a copy of the
        caller's context (contextvars), maybe on another thread: several callers' works can share one commit.
        """

    def backup(self, target: Path) -> None:
        """Write a complete, consistent copy to a new file while others read and write.

        Raises FileExistsError, and StoreUnavailable where the database has a tool of its own for that, which it names.
        """

    def check(self) -> None:
        """Return when the store answers and its migrations are those of this program. Raises StoreUnavailable."""

    def close(self) -> None:
        """Close every connection."""

"""Records for tests: a collection with a field of each kind, and common operations on it."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from restkeeper import exactjson, storage
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.interface import POSITION, Collection, Field, Index, Kind, Query, Record, StoredSchema
from restkeeper.storage.location import DEFAULTS, Options
from restkeeper.storage.records import read_schemas

FIELDS = {
    name: Field(name, kind, nullable)
    for name, kind, nullable in [
        ("id", Kind.TEXT, False),
        ("name", Kind.TEXT, False),
        ("sku", Kind.TEXT, True),
        ("mail", Kind.TEXT, True),
        ("price", Kind.NUMBER, True),
        ("stock", Kind.INTEGER, False),
        ("sold", Kind.BOOLEAN, True),
        ("tags", Kind.LIST, False),
        ("updated_at", Kind.TIME, False),
        ("version", Kind.INTEGER, False),
        (POSITION, Kind.INTEGER, False),
    ]
}


THINGS = Collection(
    "things",
    FIELDS,
    (Index("sku", unique=True), Index("mail", unique=True, fold=True), Index("price"), Index("name"), Index(POSITION)),
    ("name", "tags"),
)


OTHERS = Collection("others", {"id": FIELDS["id"]})


_opened: list[Any] = []


def schemas_of(store: Any, collection: str) -> list[StoredSchema]:
    """The registered schemas of a collection."""
    found: list[StoredSchema] = store.read_with(read_schemas, collection)
    return found


def kept(store: Any) -> Any:
    """The same store, which `close_all` closes."""
    _opened.append(store)
    return store


def open_store(url: str, collections: Iterable[Collection], options: Options = DEFAULTS) -> Any:
    """Open a store that `close_all` closes."""
    return kept(storage.open_store(url, collections, options))


def close_all() -> None:
    """Close the stores of a test."""
    while _opened:
        _opened.pop().close()


def record(id: str, version: int = 1, **fields: Any) -> Record:
    """A record of the things collection; omitted fields are null, or empty."""
    empty = {"name": "", "sku": None, "mail": None, "price": None, "stock": 0, "sold": None, "tags": []}
    body = {"id": id, **empty, **fields, "version": version}
    return Record(id, version, f"2026-01-01T00:00:{version:02}.000000Z", "shape", exactjson.dumps(body))


def insert(store: Store, *records: Record, collection: str = "things") -> None:
    def work(transaction: Transaction) -> None:
        for each in records:
            transaction.insert(collection, each)

    store.write(work)


def ids(store: Store, **query: Any) -> list[str]:
    return [exactjson.loads(body)["id"] for body in store.page("things", Query(**query)).bodies]


SAMPLE = [
    record("a", name="Lamp", price=Decimal("12.5"), stock=3, sold=True, tags=["red", "big"], sku="L1", mail="A@x.org"),
    record("b", name="lampshade", price=Decimal("7"), stock=0, sold=False, tags=["red"]),
    record("c", name="Éclair", price=None, stock=9, tags=[]),
    record("d", name="100% \\_wool", price=Decimal("0.1"), stock=-2, tags=["a,b"], mail="b@x.org"),
]


def fill(store: Store, count: int, size: int) -> list[int]:
    """Store items with large bodies, in an order that no field has; return the lengths of the bodies by id."""
    records = [
        record(f"{n:03}", stock=n * 7 % 10, name=f"{n * 3 % 10}{'x' * size}", price=Decimal(n % 3))
        for n in range(count)
    ]
    insert(store, *records)
    return [len(each.body) for each in records]


DUPLICATES = [
    *(record(f"a{n}", mail="A@x" if n % 2 else "a@x") for n in range(2)),
    record("b", mail="b@x"),
    record("c", mail="c@x"),
    *(record(f"d{n:02}", mail="d" * 100) for n in range(12)),
    *(record(id) for id in "ef"),
]
DUPLICATES_REFUSED = (  # by THINGS, which has an index of them without regard to case
    'some items of things have the same mail, which must be unique ("a@x": a0, a1; "'
    f"{'d' * 79}…: d00, d01, d02, d03, d04, d05, d06, d07; and 4 more items; "
    "change or delete them with the former program)"
)

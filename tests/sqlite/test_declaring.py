"""Indexes and schemas: created and registered at each start, and deleted only by `tidy`."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from restkeeper.storage import open_store
from restkeeper.storage.contract import MOST_SCHEMAS, Collection, Field, Index, Kind, Store, StoredSchema
from restkeeper.storage.errors import DuplicateValue, StoreUnavailable
from restkeeper.storage.outbox import Event
from tests.things import FIELDS, insert, record

OLD = Collection("things", FIELDS, (Index("sku", unique=True), Index("mail", unique=True), Index("price")))
NEW = Collection("things", FIELDS, (Index("stock"), Index("sku", unique=True), Index("mail", unique=True, fold=True)))


def opened(folder: Path, *collections: Collection) -> Store:
    return open_store(f"sqlite:///{folder}/store.db", collections)


def indexes(folder: Path) -> dict[str, int]:
    """The name of each index and the page where it starts, which changes when it is created again."""
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        query = "SELECT name, rootpage FROM sqlite_master WHERE name LIKE 'items.things.%'"
        return dict(connection.execute(query).fetchall())


def test_indexes_of_another_declaration_stay(tmp_path: Path) -> None:
    """An old and a new program use one store: each finds its indexes, and neither deletes those of the other."""
    old = opened(tmp_path, OLD)
    insert(old, record("a", sku="s", mail="a@x"))
    before = indexes(tmp_path)
    new = opened(tmp_path, NEW)
    both = indexes(tmp_path)
    assert before.items() < both.items() and len(both) == 5  # none was created again
    folded = {name for name in both if name.startswith("items.things.mail.unique")} - set(before)
    assert both.keys() - before.keys() == {"items.things.stock", *folded} and len(folded) == 1
    with pytest.raises(DuplicateValue) as caught:
        insert(old, record("b", mail="A@x"))
    assert caught.value.field == "mail"
    for each in (old, new, opened(tmp_path, OLD), opened(tmp_path, NEW)):
        each.close()
    assert indexes(tmp_path) == both


def test_tidy_deletes_what_is_not_declared(tmp_path: Path) -> None:
    """`tidy` deletes the indexes of former declarations, returns their names, and does nothing the second time."""
    opened(tmp_path, OLD).close()
    store = opened(tmp_path, NEW, Collection("others", {"id": FIELDS["id"]}))
    insert(store, record("a", sku="s", mail="a@x"))
    revision, both = store.revision("things"), indexes(tmp_path)
    assert sorted(store.tidy()) == ["items.things.mail.unique", "items.things.price"]
    assert store.tidy() == []
    assert store.revision("things") == revision and store.count("things") == 1
    left = indexes(tmp_path)
    assert left.items() <= both.items() and len(left) == 3
    store.close()
    opened(tmp_path, NEW).close()
    assert indexes(tmp_path) == left


def test_a_former_unique_index_refuses_duplicates_until_tidy(tmp_path: Path) -> None:
    """An older program can depend on it."""
    opened(tmp_path, OLD).close()
    store = opened(tmp_path, Collection("things", FIELDS))
    insert(store, record("a", sku="s"))
    with pytest.raises(DuplicateValue):
        insert(store, record("b", sku="s"))
    store.tidy()
    insert(store, record("b", sku="s"))
    store.close()


def test_indexes_of_owners_and_of_similar_names_stay(tmp_path: Path) -> None:
    """`tidy` of a collection does not touch an index on owners, or those of a collection with a similar name."""
    fields = {"id": FIELDS["id"], "a": Field("a", Kind.TEXT)}
    one, two = Collection("things", fields, (Index("a"),), owned=True), Collection("thing", fields, (Index("a"),))
    store = opened(tmp_path, one, two)
    before = indexes(tmp_path)
    assert store.tidy() == [] and indexes(tmp_path) == before and len(before) == 2
    store.close()


class Schemas:
    """Collections with one schema each, which accept any other before them, or refuse it with a text."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def collection(self, fingerprint: str, refusal: str = "") -> Collection:
        def require(schemas: Sequence[StoredSchema]) -> None:
            self.asked.append([each.fingerprint for each in schemas])
            if refusal:
                raise ValueError(refusal)

        return Collection("things", FIELDS, schema=StoredSchema(fingerprint, 1, 1, "{}"), require_successor=require)


def registered(store: Store) -> list[str]:
    return [each.fingerprint for each in store.schemas("things")]


def test_schemas_are_registered_in_order(tmp_path: Path) -> None:
    """Each once, at its first start, after the collection has accepted those before; running processes see it."""
    schemas = Schemas()
    first = opened(tmp_path, schemas.collection("a"))
    insert(first, record("1"))
    for fingerprint in ("b", "a", "c", "b"):
        opened(tmp_path, schemas.collection(fingerprint)).close()
    assert registered(first) == ["a", "b", "c"]
    assert schemas.asked == [["a"], ["a", "b"]]
    first.close()


def test_a_schema_that_cannot_follow_is_refused(tmp_path: Path) -> None:
    """The start fails with the explanation, and nothing is registered or created."""
    schemas = Schemas()
    store = opened(tmp_path, schemas.collection("a"))
    insert(store, record("1"))
    with pytest.raises(StoreUnavailable, match="because of this"):
        opened(tmp_path, NEW, schemas.collection("b", "because of this"))
    assert registered(store) == ["a"] and indexes(tmp_path) == {}
    store.close()


def test_a_collection_without_items_and_events_accepts_any_schema(tmp_path: Path) -> None:
    """The former schemas are deleted. One event is enough to ask."""
    schemas = Schemas()
    opened(tmp_path, schemas.collection("a")).close()
    store = opened(tmp_path, schemas.collection("b", "no"))
    assert registered(store) == ["b"] and schemas.asked == []
    store.write(lambda transaction: transaction.record(Event("thing.deleted", "things", "1", "2026", b"{}")))
    with pytest.raises(StoreUnavailable):
        opened(tmp_path, schemas.collection("c", "no"))
    assert schemas.asked == [["b"]]
    store.close()


def test_a_registered_schema_needs_no_lock(tmp_path: Path) -> None:
    """A start with a schema that is registered does not wait for a writer."""
    schemas = Schemas()
    store = opened(tmp_path, schemas.collection("a"))
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        opened(tmp_path, schemas.collection("a")).close()
    store.close()


def test_the_number_of_schemas_is_limited(tmp_path: Path) -> None:
    """The oldest is deleted when another is registered."""
    schemas = Schemas()
    store = opened(tmp_path, schemas.collection("first"))
    insert(store, record("1"))
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        many = [("things", str(n), 1, 1, "{}") for n in range(MOST_SCHEMAS - 1)]
        insertion = "INSERT INTO schemas (collection, fingerprint, revision, oldest, fields) VALUES (?, ?, ?, ?, ?)"
        connection.executemany(insertion, many)
    assert len(registered(store)) == MOST_SCHEMAS
    opened(tmp_path, schemas.collection("last")).close()
    assert registered(store) == [*(str(n) for n in range(MOST_SCHEMAS - 1)), "last"]
    store.close()

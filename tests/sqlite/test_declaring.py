"""Indexes and schemas: created and registered at each start, and deleted only by `tidy`."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from restkeeper.storage.base import Store
from restkeeper.storage.errors import DuplicateValue, StoreUnavailable
from restkeeper.storage.interface import (
    Collection,
    Event,
    Field,
    Filter,
    Index,
    Kind,
    Op,
    Query,
    Record,
    StoredSchema,
)
from restkeeper.storage.plans import Plan
from restkeeper.storage.sql import conditions, literal, parameters
from restkeeper.storage.sqlite.queries import SqliteColumn, page_statements
from tests.things import FIELDS, ids, insert, open_store, record, schemas_of

OLD = Collection("things", FIELDS, (Index("sku", unique=True), Index("mail", unique=True), Index("price")))
NEW = Collection("things", FIELDS, (Index("stock"), Index("sku", unique=True), Index("mail", unique=True, fold=True)))


def opened(folder: Path, *collections: Collection) -> Store:
    return open_store(f"sqlite:///{folder}/store.db", collections)


def test_a_name_in_sql_has_nothing_that_ends_it() -> None:
    """Whoever made the declaration: of a name that is written into SQL, every sign is checked."""
    assert literal("unit_price2") == "'unit_price2'"
    for name in ("it's", "a b", "a-b", "a.b", "ä", "½", ""):
        with pytest.raises(ValueError, match="are ASCII letters, digits and underscores"):
            literal(name)


def suffixes(names: Iterable[str]) -> list[str]:
    """What the names of indexes have between the collection and the digest of the definition."""
    return sorted(name.split(".")[2] for name in names)


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
    assert suffixes(both.keys() - before.keys()) == ["mail", "stock"]
    with pytest.raises(DuplicateValue) as caught:
        insert(old, record("b", mail="A@x"))
    assert caught.value.fields == ("mail",)
    for each in (old, new, opened(tmp_path, OLD), opened(tmp_path, NEW)):
        each.close()
    assert indexes(tmp_path) == both


def test_tidy_deletes_what_is_not_declared(tmp_path: Path) -> None:
    """`tidy` deletes the indexes of former declarations, returns their names, and does nothing the second time."""
    opened(tmp_path, OLD).close()
    store = opened(tmp_path, NEW, Collection("others", {"id": FIELDS["id"]}))
    insert(store, record("a", sku="s", mail="a@x"))
    revision, both = store.change_token("things"), indexes(tmp_path)
    assert suffixes(store.tidy()) == ["mail", "price"]
    assert store.tidy() == []
    assert store.change_token("things") == revision and store.count("things") == 1
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


def test_indexes_of_owners_and_of_similar_names_stay(tmp_path: Path) -> None:
    """`tidy` of a collection does not touch an index on owners, or those of a collection with a similar name."""
    fields = {"id": FIELDS["id"], "a": Field("a", Kind.TEXT)}
    one, two = (
        Collection("things", fields, (Index("a"),), has_owner_index=True),
        Collection("thing", fields, (Index("a"),)),
    )
    store = opened(tmp_path, one, two)
    before = indexes(tmp_path)
    assert store.tidy() == [] and indexes(tmp_path) == before and len(before) == 2


class Schemas:
    """Collections with one schema each, and the other ones that they are compared with."""

    def __init__(self) -> None:
        self.compared: list[str] = []

    def collection(self, fingerprint: str, refuses: str = "", excludes: str = "") -> Collection:
        """A collection that refuses the schemas with these fingerprints, and some as to what both have."""

        def conflict(schema: StoredSchema, common: bool) -> str:
            self.compared.append(schema.fingerprint)
            refused = excludes if common else f"{refuses} {excludes}"
            return f"does not fit {schema.fingerprint}" if schema.fingerprint in refused.split() else ""

        schema = StoredSchema(fingerprint, 1, "{}")
        return Collection("things", FIELDS, schema=schema, conflict=conflict)


def registered(store: Store) -> list[str]:
    return [each.fingerprint for each in schemas_of(store, "things")]


def written(id: str, fingerprint: str) -> Record:
    return record(id)._replace(fingerprint=fingerprint)


def test_schemas_are_registered_in_order(tmp_path: Path) -> None:
    """Each once, at its first start, if it fits those before, the newest first; running processes see it."""
    schemas = Schemas()
    first = opened(tmp_path, schemas.collection("a"))
    for fingerprint in ("b", "a", "c", "b"):
        opened(tmp_path, schemas.collection(fingerprint)).close()
    assert registered(first) == ["a", "b", "c"]
    assert schemas.compared == ["a", "b", "a"]


def test_a_schema_that_stored_items_do_not_fit_is_refused(tmp_path: Path) -> None:
    """The start fails with the explanation, and nothing is registered or created."""
    schemas = Schemas()
    store = opened(tmp_path, schemas.collection("a"))
    insert(store, written("1", "a"))
    with pytest.raises(StoreUnavailable, match="does not fit a"):
        opened(tmp_path, NEW, schemas.collection("b", refuses="a"))
    assert registered(store) == ["a"] and not indexes(tmp_path)


@pytest.mark.parametrize("used", ["item", "event"])
def test_a_schema_without_items_and_events_refuses_nothing(tmp_path: Path, used: str) -> None:
    schemas = Schemas()
    store = opened(tmp_path, schemas.collection("a"), Collection("others", {}))
    opened(tmp_path, schemas.collection("b")).close()
    insert(store, written("2", "b"))
    insert(store, written("3", "a"), collection="others")
    opened(tmp_path, schemas.collection("c", refuses="a")).close()
    if used == "item":
        insert(store, written("1", "a"))
    else:
        event = Event("thing.deleted", "things", "1", "2026", b"{}", fingerprint="a+")
        store.write(lambda transaction: transaction.record(event))
    with pytest.raises(StoreUnavailable):
        opened(tmp_path, schemas.collection("d", refuses="a"))
    assert registered(store) == ["a", "b", "c"]
    if used == "item":
        store.write(lambda transaction: transaction.update("things", written("1", "b")))
        opened(tmp_path, schemas.collection("d", refuses="a")).close()


def test_a_member_that_its_writer_does_not_know_can_be_of_each_schema(tmp_path: Path) -> None:
    schemas = Schemas()
    store = opened(tmp_path, schemas.collection("a"))
    opened(tmp_path, schemas.collection("b")).close()
    insert(store, written("1", "a+"))
    for refused in "ab":
        with pytest.raises(StoreUnavailable, match=f"does not fit {refused}"):
            opened(tmp_path, schemas.collection("c", refuses=refused))
    later = replace(schemas.collection("d"), schema=StoredSchema("2-d", 2, "{}"))
    opened(tmp_path, later).close()
    opened(tmp_path, schemas.collection("c", refuses="2-d")).close()  # the items are not of that revision


def test_what_a_running_program_can_store_is_compared(tmp_path: Path) -> None:
    """It has stored nothing yet. In an empty collection it is no longer registered: its next start is compared."""
    schemas = Schemas()
    store = opened(tmp_path, schemas.collection("a"))
    opened(tmp_path, schemas.collection("b", excludes="a")).close()
    assert registered(store) == ["b"]
    insert(store, written("1", "other"))
    with pytest.raises(StoreUnavailable, match="does not fit b"):
        opened(tmp_path, schemas.collection("a", excludes="b"))
    assert registered(store) == ["b"]
    opened(tmp_path, schemas.collection("a", refuses="b")).close()
    assert registered(store) == ["b", "a"]
    later = [replace(schemas.collection(each, excludes="c"), schema=StoredSchema(each, 2, "{}")) for each in ("c", "d")]
    opened(tmp_path, later[0]).close()
    with pytest.raises(StoreUnavailable, match="does not fit c"):  # to which the items are converted soon
        opened(tmp_path, later[1])


@pytest.mark.parametrize("kind", [Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN, Kind.TEXT])
def test_related_records_are_found_by_an_index(tmp_path: Path, kind: Kind) -> None:
    """Also those of a field that can be null, and in any order: not by what they are sorted by."""
    declared = Collection("things", {"rank": Field("rank", kind, nullable=True)}, (Index("rank"),))
    opened(tmp_path, declared).close()
    column = SqliteColumn.of(declared, "rank")
    where = f"collection = 'things' AND {column.condition(Filter('rank', Op.EQ, ''), column.each)}"
    for order in ("id DESC", "+_position"):
        found = f"SELECT id FROM items WHERE {where} ORDER BY {order} LIMIT 9"  # noqa: S608
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
            statement = f"EXPLAIN QUERY PLAN SELECT ({found}) FROM json_each('[1]') AS each"  # noqa: S608
            plan = connection.execute(statement).fetchall()
        searches = [detail for *_, detail in plan if "items" in detail]
        assert len(searches) == 1 and "items.things.rank." in searches[0] and "<expr>=?" in searches[0]


@pytest.mark.parametrize("kind", [Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN, Kind.TEXT])
def test_one_of_several_values_is_found_by_an_index(tmp_path: Path, kind: Kind) -> None:
    """Each value by itself, also in a field that can be null: not all items that have one."""
    declared = Collection("things", {"rank": Field("rank", kind, nullable=True)}, (Index("rank"),))
    opened(tmp_path, declared).close()
    where = conditions(declared, Query((Filter("rank", Op.IN, ()),)), SqliteColumn)
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT id FROM items WHERE {where}", {"f0": "[]"}).fetchall()  # noqa: S608
    assert any("items.things.rank." in detail and "<expr>=?" in detail for *_, detail in plan)


@pytest.mark.parametrize("owners", [("ada",), ("ada", "team-a")])
def test_items_of_owners_are_found_by_an_index(tmp_path: Path, owners: tuple[str, ...]) -> None:
    """Also those of several; those of one need no sorting."""
    declared = Collection("things", {"id": FIELDS["id"]}, has_owner_index=True)
    opened(tmp_path, declared).close()
    query, plans = Query(owners=owners, limit=20), list[list[str]]()
    plan = Plan(frozenset(), by_owners=True, is_ordered=len(owners) == 1)
    after = Query(owners=owners, limit=20, after=("x",))
    statement = f"SELECT count(*) FROM items WHERE {conditions(declared, query, SqliteColumn)}"  # noqa: S608
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        for each in (statement, *page_statements(declared, query, plan), *page_statements(declared, after, plan)):
            values = {**parameters(declared, query, SqliteColumn), "limit": 20, "offset": 0, "a0": "x"}
            plans.append([detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {each}", values)])
    for plan in plans:
        assert any("items.things.owner." in detail and "owner=?" in detail for detail in plan), plan
    assert ["TEMP B-TREE" in str(plan) for plan in plans] == [False, *[len(owners) > 1] * 2]


def test_an_index_of_several_values_follows_every_program(tmp_path: Path) -> None:
    """It is filled when it is declared, a program without it maintains it, and `tidy` deletes it."""
    fields = {**FIELDS, "lines.sku": Field("lines.sku", Kind.TEXT, nullable=True)}
    without, declared = Collection("things", fields), Collection("things", fields, (Index("lines.sku"), Index("tags")))
    old = opened(tmp_path, without)
    insert(old, record("a", lines=[{"sku": "x"}, {"sku": "y"}, {"sku": "x"}]), record("b", tags=["x"]))
    new = opened(tmp_path, declared)
    insert(old, record("c", lines={"sku": ["y", "z"]}))
    found = partial(ids_by, new, "lines.sku")
    assert [found(sku) for sku in "xyz"] == [["a"], ["a", "c"], ["c"]] and ids_by(new, "tags", "x") == ["b"]
    old.write(lambda transaction: transaction.update("things", record("c", 2, lines=[{"sku": "x"}])))
    old.write(lambda transaction: transaction.delete("things", "a"))
    assert [found(sku) for sku in "xyz"] == [["c"], [], []]
    assert suffixes(old.tidy()) == ["lines", "tags"] and old.tidy() == []
    insert(old, record("d", lines=[{"sku": "x"}]))
    new.close()
    new = opened(tmp_path, declared)
    assert ids_by(new, "lines.sku", "x") == ["c", "d"]


def ids_by(store: Store, field: str, value: str) -> list[str]:
    return ids(store, filters=(Filter(field, Op.EQ, value),))

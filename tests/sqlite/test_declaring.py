"""Indexes and schemas: created and registered at each start, and deleted only by `tidy`."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from restkeeper.storage.base import Store
from restkeeper.storage.errors import DuplicateValue, StoreUnavailable
from restkeeper.storage.interface import Collection, Field, Filter, Index, Kind, Op, StoredSchema
from restkeeper.storage.sql import literal
from restkeeper.storage.sqlite.queries import SqliteColumn
from tests.things import FIELDS, ids, insert, open_store, record

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


def of_schema(fingerprint: str, revision: int = 1, *, refuses: str = "") -> Collection:
    """A collection that refuses what is only of the schema with another fingerprint."""

    def conflict(schema: StoredSchema, common: bool) -> str:
        return f"does not fit {refuses}" if schema.fingerprint == refuses and not common else ""

    return Collection("things", FIELDS, schema=StoredSchema(fingerprint, revision, "{}"), conflict=conflict)


def test_a_member_that_its_writer_does_not_know_can_be_of_each_schema(tmp_path: Path) -> None:
    store = opened(tmp_path, of_schema("a"))
    opened(tmp_path, of_schema("b")).close()
    insert(store, record("1")._replace(fingerprint="a+"))
    for refused in "ab":
        with pytest.raises(StoreUnavailable, match=f"does not fit {refused}"):
            opened(tmp_path, of_schema("c", refuses=refused))
    opened(tmp_path, of_schema("2-d", 2)).close()
    opened(tmp_path, of_schema("c", refuses="2-d")).close()  # the items are not of that revision


@pytest.mark.parametrize("kind", [Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN, Kind.TEXT])
def test_related_records_are_found_by_an_index(tmp_path: Path, kind: Kind) -> None:
    """Also those of a field that can be null, and in any order: not by what they are sorted by."""
    declared = Collection("things", {"rank": Field("rank", kind, nullable=True)}, (Index("rank"),))
    opened(tmp_path, declared).close()
    column = SqliteColumn.of(declared, "rank")
    where = f"collection = 'things' AND {column.condition(Filter('rank', Op.EQ, ''), column.json_value)}"
    for order in ("id DESC", "+_position"):
        found = f"SELECT id FROM items WHERE {where} ORDER BY {order} LIMIT 9"  # noqa: S608
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
            statement = f"EXPLAIN QUERY PLAN SELECT ({found}) FROM json_each('[1]') AS term"  # noqa: S608
            plan = connection.execute(statement).fetchall()
        searches = [detail for *_, detail in plan if "items" in detail]
        assert len(searches) == 1 and "items.things.rank." in searches[0] and "<expr>=?" in searches[0]


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

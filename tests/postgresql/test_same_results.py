"""PostgreSQL and SQLite have the same results: random items, queries and pages, with positions of either store."""

import sys
from collections.abc import Iterator

import psycopg
import pytest

from restkeeper.config import Config
from restkeeper.storage.base import Store
from restkeeper.storage.interface import Collection, Field, Filter, Index, Kind, Op, Query
from restkeeper.storage.postgresql.pages import select_page
from tests.shop import create_app
from tests.things import FIELDS, THINGS, insert, open_store, record

ROUNDS, QUERIES = 4, 60


@pytest.fixture
def both(url: str) -> Iterator[list[Store]]:
    """A store of each kind."""
    made = [open_store(each, [THINGS]) for each in (url, "memory://")]
    yield made
    for store in made:
        store.close()


@pytest.mark.no_cover
@pytest.mark.parametrize("op", [Op.LIKE, Op.EQ])
def test_all_of_unicode_folds_in_the_same_way(both: list[Store], op: Op) -> None:
    """`like` ignores case as str.casefold does, for each character that has a case; a unique index that of ASCII."""
    cased = [chr(n) for n in range(1, sys.maxunicode + 1) if not 0xD800 <= n < 0xE000 and chr(n) != chr(n).casefold()]
    records = [record(f"{n}", name=f"<{character}>") for n, character in enumerate(cased)]
    for store in both:
        insert(store, *records)
    for character in cased[::29]:
        for given in (f"<{character}>", f"<{character.casefold()}>", f"<{character.upper()}>"):
            asked = Query((Filter("name", op, given),))
            found = [store.page("things", asked).bodies for store in both]
            assert found[0] == found[1] and (op is Op.EQ or found[0]), given


LONG = "x" * 128 * 1024


def test_huge_texts_are_indexed(both: list[Store]) -> None:
    """An entry of an index has 2,704 bytes at most: texts that differ at their end are found, sorted and unique."""
    for store in both:
        insert(store, record("a", name=f"{LONG}a", sku=f"{LONG}a", mail=f"{LONG}A"))
        insert(store, record("b", name=f"{LONG}b", sku=f"{LONG}b", mail=f"é{LONG}"), record("c", name=f"{'é' * 9999}b"))
        with pytest.raises(Exception, match="another item has this mail"):
            insert(store, record("d", mail=f"{LONG.upper()}a"))
        with pytest.raises(Exception, match="another item has this sku"):
            insert(store, record("d", sku=f"{LONG}b"))
    for filter in (
        Filter("name", Op.EQ, f"{LONG}b"),
        Filter("sku", Op.EQ, f"{LONG}a"),
        Filter("sku", Op.IN, (f"{LONG}a", f"{LONG}b", LONG)),
        Filter("name", Op.GT, f"{LONG}a"),
        Filter("name", Op.LTE, LONG),
        Filter("mail", Op.EQ, f"{LONG.upper()}a"),
        Filter("name", Op.LIKE, f"{LONG.upper()}A"),
    ):
        found = [store.page("things", Query((filter,))).bodies for store in both]
        assert found[0] == found[1], filter.op


VALUES = ["%00", "a%00b", "%ED%A0%80", "%F4%90%80%80", "%FF", "%C4%B0", "%25", "\\", "%27", "%F0%90%80%80"]
VALUES += ["NaN", "Infinity", "-inf", "1e400", "-1e99999", "1e-99999", "9" * 4000, f"0.{'1' * 3000}", "-0", f"{2**63}"]
NAMES = ["name", "name[like]", "price[lt]", "stock[gte]", "sku[in]", "tags", "q", "cursor", "sort"]


@pytest.mark.parametrize("name", NAMES)
def test_strange_values_get_the_same_responses(url: str, name: str) -> None:
    """Texts that the database cannot have, and numbers beyond all that are stored: no error of the database."""
    clients = [create_app(Config(database_url=each)).test_client() for each in (url, "memory://")]
    for client in clients:
        client.post("/products", json={"name": "a\\%'İ𐀀", "price": 1, "sku": "9" * 60, "tags": ["\\"]})
    for value in VALUES:
        found = [client.get(f"/products?{name}={value}") for client in clients]
        assert found[0].status_code == found[1].status_code < 500, (value, found[0].text)
        if found[0].status_code == 200:
            assert len(found[0].json) == len(found[1].json), value


def test_indexes_serve_pages(url: str) -> None:
    """Of several values, also where no item or every item has the value, and of owners, also of several."""
    fields = {**FIELDS, "lines.sku": Field("lines.sku", Kind.TEXT, nullable=True)}
    declared = Collection("things", fields, (Index("lines.sku"), Index("tags")), has_owner_index=True)
    made = [record(f"{n:04}", tags=["x"], lines=[{"sku": "x"}, {"sku": f"{n}"}]) for n in range(2000)]
    insert(open_store(url, [declared]), *(each._replace(owner=f"o{n % 100}") for n, each in enumerate(made)))
    values = [("lines.sku", "x"), ("lines.sku", "7"), ("lines.sku", "none"), ("tags", "x")]
    wanted = [(field, Query((Filter(field, Op.EQ, value),), limit=1)) for field, value in values]
    wanted += [("owner", Query(owners=owners, limit=20)) for owners in (("o1",), ("o1", "o2"))]
    with psycopg.connect(url) as connection:
        connection.execute("ANALYZE items")
        for name, query in wanted:
            statement, parameters = select_page(declared, query)
            explained = connection.execute(f"EXPLAIN {statement}", {**parameters, "most_bytes": 1}).fetchall()
            assert f"items.things.{name}." in str(explained), query

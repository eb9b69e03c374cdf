"""PostgreSQL and SQLite have the same results: random items, queries and pages, with positions of either store."""

import json
import random
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from restkeeper.config import Config
from restkeeper.storage.base import Store
from restkeeper.storage.interface import Collection, Field, Filter, Index, Kind, Op, Page, Query, Sort
from restkeeper.storage.postgresql.queries import select_page
from tests.shop import create_app
from tests.things import FIELDS, THINGS, insert, open_store, record

ROUNDS, QUERIES = 4, 60
# Characters whose folding, order or storage differs between libraries.
CHARACTERS = "aAbB zZ_%\\'\"?*.,:\n\t\u0001\u007fÀàßẞſKıİiIΣσςΐΰŉǰﬁﬀև՛Ⅷⅷ𐐀𐐨ꭰᎠᏸ\ue000\uffff\U0010ffff\u0301é日本"
INTEGERS = [0, 1, -1, 2**53, 2**63 - 1, -(2**63) + 1]
NUMBERS = [*INTEGERS, Decimal("0.1"), Decimal("-0.5"), Decimal("999999999999999"), 1e300, 5e-324]
STRANGE = [Decimal("1e400"), Decimal("-1e400"), Decimal("1e-400"), Decimal(10) ** 27]


@pytest.fixture
def both(url: str) -> Iterator[list[Store]]:
    """A store of each kind."""
    made = [open_store(each, [THINGS]) for each in (url, "memory://")]
    yield made
    for store in made:
        store.close()


def text(chance: random.Random, most: int = 6) -> str:
    repeated = "x" * 300 if chance.random() < 0.1 else ""
    return repeated + "".join(chance.choices(CHARACTERS, k=chance.randint(0, most)))


def fill(stores: list[Store], chance: random.Random) -> list[dict[str, Any]]:
    """Store the same items in both; returns them."""
    items = []
    for n in range(60):
        name = text(chance)
        fields = {
            "name": name if chance.random() < 0.7 else name.swapcase(),
            "sku": chance.choice([None, f"{n}{text(chance)}"]),
            "mail": chance.choice([None, f"{n}{text(chance)}"]),
            "price": chance.choice([None, *NUMBERS]),
            "stock": chance.choice([0, 1, 2, 2**63 - 1]),
            "sold": chance.choice([None, True, False]),
            "tags": [text(chance, 3) for _ in range(chance.randint(0, 3))],
        }
        items.append(fields)
        for store in stores:
            insert(store, record(f"{n}{'Aa_'[n % 3]}", n % 4, **fields))
    return items


def value(chance: random.Random, items: list[dict[str, Any]], name: str) -> Any:
    """A value to compare with: one that is stored, part of one, or any."""
    kind = FIELDS[name].kind
    stored = chance.choice(items).get(name)
    if kind is Kind.INTEGER:
        return chance.choice([stored or 0, *INTEGERS])
    if kind is Kind.NUMBER:
        return chance.choice([Decimal(str(stored or 0)), *(Decimal(str(each)) for each in NUMBERS), *STRANGE])
    if kind is Kind.BOOLEAN:
        return chance.choice([True, False])
    if kind is Kind.LIST:
        return chance.choice([*(stored or []), text(chance, 2)])
    return chance.choice([stored or "", (stored or "")[:2], text(chance, 2), (stored or "").swapcase()])


def query(chance: random.Random, items: list[dict[str, Any]]) -> Query:
    filters = []
    for name in chance.sample(sorted(FIELDS), chance.choice([0, 1, 1, 2])):
        kind = FIELDS[name].kind
        ops = [Op.EQ, Op.NE, Op.IN] if kind in (Kind.LIST, Kind.BOOLEAN) else [op for op in Op if op is not Op.NIN]
        ops = [op for op in ops if op not in (Op.LIKE, Op.STARTS, Op.ENDS) or kind is Kind.TEXT]
        ops = [op for op in ops if not (kind is Kind.LIST and op is Op.NE)]
        op = chance.choice(ops)
        given = tuple(value(chance, items, name) for _ in range(3)) if op is Op.IN else value(chance, items, name)
        given = chance.random() < 0.5 if op is Op.IS else given
        filters.append(Filter(name, op, given, chance.choice([0, 1]), chance.random() < 0.2))
    sortable = [name for name in sorted(FIELDS) if FIELDS[name].kind is not Kind.LIST]
    sort = tuple(Sort(name, chance.random() < 0.5) for name in chance.sample(sortable, chance.randint(0, 2)))
    search = text(chance, 2) if chance.random() < 0.2 else ""
    return Query(tuple(filters), search, sort, chance.choice([1, 3, 7]))


def plain(page: Page) -> tuple[Any, ...]:
    return page.bodies, page.more


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_queries_have_the_same_pages(both: list[Store], seed: int) -> None:
    """Forwards and then backwards, each page after the position of the other store's page, as clients have it."""
    chance = random.Random(seed)  # noqa: S311 - not a secret
    items = fill(both, chance)
    for _ in range(QUERIES):
        first = query(chance, items)
        counts = [store.count("things", first) for store in both]
        assert counts[0] == counts[1], first
        after: list[Any] = [(), ()]
        for backward in (False, True):
            for _ in range(4):
                asked = [first._replace(after=each, backward=backward) for each in after]
                pages = [store.page("things", each) for store, each in zip(both, asked, strict=True)]
                assert plain(pages[0]) == plain(pages[1]), asked
                if not pages[0].bodies:
                    break
                ends = [page.first if backward else page.last for page in pages]
                after = [json.loads(json.dumps(end)) for end in reversed(ends)]  # of the other store
                after = [tuple(each) for each in after]
                if not pages[0].more:
                    break


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


def test_an_index_of_several_values_serves_filters(url: str) -> None:
    """In the plan of a page, also where no item or every item has the value."""
    fields = {**FIELDS, "lines.sku": Field("lines.sku", Kind.TEXT, nullable=True)}
    declared = Collection("things", fields, (Index("lines.sku"), Index("tags")))
    store = open_store(url, [declared])
    insert(store, *(record(f"{n:04}", tags=["x"], lines=[{"sku": "x"}, {"sku": f"{n}"}]) for n in range(2000)))
    with psycopg.connect(url) as connection:
        connection.execute("ANALYZE items")
        for field, value in [("lines.sku", "x"), ("lines.sku", "7"), ("lines.sku", "none"), ("tags", "x")]:
            statement, parameters = select_page(declared, Query((Filter(field, Op.EQ, value),), limit=1))
            explained = connection.execute(f"EXPLAIN {statement}", {**parameters, "most_bytes": 1}).fetchall()
            assert f"items.things.{field}." in str(explained), (field, value)


def test_an_index_of_owners_serves_pages(url: str) -> None:
    """Also those of several owners."""
    declared = Collection("things", {"id": FIELDS["id"]}, has_owner_index=True)
    store = open_store(url, [declared])
    insert(store, *(record(f"{n:04}")._replace(owner=f"o{n % 100}") for n in range(2000)))
    with psycopg.connect(url) as connection:
        connection.execute("ANALYZE items")
        for owners in (("o1",), ("o1", "o2")):
            statement, parameters = select_page(declared, Query(owners=owners, limit=20))
            explained = connection.execute(f"EXPLAIN {statement}", {**parameters, "most_bytes": 1}).fetchall()
            assert "items.things.owner." in str(explained), owners

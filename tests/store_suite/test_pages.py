"""Pages: in the requested order, without gaps between them, and limited in bytes."""

import json
import random
import threading
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import chain, pairwise, product

import pytest

from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.interface import POSITION, Filter, Op, Page, Position, Query, Sort
from restkeeper.web import exactjson
from tests.things import SAMPLE, SORTS, fill, ids, insert, record
from tests.waiting import join


def test_sorting(store: Store) -> None:
    """Keys sort in order; nulls come first ascending; ties are sorted by id in the direction of the last key."""
    insert(store, *SAMPLE)
    expected = {
        (): "abcd",
        (Sort("id", True),): "dcba",
        (Sort("price"),): "cdba",
        (Sort("price", True),): "abdc",
        (Sort("name"),): "dabc",
        (Sort("sold"), Sort("stock", True)): "cdba",
        (Sort("sold", True), Sort("stock")): "abdc",
    }
    assert {sort: "".join(ids(store, sort=sort)) for sort in expected} == expected


def walk(store: Store, query: Query, max_bytes: int | None = None) -> Iterator[Page]:
    """The pages of a query, forwards or backwards, by the positions that a client sends back."""
    more = True
    while more:
        yield (page := store.page("things", query, max_bytes))
        after = tuple(json.loads(json.dumps(page.first if query.backward else page.last)))
        query, more = query._replace(after=after), page.more


def ids_of(pages: Iterable[Page], query: Query) -> list[str]:
    """The ids on pages, in the order of the whole list."""
    lists = [[exactjson.loads(body)["id"] for body in page.bodies] for page in pages]
    return list(chain.from_iterable(reversed(lists) if query.backward else lists))


def test_pages_together_are_the_whole_list(store: Store) -> None:
    """Page after page, forwards and backwards, has the order of the whole list, whatever ties and nulls it has."""
    chance = random.Random(7)  # noqa: S311
    numbers = chance.sample(range(100), 100)
    insert(
        store,
        *(
            record(
                f"{n:03}",
                price=chance.choice([None, Decimal("0.1"), Decimal("0.2"), Decimal(3)]),
                stock=chance.randrange(3),
                name=chance.choice("xy"),
                sold=chance.choice([None, True, False]),
                sku=chance.choice([None, f"s{chance.random()}"]),
            )
            for n in numbers
        ),
    )
    assert ids(store, sort=(Sort(POSITION),)) == [f"{n:03}" for n in numbers]
    for sort in (
        (Sort(POSITION, True),),
        (),
        (Sort("id", True),),
        (Sort("price"),),
        (Sort("price", True),),
        (Sort("stock"), Sort("price", True)),
        (Sort("price", True), Sort("name"), Sort("sold", True)),
        (Sort("sku"), Sort("id", True)),
        (Sort("stock", True), Sort("id"), Sort("name")),
    ):
        whole = ids(store, sort=sort)
        assert len(whole) == 100
        for backward in (False, True):
            query = Query(sort=sort, limit=7, backward=backward)
            pages = list(walk(store, query))
            assert ids_of(pages, query) == whole, query
            assert {type(value) for page in pages for value in page.first} <= {str, int, float, type(None)}


def test_an_invented_position_is_no_error(store: Store) -> None:
    insert(store, *SAMPLE)
    positions: list[tuple[Sort | None, Position]] = [
        (None, (7,)),
        (Sort("price"), ("x", "a")),
        (Sort("stock", True), ("", 1.5)),
        (Sort("name"), (2**63 - 1, "a")),
        (Sort("sold"), (-0.5, None)),
        (Sort("updated_at", True), (1.5, "a")),
        (Sort(POSITION), (2**63 - 1, "a")),
        (Sort(POSITION, True), ("x", 7)),
    ]
    for key, after in positions:
        for backward in (False, True):
            query = Query(sort=(key,) if key else (), after=after, backward=backward)
            assert len(store.page("things", query).bodies) <= len(SAMPLE)


def test_offset_and_limit(store: Store) -> None:
    """An offset skips items; a limit ends the page, which says whether there are more."""
    insert(store, *SAMPLE)
    assert ids(store, offset=1, limit=2) == ["b", "c"]
    assert [store.page("things", Query(limit=limit)).more for limit in (3, 4, 5)] == [True, False, False]
    assert store.page("things", Query(offset=9, limit=2)).bodies == []


def test_a_changed_item_keeps_its_position(store: Store) -> None:
    """The order in which items were stored: a new one is the last, also after the deletion of the last."""
    insert(store, *(record(id) for id in "cab"))
    store.write(lambda transaction: transaction.update("things", record("c", version=2)))
    store.write(lambda transaction: transaction.delete("things", "b"))
    insert(store, record("0"))
    assert ids(store, sort=(Sort(POSITION),)) == ["c", "a", "0"]


def test_the_items_of_some_owners(store: Store) -> None:
    """Items of other owners or without one are neither listed nor counted; without owners in the query all are."""
    owners = {"a": "me", "b": "you", "c": None, "d": "me"}
    insert(store, *(record(id)._replace(owner=owner) for id, owner in owners.items()))
    expected: dict[tuple[str, ...] | None, str] = {
        ("me",): "ad",
        ("you",): "b",
        ("x",): "",
        (): "",
        ("me", "you"): "abd",
        ("you", "x", "me"): "abd",
        ("x", "y"): "",
        None: "abcd",
    }
    for owners, found in expected.items():
        assert "".join(ids(store, owners=owners)) == found, owners
        assert "".join(ids(store, owners=owners, sort=(Sort("name", True),))) == found[::-1], owners
        assert store.count("things", Query(owners=owners)) == len(found), owners


def test_a_page_has_the_fingerprint_of_each_item(store: Store) -> None:
    """And what each item has besides its body, in the order of the bodies, forwards and backwards."""
    assert store.page("things", Query())[:3] == ([], [], [])
    records = [
        record(id, stock=n)._replace(fingerprint=f"of {id}", removed=b'{"a":"%b"}' % id.encode() if n % 2 else None)
        for n, id in enumerate("abcd")
    ]
    insert(store, *records)
    expected = {each.body: (each.fingerprint, each.removed) for each in records}
    for sort in ((), (Sort("stock", True),), (Sort("price"), Sort("name"))):
        for backward in (False, True):
            page = store.page("things", Query(limit=3, sort=sort, backward=backward))
            assert len(page.bodies) == 3
            pairs = zip(page.fingerprints, page.removed, strict=True)
            assert list(pairs) == [expected[body] for body in page.bodies]


@pytest.mark.parametrize("query", [Query(limit=50), Query(sort=(Sort("stock"),)), Query(search="a")], ids=str)
def test_a_page_has_the_change_token_of_its_items(store: Store, query: Query) -> None:
    """Also while others write: each change token belongs to one number of items, and the page has that number."""
    sizes = {store.change_token("things"): 0}

    def insert(transaction: Transaction) -> str:
        transaction.insert("things", record(f"{len(sizes):03}", name="a"))
        return transaction.change_token("things")

    def write() -> None:
        for size in range(1, 50):
            sizes[store.write(insert)] = size

    writer = threading.Thread(target=write)
    writer.start()
    pages = []
    while writer.is_alive() or not pages:
        pages.append(store.page("things", query))
    join(writer)
    pages.append(store.page("things", query))
    assert [sizes[page.change_token] for page in pages] == [len(page.bodies) for page in pages]
    assert len(pages[-1].bodies) == 49


def test_paging_returns_every_remaining_item_once(store: Store) -> None:
    """While others insert, change and delete, paging by position returns each remaining item exactly once."""
    staying = [f"{n:06}" for n in range(0, 8_000, 2)]
    insert(store, *(record(id) for id in staying))
    stop = threading.Event()

    def disturb(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311
        own: list[str] = []
        while not stop.is_set():
            if own and chance.random() < 0.4:
                gone = own.pop(chance.randrange(len(own)))
                store.write(lambda transaction, id=gone: transaction.delete("things", id))  # type: ignore[misc]
            elif own and chance.random() < 0.3:
                store.write(lambda transaction: transaction.update("things", record(own[-1], 2)))
            else:
                own.append(f"{chance.randrange(8_000):06}-{seed}-{len(own)}-{chance.random()}")
                insert(store, record(own[-1]))

    writers = [threading.Thread(target=disturb, args=(seed,)) for seed in (1, 2)]
    for writer in writers:
        writer.start()
    seen = ids_of(walk(store, Query(limit=40)), Query())
    stop.set()
    join(*writers)
    assert all(one < other for one, other in pairwise(seen))
    assert [id for id in seen if "-" not in id] == staying


def test_a_page_ends_by_its_bytes(store: Store) -> None:
    """It has as many items as fit, starting with the one nearest to the position; the next page continues there."""
    size = fill(store, 10, 9000)[0]
    for sort, backward, search in product(SORTS, (False, True), ("", "X")):
        query = Query(sort=sort, limit=8, backward=backward, search=search)
        pages = list(walk(store, query, 3 * size))
        assert [(len(page.bodies), page.more, page.cut) for page in pages] == [(3, True, True)] * 3 + [
            (1, False, False)
        ]
        assert ids_of(pages, query) == ids(store, sort=sort), query


def test_a_page_is_only_cut_by_its_bytes(store: Store) -> None:
    """A page that ends by its limit or at the end of the list is not cut; and a page has at least one item."""
    size = fill(store, 4, 9000)[0]
    ends = [store.page("things", Query(limit=limit), 3 * size) for limit in (3, 4)]
    assert [(len(page.bodies), page.more, page.cut) for page in ends] == [(3, True, False), (3, True, True)]
    whole = store.page("things", Query(), 4 * size)
    assert (len(whole.bodies), whole.more, whole.cut) == (4, False, False)
    small = store.page("things", Query(limit=3), 1)
    assert (len(small.bodies), small.more, small.cut) == (1, True, True)


def test_what_older_forms_show_counts(store: Store) -> None:
    """The bytes beside the bodies are limited together with them."""
    insert(store, *(record(id)._replace(removed=b"x" * 1000) for id in "abc"))
    size = len(record("a").body) + 1000
    page = store.page("things", Query(), 2 * size)
    assert (len(page.bodies), page.more, page.cut) == (2, True, True)


def test_the_values_of_a_field_are_counted(store: Store) -> None:
    """The most frequent first, null before others, at most so many; only of the items of the query."""
    insert(store, *SAMPLE, record("e", price=Decimal("12.50"), sold=False, stock=2**63 - 1))
    counted = {
        name: store.groups("things", Query(sort=(Sort(name),)), 9) for name in ("price", "sold", "stock", "sku", "name")
    }
    assert counted == {
        "price": [(12.5, 2), (None, 1), (0.1, 1), (7, 1)],
        "sold": [(None, 2), (0, 2), (1, 1)],
        "stock": [(-2, 1), (0, 1), (3, 1), (9, 1), (2**63 - 1, 1)],
        "sku": [(None, 4), ("L1", 1)],
        "name": [("", 1), ("100% \\_wool", 1), ("Lamp", 1), ("lampshade", 1), ("Éclair", 1)],
    }
    chosen = Query((Filter("tags", Op.EQ, "red"),), sort=(Sort("price"),))
    assert store.groups("things", chosen, 1) == [(7, 1)]

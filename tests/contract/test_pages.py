"""Pages: in the requested order, without gaps between them, and limited in bytes."""

import json
import random
import threading
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from restkeeper.storage.contract import Position, Query, Sort, Store, Transaction
from restkeeper.web import exactjson
from tests.things import SAMPLE, SORTS, fill, ids, insert, record
from tests.waiting import join


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ((), "abcd"),
        ((Sort("id", True),), "dcba"),
        ((Sort("price"),), "cdba"),
        ((Sort("price", True),), "abdc"),
        ((Sort("name"),), "dabc"),
        ((Sort("sold"), Sort("stock", True)), "cdba"),
        ((Sort("sold", True), Sort("stock")), "abdc"),
    ],
)
def test_sorting(store: Store, sort: tuple[Sort, ...], order: str) -> None:
    """Keys sort in order; nulls come first ascending; ties are sorted by id in the direction of the last key."""
    insert(store, *SAMPLE)
    assert ids(store, sort=sort) == list(order)


@pytest.mark.parametrize(
    "sort",
    [
        (),
        (Sort("id", True),),
        (Sort("price"),),
        (Sort("price", True),),
        (Sort("stock"), Sort("price", True)),
        (Sort("price", True), Sort("name"), Sort("sold", True)),
        (Sort("sku"), Sort("id", True)),
        (Sort("stock", True), Sort("id"), Sort("name")),
    ],
)
def test_pages_together_are_the_whole_list(store: Store, sort: tuple[Sort, ...]) -> None:
    """Page after page, forwards and backwards, has the order of the whole list, whatever ties and nulls it has."""
    chance = random.Random(7)  # noqa: S311
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
            for n in range(100)
        ),
    )
    whole = ids(store, sort=sort)
    assert len(whole) == 100
    for backward in (False, True):
        seen: list[str] = []
        page = store.page("things", Query(sort=sort, limit=7, backward=backward))
        while True:
            batch = [exactjson.loads(body)["id"] for body in page.bodies]
            seen = batch + seen if backward else seen + batch
            if not page.more:
                break
            after = tuple(json.loads(json.dumps(page.first if backward else page.last)))  # as a client sends it back
            assert {type(value) for value in after} <= {str, int, float, type(None)}
            page = store.page("things", Query(sort=sort, limit=7, backward=backward, after=after))
        assert seen == whole


@pytest.mark.parametrize(
    ("sort", "after"),
    [
        ((), (7,)),
        ((Sort("price"),), ("x", "a")),
        ((Sort("stock", True),), ("", 1.5)),
        ((Sort("name"),), (2**63 - 1, "a")),
        ((Sort("sold"),), (-0.5, None)),
        ((Sort("updated_at", True),), (1.5, "a")),
    ],
)
def test_an_invented_position_is_no_error(store: Store, sort: tuple[Sort, ...], after: Position) -> None:
    """The store returns a page."""
    insert(store, *SAMPLE)
    for backward in (False, True):
        assert len(store.page("things", Query(sort=sort, after=after, backward=backward)).bodies) <= len(SAMPLE)


def test_offset_and_limit(store: Store) -> None:
    """An offset skips items; a limit ends the page, which says whether there are more."""
    insert(store, *SAMPLE)
    assert ids(store, offset=1, limit=2) == ["b", "c"]
    assert [store.page("things", Query(limit=limit)).more for limit in (3, 4, 5)] == [True, False, False]
    assert store.page("things", Query(offset=9, limit=2)).bodies == []


def test_the_items_of_an_owner(store: Store) -> None:
    """Items of other owners or without one are neither listed nor counted; without an owner in the query all are."""
    owners = {"a": "me", "b": "you", "c": None, "d": "me"}
    insert(store, *(record(id)._replace(owner=owner) for id, owner in owners.items()))
    owned = [(who, ids(store, owner=who), store.count("things", Query(owner=who))) for who in ("me", "you", "x", None)]
    assert owned == [("me", ["a", "d"], 2), ("you", ["b"], 1), ("x", [], 0), (None, ["a", "b", "c", "d"], 4)]


@pytest.mark.parametrize("sort", [(), (Sort("stock", True),), (Sort("price"), Sort("name"))], ids=str)
def test_a_page_has_the_fingerprint_of_each_item(store: Store, sort: tuple[Sort, ...]) -> None:
    """And what each item has besides its body, in the order of the bodies, forwards and backwards."""
    records = [
        record(id, stock=n)._replace(fingerprint=f"of {id}", older=b'{"a":"%b"}' % id.encode() if n % 2 else None)
        for n, id in enumerate("abcd")
    ]
    insert(store, *records)
    for query in (Query(limit=3, sort=sort), Query(limit=3, sort=sort, backward=True)):
        page = store.page("things", query)
        expected = {each.body: (each.fingerprint, each.older) for each in records}
        assert len(page.bodies) == 3
        pairs = zip(page.fingerprints, page.older, strict=True)
        assert list(pairs) == [expected[body] for body in page.bodies]


def test_an_empty_page_has_no_fingerprints(store: Store) -> None:
    """Its lists are all empty."""
    assert store.page("things", Query())[:3] == ([], [], [])


@pytest.mark.parametrize("query", [Query(limit=50), Query(sort=(Sort("stock"),)), Query(search="a")], ids=str)
def test_a_page_has_the_revision_of_its_items(store: Store, query: Query) -> None:
    """Also while others write: each revision belongs to one number of items, and the page has that number."""
    sizes = {store.revision("things"): 0}

    def insert(transaction: Transaction) -> str:
        transaction.insert("things", record(f"{len(sizes):03}", name="a"))
        return transaction.revision("things")

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
    assert [sizes[page.revision] for page in pages] == [len(page.bodies) for page in pages]
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
    seen: list[str] = []
    after: tuple[Any, ...] = ()
    while True:
        page = store.page("things", Query(limit=40, after=after))
        seen += [exactjson.loads(body)["id"] for body in page.bodies]
        if not page.more:
            break
        after = page.last
    stop.set()
    join(*writers)
    assert all(one < other for one, other in pairwise(seen))
    assert [id for id in seen if "-" not in id] == staying


@pytest.mark.parametrize("sort", SORTS, ids=str)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("search", ["", "X"])
def test_a_page_ends_by_its_bytes(store: Store, sort: tuple[Sort, ...], backward: bool, search: str) -> None:
    """It has as many items as fit, starting with the one nearest to the position."""
    size = fill(store, 10, 9000)[0]
    page = store.page("things", Query(sort=sort, limit=8, backward=backward, search=search), 3 * size)
    assert (len(page.bodies), page.more, page.cut) == (3, True, True)
    whole = ids(store, sort=sort)
    assert [exactjson.loads(body)["id"] for body in page.bodies] == (whole[-3:] if backward else whole[:3])


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
    insert(store, *(record(id)._replace(older=b"x" * 1000) for id in "abc"))
    size = len(record("a").body) + 1000
    page = store.page("things", Query(), 2 * size)
    assert (len(page.bodies), page.more, page.cut) == (2, True, True)


@pytest.mark.parametrize("sort", SORTS, ids=str)
@pytest.mark.parametrize("backward", [False, True])
def test_pages_limited_in_bytes_are_the_whole_list(store: Store, sort: tuple[Sort, ...], backward: bool) -> None:
    """The next page continues where the bytes ended the page before."""
    fill(store, 30, 1000)
    seen: list[str] = []
    after: tuple[Any, ...] = ()
    more = True
    while more:
        page = store.page("things", Query(sort=sort, limit=7, backward=backward, after=after), 5000)
        batch = [exactjson.loads(body)["id"] for body in page.bodies]
        seen = batch + seen if backward else seen + batch
        after, more = page.first if backward else page.last, page.more
    assert seen == ids(store, sort=sort)

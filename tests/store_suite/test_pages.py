"""Pages: in the requested order, without gaps between them, and limited in bytes."""

import json
import random
import threading
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import partial
from itertools import chain, pairwise

import pytest

from restkeeper import exactjson
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.interface import POSITION, Page, Query, Sort
from tests.things import ids, insert, record
from tests.waiting import join


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


def test_a_page_has_the_fingerprint_of_each_item(store: Store) -> None:
    """And what each item has besides its body, in the order of the bodies, forwards and backwards."""
    assert store.page("things", Query())[:3] == ([], [], [])
    records = [
        record(id, stock=n)._replace(
            fingerprint=f"of {id}", removed_fields=b'{"a":"%b"}' % id.encode() if n % 2 else None
        )
        for n, id in enumerate("abcd")
    ]
    insert(store, *records)
    expected = {each.body: (each.fingerprint, each.removed_fields) for each in records}
    for sort in ((), (Sort("stock", True),), (Sort("price"), Sort("name"))):
        for backward in (False, True):
            page = store.page("things", Query(limit=3, sort=sort, backward=backward))
            assert len(page.bodies) == 3
            pairs = zip(page.fingerprints, page.removed_fields, strict=True)
            assert list(pairs) == [expected[body] for body in page.bodies]


@pytest.mark.parametrize("query", [Query(limit=50), Query(sort=(Sort("stock"),)), Query(search=("a",))], ids=str)
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


def disturb(last: str, number: int, transaction: Transaction) -> None:
    """What others do while a client is at this page, the last item of which is this one."""
    for new in (f"000-{number}", f"{last}-", f"199-{number}"):
        transaction.insert("things", record(new))
    transaction.update("things", record(last[:3], 2))
    if number:
        transaction.delete("things", f"000-{number - 1}")
        transaction.delete("things", f"199-{number - 1}")


def test_paging_returns_every_remaining_item_once(store: Store) -> None:
    """While others insert, change and delete before and behind each page, each remaining item is on one page."""
    staying = [f"{n:03}" for n in range(200)]
    insert(store, *(record(id) for id in staying))
    seen: list[str] = []
    for number, page in enumerate(walk(store, Query(limit=7))):
        seen += ids_of([page], Query())
        store.write(partial(disturb, seen[-1], number))
    assert all(one < other for one, other in pairwise(seen))
    assert [id for id in seen if "-" not in id] == staying

"""A collection whose items are of another revision than the program's: nothing reads or writes some of them."""

from collections.abc import Callable
from functools import partial

import pytest

from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, RevisionDiffers
from restkeeper.storage.interface import Collection, Event, Filter, Index, Op, Query, Related, Sort, StoredSchema
from tests.things import FIELDS, OTHERS, insert, record

NEWER = Collection("things", FIELDS, (Index("sku", unique=True),), schema=StoredSchema("2-a", 2, "{}"))
NAMED = Query((Filter("name", Op.EQ, "x"),))


@pytest.fixture
def store(open_one: Callable[..., Store]) -> Store:
    """A store with two items, which are of revision 1, opened by a program of revision 2."""
    store = open_one(NEWER, OTHERS)
    insert(store, record("a", sku="1"), record("b", sku="2"))
    store.write(lambda transaction: transaction.set_revision("things", 2, 1, ""))
    return store


def write(work: Callable[[Transaction], object]) -> Callable[[Store], object]:
    return lambda store: store.write(work)


NEEDING: dict[str, Callable[[Store], object]] = {
    "page": lambda store: store.page("things", Query(sort=(Sort("id"),))),
    "page without items": lambda store: store.page("things", NAMED),
    "count": lambda store: store.count("things"),
    "count of some": lambda store: store.count("things", NAMED),
    "groups": lambda store: store.groups("things", Query(NAMED.filters, sort=(Sort("name"),)), 10),
    "related": lambda store: store.related([Related("things", "name", ["x"], 1)], 10_000),
    "change token": lambda store: store.change_token("things"),
    "find": write(lambda transaction: transaction.find("things", NAMED, 1)),
    "change token inside": write(lambda transaction: transaction.change_token("things")),
    "insert": write(lambda transaction: transaction.insert("things", record("c"))),
    "insert all": write(lambda transaction: transaction.insert_all("things", [record("c")])),
    "update": write(lambda transaction: transaction.update("things", record("a", 2))),
    "delete": write(lambda transaction: transaction.delete("things", "a")),
}


@pytest.mark.parametrize("need", NEEDING.values(), ids=NEEDING)
def test_it_is_refused(store: Store, need: Callable[[Store], object]) -> None:
    """Whether the items are of another revision, or are just converted; other collections go on."""
    former = list(store.scan("things"))
    for revision in (1, -1):
        with pytest.raises(RevisionDiffers, match=r"^the items of things .* this program has revision 2: "):
            need(store)
        assert list(store.scan("things")) == former and store.stored()["things"][:2] == (revision, 2)
        store.write(lambda transaction: transaction.set_revision("things", 1, -1, "")) if revision == 1 else None
    insert(store, record("c"), collection="others")
    assert store.count("others") == 1 and store.read("things", "a") == former[0]


def test_a_refused_change_stores_nothing_else(store: Store) -> None:
    """Nor does what the same transaction has changed in other collections."""

    def work(transaction: Transaction) -> None:
        transaction.insert("others", record("c"))
        transaction.record(Event("other.created", "others", "c", "2026", b"{}"))
        transaction.insert("things", record("c"))

    before = store.last_event()
    with pytest.raises(RevisionDiffers):
        store.write(work)
    assert store.count("others") == 0 and store.last_event() == before


def converted(transaction: Transaction, **skus: str) -> None:
    """Give all items the new revision, and these values."""
    source = transaction.set_aside("things")
    assert [each.id for each in transaction.unconverted(source, "a", 5)] == ["b"]
    for each in transaction.unconverted(source, "", 5):
        transaction.store_converted("things", source, record(each.id, sku=skus[each.id])._replace(fingerprint="2-a"))


def test_all_items_are_converted_at_once(store: Store) -> None:
    """Each gets the unique value that the other one had. Their number stays."""
    store.convert(["things"], partial(converted, a="2", b="1"), "")
    assert [each.fingerprint for each in store.scan("things")] == ["2-a"] * 2
    assert store.stored()["things"][:2] == (2, 2) and not store.differing()
    assert store.count("things", Query((Filter("sku", Op.EQ, "1"),))) == 1 and store.count("things") == 2
    insert(store, record("c", sku="3"))
    with pytest.raises(DuplicateValue):
        insert(store, record("d", sku="2"))


@pytest.mark.parametrize("fault", [DuplicateValue, ZeroDivisionError])
def test_a_conversion_that_fails_changes_nothing(store: Store, fault: type[Exception]) -> None:
    """And it can be done again."""
    former = list(store.scan("things"))

    def fail(transaction: Transaction) -> None:
        converted(transaction, a="1", b="1" if fault is DuplicateValue else "2")
        if fault is not DuplicateValue:  # which the end of the transaction can raise
            raise fault

    with pytest.raises(fault):
        store.convert(["things"], fail, "")
    assert list(store.scan("things")) == former and store.stored()["things"][:2] == (1, 2)
    store.convert(["things"], partial(converted, a="1", b="2"), "")


def test_the_others_are_named(store: Store) -> None:
    """With what to do: for items of a former and of a later revision, and while they are converted."""
    remedies = {1: "run `restkeeper migrate`", -1: "wait, or repeat `restkeeper migrate`", 3: "update this program"}
    former = 1
    for revision, remedy in remedies.items():
        change = partial(Transaction.set_revision, collection="things", former=former, revision=revision, now="")
        store.write(change)
        former = revision
        (each,) = store.differing()
        assert each.detail.endswith(f"this program has revision 2: {remedy}")

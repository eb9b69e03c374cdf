"""Records: what is inserted is read, unique values are used once, and each change makes a new change token."""

from collections.abc import Callable
from decimal import Decimal

import pytest

from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue
from restkeeper.storage.interface import (
    Collection,
    Event,
    EventFilter,
    Field,
    Filter,
    Index,
    Kind,
    Op,
    Query,
    Sort,
    StoredSchema,
)
from tests.things import FIELDS, OTHERS, SAMPLE, THINGS, insert, record


def test_a_record_has_what_its_body_no_longer_has(store: Store) -> None:
    """`removed` is read and scanned as it was stored, and an update sets and deletes it."""
    removed = '{"2.title":"é\\n"}'.encode()
    first = record("a", name="Ünï ☃", price=Decimal("12.50"))._replace(owner="me", removed=removed)
    insert(store, first, record("b"))
    assert store.read("things", "a") == first
    assert store.write(lambda transaction: transaction.read("things", "a")) == first
    assert [each.removed for each in store.scan("things")] == [removed, None]
    for changed in (record("a", 2)._replace(removed=b"{}"), record("a", 3)):
        changed = changed._replace(owner="me")
        store.write(lambda transaction, changed=changed: transaction.update("things", changed))  # type: ignore[misc]
        assert store.read("things", "a") == changed


def test_collections_do_not_mix(store: Store) -> None:
    insert(store, record("a", name="thing"))
    insert(store, record("a", name="other"), collection="others")
    assert b"thing" in store.read("things", "a").body
    assert b"other" in store.read("others", "a").body
    assert store.count("things") == store.count("others") == 1


def test_a_duplicate_of_a_unique_value_is_refused(store: Store) -> None:
    """A second record with a unique value raises DuplicateValue, which names the field; null is never a duplicate."""
    insert(store, record("a", sku="s", mail="Ada@X.org"), record("x"), record("y"))
    duplicates = {"id": record("a"), "sku": record("b", sku="s"), "mail": record("c", mail="aDA@x.ORG")}
    for field, duplicate in duplicates.items():
        with pytest.raises(DuplicateValue) as caught:
            insert(store, duplicate)
        assert caught.value.fields == (field,)
    assert store.count("things") == 3


def test_a_unique_value_can_be_reused(store: Store) -> None:
    """After a delete or a change the former value can be used again."""
    insert(store, record("a", sku="s"), record("b", sku="t"))
    store.write(lambda transaction: transaction.delete("things", "a"))
    store.write(lambda transaction: transaction.update("things", record("b", 2, sku="u")))
    insert(store, record("c", sku="s"), record("d", sku="t"))
    assert store.count("things") == 3


def test_names_may_have_underscores(open_one: Callable[..., Store]) -> None:
    """Collections and fields with similar names have separate indexes, and errors name the right field."""
    fields = {"id": FIELDS["id"], "c": Field("c", Kind.TEXT), "b_c": Field("b_c", Kind.TEXT)}
    store = open_one(
        Collection("a_b", fields, (Index("c", unique=True),)), Collection("a", fields, (Index("b_c", unique=True),))
    )
    for collection, field in (("a_b", "c"), ("a", "b_c")):
        insert(store, record("1", b_c="x", c="x"), collection=collection)
        with pytest.raises(DuplicateValue) as caught:
            insert(store, record("2", b_c="x", c="x"), collection=collection)
        assert caught.value.fields == (field,)


def test_the_change_token_differs_after_every_change(store: Store) -> None:
    """Insert, update and delete each make a new change token; the change token of other collections does not change."""
    seen = [store.change_token("things")]
    others = store.change_token("others")
    for work in (
        lambda transaction: transaction.insert("things", record("a")),
        lambda transaction: transaction.update("things", record("a", 2)),
        lambda transaction: transaction.delete("things", "a"),
    ):
        store.write(work)
        seen.append(store.change_token("things"))
    assert len(set(seen)) == 4
    assert store.change_token("others") == others


def test_two_stores_have_no_change_token_in_common(open_one: Callable[..., Store]) -> None:
    one, two = open_one(THINGS), open_one(THINGS)
    assert one.change_token("things") != two.change_token("things")


def test_scan_returns_all_records_in_order(store: Store) -> None:
    insert(store, *reversed(SAMPLE))
    assert list(store.scan("things")) == SAMPLE


def test_the_schema_of_a_collection_is_registered(open_one: Callable[..., Store]) -> None:
    schema = StoredSchema("0123abcd", 2, 1, '{"name":"str"}')
    store = open_one(Collection("a", {}, schema=schema), Collection("b", {}))
    assert (store.schemas("a"), store.schemas("b")) == ([schema], [])


READS: list[Callable[[Store], object]] = [
    lambda store: store.read("a", "1"),
    lambda store: store.look_up([("a", "1")]),
    lambda store: store.page("a", Query()),
    lambda store: list(store.scan("a")),
    lambda store: store.write(lambda transaction: transaction.read("a", "1")),
    lambda store: store.events("", EventFilter(("a",)), 10),
    lambda store: store.write(lambda transaction: transaction.lease("w", 1.0, 2.0, 1)),
]


@pytest.mark.parametrize("read", READS, ids=["read", "look_up", "page", "scan", "write", "events", "lease"])
def test_a_collection_knows_the_schema_of_a_record(
    open_one: Callable[..., Store], read: Callable[[Store], object]
) -> None:
    """When it gets a record or an event, it has learned the schemas that are registered, in order, once."""
    learned: list[list[StoredSchema]] = []
    schema = StoredSchema("0123abcd", 1, 1, "{}")
    fields = {"id": FIELDS["id"]}
    store = open_one(Collection("a", fields, schema=schema, on_schemas=lambda schemas: learned.append(list(schemas))))

    def work(transaction: Transaction) -> None:
        transaction.subscribe("w", [])
        transaction.insert("a", record("1")._replace(fingerprint="0123abcd"))
        transaction.record(Event("a.created", "a", "1", "2026", b"{}", fingerprint="0123abcd"))

    store.write(work)
    store.last_event()  # the event has its position
    store.write(lambda transaction: transaction.queue("w", EventFilter(("a",)), 1.0, 10))
    read(store)
    read(store)
    assert learned == [[schema]]


def test_the_fingerprints_of_other_revisions_are_known(open_one: Callable[..., Store]) -> None:
    """Each once, of one collection, as it is inside a transaction, too."""
    fields = {"id": FIELDS["id"]}
    first, second = StoredSchema("aa", 1, 1, "{}"), StoredSchema("2-bb", 2, 2, "{}")
    store = open_one(Collection("a", fields, schema=second), Collection("b", fields, schema=first), OTHERS)
    for collection in ("a", "b", "others"):
        for number, fingerprint in enumerate(["cc", "2-bb", "2-dd", "aa", "20-aa", "cc", "aa"]):
            insert(store, record(f"{number}")._replace(fingerprint=fingerprint), collection=collection)
    for sort, most in (((Sort("id"),), 3), ((), 0)):  # a page that does not use fields need not have them
        others = {name: store.page(name, Query(sort=sort, limit=1)).others for name in ("a", "b", "others")}
        expected = {"a": ["20-aa", "aa", "cc"], "b": ["2-bb", "2-dd", "20-aa"], "others": []}
        assert {name: list(each) for name, each in others.items()} == {n: e[:most] for n, e in expected.items()}
    assert list(store.page("b", Query((Filter("id", Op.EQ, "?"),), limit=1)).others) == ["2-bb", "2-dd", "20-aa"]

    wanted = [("a", ["aa", "20-aa"]), ("a", ["cc"]), ("b", ["aa", "2-dd"]), ("b", ["none"])]

    def some(part: Transaction | Store, most: int) -> list[list[str]]:
        return [sorted(each.id for each in records) for records in part.of_fingerprints(wanted, most)]

    for found in (store.write(lambda transaction: some(transaction, 3)), some(store, 3)):
        assert found == [["3", "4", "6"], ["0", "5"], ["2"], []]
    assert [len(each) for each in some(store, 1)] == [1, 1, 1, 0]

    def work(transaction: Transaction) -> list[str]:
        for id in ("0", "3", "4", "6"):
            transaction.delete("a", id)
        transaction.update("a", record("5", version=2)._replace(fingerprint="2-bb"))
        return transaction.other_fingerprints("a")

    assert store.write(work) == list(store.page("a", Query(sort=(Sort("id"),))).others) == []

"""Records: what is inserted is read, unique values are used once, and each change makes a new change token."""

from collections.abc import Callable
from decimal import Decimal

import pytest

from restkeeper.storage.base import Store
from restkeeper.storage.errors import DuplicateValue
from restkeeper.storage.interface import (
    Collection,
    Field,
    Index,
    Kind,
    StoredSchema,
)
from tests.things import FIELDS, SAMPLE, THINGS, insert, record, schemas_of


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
    """A second record with a unique value raises DuplicateValue, which has the field and that record.

    Null is never a duplicate.
    """
    insert(store, record("a", sku="s", mail="Ada@X.org"), record("x"), record("y"))
    duplicates = {"id": record("a"), "sku": record("b", sku="s"), "mail": record("c", mail="aDA@x.ORG")}
    changed = record("x", 2, sku="s")
    for field, duplicate in duplicates.items():
        with pytest.raises(DuplicateValue) as caught:
            insert(store, duplicate, record("z"))
        assert (caught.value.fields, caught.value.collection) == ((field,), "things")
        assert caught.value.of is duplicate
    with pytest.raises(DuplicateValue) as caught:
        store.write(lambda transaction: transaction.update("things", changed))
    assert caught.value.of is changed
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
    schema = StoredSchema("0123abcd", 2, '{"name":"str"}')
    store = open_one(Collection("a", {}, schema=schema), Collection("b", {}))
    assert (schemas_of(store, "a"), schemas_of(store, "b")) == ([schema], [])

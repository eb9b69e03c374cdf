"""Records: what is inserted is read, unique values are used once, and each change makes a new change token."""

from collections.abc import Callable
from decimal import Decimal

import pytest

from restkeeper.storage.base import Store
from restkeeper.storage.errors import DuplicateValue
from restkeeper.storage.interface import Collection, Field, Index, Kind
from tests.things import FIELDS, SAMPLE, THINGS, insert, record


def test_a_record_has_what_its_body_no_longer_has(store: Store) -> None:
    """`removed_fields` is read and scanned as it was stored, and an update sets and deletes it."""
    removed = '{"2.title":"é\\n"}'.encode()
    first = record("a", name="Ünï ☃", price=Decimal("12.50"))._replace(owner="me", removed_fields=removed)
    insert(store, first, record("b"))
    assert store.read("things", "a") == first
    assert store.write(lambda transaction: transaction.read("things", "a")) == first
    assert [each.removed_fields for each in store.scan("things")] == [removed, None]
    for changed in (record("a", 2)._replace(removed_fields=b"{}"), record("a", 3)):
        changed = changed._replace(owner="me")
        store.write(lambda transaction, changed=changed: transaction.update("things", changed))  # type: ignore[misc]
        assert store.read("things", "a") == changed


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


def test_two_stores_have_no_change_token_in_common(open_one: Callable[..., Store]) -> None:
    one, two = open_one(THINGS), open_one(THINGS)
    assert one.change_token("things") != two.change_token("things")


def test_scan_returns_all_records_in_order(store: Store) -> None:
    insert(store, *reversed(SAMPLE))
    assert list(store.scan("things")) == SAMPLE

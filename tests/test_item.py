"""An item by its schema: pure functions of values, without a store, a request or a caller."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from restkeeper import exactjson
from restkeeper.errors import BodyTooLarge, EditConflict, IllegalTransition, ValidationFailed
from restkeeper.resources.item import ItemForm, ItemLimits
from restkeeper.storage.errors import RevisionDiffers
from restkeeper.storage.interface import Record
from tests.shapes import BRANDS, JOBS, ORDERS, PRODUCTS, SETTINGS

PRODUCT = ItemForm(PRODUCTS, PRODUCTS.newest)
FIRST, LATER = "2026-11-29T00:00:00.000000Z", "2026-11-29T00:00:01.000000Z"


def made(form: ItemForm = PRODUCT, owner: str | None = None, **sent: Any) -> Record:
    return form.create(sent, id="a", now=FIRST, owner=owner)


def shown(record: Record, form: ItemForm = PRODUCT) -> dict[str, Any]:
    value: dict[str, Any] = exactjson.loads(form.body(record))
    return value


def test_a_new_item_has_defaults_and_the_fields_of_the_server() -> None:
    record = made(name="Lamp", price=Decimal("9.5"))
    item = shown(record)
    assert (record.id, record.version, record.updated_at, record.fingerprint) == ("a", 1, FIRST, PRODUCT.fingerprint)
    assert [*item][0] == "id" and item["price"] == 9.5 and item["stock"] == 10 and item["label"] == "Lamp (10)"
    assert (item["created_at"], item["updated_at"], item["version"]) == (FIRST, FIRST, 1)


@pytest.mark.parametrize(
    ("sent", "pointers"),
    [
        ({}, ["#/name"]),
        ({"name": "", "stock": -1, "more": 1}, ["#/name", "#/stock", "#/more"]),
        ({"name": "a", "id": "b", "version": 1}, ["#/id", "#/version"]),
        ({"name": "a", "size": {"width": "x"}}, ["#/size/width"]),
        ({"name": "a", "tags": ["a\0"]}, ["#/tags/0"]),
    ],
)
def test_all_faults_are_told(sent: dict[str, Any], pointers: list[str]) -> None:
    with pytest.raises(ValidationFailed) as raised:
        PRODUCT.create(sent, id="a", now=FIRST)
    assert sorted(fault["pointer"] for fault in raised.value.members["errors"]) == sorted(pointers)


def test_a_replacement_takes_defaults_and_a_patch_keeps_values() -> None:
    record = made(name="Lamp", stock=3)
    replaced = PRODUCT.replace(record, {"name": "Desk"}, now=LATER)
    merged = PRODUCT.merge(record, {"name": "Desk"}, now=LATER)
    assert (shown(replaced)["stock"], shown(merged)["stock"]) == (10, 3)
    assert (replaced.version, replaced.updated_at, shown(replaced)["created_at"]) == (2, LATER, FIRST)
    assert shown(merged)["label"] == "Desk (3)"


@pytest.mark.parametrize("change", [PRODUCT.replace, PRODUCT.merge])
def test_the_same_record_is_no_change(change: Callable[..., Record]) -> None:
    record = made(name="Lamp")
    assert change(record, shown(record), now=LATER) is record


def test_a_change_of_what_was_read_before_is_refused() -> None:
    record = made(name="Lamp")
    with pytest.raises(EditConflict):
        PRODUCT.replace(PRODUCT.merge(record, {"stock": 1}, now=LATER), {"name": "Desk", "version": 1}, now=LATER)
    with pytest.raises(ValidationFailed):
        PRODUCT.replace(record, {"name": "Desk", "created_at": LATER}, now=LATER)


def test_a_state_moves_as_it_may() -> None:
    record = made(name="Lamp")
    active = PRODUCT.merge(record, {"status": "active"}, now=LATER)
    assert shown(active)["status"] == "active"
    with pytest.raises(IllegalTransition) as raised:
        PRODUCT.merge(record, {"status": "archived"}, now=LATER)
    assert raised.value.members["allowed"] == ["active"]


def test_an_owner_that_is_left_out_stays() -> None:
    jobs = ItemForm(JOBS, JOBS.newest)
    record = made(jobs, owner="ada", title="paint")
    assert record.owner == "ada"
    assert jobs.replace(record, {"title": "clean"}, now=LATER).owner == "ada"
    assert jobs.replace(record, {"title": "clean", "owner": "bob"}, now=LATER).owner == "bob"


def test_only_a_function_sets_what_callers_read_alone() -> None:
    brands = ItemForm(BRANDS, BRANDS.newest)
    record = brands.create({"title": "Ray"}, id=BRANDS.key(1), now=FIRST)
    with pytest.raises(ValidationFailed):
        brands.merge(record, {"products": 5}, now=LATER)
    revised = brands.revise(record, {"title": "Ray", "products": 5}, now=LATER)
    assert shown(revised, brands)["products"] == 5 and shown(revised, brands)["id"] == 1


def test_an_exported_item_comes_back() -> None:
    record = PRODUCT.merge(made(name="Lamp"), {"stock": 3}, now=LATER)
    sent = {name: value for name, value in shown(record).items() if name != "label"}
    assert PRODUCT.restore(sent, id="other", now="2030-01-01T00:00:00.000000Z") == record


def test_an_item_has_a_largest_size() -> None:
    record = made(name="Lamp")
    for limits in (ItemLimits(len(record.body) + 5, 100), ItemLimits(10**6, 20)):
        with pytest.raises(BodyTooLarge):
            PRODUCT.merge(record, {"attributes": {"more": [1, 2, 3]}}, now=LATER, limits=limits)
    assert PRODUCT.merge(record, {"name": "Lamp"}, now=LATER, limits=ItemLimits(1, 1)) is record


def test_a_singleton_shows_no_id() -> None:
    settings = ItemForm(SETTINGS, SETTINGS.newest)
    assert "id" not in shown(made(settings, theme="dark"), settings)


def test_an_item_of_another_revision_is_not_read() -> None:
    newest, first = (ItemForm(ORDERS, ORDERS.revisions[number]) for number in (2, 1))
    with pytest.raises(RevisionDiffers):
        newest.body(made(first, note="as it was"))

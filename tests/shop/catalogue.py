"""Collections for each kind of write: with integer ids, references of each rule, a singleton, actions and functions.

Each item has a `name`, which does not change, a `value`, which each write changes, and the number of its `writes`,
which a function before each write counts. A function after each write adds an item to the log.
"""

from collections.abc import Mapping
from typing import Any

from marshmallow import Schema

from restkeeper import Application, Config, Index, IntegerReference, Items, ItemSchema, Reference, Resource, Text, Whole
from tests.shop import create_app as create_shop

Item = dict[str, Any]
FIRST = "none"  # the value of the singleton until it is changed


class BrandSchema(ItemSchema):
    """Who makes products."""

    name = Text(1, 100, required=True)
    value = Text(1, 100, required=True)
    writes = Whole(0, dump_only=True, dump_default=0)


class ProductSchema(BrandSchema):
    """What is sold; a brand that has one stays."""

    brand = IntegerReference("brands", allow_none=True, load_default=None)


class PartSchema(BrandSchema):
    """What belongs to a product, and is only deleted with it."""

    product = Reference("products", on_delete="cascade", required=True)


class OfferSchema(BrandSchema):
    """What is said of a product, and stays without it."""

    product = Reference("products", on_delete="null", allow_none=True, load_default=None)


class SettingsSchema(BrandSchema):
    """How the shop looks."""

    name = Text(1, 100, load_default="settings")
    value = Text(1, 100, load_default=FIRST)


class LogSchema(ItemSchema):
    """One write of an item: its type as in the feed, and the item with its value and the number of its writes."""

    type = Text(1, 10, required=True)
    item = Text(1, 100, required=True)
    writes = Whole(1, required=True)
    value = Text(1, 100, required=True)


class NewOfferSchema(Schema):
    """An offer, and the new value of its product."""

    name = Text(1, 100, required=True)
    value = Text(1, 100, required=True)


class StampSchema(Schema):
    """A new value."""

    value = Text(1, 100, required=True)


NAME = (Index("name"),)
BRANDS = Resource("brands", "brand", BrandSchema, indexes=NAME, ids="integer")
PRODUCTS = Resource("products", "product", ProductSchema, indexes=NAME)
PARTS = Resource("parts", "part", PartSchema, indexes=NAME, methods=["GET", "POST", "PUT", "PATCH"])
OFFERS = Resource("offers", "offer", OfferSchema, indexes=NAME)
SETTINGS = Resource("settings", "settings", SettingsSchema, singleton=True)
LOGS = Resource("logs", "log", LogSchema, methods=["GET"])
WRITTEN = (BRANDS, PRODUCTS, PARTS, OFFERS, SETTINGS)


@PRODUCTS.action("offer", body=NewOfferSchema)
def offer(product: Item, new: Item, items: Items) -> Item:
    """Offer a product: this changes the product, too."""
    items.create("offers", {**new, "product": product["id"]})
    return {**product, "value": new["value"]}


@SETTINGS.action("stamp", body=StampSchema)
def stamp(settings: Item, sent: Item, items: Items) -> Item:
    """Give the settings another value."""
    return {**settings, "value": sent["value"]}


@BRANDS.after("create", "update")
def show(brand: Item, before: Item | None, items: Items) -> None:
    """Give the settings the value of the brand."""
    items.change("settings", "settings", lambda settings: {**settings, "value": brand["value"]})


def count(item: Item, before: Item | None) -> Item:
    """Count a write of an item."""
    return {**item, "writes": item["writes"] + 1}


def log(item: Item | None, before: Item | None, items: Items) -> None:
    """Add a write of an item to the log."""
    written: Mapping[str, Any] = item or before or {}
    type = "deleted" if item is None else "created" if written["writes"] == 1 else "updated"
    items.create(
        "logs", {"type": type, "item": written["name"], **{name: written[name] for name in ("writes", "value")}}
    )


for resource in WRITTEN:
    resource.before("create", "update")(count)
    resource.after("create", "update", "delete")(log)


def create_app(config: Config | None = None, **options: Any) -> Application:
    """The service with these collections."""
    return create_shop(config, [*WRITTEN, LOGS], **options)

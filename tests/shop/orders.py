"""Orders, with actions, and functions before and after their writes."""

from contextlib import suppress
from typing import Any

from marshmallow import Schema, fields

from restkeeper import (
    Application,
    Config,
    Conflict,
    Items,
    ItemSchema,
    Lifecycle,
    Resource,
    Status,
    Text,
    Whole,
    returns,
)
from tests.shop import RESOURCES
from tests.shop import create_app as create_shop

Item = dict[str, Any]


class OrderIsPaid(Conflict):
    """An order that is paid cannot be changed any more."""


class OrderSchema(ItemSchema):
    """An order of one product."""

    product = Text(1, 64, required=True)
    note = Text(0, 100, load_default="")
    paid_with = Text(0, 20, load_default="")
    status = Status(Lifecycle("open", {"open": ("paid", "cancelled"), "paid": (), "cancelled": ()}))


class PaymentSchema(Schema):
    """How an order is paid."""

    method = Text(1, 20, required=True)


class FollowSchema(Schema):
    """The order that another one follows, and a note for both."""

    order = fields.String(required=True)
    note = fields.String(required=True)


class LogSchema(ItemSchema):
    """What happened."""

    text = Text(0, 100, required=True)
    number = Whole(required=True)


ORDERS = Resource("orders", "order", OrderSchema)
LOGS = Resource("logs", "log", LogSchema)


@ORDERS.action("pay", body=PaymentSchema, scope="orders:pay")
@returns(OrderIsPaid)
def pay(order: Item, payment: Item, items: Items) -> Item:
    """Pay an open order."""
    if order["status"] == "paid":
        raise OrderIsPaid("the order is paid already")
    product = items.read("products", order["product"])
    if not product["stock"]:
        raise Conflict("the product is out of stock")
    items.change("products", product["id"], lambda product: {**product, "stock": product["stock"] - 1})
    return {**order, "status": "paid", "paid_with": payment["method"]}


@ORDERS.action("follow", body=FollowSchema)
def follow(order: Item, sent: Item, items: Items) -> Item:
    """Note that an order follows another one."""
    items.change("orders", sent["order"], lambda found: {**found, "note": f"before {sent['note']}"})
    return {**order, "note": f"after {sent['note']}"}


@ORDERS.action("break")
def break_order(order: Item, items: Items) -> Item:
    """Change what cannot be changed, as the order's note says."""
    match order["note"]:
        case "collection":
            items.read("colours", "red")
        case "many":
            for number in range(1001):
                items.create("logs", {"text": "x", "number": number})
        case "caught":
            with suppress(Conflict):
                items.create("orders", {"product": "x", "note": "unlogged"})
            return None  # type: ignore[return-value]
        case "twice":
            items.change("orders", order["id"], lambda found: {**found, "paid_with": "x"})
            return {**order, "note": "y"}
        case "loop":
            items.create("logs", {"text": "endless", "number": 0})
    return "no item"  # type: ignore[return-value]


@ORDERS.action("close-day", of="collection")
def close_day(items: Items) -> dict[str, Any]:
    """Close the day: create a log, and delete it."""
    made = items.create("logs", {"text": "closed", "number": 1})
    assert items.read("logs", made["id"]) == made
    return {"deleted": items.delete("logs", made["id"])["text"]}


@ORDERS.before("create", "update")
def fill_in(order: Item, before: Item | None) -> Item:
    """Write the method in small letters; refuse what is not possible."""
    if before and before["status"] == "paid":
        raise OrderIsPaid("the order is paid already")
    return {**order, "paid_with": order["paid_with"].lower()}


@ORDERS.before("delete")
def protect(order: None, before: Item) -> None:
    """Leave paid orders."""
    if before["status"] == "paid":
        raise OrderIsPaid("a paid order stays")


@ORDERS.after("create", "update", "delete")
def log(order: Item | None, before: Item | None, items: Items) -> None:
    """Log each write, but refuse some."""
    if order and order["note"] == "self":
        items.change("orders", order["id"], lambda found: {**found, "note": "changed"})
    if order and order["note"] == "many logs":
        for number in range(20):
            items.create("logs", {"text": "x", "number": number})
    if order and order["note"] == "unlogged":
        raise Conflict("this cannot be logged")
    items.create("logs", {"text": "+" if before is None else "-" if order is None else "=", "number": 0})


@LOGS.after("create")
def repeat(entry: Item, before: None, items: Items) -> None:
    """Log a log for ever, if it says so."""
    if entry["text"] == "endless":
        items.create("logs", {"text": "endless", "number": 0})


def create_app(config: Config | None = None, **options: Any) -> Application:
    """The service with orders."""
    return create_shop(config, [*RESOURCES, ORDERS, LOGS], **options)

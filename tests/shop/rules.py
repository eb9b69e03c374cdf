"""Collections whose functions are rules: each looks at other items of its transaction before it writes."""

from collections.abc import Iterable
from typing import Any

from marshmallow import Schema

from restkeeper import (
    Application,
    Config,
    Conflict,
    Index,
    Items,
    ItemSchema,
    Reference,
    Resource,
    Text,
    Whole,
    find_items,
    read_item,
)
from tests.shop import create_app as create_shop

Item = dict[str, Any]


class ToolSchema(ItemSchema):
    """What is let."""

    name = Text(1, 40, required=True)
    price = Whole(0, 10_000, load_default=10)


class BookingSchema(ItemSchema):
    """Who has a tool, from one day until another one."""

    tool = Reference("tools", required=True)
    start = Text(1, 10, required=True, data_key="from")
    until = Text(1, 10, required=True)
    status = Text(1, 10, load_default="asked", dump_only=True)
    price = Whole(0, load_default=0, dump_only=True)


class InvoiceSchema(ItemSchema):
    """It has the next number: 1, 2, 3 …"""

    text = Text(0, 100, load_default="")
    number = Whole(0, load_default=0, dump_only=True)


class ProductSchema(ItemSchema):
    """What is sold. Its schema does not know that there is no stock below zero."""

    stock = Whole(-1000, 1000, load_default=0)


class SaleSchema(ItemSchema):
    """A piece of a product."""

    product = Reference("products", required=True)


class AccountSchema(ItemSchema):
    """Money of somebody in a bank."""

    bank = Text(1, 40, required=True)
    balance = Whole(-1_000_000, 1_000_000, load_default=0)


class SumSchema(Schema):
    """Some money."""

    amount = Whole(1, 1000, required=True)


class TransferSchema(SumSchema):
    """Money for another account."""

    to = Text(1, 100, required=True)


class WatchSchema(ItemSchema):
    """Who is awake on a day: by day or by night, and not both."""

    day = Text(1, 40, required=True)


TOOLS = Resource("tools", "tool", ToolSchema)
BOOKINGS = Resource("bookings", "booking", BookingSchema, indexes=(Index("tool"),))
INVOICES = Resource("invoices", "invoice", InvoiceSchema, indexes=(Index("number"),))
PRODUCTS = Resource("products", "product", ProductSchema)
SALES = Resource("sales", "sale", SaleSchema, indexes=(Index("product"),))
ACCOUNTS = Resource("accounts", "account", AccountSchema, indexes=(Index("bank"),))
DAYS = Resource("days", "day", WatchSchema, indexes=(Index("day"),))
NIGHTS = Resource("nights", "night", WatchSchema, indexes=(Index("day"),))
RESOURCES = (TOOLS, BOOKINGS, INVOICES, PRODUCTS, SALES, ACCOUNTS, DAYS, NIGHTS)


@BOOKINGS.before("create")
def set_price(booking: Item, before: Item | None) -> None:
    """The price is that of the tool."""
    booking["price"] = read_item("tools", booking["tool"])["price"]


@BOOKINGS.action("confirm")
def confirm(booking: Item, items: Items) -> None:
    """Confirm a booking, if the tool is free."""
    require_none(items.find("bookings", overlap(booking)))
    booking["status"] = "confirmed"


@BOOKINGS.action("confirm-by-view")
def confirm_by_view(booking: Item, items: Items) -> None:
    """As `confirm`, by the function of views."""
    require_none(find_items("bookings", overlap(booking)))
    booking["status"] = "confirmed"


def overlap(booking: Item) -> Item:
    """The parameters of a list of what is confirmed for the tool at the same time."""
    return {
        "tool": booking["tool"],
        "status": "confirmed",
        "from[lt]": booking["until"],
        "until[gt]": booking["from"],
    }


def require_none(found: Iterable[Item]) -> None:
    if [*found]:
        raise Conflict("the tool is taken")


@INVOICES.before("create")
def number(invoice: Item, before: Item | None, items: Items) -> None:
    """Give an invoice the next number."""
    last = items.find("invoices", {"sort": "-number", "limit": 1})
    invoice["number"] = last[0]["number"] + 1 if last else 1


@SALES.before("create")
def take(sale: Item, before: Item | None, items: Items) -> None:
    """Take a piece of the stock, if there is one."""
    if not items.read("products", sale["product"])["stock"]:
        raise Conflict("the product is out of stock")
    items.change("products", sale["product"], lambda product: {**product, "stock": product["stock"] - 1})


@ACCOUNTS.action("transfer", body=TransferSchema)
def transfer(account: Item, sent: Item, items: Items) -> None:
    """Move money to another account."""
    if account["balance"] < sent["amount"] or sent["to"] == account["id"]:
        raise Conflict("there is not so much, or no other account")
    items.change("accounts", sent["to"], lambda other: {**other, "balance": other["balance"] + sent["amount"]})
    account["balance"] -= sent["amount"]


@ACCOUNTS.action("withdraw", body=SumSchema)
def withdraw(account: Item, sent: Item, items: Items) -> None:
    """Take money, as long as all accounts of the bank together have it: this one can be below zero."""
    if sum(each["balance"] for each in items.find("accounts", {"bank": account["bank"]})) < sent["amount"]:
        raise Conflict("the bank has not so much")
    account["balance"] -= sent["amount"]


@DAYS.before("create")
def sleep_by_night(watch: Item, before: Item | None, items: Items) -> None:
    """Who is awake by day has no night."""
    require_no(NIGHTS, watch, items)


@NIGHTS.before("create")
def sleep_by_day(watch: Item, before: Item | None, items: Items) -> None:
    """Who is awake by night has no day."""
    require_no(DAYS, watch, items)


def require_no(other: Resource, watch: Item, items: Items) -> None:
    if items.count(other.name, {"day": watch["day"]}):
        raise Conflict(f"{other.name} has it")


def create_app(config: Config | None = None, **options: Any) -> Application:
    """The service with these collections."""
    return create_shop(config, RESOURCES, **options)

"""Collections of all kinds, for the page that shows them."""

from marshmallow import Schema, fields, validate

from restkeeper import (
    Application,
    Config,
    Conflict,
    Items,
    ItemSchema,
    Lifecycle,
    ListOf,
    Reference,
    Resource,
    Status,
    Text,
    Whole,
)
from tests.shop import create_app as create_shop
from tests.shop.shapes import RATES, SETTINGS, Item


class ThingSchema(ItemSchema):
    """What is sold."""

    title = Text(1, 200, required=True)
    price = fields.Decimal(load_default=None, allow_none=True)
    data = fields.Dict(load_default=dict)


class LineSchema(Schema):
    """A part of an order."""

    thing = Reference("things", required=True)
    count = Whole(1, 99, load_default=1)


class AddressSchema(Schema):
    """Where to."""

    city = Text(1, 100, required=True)
    country = fields.String(load_default="NO", validate=validate.OneOf(["NO", "SE"]))


class OrderSchema(ItemSchema):
    """What somebody wants."""

    reference = Text(1, 40, required=True)
    thing = Reference("things", required=True)
    lines = ListOf(fields.Nested(LineSchema), low=1, required=True)
    address = fields.Nested(AddressSchema, load_default=None, allow_none=True)
    due = fields.Date(load_default=None, allow_none=True)
    status = Status(Lifecycle("open", {"open": ("paid",), "paid": ()}, scopes={"paid": "orders:pay"}))


class PostSchema(ItemSchema):
    """A post."""

    title = Text(0, 200, load_default="")
    views = Whole(0, 2**63 - 1, load_default=0)
    data = fields.Dict(load_default=dict)
    summary = Text(0, 200, load_default="none yet", allow_none=True)
    tags = ListOf(Text(0, 40), load_default=None, allow_none=True)


class PlateSchema(PostSchema):
    """A post with what only some may read."""

    remark = Text(0, 200, load_default="", readable_by="plates:manage")
    thing = Reference("things", load_default=None, allow_none=True, readable_by="plates:manage")


class PaymentSchema(Schema):
    """How an order is paid."""

    method = Text(1, 20, required=True)


THINGS = Resource("things", "thing", ThingSchema, search=("title",))
ORDERS = Resource("orders", "order", OrderSchema)
POSTS = Resource("posts", "post", PostSchema, ids="integer")
NOTES = Resource("notes", "note", PostSchema, methods=("GET", "POST", "PATCH"))
PLATES = Resource("plates", "plate", PlateSchema, methods=("GET", "POST", "PUT"))


@ORDERS.action("pay", body=PaymentSchema, scope="orders:pay")
def pay(order: Item, payment: Item, items: Items) -> Item:
    """Pay an open order."""
    if order["status"] == "paid":
        raise Conflict("the order is paid already")
    return {**order, "status": "paid"}


@ORDERS.action("count-open", of="collection")
def count_open(items: Items) -> Item:
    """Count the open orders."""
    return {"open": 3}


def create_app(config: Config | None = None) -> Application:
    """The service with these collections."""
    return create_shop(config, [THINGS, ORDERS, POSTS, NOTES, PLATES, RATES, SETTINGS], name="Lamps & more")

"""Ten collections with each kind of field, id, reference, owner, function and version that a service can declare."""

from datetime import date
from typing import Any

from marshmallow import INCLUDE, Schema, fields

from restkeeper import (
    Add,
    Conflict,
    Convert,
    Deprecation,
    Email,
    Index,
    IntegerReference,
    Items,
    ItemSchema,
    JsonObject,
    Lifecycle,
    ListOf,
    Money,
    Owner,
    Ownership,
    Reference,
    Remove,
    Rename,
    Resource,
    Status,
    Text,
    Time,
    ValidationFailed,
    Version,
    Versions,
    Whole,
)

Item = dict[str, Any]


class PersonSchema(ItemSchema):
    """Who buys, and who works here."""

    name = Text(1, 60, required=True)
    email = Email(allow_none=True, load_default=None)
    age = Whole(0, 150, allow_none=True, load_default=None)
    manager = Reference("people", on_delete="null", allow_none=True, load_default=None)


class BrandSchema(ItemSchema):
    """Who makes products: its id is an integer."""

    title = Text(1, 60, required=True)
    founded = fields.Date(allow_none=True, load_default=None)
    products = Whole(0, dump_only=True, dump_default=0)


class SizeSchema(Schema):
    """An object inside a product."""

    width = Whole(0, 1000, load_default=1)
    unit = Text(1, 5, load_default="cm")


class ProductSchema(ItemSchema):
    """What is sold: a field of nearly each kind."""

    name = Text(1, 60, required=True)
    sku = Text(1, 20, allow_none=True, load_default=None)
    price = Money(allow_none=True, load_default=None)
    weight = fields.Decimal(allow_none=True, load_default=None)
    score = fields.Float(load_default=0.0)
    stock = Whole(0, 1000, load_default=10)
    tags = ListOf(Text(1, 20), 10, load_default=list)
    attributes = JsonObject(load_default=dict)
    size = fields.Nested(SizeSchema, allow_none=True, load_default=None)
    released = fields.Date(allow_none=True, load_default=None)
    seen_at = Time(allow_none=True, load_default=None)
    code = fields.UUID(allow_none=True, load_default=None)
    is_new = fields.Boolean(load_default=True)
    brand = IntegerReference("brands", allow_none=True, load_default=None)
    status = Status(
        Lifecycle(
            "draft",
            {"draft": ("active",), "active": ("archived",), "archived": ("active",)},
            scopes={"archived": "products:archive"},
        )
    )
    label = fields.Function(lambda product: f"{product['name']} ({product['stock']})", metadata={"type": "string"})


class PartSchema(ItemSchema):
    """What belongs to a product, and goes with it."""

    name = Text(1, 60, required=True)
    product = Reference("products", on_delete="cascade", required=True)


class LineSchema(Schema):
    """A part of an order."""

    product = Reference("products", required=True)
    count = Whole(1, 100, load_default=1)


class OrderSchema(ItemSchema):
    """What somebody has ordered, whom others do not see. Its second revision."""

    lines = fields.List(fields.Nested(LineSchema), load_default=list)
    after = Reference("orders", on_delete="cascade", allow_none=True, load_default=None)
    remark = Text(0, 100, load_default="")
    gift = fields.Boolean(load_default=False)
    amount = Whole(0, 10**6, load_default=0)
    secret = Text(0, 60, load_default="", readable_by="orders:secrets")
    pieces = Whole(0, dump_only=True, dump_default=0)
    status = Status(
        Lifecycle("open", {"open": ("paid", "ended"), "paid": ("ended",), "ended": ()}, by_actions={"paid": "pay"})
    )


class JobSchema(ItemSchema):
    """What somebody does, mostly for a product; others read it."""

    title = Text(1, 60, required=True)
    product = Reference("products", on_delete="null", allow_none=True, load_default=None)
    owner = Owner(to="people")
    grade = Whole(0, 10, load_default=0, writable_by="jobs:grade")
    ticket = Text(1, 20, allow_none=True, load_default=None)


class SettingsSchema(ItemSchema):
    """How the shop looks: one item."""

    theme = Text(1, 20, load_default="light")
    writes = Whole(0, dump_only=True, dump_default=0)


class PostSchema(ItemSchema):
    """What has other fields than these, too."""

    class Meta:
        unknown = INCLUDE

    title = Text(0, 60, load_default="")


class LogSchema(ItemSchema):
    """What happened."""

    text = Text(1, 60, required=True)


class NoteSchema(ItemSchema):
    """What its owner alone sees, who can give it to another one."""

    text = Text(1, 60, required=True)
    owner = Owner()


class PaymentSchema(Schema):
    """How an order is paid."""

    method = Text(1, 20, required=True)


class MoveSchema(Schema):
    """How many pieces go from one product to another."""

    source = Text(1, 64, required=True)
    target = Text(1, 64, required=True)
    count = Whole(1, 100, load_default=1)


PEOPLE = Resource("people", "person", PersonSchema, indexes=(Index("email", unique=True, fold=True), Index("age")))
BRANDS = Resource("brands", "brand", BrandSchema, ids="integer", indexes=(Index("title", unique=True),))
PRODUCTS = Resource(
    *("products", "product", ProductSchema),
    indexes=(Index("sku", unique=True), Index("price"), Index("status"), Index("tags"), Index("name")),
    search=("name", "tags"),
    upgrades={2: [Convert({"grams": Whole(0, allow_none=True, load_default=0)}, ["score"], up=float, down=int)]},
)
PARTS = Resource("parts", "part", PartSchema, sort="name", embed_limit=2)
ORDERS = Resource(
    *("orders", "order", OrderSchema),
    ownership=Ownership.ALL,
    indexes=(Index("status"), Index("lines.product")),
    upgrades={
        2: [
            *(Rename("note", "remark"), Rename("since", "after"), Add("gift", False)),
            Remove("channel", Text(0, 20, load_default="web")),
        ],
    },
)
JOBS = Resource(
    *("jobs", "job", JobSchema),
    ownership=Ownership.CHANGES,
    ids="client",
    indexes=(Index("ticket", unique=True),),
)
SETTINGS = Resource("settings", "settings", SettingsSchema, singleton=True)
POSTS = Resource("posts", "post", PostSchema, ids="client-integer", undeclared=True)
LOGS = Resource("logs", "log", LogSchema, methods=("GET",), sort="-created_at")
NOTES = Resource("notes", "note", NoteSchema, ownership=Ownership.ALL)
RESOURCES = (PEOPLE, BRANDS, PRODUCTS, PARTS, ORDERS, JOBS, SETTINGS, POSTS, LOGS, NOTES)
VERSIONS = Versions(
    *(Version("v1", successor="v2", revisions={"orders": 1, "products": 1}), Version("v2")),
    unversioned="v2",
    deprecations=[Deprecation(version="v1", field="orders.channel", since=date(2026, 1, 1), sunset=date(2100, 1, 1))],
)


@PRODUCTS.after("create", "delete")
def count_products(product: Item | None, before: Item | None, items: Items) -> None:
    """Count the products of a brand."""
    brand, change = (product["brand"], 1) if product else ((before or {})["brand"], -1)
    if brand is not None:
        items.change("brands", str(brand), lambda item: {**item, "products": item["products"] + change})


@ORDERS.before("create", "update")
def count_pieces(order: Item, before: Item | None, items: Items) -> None:
    """Count the pieces; refuse more than there are."""
    order["pieces"] = sum(line["count"] for line in order["lines"])
    if order["pieces"] > 200:
        raise ValidationFailed("too many", errors=[{"pointer": "#/lines", "detail": "must have at most 200 pieces"}])
    if order["remark"].startswith("Chair 1"):
        raise ValidationFailed("no chair", errors=[{"pointer": "#/remark", "detail": "must be no such chair"}])
    for line in order["lines"]:
        if items.read("products", line["product"])["stock"] < line["count"]:
            raise Conflict("there are not so many")


@ORDERS.before("delete")
def protect(order: None, before: Item) -> None:
    """Keep what is paid."""
    if before["status"] == "paid":
        raise Conflict("a paid order stays")


@ORDERS.after("create", "update", "delete")
def log_order(order: Item | None, before: Item | None, items: Items) -> None:
    """Log what happens to an order."""
    if before is None:
        items.create("notes", {"text": "ordered"})
    items.create("logs", {"text": "deleted" if order is None else "created" if before is None else order["status"]})


@ORDERS.action("pay", body=PaymentSchema, scope="orders:pay")
def pay(order: Item, payment: Item, items: Items) -> None:
    """Take the pieces out of the stock."""
    if (
        items.count(
            "orders", {"status": "paid", "lines.product[in]": ",".join(line["product"] for line in order["lines"])}
        )
        > 3
    ):
        raise Conflict("too many have it")
    for line in order["lines"]:
        items.change(
            "products", line["product"], lambda item, n=line["count"]: {**item, "stock": max(0, item["stock"] - n)}
        )
    paid = items.count("orders", {"status": "paid"})
    order["status"], order["remark"] = "paid", f"{payment['method']} {paid}"


@PRODUCTS.action("move", body=MoveSchema, of="collection")
def move(sent: Item, items: Items) -> Item:
    """Move pieces from one product to another."""
    if sent["source"] == sent["target"]:
        raise ValidationFailed("the same", errors=[{"pointer": "#/target", "detail": "must be another one"}])
    source = items.change("products", sent["source"], lambda item: {**item, "stock": item["stock"] - sent["count"]})
    items.change("products", sent["target"], lambda item: {**item, "stock": item["stock"] + sent["count"]})
    return {"left": source["stock"]}


@PRODUCTS.action("touch")
def touch(product: Item, items: Items) -> None:
    """Change nothing."""


@NOTES.action("give")
def give(note: Item, items: Items) -> None:
    """Give it to another owner."""
    note["owner"] = "bob" if note["owner"] == "ada" else "ada"


@SETTINGS.before("create", "update")
def count_writes(settings: Item, before: Item | None) -> None:
    """Count the writes."""
    settings["writes"] += 1


@SETTINGS.action("darken")
def darken(settings: Item, items: Items) -> Item:
    """Look dark, and log it."""
    items.create("logs", {"text": "darkened"})
    return {**settings, "theme": "dark"}

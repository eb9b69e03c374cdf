"""The schemas of a product, and of its sale."""

from marshmallow import Schema, fields

from restkeeper import ItemSchema, JsonObject, Lifecycle, ListOf, Money, Pattern, Status, Text, Whole


class ProductSchema(ItemSchema):
    """Something that is sold."""

    name = Text(1, 200, required=True, metadata={"examples": ["Desk lamp"]})
    description = Text(load_default=None, allow_none=True, metadata={"examples": ["Bends, does not break."]})
    sku = Text(
        1,
        64,
        load_default=None,
        allow_none=True,
        metadata={"description": "Unique when present.", "examples": ["LAMP-1"]},
    )
    price = Money(
        load_default=None,
        allow_none=True,
        metadata={"description": "Exact, at most 2 decimals; null where none is known.", "examples": [49.9]},
    )
    currency = fields.String(
        load_default="USD",
        validate=Pattern("^[A-Z]{3}$", error="must be three capital letters (ISO 4217)"),
        metadata={"description": "ISO 4217 code.", "maxLength": 3, "examples": ["EUR"]},
    )
    stock = Whole(0, 2**53 - 1, load_default=0, metadata={"examples": [12]})
    tags = ListOf(Text(1, 50), load_default=list, metadata={"examples": [["office", "light"]]})
    attributes = JsonObject(
        load_default=dict,
        metadata={"description": "Other data, as any JSON.", "examples": [{"colour": "red"}]},
    )
    status = Status(
        Lifecycle("active", {"draft": ("active",), "active": ("archived",), "archived": ("active",)}),
        metadata={"description": "Moves draft → active ⇄ archived."},
    )


class SaleSchema(Schema):
    """The body of `POST /products/:id/sell`."""

    quantity = Whole(1, 1000, required=True, metadata={"examples": [2]})

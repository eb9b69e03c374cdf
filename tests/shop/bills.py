"""Bills: objects inside of objects, by which lists are filtered, and a default order and page of the list."""

from marshmallow import fields

from restkeeper import Index, ItemSchema, JsonObject, Lifecycle, ListOf, Money, Resource, Status, Text, Time, Whole


class PartSchema(ItemSchema):
    """A part of what is sold, which can have a part."""

    class Meta:
        fields = ("serial", "inner")

    serial = Text(0, 20, required=True)
    inner = fields.Nested(lambda: PartSchema(), load_default=None, allow_none=True)


class LineSchema(ItemSchema):
    """What is sold."""

    class Meta:
        fields = ("sku", "price", "parts", "data")

    sku = Text(1, 64, required=True)
    price = Money(load_default=None, allow_none=True)
    parts = ListOf(fields.Nested(PartSchema), load_default=list)
    data = JsonObject(load_default=dict)


class BillSchema(ItemSchema):
    """What somebody has to pay."""

    name = Text(1, 100, required=True)
    note = Text(0, 100, load_default=None, allow_none=True)
    lines = ListOf(fields.Nested(LineSchema), load_default=list)
    attributes = JsonObject(load_default=dict)
    tags = ListOf(Text(1, 20), load_default=list)
    paid_at = Time(load_default=None, allow_none=True)
    total = Money(load_default=None, allow_none=True)
    parts = Whole(load_default=0)
    open = fields.Boolean(load_default=True)
    status = Status(Lifecycle("new", {"new": ("sent",), "sent": ()}))


INDEXES = (Index("lines.sku"), Index("attributes.colour"), Index("tags"), Index("paid_at"), Index("name"))
BILLS = Resource("bills", "bill", BillSchema, INDEXES, sort="-total,name", page_limit=3)

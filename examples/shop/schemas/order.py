from marshmallow import Schema, fields, validate

from restkeeper import ItemSchema, Lifecycle, ListOf, Money, Reference, Status, Text, Whole


class LineSchema(Schema):
    """Some pieces of a product."""

    product = Reference("products", required=True)
    quantity = Whole(1, 1000, load_default=1)


class OrderSchema(ItemSchema):
    """What a customer orders; actions change its status."""

    customer = Reference("users", required=True)
    lines = ListOf(fields.Nested(LineSchema), low=1, required=True)
    total = Money(dump_only=True, dump_default=None, allow_none=True)
    paid_with = Text(dump_only=True, dump_default=None, allow_none=True)
    status = Status(
        Lifecycle(
            "open",
            {"open": ("paid", "cancelled"), "paid": ("sent", "cancelled"), "sent": (), "cancelled": ()},
            scopes={"sent": "admin"},
            by_actions={"paid": "pay", "cancelled": "cancel"},
        )
    )


class PaymentSchema(Schema):
    """How an order is paid."""

    method = fields.String(required=True, validate=validate.OneOf(["card", "invoice"]))

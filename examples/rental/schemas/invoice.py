from restkeeper import ItemSchema, Lifecycle, Money, Owner, Reference, Status, Whole


class InvoiceSchema(ItemSchema):
    """What a customer owes, once a tool is back. Requests only read it."""

    number = Whole(0, dump_only=True, dump_default=0)
    booking = Reference("bookings", required=True)
    customer = Owner(to="customers")
    total = Money(required=True)
    status = Status(Lifecycle("open", {"open": ("paid",), "paid": ()}, by_actions={"paid": "pay"}))

from restkeeper import ItemSchema, Lifecycle, Money, Status, Text


class ToolSchema(ItemSchema):
    """Something that is rented by the day."""

    name = Text(1, 100, required=True)
    category = Text(1, 50, required=True, metadata={"examples": ["drills"]})
    price_per_day = Money(required=True)
    status = Status(Lifecycle("offered", {"offered": ("retired",), "retired": ("offered",)}))

from restkeeper import ItemSchema, Money, Text, Whole


class ProductSchema(ItemSchema):
    """Something that is sold."""

    name = Text(1, 200, required=True)
    sku = Text(1, 64, required=True)
    price = Money(required=True)
    stock = Whole(0, load_default=0)

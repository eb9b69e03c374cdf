from restkeeper import Email, ItemSchema, Owner, Text


class CustomerSchema(ItemSchema):
    """Who rents. The id is also the owner of what is the customer's, as keys and tokens name it: staff set both."""

    owner = Owner()
    name = Text(1, 100, required=True)
    email = Email(required=True)
    note = Text(0, 1000, load_default="", readable_by="customers:manage")

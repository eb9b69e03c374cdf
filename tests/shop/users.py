"""Users: a collection with a field that is unique without regard to case."""

from restkeeper import Email, Index, ItemSchema, Lifecycle, Resource, Status, Text


class UserSchema(ItemSchema):
    """A person. It has no password: keys and tokens decide who may call."""

    email = Email(
        required=True, metadata={"description": "Unique without regard to case.", "examples": ["ada@example.org"]}
    )
    name = Text(high=200, load_default=None, allow_none=True, metadata={"examples": ["Ada Lovelace"]})
    status = Status(
        Lifecycle("active", {"invited": ("active",), "active": ("suspended",), "suspended": ("active",)}),
        metadata={"description": "Moves invited → active ⇄ suspended."},
    )


RESOURCE = Resource(
    name="users",
    singular="user",
    schema=UserSchema,
    indexes=(
        Index("email", unique=True),
        Index("email"),
        Index("status"),
        Index("created_at"),
        Index("updated_at"),
    ),
    search=("email", "name"),
)

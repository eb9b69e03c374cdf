"""The schema of a user."""

from restkeeper import Email, ItemSchema, Lifecycle, Status, Text


class UserSchema(ItemSchema):
    """A person. It has no password: keys and tokens authenticate callers."""

    email = Email(
        required=True, metadata={"description": "Unique without regard to case.", "examples": ["ada@example.org"]}
    )
    name = Text(high=200, load_default=None, allow_none=True, metadata={"examples": ["Ada Lovelace"]})
    status = Status(
        Lifecycle("active", {"invited": ("active",), "active": ("suspended",), "suspended": ("active",)}),
        metadata={"description": "Moves invited → active ⇄ suspended."},
    )

"""A user."""

from schemas.fields import Email, Lifecycle, Status, Text
from schemas.item import ItemSchema


class UserSchema(ItemSchema):
    """Somebody. There is no password here: who may call is the business of keys and tokens."""

    email = Email(
        required=True, metadata={"description": "Unique without regard to case.", "examples": ["ada@example.org"]}
    )
    name = Text(high=200, load_default=None, allow_none=True, metadata={"examples": ["Ada Lovelace"]})
    status = Status(
        Lifecycle("active", {"invited": ("active",), "active": ("suspended",), "suspended": ("active",)}),
        metadata={"description": "Moves invited → active ⇄ suspended."},
    )

"""An API key."""

from restkeeper.schemas.fields import Items, Pattern, Text, Time
from restkeeper.schemas.item import ItemSchema


class KeySchema(ItemSchema):
    """A credential of a program. Its secret is returned only once, when the key is created."""

    name = Text(1, 200, required=True, metadata={"description": "What it is for.", "examples": ["Shop front end"]})
    scopes = Items(
        Text(validate=(Pattern("^(admin|[A-Za-z][A-Za-z0-9_]*:(read|write))$", error="must be a scope"),)),
        low=1,
        required=True,
        metadata={
            "description": "What it allows: `<collection>:read`, `<collection>:write`, or `admin` for everything.",
            "examples": [["products:read", "products:write"]],
        },
    )
    expires_at = Time(
        load_default=None, allow_none=True, metadata={"description": "When it expires; null if it does not."}
    )
    last_used_at = Time(
        dump_only=True, allow_none=True, metadata={"description": "When it was last used, to about two minutes."}
    )

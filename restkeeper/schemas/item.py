"""What all items have."""

from marshmallow import RAISE, Schema, fields, validate

from restkeeper.schemas.fields import Text, Time, Whole

READ_ONLY = ("id", "created_at", "updated_at", "version")


class ItemSchema(Schema):
    """Base of every collection's schema: unknown fields are refused, and these four are the server's."""

    error_messages = {"unknown": "is not a field of this collection"}

    class Meta:
        unknown = RAISE

    id = fields.String(
        dump_only=True,
        metadata={
            "description": "UUIDv7, made by the server: its order is that of creation.",
            "maxLength": 64,
        },  # as StoredSchema's
    )
    created_at = Time(dump_only=True, metadata={"description": "When it was created, in UTC."})
    updated_at = Time(dump_only=True, metadata={"description": "When it last changed, in UTC."})
    version = Whole(1, dump_only=True, metadata={"description": "Counts the changes, from 1."})


class StoredSchema(Schema):
    """What the server set, as an export has it. Ids may be of another service, if they can stand in a path.

    "." and ".." cannot (RFC 3986, section 5.2.4). Versions leave room to count on.
    """

    id = Text(
        validate=(
            validate.Regexp(r"(?!\.{1,2}\Z)[A-Za-z0-9._~-]{1,64}\Z", error="must be 1 to 64 of A-Z a-z 0-9 . _ ~ -"),
        )
    )
    created_at = Time()
    updated_at = Time()
    version = Whole(1, 2**53 - 1)

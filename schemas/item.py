"""What all items have."""

from marshmallow import RAISE, Schema, fields

from schemas.fields import Time, Whole

READ_ONLY = ("id", "created_at", "updated_at", "version")


class ItemSchema(Schema):
    """Base of every collection's schema: unknown fields are refused, and these four are the server's."""

    error_messages = {"unknown": "is not a field of this collection"}

    class Meta:
        unknown = RAISE

    id = fields.String(dump_only=True, metadata={"description": "UUIDv7, made by the server: sorts by creation."})
    created_at = Time(dump_only=True, metadata={"description": "When it was created, in UTC."})
    updated_at = Time(dump_only=True, metadata={"description": "When it last changed, in UTC."})
    version = Whole(1, dump_only=True, metadata={"description": "Counts the changes, from 1."})

"""Collections that refer to each other, with each rule for deletions."""

from typing import Any

from marshmallow import Schema, fields

from restkeeper import Application, Config, ItemSchema, Reference, Resource, Text
from tests.shop import create_app as create_shop


class OwnerSchema(ItemSchema):
    """Who has things."""

    name = Text(0, 50, load_default="")


class LineSchema(Schema):
    """A part of a list."""

    thing = Reference("things", required=True)


class ListSchema(ItemSchema):
    """A list of things."""

    lines = fields.List(fields.Nested(LineSchema), required=True)
    owners = fields.List(Reference("owners", on_delete="cascade"), load_default=list)


class ThingSchema(ItemSchema):
    """A thing, whose parts go with it."""

    owner = Reference("owners", required=True)
    part_of = Reference("things", on_delete="cascade", allow_none=True, load_default=None)
    seen_by = Reference("owners", on_delete="null", allow_none=True, load_default=None)


OWNERS = Resource("owners", "owner", OwnerSchema)
LISTS = Resource("lists", "list", ListSchema)
THINGS = Resource("things", "thing", ThingSchema)


def create_app(config: Config | None = None, **options: Any) -> Application:
    """The service with these collections."""
    return create_shop(config, [OWNERS, THINGS, LISTS], **options)

"""Tags, whose ids clients give."""

from typing import Any

from marshmallow import Schema, fields

from restkeeper import Application, Config, Index, Items, ItemSchema, Ownership, Resource, Text
from tests.shop import create_app as create_shop


class TagSchema(ItemSchema):
    """A tag."""

    label = Text(0, 50, load_default="")
    code = Text(1, 20, allow_none=True, load_default=None)


class NameSchema(Schema):
    """The name of a tag."""

    id = fields.String()


TAGS = Resource("tags", "tag", TagSchema, indexes=(Index("code", unique=True),), ids="client")
PRIVATE = Resource("notes", "note", TagSchema, ownership=Ownership.ALL, ids="client")


@TAGS.action("make", body=NameSchema, of="collection")
def make(name: dict[str, Any], items: Items) -> dict[str, Any]:
    """Create a tag."""
    return items.create("tags", {**name, "label": "made"})


def create_app(config: Config | None = None, **options: Any) -> Application:
    """The service with tags."""
    return create_shop(config, [TAGS, PRIVATE], **options)

"""Collections of other shapes: one that requests only read, and items without times."""

from typing import Any

from marshmallow import Schema, fields

from restkeeper import Application, Config, Index, ItemSchema, Resource, Text, Unit
from tests.shop import create_app as create_shop

Item = dict[str, Any]


class RateSchema(ItemSchema):
    """What a currency is worth."""

    currency = Text(3, 3, required=True, metadata={"examples": ["EUR"]})
    value = fields.Decimal(load_default=1)


class TagSchema(ItemSchema):
    """A word, without times and version."""

    class Meta:
        exclude = ("created_at", "updated_at", "version")

    name = Text(1, 50, required=True, metadata={"examples": ["red"]})
    note = Text(0, 50_000, load_default="")


class SourceSchema(Schema):
    """From where rates are."""

    currency = fields.String(required=True)


RATES = Resource("rates", "rate", RateSchema, methods=["GET"])
NOTES = Resource("notes", "note", RateSchema, methods=("GET", "POST"))
TAGS = Resource("tags", "tag", TagSchema, indexes=(Index("name", unique=True), Index("name")), search=("name",))


@RATES.action("refresh", body=SourceSchema, of="collection")
def refresh(source: Item, store: Unit) -> Item:
    """Create a rate."""
    return store.create("rates", {"currency": source["currency"]})


@RATES.action("double")
def double(rate: Item, store: Unit) -> Item:
    """Double a rate."""
    return {**rate, "value": 2 * rate["value"]}


def create_app(config: Config | None = None, **options: Any) -> Application:
    """The service with these collections."""
    return create_shop(config, [RATES, NOTES, TAGS], **options)

"""Collections that requests only read or add to, items without times, and singletons."""

from typing import Any

from marshmallow import Schema, fields, validate

from restkeeper import Application, Config, Index, Items, ItemSchema, Resource, Text, Whole
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


class SettingsSchema(ItemSchema):
    """How the shop looks."""

    theme = fields.String(load_default="light", validate=validate.OneOf(["light", "dark"]))
    visits = Whole(0, load_default=0, metadata={"examples": [1]})


class CompanySchema(ItemSchema):
    """Whose shop it is."""

    name = Text(1, 50, required=True, metadata={"examples": ["Lamps"]})
    seat = Text(0, 50, load_default="")


class SourceSchema(Schema):
    """From where rates are."""

    currency = fields.String(required=True)


RATES = Resource("rates", "rate", RateSchema, methods=["GET"])
NOTES = Resource("notes", "note", RateSchema, methods=("GET", "POST"))
SETTINGS = Resource("settings", "settings", SettingsSchema, singleton=True)
COMPANY = Resource("company", "company", CompanySchema, singleton=True)
TAGS = Resource("tags", "tag", TagSchema, indexes=(Index("name", unique=True), Index("name")), search=("name",))


@RATES.action("refresh", body=SourceSchema, of="collection")
def refresh(source: Item, items: Items) -> Item:
    """Create a rate."""
    return items.create("rates", {"currency": source["currency"]})


@RATES.action("double")
def double(rate: Item, items: Items) -> Item:
    """Double a rate."""
    return {**rate, "value": 2 * rate["value"]}


@SETTINGS.action("visit")
def visit(settings: Item, items: Items) -> Item:
    """Count a visit; after the greatest number comes 0."""
    return {**settings, "visits": (settings["visits"] + 1) % 2**53}


@SETTINGS.action("reset")
def reset(settings: Item, items: Items) -> Item:
    """Give all fields their defaults."""
    return {}


@TAGS.action("forget", of="collection")
def forget(items: Items) -> Item:
    """Delete the settings."""
    return items.delete("settings", "settings")


@TAGS.after("create")
def count(tag: Item, before: None, items: Items) -> None:
    """Count a tag that is called so as a visit."""
    if tag["name"] == "visit":
        items.change("settings", "settings", lambda settings: {**settings, "visits": settings["visits"] + 1})


def create_app(config: Config | None = None, **options: Any) -> Application:
    """The service with these collections."""
    return create_shop(config, [RATES, NOTES, TAGS, SETTINGS, COMPANY], **options)

"""Collections that refer to each other, in two versions: orders of people, which only their owner sees, and reviews."""

from datetime import date
from typing import Any

from marshmallow import Schema, fields

from restkeeper import (
    Application,
    Config,
    Deprecation,
    ItemSchema,
    Ownership,
    Reference,
    Rename,
    Resource,
    Text,
    Version,
    Versions,
    Whole,
)
from tests.shop import create_app as create_shop


class PersonSchema(ItemSchema):
    """Who buys."""

    name = Text(0, 1_000_000, load_default="")
    reviews = Whole(load_default=0)


class ThingSchema(ItemSchema):
    """What is sold."""

    title = Text(0, 1_000_000, load_default="")


class LineSchema(Schema):
    """A part of an order."""

    thing = Reference("things", required=True)
    count = fields.Decimal(load_default=1)


class OrderSchema(ItemSchema):
    """What somebody has ordered."""

    customer = Reference("people", required=True)
    lines = fields.List(fields.Nested(LineSchema), load_default=list)
    gifts = fields.List(Reference("things"), load_default=list)
    after = Reference("orders", allow_none=True, load_default=None)


class ReviewSchema(ItemSchema):
    """What one says of another."""

    writer = Reference("people", required=True)
    about = Reference("people", required=True, on_delete="cascade")


PEOPLE = Resource("people", "person", PersonSchema, upgrades={2: [Rename("label", "name")]})
THINGS = Resource("things", "thing", ThingSchema)
REVIEWS = Resource("reviews", "review", ReviewSchema)
ORDERS = Resource("orders", "order", OrderSchema, ownership=Ownership.ALL, upgrades={2: [Rename("buyer", "customer")]})
VERSIONS = Versions(
    Version("v1", successor="v2", revisions={"orders": 1, "people": 1}),
    Version("v2"),
    unversioned="v2",
    deprecations=[Deprecation(version="v1", since=date(2026, 1, 1), sunset=date(2100, 1, 1))],
)


def create_app(config: Config | None = None, **options: Any) -> Application:
    """The service with these collections."""
    resources = [PEOPLE, THINGS, ORDERS, REVIEWS]
    return create_shop(config, resources, **{"versions": VERSIONS, **options})

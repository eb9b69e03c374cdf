"""What generators of clients must give types to: products, users, orders, and a collection with each kind of field."""

import enum

from marshmallow import Schema, fields, validate

from restkeeper import Application, Config, ItemSchema, Pattern, Reference, Resource, Whole
from tests.shop import RESOURCES
from tests.shop import create_app as create_shop
from tests.shop.orders import LOGS, ORDERS


class Size(enum.Enum):
    """How large it is."""

    SMALL = "s"
    LARGE = "l"


class FloorSchema(Schema):
    """A part of a house."""

    number = Whole(0, 200, required=True)
    note = fields.String(load_default="")


class PlaceSchema(Schema):
    """Where it is."""

    street = fields.String(required=True)
    floor = fields.Nested(FloorSchema, load_default=None, allow_none=True)
    owner = Reference("users", load_default=None, allow_none=True)


class ResultsSchema(ItemSchema):
    """A field of each kind, and names that generators use themselves."""

    size = fields.Enum(Size, load_default=Size.SMALL)
    letter = fields.Enum(Size, by_value=True, load_default=None, allow_none=True)
    level = fields.Integer(load_default=1, validate=[validate.OneOf([1, 2, 3]), validate.Range(1, 3)])
    colour = fields.String(load_default="red", validate=[validate.OneOf(["red", "blue"]), Pattern("^[a-z]+$")])
    shade = fields.String(load_default=None, allow_none=True, validate=validate.OneOf(["dark", None]))
    pair = fields.Tuple((fields.Float(), fields.String(validate=validate.Length(1, 5))), required=True)
    place = fields.Nested(PlaceSchema, load_default=None, allow_none=True)
    places = fields.List(fields.Nested(PlaceSchema), load_default=list)
    counts = fields.Dict(keys=fields.String(), values=fields.Integer(), load_default=dict)
    any = fields.Raw(load_default=None, allow_none=True)
    fixed = fields.Constant("x")
    is_new = fields.Boolean(load_default=True)
    code = fields.UUID(load_default=None, allow_none=True)
    day = fields.Date(load_default=None, allow_none=True)
    hour = fields.Time(load_default=None, allow_none=True)
    seconds = fields.TimeDelta(load_default=None, allow_none=True)
    address = fields.IP(load_default=None, allow_none=True)
    weight = fields.Decimal(places=2, load_default=None, allow_none=True)
    keeper = Reference("users", load_default=None, allow_none=True)
    type = fields.String(load_default="")
    items = fields.List(fields.String(), load_default=list)


RESULTS = Resource("results", "result", ResultsSchema)


def create_app(config: Config | None = None) -> Application:
    """The service with these collections."""
    return create_shop(config, [*RESOURCES, ORDERS, LOGS, RESULTS])

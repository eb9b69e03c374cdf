from typing import Any

from marshmallow import ValidationError, fields, validates_schema

from restkeeper import ItemSchema, Reference
from schemas import Item


class PeriodSchema(ItemSchema):
    """A tool is away, from the start until the day on which it is back and can go out again."""

    tool = Reference("tools", required=True)
    start = fields.Date(required=True)
    end = fields.Date(required=True)

    @validates_schema
    def require_order(self, period: Item, **_: Any) -> None:
        if period["end"] <= period["start"]:
            raise ValidationError("must be after start", "end")

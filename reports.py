"""The reports: routes beside those of the collections. They only read; actions write."""

from flask import Blueprint
from marshmallow import Schema, fields

from restkeeper import Whole, find_items, needs, returns, takes
from schemas import Item

reports = Blueprint("reports", __name__, url_prefix="/reports")


class StockQuery(Schema):
    """The query of the report. What this schema refuses is a 400 that says why; in a body, it would be a 422."""

    below = Whole(1, 1_000_000, load_default=10, metadata={"description": "Only products with fewer pieces."})


class StockSchema(Schema):
    """A product of the report."""

    id = fields.String()
    name = fields.String()
    stock = fields.Integer()


@reports.get("/stock")
@needs("products:read")  # a scope of the caller's key
@takes(query=StockQuery)
@returns(StockSchema(many=True))
def read_low_stock(query: Item) -> list[Item]:
    """List the active products with few pieces in stock: at most 100 of them, the fewest pieces first."""
    return [*find_items("products", {"status": "active", "stock[lt]": query["below"], "sort": "stock", "limit": 100})]

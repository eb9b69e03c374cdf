from flask import Blueprint
from marshmallow import Schema, fields

from restkeeper import find_items, needs, returns

reports = Blueprint("reports", __name__, url_prefix="/reports")


class SalesSchema(Schema):
    orders = fields.Integer()
    total = fields.Decimal()


@reports.get("/sales")
@needs("reports:read")
@returns(SalesSchema)
def read_sales():
    """Count the orders that are paid, and what was paid."""
    totals = [order["total"] for order in find_items("orders", {"status[in]": "paid,sent"})]
    return {"orders": len(totals), "total": sum(totals)}

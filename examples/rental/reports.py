from itertools import groupby

from flask import Blueprint
from marshmallow import Schema, fields

from restkeeper import Money, Whole, find_items, needs, returns, takes
from schemas import Item

reports = Blueprint("reports", __name__, url_prefix="/reports")


class YearSchema(Schema):
    year = Whole(2000, 2100, required=True)


class RevenueSchema(Schema):
    month = fields.String(metadata={"examples": ["2026-01"]})
    invoices = fields.Integer()
    total = Money()


@reports.get("/revenue")
@needs("reports:read")
@takes(query=YearSchema)
@returns(RevenueSchema(many=True))
def read_revenue(query: Item) -> list[Item]:
    """Add up the invoices of each month of a year."""
    times = {"created_at[gte]": f"{query['year']}-01-01", "created_at[lt]": f"{query['year'] + 1}-01-01"}
    months = groupby(find_items("invoices", {**times, "sort": "created_at"}), lambda invoice: invoice["created_at"][:7])
    totals = {month: [invoice["total"] for invoice in invoices] for month, invoices in months}
    return [{"month": month, "invoices": len(each), "total": sum(each)} for month, each in totals.items()]

"""Customers book, and staff confirm. No request changes a booking but by its actions."""

from datetime import date

from availability import ToolIsTaken, require_free
from restkeeper import Conflict, Index, Items, Ownership, Resource, returns
from schemas import Item
from schemas.booking import BookingSchema

INDEXES = (Index("tool", "end"),)  # of a tool, those that are not over yet: see availability.py
RESOURCE = Resource("bookings", "booking", BookingSchema, INDEXES, ownership=Ownership.ALL, methods=("GET", "POST"))


@RESOURCE.before("create")
def set_total(booking: Item, before: None, items: Items) -> None:
    """Compute the price from the tool's present one. An owner need not be a customer; who books is one."""
    items.read("customers", booking["customer"])
    tool = items.read("tools", booking["tool"])
    if tool["status"] == "retired":
        raise ToolIsTaken(f"{tool['name']} is not rented any more")
    days = (date.fromisoformat(booking["end"]) - date.fromisoformat(booking["start"])).days
    booking["total"] = days * tool["price_per_day"]


@RESOURCE.action("confirm", scope="bookings:manage")
@returns(ToolIsTaken)
def confirm(booking: Item, items: Items) -> None:
    """Confirm a booking, if the tool is free."""
    require_free(booking, items)
    booking["status"] = "confirmed"


@RESOURCE.action("cancel")
def cancel(booking: Item, items: Items) -> None:
    """Cancel a booking. The tool is free again."""
    booking["status"] = "cancelled"


@RESOURCE.action("return", scope="bookings:manage")
def take_back(booking: Item, items: Items) -> None:
    """Take the tool back, and write the invoice."""
    if booking["status"] != "confirmed":
        raise Conflict(f"the booking is {booking['status']}")
    items.create("invoices", {"booking": booking["id"], "customer": booking["customer"], "total": booking["total"]})
    booking["status"] = "returned"

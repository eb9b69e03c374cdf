"""A tool is in one place at a time: bookings and maintenance share this rule."""

from restkeeper import Conflict, Items
from schemas import Item


class ToolIsTaken(Conflict):
    """The tool is booked or in maintenance at that time, or not rented any more."""


def require_free(period: Item, items: Items) -> None:
    """Refuse a period in which its tool is taken. What is found here stays so until all is written."""
    others = {"tool": period["tool"], "start[lt]": period["end"], "end[gt]": period["start"], "id[ne]": period["id"]}
    if items.count("bookings", {**others, "status": "confirmed"}):
        raise ToolIsTaken("the tool is booked at that time")
    if items.count("maintenance", others):
        raise ToolIsTaken("the tool is in maintenance at that time")

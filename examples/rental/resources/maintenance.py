"""Also at /tools/:id/maintenance. Customers see when it is, and not what it costs."""

from availability import require_free
from restkeeper import Index, Items, Resource
from schemas import Item
from schemas.maintenance import MaintenanceSchema

RESOURCE = Resource("maintenance", "maintenance", MaintenanceSchema, indexes=(Index("tool", "end"),))


@RESOURCE.before("create", "update")
def require_tool(maintenance: Item, before: Item | None, items: Items) -> None:
    """Take no tool apart that is booked."""
    require_free(maintenance, items)

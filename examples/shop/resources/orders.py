"""The orders collection: callers see only their own orders."""

from restkeeper import Ownership, Resource
from schemas.order import OrderSchema

RESOURCE = Resource("orders", "order", OrderSchema, ownership=Ownership.ALL)

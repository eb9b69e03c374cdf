from restkeeper import Ownership, Resource
from schemas.order import OrderSchema

RESOURCE = Resource("orders", "order", OrderSchema, ownership=Ownership.ALL)

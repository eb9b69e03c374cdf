from resources.orders import RESOURCE as ORDERS
from restkeeper import Conflict, Forbidden, caller, returns
from schemas.order import PaymentSchema


class OrderIsClosed(Conflict):
    """The order is paid or cancelled, and stays as it is."""


class OutOfStock(Conflict):
    """There are fewer pieces of a product than the order has."""


def take(line, items, sign=1):
    """Take the pieces of a line out of the stock; return their price."""
    product = items.read("products", line["product"])
    stock = product["stock"] - sign * line["quantity"]
    if stock < 0:
        raise OutOfStock(f"there are {product['stock']} of {product['name']}")
    items.change("products", product["id"], lambda _: {**product, "stock": stock})
    return product["price"] * line["quantity"]


@ORDERS.action("pay", body=PaymentSchema, scope="orders:pay")
@returns(OrderIsClosed, OutOfStock)
def pay(order, payment, items):
    """Pay an open order: its pieces leave the stock."""
    if order["status"] != "open":
        raise OrderIsClosed(f"the order is {order['status']}")
    total = sum(take(line, items) for line in order["lines"])
    return {**order, "status": "paid", "paid_with": payment["method"], "total": total}


@ORDERS.action("cancel")
def cancel(order, items):
    """Cancel an order: the pieces of a paid order are in stock again."""
    if order["status"] == "paid":
        for line in order["lines"]:
            take(line, items, sign=-1)
    return {**order, "status": "cancelled"}


@ORDERS.before("create", "update")
def require_own(order, before):
    """Let customers order only for themselves. The owner of a key is the id of a user."""
    if not caller().may("admin") and order["customer"] != caller().owner_id:
        raise Forbidden("customers order for themselves")


@ORDERS.before("update", "delete")
def require_open(order, before):
    """Let nobody change the lines of an order that is not open, or delete the order."""
    if before["status"] != "open" and (order is None or order["lines"] != before["lines"]):
        raise OrderIsClosed(f"the order is {before['status']}")

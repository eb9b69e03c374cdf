from restkeeper import Index, Items, Ownership, Resource
from schemas import Item
from schemas.invoice import InvoiceSchema

INDEXES = (Index("number"), Index("number", unique=True), Index("created_at"))
RESOURCE = Resource(
    "invoices", "invoice", InvoiceSchema, ownership=Ownership.ALL, methods=("GET",), indexes=INDEXES, sort="-number"
)


@RESOURCE.before("create")
def set_number(invoice: Item, before: None, items: Items) -> None:
    """Give it the number after the greatest one: 1, 2, 3 … without a gap."""
    last = items.find("invoices", {"sort": "-number", "limit": 1})
    invoice["number"] = last[0]["number"] + 1 if last else 1


@RESOURCE.action("pay", scope="invoices:manage")
def pay(invoice: Item, items: Items) -> None:
    """Note that it is paid."""
    invoice["status"] = "paid"

"""The products collection.

The declaration makes `GET /products`, `POST /products` and the other endpoints. The functions below it add a rule and
an action: each runs in the transaction of its request, so a rule also holds when many requests write at once.
"""

from restkeeper import Conflict, Index, Items, Resource, ValidationFailed
from schemas import Item
from schemas.product import ProductSchema, SaleSchema
from storage.upgrades import PRODUCTS

RESOURCE = Resource(
    name="products",
    singular="product",
    schema=ProductSchema,
    indexes=(
        Index("sku", unique=True),
        Index("sku"),
        Index("name"),
        Index("price"),
        Index("status"),
        Index("created_at"),
        Index("updated_at"),
    ),
    search=("name", "description", "sku", "tags"),
    upgrades=PRODUCTS,
)


@RESOURCE.before("update")
def require_price(product: Item, before: Item) -> None:
    """Let no draft become active without a price. `before` is the product as it is stored."""
    if before["status"] == "draft" and product["status"] == "active" and product["price"] is None:
        fault = {"pointer": "#/price", "detail": "is required before the product is active"}
        raise ValidationFailed("the product has no price", errors=[fault])


@RESOURCE.action("sell", body=SaleSchema)
def sell(product: Item, sale: Item, items: Items) -> None:
    """Sell some pieces of an active product: they leave its stock."""
    if product["status"] != "active" or product["stock"] < sale["quantity"]:
        raise Conflict(f"the product is {product['status']}, with {product['stock']} pieces in stock")
    product["stock"] -= sale["quantity"]  # stored when the function returns

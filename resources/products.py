"""The products collection."""

from restkeeper import Index, Resource
from schemas.product import ProductSchema
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

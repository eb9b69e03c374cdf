"""The products collection."""

from resources.resource import Resource
from schemas.product import ProductSchema
from storage.contract import Index

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
)

from restkeeper import Index, Resource
from schemas.product import ProductSchema

RESOURCE = Resource("products", "product", ProductSchema, indexes=(Index("sku", unique=True),), search=("name", "sku"))

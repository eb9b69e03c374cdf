"""A peer that does the same with Litestar, msgspec and SQLAlchemy's ORM, on uvicorn with uvloop and httptools.

Same table, same validation, same durability, same page size, and a log line for each response; no ETag and no request
id, which Litestar does not make. Sessions are synchronous, in the event loop: a statement of SQLite takes less than the
change of thread that `aiosqlite` or `sync_to_thread=True` costs it (one item is twice as fast so).
"""

import contextlib
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from litestar import Litestar, get, post
from litestar.exceptions import NotFoundException
from litestar.params import Parameter
from msgspec import Meta
from sqlalchemy.exc import OperationalError

from bench.peer import Base, Product, engine, new_product, page_of, session


class NewProduct(msgspec.Struct):
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    description: str | None = None
    sku: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    price: Annotated[float, Meta(ge=0)] | None = None
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$")] = "USD"
    stock: Annotated[int, Meta(ge=0)] = 0
    tags: list[Annotated[str, Meta(min_length=1, max_length=50)]] = []
    attributes: dict[str, Any] = {}
    status: Literal["draft", "active", "archived"] = "active"


class StoredProduct(NewProduct, kw_only=True):
    id: str
    created_at: datetime
    updated_at: datetime
    version: int


def stored(products: Product | list[Product], type: Any) -> Any:
    """Products of the database as `type`, after which the session of the request ends."""
    converted = msgspec.convert(products, type, from_attributes=True)
    session.remove()
    return converted


@get("/products", sync_to_thread=False)
def read_page(limit: Annotated[int, Parameter(ge=1, le=100)] = 20, after: str = "") -> list[StoredProduct]:
    return stored(page_of({"limit": limit, "after": after}), list[StoredProduct])


@get("/products/{id:str}", sync_to_thread=False)
def read_product(id: str) -> StoredProduct:
    if (product := session.get(Product, id)) is None:
        raise NotFoundException
    return stored(product, StoredProduct)


@post("/products", status_code=200, sync_to_thread=False)
def create_product(data: NewProduct) -> StoredProduct:
    product = new_product(msgspec.structs.asdict(data))
    session.add(product)
    session.commit()
    return stored(product, StoredProduct)


with contextlib.suppress(OperationalError):  # the other worker was first
    Base.metadata.create_all(engine)
app = Litestar([read_page, read_product, create_product], openapi_config=None)

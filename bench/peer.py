"""A peer that does the same with common libraries: flask-smorest, marshmallow, SQLAlchemy's ORM, on SQLite or
PostgreSQL.

Same fields, same validation, same durability (of SQLite: WAL, synchronous=FULL), same page size; an ETag, a request id
and a log line for each response, with the means of these libraries.
"""

import contextlib
import logging
import os
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from flask import Flask, Response, request
from flask.views import MethodView
from flask_smorest import Api, Blueprint
from marshmallow import Schema, fields, validate
from sqlalchemy import JSON, Numeric, String, create_engine, event, select
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, scoped_session, sessionmaker


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "products"
    id: Mapped[str] = mapped_column(String, primary_key=True)
    name: Mapped[str]
    description: Mapped[str | None]
    sku: Mapped[str | None] = mapped_column(unique=True)
    price: Mapped[Decimal | None] = mapped_column(Numeric(15, 2, asdecimal=False), index=True)
    currency: Mapped[str]
    stock: Mapped[int]
    tags: Mapped[list[str]] = mapped_column(JSON)
    attributes: Mapped[dict[str, Any]] = mapped_column(JSON)
    status: Mapped[str] = mapped_column(index=True)
    created_at: Mapped[datetime] = mapped_column(index=True)
    updated_at: Mapped[datetime] = mapped_column(index=True)
    version: Mapped[int]


class ProductSchema(Schema):
    id = fields.String(dump_only=True)
    name = fields.String(required=True, validate=validate.Length(1, 200))
    description = fields.String(load_default=None, allow_none=True)
    sku = fields.String(load_default=None, allow_none=True, validate=validate.Length(1, 64))
    price = fields.Float(load_default=None, allow_none=True, validate=validate.Range(0))
    currency = fields.String(load_default="USD", validate=validate.Regexp("^[A-Z]{3}$"))
    stock = fields.Integer(load_default=0, strict=True, validate=validate.Range(0))
    tags = fields.List(fields.String(validate=validate.Length(1, 50)), load_default=list)
    attributes = fields.Dict(load_default=dict)
    status = fields.String(load_default="active", validate=validate.OneOf(["draft", "active", "archived"]))
    created_at = fields.DateTime(dump_only=True)
    updated_at = fields.DateTime(dump_only=True)
    version = fields.Integer(dump_only=True)


class PageSchema(Schema):
    limit = fields.Integer(load_default=20, validate=validate.Range(1, 100))
    after = fields.String(load_default="")


URL = os.environ.get("BENCH_PEER_URL", "sqlite://")
POOL = {"pool_size": int(os.environ.get("BENCH_PEER_CONNECTIONS", "10")), "max_overflow": 0}
engine = create_engine(URL, **({} if URL.startswith("sqlite") else POOL))
session = scoped_session(sessionmaker(engine, expire_on_commit=False))  # one for each request


def set_up(connection: Any, _: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 5000")


if URL.startswith("sqlite"):
    event.listen(engine, "connect", set_up)

blueprint = Blueprint("products", __name__, url_prefix="/products")


def new_product(values: dict[str, Any]) -> Product:
    now = datetime.now(UTC)
    return Product(id=str(uuid.uuid4()), created_at=now, updated_at=now, version=1, **values)


def page_of(page: dict[str, Any]) -> list[Product]:
    beyond = select(Product).where(Product.id > page["after"]) if page["after"] else select(Product)
    return list(session.scalars(beyond.order_by(Product.id).limit(page["limit"])))


@blueprint.route("")
class Products(MethodView):
    @blueprint.etag
    @blueprint.arguments(PageSchema, location="query")
    @blueprint.response(200, ProductSchema(many=True))
    def get(self, page: dict[str, Any]) -> list[Product]:
        return page_of(page)

    @blueprint.arguments(ProductSchema)
    @blueprint.response(200, ProductSchema)
    def post(self, values: dict[str, Any]) -> Product:
        product = new_product(values)
        session.add(product)
        session.commit()
        return product


@blueprint.route("/<id>")
class OneProduct(MethodView):
    @blueprint.etag
    @blueprint.response(200, ProductSchema)
    def get(self, id: str) -> Product:
        return session.get_one(Product, id)


def create_app(routes: Blueprint = blueprint) -> Flask:
    app = Flask(__name__)
    app.config.update(API_TITLE="peer", API_VERSION="1", OPENAPI_VERSION="3.1.0")
    with contextlib.suppress(OperationalError, ProgrammingError, IntegrityError):  # the other worker was first
        Base.metadata.create_all(engine)
    Api(app).register_blueprint(routes)
    log = logging.getLogger("peer")
    log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)

    @app.teardown_appcontext
    def end(_: BaseException | None) -> None:
        session.remove()

    @app.after_request
    def tell(response: Response) -> Response:
        response.headers["X-Request-Id"] = request.headers.get("X-Request-Id") or uuid.uuid4().hex
        log.info(
            "%s %s %s %s %s",
            response.headers["X-Request-Id"],
            request.remote_addr,
            request.method,
            request.path,
            response.status_code,
        )
        return response

    return app

"""The peer with the guarantees of ours: API keys with scopes, idempotency keys, and an event of each change.

A create checks the key, looks for a response to the same idempotency key, and stores the product, its event and the
response, all in one transaction. Of two concurrent creates with one idempotency key, the second waits in the database
until the first ends, and then returns its response. A page has the total and the link to the next one. A key is made by
an INSERT into `api_keys`.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from hashlib import sha256
from typing import Any

from flask import Flask, Response, g, request, url_for
from flask_smorest import Blueprint, abort
from sqlalchemy import JSON, DateTime, String, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapped, mapped_column

from bench import peer
from bench.peer import Base, PageSchema, Product, ProductSchema, new_product, page_of, session


class ApiKey(Base):
    __tablename__ = "api_keys"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)  # SHA-256 of the secret
    caller: Mapped[str]
    scopes: Mapped[list[str]] = mapped_column(JSON)
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class StoredResponse(Base):
    __tablename__ = "idempotency_keys"
    caller: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    request_digest: Mapped[str] = mapped_column(String(64))
    status: Mapped[int]
    headers: Mapped[dict[str, str]] = mapped_column(JSON)
    body: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(index=True)


class Event(Base):
    __tablename__ = "outbox"
    id: Mapped[int] = mapped_column(primary_key=True)
    type: Mapped[str]
    item: Mapped[str]
    at: Mapped[datetime]
    data: Mapped[dict[str, Any]] = mapped_column(JSON)


blueprint = Blueprint("products", __name__, url_prefix="/products")
product_schema = ProductSchema()


@blueprint.before_request
def authenticate() -> None:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    key = session.get(ApiKey, sha256(secret.encode()).hexdigest()) if scheme == "Bearer" else None
    if key is None or (key.expires_at and key.expires_at < datetime.now(UTC)):
        abort(401, message="The API key is missing or invalid.")
    if ("products:read" if request.method in ("GET", "HEAD") else "products:write") not in key.scopes:
        abort(403, message="The API key lacks the scope.")
    g.caller = key.caller


def idempotent(view: Callable[..., Response]) -> Callable[..., Response]:
    """Commit what the view adds to the session, with its response if the request has an idempotency key."""

    @wraps(view)
    def execute_once(*args: Any, **kwargs: Any) -> Response:
        key = request.headers.get("Idempotency-Key")
        if key is not None and not 0 < len(key) <= 255:
            abort(400, message="An idempotency key has 1 to 255 characters.")
        if key and (stored := session.get(StoredResponse, (g.caller, key))):
            return replay(stored)
        response = view(*args, **kwargs)
        if key:
            session.add(stored_response(key, response))
        try:
            session.commit()
        except IntegrityError:
            session.rollback()
            if key and (stored := session.get(StoredResponse, (g.caller, key))):
                return replay(stored)  # another request was first
            abort(409, message="The product conflicts with another one.")
        return response

    return execute_once


def stored_response(key: str, response: Response) -> StoredResponse:
    return StoredResponse(
        caller=g.caller,
        key=key,
        request_digest=digest_of_request(),
        status=response.status_code,
        headers=dict(response.headers),
        body=response.get_data(as_text=True),
        created_at=datetime.now(UTC),
    )


def replay(stored: StoredResponse) -> Response:
    if stored.request_digest != digest_of_request():
        abort(422, message="The idempotency key was used for another request.")
    return Response(stored.body, stored.status, stored.headers)


def digest_of_request() -> str:
    return sha256(request.path.encode() + b"\n" + request.get_data()).hexdigest()


@blueprint.route("")
class Products(peer.Products):
    @blueprint.etag
    @blueprint.arguments(PageSchema, location="query")
    @blueprint.response(200, ProductSchema(many=True))
    def get(self, page: dict[str, Any]) -> tuple[list[Product], int, dict[str, str]]:
        products = page_of(page)
        total = session.scalar(select(func.count()).select_from(Product))
        following = url_for("products.Products", limit=page["limit"], after=products[-1].id) if products else ""
        return products, 200, {"X-Total-Count": str(total), "Link": f'<{following}>; rel="next"'}

    @idempotent
    @blueprint.arguments(ProductSchema)
    @blueprint.response(200, ProductSchema)
    def post(self, values: dict[str, Any]) -> Product:
        product = new_product(values)
        event = Event(type="product.created", item=product.id, at=product.created_at, data=product_schema.dump(product))
        session.add_all([product, event])
        return product


blueprint.route("/<id>")(peer.OneProduct)


def create_app() -> Flask:
    return peer.create_app(blueprint)

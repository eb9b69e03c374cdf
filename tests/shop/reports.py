"""Routes of the service's own, beside its collections."""

from datetime import date
from decimal import Decimal
from typing import Any

from flask import Blueprint, Response, request
from marshmallow import Schema, fields, validate

from restkeeper import (
    Application,
    Config,
    Conflict,
    Deprecation,
    ListOf,
    NotFound,
    Text,
    Version,
    Versions,
    Whole,
    find_items,
    needs,
    read_item,
    returns,
    takes,
)
from tests.shop import create_app as create_shop

reports = Blueprint("reports", __name__, url_prefix="/reports")


class StockIsLocked(Conflict):
    """The stock is being counted: try again when that is done."""


class StockQuery(Schema):
    """Which products to count."""

    status = fields.String(load_default="active", validate=validate.OneOf(["draft", "active", "archived"]))
    names = ListOf(Text(1, 20), data_key="name")
    least = Whole(0, 1000, load_default=0)
    cheap = fields.Boolean()


class StockSchema(Schema):
    """The stock of all products of a status."""

    status = fields.String(required=True, metadata={"description": "Their status."})
    count = Whole(0)
    value = fields.Decimal()


class CountSchema(Schema):
    """What was counted."""

    name = Text(1, 50, required=True)
    stock = Whole(0, 10_000, required=True)
    places = fields.List(fields.String(validate=validate.Length(1, 20)), load_default=list)


@reports.get("/stock")
@needs("reports:read")
@takes(query=StockQuery)
@returns(StockSchema)
def read_stock(query: dict[str, Any]) -> dict[str, Any]:
    """Count the products of a status."""
    found = list(find_items("products", {"status": query["status"], "stock[gte]": query["least"]}))
    value = sum((each["stock"] * (each["price"] or Decimal(0)) for each in found), Decimal(0))
    return {"status": query["status"], "count": len(found), "value": value}


@reports.post("/counts/<int(max=9999):year>")
@needs("reports:write")
@takes(body=CountSchema)
@returns(CountSchema(many=True), StockIsLocked, status=201)
def count_stock(year: int, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Note what was counted in a year."""
    if body["name"] == "locked":
        raise StockIsLocked(f"the stock of {year} is being counted")
    return [body]


@reports.get("/products/<id>")
@needs("reports:read")
@returns(NotFound)
def read_product(id: str) -> dict[str, Any]:
    """A product as it is stored."""
    return read_item("products", id)


@reports.get("/plain/<name>")
@needs("public")
def read_plain(name: str) -> Any:
    """What a view of Flask's can return, and raise."""
    if name == "none":
        return "", 204
    if name == "broken":
        raise ZeroDivisionError("the secret cause")
    if name == "stream":
        return Response(iter(["a", "b"]), mimetype="text/plain")
    return {"text": "<b>hello</b>", "list": [{"price": Decimal("0.10"), 2026: None}], "response": Response(["x"])}.get(
        name, "?"
    )


@reports.post("/raw")
@needs("known")
def read_raw() -> dict[str, int]:
    """Read the body without a declaration."""
    return {"bytes": len(request.get_data())}


def create_app(config: Config | None = None, **options: Any) -> Application:
    """The service with these routes."""
    return create_shop(config, **{"blueprints": [reports], "name": "Lamps & more", **options})


def create_versions() -> Application:
    """The service with these routes, and with a deprecated version, which is that of the unversioned paths."""
    ends = Deprecation(version="v1", since=date(2026, 1, 1), sunset=date(2999, 1, 1))
    versions = Versions(Version("v1", successor="v2"), Version("v2"), unversioned="v1", deprecations=[ends])
    return create_app(versions=versions)

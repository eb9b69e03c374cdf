"""The service by itself, and as it is deployed."""

import json
from typing import Any
from urllib.request import urlopen

import pytest

from app import create_app
from restkeeper import Config, Space


@pytest.fixture
def client() -> Any:
    """A test client of Flask, of a service without items."""
    return create_app(Config()).test_client()


def test_a_lamp_is_stored(client: Any) -> None:
    """What is created is read back."""
    created = client.post("/products", json={"name": "Lamp", "price": 49.9})
    assert client.get(created.headers["Location"]).json == created.json


def test_a_draft_needs_a_price_to_become_active(client: Any) -> None:
    lamp = client.post("/products", json={"name": "Lamp", "status": "draft"}).headers["Location"]
    refused = client.patch(lamp, json={"status": "active"})
    assert (refused.status_code, refused.json["errors"][0]["pointer"]) == (422, "#/price")
    assert client.patch(lamp, json={"status": "active", "price": 49.9}).json["status"] == "active"


def test_a_sale_takes_pieces_out_of_the_stock(client: Any) -> None:
    """As long as there are enough. A wrong quantity is refused by the schema of the body."""
    lamp = client.post("/products", json={"name": "Lamp", "stock": 3}).headers["Location"]
    assert client.post(f"{lamp}/sell", json={"quantity": 2}).json["stock"] == 1
    assert client.post(f"{lamp}/sell", json={"quantity": 2}).status_code == 409
    assert client.post(f"{lamp}/sell", json={"quantity": 0}).json["errors"][0]["pointer"] == "#/quantity"


def test_a_report_lists_the_products_to_order(client: Any) -> None:
    """Those with fewer pieces in stock than a number, which the schema of the query checks."""
    client.post("/products", json=[{"name": "Lamp", "stock": 3}, {"name": "Desk", "stock": 5}, {"name": "Pen"}])
    listed = client.get("/reports/stock?below=5").json
    assert [(product["name"], product["stock"]) for product in listed] == [("Pen", 0), ("Lamp", 3)]
    assert client.get("/reports/stock?below=few").status_code == 400


def test_it_is_served(api: Space) -> None:
    """A running service responds over HTTP: one of its own for each test."""
    api.seed({"products": [{"name": "Lamp", "price": 49.9}]})
    with urlopen(f"{api.url}/products") as response:
        assert [item["name"] for item in json.load(response)] == ["Lamp"]

"""The service by itself, and as it is deployed."""

import json
from urllib.request import urlopen

from app import create_app
from restkeeper import Config, Space


def test_a_lamp_is_stored() -> None:
    """What is created is read back."""
    client = create_app(Config()).test_client()
    created = client.post("/products", json={"name": "Lamp", "price": 49.9})
    assert client.get(created.headers["Location"]).json == created.json


def test_it_is_served(api: Space) -> None:
    """A running service responds over HTTP: one of its own for each test."""
    api.seed({"products": [{"name": "Lamp", "price": 49.9}]})
    with urlopen(f"{api.url}/products") as response:
        assert [item["name"] for item in json.load(response)] == ["Lamp"]

"""The service by itself, and as it is deployed."""

import json
from urllib.request import urlopen

from app import create_app
from restkeeper import Config, LiveServer


def test_a_lamp_is_stored() -> None:
    """What is created is read back."""
    client = create_app(Config()).test_client()
    made = client.post("/products", json={"name": "Lamp", "price": 49.9})
    assert client.get(made.headers["Location"]).json == made.json


def test_it_is_served(restkeeper_server: LiveServer) -> None:
    """A running service responds over HTTP."""
    with urlopen(f"{restkeeper_server.url}/products") as response:
        assert json.load(response) == []

"""The service runs as it is deployed."""

from tests.live import Gunicorn


def test_create_and_read_back(server: Gunicorn) -> None:
    """What one worker keeps, every worker answers."""
    made = server.post("/products", {"name": "Desk lamp", "price": 49.9})
    assert made.status == 200
    for _ in range(8):
        assert server.get(made.headers["location"]).body == made.body

"""The service as it is deployed."""

from restkeeper import __version__
from restkeeper.storage import locate
from tests import stores
from tests.live import Gunicorn


def test_create_and_read_back(server: Gunicorn) -> None:
    """An item that one worker has stored is returned by every worker."""
    made = server.post("/products", {"name": "Desk lamp", "price": 49.9})
    assert made.status == 200
    for _ in range(8):
        assert server.get(made.headers["location"]).body == made.body


def test_the_start_prints_what_is_served(server: Gunicorn) -> None:
    """Version, number of collections, address and store, in one line."""
    first = server.lines()[0]
    store = locate(stores.url(f"sqlite:///{server.log.parent}/restkeeper.db")).name
    assert first == f"Restkeeper {__version__} serves 2 collections at {server.base}, stored in {store}"

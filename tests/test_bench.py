"""The benchmarks make requests of their own: the service must know them."""

from flask.testing import FlaskClient

from bench.rows import cursor


def test_cursors_are_those_of_the_service(client: FlaskClient) -> None:
    """A page that begins after a place is no error, in each order that is measured."""
    for place, order in [(("a",), {}), ((5, "a"), {"sort": "price"}), (("a",), {"status": "active"})]:
        response = client.get("/products", query_string={**order, "cursor": cursor((False, *place), **order)})
        assert response.status_code == 200, response.json

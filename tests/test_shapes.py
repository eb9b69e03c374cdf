"""Collections of other shapes: those that requests only read, or only add to."""

import pytest
from flask.testing import FlaskClient

from restkeeper import Config, Resource
from tests.shop.shapes import RateSchema, create_app
from tests.test_openapi import everything

pytestmark = pytest.mark.needs("batch", "events", "idempotency", "keys", "openapi")


@pytest.fixture
def client() -> FlaskClient:
    """A client of the service with these collections, open to all on this machine."""
    return create_app(Config()).test_client()


def test_requests_only_read_a_collection(client: FlaskClient) -> None:
    """Actions write it, with events; other methods are not allowed, alone and in a batch."""
    rate = client.post("/rates/refresh", json={"currency": "EUR"}).json
    path = f"/rates/{rate['id']}"
    assert client.post(f"{path}/double").json["value"] == 2 and client.get("/rates").json[0]["version"] == 2
    assert [each["type"] for each in client.get("/api/v1/events").json] == ["rate.created", "rate.updated"]
    for of, methods in (("/rates", ["POST"]), (path, ["PUT", "PATCH", "DELETE"]), ("/api/v1/rates", ["POST"])):
        for method in methods:
            refused = client.open(of, method=method, json={"currency": "USD"})
            assert (refused.status_code, refused.json["title"]) == (405, "Method not allowed")
            assert set(refused.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}
    refused = [("POST", "/rates"), ("PATCH", path), ("DELETE", path)]
    for method, of in refused:
        batch = client.post("/api/v1/batch", json={"operations": [{"method": method, "path": of, "body": {}}]})
        assert (batch.status_code, batch.json["errors"][0]["pointer"]) == (422, "#/operations/0/path")
    done = {"method": "POST", "path": f"{path}/double", "body": {}}
    assert client.post("/api/v1/batch", json={"operations": [done]}).json["results"][0]["body"]["value"] == 4


def test_items_that_are_only_created(client: FlaskClient) -> None:
    """Any methods can be left out but GET."""
    path = client.post("/notes", json={"currency": "EUR"}).headers["Location"]
    assert client.get(path).status_code == 200 and client.delete(path).status_code == 405
    made = client.post("/api/v1/batch", json={"operations": [{"method": "POST", "path": "/notes", "body": {}}]})
    assert made.json["errors"][0]["pointer"] == "#/operations/0/body/currency"


def test_the_document_has_the_methods_that_there_are(client: FlaskClient) -> None:
    """And no schema of what cannot be sent."""
    document = client.get("/openapi.json").json
    paths = {path: set(item) - {"parameters"} for path, item in document["paths"].items()}
    assert (paths["/rates"], paths["/rates/{id}"], paths["/notes/{id}"]) == ({"get"}, {"get"}, {"get"})
    assert (paths["/notes"], paths["/rates/refresh"]) == ({"get", "post"}, {"post"})
    schemas = document["components"]["schemas"]
    assert {"Rate", "NoteInput"} <= schemas.keys() and schemas.keys().isdisjoint({"RateInput", "NotePatch"})
    assert any(part.get("operationId") == "refresh_rates" for part in everything(document))


@pytest.mark.parametrize("methods", ["GET", ("POST",), ("GET", "HEAD"), ()])
def test_methods_that_cannot_be(methods: tuple[str, ...]) -> None:
    """The start says what to write."""
    with pytest.raises(ValueError, match="rates: methods=.*: must be 'GET' and some of .*'DELETE'"):
        Resource("rates", "rate", RateSchema, methods=methods)

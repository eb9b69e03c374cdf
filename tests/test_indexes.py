"""An index of several fields, as a service declares it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper import Config, Index, Resource, Text
from restkeeper.resources.evolution import Convert
from restkeeper.storage.errors import StoreUnavailable
from tests.callers import pointers
from tests.programs import two_versions
from tests.shapes import PEOPLE
from tests.shop import create_app
from tests.shop.products import ProductSchema


def serve(*indexes: Index, **options: Any) -> FlaskClient:
    return create_app(Config(**options), [Resource("products", "product", ProductSchema, indexes)]).test_client()


def statuses(client: FlaskClient, *sent: Any) -> list[int]:
    return [client.post("/products", json=each).status_code for each in sent]


def test_a_value_is_unique_within_another_one() -> None:
    """The other one is a 409 that points to both fields, also inside an array; null is compared with nothing."""
    client = serve(Index("name", "price", unique=True))
    one, other = ({"name": name, "price": 1} for name in "ab")
    assert statuses(client, one, other, one, {"name": "a", "price": 2}) == [200, 200, 409, 200]
    assert statuses(client, {"name": "a"}, {"name": "a", "price": None}) == [200, 200]
    refused = client.post("/products", json=one)
    assert refused.json["detail"] == "another item has this name and this price"
    assert pointers(refused) == ["#/name", "#/price"]
    refused = client.post("/products", json=[{"name": "c", "price": 1}, {"name": "a", "price": 2}])
    assert (refused.status_code, pointers(refused)) == (409, ["#/1/name", "#/1/price"])
    refused = client.post("/products", json=[{"name": "c", "price": 1}, {"name": "c", "price": 1}])
    assert (refused.status_code, pointers(refused)) == (409, ["#/1/name", "#/1/price"])
    (second,) = client.get("/products?name=a&price=2").json
    refused = client.patch(f"/products/{second['id']}", json={"price": 1})
    assert (refused.status_code, pointers(refused)) == (409, ["#/name", "#/price"])
    assert client.patch(f"/products/{second['id']}", json={"price": 3, "stock": 1}).status_code == 200


@pytest.mark.needs("versions")
def test_a_field_of_an_older_version_is_named_once() -> None:
    """Of which a Convert has made those that are unique together."""
    step = Convert({"contact": Text(required=True)}, ["name", "email"], lambda contact: contact.split(), "{} {}".format)
    people = replace(PEOPLE, indexes=(Index("name", "email", unique=True),), upgrades={2: [step]})
    client = create_app(Config(), [people], versions=two_versions("people", "v1")).test_client()
    refused = [client.post("/people", json={"contact": "Ada ada@example.org"}) for _ in "ab"][1]
    assert (refused.json["detail"], pointers(refused)) == ("another item has this contact", ["#/contact"])


@pytest.mark.needs("openapi")
def test_the_document_says_what_is_unique_together() -> None:
    together = (Index("name", each, unique=True) for each in ("price", "stock"))
    client = serve(*together, Index("sku", unique=True))
    sent = client.get("/openapi.json").json["components"]["schemas"]["ProductInput"]["properties"]
    assert {name: part["x-unique-with"] for name, part in sent.items() if "x-unique-with" in part} == {
        "name": ["price", "stock"],
        "price": ["name"],
        "stock": ["name"],
    }
    assert [name for name, part in sent.items() if "x-unique" in part] == ["sku"]


def test_a_start_is_refused_while_items_share_the_values(tmp_path: Path) -> None:
    """It names them; others that share one of the values do not matter."""
    url = f"sqlite:///{tmp_path}/store.db"
    sent = [{"name": "a", "price": 1}, {"name": "a", "price": 1}, {"name": "a", "price": 2}, {"name": "a"}]
    first, second, *_ = (each["id"] for each in serve(database_url=url).post("/products", json=[*sent, sent[-1]]).json)
    with pytest.raises(StoreUnavailable) as refused:
        serve(Index("name", "price", unique=True), database_url=url)
    assert str(refused.value).endswith(
        "some items of products have the same name and price, which must be unique "
        f'("a", 1: {first}, {second}; change or delete them with the former program)'
    )
    former = serve(database_url=url)
    former.delete(f"/products/{first}")
    client = serve(Index("name", "price", unique=True), Index("name", "price"), database_url=url)
    assert statuses(client, sent[0], {"name": "b", "price": 1}) == [409, 200]
    assert statuses(former, sent[0]) == [409]  # which does not declare it


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (Index("name", "name"), r"Index\('name', 'name'\): must be of 1 to 4 fields, each once"),
        (Index("name", "tags"), r"products.tags: can have several values: write Index\('tags'\)"),
        (Index("name", "sku", fold=True), "is of several fields: write fold=True in an Index of each text"),
        (Index("name", "none"), "products.none: cannot be indexed or searched; there are: "),
        (Index("name", "description"), "its texts can have more than 600 characters: give them a bound"),
    ],
    ids=str,
)
def test_what_no_index_can_have(index: Index, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Resource("products", "product", ProductSchema, (index,))
    for wrong in ((), ("name", True)):
        with pytest.raises(ValueError, match="must have names of fields"):
            Index(*wrong)  # type: ignore[arg-type]

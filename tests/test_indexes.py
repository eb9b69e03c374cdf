"""An index of several fields, as a service declares it."""

from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from marshmallow import fields

from restkeeper import Config, Email, Index, Items, ItemSchema, ListOf, Resource, Text, Whole
from restkeeper.resources.evolution import Convert
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.versions import Version, Versions
from tests.callers import pointers
from tests.shop import create_app


class InvoiceSchema(ItemSchema):
    """An invoice in a book."""

    book = Text(1, 20, required=True)
    number = Whole(0, load_default=None, allow_none=True)
    mail = Email(load_default=None, allow_none=True)
    day = fields.Date(load_default=None, allow_none=True)
    note = Text(0, 1000, load_default="")
    tags = ListOf(Text(1, 10), load_default=list)


def serve(*indexes: Index, **options: Any) -> FlaskClient:
    return create_app(Config(**options), [Resource("invoices", "invoice", InvoiceSchema, indexes)]).test_client()


def statuses(client: FlaskClient, *sent: Any) -> list[int]:
    return [client.post("/invoices", json=each).status_code for each in sent]


def test_a_number_is_unique_within_its_book() -> None:
    """The other one is a 409 that points to both fields, also inside an array; null is compared with nothing."""
    client = serve(Index("book", "number", unique=True))
    one, other = ({"book": book, "number": 1} for book in "ab")
    assert statuses(client, one, other, one, {"book": "a", "number": 2}) == [200, 200, 409, 200]
    assert statuses(client, {"book": "a"}, {"book": "a", "number": None}) == [200, 200]
    refused = client.post("/invoices", json=one)
    assert refused.json["detail"] == "another item has this book and this number"
    assert pointers(refused) == ["#/book", "#/number"]
    refused = client.post("/invoices", json=[{"book": "c", "number": 1}, {"book": "a", "number": 2}])
    assert (refused.status_code, pointers(refused)) == (409, ["#/1/book", "#/1/number"])
    refused = client.post("/invoices", json=[{"book": "c", "number": 1}, {"book": "c", "number": 1}])
    assert (refused.status_code, pointers(refused)) == (409, ["#/1/book", "#/1/number"])
    (second,) = client.get("/invoices?book=a&number=2").json
    refused = client.patch(f"/invoices/{second['id']}", json={"number": 1})
    assert (refused.status_code, pointers(refused)) == (409, ["#/book", "#/number"])
    assert client.patch(f"/invoices/{second['id']}", json={"number": 3, "note": "x"}).status_code == 200


@pytest.mark.needs("versions")
def test_a_field_of_an_older_version_is_named_once() -> None:
    """Of which a Convert has made those that are unique together."""

    class Person(ItemSchema):
        first, last = Text(1, 50, required=True), Text(1, 50, required=True)

    step = Convert({"name": Text(required=True)}, ["first", "last"], lambda name: name.split(), "{} {}".format)
    people = Resource("people", "person", Person, (Index("first", "last", unique=True),), upgrades={2: [step]})
    versions = Versions(Version("v1", revisions={"people": 1}), Version("v2"), unversioned="v1")
    client = create_app(Config(), [people], versions=versions).test_client()
    refused = [client.post("/people", json={"name": "Ada Byron"}) for _ in range(2)][1]
    assert (refused.json["detail"], pointers(refused)) == ("another item has this name", ["#/name"])


def test_a_function_finds_by_it() -> None:
    """By its first fields, in its order, and by all of a unique one."""
    resource = Resource(
        "invoices", "invoice", InvoiceSchema, (Index("book", "number"), Index("book", "number", unique=True))
    )

    @resource.before("create")
    def set_number(invoice: Any, before: None, items: Items) -> None:
        last = items.find("invoices", {"book": invoice["book"], "sort": "-number", "limit": 1})
        invoice["number"] = last[0]["number"] + 1 if last else 1
        assert items.count("invoices", {"book": invoice["book"], "number": invoice["number"]}) == 0
        assert items.count("invoices", {"book": invoice["book"], "number[gte]": 1}) == invoice["number"] - 1

    client = create_app(Config(), [resource]).test_client()
    numbers = [client.post("/invoices", json={"book": book}).json["number"] for book in "aababa"]
    assert numbers == [1, 2, 1, 3, 2, 4]
    assert [each["number"] for each in client.get("/invoices?book=a&sort=-number&limit=2").json] == [4, 3]
    assert [each["number"] for each in client.get("/invoices?book=a&number[gt]=1&sort=number").json] == [2, 3, 4]


@pytest.mark.needs("openapi")
def test_the_document_says_what_is_unique_together() -> None:
    client = serve(Index("book", "number", unique=True), Index("book", "mail", unique=True), Index("day", unique=True))
    sent = client.get("/openapi.json").json["components"]["schemas"]["InvoiceInput"]["properties"]
    assert {name: part["x-unique-with"] for name, part in sent.items() if "x-unique-with" in part} == {
        "book": ["number", "mail"],
        "number": ["book"],
        "mail": ["book"],
    }
    assert [name for name, part in sent.items() if "x-unique" in part] == ["day"]


def test_a_start_is_refused_while_items_share_the_values(tmp_path: Path) -> None:
    """It names them; others that share one of the values do not matter."""
    url = f"sqlite:///{tmp_path}/store.db"
    sent = [{"book": "a", "number": 1}, {"book": "a", "number": 1}, {"book": "a", "number": 2}, {"book": "a"}]
    first, second, *_ = (each["id"] for each in serve(database_url=url).post("/invoices", json=[*sent, sent[-1]]).json)
    with pytest.raises(StoreUnavailable) as refused:
        serve(Index("book", "number", unique=True), database_url=url)
    assert str(refused.value).endswith(
        "some items of invoices have the same book and number, which must be unique "
        f'("a", 1: {first}, {second}; change or delete them with the former program)'
    )
    former = serve(database_url=url)
    former.delete(f"/invoices/{first}")
    client = serve(Index("book", "number", unique=True), Index("book", "number"), database_url=url)
    assert statuses(client, sent[0], {"book": "b", "number": 1}) == [409, 200]
    assert statuses(former, sent[0]) == [409]  # which does not declare it


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (Index("book", "book"), r"Index\('book', 'book'\): must be of 1 to 4 fields, each once"),
        (Index("book", "tags"), r"invoices.tags: can have several values: write Index\('tags'\)"),
        (Index("book", "mail", fold=True), "is of several fields: write fold=True in an Index of each text"),
        (Index("book", "none"), "invoices.none: cannot be indexed or searched; there are: "),
        (Index("book", "note"), "its texts can have more than 600 characters: give them a bound"),
    ],
    ids=str,
)
def test_what_no_index_can_have(index: Index, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Resource("invoices", "invoice", InvoiceSchema, (index,))


@pytest.mark.parametrize("wrong", [(), ("book", True)])
def test_an_index_has_names_of_fields(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="must have names of fields"):
        Index(*wrong)

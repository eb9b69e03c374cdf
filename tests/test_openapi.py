"""The OpenAPI document is valid, complete and true to itself."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import OpenAPIV31SpecValidator

import errors
import resources
from app import create_app
from config import Config
from tests.test_schemas import ORDERS

METHODS = {"get", "post", "put", "patch", "delete"}
UNDOCUMENTED = {"/docs/{name}"}  # the docs page's own files


@pytest.fixture(scope="module")
def app() -> Flask:
    """The service with a third collection, whose fields are of every kind."""
    return create_app(Config(), [*resources.declared(), ORDERS])


@pytest.fixture(scope="module")
def document(app: Flask) -> Any:
    return app.test_client().get("/openapi.json").json


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, item in document["paths"].items():
        yield from ((path, method, operation) for method, operation in item.items() if method in METHODS)


def everything(part: Any) -> Iterator[Any]:
    """All objects of the document, outermost first."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from everything(inner)


def test_the_document_is_valid(document: Any) -> None:
    """It fits the metaschema of OpenAPI 3.1 and every reference in it leads somewhere."""
    OpenAPIV31SpecValidator(document).validate()


def test_every_route_is_documented_and_no_other(app: Flask, document: Any) -> None:
    """What can be called is in the document, method by method, and what is in the document can be called."""
    routes = {
        (path, method.lower())
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if (path := re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)) not in UNDOCUMENTED
    }
    assert {(path, method) for path, method, _ in operations(document)} == routes


def test_no_docs_page_is_documented_where_there_is_none() -> None:
    """With DOCS=0 the document does not speak of the page."""
    document = create_app(Config(docs=False)).test_client().get("/openapi.json").json
    assert "/docs" not in document["paths"]


def test_every_operation_can_be_told_from_the_others(document: Any) -> None:
    """operationIds are unique names; each operation has a summary, a description and a tag that is explained."""
    found = [operation for _, _, operation in operations(document)]
    ids = [operation["operationId"] for operation in found]
    assert len(set(ids)) == len(ids) and all(id.isidentifier() for id in ids)
    assert all(operation["summary"] and operation["description"] for operation in found)
    assert {tag for operation in found for tag in operation["tags"]} == {tag["name"] for tag in document["tags"]}


def test_both_paths_of_a_collection_are_one_interface(document: Any) -> None:
    """Under /api/v1 the same is said as under the plain path, but for the operationIds."""
    named = re.compile(r'("operationId": "\w+?)(_v1)?"')
    for name in ("products", "users", "orders"):
        for end in ("", "/{id}"):
            current, v1 = (document["paths"][f"{prefix}/{name}{end}"] for prefix in ("", "/api/v1"))
            assert named.sub(r"\1", repr(v1).replace("'", '"')) == named.sub(r"\1", repr(current).replace("'", '"'))


def test_every_example_is_valid(document: Any) -> None:
    """Examples fit the schemas that they stand at."""
    pairs = []
    for part in everything(document):
        if isinstance(part.get("examples"), dict) and "schema" in part:
            pairs += [(part["schema"], example["value"]) for example in part["examples"].values()]
        elif isinstance(part.get("examples"), list) and "type" in part:
            pairs += [(part, value) for value in part["examples"]]
        if "type" in part and "default" in part:
            pairs.append((part, part["default"]))
    assert len(pairs) > 50
    for schema, value in pairs:
        whole = {**schema, "components": document["components"]}
        Draft202012Validator(whole, format_checker=FormatChecker()).validate(value)


@pytest.mark.parametrize("name", ["Product", "User"])
def test_examples_look_like_answers(document: Any, name: str) -> None:
    """An example has the fields of an answer in their order."""
    answer = document["components"]["responses"][f"{name}Kept"]["content"]["application/json"]
    (example,) = answer["examples"].values()
    assert list(example["value"]) == list(document["components"]["schemas"][name]["properties"])


@pytest.mark.parametrize("name", ["products", "users"])
def test_what_the_examples_send_is_kept(client: FlaskClient, document: Any, name: str) -> None:
    """The example of a create can be sent as it is, and every field of it comes back."""
    body = document["components"]["requestBodies"][f"{name.rstrip('s').title()}Input"]["content"]["application/json"]
    (example,) = body["examples"].values()
    made = client.post(f"/{name}", json=example["value"])
    assert made.status_code == 200 and made.json.items() >= example["value"].items()


@pytest.mark.parametrize("name", errors.catalogue())
def test_every_problem_type_has_its_page(client: FlaskClient, name: str) -> None:
    """A problem's type leads to a page that explains it, to people and to programs."""
    page = client.get(f"/problems/{name}", headers={"Accept": "text/html"})
    assert (page.status_code, page.mimetype) == (200, "text/html")
    assert client.get(f"/problems/{name}").json["title"] in page.text


def test_the_types_in_examples_are_those_there_are(document: Any) -> None:
    """Problem examples name types of the catalogue, with their status."""
    found = {
        (example["value"]["type"], example["value"]["status"])
        for response in document["components"]["responses"].values()
        for example in response.get("content", {}).get("application/problem+json", {}).get("examples", {}).values()
    }
    known = {(kind.uri or f"/problems/{name}", kind.status) for name, kind in errors.catalogue().items()}
    assert found <= known and len(found) > 10


def test_a_third_collection_is_documented(document: Any) -> None:
    """Declaring a collection documents its fields, states, bounds and filters without a further word."""
    schemas, paths = document["components"]["schemas"], document["paths"]
    assert schemas["OrderInput"]["required"] == ["number"]
    assert schemas["Order"]["properties"]["status"]["enum"] == ["open", "shipped", "cancelled"]
    assert schemas["Order"]["properties"]["due"]["format"] == "date-time"
    listed = {ref["$ref"].rpartition("/")[2] for ref in paths["/orders"]["get"]["parameters"]}
    assert {"Limit", "OrderSort", "OrderSearch", "Order.due.gte", "Order.paid.eq", "IfMatch"} <= listed
    assert not any(name.startswith("Order.lines") for name in listed if name.endswith(("gt", "lt", "like")))

"""The OpenAPI document is valid and complete, and matches the service."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from itertools import pairwise
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from marshmallow import Schema, fields, validate
from openapi_spec_validator import OpenAPIV31SpecValidator

import restkeeper
from restkeeper import FEATURES, ItemSchema, Reference, Resource, Text
from restkeeper.config import Config
from restkeeper.contract.check import compare
from restkeeper.errors import Problem
from restkeeper.features.events.types import event_collections, known_types
from restkeeper.features.openapi.document import document as document_of
from restkeeper.features.openapi.spec import bounded
from restkeeper.features.webhooks.deliverer import LARGEST, Deliverer
from restkeeper.features.webhooks.handlers import PING
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.service import make_service, service_of
from restkeeper.web.application import Application, Reply
from restkeeper.web.auth import needs
from restkeeper.web.operations import Body, Contribution, Result, returns, takes
from tests import shop
from tests.clock import SetClock
from tests.documents import parameters, resolved, unfolded
from tests.live import Gunicorn
from tests.shapes import SETTINGS
from tests.shop import clients, create_app
from tests.shop.bills import BILLS

pytestmark = pytest.mark.needs("openapi")

METHODS = {"get", "post", "put", "patch", "delete"}
HEADERS = ["webhook-id", "webhook-timestamp", "webhook-signature"]
RESOURCES = (*shop.RESOURCES, BILLS)
BODIES: dict[str, Any] = {"products": {"name": "Lamp"}, "users": {"email": "a@example.org"}, "bills": {"name": "a"}}
UNDOCUMENTED = {"/docs/{name}", "/browse/{name}"}  # the pages' own files


@pytest.fixture(scope="module")
def app() -> Flask:
    return create_app(Config(), RESOURCES)


@pytest.fixture(scope="module")
def document(app: Flask) -> Any:
    return app.test_client().get("/openapi.json").json


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    """At each address of each."""
    for path, item in unfolded(document)["paths"].items():
        yield from ((path, method, operation) for method, operation in item.items() if method in METHODS)


def everything(part: Any) -> Iterator[Any]:
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from everything(inner)


def fits(document: Any, schema: Any, value: Any) -> None:
    whole = {**schema, "components": document["components"]}
    Draft202012Validator(whole, format_checker=FormatChecker()).validate(value)


class PartSchema(Schema):
    """A part of an item, which can have parts."""

    name = restkeeper.Text(1, 20, required=True)
    size = restkeeper.Whole(0, 2, load_default=1)
    color = fields.String(validate=validate.OneOf(("red", "blue")), load_default="red")
    parts = fields.Dict(keys=fields.String(), values=fields.Nested(lambda: PartSchema()))


class WholeSchema(restkeeper.ItemSchema):
    """An item that has parts."""

    part = fields.Nested(PartSchema, allow_none=True, load_default=None)
    main = fields.Nested(PartSchema, required=True)
    texts = fields.Dict(keys=fields.String(), values=fields.String(), load_default=dict)
    lines = fields.List(fields.Nested(PartSchema), load_default=list)


def test_a_patch_names_and_removes_members_of_what_is_inside() -> None:
    """Of objects inside others and of maps (RFC 7396); an array is whole. The service takes what the schema allows."""
    app = create_app(Config(), [restkeeper.Resource("wholes", "whole", WholeSchema)])
    client = app.test_client()
    document = client.get("/openapi.json").json
    OpenAPIV31SpecValidator(document).validate()
    schemas = document["components"]["schemas"]
    part = {"name": "b", "size": 2, "parts": {"c": {"name": "c"}, "d": {"name": "d"}}}
    texts = {"a": "x", "b": "y"}
    path = client.post("/wholes", json={"main": part, "part": part, "texts": texts}).headers["Location"]
    for patch, ok in (
        ({"main": {"size": 1}}, True),
        (
            {"main": {"size": None, "color": None, "parts": {"c": None, "d": {"size": None}}}, "texts": {"a": None}},
            True,
        ),
        ({"part": {"parts": None}, "texts": None, "lines": None}, True),
        ({"part": None}, True),
        ({"main": {"name": None}}, False),
        ({"main": None}, False),
        ({"main": {"size": 3}}, False),
        ({"main": {"color": "green"}}, False),
        ({"lines": [{"size": 1}]}, False),
        ({"texts": {"a": 1}}, False),
    ):
        status = 200 if ok else 422
        found = client.patch(path, json=patch)
        assert found.status_code == status, (patch, found.json)
        with nullcontext() if ok else pytest.raises(ValidationError):
            fits(document, schemas["WholePatch"], patch)
        if not ok:
            continue
        for name, value in found.json.items():
            if name in ("main", "part") and value:
                fits(document, schemas["WholePart"], value)
    for name in ("WholePartPatch", "WholePartReturned", "Whole"):
        assert not [each for each in everything(schemas[name]) if "default" in each], name
    inner = schemas["WholePartPatch"]["properties"]["parts"]["additionalProperties"]["anyOf"][0]
    assert inner == {"$ref": "#/components/schemas/WholePartPatch"}
    inner = schemas["WholePartReturned"]["properties"]["parts"]["additionalProperties"]
    assert inner == {"$ref": "#/components/schemas/WholePartReturned"}
    assert schemas["WholePart"]["properties"]["size"]["default"] == 1


def test_a_new_collection_changes_no_names_of_others() -> None:
    """Of nested schemas and bodies of actions, where one of its schemas is called so: clients name types by these."""

    first = restkeeper.Resource("wholes", "whole", WholeSchema)
    first.action("cut", body=PartSchema)(lambda whole, body, items: None)
    new = [restkeeper.Resource("parts", "part", WholeSchema), restkeeper.Resource("replies", "reply", WholeSchema)]
    both = ([first], [*new, first])
    before, after = (create_app(Config(), each).test_client().get("/openapi.json").json for each in both)
    assert not [each for each in compare("v1", before, after, today=date.today(), window=180) if each.severity == 0]
    assert {"WholePart", "Part", "PartPart", "ReplyPart"} <= after["components"]["schemas"].keys()


@pytest.mark.needs("batch")
def test_a_batch_changes_items_and_singletons_not_collections() -> None:
    """In the schema, as by the service: only the paths of singletons have no id. Another singleton breaks no client."""
    more = [replace(SETTINGS, name=name, singular=name) for name in ("settings", "profile")]
    documents = [
        create_app(Config(), (*RESOURCES[:2], *more[:number])).test_client().get("/openapi.json").json
        for number in range(len(more) + 1)
    ]
    allowed = "POST /products,POST /products/x/close,PUT /products/x,DELETE /users/$name"
    refused = "PUT /products,DELETE /products/,PATCH /products/x/y,PATCH /users,DELETE /settings"
    for number, each in enumerate(documents):
        schema = each["components"]["schemas"]["Operation"]
        for operation in f"{allowed},PUT /settings,PATCH /settings".split(",") if number else allowed.split(","):
            fits(each, schema, dict(zip(("method", "path"), operation.split(), strict=True)))
        for operation in refused.split(","):
            with pytest.raises(ValidationError):
                fits(each, schema, dict(zip(("method", "path"), operation.split(), strict=True)))
    for before, after in pairwise(documents):
        found = compare("v1", before, after, today=date(2026, 11, 22), window=180)
        assert not [each for each in found if each.change.subject.schema == "Operation"], found


def test_no_component_has_the_name_of_one_of_its_fields(document: Any) -> None:
    """Generators of clients in Python use the name of a class, in small letters, as a variable beside its fields."""
    for name, schema in document["components"]["schemas"].items():
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() not in schema.get("properties", ()), name


def test_the_document_is_valid(document: Any) -> None:
    """It matches the metaschema of OpenAPI 3.1, and every reference in it can be resolved."""
    OpenAPIV31SpecValidator(document).validate()
    text = json.dumps(document)
    unused = [
        f"{section}/{name}"
        for section, parts in document["components"].items()
        for name in parts
        if f'"#/components/{section}/{name}"' not in text and f'{{"{name}": []}}' not in text
    ]
    assert unused == []


def test_every_route_is_documented_and_no_other(app: Flask, document: Any) -> None:
    routes = {
        (path, method.lower())
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if (path := re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)) not in UNDOCUMENTED
    }
    assert {(path, method) for path, method, _ in operations(document)} == routes


def test_later_routes_are_documented() -> None:
    """The document is built for its first request, and has the routes that were added to the application, too."""
    app = create_app(Config())
    app.add_url_rule("/later", "later", needs("public")(lambda: Reply(b"{}")))
    response = app.test_client().get("/openapi.json")
    assert response.status_code == 200 and "get" in response.json["paths"]["/later"]


def test_every_operation_has_its_name_and_responses(document: Any) -> None:
    """Each has a unique operationId, a summary, a description and a tag that is explained."""
    found = [item[method] for item in document["paths"].values() for method in item.keys() & METHODS]
    sent = [item["post"] for item in document.get("webhooks", {}).values()]
    ids = [operation["operationId"] for operation in (*found, *sent)]
    assert len(set(ids)) == len(ids) and all(id.isidentifier() for id in ids)
    assert all(operation["summary"] and operation["description"] for operation in (*found, *sent))
    assert {tag for operation in found for tag in operation["tags"]} == {tag["name"] for tag in document["tags"]}
    for path, method, operation in operations(document):
        assert ("507" in operation["responses"]) == (method in ("post", "put", "patch")), (method, path)


@pytest.mark.needs("events", "health")
def test_a_path_is_below_its_servers(document: Any) -> None:
    """Those of the document, or those of its own."""
    assert [each["url"] for each in document["servers"]] == ["/api/v1", "/"]
    servers = {path: item.get("servers") for path, item in document["paths"].items()}
    assert servers["/products"] is None and servers["/bills/{id}"] is None
    assert (servers["/events"], servers["/healthz"]) == ([{"url": "/api/v1"}], [{"url": "/"}])


def test_every_example_is_valid_and_can_be_sent(document: Any, client: FlaskClient) -> None:
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
        fits(document, schema, value)
    found = {
        (example["value"]["type"], example["value"]["status"])
        for response in document["components"]["responses"].values()
        for example in response.get("content", {}).get("application/problem+json", {}).get("examples", {}).values()
    }
    known = {(f"/problems/{kind.name}", kind.status) for kind in Problem.__subclasses__()}
    assert found <= known and len(found) > 10
    known = document["components"]
    for name in ("Product", "User"):
        (returned,) = known["schemas"][name]["examples"]
        assert list(returned) == list(known["schemas"][name]["properties"])
        fields = known["schemas"][f"{name}Input"]["properties"]
        sent = {field: part["examples"][0] for field, part in fields.items() if "examples" in part}
        made = client.post(f"/{name.lower()}s", json=sent)
        assert len(sent) > 1 and made.status_code == 200 and made.json.items() >= sent.items()


def test_a_third_collection_is_documented(document: Any) -> None:
    """A declaration is enough to document the fields, states, limits and filters of a collection."""
    schemas, paths = document["components"]["schemas"], document["paths"]
    assert schemas["BillInput"]["required"] == ["name"]
    assert schemas["Bill"]["properties"]["status"]["enum"] == ["new", "sent"]
    assert schemas["Bill"]["properties"]["paid_at"]["format"] == "date-time"
    listed = parameters(document, paths["/bills"]["get"]).keys()
    assert {"limit", "sort", "paid_at[gte]", "open", "If-Match"} <= listed
    assert {"lines.sku[starts]", "lines.price[gt]", "or", "count"} <= listed
    assert not listed & {"lines", "lines.sku[like]", "q"}
    assert "q" in parameters(document, paths["/products"]["get"])


def sent_by_the_service() -> list[tuple[Mapping[str, str], Any]]:
    """Headers and content of all requests to a webhook, with events of every type; one item is too large to be sent."""
    service = create_app(Config(), RESOURCES)
    client = service.test_client()
    event_types = {"types": ["*", "webhook.disabled"]}
    gone, webhook = (
        client.post("/api/v1/webhooks", json={"url": f"https://{name}.example.org/"} | event_types).json
        for name in ("gone", "here")
    )
    large = {"name": "x", "attributes": {"text": "x" * LARGEST}}
    for name, body in (("products", large), *((name, BODIES[name]) for name in BODIES)):
        path = client.post(f"/{name}", json=body).headers["Location"]
        client.patch(path, json={next(iter(body)): "y@example.org"})
        client.delete(path)
    client.post(f"/api/v1/webhooks/{webhook['id']}/ping")
    sent: list[tuple[Mapping[str, str], Any]] = []

    def send(url: str, headers: Mapping[str, str], body: bytes) -> DeliveryResult:
        if url == gone["url"]:
            return DeliveryResult(410, "", None)
        sent.append((headers, json.loads(body)))
        return DeliveryResult(200, "", None)

    made, collections = service.extensions["restkeeper"], event_collections(RESOURCES)
    deliverer = Deliverer(made.store, made.of_features["webhooks"], send, collections, timeout=1.0, retries=())
    while deliverer.deliver_once():
        pass
    deliverer.close()
    return sent


@pytest.mark.needs("webhooks")
def test_every_type_of_event_is_documented(document: Any) -> None:
    """Each type has its entry, with its headers; there are no others."""
    types = {type for type in known_types(RESOURCES) if not type.endswith("*")}
    assert set(document["webhooks"]) == types | {PING}
    for item in document["webhooks"].values():
        assert [ref["$ref"].rpartition("/")[2] for ref in item["post"]["parameters"]] == HEADERS
        assert {"2XX", "410", "default"} == set(item["post"]["responses"])
    assert all(document["components"]["parameters"][name]["required"] for name in HEADERS)
    (about,) = (tag["description"] for tag in document["tags"] if tag["name"] == "webhooks")
    assert f"{LARGEST:,} bytes" in about
    schemas = document["components"]["schemas"]
    for name in ("Webhook", "WebhookInput", "NewWebhook", "WebhookPatch"):
        assert schemas[name]["properties"]["types"]["items"]["enum"] == list(known_types(RESOURCES))
        assert schemas[name]["properties"]["url"]["format"] == "uri"
    assert schemas["NewWebhook"]["properties"]["status"]["enum"] == ["active", "paused"]
    assert "disabled" in schemas["WebhookInput"]["properties"]["status"]["enum"]


@pytest.mark.needs("webhooks")
def test_webhook_requests_match_the_document(document: Any) -> None:
    sent = sent_by_the_service()
    assert {content["type"] for _, content in sent} == set(document["webhooks"])
    for headers, content in sent:
        for type, item in document["webhooks"].items():
            schema = item["post"]["requestBody"]["content"]["application/json"]["schema"]
            with nullcontext() if type == content["type"] else pytest.raises(ValidationError):
                fits(document, schema, content)
        assert list(headers) == HEADERS
        for name in HEADERS:
            fits(document, document["components"]["parameters"][name]["schema"], headers[name])
    assert {"id", "version", "updated_at"} in [content["data"].keys() for _, content in sent]


@pytest.mark.needs("events")
def test_the_feed_and_its_parameters_match_the_document(document: Any, app: Flask) -> None:
    client = create_app(Config(), RESOURCES).test_client()
    for name, body in BODIES.items():
        client.delete(client.post(f"/{name}", json=body).headers["Location"])
    events = client.get("/api/v1/events").json
    page = document["paths"]["/events"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    fits(document, page, events)
    mapping = document["components"]["schemas"]["Event"]["discriminator"]["mapping"]
    assert len(events) == 2 * len(BODIES)
    for event in events:
        fits(document, {"$ref": mapping[event["type"]]}, event)
    parameters = {each["name"]: each for each in document["paths"]["/events"]["get"]["parameters"] if "name" in each}
    client = app.test_client()
    for name in ("type", "collection"):
        listed = parameters[name]["schema"]["items"]["enum"]
        assert [value for value in listed if client.get(f"/api/v1/events?{name}={value}").status_code != 200] == []
    message = client.get("/api/v1/events?collection=none").json["errors"][0]["detail"]
    assert message.partition("there are: ")[2].split(", ") == listed


@pytest.mark.needs("webhooks")
def test_a_collection_without_events_is_not_documented() -> None:
    quiet = replace(BILLS, events=False)
    document = create_app(Config(), [quiet]).test_client().get("/openapi.json").json
    OpenAPIV31SpecValidator(document).validate()
    assert set(document["webhooks"]) == {"webhook.disabled", PING}
    assert "BillEvent" not in document["components"]["schemas"]


def schemas_of(part: Any) -> Iterator[tuple[Any, set[str]]]:
    """All schemas in a part of the document, each with its types; not the values in it."""
    kinds = part.get("type", ()) if isinstance(part, dict) else ()
    if isinstance(kinds, (str, list)):
        yield part, {kinds} if isinstance(kinds, str) else set(kinds)
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, each in inner:
        if name not in ("const", "default", "enum", "example", "examples"):
            yield from schemas_of(each)


def lacks(schema: Any, kinds: set[str]) -> Iterator[str]:
    if "integer" in kinds:
        yield from {"format", "minimum", "maximum"} - schema.keys()
    if "string" in kinds and not schema.keys() & {"enum", "const", "maxLength"}:
        yield "maxLength"
    if "array" in kinds and "maxItems" not in schema:
        yield "maxItems"
    if "object" in kinds and "additionalProperties" not in schema:
        yield "additionalProperties"


@pytest.mark.needs("keys")
@pytest.mark.parametrize("config", [Config(), Config(auth="required", max_body=1, max_url=64)], ids=["open", "closed"])
def test_every_schema_has_limits(config: Config) -> None:
    """Integers have format and range, strings and arrays a length; objects say whether other members are allowed."""
    for low, form in ((-(2**31), "int32"), (-(2**31) - 1, "int64")):
        assert bounded({"type": "integer", "minimum": low, "maximum": 5}, 1, config)["format"] == form
    document = create_app(config, RESOURCES).test_client().get("/openapi.json").json
    found = list(schemas_of(document))
    assert len([kinds for _, kinds in found if kinds & {"integer", "string", "array", "object"}]) > 300
    assert [(schema, missing) for schema, kinds in found for missing in lacks(schema, kinds)] == []
    integers = [schema for schema, kinds in found if "integer" in kinds]
    assert all(
        (each["format"] == "int32") == (-(2**31) <= each["minimum"] and each["maximum"] < 2**31) for each in integers
    )


def test_the_documented_lengths_of_parameters_are_exact(server: Gunicorn, document: Any) -> None:
    parameters = document["components"]["parameters"]
    most = parameters["IfNoneMatch"]["schema"]["maxLength"]
    assert server.get("/products", {"If-None-Match": "x" * most}).status == 200
    assert server.get("/products", {"If-None-Match": "x" * (most + 1)}).status == 431
    assert parameters["ProductSearch"]["schema"]["maxLength"] == Config().max_url
    assert server.get(f"/products?q={'x' * (Config().max_url + 1)}").status == 414
    assert server.get(f"/products/{'x' * parameters['ProductId']['schema']['maxLength']}").status == 404


@pytest.mark.needs("limits")
def test_every_response_has_rate_limits(document: Any) -> None:
    """Each operation has its 401, 429 and 500; the headers of limits, which all responses have, are there once."""
    everywhere = document["x-headers"]
    assert {"RateLimit", "RateLimit-Policy", "X-Request-Id", "Cache-Control"} <= everywhere.keys()
    for path, method, operation in operations(document):
        assert {"401", "429", "500"} <= operation["responses"].keys(), (method, path)
        for status, response in operation["responses"].items():
            if "$ref" in response:
                response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
            assert not everywhere.keys() & response.get("headers", {}).keys()
            assert status != "429" or "Retry-After" in response["headers"]
    headers = document["components"]["headers"] | everywhere
    counted = {name for name, header in headers.items() if header["schema"].get("type") == "integer"}
    assert counted == {
        "X-Total-Count",
        "Retry-After",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    }
    assert {headers[name]["schema"]["minimum"] for name in counted} == {0}


@pytest.mark.needs("keys", "metrics")
def test_a_setting_changes_the_document() -> None:
    """It says whether the service is in production (a rule of OWASP's), and has the docs page only if it is on."""
    for auth, docs in (("open", True), ("required", False)):
        document = create_app(Config(auth=auth, docs=docs)).test_client().get("/openapi.json").json
        environment = "local" if auth == "open" else "production"
        for server in document["servers"]:
            assert environment in server["description"] and server["x-internal"] == (environment == "local")
        assert ("/docs" in document["paths"]) is docs
        assert {} not in document["paths"]["/metrics"]["get"]["security"]  # METRICS_TOKEN is always needed
        of_items = [each for path, _, each in operations(document) if re.match(r"/(products|users|api/v1/\w+)", path)]
        open_to_all = [each["operationId"] for each in of_items if {} in each.get("security", document["security"])]
        assert open_to_all == ["read_openapi"] if auth == "required" else len(open_to_all) == len(of_items)


@pytest.mark.needs("health", "references")
def test_fixed_values_have_nothing_beside_them(document: Any) -> None:
    """They have a type and no bounds; null stands beside them once, and is no value of a filter."""
    health = document["components"]["schemas"]["Health"]["properties"]
    assert health["store"] == health["status"] == {"type": "string", "enum": ["ok"]}
    every = [part for part in everything(document) if {"const", "enum"} & part.keys()]
    assert [part for part in every if "type" not in part] == []
    assert bounded({"enum": [1, 2], "minimum": 1, "format": "int32", "x-extensible": True}, 1, Config()) == {
        **{"type": "integer", "enum": [1, 2], "x-extensible": True}
    }
    for schema in ({"enum": ["a", None], "default": None}, {"type": ["string", "null"], "enum": ["a"], "pattern": "a"}):
        has_null = None in schema["enum"]
        plain = {"type": "string", "enum": ["a"]}
        found = bounded(schema, 1, Config())
        assert found == ({"default": None, "anyOf": [plain, {"type": "null"}]} if has_null else plain)
        for value in ("a", "b", None):
            is_valid, was = (Draft202012Validator(each).is_valid(value) for each in (found, schema))
            assert is_valid == was
    assert bounded({"const": True}, 1, Config()) == {"type": "boolean", "const": True}
    document = clients.create_app(Config()).test_client().get("/openapi.json").json
    OpenAPIV31SpecValidator(document).validate()
    fixed = [each for each in everything(document) if isinstance(each.get("enum"), list) or "const" in each]
    assert len(fixed) > 50 and not [each for each in fixed if "type" not in each or None in each.get("enum", ())]
    extra = {key for each in fixed for key in each if key not in ("type", "enum", "const", "default", "description")}
    assert {key for key in extra if not key.startswith("x-")} == set()
    shown = document["components"]["schemas"]["Result"]["properties"]
    assert shown["letter"] == shown["shade"] | {"anyOf": [{"type": "string", "enum": ["s", "l"]}, {"type": "null"}]}
    assert parameters(document, document["paths"]["/results"]["get"])["shade"]["schema"]["enum"] == ["dark"]


def test_what_is_read_has_no_default(document: Any) -> None:
    """An item has each field; a generated type would make one with a default optional, or up to the client."""
    schemas = document["components"]["schemas"]
    shown = [name for name in schemas if f"{name}Input" in schemas]
    assert {"Product", "Bill"} <= set(shown)
    assert [name for name in shown for each in schemas[name]["properties"].values() if "default" in each] == []
    assert schemas["ProductInput"]["properties"]["stock"]["default"] == 0


def test_the_orders_of_a_list_have_names(document: Any) -> None:
    """Of constants in generated clients: without them they are counted, so that a new field changes what they mean."""
    key = document["components"]["schemas"]["ProductSortKey"]
    names = dict(zip(key["enum"], key["x-enum-varnames"], strict=True))
    assert (names["price"], names["-price"]) == ("price", "price_descending")
    assert len(set(names.values())) == len(names)


@pytest.mark.needs("references")
def test_a_list_takes_the_names_that_are_described() -> None:
    """Of fields and orders, also of embedded items, which embed nothing themselves, and so have fewer.

    A constant in a generated client is of one name: `customer.name` and `customer_name` are two.
    """
    texts = {name: Text(0, 5, load_default="") for name in ("keeper_email", "keeper_id")}
    keeper = Reference("users", load_default=None, allow_none=True)
    pets = Resource("pets", "pet", ItemSchema.from_dict({**texts, "keeper": keeper}, name="PetSchema"))
    client = create_app(Config(), [*shop.RESOURCES, pets, clients.RESULTS]).test_client()
    document = client.get("/openapi.json").json
    statuses = dict[str, int]()
    for path in ("/users", "/results", "/pets"):
        for name, each in parameters(document, document["paths"][path]["get"]).items():
            option, _, embed = name.removesuffix("]").partition("[")
            for value in resolved(document, each["schema"]["items"])["enum"] if option in ("fields", "sort") else ():
                address = f"{path}?{f'embed={embed}&' * bool(embed)}{name}={value}"
                statuses[address] = client.get(address).status_code
    assert [address for address, status in statuses.items() if status != 200] == []
    options = (
        "/users?embed=results.keeper&fields[results.keeper]=",
        "/users?embed=results.keeper&sort[results.keeper]=-",
    )
    assert {"/pets?fields=keeper.email", "/pets?sort=-keeper.email", *(f"{each}level" for each in options)} < {
        *statuses
    }
    schemas = document["components"]["schemas"]
    for name in ("PetField", "PetSortKey", "PetOwnField", "PetOwnSortKey"):
        constants = [each.replace(".", "_") for each in schemas[name]["x-enum-varnames"]]
        assert len({*constants}) == len(schemas[name]["enum"])


class SlowClock(SetClock):
    """A clock on which each look takes 20 ms, and whose sleep lets another request continue."""

    other: Callable[[], object] = staticmethod(lambda: None)

    def monotonic(self) -> float:
        self.now += 0.02
        return self.now

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.other()


def test_others_have_their_turns_while_the_document_is_made() -> None:
    """After each collection; and who asks for the document meanwhile waits for this one, and makes no other."""
    app = create_app(clock=(clock := SlowClock()))
    with ThreadPoolExecutor(1) as pool:
        others: list[Future[Any]] = []

        def other() -> None:
            if not others:
                others.append(pool.submit(lambda: app.test_client().get("/openapi.json")))

        clock.other = other
        response = app.test_client().get("/openapi.json")
        turns = len(clock.slept)
        assert turns > len(service_of(app).resources)
        assert others[0].result().data == response.data
        assert len(clock.slept) == turns


def test_the_document_is_short() -> None:
    """What operations have in common is there once: a collection more takes some kilobytes, most of them filters."""
    few, more = (
        create_app(Config(), resources).test_client().get("/openapi.json").json
        for resources in (RESOURCES[:2], RESOURCES)
    )
    sizes = [len(json.dumps(each, separators=(",", ":"))) for each in (few, more)]
    assert sizes[0] < 155_000 and sizes[1] - sizes[0] < 34_000
    for item in few["paths"].values():
        for operation in (item[method] for method in item.keys() & METHODS):
            assert operation["responses"]["default"] == {"$ref": "#/components/responses/common"}
    names = [
        {part["$ref"] for part in few["paths"][f"/{name}"]["get"]["parameters"] if "$ref" in part}
        for name in BODIES
        if name != "bills"
    ]
    assert "#/components/parameters/time.updated_at.gte" in set.intersection(*names)


def test_bodies_stand_where_they_are_sent(document: Any) -> None:
    """swagger-typescript-api neither sends nor reads JSON if the body is in a component; so are problems alone."""
    for path, method, operation in operations(document):
        assert "$ref" not in operation.get("requestBody", {}), (method, path)
        assert not [status for status, each in operation["responses"].items() if status < "3" and "$ref" in each]
        assert "\n   " not in operation["description"]  # the indentation of the docstring


PARTS = {  # the parts of the document that a feature adds, with those that depend on it
    "cors": "$^",
    "dialects": "$^",
    "events webhooks": "(?i)event|webhook|cursor-expired|ItemReference|^message ",
    "health": "/healthz|/readyz|schemas Health",
    "idempotency": r"(?i)idempoten|webhooks/\{id\}/rotate 422 ",
    "jwt": "$^",
    "keys": r"/keys\b|^\w+ Key|Basic|^tag keys",
    "limits": "(?i)ratelimit|^(?!get /api/v1/events ).* 429 ",  # the feed limits the requests that wait
    "metrics": "(?i)metrics",
    "ownership": "$^",
    "pages": "^get /( |$)|/problems/|schemas (Index|ProblemType)|^problem ",
    "webhooks": "(?i)webhook|ItemReference|^message ",
}


def parts(document: Any) -> Iterator[str]:
    """A line for each paragraph of the introduction, component, operation, and part of an operation."""
    known = document["components"]
    yield from document["info"]["description"].split("\n\n")
    yield from (f"tag {tag['name']}" for tag in document["tags"])
    yield from (f"headers {name} of all" for name in document["x-headers"])
    yield from (f"accepts {name}" for way in document["security"] for name in way)
    yield from (f"message {type}" for type in document.get("webhooks", ()))
    for section in ("headers", "parameters", "schemas", "securitySchemes"):
        yield from (f"{section} {name}" for name in known[section])
    for path, method, operation in operations(document):
        place = f"{method} {path}"
        yield place
        yield from (f"{place} takes {each.get('$ref', each.get('name'))}" for each in operation["parameters"])
        yield from (f"{place} accepts {name}" for way in operation.get("security", ()) for name in way)
        for status, response in operation["responses"].items():
            made = known["responses"][response["$ref"].rpartition("/")[2]] if "$ref" in response else response
            if status < "4":
                yield from (f"{place} {status} has {name}" for name in made.get("headers", ()))
            examples = made.get("content", {}).get("application/problem+json", {}).get("examples", ())
            yield from (f"{place} {status} is {name}" for name in examples)
    for parameter in document["paths"].get("/problems/{name}", {}).get("parameters", ()):
        yield from (f"problem {name}" for name in parameter["schema"]["enum"])


@pytest.mark.needs("openapi", "webhooks")
def test_the_document_can_be_without_webhooks(client: FlaskClient) -> None:
    """Of which some generators make no code that compiles; all else is the same."""
    whole, rest = (client.get(f"/openapi.json{query}").json for query in ("", "?webhooks=no"))
    assert whole.pop("webhooks") and rest == whole


@pytest.mark.needs(*(each.name for each in FEATURES))
@pytest.mark.parametrize("names", PARTS)
def test_a_closed_feature_is_not_documented(document: Any, names: str) -> None:
    """The document has no part of its own, and all parts of others; what these refer to is there."""
    closed = restkeeper.create_app(Config(), RESOURCES, without=names.split())
    found = closed.test_client().get("/openapi.json").json
    referred = set(re.findall(r'"#/components/(\w+/[^"]+)"', json.dumps(found)))
    assert referred <= {f"{kind}/{name}" for kind, made in found["components"].items() for name in made}
    before, after = set(parts(document)), set(parts(found))
    assert before - after == {part for part in before if re.search(PARTS[names], part)}
    assert after <= before
    if "webhooks" in names:
        assert "webhook" not in json.dumps(found).lower()


@pytest.mark.needs(*(each.name for each in FEATURES))
def test_credentials_are_those_that_are_accepted() -> None:
    """Two features may accept credentials in one scheme; a scope is named if a caller can have one."""
    schemes = {
        "": "An API key, or a JSON Web Token.",
        "jwt": "An API key.",
        "keys": "A JSON Web Token.",
        "keys jwt": None,
    }
    for names, about in schemes.items():
        closed = restkeeper.create_app(Config(), RESOURCES, without=names.split())
        document = closed.test_client().get("/openapi.json").json
        found = {name: each["description"] for name, each in document["components"]["securitySchemes"].items()}
        assert [found.get(name) for name in ("Bearer", "ApiKey")] == [about, about]
        assert document["security"] == [{}, *({name: []} for name in found if name[0] != "M")]
        needed = document["paths"]["/products"]["post"].get("x-required-scope")
        assert needed == ("products:write" if about else None)


def test_a_misspelt_name_is_refused() -> None:
    """The message has the names that exist; a contribution to a misspelt mark would be added to no operation."""
    for declare, message in (
        (takes("Limti"), "'Limti' is declared and is none of the parameters: .*, Limit, "),
        (takes(body=Body("Prodcut")), "'Prodcut' is declared and is none of the schemas: .*, Problem"),
        (returns(Result("It.", {"text/html": "Prodcut"})), "'Prodcut' is declared and is none of the schemas: "),
        (returns(Result("It.", headers=("Etga",))), "'Etga' is declared and is none of the headers: .*, ETag, "),
    ):
        app = Application("misspelt", static_folder=None)

        def read_it() -> Reply:
            raise NotImplementedError

        app.add_url_rule("/it", view_func=needs("public")(declare(read_it)))
        with pytest.raises(ValueError, match=message):
            document_of(app, make_service(Config(), [], []), "v1")
    with pytest.raises(ValueError, match=re.escape("Contribution(to='Idempotnet'): must be one of '', 'Idempotent', ")):
        Contribution(to="Idempotnet")

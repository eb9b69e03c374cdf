"""What options and functions of marshmallow mean in requests, queries and the document; what is refused at start."""

import dataclasses
import re
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from flask.testing import FlaskClient
from marshmallow import (
    EXCLUDE,
    INCLUDE,
    Schema,
    ValidationError,
    fields,
    post_dump,
    post_load,
    pre_load,
    validate,
    validates,
    validates_schema,
)
from openapi_spec_validator import OpenAPIV31SpecValidator

from restkeeper import (
    Add,
    Convert,
    Deprecation,
    Index,
    Items,
    ItemSchema,
    Lifecycle,
    ListOf,
    Owner,
    Reference,
    Rename,
    Resource,
    Status,
    Text,
    Version,
    Versions,
    Whole,
    exactjson,
)
from restkeeper.config import Config
from restkeeper.resources.views import StoredView
from tests.callers import ADMIN, ADMIN_KEY, key
from tests.programs import resource, two_versions
from tests.shapes import BRANDS, JOBS, PEOPLE, PRODUCTS
from tests.shop import create_app
from tests.test_openapi import fits


class LineSchema(Schema):
    sku = fields.String(required=True, data_key="stockNumber")
    count = fields.Integer(load_default=1, validate=validate.Range(1, 100))


class OrderSchema(ItemSchema):
    class Meta:
        unknown = EXCLUDE

    number = fields.String(required=True, data_key="orderNumber", validate=validate.Length(max=20))
    email = fields.Email(load_default=None)
    lines = fields.List(fields.Nested(LineSchema), load_default=list)
    count = fields.Integer(dump_only=True, dump_default=0)
    label = fields.Method("describe", metadata={"type": "string"})
    copy = fields.String(attribute="number", dump_only=True)
    kind = fields.Constant("order", dump_only=True, metadata={"type": "string"})
    paid_with = fields.String(dump_only=True, allow_none=True)
    status = Status(Lifecycle("open", {"open": ("paid",), "paid": ()}), dump_only=True)

    def describe(self, item: dict[str, Any]) -> str:
        return f"{item['number']} × {item['count']}"

    @pre_load
    def strip(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**data, "email": email.strip()} if isinstance(email := data.get("email"), str) else data

    @validates("email")
    def is_ours(self, value: str | None, data_key: str) -> None:
        if value and not value.endswith("@example.org"):
            raise ValidationError("must be of example.org")

    @validates_schema
    def has_few(self, data: dict[str, Any], **_: Any) -> None:
        if sum(line["count"] for line in data.get("lines", [])) > 100:
            raise ValidationError("has more than 100 pieces")

    @post_load
    def add(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**data, "count": sum(line["count"] for line in data["lines"])}


ORDERS = Resource("orders", "order", OrderSchema, (Index("orderNumber", unique=True), Index("count")), ("orderNumber",))
READ_ONLY = {"count": 5, "label": "x", "copy": "x", "kind": "x", "paid_with": "card", "status": "paid"}


@pytest.fixture
def client() -> FlaskClient:
    return create_app(Config(), [ORDERS]).test_client()


@pytest.fixture
def order(client: FlaskClient) -> Any:
    sent = {"orderNumber": "A-1", "email": " a@example.org ", "lines": [{"stockNumber": "s"}], "unknown": 1}
    made = client.post("/orders", json=sent)
    assert made.status_code == 200, made.text
    return made.json


def where(order: Any) -> str:
    return f"/orders/{order['id']}"


def test_a_new_item_has_what_its_schema_makes(order: Any) -> None:
    """Functions have run, computed fields have values, and names are those of JSON; unknown fields are ignored."""
    expected = {
        "orderNumber": "A-1",
        "email": "a@example.org",
        "lines": [{"stockNumber": "s", "count": 1}],
        **{"count": 1, "label": "A-1 × 1", "copy": "A-1", "kind": "order", "paid_with": None, "status": "open"},
    }
    assert order == expected | {name: order[name] for name in ("id", "created_at", "updated_at", "version")}


def test_what_was_read_can_be_sent_back(client: FlaskClient, order: Any) -> None:
    """A PUT and a PATCH of the whole item change nothing; with a change, what is computed changes with it."""
    for send in (client.put, client.patch):
        assert send(where(order), json=order).json == order
    changed = {**order, "orderNumber": "A-2", "lines": [{"stockNumber": "s", "count": 3}]}
    for _ in range(2):  # the second one is a repetition, and what it has of computed fields is of the past
        found = client.put(where(order), json=changed).json
        assert (found["count"], found["label"], found["copy"], found["version"]) == (3, "A-2 × 3", "A-2", 2)
    assert client.patch(where(order), json={"orderNumber": "A-3"}).json["label"] == "A-3 × 3"
    for send in (client.put, client.patch):  # a whole record of the past, with another change
        assert send(where(order), json={**order, "orderNumber": "A-4"}).json["code"] == "edit-conflict"


@pytest.mark.parametrize("name", READ_ONLY)
def test_no_caller_sets_a_read_only_field(client: FlaskClient, order: Any, name: str) -> None:
    """In a new item it is refused, also with its default; in a change with any other value than the present one."""
    value = {name: READ_ONLY[name]}
    created = client.post("/orders", json={"orderNumber": "B-1", **value})
    replaced = client.put(where(order), json={**order, "orderNumber": "B-1", **value})
    alone = [send(where(order), json=sent) for send, sent in ((client.put, order | value), (client.patch, value))]
    assert [each.status_code for each in (created, replaced, *alone)] == [422] * 4
    assert {each.json["errors"][0]["pointer"] for each in (created, replaced, *alone)} == {f"#/{name}"}
    assert client.get(where(order)).json == order


def test_functions_refuse_in_every_write(client: FlaskClient, order: Any) -> None:
    """Validators of fields and of the whole item, by the names of JSON."""
    for sent, pointer in (
        ({"email": "a@example.com"}, "#/email"),
        ({"lines": [{"stockNumber": "s", "count": 101}]}, "#/lines/0/count"),
        ({"lines": [{"stockNumber": "s", "count": 1.5}]}, "#/lines/0/count"),
        ({"lines": [{"stockNumber": "s", "count": 60}] * 2}, "#"),
        ({"lines": [{"sku": "s"}]}, "#/lines/0/sku"),
        ({"orderNumber": None}, "#/orderNumber"),
        ({"orderNumber": "x" * 21}, "#/orderNumber"),
    ):
        created = client.post("/orders", json={"orderNumber": "B-1"} | sent)
        replaced, patched = client.put(where(order), json=order | sent), client.patch(where(order), json=sent)
        for each in (created, replaced, patched):
            assert (each.status_code, pointer in [fault["pointer"] for fault in each.json["errors"]]) == (422, True)


def test_queries_have_the_names_of_json(client: FlaskClient, order: Any) -> None:
    """Also read-only fields can be used; one that a function returns cannot."""
    assert client.get("/orders?orderNumber=A-1&count[gte]=1&status=open&sort=-count,orderNumber").json == [order]
    assert client.get("/orders?q=a-1&fields=orderNumber,label").json == [{"orderNumber": "A-1", "label": "A-1 × 1"}]
    assert client.post("/orders", json={"orderNumber": "A-1"}).json["errors"][0]["pointer"] == "#/orderNumber"
    assert [client.get(f"/orders?{name}=x").status_code for name in ("number", "label")] == [400, 400]


@pytest.mark.needs("openapi")
def test_the_document_has_them(client: FlaskClient, order: Any) -> None:
    """Read-only fields are in responses alone; the document is valid, and so is the item by it."""
    document: Any = client.get("/openapi.json").json
    OpenAPIV31SpecValidator(document).validate()
    schemas = document["components"]["schemas"]
    fits(document, schemas["Order"], order)
    assert set(schemas["OrderInput"]["properties"]) == set(schemas["OrderPatch"]["properties"])
    assert set(schemas["OrderInput"]["properties"]) == {"orderNumber", "email", "lines"}
    assert schemas["OrderInput"]["required"] == ["orderNumber"]
    assert "additionalProperties" not in schemas["OrderPatch"] or schemas["OrderPatch"]["additionalProperties"]


def test_an_import_keeps_what_is_read_only() -> None:
    """What the service has set is restored as it was; what is computed is computed. Both must be valid."""
    stored = StoredView(ORDERS)
    sent = {"orderNumber": "A-1", "paid_with": "card", "status": "paid", "count": 9, "label": "x"}
    made = exactjson.loads(stored.restore(sent, id="1", now="2026-01-01T00:00:00.000000Z").body)
    assert [made[name] for name in ("paid_with", "status", "count", "label")] == ["card", "paid", 0, "A-1 × 0"]


def test_functions_of_the_service_set_what_no_caller_can() -> None:
    """An action, and functions before a write, set read-only fields and states without the scopes of callers."""
    orders = Resource("orders", "order", OrderSchema)

    @orders.action("pay")
    def pay(item: dict[str, Any], items: Items) -> dict[str, Any]:
        """Pay an order."""
        items.create("orders", {"orderNumber": "B-1", "paid_with": "cash"})
        return {**item, "status": "paid", "paid_with": "card", "orderNumber": "A-2"}

    @orders.before("create", "update")
    def note(item: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
        return item if item["paid_with"] else {**item, "paid_with": "nothing"}

    client = create_app(Config(), [orders]).test_client()
    made = client.post("/orders", json={"orderNumber": "A-1"})
    assert (made.status_code, made.json["paid_with"], made.json["label"]) == (200, "nothing", "A-1 × 0"), made.text
    paid = client.post(f"{where(made.json)}/pay").json
    assert (paid["status"], paid["paid_with"], paid["label"], paid["version"]) == ("paid", "card", "A-2 × 0", 2)
    assert client.put(where(paid), json={"orderNumber": "A-2", "email": "a@example.org"}).json["paid_with"] == "card"
    assert client.patch(where(paid), json={"email": None}).json["paid_with"] == "card"
    assert client.patch(where(paid), json={"paid_with": "cash"}).status_code == 422
    assert [each["paid_with"] for each in client.get("/orders?orderNumber=B-1").json] == ["cash"]


@pytest.mark.needs("versions")
def test_older_versions_have_read_only_fields() -> None:
    """Their callers send back what they read, and cannot set them either."""
    orders = Resource("orders", "order", OrderSchema, upgrades={2: [Rename("no", "orderNumber"), Add("email")]})
    client = create_app(Config(), [orders], versions=two_versions("orders")).test_client()
    made = client.post("/api/v1/orders", json={"no": "A-1"})
    assert (made.status_code, made.json["label"], made.json["copy"]) == (200, "A-1 × 0", "A-1"), made.text
    path = made.headers["Location"]
    assert client.put(path, json=made.json).json == made.json
    assert client.patch(path, json={"no": "A-2"}).json["label"] == "A-2 × 0"
    assert client.patch(path, json={"label": "x"}).status_code == 422
    assert client.post("/api/v1/orders", json={"no": "A-3", "label": "x"}).status_code == 422


@pytest.mark.needs("versions", "openapi")
def test_fields_can_be_deprecated_by_their_names() -> None:
    """A field with a sunset has the name of JSON, and can be one that no caller sets."""
    names, day = ("email", "label", "paid_with"), date(2020, 1, 1)
    until = {"version": "v1", "since": day, "sunset": day.replace(year=2021)}
    gone = [Deprecation(field=f"orders.{name}", **until) for name in names]
    versions = Versions(Version("v1"), unversioned="v1", deprecations=gone)
    client = create_app(Config(), [ORDERS], versions=versions).test_client()
    made = client.post("/orders", json={"orderNumber": "A-1"})
    assert not {*names, "number"} & made.json.keys()
    assert client.put(made.headers["Location"], json=made.json).json == made.json
    assert client.put(made.headers["Location"], json={"orderNumber": "A-2"}).json["copy"] == "A-2"
    assert set(names).isdisjoint(client.get("/openapi.json").json["components"]["schemas"]["Order"]["properties"])


class Tree(Schema):
    weight = fields.Integer()
    trees = fields.List(fields.Nested(lambda: Tree()))


class Included(Schema):
    class Meta:
        unknown = INCLUDE


class Dumped(Schema):
    @post_dump
    def add(self, data: Any, **_: Any) -> Any:
        return data


class Misnamed(Schema):
    @validates("nothing")
    def check(self, value: Any, data_key: str) -> None:
        """Do nothing."""


STATES = {"a": ("b",), "b": ()}
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: Text(), "say required=True or what load_default is"),
    (lambda: fields.String(dump_only=True), "dump_only: say what dump_default is, the value of new items"),
    (lambda: fields.String(load_only=True, load_default=""), "load_only: what is sent would be lost"),
    (lambda: fields.Function(len, str, load_default=""), "load_default: what is made by a function has none: say req"),
    (lambda: fields.Method(load_default=""), "say what serialize is"),
    (lambda: fields.Decimal(as_string=True, required=True), "as_string: numbers are exact as they are"),
    (lambda: fields.Float(allow_nan=True, required=True), "allow_nan: JSON has no such number"),
    (lambda: fields.Dict(keys=fields.Integer(), required=True), "keys: names in JSON are texts: use keys=String()"),
    (lambda: fields.Nested(Included, required=True), "unknown=INCLUDE: what no field names is not stored"),
    (lambda: fields.Nested(Dumped, required=True), "@pre_dump and @post_dump change what is stored: use @post_load"),
    (lambda: fields.Nested(Misnamed, required=True), "x: @validates('nothing'): there is no such field"),
    (lambda: fields.Pluck(LineSchema, "sku", required=True), "x: Pluck: use Nested, or the field of the other"),
    (lambda: fields.Method("nothing"), "has no attribute 'nothing'"),
    (lambda: fields.Nested(Tree, required=True), "x.weight: not exact in a schema that is inside itself: use Whole"),
    (lambda: fields.Nested(ItemSchema, required=True), "x.id: dump_only inside another field could not be sent back"),
    (lambda: fields.Nested("NoSuchSchema", required=True), "Class with name 'NoSuchSchema' was not found"),
    (lambda: fields.List(Text(writable_by="a:b"), required=True), "writable_by is for the fields of the item itself"),
    (lambda: fields.List(Status(Lifecycle("a", STATES)), required=True), "Status: only the item has a lifecycle"),
    (lambda: Text(writable_by="a:b", dump_only=True, dump_default=""), "writable_by: nobody can write what is dump_"),
    (lambda: Text(load_default="", readable_by=3), "3 is no scope: write one like orders:manage"),  # type: ignore[arg-type]
    (lambda: Status(Lifecycle("a", STATES, scopes={"c": "a:b"})), "Lifecycle: c: no such state: add 'c': () to"),
    (lambda: Whole(0, 10, load_default=20), "x: load_default=20: must be from 0 to 10"),
    (lambda: fields.Raw(load_default=object()), "x: load_default: is no value of Raw: Type is not JSON serial"),
    (lambda: fields.List(Owner(), required=True), "Owner: only the item itself has an owner"),
    (lambda: Owner(required=True), "Owner: leave out required, load_default and dump_only"),
    (lambda: Owner(), "Owner: items have no owners: set ownership=Ownership.ALL or"),
    (lambda: Text(required=True, data_key="first name"), "'first name' is no name"),
    (lambda: Text(required=True, data_key="version"), "collides with another field's name"),
]


@pytest.mark.parametrize(("field", "expected"), REFUSED, ids=[expected for _, expected in REFUSED])
def test_what_cannot_work_is_refused(field: Callable[[], Any], expected: str) -> None:
    """At start, with the names of the collection and the field, and what to write instead."""
    with pytest.raises(ValueError, match=rf"^[tT]hings?(Schema)?\b.*{re.escape(expected)}"):
        Resource("things", "thing", ItemSchema.from_dict({"x": field()}, name="ThingSchema"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: Text("1", 9), "Text('1', 9): each bound must be a whole number"),  # type: ignore[arg-type]
        (lambda: Text(validate=3), "validate=3: must be a function of a value, or several"),  # type: ignore[arg-type]
        (lambda: Text(9, 1), "Text(9, 1): nothing is in it: the first bound must not be above the second"),
        (lambda: ListOf(Text(), 5, low=6), "ListOf(…, high=5, low=6): nothing is in it: "),
        (lambda: Reference(LineSchema), "must be the name of a collection, such as Reference('users')"),  # type: ignore[arg-type]
        (lambda: Status("open"), "Status('open'): must have a Lifecycle, such as Status(Lifecycle("),  # type: ignore[arg-type]
        (lambda: Lifecycle("open", ["open"]), "Lifecycle('open', …): say for each state which can follow, "),  # type: ignore[arg-type]
        (lambda: Lifecycle("a", {"a": "b"}), "Lifecycle: 'a': 'b' is a text, and no tuple: write ('b',)"),  # type: ignore[dict-item]
        (lambda: Resource("my-things", "thing", OrderSchema), "'my-things' is no name: use ASCII letters, digits and"),
    ],
)
def test_arguments_of_another_type_are_refused(declare: Callable[[], Any], message: str) -> None:
    """Where they are written, with what would be right: a field with such an argument would fail in a request."""
    with pytest.raises(ValueError, match=re.escape(message)):
        declare()


def test_functions_that_lose_a_field_are_found() -> None:
    """What they return is stored only if it has every field."""

    class Losing(ItemSchema):
        x = Text(required=True)

        @post_load
        def lose(self, data: Any, **_: Any) -> Any:
            return {}

    with pytest.raises(TypeError, match="what the functions of the schema return is without x"):
        StoredView(Resource("things", "thing", Losing)).new_record({"x": "a"}, id="1", now="")


@pytest.mark.needs("keys", "ownership")
class TestScopes:
    @pytest.fixture
    def client(self) -> FlaskClient:
        config = Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off", failure_limit="off")
        return create_app(config, (PEOPLE, BRANDS, PRODUCTS, JOBS)).test_client()

    @pytest.mark.needs("versions")
    def test_a_field_that_was_several_needs_it(self) -> None:
        """In an older version, for each of these; the scope is in the options of a field of marshmallow."""
        parts = {"w": Whole(load_default=1), "h": Whole(load_default=1)}
        convert = Convert(parts, ["size"], "{}x{}".format, lambda size: [int(each) for each in size.split("x")])
        size = fields.String(load_default="1x1", metadata={"x-writable-by": "admin"})
        declared, config = resource({"size": size}, convert), Config(auth="required", admin_key=ADMIN_KEY)
        client = create_app(config, [declared], versions=two_versions()).test_client()
        headers = key(client, "notes:write")
        for sent in ({"w": 2}, {"h": 2}, {"w": 2, "h": 2}):
            assert client.post("/api/v1/notes", json=sent, headers=headers).status_code == 403
        path = client.post("/api/v1/notes", json={"w": 3, "h": 4}, headers=ADMIN).headers["Location"]
        kept = client.put(path, json={}, headers=headers)
        assert (kept.status_code, kept.json["w"], kept.json["h"]) == (200, 3, 4)

    @pytest.mark.needs("openapi")
    def test_the_document_names_the_scopes(self, client: FlaskClient) -> None:
        schemas = client.get("/openapi.json").json["components"]["schemas"]
        grade = schemas["JobInput"]["properties"]["grade"]
        assert grade["x-writable-by"] == "jobs:grade"
        assert "Only callers with the scope `jobs:grade` can change it." in grade["description"]
        assert schemas["ProductInput"]["properties"]["status"]["x-scopes"] == {"archived": "products:archive"}
        assert "products:archive" in schemas["KeyInput"]["properties"]["scopes"]["items"]["enum"]


def test_a_declaration_does_not_change() -> None:
    """Neither it nor its revisions; what is declared of one resource is not of those that were made from it."""
    declared = resource({"name": Text(required=True)}, Rename("title", "name"))
    copy = dataclasses.replace(declared)
    declared.action("count")(lambda item, items: None)
    declared.before("create", "update")(lambda item, before: None)
    assert (copy.actions, copy.functions) == ({}, {}) and {*declared.functions} == {"before create", "before update"}
    for change in (
        lambda: setattr(declared, "name", "x"),
        lambda: declared.actions.pop("count"),
        lambda: declared.upgrades.pop(2),
    ):
        with pytest.raises((AttributeError, TypeError)):
            change()

"""Actions of items and collections, functions before and after writes, and several items in one request."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from flask.testing import FlaskClient
from marshmallow import Schema, fields

from restkeeper import (
    Config,
    IntegerReference,
    Items,
    ItemSchema,
    JsonObject,
    ListOf,
    Ownership,
    Reference,
    Resource,
    Text,
    returns,
)
from tests.callers import ADMIN, ADMIN_KEY, events, key, pointers
from tests.clock import SetClock
from tests.live import Gunicorn
from tests.shop import RESOURCES
from tests.shop import create_app as create_shop
from tests.shop.orders import LogSchema, OrderSchema, PaymentSchema, create_app
from tests.shop.references import OwnerSchema

pytestmark = pytest.mark.needs("events", "idempotency", "keys", "limits", "openapi")

MOST = "1000 items, or 16 MiB of them, would change with this: change or delete some of them first"
CARD = {"method": "CARD"}


@pytest.fixture
def client() -> FlaskClient:
    return create_app(Config()).test_client()


def new_order(client: FlaskClient, stock: int = 5, **fields: Any) -> tuple[str, str]:
    product = client.post("/products", json={"name": "Lamp", "stock": stock}).json
    order = client.post("/orders", json={"product": product["id"], **fields})
    assert order.status_code == 200, order.json
    return f"/orders/{order.json['id']}", f"/products/{product['id']}"


def logs(client: FlaskClient) -> list[str]:
    return [each["text"] for each in client.get("/logs").json]


def test_only_put_patch_and_delete_need_conditions() -> None:
    """An action sees the item as it is: nobody's change is lost by it."""
    client = create_app(Config(require_if_match=True)).test_client()
    order, _ = new_order(client)
    assert client.patch(order, json={"note": "x"}).status_code == 428
    assert client.post(f"{order}/pay", json=CARD).status_code == 200
    assert client.post(f"{order}/pay", json=CARD, headers={"If-Match": '"stale"'}).status_code == 412
    responses = client.get("/openapi.json").json["paths"]["/orders/{id}/pay"]["post"]["responses"]
    assert "412" in responses and "428" not in responses


def test_an_action_changes_its_item_and_others(client: FlaskClient) -> None:
    """In one transaction, each with its event, under the conditions of a change."""
    order, product = new_order(client)
    before = client.get(order)
    stale = client.post(f"{order}/pay", json=CARD, headers={"If-Match": '"stale"'})
    assert (stale.status_code, stale.headers["ETag"]) == (412, before.headers["ETag"])
    paid = client.post(f"/api/v1{order}/pay", json=CARD, headers={"If-Match": before.headers["ETag"]})
    assert paid.status_code == 200 and paid.json == client.get(order).json
    assert paid.headers["ETag"] == client.get(order).headers["ETag"]
    assert (paid.json["status"], paid.json["paid_with"], paid.json["version"]) == ("paid", "card", 2)
    assert client.get(product).json["stock"] == 4
    assert events(client)[-3:] == ["product.updated", "order.updated", "log.created"]
    assert client.post("/orders/none/pay", json=CARD).status_code == 404


def test_a_function_uses_what_its_request_says() -> None:
    """The caller, the conditions, and the time of the service."""
    notes = Resource("logs", "log", LogSchema, ids="client")

    @notes.action("sign", of="collection")
    def sign(items: Items) -> JsonObject:
        """Sign the first one, if it is as the caller knows it."""
        text = f"{items.call.caller.id} at {items.now()}"
        return items.change("logs", "1", lambda note: {**note, "text": text}, conditions=items.conditions)

    client = create_shop(Config(), [notes], clock=SetClock(0.0)).test_client()
    tag = client.post("/logs", json={"id": "1", "text": "a", "number": 0}).headers["ETag"]
    for said, status in (('"other"', 412), (tag, 200), (tag, 412)):
        assert client.post("/logs/sign", headers={"If-Match": said}).status_code == status
    assert client.get("/logs/1").json["text"] == "anonymous at 1970-01-01T00:00:00.000000Z"


def test_twins_of_an_action(tmp_path: Path) -> None:
    """Of the same request, sent sixteen times at once to two processes, one is executed; all get its response."""
    with Gunicorn(tmp_path, app="tests.shop.orders:create_app()", RATE_LIMIT="off") as server:
        product = server.post("/products", {"name": "Lamp", "stock": 100}).json()["id"]
        for number in range(5):
            order = server.post("/orders", {"product": product}).json()["id"]
            for path, body in ((f"/orders/{order}/pay", CARD), ("/orders/close-day", None)):
                headers = {"Idempotency-Key": f"{number} {order}"}
                with ThreadPoolExecutor(16) as pool:
                    twins = [pool.submit(server.post, path, body, headers) for _ in range(16)]
                    responses = [each.result() for each in twins]
                assert {each.status for each in responses} == {200}
                assert len({each.body for each in responses}) == 1
                assert sum("idempotent-replayed" not in each.headers for each in responses) == 1
        assert server.get(f"/products/{product}").json()["stock"] == 95


def test_an_action_that_cannot_be_stored(client: FlaskClient) -> None:
    """Nothing of it is stored, and the response says why, unless it is a mistake of the code."""
    client.application.testing = False
    for note, status, detail in (
        *(("many", 409, f"more than {MOST}"), ("caught", 409, "this cannot be logged")),
        *(("collection", 500, None), ("loop", 500, None), ("twice", 500, None), ("", 500, None)),
    ):
        order, _ = new_order(client, note=note)
        stored, before = client.get(order).data, (events(client), logs(client))
        response = client.post(f"{order}/break")
        assert (response.status_code, response.json.get("detail") if detail else None) == (status, detail), note
        assert (client.get(order).data, (events(client), logs(client))) == (stored, before)


def test_the_body_of_an_action_is_validated(client: FlaskClient) -> None:
    """By its schema, before the item is read: see test_crossings.py. One without a schema takes none."""
    assert client.post("/orders/none/pay", data="{", content_type="application/json").status_code == 400
    for sent in (b'{"method": "card"}', b"[]", b"null", b"x", b"{"):
        refused = client.post("/orders/close-day", data=sent, content_type="application/json")
        detail = "must be left out: this action takes no body"
        assert (refused.status_code, refused.json["errors"]) == (422, [{"pointer": "#", "detail": detail}])
    assert events(client) == []
    for empty in (b"{}", b" {}\r\n", b""):
        assert client.post("/orders/close-day", data=empty, content_type="application/json").status_code == 200


def test_the_functions_of_a_transaction_have_one_bound(client: FlaskClient) -> None:
    """A thousand changes, whatever the number of writes that they follow."""
    response = client.post("/orders", json=[{"product": "x", "note": "many logs"}] * 60)
    assert (response.status_code, response.json["title"]) == (409, "Conflict with the present state")
    assert client.get("/orders").json == client.get("/logs").json == []
    client.application.testing = False
    response = client.post("/orders", json={"product": "x", "note": "self"})
    assert response.status_code == 500 and client.get("/orders").json == []


def test_actions_are_documented(client: FlaskClient) -> None:
    document = client.get("/openapi.json").json
    operation = document["paths"]["/orders/{id}/pay"]["post"]
    assert (operation["operationId"], operation["summary"]) == ("pay_order", "Pay order")
    assert operation["description"].startswith("Pay an open order.")
    sent, kept = operation["requestBody"], operation["responses"]["200"]
    assert sent["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/OrderPayment"}
    assert kept["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Order"}
    assert {"200", "404", "409", "412", "422"} <= set(operation["responses"])
    assert "OrderIsPaid" in operation["responses"]["409"]["$ref"]
    assert document["paths"]["/orders/close-day"]["post"]["operationId"] == "close_day_orders"


def test_wrong_declarations() -> None:
    """Each is refused where it is written, with what would be right."""

    def refuse(item: Any, before: Any) -> None: ...

    def do(*given: Any) -> None: ...

    async def wait(item: Any, items: Items) -> None: ...

    resource = Resource("orders", "order", OrderSchema)
    resource.action("pay", body=PaymentSchema)(lambda order, payment, items: None)
    for declare, words in (
        (lambda: resource.action("pay")(do), "orders: action('pay'): must be a new name"),
        (lambda: resource.action("merge")(do), "action('merge'): is an operation of each collection: choose another"),
        (lambda: resource.action("x", scope="own")(do), "action('x', scope='own'): write one like orders:x"),
        (lambda: resource.action("x", of="items")(do), "of='items'): must be 'item' or 'collection'"),
        (lambda: resource.after(), "orders: after(): must be some of"),
        (lambda: resource.before(refuse), "orders: before(refuse): must be some of 'create', 'update', 'delete'"),  # type: ignore[arg-type]
        (lambda: resource.action("x")(wait), "action('x'): wait is async: a transaction cannot wait: write def"),
        (lambda: resource.action("x", body=PaymentSchema())(do), "must be a schema class of marshmallow"),  # type: ignore[arg-type]
        (lambda: resource.action("x")(returns(PaymentSchema)(lambda order, items: None)), "@returns has problems only"),
        (lambda: resource.after("create")(lambda item, before: None), "(item, before, items): too many"),
        (lambda: Resource("x", "y", OrderSchema, ownership="all"), "ownership='all': must be one of Ownership.NONE, "),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError) as error:
            declare()
        assert words in str(error.value)


def test_several_items_are_created_or_none(client: FlaskClient) -> None:
    """Each fault points to its item."""
    client.post("/products", json={"name": "a", "sku": "taken"})
    good = {"name": "a", "sku": "s"}
    for body, status, places in (
        ([], 422, ["#"]),
        ([good] * 101, 422, ["#"]),
        ([good, 1, None], 422, ["#/1", "#/2"]),
        ([good, {"name": "", "stock": -1}, {}], 422, ["#/1/name", "#/1/stock", "#/2/name"]),
        ([good, {"name": "b", "sku": "taken"}, good], 409, ["#/1/sku"]),
    ):
        response = client.post("/products", json=body)
        assert response.status_code == status
        assert sorted(pointers(response)) == places
    assert len(client.get("/products").json) == 1
    refused = client.post("/orders", json=[{"product": "x"}, {"product": "x", "note": "unlogged"}])
    assert refused.status_code == 409 and client.get("/orders").json == client.get("/logs").json == []


Item = dict[str, Any]


def test_a_stored_value_that_fits_no_more_is_no_fault_of_a_function(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An action that leaves it is a conflict, as before; the log has what the function sets itself."""
    config = Config(database_url=f"sqlite:///{tmp_path}/a.db")

    def client_of(most: int) -> FlaskClient:
        schema = ItemSchema.from_dict({"name": Text(0, most, required=True), "size": Text(0, 3, load_default="")})
        things = Resource("things", "thing", schema)  # type: ignore[arg-type]

        @things.action("resize", body=PaymentSchema)
        def resize(thing: Item, sent: Item, items: Items) -> None:
            thing["size"] = sent["method"]

        return create_shop(config, [things]).test_client()

    path = client_of(10).post("/things", json={"name": "long name"}).headers["Location"]
    client = client_of(5)
    client.application.testing = False
    refused = client.post(f"{path}/resize", json={"method": "big"})
    assert (refused.status_code, refused.json["detail"]) == (409, "things: name must have at most 5 characters")
    assert client.post(f"{path}/resize", json={"method": "bigger"}).status_code == 500
    assert "resize: sets what things cannot store: size must have at most 3 characters (it is 'bigger')" in caplog.text
    assert client.patch(path, json={"name": "name"}).status_code == 200
    assert client.post(f"{path}/resize", json={"method": "big"}).json["size"] == "big"


class PatientSchema(ItemSchema):
    name = Text(1, 50, required=True)
    phone = Text(0, 50, load_default="")
    notes = Text(0, 50, load_default="", readable_by="patients:notes")
    address = fields.Nested(
        {"city": Text(1, 50, required=True), "code": Text(0, 10, load_default="0")}, allow_none=True, load_default=None
    )
    doctor = Reference("doctors", data_key="seenBy", allow_none=True, load_default=None)


class ReferralSchema(Schema):
    doctors = ListOf(Reference("doctors"), load_default=list)
    visits = fields.Nested(PatientSchema, only=("doctor",), many=True, load_default=list)
    bed = IntegerReference("beds", load_default=None, allow_none=True)


def surgery_client() -> FlaskClient:
    patients = Resource("patients", "patient", PatientSchema)
    doctors = Resource("doctors", "doctor", OwnerSchema, ownership=Ownership.ALL)

    @patients.action("update", body=PatientSchema, partial=True)
    def update(patient: Item, sent: Item, items: Items) -> Item:
        return {**patient, **sent}

    @patients.action("show", body=PatientSchema, partial=True, of="collection", scope="public")
    def show(sent: Item, items: Items) -> Item:
        return sent

    @patients.action("fill", body=PatientSchema, of="collection")
    def fill(sent: Item, items: Items) -> Item:
        return sent

    @patients.action("refer", body=ReferralSchema)
    def refer(patient: Item, referral: Item, items: Items) -> None:
        patient["notes"] = "referred"

    beds = Resource("beds", "bed", OwnerSchema, ids="integer")
    return create_shop(
        Config(auth="required", admin_key=ADMIN_KEY), [*RESOURCES, patients, doctors, beds]
    ).test_client()


def test_a_partial_body_is_what_was_sent_alone() -> None:
    """Without the defaults of the schema, also inside of its objects; values are checked as ever."""
    client = surgery_client()
    sent = {"name": "Ann", "phone": "1", "notes": "private", "address": {"city": "Oslo", "code": "7"}}
    patient = client.post("/patients", json=sent, headers=ADMIN).json
    updated = client.post(f"/patients/{patient['id']}/update", json={"name": "Bea"}, headers=ADMIN).json
    assert {name: updated[name] for name in sent} == {**sent, "name": "Bea"}
    for part in ({}, {"phone": "2"}, {"address": {"code": "8"}}):
        assert client.post("/patients/show", json=part).json == part
    wrong = client.post("/patients/show", json={"phone": 2, "fax": "3", "id": "x"})
    assert (wrong.status_code, sorted(pointers(wrong))) == (422, ["#/fax", "#/id", "#/phone"])
    whole = client.post("/patients/fill", json={"name": "Ann"}, headers=ADMIN).json
    assert whole == {"name": "Ann", "phone": "", "notes": "", "address": None, "doctor": None}
    assert pointers(client.post("/patients/fill", json={}, headers=ADMIN)) == ["#/name"]


@pytest.mark.needs("batch", "ownership", "references")
def test_what_the_body_of_an_action_refers_to_exists() -> None:
    """It is a 422 with the pointer, as for an item, also inside of lists and objects; the function is not called."""
    client = surgery_client()
    ann, bob = (key(client, "patients:read", "patients:write", "doctors:read", "doctors:write") for _ in range(2))
    patient, doctor, other = (
        client.post(path, json={"name": "A"}, headers=of).json["id"]
        for path, of in (("/patients", ann), ("/doctors", ann), ("/doctors", bob))
    )
    path, bed = f"/patients/{patient}/refer", client.post("/beds", json={}, headers=ADMIN).json["id"]
    for body, pointer in (
        ({"doctors": [doctor, "none"]}, "#/doctors/1"),
        ({"doctors": [doctor, other]}, "#/doctors/1"),  # which she may not see
        ({"visits": [{"seenBy": doctor}, {"seenBy": "none"}]}, "#/visits/1/seenBy"),
        ({"bed": bed + 1.0}, "#/bed"),
    ):
        response = client.post(path, json=body, headers=ann)
        assert (response.status_code, pointers(response)) == (422, [pointer]), response.json
        operations = [{"method": "POST", "path": path, "body": each} for each in ({"doctors": [doctor]}, body)]
        batch = client.post("/api/v1/batch", json={"operations": operations}, headers=ann)
        assert (batch.status_code, pointers(batch)) == (422, [pointer.replace("#", "#/operations/1/body")])
    shown = client.post("/patients/show", json={"seenBy": "none"})
    assert shown.json["errors"] == [{"pointer": "#/seenBy", "detail": "there is no item 'none' in doctors"}]
    assert client.post("/patients/none/refer", json={"doctors": ["none"]}, headers=ann).status_code == 404
    assert client.get(f"/patients/{patient}", headers=ann).json["version"] == 1
    sent = {"doctors": [doctor], "visits": [{"seenBy": doctor}, {"seenBy": None}], "bed": bed}
    assert client.post(path, json=sent, headers=ann).status_code == 200
    visits = [{"seenBy": str(n)} for n in range(501)]
    many = client.post(path, json={"doctors": [doctor] * 100, "visits": visits}, headers=ann)
    assert many.status_code == 409 and "more than 500 references" in many.json["detail"]


def test_the_document_says_what_the_body_of_an_action_needs() -> None:
    """Of a partial one nothing, and there are no defaults; of the schema of items, what a new item needs."""
    document = surgery_client().get("/openapi.json", headers=ADMIN).json
    schemas = document["components"]["schemas"]

    def sent(path: str) -> Any:
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        return schemas[content["$ref"].rpartition("/")[2]]

    assert sent("/patients/fill") == schemas["PatientInput"] and schemas["PatientInput"]["required"] == ["name"]
    partial = sent("/patients/show")
    assert partial == sent("/patients/{id}/update") and [*partial["properties"]] == [
        *schemas["PatientInput"]["properties"]
    ]
    assert "required" not in partial and not any("default" in each for each in partial["properties"].values())
    (inside, _) = partial["properties"]["address"]["anyOf"]
    assert "required" not in schemas[inside["$ref"].rpartition("/")[2]]


def test_what_a_body_cannot_have_is_refused_at_the_start() -> None:
    for field, words in (
        (Reference("nurses"), "things: action('do'): x: Reference('nurses'): must be one of"),
        (IntegerReference("products"), "things: action('do'): x: write Reference('products')"),
        (fields.Dict(values=Reference("products")), "things: action('do'): x: Reference: can be inside Nested and"),
        (fields.Pluck(PaymentSchema, "method"), "things: action('do'): x: Pluck: use Nested, or the field"),
    ):
        things = Resource("things", "thing", OwnerSchema)
        with pytest.raises(ValueError) as error:
            things.action("do", body=cast(type[Schema], Schema.from_dict({"x": field})))(lambda *given: None)
            create_shop(Config(), [*RESOURCES, things])
        assert words in str(error.value)

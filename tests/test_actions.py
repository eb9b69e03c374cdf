"""Actions of items and collections, functions before and after writes, and several items in one request."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
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
    Rename,
    Resource,
    Text,
    ValidationFailed,
    Version,
    Versions,
    Whole,
    returns,
)
from restkeeper.errors import Conflict, InternalError, Unavailable
from tests.callers import ADMIN, ADMIN_KEY, events, key, pointers
from tests.clock import SetClock
from tests.live import Gunicorn
from tests.shop import RESOURCES
from tests.shop import create_app as create_shop
from tests.shop.orders import LogSchema, OrderSchema, PaymentSchema, create_app

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
        return items.change("logs", "1", lambda note: {**note, "text": text}, conditions=items.call.conditions)

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
    """By its schema, before the item is read, in the words for items."""
    for body, pointer, detail in (
        ({"method": 1}, "#/method", "must be a string"),
        ({}, "#/method", "is required"),
        ({**CARD, "more": 1}, "#/more", "is not a field of this object"),
        ([CARD], "#", "must be an object"),
    ):
        response = client.post("/orders/none/pay", json=body)
        assert (response.status_code, response.json["errors"]) == (422, [{"pointer": pointer, "detail": detail}])
    assert client.post("/orders/none/pay", data="{", content_type="application/json").status_code == 400
    for sent in (b'{"method": "card"}', b"[]", b"null", b"x", b"{"):
        refused = client.post("/orders/close-day", data=sent, content_type="application/json")
        detail = "must be left out: this action takes no body"
        assert (refused.status_code, refused.json["errors"]) == (422, [{"pointer": "#", "detail": detail}])
    assert events(client) == []
    for empty in (b"{}", b" {}\r\n", b""):
        assert client.post("/orders/close-day", data=empty, content_type="application/json").status_code == 200


def test_an_action_has_a_scope_of_its_own() -> None:
    """A key needs just this scope; without another one it is that of writing."""
    client = create_app(Config(auth="required", admin_key=ADMIN_KEY)).test_client()
    product = client.post("/products", json={"name": "Lamp", "stock": 1}, headers=ADMIN).json["id"]
    order = client.post("/orders", json={"product": product}, headers=ADMIN).json["id"]
    headers = {scope: key(client, scope) for scope in ("orders:write", "orders:pay")}
    refused = client.post(f"/orders/{order}/pay", json=CARD, headers=headers["orders:write"])
    assert (refused.status_code, refused.json["detail"]) == (403, "this needs the scope orders:pay")
    assert client.post("/orders/close-day", headers=headers["orders:pay"]).status_code == 403
    assert client.post("/orders/close-day", headers=headers["orders:write"]).status_code == 200
    assert client.post(f"/orders/{order}/pay", json=CARD, headers=headers["orders:pay"]).status_code == 200


def test_functions_before_a_write_change_or_refuse_it(client: FlaskClient) -> None:
    """Of each method, of actions, and of what an action creates."""
    order, product = new_order(client, paid_with="CASH")
    assert client.get(order).json["paid_with"] == "cash"
    version = client.get(order).json["version"]
    assert client.patch(order, json={"paid_with": "CASH"}).json["version"] == version  # it changes nothing
    assert client.patch(order, json={"paid_with": "CARD"}).json["paid_with"] == "card"
    replaced = client.put(order, json={"product": product[10:], "paid_with": "NONE"})
    assert replaced.json["paid_with"] == "none"
    assert client.post(f"{order}/pay", json=CARD).json["paid_with"] == "card"
    for response in (client.patch(order, json={"note": "x"}), client.delete(order)):
        assert (response.status_code, response.json["type"]) == (409, "/problems/order-is-paid")
    assert client.get(order).json["note"] == ""


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


class PartSchema(Schema):
    """A part of a thing."""

    name = Text(1, 10, required=True)
    notes = fields.List(fields.Raw(), load_default=list)


class ThingSchema(ItemSchema):
    """A thing, with parts."""

    mode = Text(0, 30, load_default="")
    total = Whole(load_default=0, dump_only=True)
    parts = fields.List(fields.Nested(PartSchema), load_default=list)
    more = JsonObject(load_default=dict)


class ChosenSchema(Schema):
    """What an action does."""

    mode = Text(0, 30, required=True)


Item = dict[str, Any]
REFUSALS = {  # a function raises the same one each time
    "refuse": ValidationFailed("it has no name", errors=[{"pointer": "#/parts/0/name", "detail": "is unknown"}]),
    "refuse all": ValidationFailed("not today"),
    "refuse the whole": ValidationFailed(errors=[{"detail": "is not complete"}]),
    **{mode: ValidationFailed(errors=[{"pointer": mode, "detail": "is no mode"}]) for mode in ("/mode", "mode")},
}


def do(thing: Item, mode: str) -> Any:
    """What a function does with a thing."""
    match mode:
        case "nested":
            thing["parts"][0]["notes"].append({"by": "function"})
            thing["total"] += 1
        case "other":
            thing["mode"] = "lost"
            return {**thing, "mode": "returned"}
        case "same":
            thing["parts"] = [*thing["parts"]]
        case "server":
            thing |= {"id": "x", "version": 7, "created_at": "never", "updated_at": None}
        case "wrong":
            thing["parts"].append({"name": "", "notes": []})
        case "set":
            thing["parts"][0]["notes"] = [{1}]
        case "itself":
            thing["more"]["x"] = thing["more"]
        case "signal":
            thing["total"] = Decimal("sNaN")
        case "-Infinity" | "1E400":
            thing["more"]["x"] = Decimal(mode)
        case "nan":
            thing["more"]["x"] = float("nan")
        case "clear":
            thing.clear()
        case "text":
            return "no item"
        case _ if mode in REFUSALS:
            raise REFUSALS[mode]
    return None


def thing_client() -> FlaskClient:
    things = Resource("things", "thing", ThingSchema)

    @things.before("create", "update")
    def prepare(thing: Item, before: Item | None) -> Any:
        return do(thing, thing["mode"])

    @things.action("do", body=ChosenSchema)
    def act(thing: Item, chosen: Item, items: Items) -> Any:
        return do(thing, chosen["mode"])

    @things.action("change", body=ChosenSchema)
    def change(thing: Item, chosen: Item, items: Items) -> None:
        items.change("others", items.create("others", {"parts": PARTS})["id"], lambda other: do(other, chosen["mode"]))

    others = replace(things, name="others", singular="other")
    return create_shop(Config(), [*RESOURCES, things, others]).test_client()


PARTS = [{"name": "a", "notes": [1]}]
CHANGED = [{"name": "a", "notes": [1, {"by": "function"}]}]


@pytest.mark.needs("batch")
def test_a_function_changes_its_dictionary_in_place() -> None:
    """Also inside of its values, and without a result: before each write, in an action, and in `change`."""
    client = thing_client()
    sent = {"mode": "nested", "parts": PARTS}
    batch = {"operations": [{"method": "POST", "path": "/things", "body": sent}]}
    (several,) = client.post("/things", json=[sent]).json
    (result,) = client.post("/api/v1/batch", json=batch).json["results"]
    for made in (client.post("/things", json=sent).json, several, result["body"]):
        path = f"/things/{made['id']}"
        assert (made["parts"], made["total"], made["version"]) == (CHANGED, 1, 1) and client.get(path).json == made
    for method, body, total in (("PATCH", {"parts": PARTS}, 2), ("PUT", sent, 3)):
        changed = client.open(path, method=method, json=body).json
        assert (changed["parts"], changed["total"]) == (CHANGED, total) and client.get(path).json == changed
    plain = client.post("/things", json={"parts": PARTS}).json
    path = f"/things/{plain['id']}"
    acted = client.post(f"{path}/do", json={"mode": "nested"}).json
    assert (acted["parts"], acted["total"], acted["version"]) == (CHANGED, 1, 2) and client.get(path).json == acted
    assert client.post(f"{path}/change", json={"mode": "nested"}).json == acted
    assert [(each["parts"], each["total"]) for each in client.get("/others").json] == [(CHANGED, 1)]


def test_what_a_function_returns_counts() -> None:
    """Rather than what it has changed in place; the fields of the server do not, and nothing new is no new version."""
    client = thing_client()
    assert client.post("/things", json={"mode": "other"}).json["mode"] == "returned"
    for mode in ("same", "server"):
        made = client.post("/things", json={"mode": mode, "parts": PARTS}).json
        assert made["version"] == 1 and client.get(f"/things/{made['id']}").json == made
        count = len(events(client))
        for chosen in ("same", "server"):
            assert client.post(f"/things/{made['id']}/do", json={"mode": chosen}).json == made
        assert client.patch(f"/things/{made['id']}", json={"mode": mode}).json == made and len(events(client)) == count
    thing = client.post("/things", json={"mode": "x", "parts": PARTS}).json
    cleared = client.post(f"/things/{thing['id']}/do", json={"mode": "clear"}).json
    assert (cleared["id"], cleared["mode"], cleared["parts"], cleared["version"]) == (thing["id"], "", [], 2)


@pytest.mark.needs("batch")
@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("wrong", "sets what {} cannot store: parts/1/name must have 1 to 10 characters (it is '')"),
        ("set", "sets what {} cannot store: parts has no JSON form (it is [{{'name': 'a', 'notes': [{{1}}]}}])"),
        ("itself", "sets what {} cannot store: more has no JSON form (it is {{'x': {{...}}}})"),
        ("signal", "sets what {} cannot store: total has no JSON form (it is Decimal('sNaN'))"),
        ("nan", "sets what {} cannot store: more has no JSON form (it is {{'x': nan}})"),
        ("-Infinity", "sets what {} cannot store: more has no JSON form (it is {{'x': Decimal('-Infinity')}})"),
        ("1E400", "sets what {} cannot store: more has no JSON form (it is {{'x': Decimal('1E+400')}})"),
        ("text", "returned 'no item' instead of an item (a dictionary)"),
    ],
)
def test_what_a_function_sets_is_no_fault_of_the_caller(
    caplog: pytest.LogCaptureFixture, mode: str, words: str
) -> None:
    """It gets a 500, and the log says which function, field and value; nothing is stored."""
    client = thing_client()
    client.application.testing = False
    free = {"parts": PARTS, "more": {"x": None}}  # null is not NaN
    path = f"/things/{client.post('/things', json=free).json['id']}"
    sent, chosen = {**free, "mode": mode}, {"mode": mode}
    batch = {"operations": [{"method": "POST", "path": "/things", "body": sent}]}
    before = client.get("/things").data, len(events(client))
    change = "change.<locals>.<lambda>" if mode == "text" else "change"  # what returns it, and what calls `items`
    for to, method, body, function, name in (
        ("/things", "POST", sent, "prepare", "things"),
        ("/things", "POST", [sent], "prepare", "things"),
        ("/api/v1/batch", "POST", batch, "prepare", "things"),
        (path, "PATCH", chosen, "prepare", "things"),
        (path, "PUT", sent, "prepare", "things"),
        (f"{path}/do", "POST", chosen, "act", "things"),
        (f"{path}/change", "POST", chosen, change, "others"),
    ):
        caplog.clear()
        response = client.open(to, method=method, json=body)
        assert (response.status_code, response.json["title"]) == (500, "Internal error"), (to, method, response.json)
        assert f"test_actions.thing_client.<locals>.{function}: {words.format(name)}" in caplog.text, (to, method)
    assert (client.get("/things").data, len(events(client))) == before and client.get("/others").json == []


@pytest.mark.needs("batch")
def test_a_result_without_a_json_form_is_no_fault_of_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """As what a function sets: also in a batch, where it could have a name."""
    things, results = Resource("things", "thing", ThingSchema), list[Any]()
    things.action("give", of="collection")(lambda items: items.create("things", {}) and results[0])
    client = create_shop(Config(), [things]).test_client()
    client.application.testing = False
    operation = {"method": "POST", "path": "/things/give", "name": "x"}
    for wrong in ({1}, 10**30, {1: 2}, "\ud800", [float("inf")], Decimal("NaN"), Decimal("1E-400")):
        results[:] = [{"id": "x", "more": wrong}]
        for path, body in (("/things/give", None), ("/api/v1/batch", {"operations": [operation]})):
            caplog.clear()
            response = client.post(path, json=body)
            assert (response.status_code, response.json["title"]) == (500, "Internal error"), wrong
            assert "<locals>.<lambda>: returned what has no JSON form: " in caplog.text, wrong
    assert client.get("/things").json == []


def test_a_500_of_a_function_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With its name; what the caller can mend, or the time, is not logged."""
    things, raised = Resource("things", "thing", ThingSchema), list[Exception]()

    @things.action("fail", of="collection")
    def fail(items: Items) -> None:
        raise raised[0]

    client = create_shop(Config(), [things]).test_client()
    client.application.testing = False
    for error, status, words in (
        (InternalError("not mended"), 500, ["internal-error: not mended"]),
        (KeyError("no such key"), 500, ["unexpected KeyError"]),
        *((Unavailable("come again"), 503, list[str]()), (Conflict("too late"), 409, list[str]())),
    ):
        caplog.clear()
        raised[:] = [error]
        assert client.post("/things/fail").status_code == status
        assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == words
        assert ("<locals>.fail" in caplog.text or ", in fail" in caplog.text) is bool(words)


@pytest.mark.needs("batch", "versions")
def test_what_a_function_raises_is_for_the_caller() -> None:
    """In its names, where the body has the item; an array says which one. Of another item it is a conflict."""
    upgrades = {2: [Rename("pieces", "parts")]}
    versions = Versions(Version("v1", revisions={"things": 1}), Version("v2"), unversioned="v2")
    things = Resource("things", "thing", ThingSchema, upgrades=upgrades)
    things.before("create", "update")(lambda thing, before: do(thing, thing["mode"]))
    things.action("do", body=ChosenSchema)(lambda thing, chosen, items: do(thing, chosen["mode"]))
    things.action("become", body=ChosenSchema)(lambda thing, chosen, items: thing.update(chosen))
    things.action("add", body=ChosenSchema)(lambda thing, chosen, items: items.create("things", chosen) and None)
    client = create_shop(Config(), [*RESOURCES, things], versions=versions).test_client()
    path = f"/things/{client.post('/things', json={}).json['id']}"
    for mode, pointer, detail in (
        *(("refuse", "/parts/0/name", "is unknown"), ("refuse all", "", "not today")),
        *(("/mode", "/mode", "is no mode"), ("mode", "/mode", "is no mode")),
        ("refuse the whole", "", "is not complete"),
    ):
        older = pointer.replace("parts", "pieces")
        batch = {"operations": [{"method": "POST", "path": "/things", "body": {"mode": mode}}]}
        for to, method, body, shown in (
            ("/things", "POST", {"mode": mode}, f"#{pointer}"),
            ("/api/v1/things", "POST", {"mode": mode}, f"#{older}"),
            ("/things", "POST", [{}, {"mode": mode}], f"#/1{pointer}"),
            ("/api/v1/things", "POST", [{}, {"mode": mode}], f"#/1{older}"),
            ("/api/v1/batch", "POST", batch, f"#/operations/0/body{older}"),
            (path, "PATCH", {"mode": mode}, f"#{pointer}"),
            (f"/api/v1{path}", "PATCH", {"mode": mode}, f"#{older}"),
        ):
            response = client.open(to, method=method, json=body)
            assert (response.status_code, response.json["errors"]) == (422, [{"pointer": shown, "detail": detail}])
    for mode, pointer in (("refuse", "#/parts/0/name"), ("mode", "#/mode")):
        acted = client.post(f"/api/v1{path}/do", json={"mode": mode})
        assert (acted.status_code, acted.json["errors"][0]["pointer"]) == (422, pointer)  # of its own body
    for action in ("add", "become"):
        refused = client.post(f"{path}/{action}", json={"mode": "refuse"})
        assert (refused.status_code, refused.json["detail"]) == (409, "things: it has no name")
    assert len(client.get("/things").json) == 1


def test_a_stored_value_that_fits_no_more_is_no_fault_of_a_function(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An action that leaves it is a conflict, as before; the log has what the function sets itself."""
    config = Config(database_url=f"sqlite:///{tmp_path}/a.db")

    def client_of(most: int) -> FlaskClient:
        schema = ItemSchema.from_dict({"name": Text(0, most, required=True), "size": Text(0, 3, load_default="")})
        things = Resource("things", "thing", schema)  # type: ignore[arg-type]

        @things.action("resize", body=ChosenSchema)
        def resize(thing: Item, chosen: Item, items: Items) -> None:
            thing["size"] = chosen["mode"]

        return create_shop(config, [things]).test_client()

    path = client_of(10).post("/things", json={"name": "long name"}).headers["Location"]
    client = client_of(5)
    client.application.testing = False
    refused = client.post(f"{path}/resize", json={"mode": "big"})
    assert (refused.status_code, refused.json["detail"]) == (409, "things: name must have at most 5 characters")
    assert client.post(f"{path}/resize", json={"mode": "bigger"}).status_code == 500
    assert "resize: sets what things cannot store: size must have at most 3 characters (it is 'bigger')" in caplog.text
    assert client.patch(path, json={"name": "name"}).status_code == 200
    assert client.post(f"{path}/resize", json={"mode": "big"}).json["size"] == "big"


class DoctorSchema(ItemSchema):
    name = Text(0, 50, load_default="")


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
    doctors = Resource("doctors", "doctor", DoctorSchema, ownership=Ownership.ALL)

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

    beds = Resource("beds", "bed", DoctorSchema, ids="integer")
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


@pytest.mark.needs("batch", "ownership")
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
        (fields.Pluck(ChosenSchema, "mode"), "things: action('do'): x: Pluck: use Nested, or the field"),
    ):
        things = Resource("things", "thing", ThingSchema)
        with pytest.raises(ValueError) as error:
            things.action("do", body=cast(type[Schema], Schema.from_dict({"x": field})))(lambda *given: None)
            create_shop(Config(), [*RESOURCES, things])
        assert words in str(error.value)

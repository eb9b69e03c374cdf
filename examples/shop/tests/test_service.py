"""The rules of the shop, each by requests, and its receiver beside the running service."""

import json
import threading
from typing import Any
from urllib.request import Request, urlopen

import pytest
from flask.testing import FlaskClient
from werkzeug.serving import make_server
from werkzeug.test import TestResponse

import receiver
from app import create_app
from restkeeper import Config, LiveServer

CUSTOMER = ["products:read", "users:read", "orders:read", "orders:write", "orders:pay"]
CARD = {"method": "card"}


@pytest.fixture
def staff() -> FlaskClient:
    """A client that may do everything, of a shop with two customers, and 12 lamps."""
    client = create_app(Config()).test_client()
    client.post("/products", json={"name": "Desk lamp", "sku": "LAMP-1", "price": 49.9, "stock": 12})
    client.post("/users", json=[{"email": "ada@example.org"}, {"email": "grace@example.org"}])
    return client


@pytest.fixture
def ada(staff: FlaskClient) -> FlaskClient:
    """A client with the key of a customer."""
    return with_key(staff, CUSTOMER)


def with_key(staff: FlaskClient, scopes: list[str]) -> FlaskClient:
    """A client with a key of Ada."""
    sent = {"name": "Ada's phone", "scopes": scopes, "owners": [id_of(staff, "/users?email=ada@example.org")]}
    client = staff.application.test_client()
    client.environ_base["HTTP_X_API_KEY"] = staff.post("/api/v1/keys", json=sent).json["secret"]
    return client


def id_of(client: FlaskClient, path: str) -> str:
    """The id of the only item of a list."""
    (item,) = client.get(path).json
    return str(item["id"])


def order(staff: FlaskClient, client: FlaskClient, quantity: int, email: str = "ada@example.org") -> TestResponse:
    """Order lamps."""
    lines = [{"product": id_of(staff, "/products"), "quantity": quantity}]
    return client.post("/orders", json={"customer": id_of(staff, f"/users?email={email}"), "lines": lines})


def stock(client: FlaskClient) -> int:
    return int(client.get("/products").json[0]["stock"])


def type_of(response: TestResponse) -> str:
    return str(response.json["type"].rpartition("/")[2])


def test_paid_pieces_leave_the_stock_and_cancelled_ones_return(staff: FlaskClient, ada: FlaskClient) -> None:
    """Once each, whatever is repeated."""
    path = order(staff, ada, 2).headers["Location"]
    paid = ada.post(f"{path}/pay", json=CARD).json
    assert (paid["status"], paid["total"], paid["paid_with"], stock(staff)) == ("paid", 99.8, "card", 10)
    assert type_of(ada.post(f"{path}/pay", json=CARD)) == "order-is-closed"
    for _ in range(2):
        assert ada.post(f"{path}/cancel").json["status"] == "cancelled"
    assert stock(staff) == 12


def test_more_than_there_is_cannot_be_paid(staff: FlaskClient, ada: FlaskClient) -> None:
    """The order stays open, and nothing leaves the stock."""
    path = order(staff, ada, 13).headers["Location"]
    refused = ada.post(f"{path}/pay", json=CARD)
    assert (type_of(refused), refused.json["detail"]) == ("out-of-stock", "there are 12 of Desk lamp")
    assert (ada.get(path).json["status"], stock(staff)) == ("open", 12)


def test_customers_order_for_themselves(staff: FlaskClient, ada: FlaskClient) -> None:
    """They see no orders of others."""
    assert order(staff, ada, 1, "grace@example.org").status_code == 403
    foreign = order(staff, staff, 1, "grace@example.org").headers["Location"]
    assert (ada.get(foreign).status_code, ada.get("/orders").json, len(staff.get("/orders").json)) == (404, [], 1)


def test_customers_set_no_state(staff: FlaskClient, ada: FlaskClient) -> None:
    """Only by the actions, nor do staff; what is sent cannot be cancelled."""
    path = order(staff, ada, 1).headers["Location"]
    for client, state in ((ada, "paid"), (staff, "paid"), (staff, "cancelled")):
        assert type_of(client.patch(path, json={"status": state})) == "illegal-transition"
    ada.post(f"{path}/pay", json=CARD)
    assert staff.patch(path, json={"status": "sent"}).json["status"] == "sent"
    assert (type_of(ada.post(f"{path}/cancel")), stock(staff)) == ("illegal-transition", 11)


def test_what_is_paid_stays(staff: FlaskClient, ada: FlaskClient) -> None:
    """An order, its lines, and the products that it refers to."""
    path = order(staff, ada, 1).headers["Location"]
    ada.post(f"{path}/pay", json=CARD)
    lines = [{"product": id_of(staff, "/products"), "quantity": 9}]
    assert type_of(ada.patch(path, json={"lines": lines})) == "order-is-closed"
    assert type_of(ada.delete(path)) == "order-is-closed"
    assert type_of(staff.delete(f"/products/{id_of(staff, '/products')}")) == "still-referenced"


def test_orders_are_shown_with_what_they_refer_to(staff: FlaskClient, ada: FlaskClient) -> None:
    """And a customer with her orders; who may not read users sees their ids."""
    customer = order(staff, ada, 1).json["customer"]
    (found,) = staff.get("/orders?embed=customer,lines.product").json
    assert (found["customer"]["email"], found["lines"][0]["product"]["sku"]) == ("ada@example.org", "LAMP-1")
    reader = with_key(staff, ["orders:read"])
    assert [each["customer"] for each in reader.get("/orders?embed=customer").json] == [customer]
    assert len(staff.get(f"/users/{customer}?embed=orders").json["orders"]) == 1
    assert len(staff.get(f"/users/{customer}/orders?status=open").json) == 1


def test_a_batch_does_all_or_nothing(staff: FlaskClient) -> None:
    """Here a product that is ordered and paid at once; and one of which too much is ordered."""
    for quantity, status in ((1, 200), (3, 409)):
        operations = [
            {"method": "POST", "path": "/users", "body": {"email": f"{quantity}@example.org"}, "name": "user"},
            {"method": "POST", "path": "/products", "body": {"name": "Pen", "sku": "P", "price": 2, "stock": 2}},
            {"method": "POST", "path": "/orders", "body": {"customer": "$user", "lines": []}, "name": "order"},
            {"method": "POST", "path": "/orders/$order/pay", "body": CARD},
        ]
        operations[1]["name"] = "pen"
        operations[2]["body"]["lines"].append({"product": "$pen", "quantity": quantity})
        assert staff.post("/api/v1/batch", json={"operations": operations}).status_code == status
    assert [each["total"] for each in staff.get("/orders").json] == [2]


def test_sales_are_reported(staff: FlaskClient, ada: FlaskClient) -> None:
    """For those with the scope."""
    ada.post(f"{order(staff, ada, 2).headers['Location']}/pay", json=CARD)
    order(staff, ada, 1)
    assert staff.get("/reports/sales").json == {"orders": 1, "total": 99.8}
    assert ada.get("/reports/sales").status_code == 403


def post(url: str, body: Any) -> Any:
    """The response to a request over HTTP."""
    with urlopen(Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})) as response:
        return json.load(response)


def test_the_receiver_verifies_what_the_shop_sends(capfd: pytest.CaptureFixture[str]) -> None:
    """A paid order arrives; what nobody has signed is refused."""
    arrived = threading.Event()
    receiver.app.after_request(lambda response: (response.status_code == 204 and arrived.set()) or response)
    listening = make_server("127.0.0.1", 0, receiver.app)
    threading.Thread(target=listening.serve_forever).start()
    with LiveServer(WEBHOOK_ALLOW_PRIVATE="1") as server:
        hook = {"url": f"http://127.0.0.1:{listening.port}/", "types": ["order.updated"]}
        receiver.app.config["SECRET"] = post(f"{server.url}/api/v1/webhooks", hook)["secret"]
        user = post(f"{server.url}/users", {"email": "ada@example.org"})["id"]
        pen = post(f"{server.url}/products", {"name": "Pen", "sku": "PEN-1", "price": 2.5, "stock": 1})["id"]
        made = post(f"{server.url}/orders", {"customer": user, "lines": [{"product": pen}]})["id"]
        post(f"{server.url}/orders/{made}/pay", CARD)
        assert arrived.wait(20)
    forged = {f"webhook-{name}": "1" for name in ("id", "timestamp", "signature")}
    assert receiver.app.test_client().post("/", json={}, headers=forged).status_code == 401
    listening.shutdown()
    assert f"mail to {user}: thank you for 2.5\n" in capfd.readouterr().out

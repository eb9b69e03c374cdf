"""The rules of the rental, each by requests to the service as it is deployed: with keys, and with many callers at once.

It has the store that TEST_DATABASE_URL names, else a file of SQLite. The tests share it: each makes its own tools and
customers.
"""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from threading import Thread
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest

from restkeeper import LiveServer

ADMIN_KEY = "the-admin-key-of-these-tests"
CUSTOMER = ["tools:read", "maintenance:read", "customers:read", "bookings:read", "bookings:write", "invoices:read"]
STAFF = [
    *CUSTOMER,
    *("tools:write", "maintenance:write", "maintenance:manage", "customers:write", "customers:all", "customers:manage"),
    *("bookings:all", "bookings:manage", "invoices:all", "invoices:manage"),
]
CALLERS = 20  # at once


class Customer(NamedTuple):
    """A customer, and a client with the customer's key."""

    id: str
    http: httpx.Client

    def book(self, tool: str, start: str = "2030-06-03", end: str = "2030-06-05") -> httpx.Response:
        return self.http.post("/bookings", json={"tool": tool, "start": start, "end": end})


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    url = os.environ.get("TEST_DATABASE_URL", f"sqlite:///{tmp_path_factory.mktemp('store')}/rental.db")
    with LiveServer(
        pytestconfig.rootpath, DATABASE_URL=url, AUTH="required", ADMIN_KEY=ADMIN_KEY, WEBHOOK_ALLOW_PRIVATE="1"
    ) as running:
        yield running


@pytest.fixture(scope="session")
def admin(server: LiveServer) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"X-API-Key": ADMIN_KEY}, timeout=60)


def with_key(admin: httpx.Client, scopes: list[str], *owners: str) -> httpx.Client:
    """A client with a new key."""
    made = admin.post("/api/v1/keys", json={"name": "test", "scopes": scopes, "owners": [*owners]}).json()
    return httpx.Client(base_url=admin.base_url, headers={"X-API-Key": made["secret"]}, timeout=60)


@pytest.fixture(scope="session")
def staff(admin: httpx.Client) -> httpx.Client:
    return with_key(admin, STAFF)


@pytest.fixture
def ada(admin: httpx.Client, staff: httpx.Client) -> Customer:
    return new_customer(admin, staff, "Ada")


@pytest.fixture
def grace(admin: httpx.Client, staff: httpx.Client) -> Customer:
    return new_customer(admin, staff, "Grace")


def new_customer(admin: httpx.Client, staff: httpx.Client, name: str) -> Customer:
    """A customer as staff register one: what they create belongs to the customer."""
    id = f"{name.lower()}-{uuid4().hex[:8]}"
    known = {"id": id, "owner": id, "name": name, "email": f"{id}@example.org", "note": "pays late"}
    assert staff.post("/customers", json=known).status_code == 200
    return Customer(id, with_key(admin, CUSTOMER, id))


@pytest.fixture
def tool(staff: httpx.Client) -> str:
    """The id of a new tool, which costs 12.50 a day."""
    drill = {"name": "Hammer drill", "category": "drills", "price_per_day": 12.5}
    return str(staff.post("/tools", json=drill).json()["id"])


def at_once(call: Callable[[Any], httpx.Response], arguments: list[Any]) -> list[int]:
    """The statuses of calls that so many callers make at the same time."""
    with ThreadPoolExecutor(CALLERS) as callers:
        return sorted(response.status_code for response in callers.map(call, arguments))


def type_of(response: httpx.Response) -> str:
    return str(response.json()["code"])


def test_the_price_is_that_of_the_tool_when_it_is_booked(staff: httpx.Client, ada: Customer, tool: str) -> None:
    """Nobody sends one, and a later price of the tool changes no booking."""
    booked = ada.book(tool)
    assert booked.json()["total"] == 25
    staff.patch(f"/tools/{tool}", json={"price_per_day": 99})
    assert staff.get(booked.headers["Location"]).json()["total"] == 25
    sent = {"tool": tool, "start": "2030-01-01", "end": "2030-01-02", "total": 1}
    assert ada.http.post("/bookings", json=sent).json()["errors"][0]["pointer"] == "#/total"
    assert ada.book(tool, "2030-01-02", "2030-01-02").json()["detail"] == "end must be after start"


def test_a_tool_is_booked_once_at_a_time(staff: httpx.Client, ada: Customer, grace: Customer, tool: str) -> None:
    """From the day on which it is back, or if a booking is cancelled, it is free."""
    first, second = ada.book(tool).headers["Location"], grace.book(tool, "2030-06-04", "2030-06-09").headers["Location"]
    assert staff.post(f"{first}/confirm").json()["status"] == "confirmed"
    assert type_of(staff.post(f"{second}/confirm")) == "tool-is-taken"
    later = grace.book(tool, "2030-06-05", "2030-06-06").headers["Location"]
    assert staff.post(f"{later}/confirm").status_code == 200
    for path in (first, later):
        staff.post(f"{path}/cancel")
    assert staff.post(f"{second}/confirm").status_code == 200


@pytest.mark.parametrize("_", range(3))
def test_one_of_many_confirmations_succeeds(staff: httpx.Client, ada: Customer, tool: str, _: int) -> None:
    """Of bookings that overlap, whoever confirms them at the same time."""
    paths = [ada.book(tool, f"2030-06-{day:02}", "2030-06-30").headers["Location"] for day in range(1, CALLERS + 1)]
    statuses = at_once(lambda path: staff.post(f"{path}/confirm"), paths)
    assert statuses == [200, *[409] * (CALLERS - 1)]
    assert [each["status"] for each in ada.http.get("/bookings?limit=100").json()].count("confirmed") == 1


def test_a_tool_is_rented_or_in_maintenance(staff: httpx.Client, ada: Customer, tool: str) -> None:
    """Whichever comes first; also if both are tried at the same time."""
    days = {"work": "new brushes", "start": "2030-06-01", "end": "2030-06-04"}
    booking = ada.book(tool).headers["Location"]
    tries = [(f"{booking}/confirm", None), (f"/tools/{tool}/maintenance", days)] * (CALLERS // 2)
    statuses = at_once(lambda each: staff.post(each[0], json=each[1]), tries)
    in_maintenance = staff.get(f"/tools/{tool}/maintenance").json()
    is_confirmed = staff.get(booking).json()["status"] == "confirmed"
    assert len(in_maintenance) == (0 if is_confirmed else 1)
    assert statuses.count(200) == (CALLERS // 2 if is_confirmed else 1)  # to confirm again changes nothing
    staff.post(f"{booking}/cancel")
    later = days if is_confirmed else {**days, "start": "2030-06-04", "end": "2030-06-05"}
    assert staff.post(f"/tools/{tool}/maintenance", json=later).status_code == 200
    assert type_of(staff.post(f"/tools/{tool}/maintenance", json=later)) == "tool-is-taken"


def test_a_retired_tool_is_not_booked(staff: httpx.Client, ada: Customer, tool: str) -> None:
    """And one with bookings is not deleted."""
    assert ada.book(tool).status_code == 200
    staff.patch(f"/tools/{tool}", json={"status": "retired"})
    assert type_of(ada.book(tool)) == "tool-is-taken"
    assert type_of(staff.delete(f"/tools/{tool}")) == "still-referenced"
    assert ada.http.patch(f"/tools/{tool}", json={"status": "offered"}).status_code == 403


def returned(staff: httpx.Client, customer: Customer, tool: str) -> dict[str, Any]:
    """The invoice of a booking that is over."""
    path = customer.book(tool).headers["Location"]
    for action in ("confirm", "return"):
        assert staff.post(f"{path}/{action}").status_code == 200
    (invoice,) = staff.get("/invoices", params={"booking": path.rpartition("/")[2]}).json()
    return dict(invoice)


def test_a_tool_that_is_returned_is_invoiced_once(staff: httpx.Client, ada: Customer, tool: str) -> None:
    """The invoice is the customer's, who reads it, and staff note that it is paid."""
    invoice = returned(staff, ada, tool)
    assert ada.http.get("/invoices").json() == [invoice] and (invoice["total"], invoice["status"]) == (25, "open")
    statuses = at_once(lambda _: staff.post(f"/bookings/{invoice['booking']}/return"), [None] * CALLERS)
    assert statuses == [409] * CALLERS
    path = f"/invoices/{invoice['id']}"
    assert ada.http.post(f"{path}/pay").status_code == 403
    assert staff.post(f"{path}/pay").json()["status"] == "paid"
    for response in (staff.patch(path, json={"total": 1}), staff.delete(path), staff.post("/invoices", json=invoice)):
        assert response.status_code == 405


def test_numbers_of_invoices_have_no_gap(admin: httpx.Client, staff: httpx.Client, tool: str) -> None:
    """Whoever returns tools at the same time; what is refused uses no number."""
    customer = new_customer(admin, staff, "Mary")
    days = [f"2030-07-{day:02}" for day in range(1, CALLERS + 2)]
    paths = [customer.book(tool, *each).headers["Location"] for each in zip(days, days[1:], strict=False)]
    for path in paths:
        assert staff.post(f"{path}/confirm").status_code == 200
    statuses = at_once(lambda path: staff.post(f"{path}/return"), [*paths, *paths])
    assert statuses == [*[200] * CALLERS, *[409] * CALLERS]
    numbers = [invoice["number"] for invoice in staff.get("/invoices?limit=1000").json()]
    assert numbers == [*range(len(numbers), 0, -1)]


@pytest.mark.parametrize("state", ["confirmed", "returned", "cancelled"])
def test_states_are_set_by_actions_alone(admin: httpx.Client, ada: Customer, tool: str, state: str) -> None:
    """By no request, not even an admin's; and actions take the steps in order."""
    path = ada.book(tool).headers["Location"]
    sent = {"tool": tool, "customer": ada.id, "start": "2030-01-01", "end": "2030-01-02", "status": state}
    refused = admin.post("/bookings", json=sent)
    assert (refused.status_code, admin.patch(path, json={"status": state}).status_code) == (409, 405)
    assert ada.http.post(f"{path}/confirm").status_code == 403
    assert ada.http.post(f"{path}/cancel").json()["status"] == "cancelled"
    assert [admin.post(f"{path}/{action}").status_code for action in ("confirm", "return")] == [409, 409]


def test_customers_reach_what_is_theirs(staff: httpx.Client, ada: Customer, grace: Customer, tool: str) -> None:
    """And staff all."""
    invoice = returned(staff, ada, tool)
    theirs = [f"/customers/{ada.id}", f"/bookings/{invoice['booking']}", f"/invoices/{invoice['id']}"]
    assert [grace.http.get(path).status_code for path in theirs] == [404] * 3
    assert [ada.http.get(path).status_code for path in theirs] == [200] * 3
    assert [staff.get(path).status_code for path in theirs] == [200] * 3
    assert grace.http.post(f"{theirs[1]}/cancel").status_code == 404


def test_what_staff_book_for_a_customer_is_the_customers(
    staff: httpx.Client, ada: Customer, grace: Customer, tool: str
) -> None:
    """Customers book for themselves alone; nobody books for who is no customer, and no customer is deleted."""
    sent = {"tool": tool, "customer": ada.id, "start": "2030-08-01", "end": "2030-08-02"}
    booked = staff.post("/bookings", json=sent).headers["Location"]
    assert ada.http.get(booked).json()["customer"] == ada.book(tool).json()["customer"] == ada.id
    assert len(staff.get(f"/customers/{ada.id}/bookings").json()) == 2 and grace.http.get("/bookings").json() == []
    assert grace.http.post("/bookings", json=sent).status_code == 403
    for other in ("nobody", None):
        assert type_of(staff.post("/bookings", json={**sent, "customer": other})) == "conflict", other
    assert staff.delete(f"/customers/{ada.id}").status_code == 405


def test_a_note_is_for_staff(staff: httpx.Client, ada: Customer, tool: str) -> None:
    """For customers it is in no item, list or embedded item, and nothing to filter, sort or count by."""
    path = f"/customers/{ada.id}"
    assert staff.get("/customers", params={"id": ada.id, "note": "pays late"}).json()[0]["note"] == "pays late"
    (listed,) = ada.http.get("/customers").json()
    assert "note" not in listed and ada.http.get(path).json() == listed
    ada.book(tool)
    (booking,) = ada.http.get("/bookings?embed=customer").json()
    assert booking["customer"] == listed
    for query in ("note=pays+late", "sort=note", "count=note", "fields=note"):
        assert type_of(ada.http.get(f"/customers?{query}")) == "invalid-query", query
    assert ada.http.patch(path, json={"note": "pays at once"}).status_code == 403


def test_the_cost_of_maintenance_is_for_staff(staff: httpx.Client, ada: Customer, tool: str) -> None:
    """Customers see when it is."""
    days = {"work": "new brushes", "start": "2030-06-01", "end": "2030-06-02", "cost": 40}
    made = staff.post(f"/tools/{tool}/maintenance", json=days).json()
    (seen,) = ada.http.get(f"/tools/{tool}/maintenance").json()
    assert made == {**seen, "cost": 40}


def test_revenue_is_reported(staff: httpx.Client, ada: Customer, tool: str) -> None:
    """By month, of all customers for staff; a customer sees what is hers."""
    query = {"count": "month(created_at)", "aggregate[sum]": "total"}

    def revenue(client: httpx.Client) -> tuple[int, float]:
        month = {"month(created_at)": f"{now:%Y-%m}"}
        found = client.get("/invoices", params=query).json()
        return next(((each["count"], each["sum"]["total"]) for each in found if each["group"] == month), (0, 0.0))

    now = datetime.now(UTC)
    invoices, total = revenue(staff)
    returned(staff, ada, tool)
    assert revenue(staff) == (invoices + 1, total + 25)
    assert revenue(ada.http) == (1, 25)


def test_the_first_version_has_other_names(staff: httpx.Client, tool: str) -> None:
    """In items, filters and bodies; both show the same tools, and paths without a version are those of the second."""
    old, new = staff.get(f"/api/v1/tools/{tool}").json(), staff.get(f"/api/v2/tools/{tool}").json()
    assert (old["price"], new["price_per_day"]) == (12.5, 12.5)
    assert "price_per_day" not in old and "price" not in new and staff.get(f"/tools/{tool}").json() == new
    assert [each["id"] for each in staff.get("/api/v1/tools", params={"price": 12.5, "id": tool}).json()] == [tool]
    assert staff.get("/api/v2/tools?price=12.5").status_code == 400
    staff.patch(f"/api/v1/tools/{tool}", json={"price": 15})
    assert staff.get(f"/api/v2/tools/{tool}").json()["price_per_day"] == 15


def test_webhooks_send_what_happens(admin: httpx.Client, staff: httpx.Client, ada: Customer, tool: str) -> None:
    """To whoever writes mails to customers, such as a confirmation."""
    received = Queue[dict[str, Any]]()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Receiver) as receiver:
        Thread(target=receiver.handle_request, daemon=True).start()
        hook = {"url": f"http://127.0.0.1:{receiver.server_port}/", "types": ["booking.updated"]}
        assert admin.post("/api/v1/webhooks", json=hook).status_code == 200
        path = ada.book(tool).headers["Location"]
        staff.post(f"{path}/confirm")
        event = received.get(timeout=20)
    assert (event["data"]["customer"], event["data"]["status"]) == (ada.id, "confirmed")

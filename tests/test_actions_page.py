"""The service that docs/actions.md writes: its rules hold when many write at once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.live import ROOT, Gunicorn
from tests.test_readme import service_of

MANY = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    folder = tmp_path_factory.mktemp("rules")
    service = service_of("actions.md", folder)
    with Gunicorn(folder, root=service, app="", PYTHONPATH=str(ROOT), RATE_LIMIT="off") as running:
        yield running


def post(server: Gunicorn, path: str, body: Any = None) -> Any:
    response = server.post(path, body)
    assert response.status == 200, response.json()
    return response.json()


def at_once(server: Gunicorn, *calls: tuple[str, Any]) -> list[int]:
    """The statuses of POST requests that are sent together."""
    with ThreadPoolExecutor(MANY) as pool:
        return [each.status for each in pool.map(lambda call: server.post(*call), calls)]


def test_a_tool_is_booked_once_at_a_time(server: Gunicorn) -> None:
    """Of 20 confirmations of overlapping bookings, at once, one succeeds. Their price is that of the tool."""
    tool = post(server, "/tools", {"name": "Drill", "price": 7.5})["id"]
    days = [{"tool": tool, "start": f"2026-12-{n + 1:02}", "end": f"2026-12-{n + 11:02}"} for n in range(10)]
    bookings = [post(server, "/bookings", each) for each in days * 2]
    assert {each["total"] for each in bookings} == {75}
    statuses = at_once(server, *((f"/bookings/{each['id']}/confirm", None) for each in bookings))
    assert sorted(statuses) == [200] + [409] * (MANY - 1)
    after = post(server, "/bookings", {"tool": tool, "start": "2027-01-01", "end": "2027-01-02"})
    assert post(server, f"/bookings/{after['id']}/confirm", None)["status"] == "confirmed"
    assert server.get(f"/tools/{tool}").json()["booked"] == MANY + 1
    wrong = server.post("/bookings", {"tool": tool, "start": "2026-12-02", "end": "2026-12-02"})
    assert (wrong.status, [each["pointer"] for each in wrong.json()["errors"]]) == (422, ["#/end"])


def test_a_tool_is_booked_or_repaired(server: Gunicorn) -> None:
    """Of a confirmation and a repair of the same days, at once, one succeeds: the rule is of two collections."""
    tool = post(server, "/tools", {"name": "Saw", "price": 5})["id"]
    days = [{"tool": tool, "start": f"2026-12-{n:02}", "end": f"2026-12-{n + 1:02}"} for n in range(1, 11)]
    bookings = [post(server, "/bookings", each)["id"] for each in days]
    pairs = [((f"/bookings/{id}/confirm", None), ("/repairs", each)) for id, each in zip(bookings, days, strict=True)]
    statuses = at_once(server, *(call for pair in pairs for call in pair))
    assert [sorted(statuses[n : n + 2]) for n in range(0, MANY, 2)] == [[200, 409]] * 10


def test_a_transfer_moves_what_there_is(server: Gunicorn) -> None:
    """No balance is ever below 0, and the sum stays."""
    accounts = [post(server, "/accounts", {"balance": 100})["id"] for _ in range(3)]
    moves = [(accounts[n % 3], accounts[(n + 1 + n // 3 % 2) % 3], 20 + n % 20 * 20) for n in range(40)]
    bodies = [{"source": source, "target": target, "amount": amount} for source, target, amount in moves]
    statuses = at_once(server, *(("/accounts/transfer", each) for each in bodies))
    assert {*statuses} == {200, 409}
    balances = [each["balance"] for each in server.get("/accounts").json()]
    assert sum(balances) == 300 and min(balances) >= 0

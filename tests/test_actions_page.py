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

"""The rule that no two bookings of a tool overlap: it costs the same however many bookings are over."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from restkeeper import Config, Conflict, Index, Items, ItemSchema, Resource, Text, Time
from restkeeper.resources import functions
from restkeeper.service import service_of
from restkeeper.storage.base import Store
from restkeeper.storage.sqlite import items as sqlite_items
from tests import stores
from tests.shop import create_app

TOOLS = 30
FIRST = datetime(2000, 1, 1, 9)
FREE = FIRST + timedelta(days=10_000)  # after all bookings that are stored at first
SECONDS = 0.02  # that each rule may take on an idle machine; a median of ten times that fails the test
STEPS = 20  # hundreds of steps of SQLite's machine of one search: those of some items


class BookingSchema(ItemSchema):
    """A booking of a tool."""

    tool = Text(1, 40, required=True)
    start = Time(required=True)
    end = Time(required=True)


def spell(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds") + "Z"


def period(number: int) -> tuple[datetime, datetime]:
    """When the booking with this number is: none of one tool overlap."""
    start = FIRST + timedelta(hours=number // TOOLS * 3)
    return start, start + timedelta(hours=2)


def fill(store: Store, first: str, number: int) -> None:
    """Store so many bookings as the first one is."""
    model = store.read("bookings", first)
    body = model.body.decode()
    words = [*map(spell, (FREE, FREE + timedelta(hours=1))), '"first"', f'"{first}"']

    def records(begin: int) -> Iterator[Any]:
        for each in range(begin, min(begin + 1000, number)):
            text, id = body, f"b{each:07}"
            for word, value in zip(words, [*map(spell, period(each)), f'"t{each % TOOLS}"', f'"{id}"'], strict=True):
                text = text.replace(word, value)
            yield model._replace(id=id, body=text.encode())

    for begin in range(0, number, 1000):
        store.write(lambda transaction, begin=begin: transaction.insert_all("bookings", [*records(begin)]))


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The work of each search on SQLite, in hundreds of steps; of other stores there is none."""
    counts: list[int] = []

    @contextmanager
    def count(connection: Any, seconds: float, now: Callable[[], float], error: Any) -> Iterator[None]:
        counts.append(0)

        def step() -> int:
            counts[-1] += 1
            return 0

        connection.set_progress_handler(step, 100)
        yield
        connection.set_progress_handler(None, 100)

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_items, "interrupt_after", count)
        yield counts


@pytest.mark.parametrize("number", [20_000, pytest.param(200_000, marks=pytest.mark.matrix)])
def test_the_rule_costs_the_same_however_many_bookings_are_over(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty bookings in a row, each with its rule, beside an index of one field that a range could use."""
    indexes = (Index("start"), Index("tool", "end"))
    bookings, taken, plans = Resource("bookings", "booking", BookingSchema, indexes), list[float](), set[str]()
    query = dict[str, str]()

    @bookings.before("create")
    def require_free(booking: Any, before: None, items: Items) -> None:
        query.update({"tool": booking["tool"], "start[lt]": booking["end"], "end[gt]": booking["start"]})
        begin = time.perf_counter()
        found = items.find("bookings", query)
        taken.append(time.perf_counter() - begin)
        plans.add(items._transaction.explain("bookings", items._query("bookings", query)[1]))
        if found:
            raise Conflict("the tool is booked at that time")

    app = create_app(Config(database_url=stores.url(f"sqlite:///{tmp_path}/store.db")), [bookings])
    client = app.test_client()

    def book(tool: str, start: datetime, hours: int = 1) -> tuple[int, str]:
        sent = {"tool": tool, "start": spell(start), "end": spell(start + timedelta(hours=hours))}
        response = client.post("/bookings", json=sent)
        return response.status_code, response.json.get("id", "")

    status, first = book("first", FREE)
    assert status == 200
    fill(service_of(app).store, first, number)
    monkeypatch.setattr(functions, "FIND_SECONDS", 10.0)
    taken.clear()
    plans.clear()
    with counting(monkeypatch) as steps:
        done = [book(f"t{each % TOOLS}", FREE + timedelta(hours=each // TOOLS * 2))[0] for each in range(50)]
    assert done == [200] * 50
    assert len(plans) == 1 and "items.bookings.tool+end." in plans.pop()
    assert all(count <= STEPS for count in steps)
    assert median(taken) <= 10 * SECONDS  # a busy machine can stop one of them for longer
    last, _ = period(number - 1)
    tool = f"t{(number - 1) % TOOLS}"
    assert [book(tool, last)[0], book(tool, FREE)[0], book(tool, last + timedelta(hours=2))[0]] == [409, 409, 200]

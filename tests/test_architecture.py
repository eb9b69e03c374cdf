"""docs/house.py and bench/calls.py: the page about the architecture is correct."""

import sys
from collections import Counter

import pytest

from bench.calls import count, counts_of_requests, module_of
from docs import house
from restkeeper.clock import rfc3339
from tests.live import ROOT


def test_the_page_shows_the_present_structure() -> None:
    """Rooms and imports exactly, lines within a tenth; `python docs/house.py` updates the page."""
    page = house.PAGE.read_text(encoding="utf-8")
    assert list(house.differences(house.read_rooms(), house.PICTURE.read_text(encoding="utf-8"), page)) == []


def test_a_difference_is_found() -> None:
    """An import, a room or many more lines are a difference; a few more lines are not."""
    rooms = {"web": house.Room("Web", 1000, frozenset({"storage"})), "storage": house.Room("Store", 100, frozenset())}
    svg, page = house.picture(rooms), f"<!-- rooms -->\n{house.table(rooms)}<!-- end of rooms -->"
    assert list(house.differences(rooms, svg, page)) == []
    more = {**rooms, "storage": house.Room("Store", 110, frozenset()), "web": rooms["web"]._replace(lines=1090)}
    assert list(house.differences(more, svg, page)) == []
    for changed, message in (
        ({**rooms, "storage": rooms["storage"]._replace(imports=frozenset({"web"}))}, "other arrows"),
        ({**rooms, "storage": rooms["storage"]._replace(lines=112)}, "storage has 112 lines, and not 100"),
        ({"web": rooms["web"]._replace(imports=frozenset())}, "storage is missing"),
        ({**rooms, "features/keys": house.Room("Keys", 10, frozenset())}, "features/keys is missing"),
    ):
        assert message in "\n".join(house.differences(changed, svg, page))


def test_the_picture_has_an_arrow_for_each_import() -> None:
    """The imports of all features are one arrow; upward imports are red."""
    rooms = house.read_rooms()
    svg = house.picture(rooms)
    assert "<title>resources → storage</title>" in svg and svg.count("<title>") == svg.count("<polygon")
    assert house.WRONG not in svg
    upwards = {"web": house.Room("", 1, frozenset()), "storage": house.Room("", 1, frozenset({"web"}))}
    assert house.WRONG in house.picture(upwards)


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("restkeeper/web/edge.py", "web/edge"),
        ("restkeeper/clock.py", "clock"),
        ("restkeeper/features/events/__init__.py", "features/events"),
        ("schemas/product.py", "the service"),
        ("tests/live.py", ""),
    ],
)
def test_the_path_gives_the_module(path: str, module: str) -> None:
    """Below the engine; none for other code."""
    assert module_of(ROOT / path) == module


def test_calls_and_changes_of_module_are_counted() -> None:
    """Only calls of our code count.

    A call from a test is no change of module, and calls of other packages do not count.
    """
    counts = count(lambda: [rfc3339(second) for second in range(3)])
    assert counts.calls == Counter({"clock": 3}) and counts.changes == Counter()
    assert sys.getprofile() is None


def test_requests_are_counted() -> None:
    """All go through the core: the list is not cached."""
    for counts in counts_of_requests().values():
        assert {"web/application", "resources/items", "storage/sqlite/store"} <= set(counts.calls)
        assert (
            counts.changes["resources/items", "web/preconditions"]
            or counts.changes["resources/items", "web/pagination"]
        )
        assert counts.changes.total() < counts.calls.total()

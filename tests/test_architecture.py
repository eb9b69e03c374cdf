"""bench/calls.py counts the calls of a request, and bench/sizes.py the lines of the engine."""

from bench.calls import counts_of_requests
from bench.sizes import count_lines
from tests.live import ROOT


def test_requests_are_counted() -> None:
    """All go through the core: the list is not cached."""
    for counts in counts_of_requests().values():
        assert {"web/application", "resources/items", "storage/sqlite/store"} <= set(counts.calls)
        assert (
            counts.changes["resources/items", "web/preconditions"]
            or counts.changes["resources/items", "web/pagination"]
        )
        assert counts.changes.total() < counts.calls.total()


def test_lines_are_counted() -> None:
    """All lines of a part, and its modules."""
    lines, modules = count_lines()
    clock = (ROOT / "restkeeper" / "clock.py").read_text(encoding="utf-8")
    assert (lines["clock"], modules["clock"]) == (clock.count("\n"), 1)
    assert lines["storage"] > lines["schemas"] and modules["features/events"] > 1

"""bench/calls.py counts the calls of a request, and bench/sizes.py the lines of the engine."""

import sys
from collections import Counter

import pytest

from bench.calls import count, counts_of_requests, module_of
from bench.sizes import count_lines
from restkeeper.clock import rfc3339
from tests.live import ROOT


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


def test_lines_are_counted() -> None:
    """All lines of a part, and its modules."""
    lines, modules = count_lines()
    clock = (ROOT / "restkeeper" / "clock.py").read_text(encoding="utf-8")
    assert (lines["clock"], modules["clock"]) == (clock.count("\n"), 1)
    assert lines["storage"] > lines["schemas"] and modules["features/events"] > 1

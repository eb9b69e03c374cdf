"""Under kills of processes each item is created once, and each change is seen and delivered in order."""

import pytest

from tests.soak import soak

pytestmark = pytest.mark.timeout(180)


def test_kills_of_workers_lose_and_repeat_nothing() -> None:
    """Of two workers on one SQLite file, and of two processes that deliver."""
    counts = soak(items=150, kills=6)
    assert (counts["killed worker"], counts["killed deliverer"]) == (4, 2)


@pytest.mark.matrix
def test_kills_of_instances_lose_and_repeat_nothing() -> None:
    """Clients retry at the next of three instances on one PostgreSQL."""
    counts = soak(items=150, kills=6, store="postgresql")
    assert (counts["killed worker"], counts["killed instance"]) == (2, 2)

"""What a service promises under faults: its histories are linearizable."""

import pytest

from tests.soak import HistoryRun, soak

pytestmark = pytest.mark.timeout(300)


def require_all_kinds(run: HistoryRun) -> None:
    """Each kind of operation happened, successfully, and changes also with a conflict."""
    happened = run.recorder.counts.keys()
    kinds = {"create", "read", "read if changed", "find by name", "list", "feed", "change", "delete"}
    assert {(kind, "200") for kind in kinds} | {("change", "412")} <= happened


def test_kills_of_workers_lose_and_repeat_nothing() -> None:
    """Of two workers on one SQLite file, and of two processes that deliver."""
    run = soak(seconds=2, times=1)
    require_all_kinds(run)


@pytest.mark.matrix
def test_many_kills_lose_and_repeat_nothing() -> None:
    """On SQLite, of each kind of process several times."""
    run = soak(seconds=20, times=5)
    require_all_kinds(run)


@pytest.mark.matrix
def test_three_instances_under_faults_of_the_database() -> None:
    """PostgreSQL is restarted, paused, crashed and killed, connections are cut, processes and instances are killed."""
    run = soak(seconds=8, times=1, store="postgresql")
    require_all_kinds(run)
    assert len(run.injected) == 8

"""Histories that are recorded over HTTP: those of the service are linearizable, those of broken services are not."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests import broken
from tests.live import Gunicorn
from tests.soak_histories import Fault, HistoryRun, soak

SHORT = 1.5  # seconds, for a thousand operations

BROKEN = {
    broken.lost_updates: "not linearizable",
    broken.stale_reads: "not linearizable",
    broken.phantom_successes: "not linearizable",
    broken.doubled_creates: "created twice|several ids",
    broken.lost_events: "two feeds|no event",
    broken.doubled_events: "two feeds|out of order",
}


def require_all_kinds(run: HistoryRun) -> None:
    """Each kind of operation happened, successfully, and changes also with a conflict."""
    happened = run.recorder.counts.keys()
    kinds = {"create", "read", "read if changed", "find by name", "list", "feed", "change", "delete"}
    assert {(kind, "200") for kind in kinds} | {("change", "412")} <= happened


def test_a_history_under_kills_is_linearizable() -> None:
    """Of two workers on one SQLite file one is killed with -9 every half second."""
    run = soak(seconds=4)
    require_all_kinds(run)
    assert run.injected["worker killed"] > 2


@pytest.mark.matrix
@pytest.mark.timeout(240)
def test_a_longer_history_under_kills_is_linearizable() -> None:
    """The same for a minute."""
    run = soak(seconds=60)
    require_all_kinds(run)
    assert run.injected["worker killed"] > 30


@pytest.mark.parametrize(("app", "message"), BROKEN.items(), ids=[app.__name__ for app in BROKEN])
def test_the_history_of_a_broken_service_is_refused(
    tmp_path: Path, app: Callable[[], broken.Wsgi], message: str
) -> None:
    """A service that breaks one promise, now and then."""
    with Gunicorn(tmp_path, workers=1, app=f"tests.broken:{app.__name__}()", LOG_LEVEL="error") as server:
        with pytest.raises(AssertionError, match=message):
            HistoryRun([server.base], seconds=SHORT).run()


def test_instances_and_faults_take_turns(tmp_path: Path) -> None:
    """Requests go to all instances in turn. Each fault begins and ends, in order, and the last one at the end."""
    done: list[str] = []
    faults = [
        Fault(name, partial(done.append, f"{name} begins"), partial(done.append, f"{name} ends"), 0.01)
        for name in ("one", "other")
    ]
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    database = f"sqlite:///{tmp_path}/shared.db"
    with Gunicorn(folders[0], DATABASE_URL=database) as first, Gunicorn(folders[1], DATABASE_URL=database) as second:
        run = HistoryRun([first.base, second.base], faults, seconds=SHORT, every=0.1)
        run.run()
        requests = [len(server.lines()) for server in (first, second)]
    assert min(requests) > 0.9 * max(requests) > 100
    assert done[:5] == ["one begins", "one ends", "other begins", "other ends", "one begins"]
    assert len(done) == 2 * run.injected.total() and done[-1].endswith("ends")

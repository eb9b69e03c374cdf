"""Histories that are recorded over HTTP: those of the service are linearizable, those of broken services are not."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import broken
from tests.live import Gunicorn
from tests.soak_histories import Fault, HistoryRun, soak

pytestmark = pytest.mark.matrix  # the checker itself is tested in test_histories.py

RESPONSES = 600  # of a short run: each fault of a broken service shows several times

BROKEN: dict[object, str] = {
    broken.lost_updates: "nobody did this",
    broken.stale_reads: "not linearizable",
    broken.phantom_successes: "nobody did this",
    broken.doubled_creates: "created twice|several ids",
    broken.lost_events: "two feeds|no event",
    broken.doubled_events: "two feeds|out of order",
}


def require_all_kinds(run: HistoryRun) -> None:
    """Each kind of operation happened, successfully, and changes also with a conflict."""
    happened = run.recorder.counts.keys()
    kinds = {"create", "read", "read if changed", "find by name", "list", "feed", "change", "delete"}
    assert {(kind, "200") for kind in kinds} | {("change", "412")} <= happened


@pytest.mark.timeout(240)
def test_a_history_under_kills_is_linearizable() -> None:
    """Of two workers on one SQLite file one is killed with -9 every second, fifty times."""
    run = soak(seconds=45, times=50)
    require_all_kinds(run)
    assert run.injected["worker killed"] >= 50


@pytest.mark.timeout(120)
def test_a_history_of_three_instances_under_faults_of_the_database_is_linearizable() -> None:
    """PostgreSQL is restarted, paused, crashed and killed, connections are cut, workers and instances are killed."""
    run = soak(seconds=8, times=1, store="postgresql")
    require_all_kinds(run)
    assert len(run.injected) == 7


@pytest.mark.timeout(400)
def test_a_longer_history_of_three_instances_is_linearizable() -> None:
    """The same with each fault eight times."""
    run = soak(seconds=90, times=8, store="postgresql")
    require_all_kinds(run)


@pytest.fixture(scope="module")
def broken_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    """A service that breaks the promise that a request names."""
    folder: Path = tmp_path_factory.mktemp("broken")
    with Gunicorn(folder, workers=1, app="tests.broken:create_broken()", LOG_LEVEL="error") as server:
        yield server


@pytest.mark.parametrize("promise", broken.PROMISES, ids=lambda promise: promise.__name__)
def test_the_history_of_a_broken_service_is_refused(
    broken_service: Gunicorn, promise: Callable[[broken.Wsgi], broken.Wsgi]
) -> None:
    """A service that breaks one promise, now and then."""
    run = HistoryRun([broken_service.base], responses=RESPONSES, headers={"Broken": promise.__name__})
    with pytest.raises(AssertionError, match=BROKEN[promise]):
        run.run()


def test_the_same_service_is_not_refused(broken_service: Gunicorn) -> None:
    """Where no promise is broken the history is linearizable."""
    HistoryRun([broken_service.base], responses=RESPONSES).run()


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
        run = HistoryRun([first.base, second.base], faults, responses=RESPONSES, times=3, every=0.1)
        run.run()
        requests = [len(server.lines()) for server in (first, second)]
    assert min(requests) > 0.9 * max(requests) > 100
    assert done[:5] == ["one begins", "one ends", "other begins", "other ends", "one begins"]
    assert len(done) == 2 * run.injected.total() and done[-1].endswith("ends")

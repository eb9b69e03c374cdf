"""What a service promises under faults: its histories are linearizable, those of broken services are not."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.live import Gunicorn
from tests.shop import create_app
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


def create_broken() -> Callable[..., Iterable[bytes]]:
    """The service, which does not get the header that a request names."""
    app = create_app()

    def broken(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        environ.pop(environ.get("HTTP_BROKEN"), None)
        return app(environ, start)

    return broken


@pytest.fixture(scope="module")
def broken_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    folder = tmp_path_factory.mktemp("broken")
    with Gunicorn(folder, workers=1, app="tests.test_soak:create_broken()", LOG_LEVEL="error") as server:
        yield server


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("header", "found"),
    [("HTTP_IF_MATCH", "nobody did this"), ("HTTP_IDEMPOTENCY_KEY", "created twice|several ids")],
)
def test_the_history_of_a_broken_service_is_refused(broken_service: Gunicorn, header: str, found: str) -> None:
    """One that ignores conditions loses updates; one that ignores keys creates items twice."""
    with pytest.raises(AssertionError, match=found):
        HistoryRun([broken_service.base], responses=600, headers={"Broken": header}).run()

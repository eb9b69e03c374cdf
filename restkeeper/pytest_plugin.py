"""The pytest plugin: a running service for tests, started for the first test that uses it."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from restkeeper.testing import LiveServer

LOG_LINES = 100


@pytest.fixture(scope="session")
def restkeeper_server(pytestconfig: pytest.Config) -> Iterator[LiveServer]:
    """The service of the project's root folder, shared by the tests of one process. See `LiveServer`."""
    with LiveServer(pytestconfig.rootpath) as server:
        yield server


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Show the end of the log of each server that a failed test has as a fixture."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    for name, value in getattr(item, "funcargs", {}).items():
        if report.failed and isinstance(value, LiveServer):
            lines = value.log.splitlines()[-LOG_LINES:]
            report.sections.append((f"restkeeper log of {name}", "\n".join(lines)))

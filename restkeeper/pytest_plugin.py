"""The pytest plugin: a running service for tests, started for the first test that uses it."""

from collections.abc import Iterator

import pytest

from restkeeper.testing import LiveServer


@pytest.fixture(scope="session")
def restkeeper_server(pytestconfig: pytest.Config) -> Iterator[LiveServer]:
    """The service of the project's root folder, shared by the tests of one process. See `LiveServer`."""
    with LiveServer(pytestconfig.rootpath) as server:
        yield server

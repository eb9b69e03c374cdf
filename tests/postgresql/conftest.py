"""A new database with a store for each test. These tests are in the matrix: the suite of stores is in `make test`."""

from pathlib import Path

import pytest

from tests.postgresql.helpers import Held
from tests.things import close_all, kept


@pytest.hookimpl(tryfirst=True)  # before marks select
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("matrix")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Stores are closed before what they use is deleted."""
    close_all()


@pytest.fixture
def outbox(url: str) -> Held:
    store: Held = kept(Held(url))
    store.open()
    return store

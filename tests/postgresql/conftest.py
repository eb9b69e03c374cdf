"""A new database with a store for each test."""

import pytest

from tests.postgresql.helpers import Held
from tests.things import close_all, kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Stores are closed before what they use is deleted."""
    close_all()


@pytest.fixture
def outbox(url: str) -> Held:
    store: Held = kept(Held(url))
    store.open()
    return store

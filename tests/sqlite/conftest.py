"""SQLite stores for tests."""

from pathlib import Path

import pytest

from restkeeper.storage.sqlite.store import SqliteStore
from tests.sqlite.helpers import opened
from tests.things import OTHERS, THINGS, close_all, kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Stores are closed before what they use is deleted."""
    close_all()


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    """A store in a file."""
    return opened(tmp_path)


@pytest.fixture(params=["memory", "file"])
def each_store(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteStore:
    """A store in memory, and one in a file."""
    return kept(SqliteStore(":memory:" if request.param == "memory" else f"{tmp_path}/store.db", [THINGS, OTHERS]))

"""SQLite stores for tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from restkeeper.storage.sqlite.store import SqliteStore
from tests.sqlite.helpers import opened
from tests.things import OTHERS, THINGS


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A store in a file."""
    store = opened(tmp_path)
    yield store
    store.close()


@pytest.fixture(params=["memory", "file"])
def each_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteStore]:
    """A store in memory, and one in a file."""
    store = SqliteStore(":memory:" if request.param == "memory" else f"{tmp_path}/store.db", [THINGS, OTHERS])
    yield store
    store.close()

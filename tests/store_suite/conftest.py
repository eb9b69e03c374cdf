"""The stores that the suite runs on: SQLite in a file and in memory, and PostgreSQL."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from restkeeper.storage import open_store
from restkeeper.storage.base import Store
from restkeeper.storage.interface import Collection
from tests.postgresql_reuse import Reused
from tests.postgresql_server import Databases
from tests.things import OTHERS, THINGS

KINDS = ["file", "memory", "postgresql"]


@contextmanager
def stores(request: pytest.FixtureRequest, folder: Path) -> Iterator[Callable[..., Store]]:
    """Opens new stores of the fixture's kind with given collections, and closes them at the end."""
    with ExitStack() as opened:

        def url(collections: Sequence[Collection]) -> str:
            if request.param == "postgresql":
                reused: Reused = request.getfixturevalue("reused")
                taken = reused.take(collections)
                opened.callback(reused.give_back, taken)
                return taken
            number = len(list(folder.glob("*.db")))
            return f"sqlite:///{folder}/{number}.db" if request.param == "file" else "memory://"

        def open_with(*collections: Collection) -> Store:
            store = open_store(url(collections), collections)
            opened.callback(store.close)
            return store

        yield open_with


@pytest.fixture(scope="session")
def reused(databases: Databases) -> Reused:
    """The databases of this process."""
    return Reused(databases)


@pytest.fixture(params=KINDS)
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens a store with given collections."""
    with stores(request, tmp_path) as open_with:
        yield open_with


@pytest.fixture
def store(open_one: Callable[..., Store]) -> Store:
    """A store with two collections."""
    return open_one(THINGS, OTHERS)


@pytest.fixture(params=KINDS)
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store with an outbox."""
    with stores(request, tmp_path) as open_with:
        yield open_with(Collection("things", {}))


@pytest.fixture(params=KINDS, scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that all examples of a property use."""
    with stores(request, tmp_path_factory.mktemp("shared")) as open_with:
        yield open_with(THINGS)

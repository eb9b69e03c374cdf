"""The stores that the contract is tested on: SQLite in a file and in memory, and a store of dictionaries."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from restkeeper.storage import open_store
from restkeeper.storage.contract import Collection, Store
from tests.dict_store import DictStore
from tests.things import OTHERS, THINGS

KINDS = ["file", "memory", "dictionaries"]


def opened(kind: str, folder: Path, *collections: Collection) -> Store:
    """Open a new store."""
    if kind == "dictionaries":
        return DictStore(collections)  # type: ignore[return-value]  # it has no outbox
    number = len(list(folder.glob("*.db")))
    return open_store(f"sqlite:///{folder}/{number}.db" if kind == "file" else "memory://", collections)


@pytest.fixture(params=KINDS)
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens a store with given collections."""
    stores: list[Store] = []

    def open_with(*collections: Collection) -> Store:
        stores.append(opened(request.param, tmp_path, *collections))
        return stores[-1]

    yield open_with
    for store in stores:
        store.close()


@pytest.fixture
def store(open_one: Callable[..., Store]) -> Store:
    """A store with two collections."""
    return open_one(THINGS, OTHERS)


@pytest.fixture(params=["file", "memory"])
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store with an outbox."""
    store = opened(request.param, tmp_path, Collection("things", {}))
    yield store
    store.close()


@pytest.fixture(params=KINDS, scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that all examples of a property use."""
    store = opened(request.param, tmp_path_factory.mktemp("shared"), THINGS)
    yield store
    store.close()

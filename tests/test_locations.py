"""Locations of stores: properties of a URL before a store is opened."""

import os
from pathlib import Path

import pytest

from restkeeper.storage import locate
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection
from restkeeper.storage.sqlite.store import SqliteStore


def test_a_location_creates_no_file(tmp_path: Path) -> None:
    """It knows whether the file exists."""
    file = locate(f"sqlite:///{tmp_path}/a.db")
    assert (file.temporary, file.folder, file.size()) == (False, os.path.realpath(tmp_path), 0)
    with pytest.raises(StoreUnavailable, match=f"^there is no store at '{tmp_path}/a.db'; DATABASE_URL="):
        file.require()
    assert list(tmp_path.iterdir()) == []
    store = SqliteStore(f"{tmp_path}/a.db", [Collection("things", {})])
    assert list(tmp_path.iterdir()) == []  # a store neither, until it is used
    store.open()
    store.close()
    file.require()
    assert file.size() == (tmp_path / "a.db").stat().st_size > 0


def test_memory_belongs_to_one_process(tmp_path: Path) -> None:
    """It has no file, size or folder, does not exist before it is opened, and cannot be restored."""
    memory = locate("memory://")
    assert (memory.name, memory.temporary, memory.folder, memory.size()) == ("memory://", True, None, 0)
    for work in (memory.require, lambda: memory.restore(tmp_path / "backup.db", discard=False)):
        with pytest.raises(StoreUnavailable, match="memory://"):
            work()

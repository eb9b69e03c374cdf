"""A restored store never repeats a token for other contents, also if a copy is restored while it runs."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from restkeeper.storage.base import Transaction
from restkeeper.storage.feed import EventFilter, find_events, last_event
from restkeeper.storage.interface import Query
from restkeeper.storage.sqlite.store import SqliteStore
from restkeeper.storage.transactions import Event
from tests.things import OTHERS, THINGS, record


def open_at(path: Path) -> SqliteStore:
    return SqliteStore(str(path), [THINGS, OTHERS])


def by_backup(store: SqliteStore, path: Path, target: Path) -> None:
    store.backup(target)


def by_api(store: SqliteStore, path: Path, target: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)


def by_copy(store: SqliteStore, path: Path, target: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(path, target)


def restore(copy: Path, path: Path) -> None:
    """As `.restore` of the shell: the same file gets other contents."""
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)


class Client:
    """Records the content for each token and event id; fails if one is repeated for other content."""

    def __init__(self) -> None:
        self.known: dict[str, object] = {}
        self.changes = 0

    def note(self, token: str, content: object) -> None:
        assert self.known.setdefault(token, content) == content, token

    def record_state(self, store: SqliteStore) -> None:
        bodies = store.page("things", Query()).bodies
        self.note(store.change_token("things"), bodies)
        self.note(store.page("things", Query()).change_token, bodies)
        for body in bodies:
            item = store.read("things", body[7:8].decode())
            self.note(f"{item.version}-{store.epoch}", item.body)
        for event in find_events(store, "", EventFilter(("things",)), 1000).events:
            self.note(event.id, event.data)

    def change(self, store: SqliteStore, *, read_before: bool) -> None:
        for _ in range(10):
            if read_before:
                self.record_state(store)
            self.changes += 1
            body = store.write(self._change)
            self.note(last_event(store), body)
        self.record_state(store)

    def _change(self, transaction: Transaction) -> bytes:
        version = transaction.read("things", "a").version + 1
        changed = record("a", version, name=f"change {self.changes}")
        transaction.update("things", changed)
        self.note(transaction.change_token("things"), [changed.body])
        transaction.add_event(Event("thing.updated", "things", "a", "", changed.body))
        return changed.body


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = open_at(path)
    store.write(lambda transaction: transaction.insert("things", record("a")))
    yield store
    store.close()


@pytest.mark.parametrize("copy", [by_backup, by_api, by_copy])
@pytest.mark.parametrize("read_before", [True, False])
def test_a_restore_under_a_running_store(
    store: SqliteStore, path: Path, copy: Callable[..., None], read_before: bool
) -> None:
    """Later revisions, versions and event ids are new, whether the store is read or written first."""
    client = Client()
    client.change(store, read_before=True)
    copy(store, path, path.with_name("copy.db"))
    epochs = [store.epoch]
    for _ in range(3):
        client.change(store, read_before=read_before)
        restore(path.with_name("copy.db"), path)
        client.change(store, read_before=read_before)
        epochs.append(store.epoch)
    assert len(set(epochs)) == 4


@pytest.mark.parametrize("copy", [by_backup, by_api])
def test_an_opened_copy_gets_a_new_epoch(store: SqliteStore, path: Path, copy: Callable[..., None]) -> None:
    """This is also true for two stores that are restored from one copy."""
    copy(store, path, path.with_name("copy.db"))
    shutil.copy(path.with_name("copy.db"), path.with_name("twin.db"))
    copies = [open_at(path.with_name(name)) for name in ("copy.db", "twin.db")]
    assert len({store.epoch, *(each.epoch for each in copies)}) == 3
    for each in copies:
        each.close()


def test_all_processes_agree_on_the_epoch(store: SqliteStore, path: Path) -> None:
    other = open_at(path)
    store.backup(path.with_name("copy.db"))
    former = store.epoch
    restore(path.with_name("copy.db"), path)
    assert former != other.epoch == store.epoch
    assert store.change_token("things") == other.change_token("things")
    assert last_event(store) == last_event(other)
    other.close()


def test_a_new_schema_neither_changes_the_epoch_nor_hides_a_restore(store: SqliteStore, path: Path) -> None:
    former = store.epoch
    without_indexes = replace(THINGS, indexes=())
    other = SqliteStore(str(path), [without_indexes, OTHERS])
    assert other.epoch == former == store.epoch
    other.close()
    by_copy(store, path, path.with_name("copy.db"))
    former = store.epoch
    restore(path.with_name("copy.db"), path)
    other = SqliteStore(str(path), [without_indexes, OTHERS])
    assert former != other.epoch == store.epoch
    other.close()

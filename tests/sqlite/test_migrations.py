"""Migrations: each names the oldest program that can work with the store after it."""

import re
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pytest

from restkeeper.storage import locate
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection, StoredSchema
from restkeeper.storage.sql import LAYOUT, oldest_of
from restkeeper.storage.sqlite import migrations
from tests.things import THINGS, insert, open_store, record

KNOWN = len(migrations.MIGRATIONS)


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Opens and closes the store with a program that has later migrations, which add a table each."""

    def open_newer(*oldest: int, collections: Sequence[Collection] = (THINGS,)) -> None:
        later = []
        for number, each in enumerate(oldest, start=KNOWN + 1):
            later.append(tmp_path / f"{number:04}_later.sql")
            later[-1].write_text(f"-- oldest: {each}\nCREATE TABLE later{number} (id TEXT) STRICT;\n")
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, *later])
            open_store(f"sqlite:///{tmp_path}/store.db", collections).close()

    return open_newer


def test_each_migration_names_the_oldest_program(tmp_path: Path) -> None:
    numbers = [oldest_of(path.read_text()) for path in migrations.MIGRATIONS]
    assert all(1 <= oldest <= number for number, oldest in enumerate(numbers, start=1))
    open_store(f"sqlite:///{tmp_path}/store.db", [THINGS]).close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("SELECT oldest FROM store").fetchone() == (max(numbers),)


def test_another_first_migration_has_another_layout() -> None:
    """A store of before is refused, and never changed by statements for other tables: give LAYOUT the next number."""
    statements = re.sub(r"(?m)^--.*\n", "", migrations.MIGRATIONS[0].read_text())
    assert (LAYOUT, blake2b(statements.encode(), digest_size=4).hexdigest()) == ("layout_4", "b6eae5e6")


def test_a_migration_without_the_number_is_refused() -> None:
    """It would lock out, or let in, the wrong programs."""
    with pytest.raises(ValueError, match="-- oldest: N"):
        oldest_of("CREATE TABLE x (id TEXT);")


def test_an_older_program_opens_a_store_that_it_can_work_with(tmp_path: Path, newer: Callable[..., None]) -> None:
    """It works beside the newer one: it reads, writes, restores a backup, and is ready."""
    old = open_store(f"sqlite:///{tmp_path}/store.db", [THINGS])
    insert(old, record("a"))
    newer(KNOWN)
    old.check()
    insert(old, record("b"))
    again = open_store(f"sqlite:///{tmp_path}/store.db", [THINGS])
    again.check()
    insert(again, record("c"))
    assert [each.id for each in old.scan("things")] == ["a", "b", "c"]
    again.backup(tmp_path / "backup.db")
    again.close()
    old.close()
    shutil.copy(tmp_path / "backup.db", tmp_path / "copy.db")
    assert locate(f"sqlite:///{tmp_path}/store.db").restore(tmp_path / "copy.db", discard=True).items == {"things": 3}


@pytest.mark.parametrize("oldest", [(KNOWN + 1,), (KNOWN, KNOWN + 2), (KNOWN + 2, KNOWN)], ids=str)
def test_an_older_program_refuses_a_store_that_it_cannot_work_with(
    tmp_path: Path, newer: Callable[..., None], oldest: tuple[int, ...]
) -> None:
    """Also one that has it open is not ready any more, and does not write. A restore is refused, too."""
    running = open_store(f"sqlite:///{tmp_path}/store.db", [THINGS])
    newer(*oldest)
    text = rf"newer program \(migration {KNOWN + len(oldest)} of {KNOWN}\): use one that has migration {max(oldest)}"
    with pytest.raises(StoreUnavailable, match=text):
        open_store(f"sqlite:///{tmp_path}/store.db", [THINGS])
    with pytest.raises(StoreUnavailable, match=text):
        running.check()
    with pytest.raises(StoreUnavailable, match=text):
        insert(running, record("a"))
    running.backup(tmp_path / "backup.db")
    running.close()
    with pytest.raises(StoreUnavailable, match=text):
        locate(f"sqlite:///{tmp_path}/store.db").restore(tmp_path / "backup.db", discard=True)


def test_a_former_program_is_shut_out(
    tmp_path: Path, newer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one runs that cannot work with the store after a migration, this one does not start."""
    monkeypatch.setattr("restkeeper.storage.sqlite.file.SHARE_SECONDS", 0.1)
    former = open_store(f"sqlite:///{tmp_path}/store.db", [THINGS])
    (breaking := tmp_path / "breaking.sql").write_text(f"-- oldest: {KNOWN + 1}\n")
    monkeypatch.setattr("restkeeper.storage.sql.MIGRATIONS", [*migrations.MIGRATIONS, breaking])
    with pytest.raises(StoreUnavailable, match="must be migrated: stop all that uses it with a former program"):
        newer(KNOWN + 1)
    insert(former, record("a"))
    former.close()
    newer(KNOWN + 1)


def test_a_refused_start_migrates_nothing(tmp_path: Path, newer: Callable[..., None]) -> None:
    fields = StoredSchema("0123abcd", 1, "{}")
    refusing = replace(
        THINGS,
        schema=fields._replace(fingerprint="4567cdef"),
        conflict=lambda stored, common: "does not fit the schema",
    )
    store = open_store(f"sqlite:///{tmp_path}/store.db", [replace(THINGS, schema=fields)])
    insert(store, record("a")._replace(fingerprint="0123abcd"))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="does not fit the schema"):
            newer(KNOWN, collections=[refusing])
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (KNOWN,)
    insert(store, record("b"))


def test_a_store_without_a_migration_is_not_ready(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db", [THINGS])
    store.check()
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {KNOWN - 1}")
    with pytest.raises(StoreUnavailable, match=f"has migration {KNOWN - 1}, this program needs {KNOWN}"):
        store.check()

"""`flask restore`, and the effects of a copy or a rename over a store."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from restkeeper.app import stored_collections
from restkeeper.config import Config
from restkeeper.storage import Store, open_store
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Record
from tests.live import ROOT
from tests.shop import RESOURCES, create_app

pytestmark = pytest.mark.sqlite

READER = """\
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(*connection.execute("SELECT count(*) FROM items").fetchone(), flush=True)
sys.stdin.read()
"""

# Writes an item, and ends like a killed process.
CRASH = """\
import os, sys
from tests.test_restore import insert, opened
store = opened(sys.argv[1])
insert(store, "crashed")
os._exit(9)
"""


def opened(folder: Path | str) -> Store:
    return open_store(f"sqlite:///{folder}/store.db", stored_collections(RESOURCES))


def insert(store: Store, id: str) -> None:
    body = b'{"id":"%s","name":"x","version":1}' % id.encode()
    record = Record(id, 1, "2026-01-01T00:00:00.000000Z", "shape", body)
    store.write(lambda transaction: transaction.insert("products", record))


def ids(store: Store) -> list[str]:
    return [record.id for record in store.scan("products")]


def stored(folder: Path) -> list[str]:
    """The ids in the store of a folder, which is ready."""
    with closing(opened(folder)) as store:
        store.check()
        return ids(store)


def restore(folder: Path, *arguments: str) -> Result:
    """Run `flask restore`, with newly loaded modules."""
    app = create_app(Config(database_url=f"sqlite:///{folder}/store.db"), RESOURCES, serves=False)
    return app.test_cli_runner().invoke(args=["restore", *arguments])


def crash(folder: Path) -> None:
    """Leave the store in the state after its process was killed."""
    done = subprocess.run([sys.executable, "-c", CRASH, str(folder)], cwd=ROOT, check=False)
    assert done.returncode == 9 and (folder / "store.db-wal").stat().st_size


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup with the item "old", of a closed store that has also the item "new"."""
    store = opened(tmp_path)
    insert(store, "old")
    store.backup(tmp_path / "backup.db")
    insert(store, "new")
    store.close()
    return tmp_path / "backup.db"


def test_a_backup_replaces_the_store(tmp_path: Path, backup: Path) -> None:
    """The store has exactly the items of the backup; the former one is complete under another name."""
    result = restore(tmp_path, str(backup))
    first, second = result.stdout.splitlines()
    assert first == f"restored {backup}: 1 products; the newest change is of 2026-01-01T00:00:00.000000Z"
    former = Path(second.removeprefix("the former store is "))
    assert former.name.startswith("store.db.before-restore-2")
    assert stored(tmp_path) == ["old"]
    shutil.copy(former, tmp_path / "store.db")
    assert stored(tmp_path) == ["new", "old"]
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("backup.db", "store.db-lock")} == {0o600}


def test_a_restore_needs_a_backup(tmp_path: Path) -> None:
    """Only a database server has a tool of its own that restores the store."""
    opened(tmp_path).close()
    result = restore(tmp_path)
    assert (result.exit_code, result.stderr) == (1, "Error: name the backup: restkeeper restore FILE\n")


def test_only_the_owner_can_read_a_restored_store(tmp_path: Path, backup: Path) -> None:
    """This does not depend on the mode of the backup; no other file remains."""
    backup.chmod(0o644)
    assert restore(tmp_path, "--discard", str(backup)).exit_code == 0
    assert stat.S_IMODE((tmp_path / "store.db").stat().st_mode) == 0o600
    assert names(tmp_path) == {"store.db", "store.db-lock", "backup.db"}


def test_a_restored_store_has_another_history(tmp_path: Path, backup: Path) -> None:
    """Also a restored copy of all bytes of a closed store, in which nothing else shows that, as the former store is."""

    def epoch() -> str:
        with closing(opened(tmp_path)) as store:
            return store.epoch

    shutil.copy(tmp_path / "store.db", tmp_path / "copy.db")
    epochs = [epoch()]
    for _ in range(2):
        assert restore(tmp_path, "--discard", str(tmp_path / "copy.db")).exit_code == 0
        epochs.append(epoch())
    assert len(set(epochs)) == 3


def test_a_store_in_use_is_not_replaced(tmp_path: Path, backup: Path) -> None:
    """It is refused while one of our processes or any other program has the file open."""
    store = opened(tmp_path)
    message = restore(tmp_path, str(backup))
    assert (message.exit_code, message.stderr.count("\n")) == (1, 1)
    assert "is in use: stop the service" in message.stderr
    store.close()
    command = [sys.executable, "-c", READER, str(tmp_path / "store.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout and other.stdout.readline() == b"2\n"
        assert "another program has it open" in restore(tmp_path, str(backup)).stderr
        other.communicate(b"")
    assert stored(tmp_path) == ["new", "old"]


def execute(*statements: str) -> Callable[[Path], None]:
    def spoil(backup: Path) -> None:
        with closing(sqlite3.connect(backup, isolation_level=None)) as connection:
            for each in statements:
                connection.execute(each)

    return spoil


SPOILT: dict[str, Callable[[Path], object]] = {
    "is no SQLite file": lambda backup: backup.write_text("name,price\n"),
    "is damaged: ": lambda backup: os.truncate(backup, backup.stat().st_size // 2),
    "is no backup of this service": execute("DROP TABLE store", "DROP TABLE items"),
    "is a file of another program": lambda backup: backup.unlink() or execute("CREATE TABLE t (x)")(backup),
    "has tables made by a version before 1.0": execute("ALTER TABLE store DROP layout_4"),
    "is of a newer program (migration 99 of ": execute("PRAGMA user_version = 99", "UPDATE store SET oldest = 99"),
    "is a store in use": lambda backup: Path(f"{backup}-wal").write_bytes(b"x" * 100),
    "No such file": Path.unlink,
}


@pytest.mark.parametrize(("message", "spoil"), SPOILT.items(), ids=SPOILT)
def test_an_invalid_backup_is_refused(
    tmp_path: Path, backup: Path, spoil: Callable[[Path], None], message: str
) -> None:
    """The error is one line that names the file, and nothing has changed."""
    spoil(backup)
    before = names(tmp_path)
    result = restore(tmp_path, str(backup))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith(f"Error: {backup}") and message in result.stderr
    assert names(tmp_path) == before
    assert stored(tmp_path) == ["new", "old"]


def mounted(store: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the system list a file as a mount of its own. Returns what is right."""
    name = str(store).replace(" ", r"\040")
    (mounts := store.with_name("mounts")).write_text(f"42 27 254:0 /shop.db {name} rw,relatime - ext4 /dev/vda rw\n")
    monkeypatch.setattr("restkeeper.storage.location.MOUNTS", mounts)
    return f"mount the folder {store.parent}"


def linked(store: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a file another name. Returns what is right."""
    os.link(store, store.with_name("other name.db"))
    return "keep the name that has a file NAME-wal, or either if none has"


@pytest.mark.parametrize("give_name", [mounted, linked])
def test_a_file_with_two_names_is_refused(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, give_name: Callable[[Path, pytest.MonkeyPatch], str]
) -> None:
    """A start, an import and a restore say what is right: beside the other name nobody finds the log."""
    (folder := tmp_path / "a folder").mkdir()
    store, items = folder / "store.db", tmp_path / "products.ndjson"
    shutil.copy(tmp_path / "store.db", store)
    items.write_text('{"name": "Lamp"}\n')
    right = give_name(store, monkeypatch)
    with pytest.raises(StoreUnavailable, match=right):
        opened(folder)
    app = create_app(Config(database_url=f"sqlite:///{store}"), RESOURCES, serves=False)
    imported = app.test_cli_runner().invoke(args=["import", "products", str(items)])
    assert imported.exit_code == 1 and right in imported.stderr
    refused = restore(folder, str(backup))
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1) and right in refused.stderr


def test_a_store_cannot_be_restored_from_itself(tmp_path: Path, backup: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
    assert "is the store itself" in restore(tmp_path, str(tmp_path / "link.db")).stderr


def test_after_a_crash_the_former_log_is_not_used(tmp_path: Path, backup: Path) -> None:
    """It is not read into the restored store; it stays with the former one."""
    crash(tmp_path)
    result = restore(tmp_path, str(backup))
    assert stored(tmp_path) == ["old"]
    former = result.stdout.splitlines()[1].removeprefix("the former store is ")
    former_store = open_store(f"sqlite:///{former}", stored_collections(RESOURCES))
    assert ids(former_store) == ["crashed", "new", "old"]
    former_store.close()


def test_a_copy_over_a_crashed_store_is_detected(tmp_path: Path, backup: Path) -> None:
    """The log of the former store would damage the copy: it is not opened, and `flask restore` repairs it."""
    crash(tmp_path)
    shutil.copy(backup, tmp_path / "store.db")
    content = (tmp_path / "store.db").read_bytes()
    with pytest.raises(StoreUnavailable, match="restkeeper restore"):
        opened(tmp_path)
    assert (tmp_path / "store.db").read_bytes() == content
    assert restore(tmp_path, str(backup)).exit_code == 0
    assert stored(tmp_path) == ["old"]


def test_a_file_moved_over_a_store_in_use_is_detected(tmp_path: Path, backup: Path) -> None:
    """Readiness and writes detect it at once; the next start does not restore the former items."""
    store = opened(tmp_path)
    insert(store, "newer")
    shutil.copy(backup, tmp_path / "moved.db")
    (tmp_path / "moved.db").rename(tmp_path / "store.db")
    with pytest.raises(StoreUnavailable, match="not the one that was opened"):
        store.check()
    with pytest.raises(StoreUnavailable, match="not the one that was opened"):
        insert(store, "lost")
    store.close()
    with pytest.raises(StoreUnavailable, match="restkeeper restore"):
        opened(tmp_path)
    assert restore(tmp_path, str(backup)).exit_code == 0
    assert stored(tmp_path) == ["old"]


def test_a_backup_replaces_a_former_one(tmp_path: Path, backup: Path) -> None:
    """Also where a link names it; no other file remains. What is no backup, or the store itself, is not replaced."""
    (tmp_path / "link.db").symlink_to(backup)
    (tmp_path / "list.csv").write_text("name\n")
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/store.db"), RESOURCES, serves=False)
    run = app.test_cli_runner().invoke
    before = names(tmp_path)
    done = run(args=["backup", "--replace", f"{tmp_path}/link.db"])
    assert done.exit_code == 0 and names(tmp_path) == before | {"store.db-wal", "store.db-shm"}, done.output
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600 and (tmp_path / "link.db").is_symlink()
    for name, reason in {"list.csv": "is no SQLite file", "store.db": "is the store itself"}.items():
        refused = run(args=["backup", "--replace", f"{tmp_path}/{name}"])
        assert (refused.exit_code, refused.stderr) == (1, f"Error: {tmp_path}/{name} {reason}\n")
    app.extensions["restkeeper"].store.close()
    assert restore(tmp_path, "--discard", str(backup)).exit_code == 0 and stored(tmp_path) == ["new", "old"]


def test_a_failed_backup_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No complete or partial file remains, at any point of failure; a former backup stays."""
    store = opened(tmp_path)
    before = names(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("restkeeper.storage.sqlite.copying.forget_identity", "restkeeper.storage.sqlite.copying.os.fsync"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
            patch.setattr(name, fail)
            store.backup(tmp_path / "backup.db")
        assert names(tmp_path) == before
    store.backup(former := tmp_path / "former.db")
    content, before = former.read_bytes(), names(tmp_path)
    insert(store, "new")
    for name in ("forget_identity", "os.fsync", "Path.rename"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
            patch.setattr(f"restkeeper.storage.sqlite.copying.{name}", fail)
            store.backup(former, replace=True)
        assert (former.read_bytes(), names(tmp_path)) == (content, before)
    store.close()

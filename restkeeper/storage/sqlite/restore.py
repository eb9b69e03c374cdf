"""The restore of a backup."""

import os
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.location import Restored
from restkeeper.storage.sqlite.file import MAGIC, damage_of, log_size, sync
from restkeeper.storage.sqlite.lockfile import LockFile, give_to_owner_of, require_regular, require_unused
from restkeeper.storage.sqlite.migrations import require_writable

_CONTENT = """\
SELECT
    collection,
    count(*),
    max(updated_at)
FROM items
GROUP BY collection
ORDER BY collection"""


def restore(path: str, backup: Path, *, discard: bool = False) -> Restored:
    """See `location.Location.restore`. The copy gets a new epoch when it is opened."""
    target = Path(os.path.realpath(path))
    _require_header(backup, target)
    with closing(LockFile(str(target))) as lock, require_unused(target, lock):
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".restore", dir=target.parent)
        os.close(descriptor)
        copy = Path(name)
        try:
            shutil.copyfile(backup, copy)
            items, newest = _prepare(copy, backup)
            give_to_owner_of(copy, target if target.exists() else target.parent)
            sync(copy)
            replaced = None if discard else _put_aside(target)
            copy.rename(target)
            for name in (f"{target}-wal", f"{target}-shm"):  # until then no start uses it, see `require_own_log`
                Path(name).unlink(missing_ok=True)
            sync(target.parent)
            lock.note = ""
        finally:
            copy.unlink(missing_ok=True)
    return Restored(items, newest, replaced)


def _require_header(backup: Path, target: Path) -> None:
    """Raises StoreUnavailable for a file that cannot be a backup. It reads the first bytes only."""
    require_regular(backup)
    require_regular(target)
    with backup.open("rb") as file:
        magic = file.read(len(MAGIC))
    if target.exists() and backup.samefile(target):
        raise StoreUnavailable(f"{backup} is the store itself")
    if magic != MAGIC:
        raise StoreUnavailable(f"{backup} is no SQLite file")
    if log_size(str(backup)):
        raise StoreUnavailable(
            f"{backup} is a store in use, or one that was not closed: {backup}-wal has its last changes"
        )


def _prepare(copy: Path, backup: Path) -> tuple[dict[str, int], str | None]:
    """Check a copy and delete its epoch; return its items by collection, and the time of the newest."""
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA journal_mode = MEMORY")  # no -wal file
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if not version or not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'store'").fetchone():
                raise StoreUnavailable(f"{backup} is no backup of this service: it has no store in it")
            require_writable(connection, str(backup))
            if damage := damage_of(connection):
                raise StoreUnavailable(f"{backup} is damaged: {damage}")
            connection.execute("UPDATE store SET epoch = '', moved_to = ''")
            rows = connection.execute(_CONTENT).fetchall()
    except sqlite3.DatabaseError as error:
        raise StoreUnavailable(f"{backup} is damaged: {error}") from error
    return {name: count for name, count, _ in rows}, max((newest for *_, newest in rows), default=None)


def _put_aside(target: Path) -> Path | None:
    """Link the former store and its log to another name, so that an interruption loses nothing."""
    if not target.exists():
        return None
    replaced = target.with_name(f"{target.name}.before-restore-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    os.link(target, replaced)
    with suppress(FileNotFoundError):
        os.link(f"{target}-wal", f"{replaced}-wal")
    return replaced

"""The files of a SQLite store: who may read them, the space that they have, and the bound of the log."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from tempfile import SpooledTemporaryFile

import orjson

from restkeeper.clock import Clock
from restkeeper.storage.contract import Record

LOG_BYTES = 16 * 1024 * 1024  # of the -wal file; SQLite itself begins it anew every 4 MiB unless somebody reads
LOG_FULL = 4 * LOG_BYTES  # at each multiple of which searches end, all at once, so that the log can be begun anew
CHECKPOINT_SECONDS = 0.1  # from look to look at how long it is
PINNED_SECONDS = 60.0  # for which nobody waits for a log that stayed long: another program reads from it
SPOOL_BYTES = 1024 * 1024  # of a scan that stay in memory


def create_private(path: str) -> None:
    """Make an empty file that only its owner may read. SQLite gives -wal and -shm its mode. Raises OSError."""
    os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def free_space_beside(path: str) -> Callable[[], int]:
    """What returns the bytes that are free on the disk of a file."""
    folder = os.path.dirname(os.path.realpath(path))

    def free_space() -> int:
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize

    return free_space


class LogLimit:
    """Makes a store's log short again once it is longer than LOG_BYTES and nobody reads what is in it."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._log = f"{os.path.realpath(path)}-wal"
        self._clock = clock
        self._next = 0.0
        self._pinned_until = 0.0

    def apply(self, connection: sqlite3.Connection) -> None:
        """Shorten the log if that is due. Waits for nobody, so `connection` must have no busy time-out."""
        if (now := self._clock.monotonic()) < self._next:
            return
        self._next = now + CHECKPOINT_SECONDS
        if self.size() <= LOG_BYTES:
            return
        with suppress(sqlite3.OperationalError):  # what was committed is safe; the next commit tries again
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def wait(self, seconds: float, shorten: Callable[[], object]) -> None:
        """Wait for so long at most while the log is too long, and `shorten` it again and again."""
        end = self._clock.monotonic() + seconds
        while self.size() > LOG_BYTES and (now := self._clock.monotonic()) >= self._pinned_until:
            if now >= end:
                self._pinned_until = now + PINNED_SECONDS
            shorten()
            self._clock.sleep(CHECKPOINT_SECONDS)

    def next_end(self) -> int:
        """Bytes of the log at which a search that begins now has to end."""
        return LOG_FULL * (1 + self.size() // LOG_FULL)

    def has_reached(self, end: int) -> bool:
        """Whether a search has to end. Who comes next waits: it was searches that kept the log, or they as well."""
        if self.size() < end:
            return False
        self._pinned_until = 0.0
        return True

    def size(self) -> int:
        """Bytes of the log."""
        try:
            return os.stat(self._log).st_size
        except OSError:
            return 0


def spooled(rows: Iterable[tuple[str, int, str, str, bytes, str | None]], beside: str) -> Iterator[Record]:
    """Records, all read into a temporary file before the first is yielded: who is slow to take them holds no log.

    The file is on the disk of the file `beside`: elsewhere it may be memory.
    """
    with SpooledTemporaryFile(SPOOL_BYTES, dir=os.path.dirname(os.path.realpath(beside))) as spool:
        for id, version, updated_at, fingerprint, body, owner in rows:
            spool.write(orjson.dumps([len(body), id, version, updated_at, fingerprint, owner]) + b"\n" + body)
        spool.seek(0)
        for head in iter(spool.readline, b""):
            size, id, version, updated_at, fingerprint, owner = orjson.loads(head)
            yield Record(id, version, updated_at, fingerprint, spool.read(size), owner)


def forget_identity(path: str) -> None:
    """Let a copy get its own when it is first opened: each that is restored from it has its own future."""
    with closing(sqlite3.connect(path, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = MEMORY")  # which leaves no file behind
        copy.execute("UPDATE store SET epoch = '', secret = ''")

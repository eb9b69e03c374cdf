"""Counters that all processes of a machine share: a storage for the limits library, which has none of this kind.

They are a hash table with open addressing in a memory-mapped file. The digest of a key gives the first of its PROBES
consecutive slots. A slot is 32 bytes: the key's BLAKE2b digest (16), the count (8, unsigned), and the expiry (8, a
double, seconds since the epoch; in the past, the slot is free). The digest is keyed with random bytes from the file's
header: a caller cannot choose keys that share the slots of another. Each change holds an flock, which the system
releases when the process ends. Each number is one memory write, in an order that leaves a slot complete or free.
"""

import logging
import os
import stat
import struct
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_UN, flock
from functools import lru_cache
from hashlib import blake2b
from math import inf
from mmap import mmap
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from limits.storage import Storage

SLOTS = 65_536  # 2 MiB
PROBES = 16  # slots that a key may use: with half of all slots in use, one key in 10,000 finds none free

_MAGIC = b"restkeeper limits, layout 2\n"
_HEADER_BYTES = 64  # the magic, the number of slots, the digests' key
_KEY_BYTES = 16
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SLOT_WORDS = 4  # of 8 bytes: the digest's halves, the count, the expiry
_COUNT, _EXPIRY = 2, 3

_log = logging.getLogger("restkeeper")


def shared_path(secret: str) -> Path:
    """The file that this user's processes with this `secret` share on this machine; in memory if the system allows it.

    Every user can create files in that folder, and so could block the start of a service with a known file name. This
    name cannot be guessed, and it changes when the machine restarts.
    """
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()  # noqa: S108
    boot = _BOOT_ID.read_bytes() if _BOOT_ID.exists() else b""
    digest = blake2b(_MAGIC + boot + secret.encode(), digest_size=16).hexdigest()
    return Path(folder, f"restkeeper-limits-{os.geteuid()}-{digest}")


def uri_of(path: Path) -> str:
    """The URI with which the limits library opens the counters in a file."""
    return f"mapped://{quote(str(path))}"


class MappedStorage(Storage):
    """Counters in the file that `mapped:///PATH` names; a missing file is created.

    If all slots of a new key are in use, it replaces the key with the lowest count, and of several the one that expires
    first; each process logs this once. So callers with few requests never replace a caller with many. Raises OSError if
    the file cannot be opened or is not this user's table of `slots` slots.
    """

    STORAGE_SCHEME = ["mapped"]

    def __init__(
        self,
        uri: str,
        wrap_exceptions: bool = False,
        slots: int = SLOTS,
        now: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        super().__init__(uri, wrap_exceptions, **options)
        self._path = unquote(urlsplit(uri).path)
        self._slots = slots
        self._now = now
        self._was_full = False
        self._table: _Table | None = None
        self._lock = Lock()
        reset = weakref.WeakMethod(self._reset_in_child)
        os.register_at_fork(after_in_child=lambda: _call(reset()))

    @property
    def base_exceptions(self) -> type[Exception]:
        """The errors of a file that cannot be used."""
        return OSError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Add to a key's count and return it. It expires `expiry` seconds after its first increment."""
        while True:
            with self._lock:  # not by _locked(), which would take a third longer
                table = self._table or self._open()
                first, second = _digest(table.key, key)
                try:
                    flock(table.descriptor, LOCK_EX)
                    now = self._now()
                    words, place = table.words, table.start + first % table.homes * _SLOT_WORDS
                    if words[place] == first and words[place + 1] == second and table.times[place + _EXPIRY] > now:
                        words[place + _COUNT] = count = words[place + _COUNT] + amount
                        return count
                    if not table.is_removed():
                        return self._incr_elsewhere(table, first, second, now, now + expiry, amount)
                finally:
                    flock(table.descriptor, LOCK_UN)
                self._table = None  # other processes use a new file

    def _incr_elsewhere(self, table: "_Table", first: int, second: int, now: float, expiry: float, amount: int) -> int:
        """Increment a key that is not in the first of its slots."""
        place, known = table.find(first, second, now)
        if known:
            table.words[place + _COUNT] = count = table.words[place + _COUNT] + amount
            return count
        if table.put(place, first, second, amount, now, expiry) and not self._was_full:
            self._was_full = True
            _log.warning("the table of limits (%s slots) is full: some counters are reset", self._slots)
        return amount

    def get(self, key: str) -> int:
        """A key's count; 0 if it has none or it has expired."""
        return self._slot(key)[0]

    def get_expiry(self, key: str) -> float:
        """When a key's count expires, in seconds since the epoch; now if it has none."""
        return self._slot(key)[1]

    def clear(self, key: str) -> None:
        """Delete a key's count."""
        self._slot(key, delete=True)

    def check(self) -> bool:
        """Whether counting is possible."""
        try:
            self.get("")
        except OSError:
            return False
        return True

    def reset(self) -> int:
        """Delete all counts and return their number."""
        with self._locked() as table:
            now = self._now()
            expiries = range(table.start + _EXPIRY, len(table.times), _SLOT_WORDS)
            live = [place for place in expiries if table.times[place] > now]
            for place in live:
                table.times[place] = 0.0
            return len(live)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            self._table = None

    def _slot(self, key: str, *, delete: bool = False) -> tuple[int, float]:
        with self._locked() as table:
            first, second = _digest(table.key, key)
            now = self._now()
            place, known = table.find(first, second, now)
            if not known:
                return 0, now
            found = table.words[place + _COUNT], table.times[place + _EXPIRY]
            if delete:
                table.times[place + _EXPIRY] = 0.0
            return found

    @contextmanager
    def _locked(self) -> Iterator["_Table"]:
        with self._lock:
            table = self._table or self._open()
            try:  # includes the locking, so that an interruption leaves no lock
                flock(table.descriptor, LOCK_EX)
                yield table
            finally:
                flock(table.descriptor, LOCK_UN)

    def _open(self) -> "_Table":
        table = self._table = _Table(self._path, self._slots)
        return table

    def _reset_in_child(self) -> None:
        """In a forked child: a file that the parent opened shares the parent's flock, so it is opened again."""
        self._lock = Lock()
        self._table = None


@lru_cache(maxsize=4096)  # a window has many requests of each caller
def _digest(table_key: bytes, key: str) -> tuple[int, int]:
    """The two halves of a key's digest."""
    first, second = struct.unpack("QQ", blake2b(key.encode(), digest_size=16, key=table_key).digest())
    return first, second


def _call(method: Callable[[], None] | None) -> None:
    if method:
        method()


class _Table:
    """The file, opened and mapped until the last reference is gone. The caller of a method holds the lock."""

    start = _HEADER_BYTES // 8
    _is_open = False

    def __init__(self, path: str, slots: int) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            flock(self.descriptor, LOCK_EX)
            size = _HEADER_BYTES + slots * _SLOT_WORDS * 8
            self.key = _prepare(self.descriptor, path, size, _MAGIC + struct.pack("Q", slots))
            mapped = mmap(self.descriptor, size)
            flock(self.descriptor, LOCK_UN)
        except BaseException:
            os.close(self.descriptor)
            raise
        self._is_open = True
        self.words = memoryview(mapped).cast("Q")
        self.times = memoryview(mapped).cast("d")
        self.homes = slots - PROBES + 1

    def find(self, first: int, second: int, now: float) -> tuple[int, bool]:
        """The slot of a key, and whether the key is in it; if not, a free slot, or else that of the lowest count."""
        words, times = self.words, self.times
        home = self.start + first % self.homes * _SLOT_WORDS
        best, least = home, (inf, inf)
        for place in range(home, home + PROBES * _SLOT_WORDS, _SLOT_WORDS):
            expiry = times[place + _EXPIRY]
            is_live = expiry > now
            if is_live and words[place] == first and words[place + 1] == second:
                return place, True
            if (rank := (words[place + _COUNT], expiry) if is_live else (-1, 0)) < least:
                best, least = place, rank
        return best, False

    def put(self, place: int, first: int, second: int, count: int, now: float, expiry: float) -> bool:
        """Write a slot; returns whether it was in use. A process that ends meanwhile leaves the slot free."""
        words, times = self.words, self.times
        replaced = times[place + _EXPIRY] > now
        times[place + _EXPIRY] = 0.0
        words[place], words[place + 1], words[place + _COUNT] = first, second, count
        times[place + _EXPIRY] = expiry
        return replaced

    def is_removed(self) -> bool:
        """Whether the file was deleted, so that no other process can open it."""
        return os.fstat(self.descriptor).st_nlink == 0

    def __del__(self) -> None:
        if self._is_open:
            os.close(self.descriptor)


def _prepare(descriptor: int, path: str, size: int, header: bytes) -> bytes:
    """Initialize a new file, or check the header of another; returns the table's key. The caller holds the lock."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077 or found.st_nlink > 1:
        raise OSError(f"{path}: must be a regular file of this user that no other user can open; delete it")
    begin = os.pread(descriptor, len(header), 0)
    if not any(begin) and found.st_size <= size:  # new, or from a process that ended here
        os.posix_fallocate(descriptor, 0, size)  # on a full disk, writing to mapped memory would end the process
        os.pwrite(descriptor, os.urandom(_KEY_BYTES), len(header))
        os.pwrite(descriptor, header, 0)  # last: it marks the file as complete
    elif begin != header or found.st_size != size:
        raise OSError(f"{path}: is not a table of counters of this version; delete it")
    return os.pread(descriptor, _KEY_BYTES, len(header))

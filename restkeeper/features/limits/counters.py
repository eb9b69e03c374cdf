"""Counters: a storage for the limits library that all processes of a server share, which it lacks, and Redis.

The table is a hash table with open addressing. The digest of a key gives the first of its PROBES consecutive slots. A
slot is 32 bytes: the key's BLAKE2b digest (16), the count (8, unsigned), and the expiry (8, a double, seconds since the
epoch; in the past, the slot is free). The digest is keyed with random bytes: a caller cannot choose keys that share the
slots of another. Each number is one memory write, in an order that leaves a slot complete or free.

Flask-Limiter opens the storages. Its own request hooks would cost 80 µs, and two to four round trips with Redis.
"""

import logging
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from math import inf
from mmap import mmap
from typing import Any, cast

from flask import Flask, request
from flask_limiter import Limiter
from limits.storage import Storage

from restkeeper.clock import Clock
from restkeeper.web.auth import caller_keys

SLOTS = 65_536  # 2 MiB
PROBES = 16  # slots that a key may use: with half of all slots in use, one key in 10,000 finds none free
RETRY_SECONDS = 5.0  # seconds until the next attempt after Redis has failed
REDIS_SECONDS = 0.25  # the longest that a request waits for Redis

_SLOT_WORDS = 4  # of 8 bytes: the digest's halves, the count, the expiry
_COUNT, _EXPIRY = 2, 3

# No retries: this server's own counters are the fallback. None means that, and needs no import of the client, which
# takes a seventh of a start: only a service that has Redis imports it. Enough connections for all requests that wait.
_REDIS_OPTIONS = {
    "socket_timeout": REDIS_SECONDS,
    "socket_connect_timeout": REDIS_SECONDS,
    "retry": None,
    "max_connections": 10_000,
}

_log = logging.getLogger("restkeeper")


class CounterTable:
    """The table of one process; see `shared.SharedTable`. `locked` has its lock."""

    def __init__(self, slots: int = SLOTS) -> None:
        memory = mmap(-1, slots * _SLOT_WORDS * 8)
        self.slots = slots
        self.words = memoryview(memory).cast("Q")
        self.times = memoryview(memory).cast("d")
        self._homes = slots - PROBES + 1
        self._key = os.urandom(16)
        self._threads = threading.Lock()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Have the lock of all threads."""
        with self._threads:
            yield

    def find(self, key: str, now: float) -> tuple[int, bool]:
        """The slot of a key, and whether the key is in it; if not, a free slot, or else that of the lowest count.

        Of several lowest counts it is the one that expires first: callers with few requests never replace a caller with
        many.
        """
        words, times = self.words, self.times
        high, low = _digest(self._key, key)
        home = high % self._homes * _SLOT_WORDS
        best, least = home, (inf, inf)
        for slot in range(home, home + PROBES * _SLOT_WORDS, _SLOT_WORDS):
            expiry = times[slot + _EXPIRY]
            is_live = expiry > now
            if is_live and words[slot] == high and words[slot + 1] == low:
                return slot, True
            if (rank := (words[slot + _COUNT], expiry) if is_live else (-1, 0)) < least:
                best, least = slot, rank
        return best, False

    def put(self, slot: int, key: str, count: int, expiry: float) -> None:
        """Write a slot. A process that ends meanwhile leaves it free."""
        words, times = self.words, self.times
        times[slot + _EXPIRY] = 0.0
        words[slot], words[slot + 1] = _digest(self._key, key)
        words[slot + _COUNT] = count
        times[slot + _EXPIRY] = expiry


@lru_cache(maxsize=4096)  # a window has many requests of each caller
def _digest(table_key: bytes, key: str) -> tuple[int, int]:
    """The two halves of a key's digest."""
    return cast(tuple[int, int], struct.unpack("QQ", blake2b(key.encode(), digest_size=16, key=table_key).digest()))


class SharedStorage(Storage):
    """Counters in a table. If all slots of a new key are in use, it replaces the key with the lowest count."""

    STORAGE_SCHEME = ["shared"]

    def __init__(
        self, *arguments: Any, table: CounterTable, now: Callable[[], float] = time.time, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._table = table
        self._now = now
        self._was_full = False  # a process logs it once

    @property
    def base_exceptions(self) -> type[Exception]:
        """The errors of the lock."""
        return OSError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Add to a key's count and return it. It expires `expiry` seconds after its first increment."""
        table = self._table
        with table.locked():
            now = self._now()
            slot, is_known = table.find(key, now)
            if is_known:
                table.words[slot + _COUNT] = count = table.words[slot + _COUNT] + amount
                return count
            is_full = table.times[slot + _EXPIRY] > now
            table.put(slot, key, amount, now + expiry)
        if is_full and not self._was_full:
            self._was_full = True
            _log.warning("the table of limits (%s slots) is full: some counters are reset", table.slots)
        return amount

    def get(self, key: str) -> int:
        """A key's count; 0 if it has none or it has expired."""
        with self._table.locked():
            slot, is_known = self._table.find(key, self._now())
            return self._table.words[slot + _COUNT] if is_known else 0

    def get_expiry(self, key: str) -> float:
        """When a key's count expires, in seconds since the epoch; now if it has none."""
        with self._table.locked():
            now = self._now()
            slot, is_known = self._table.find(key, now)
            return self._table.times[slot + _EXPIRY] if is_known else now

    def clear(self, key: str) -> None:
        """Delete a key's count."""
        with self._table.locked():
            slot, is_known = self._table.find(key, self._now())
            if is_known:
                self._table.times[slot + _EXPIRY] = 0.0

    def check(self) -> bool:
        """Whether counting is possible."""
        return True

    def reset(self) -> None:
        """Delete all counts."""
        with self._table.locked():
            for slot in range(_EXPIRY, len(self._table.times), _SLOT_WORDS):
                self._table.times[slot] = 0.0


def open_counters(
    app: Flask, table: CounterTable | None, redis_url: str = "", *, clock: Clock = time, slots: int = SLOTS
) -> "Storage | RedisOrOwn":
    """The counters of `app`: shared by all processes that have inherited `table`; without one, of this process.

    With `redis_url` all machines that use that Redis share counters, while it responds.
    """
    local = _storage(app, "shared://", table=table or CounterTable(slots), now=clock.time)
    return RedisOrOwn(_storage(app, redis_url, **_REDIS_OPTIONS), local, clock.monotonic) if redis_url else local


def _storage(app: Flask, uri: str, **options: Any) -> Storage:
    """A storage that Flask-Limiter opens. Its request hooks are not installed: it assumes that `app` has them."""
    limiter = Limiter(
        lambda: caller_keys(request.environ)[0], storage_uri=uri, storage_options=options, strategy="fixed-window"
    )
    app.extensions.setdefault("limiter", set()).add(limiter)
    limiter.init_app(app)
    return limiter.storage


class RedisOrOwn:
    """Counters in Redis, and in this server's own storage while Redis does not respond."""

    def __init__(self, redis: Storage, local: Storage, clock: Callable[[], float]) -> None:
        self._redis = redis
        self._own = local
        self._clock = clock
        self._has_failed = False
        self._retry_at = 0.0

    def incr(self, key: str, expiry: int) -> int:
        """Add one to a key's count and return it. It expires `expiry` seconds after its first increment."""
        return self._count(lambda storage: storage.incr(key, expiry))

    def get(self, key: str) -> int:
        """A key's count; 0 if it has none."""
        return self._count(lambda storage: storage.get(key))

    def _count(self, operation: Callable[[Storage], int]) -> int:
        if self._has_failed:
            if self._clock() < self._retry_at:
                return operation(self._own)
            self._retry_at = self._clock() + RETRY_SECONDS  # one request tries; the others do not wait for it
        try:
            count = operation(self._redis)
        except self._redis.base_exceptions as error:
            self._retry_at = self._clock() + RETRY_SECONDS
            if not self._has_failed:
                self._has_failed = True
                _log.warning("Redis does not respond (%s): until it does, each machine counts for itself", error)
            return operation(self._own)
        if self._has_failed:
            self._has_failed = False
            _log.warning("Redis responds again: limits are counted there")
        return count


Counters = Storage | RedisOrOwn

"""Counters for limits, in windows aligned to the clock: on this machine, or in Redis for several machines.

The window is part of a counter's key. So one increment is the whole check, the end of a window is not stored, and a
counter never includes requests of the next window. Flask-Limiter opens the storages. Its own request hooks would cost
80 µs, and two to four round trips with Redis.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from flask import Flask, request
from flask_limiter import Limiter
from limits import parse
from limits.storage import Storage

from restkeeper.clock import Clock
from restkeeper.errors import TooManyRequests, Unavailable
from restkeeper.features.limits.mapped import uri_of
from restkeeper.web.caller import caller_keys

CLOCKS_DIFFER = 5  # seconds by which the clocks of machines that share Redis may differ: no counter expires too early
RETRY_SECONDS = 5.0  # seconds until the next attempt after Redis has failed
REDIS_SECONDS = 0.25  # the longest that a request waits for Redis
SITE_QUOTAS = 16  # a site's quota, in quotas of one of its networks

# No retries: this machine's own counters are the fallback. None means that, and needs no import of the client, which
# takes a seventh of a start: only a service that has Redis imports it. Enough connections for all requests that wait.
_REDIS_OPTIONS = {
    "socket_timeout": REDIS_SECONDS,
    "socket_connect_timeout": REDIS_SECONDS,
    "retry": None,
    "max_connections": 10_000,
}

_log = logging.getLogger("restkeeper")


class Counters(Protocol):
    """Counts by key, each with an expiry."""

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Add to a key's count and return it. It expires `expiry` seconds after its first increment."""

    def get(self, key: str) -> int:
        """A key's count; 0 if it has none."""


def open_counters(app: Flask, shared: Path | None = None, redis_url: str = "", *, clock: Clock = time) -> Counters:
    """The counters of `app`: shared by all processes that open the file `shared`; with None, this process's own.

    With `redis_url` all machines that use that Redis share counters, while it responds.
    Raises Unavailable when `shared` cannot be used.
    """
    own = _storage(app, uri_of(shared), now=clock.time) if shared else _storage(app, "memory://")
    try:
        own.get("")  # opens it
    except OSError as error:
        raise Unavailable(f"requests cannot be counted: {error}") from None
    return RedisOrOwn(_storage(app, redis_url, **_REDIS_OPTIONS), own, clock.monotonic) if redis_url else own


def _storage(app: Flask, uri: str, **options: Any) -> Storage:
    """A storage that Flask-Limiter opens. Its request hooks are not installed: it assumes that `app` has them."""
    limiter = Limiter(
        lambda: caller_keys(request.environ)[0], storage_uri=uri, storage_options=options, strategy="fixed-window"
    )
    app.extensions.setdefault("limiter", set()).add(limiter)
    limiter.init_app(app)
    return limiter.storage


class RedisOrOwn:
    """Counters in Redis, and in this machine's own storage while Redis does not respond."""

    def __init__(self, redis: Storage, own: Storage, clock: Callable[[], float]) -> None:
        self._redis = redis
        self._own = own
        self._clock = clock
        self._has_failed = False
        self._retry_at = 0.0

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """See `Counters`."""
        return self._count(lambda storage: storage.incr(key, expiry, amount))

    def get(self, key: str) -> int:
        """See `Counters`."""
        return self._count(lambda storage: storage.get(key))

    def _count(self, operation: Callable[[Storage], int]) -> int:
        if self._has_failed:
            moment = self._clock()
            if moment < self._retry_at:
                return operation(self._own)
            self._retry_at = moment + RETRY_SECONDS  # one request tries; the others do not wait for it
        try:
            count = operation(self._redis)
        except self._redis.base_exceptions as error:
            self._note_failure(error)
            return operation(self._own)
        if self._has_failed:
            self._has_failed = False
            _log.warning("Redis responds again: limits are counted there")
        return count

    def _note_failure(self, error: Exception) -> None:
        self._retry_at = self._clock() + RETRY_SECONDS
        if not self._has_failed:
            self._has_failed = True
            _log.warning("Redis does not respond (%s): until it does, each machine counts for itself", error)


# The use of a quota: the quota, the count, seconds until the next window (rounded up), and when that begins.
Use = tuple["Quota", int, int, int]


def remaining(use: Use) -> int:
    """The unused part of the quota."""
    quota, used, _, _ = use
    return quota.amount - used if used < quota.amount else 0


def refusal(use: Use, what: str) -> TooManyRequests:
    """The problem to raise when a quota is exceeded; `what` is the counted thing, in the plural."""
    quota, _, wait, _ = use
    return TooManyRequests(
        f"at most {quota.amount} {what} in {quota.seconds} s; retry in {wait} s",
        headers={"Retry-After": str(wait)},
        **{"violated-policies": [quota.name]},
    )


class Quota:
    """The limit of each caller in a window. `text` has the syntax of `limits.parse`; the default `unit` is requests.

    A caller has a counter by its first key. By a second key its whole site has one, with a quota SITE_QUOTAS times as
    large. `now` is the time of day in seconds since the epoch.
    """

    def __init__(
        self, name: str, text: str, counters: Counters, *, unit: str = "", now: Callable[[], float] = time.time
    ) -> None:
        item = parse(text)
        self.name = name
        self.amount = item.amount
        self.seconds = item.get_expiry()
        self.limit = str(item.amount)
        self.policy = f'"{name}";q={self.amount};' + (f'qu="{unit}";' if unit else "") + f"w={self.seconds}"
        self._prefix = f"{name}/{self.seconds}/"
        self._counters = counters
        self._now = now
        self._present = "", 0  # the prefix of keys in the current window, and its end

    def add(self, keys: tuple[str, ...], amount: int = 1) -> Use:
        """Add to the counters of a caller. A site over its quota needs no counters for its networks."""
        window, wait, reset = self._window()
        expiry = wait + CLOCKS_DIFFER
        spread = 0
        if len(keys) > 1:
            spread = self._counters.incr(f"{window}{keys[1]}", expiry, amount) - (SITE_QUOTAS - 1) * self.amount
            if spread > self.amount:
                return self, spread, wait, reset
        used = self._counters.incr(f"{window}{keys[0]}", expiry, amount)
        return self, used if used > spread else spread, wait, reset

    def look(self, keys: tuple[str, ...]) -> Use:
        """The use by a caller, without adding to it."""
        window, wait, reset = self._window()
        used = self._counters.get(f"{window}{keys[0]}")
        if len(keys) > 1:
            used = max(used, self._counters.get(f"{window}{keys[1]}") - (SITE_QUOTAS - 1) * self.amount)
        return self, used, wait, reset

    def _window(self) -> tuple[str, int, int]:
        """The prefix of its counters' keys now, seconds until the next window, and when that begins."""
        moment = int(self._now())
        window, reset = self._present
        if not reset - self.seconds <= moment < reset:
            number = moment // self.seconds
            reset = (number + 1) * self.seconds
            window = f"{self._prefix}{number}/"
            self._present = window, reset
        return window, reset - moment, reset

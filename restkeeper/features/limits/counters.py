"""Counters for limits, in windows aligned to the clock: of this server's processes, or in Redis for several machines.

The window is part of a counter's key. So one increment is the whole check, the end of a window is not stored, and a
counter never includes requests of the next window. Flask-Limiter opens the storages. Its own request hooks would cost
80 µs, and two to four round trips with Redis.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from flask import Flask, request
from flask_limiter import Limiter
from limits import parse
from limits.storage import Storage

from restkeeper.clock import Clock
from restkeeper.errors import TooManyRequests
from restkeeper.features.limits.shared import CounterTable
from restkeeper.web.auth import caller_keys

CLOCKS_DIFFER = 5  # seconds by which the clocks of machines that share Redis may differ: no counter expires too early
RETRY_SECONDS = 5.0  # seconds until the next attempt after Redis has failed
REDIS_SECONDS = 0.25  # the longest that a request waits for Redis
SITE_QUOTAS = 16  # a site's quota, in quotas of one of its networks

# No retries: this server's own counters are the fallback. None means that, and needs no import of the client, which
# takes a seventh of a start: only a service that has Redis imports it. Enough connections for all requests that wait.
_REDIS_OPTIONS = {
    "socket_timeout": REDIS_SECONDS,
    "socket_connect_timeout": REDIS_SECONDS,
    "retry": None,
    "max_connections": 10_000,
}

_log = logging.getLogger("restkeeper")


def open_counters(
    app: Flask, table: CounterTable, redis_url: str = "", *, clock: Clock = time
) -> "Storage | RedisOrOwn":
    """The counters of `app`: shared by all processes that have inherited `table`.

    With `redis_url` all machines that use that Redis share counters, while it responds.
    """
    own = _storage(app, "shared://", table=table, now=clock.time)
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
    """Counters in Redis, and in this server's own storage while Redis does not respond."""

    def __init__(self, redis: Storage, own: Storage, clock: Callable[[], float]) -> None:
        self._redis = redis
        self._own = own
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


class Use(NamedTuple):
    """The use of a quota: the count, the seconds until the next window, and when that begins."""

    quota: "Quota"
    used: int
    wait: int
    reset: int

    @property
    def remaining(self) -> int:
        """The unused part of the quota."""
        return max(self.quota.amount - self.used, 0)

    def refusal(self, what: str) -> TooManyRequests:
        """The problem to raise when the quota is exceeded; `what` is the counted thing, in the plural."""
        return TooManyRequests(
            f"at most {self.quota.amount} {what} in {self.quota.seconds} s; retry in {self.wait} s",
            headers={"Retry-After": str(self.wait)},
            **{"violated-policies": [self.quota.name]},
        )


class Quota:
    """The limit of each caller in a window. `text` has the syntax of `limits.parse`.

    A caller has a counter by its first key. By a second key its whole site has one, with a quota SITE_QUOTAS times as
    large. `now` is the time of day in seconds since the epoch.
    """

    def __init__(self, name: str, text: str, counters: Counters, *, now: Callable[[], float] = time.time) -> None:
        item = parse(text)
        self.name = name
        self.amount = item.amount
        self.seconds = item.get_expiry()
        self.limit = str(item.amount)
        self.policy = f'"{name}";q={self.amount};w={self.seconds}'
        self._counters = counters
        self._now = now

    def add(self, keys: tuple[str, ...]) -> Use:
        """Add one to the counters of a caller."""
        return self._use(keys, self._counters.incr)

    def look(self, keys: tuple[str, ...]) -> Use:
        """The use by a caller, without adding to it."""
        return self._use(keys, lambda key, expiry: self._counters.get(key))

    def _use(self, keys: tuple[str, ...], count: Callable[[str, int], int]) -> Use:
        """The use by a caller or its site, whichever is nearer to its end.

        A site over its quota needs no counters for its networks.
        """
        moment = int(self._now())
        window = moment // self.seconds
        reset = (window + 1) * self.seconds
        wait = reset - moment
        spread = 0
        if len(keys) > 1:
            of_site = count(f"{self.name}/{self.seconds}/{window}/{keys[1]}", wait + CLOCKS_DIFFER)
            spread = of_site - (SITE_QUOTAS - 1) * self.amount
            if spread > self.amount:
                return Use(self, spread, wait, reset)
        used = count(f"{self.name}/{self.seconds}/{window}/{keys[0]}", wait + CLOCKS_DIFFER)
        return Use(self, max(used, spread), wait, reset)

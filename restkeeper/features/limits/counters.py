"""Counters of what callers do, in windows aligned to the clock: on this machine, or in Redis for several machines.

The window is part of a counter's key. So one increment is the whole check, nothing need be stored of when a window
ends, and a counter never holds what belongs to the next one. Flask-Limiter opens the storages; its own way through a
request would cost 80 µs, and two to four round trips with Redis.
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
from redis.backoff import NoBackoff
from redis.retry import Retry

from restkeeper.clock import Clock
from restkeeper.errors import TooManyRequests, Unavailable
from restkeeper.features.limits.mapped import uri_of
from restkeeper.web.caller import caller_keys

CLOCKS_DIFFER = 5  # seconds by which machines that share Redis may disagree, so that no counter goes too early
ASK_AGAIN = 5.0  # seconds until Redis, being gone, is asked again
REDIS_SECONDS = 0.25  # that a request waits for Redis at most
SITE_QUOTAS = 16  # quotas of a network that all networks of its site have together

# No retries: limits of this machine's own are at hand. As many connections as requests can wait for Redis at once.
_REDIS_OPTIONS = {
    "socket_timeout": REDIS_SECONDS,
    "socket_connect_timeout": REDIS_SECONDS,
    "retry": Retry(NoBackoff(), 0),
    "max_connections": 10_000,
}

_log = logging.getLogger("restkeeper")


class Counters(Protocol):
    """Numbers by key, each of which expires."""

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Add to a key's number, which expires so many seconds after it began; the sum."""

    def get(self, key: str) -> int:
        """A key's number, 0 where there is none."""


def open_counters(app: Flask, shared: Path | None = None, redis_url: str = "", *, clock: Clock = time) -> Counters:
    """The counters of `app`: those of all processes that open the file `shared`; with None, this process's own.

    With `redis_url` all that use that Redis count together, as long as it can be asked.
    Raises Unavailable when `shared` cannot be used.
    """
    own = _storage(app, uri_of(shared), now=clock.time) if shared else _storage(app, "memory://")
    try:
        own.get("")  # opens it
    except OSError as error:
        raise Unavailable(f"requests cannot be counted: {error}") from None
    return RedisOrOwn(_storage(app, redis_url, **_REDIS_OPTIONS), own, clock.monotonic) if redis_url else own


def _storage(app: Flask, uri: str, **options: Any) -> Storage:
    """A storage that Flask-Limiter owns, in an app that Flask-Limiter takes to have its hooks already."""
    limiter = Limiter(
        lambda: caller_keys(request.environ)[0], storage_uri=uri, storage_options=options, strategy="fixed-window"
    )
    app.extensions.setdefault("limiter", set()).add(limiter)
    limiter.init_app(app)
    return limiter.storage


class RedisOrOwn:
    """Counts in Redis, and in this machine's own storage while Redis cannot be asked."""

    def __init__(self, redis: Storage, own: Storage, clock: Callable[[], float]) -> None:
        self._redis = redis
        self._own = own
        self._clock = clock
        self._is_gone = False
        self._ask_at = 0.0

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """See `Counters`."""
        return self._ask(lambda storage: storage.incr(key, expiry, amount))

    def get(self, key: str) -> int:
        """See `Counters`."""
        return self._ask(lambda storage: storage.get(key))

    def _ask(self, question: Callable[[Storage], int]) -> int:
        if self._is_gone:
            moment = self._clock()
            if moment < self._ask_at:
                return question(self._own)
            self._ask_at = moment + ASK_AGAIN  # one request finds out; the others need not wait with it
        try:
            count = question(self._redis)
        except self._redis.base_exceptions as error:
            self._lose(error)
            return question(self._own)
        if self._is_gone:
            self._is_gone = False
            _log.warning("Redis is back: limits are counted there again")
        return count

    def _lose(self, error: Exception) -> None:
        self._ask_at = self._clock() + ASK_AGAIN
        if not self._is_gone:
            self._is_gone = True
            _log.warning("Redis cannot be asked (%s): limits are this machine's own until it can", error)


# How much of a quota is used: it, the sum, seconds until the next window (rounded up), and when that begins.
Use = tuple["Quota", int, int, int]


def remaining(use: Use) -> int:
    """What is left."""
    quota, used, _, _ = use
    return quota.amount - used if used < quota.amount else 0


def refusal(use: Use, what: str) -> TooManyRequests:
    """The problem to raise beyond a quota, which is one of `what`."""
    quota, _, wait, _ = use
    return TooManyRequests(
        f"at most {quota.amount} {what} in {quota.seconds} s; go on in {wait} s",
        headers={"Retry-After": str(wait)},
        **{"violated-policies": [quota.name]},
    )


class Quota:
    """How much each caller may do in a window, given as `limits.parse` reads it; `unit` is another than requests.

    A caller is counted by its first key, and by a second one for its whole site, which has SITE_QUOTAS times as much.
    `now` is the time of day in seconds since the epoch.
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
        self._present = "", 0  # what keys begin with in the present window, and when that ends

    def add(self, keys: tuple[str, ...], amount: int = 1) -> Use:
        """Count for a caller with these keys. A site that is over its quota needs no counters for its networks."""
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
        """As `add`, with nothing to count."""
        window, wait, reset = self._window()
        used = self._counters.get(f"{window}{keys[0]}")
        if len(keys) > 1:
            used = max(used, self._counters.get(f"{window}{keys[1]}") - (SITE_QUOTAS - 1) * self.amount)
        return self, used, wait, reset

    def _window(self) -> tuple[str, int, int]:
        """What its counters' keys begin with now, seconds until the next window, and when that begins."""
        moment = int(self._now())
        window, reset = self._present
        if not reset - self.seconds <= moment < reset:
            number = moment // self.seconds
            reset = (number + 1) * self.seconds
            window = f"{self._prefix}{number}/"
            self._present = window, reset
        return window, reset - moment, reset

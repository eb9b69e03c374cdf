"""Rate limits: how often a caller may ask, in windows aligned to the clock, told in the headers of every answer.

The window is part of a counter's key. So one increment is the whole check, nothing need be kept of when a window ends,
and a counter never holds what belongs to the next one. Flask-Limiter opens the storages; its own way through a request
would cost 80 µs, and two to four round trips with Redis.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any, NamedTuple

from flask import Flask, Request, Response, request
from flask_limiter import Limiter
from limits import parse
from limits.storage import Storage
from redis.backoff import NoBackoff
from redis.retry import Retry

from errors import TooManyRequests, Unavailable
from web.application import Application
from web.caller import ANONYMOUS, caller_in
from web.mapped import uri_of

READING = ("GET", "HEAD", "OPTIONS")
CLOCKS_DIFFER = 5  # seconds by which machines that share Redis may disagree, so that no counter goes too early
ASK_AGAIN = 5.0  # seconds until Redis, being gone, is asked again
REDIS_SECONDS = 0.25  # that a request waits for Redis at most

# No retries: limits of this machine's own are at hand. As many connections as requests can wait for Redis at once.
_REDIS_OPTIONS = {
    "socket_timeout": REDIS_SECONDS,
    "socket_connect_timeout": REDIS_SECONDS,
    "retry": Retry(NoBackoff(), 0),
    "max_connections": 10_000,
}

Environ = dict[str, Any]  # WSGI's

_COUNTED = "restkeeper.limit"  # key in the WSGI environment
_log = logging.getLogger("restkeeper")


class _Quota(NamedTuple):
    """What a class of requests has."""

    name: str
    amount: int  # requests
    seconds: int  # of a window
    key: str  # what the keys of its counters begin with
    limit: str  # the amount as a header's value


# Where a request stands: its quota, how much is used, seconds until the next window (rounded up), when that begins.
_Counted = tuple[_Quota, int, int, int]


def caller_or_address(environ: Environ) -> str:
    """The caller by id; who shows nothing, or nothing valid, by `address`."""
    who = caller_in(environ)
    return address(environ) if who.id == ANONYMOUS else who.id


def address(environ: Environ) -> str:
    """The caller by address; one of IPv6 by its /64, the least that a site is given (RFC 6177)."""
    remote: str = environ.get("REMOTE_ADDR") or "unknown"
    return _network(remote) if ":" in remote else remote


@lru_cache(maxsize=4096)
def _network(remote: str) -> str:
    try:
        parsed = ip_address(remote)
    except ValueError:
        return remote
    if not isinstance(parsed, IPv6Address):
        return remote
    return str(parsed.ipv4_mapped or f"{IPv6Address(int(parsed) >> 64 << 64)}/64")


def install(
    app: Application,
    quotas: Mapping[str, str],
    *,
    shared: Path | None,
    redis_url: str = "",
    exempt: Collection[str] = (),
    identify: Callable[[Environ], str] = caller_or_address,
    now: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Limit how often each caller may ask `app`, and say so in every answer (draft-ietf-httpapi-ratelimit-headers-11).

    `quotas` gives the quota, as `limits.parse` reads it, of the classes "read" (GET, HEAD, OPTIONS) and "write" (all
    else); a class that it leaves out is free. The processes of this machine count together in the file `shared`; with
    None, each for itself. With `redis_url` all that use that Redis count together, as long as it can be asked.
    `exempt` names endpoints that are neither counted nor marked, `identify` the caller in a WSGI environment.
    `now` is the time of day in seconds since the epoch, `clock` one that never goes back.

    Requests beyond a quota raise TooManyRequests. Raises Unavailable when `shared` cannot be used.
    """
    if not quotas:
        return
    classes = {name: _quota(name, text) for name, text in quotas.items()}
    reading, writing = classes.get("read"), classes.get("write")
    policy = ", ".join(f'"{each.name}";q={each.amount};w={each.seconds}' for each in classes.values())
    incr = _incr(app, identify, shared, redis_url, clock)

    def count(asked: Request, caller: Callable[[Environ], str]) -> _Counted | None:
        quota = reading if asked.method in READING else writing
        if quota is None:
            return None
        moment = int(now())
        window = moment // quota.seconds
        reset = (window + 1) * quota.seconds
        wait = reset - moment
        used = incr(f"{quota.key}{window}/{caller(asked.environ)}", wait + CLOCKS_DIFFER)
        return quota, used, wait, reset

    def require_quota(asked: Request) -> None:
        if asked.endpoint in exempt:
            return
        counted = asked.environ[_COUNTED] = count(asked, identify)
        if counted and counted[1] > counted[0].amount:
            raise _refusal(counted)

    def tell(asked: Request, response: Response) -> None:
        if asked.endpoint in exempt:
            return
        try:
            counted = asked.environ[_COUNTED]
        except KeyError:  # refused before it was known who asks
            counted = count(asked, address)
        add = response.headers.add
        add("RateLimit-Policy", policy)
        if counted:
            quota, used, wait, reset = counted
            remaining = quota.amount - used if used < quota.amount else 0
            add("RateLimit", f'"{quota.name}";r={remaining};t={wait}')
            # What clients read that do not know the draft: as GitHub sends them, the reset in seconds since the epoch.
            add("X-RateLimit-Limit", quota.limit)
            add("X-RateLimit-Remaining", str(remaining))
            add("X-RateLimit-Reset", str(reset))

    app.before.append(require_quota)
    app.after.append(tell)


def _quota(name: str, text: str) -> _Quota:
    item = parse(text)
    seconds = item.get_expiry()
    return _Quota(name, item.amount, seconds, f"{name}/{seconds}/", str(item.amount))


def _refusal(counted: _Counted) -> TooManyRequests:
    quota, _, wait, _ = counted
    return TooManyRequests(
        f"at most {quota.amount} {quota.name} requests in {quota.seconds} s; go on in {wait} s",
        headers={"Retry-After": str(wait)},
        **{"violated-policies": [quota.name]},
    )


def _incr(
    app: Flask, identify: Callable[[Environ], str], shared: Path | None, redis_url: str, clock: Callable[[], float]
) -> Callable[[str, int], int]:
    """What counts: adds one to a key that expires in so many seconds, and returns its count."""
    own = _storage(app, identify, uri_of(shared) if shared else "memory://")
    try:
        own.get("")  # opens it
    except OSError as error:
        raise Unavailable(f"requests cannot be counted: {error}") from None
    if redis_url:
        return _Shared(_storage(app, identify, redis_url, **_REDIS_OPTIONS), own, clock).incr
    return own.incr


def _storage(app: Flask, identify: Callable[[Environ], str], uri: str, **options: Any) -> Storage:
    """A storage that Flask-Limiter owns, in an app that Flask-Limiter takes to have its hooks already."""
    limiter = Limiter(
        lambda: identify(request.environ), storage_uri=uri, storage_options=options, strategy="fixed-window"
    )
    app.extensions.setdefault("limiter", set()).add(limiter)
    limiter.init_app(app)
    return limiter.storage


class _Shared:
    """Counts in Redis, and in this machine's own storage while Redis cannot be asked."""

    def __init__(self, redis: Storage, own: Storage, clock: Callable[[], float]) -> None:
        self._redis = redis
        self._own = own
        self._clock = clock
        self._is_gone = False
        self._ask_at = 0.0

    def incr(self, key: str, expiry: int) -> int:
        if self._is_gone:
            moment = self._clock()
            if moment < self._ask_at:
                return self._own.incr(key, expiry)
            self._ask_at = moment + ASK_AGAIN  # one request finds out; the others need not wait with it
        try:
            count = self._redis.incr(key, expiry)
        except self._redis.base_exceptions as error:
            self._lose(error)
            return self._own.incr(key, expiry)
        if self._is_gone:
            self._is_gone = False
            _log.warning("Redis is back: limits are counted there again")
        return count

    def _lose(self, error: Exception) -> None:
        self._ask_at = self._clock() + ASK_AGAIN
        if not self._is_gone:
            self._is_gone = True
            _log.warning("Redis cannot be asked (%s): limits are this machine's own until it can", error)

"""Rate limits: the requests that a caller may send, the headers about them, and the failures of an address.

Wrong credentials and refused hosts are counted by address, against guessing.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from flask import Request, Response

from restkeeper.features.limits.counters import Counters, Quota, Use
from restkeeper.web.application import Application
from restkeeper.web.auth import FailureLimit, address_keys, caller_keys

KNOWN_SECONDS = 24 * 3600  # for which a success is stored, or up to twice as long
NOTED_SECONDS = 60  # after which a process stores a success again
NOTED = 4096  # successes that each process caches

READING = ("GET", "HEAD", "OPTIONS")

_COUNT = {"type": "integer", "minimum": 0}

# The headers of responses, as they are described. OpenAPI, like HTTP, ignores the case of a header's name. Some linters
# allow either `RateLimit` or `X-RateLimit-Limit`; responses have both, for clients of either.
HEADERS = {
    "RateLimit-Policy": {
        "description": "The quotas: q requests in w seconds, for reading (GET, HEAD, OPTIONS) and for writing. Missing "
        "where nothing is limited, like the other headers on limits.",
        "schema": {"type": "string", "maxLength": 1024},
    },
    "RateLimit": {
        "description": "Of the request's quota, r requests remain for the next t seconds.",
        "schema": {"type": "string", "maxLength": 256},
    },
    "x-ratelimit-limit": {"description": "The request's quota.", "schema": _COUNT},
    "x-ratelimit-remaining": {"description": "The remaining requests of the quota.", "schema": _COUNT},
    "x-ratelimit-reset": {
        "description": "When the next window of the quota begins, in seconds since 1970.",
        "schema": _COUNT,
    },
}

Environ = dict[str, Any]  # WSGI's

_COUNTED = "restkeeper.limit"  # in the WSGI environment: the use of the quota


def limit_requests(
    app: Application,
    quotas: Mapping[str, Quota],
    *,
    is_limited: Callable[[str | None], bool] = lambda endpoint: True,
) -> None:
    """Limit each caller's requests, and send its limits with every response (draft-ietf-httpapi-ratelimit-headers-11).

    `quotas` has those of the classes "read" (GET, HEAD, OPTIONS) and "write" (all other methods); a missing class has
    no limit. Requests to endpoints that are not `is_limited` do not count, and their responses have no such headers.

    Requests beyond a quota raise TooManyRequests.
    """
    if not quotas:
        return
    reading, writing = quotas.get("read"), quotas.get("write")
    policy = ", ".join(each.policy for each in quotas.values())

    def count(request: Request, keys: tuple[str, ...]) -> Use | None:
        quota = reading if request.method in READING else writing
        return quota.add(keys) if quota else None

    def require_quota(request: Request) -> None:
        if not is_limited(request.endpoint):
            return
        use = request.environ[_COUNTED] = count(request, caller_keys(request.environ))
        if use and use.used > use.quota.amount:
            raise use.refusal(f"{use.quota.name} requests")

    def add_headers(request: Request, response: Response) -> None:
        environ = request.environ
        if _COUNTED in environ:
            use = environ[_COUNTED]
        elif is_limited(request.endpoint):  # refused before the caller was resolved
            use = count(request, address_keys(environ))
        else:
            return
        add = response.headers.add
        add("RateLimit-Policy", policy)
        if use:
            # For clients that do not know the draft, as GitHub sends them: the reset in seconds since the epoch.
            add("X-RateLimit-Limit", use.quota.limit)
            add("X-RateLimit-Remaining", str(use.remaining))
            add("X-RateLimit-Reset", str(use.reset))
            add("RateLimit", f'"{use.quota.name}";r={use.remaining};t={use.wait}')

    app.before.append(require_quota)
    app.after.append(add_headers)


class Failures(FailureLimit):
    """Counts the failures of each address in `quota`.

    An address over its quota is refused before its credentials are checked, unless they have succeeded from there
    before: guessing does not lock out other callers at the same address. All processes share these successes; a process
    looks them up only when the address is over its quota.
    """

    def __init__(self, quota: Quota, counters: Counters, *, now: Callable[[], float] = time.time) -> None:
        self._quota = quota
        self._counters = counters
        self._now = now
        self._noted: dict[tuple[str, str], float] = {}  # until when

    def has_succeeded(self, environ: Environ, digest: str) -> bool:
        """Whether credentials with this digest succeeded in this process within NOTED_SECONDS: no look-up is needed."""
        until = self._noted.get((environ.get("REMOTE_ADDR", ""), digest), 0.0)
        return until > self._now()

    def require_room(self, environ: Environ, digest: str) -> None:
        """Raises TooManyRequests if the address is over its quota and these credentials never succeeded from it."""
        use = self._quota.look(address_keys(environ))
        if not use.remaining and not any(map(self._counters.get, self._keys(environ, digest))):
            raise use.refusal("failures")

    def note_success(self, environ: Environ, digest: str) -> None:
        """Store that credentials succeeded."""
        self._counters.incr(self._keys(environ, digest)[0], 2 * KNOWN_SECONDS)
        key = (environ.get("REMOTE_ADDR", ""), digest)
        self._noted.pop(key, None)  # moves it to the end
        self._noted[key] = self._now() + NOTED_SECONDS
        if len(self._noted) > NOTED:
            self._noted.pop(next(iter(self._noted)), None)

    def note_failure(self, environ: Environ) -> None:
        """Count credentials that are not valid. Raises TooManyRequests if the address is over its quota.

        Others of that address may have been looked up at the same time.
        """
        if (use := self._quota.add(address_keys(environ))).used > self._quota.amount:
            raise use.refusal("failures")

    count_refused_host = note_failure

    def _keys(self, environ: Environ, digest: str) -> list[str]:
        """The keys of a success today and yesterday."""
        day = int(self._now()) // KNOWN_SECONDS
        pair = f"{address_keys(environ)[-1]}/{digest[:32]}"  # of an IPv6 site, which has many networks
        return [f"success/{number}/{pair}" for number in (day, day - 1)]

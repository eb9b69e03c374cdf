"""Rate limits: the requests that a caller may send, and the headers about them."""

from collections.abc import Callable, Mapping
from typing import Any

from flask import Request, Response

from restkeeper.features.limits.counters import Quota, Use
from restkeeper.web.application import Application
from restkeeper.web.auth import address_keys, caller_keys

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
    identify: Callable[[Environ], tuple[str, ...]] = caller_keys,
) -> None:
    """Limit each caller's requests, and send its limits with every response (draft-ietf-httpapi-ratelimit-headers-11).

    `quotas` has those of the classes "read" (GET, HEAD, OPTIONS) and "write" (all other methods); a missing class has
    no limit. Requests to endpoints that are not `is_limited` do not count, and their responses have no such headers.
    `identify` returns the keys of the caller in a WSGI environment.

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
        environ = request.environ
        keys = identify(environ)
        use = environ[_COUNTED] = count(request, keys)
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

"""Rate limits: the requests that a caller may send, the bytes that it may write, and the headers about them."""

from collections.abc import Callable, Mapping
from typing import Any

from flask import Request, Response

from restkeeper.features.limits.counters import Quota, Use, refusal, remaining
from restkeeper.resources.changes import written_by
from restkeeper.web.application import Application
from restkeeper.web.caller import address_keys, caller_keys

READING = ("GET", "HEAD", "OPTIONS")
USED_UP = 4096  # callers without bytes left that each process caches

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

_COUNTED = "restkeeper.limit"  # in the WSGI environment: the keys of the counted caller, and the use of its quota


def limit_requests(
    app: Application,
    quotas: Mapping[str, Quota],
    *,
    write_bytes: Quota | None = None,
    is_limited: Callable[[str | None], bool] = lambda endpoint: True,
    identify: Callable[[Environ], tuple[str, ...]] = caller_keys,
) -> None:
    """Limit each caller's requests, and send its limits with every response (draft-ietf-httpapi-ratelimit-headers-11).

    `quotas` has those of the classes "read" (GET, HEAD, OPTIONS) and "write" (all other methods); a missing class has
    no limit. `write_bytes` is counted after the commit: a write is refused if nothing was left after this process's
    last response to the caller or its site. Requests to endpoints that are not `is_limited` do not count, and their
    responses have no headers on limits. `identify` returns the keys of the caller in a WSGI environment.

    Requests beyond a quota raise TooManyRequests.
    """
    if not quotas and not write_bytes:
        return
    reading, writing = quotas.get("read"), quotas.get("write")
    policy = ", ".join(each.policy for each in quotas.values())
    write_policy = ", ".join(each.policy for each in (*quotas.values(), write_bytes) if each)
    used_up: set[str] = set()

    def count(request: Request, keys: tuple[str, ...]) -> Use | None:
        quota = reading if request.method in READING else writing
        return quota.add(keys) if quota else None

    def require_quota(request: Request) -> None:
        if not is_limited(request.endpoint):
            return
        environ = request.environ
        keys = identify(environ)
        if _COUNTED not in environ or environ[_COUNTED][0] != keys:  # else it is executed again
            environ[_COUNTED] = keys, count(request, keys)
        use = environ[_COUNTED][1]
        if use and use[1] > use[0].amount:
            raise refusal(use, f"{use[0].name} requests")
        if used_up and write_bytes and request.method not in (*READING, "DELETE"):  # deleting frees space
            if not used_up.isdisjoint(keys):
                use = write_bytes.look(keys)
                if not remaining(use):
                    raise refusal(use, "bytes written")
                used_up.difference_update(keys)

    def add_headers(request: Request, response: Response) -> None:
        if not is_limited(request.endpoint):
            return
        environ = request.environ
        try:
            use = environ[_COUNTED][1]
        except KeyError:  # refused before the caller was resolved
            use = count(request, address_keys(environ))
        add = response.headers.add
        policies, limits = policy, ""
        if write_bytes and request.method not in READING:
            keys = identify(environ)
            written = _written(write_bytes, keys, environ, response)
            policies, limits = write_policy, _field(written)
            if not remaining(written) and not used_up.issuperset(keys):
                if len(used_up) >= USED_UP:
                    used_up.clear()  # each of them can write once more
                used_up.update(keys)  # includes the site: a look-up is harmless
        if use:
            quota, used, wait, reset = use
            left = str(quota.amount - used if used < quota.amount else 0)
            field = f'"{quota.name}";r={left};t={wait}'
            limits = f"{field}, {limits}" if limits else field
            # For clients that do not know the draft, as GitHub sends them: the reset in seconds since the epoch.
            add("X-RateLimit-Limit", quota.limit)
            add("X-RateLimit-Remaining", left)
            add("X-RateLimit-Reset", str(reset))
        if policies:
            add("RateLimit-Policy", policies)
        if limits:
            add("RateLimit", limits)

    app.before.append(require_quota)
    app.after.append(add_headers)


def _written(quota: Quota, keys: tuple[str, ...], environ: Environ, response: Response) -> Use:
    """The use of the quota with the bytes of this request; a response with an error has committed none."""
    size = written_by(environ) if response.status_code < 400 else 0
    return quota.add(keys, size) if size else quota.look(keys)


def _field(use: Use) -> str:
    """A member of the RateLimit header field (draft-ietf-httpapi-ratelimit-headers-11, section 4)."""
    return f'"{use[0].name}";r={remaining(use)};t={use[2]}'

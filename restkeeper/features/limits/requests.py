"""Rate limits: how many requests a caller may send, how many bytes its writes may add; each answer's headers say so."""

from collections.abc import Callable, Mapping
from typing import Any

from flask import Request, Response

from restkeeper.features.limits.counters import Quota, Use, refusal, remaining
from restkeeper.resources.changes import written_by
from restkeeper.web.application import Application
from restkeeper.web.caller import address_keys, caller_keys

READING = ("GET", "HEAD", "OPTIONS")
USED_UP = 4096  # callers that each process remembers to have used up their bytes

Environ = dict[str, Any]  # WSGI's

_COUNTED = "restkeeper.limit"  # in the WSGI environment: the request's use of its quota


def limit_requests(
    app: Application,
    quotas: Mapping[str, Quota],
    *,
    write_bytes: Quota | None = None,
    is_limited: Callable[[str | None], bool] = lambda endpoint: True,
    identify: Callable[[Environ], tuple[str, ...]] = caller_keys,
) -> None:
    """Limit how often each caller may ask `app`, and say so in every answer (draft-ietf-httpapi-ratelimit-headers-11).

    `quotas` has those of the classes "read" (GET, HEAD, OPTIONS) and "write" (all else); a class that it leaves out is
    free. `write_bytes` is counted after the commit: a write is refused when nothing is left, as far as this process
    knows from its own last responses to the caller and its site. Requests to endpoints that are not `is_limited` do not
    count, and their responses have no limit's headers; `identify` gives the keys of the caller in a WSGI environment.

    Requests beyond a quota raise TooManyRequests.
    """
    if not quotas and not write_bytes:
        return
    reading, writing = quotas.get("read"), quotas.get("write")
    policy = ", ".join(each.policy for each in quotas.values())
    write_policy = ", ".join(each.policy for each in (*quotas.values(), write_bytes) if each)
    used_up: set[str] = set()

    def count(asked: Request, caller: Callable[[Environ], tuple[str, ...]]) -> Use | None:
        quota = reading if asked.method in READING else writing
        return quota.add(caller(asked.environ)) if quota else None

    def require_quota(asked: Request) -> None:
        if not is_limited(asked.endpoint):
            return
        use = asked.environ[_COUNTED] = count(asked, identify)
        if use and use[1] > use[0].amount:
            raise refusal(use, f"{use[0].name} requests")
        if used_up and write_bytes and asked.method not in (*READING, "DELETE"):  # who deletes makes room
            keys = identify(asked.environ)
            if not used_up.isdisjoint(keys):
                use = write_bytes.look(keys)
                if not remaining(use):
                    raise refusal(use, "bytes written")
                used_up.difference_update(keys)

    def add_headers(asked: Request, response: Response) -> None:
        if not is_limited(asked.endpoint):
            return
        environ = asked.environ
        try:
            use = environ[_COUNTED]
        except KeyError:  # refused before it was known who asks
            use = count(asked, address_keys)
        add = response.headers.add
        named, told = policy, ""
        if write_bytes and asked.method not in READING:
            keys = identify(environ)
            written = _written(write_bytes, keys, environ, response)
            named, told = write_policy, _field(written)
            if not remaining(written) and not used_up.issuperset(keys):
                if len(used_up) >= USED_UP:
                    used_up.clear()  # each has one write more
                used_up.update(keys)  # also of the site, which may have used it up: to look is no harm
        if use:
            quota, used, wait, reset = use
            left = str(quota.amount - used if used < quota.amount else 0)
            field = f'"{quota.name}";r={left};t={wait}'
            told = f"{field}, {told}" if told else field
            # What clients read that do not know the draft: as GitHub sends them, the reset in seconds since the epoch.
            add("X-RateLimit-Limit", quota.limit)
            add("X-RateLimit-Remaining", left)
            add("X-RateLimit-Reset", str(reset))
        if named:
            add("RateLimit-Policy", named)
        if told:
            add("RateLimit", told)

    app.before.append(require_quota)
    app.after.append(add_headers)


def _written(quota: Quota, keys: tuple[str, ...], environ: Environ, response: Response) -> Use:
    """The use of the quota with what this request wrote; what was not committed is answered with an error."""
    size = written_by(environ) if response.status_code < 400 else 0
    return quota.add(keys, size) if size else quota.look(keys)


def _field(use: Use) -> str:
    """An item of the RateLimit header field (draft-ietf-httpapi-ratelimit-headers-11, section 4)."""
    return f'"{use[0].name}";r={remaining(use)};t={use[2]}'

"""Rate limits: the requests that a caller may send, the headers about them, and the failures of an address.

Windows are aligned to the clock, and the window is part of a counter's key. So one increment is the whole check, the
end of a window is not stored, and a counter never includes requests of the next window. Wrong credentials and refused
hosts are counted by address, against guessing.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Request, Response

from restkeeper.config import quota_of, require_package
from restkeeper.errors import TooManyRequests
from restkeeper.feature import Seams, ServerPart, loaded
from restkeeper.service import Service
from restkeeper.web.application import SAFE_METHODS, Stage
from restkeeper.web.auth import FailureLimit, address_keys, caller_keys
from restkeeper.web.descriptions import texts_in
from restkeeper.web.operations import Contribution

if TYPE_CHECKING:
    from restkeeper.features.limits.counters import CounterTable

HARNESS_SLOTS = 1024  # keys of callers and windows, in a test
CLOCKS_DIFFER = 5  # seconds by which the clocks of machines that share Redis may differ: no counter expires too early
SITE_QUOTAS = 16  # a site's quota, in quotas of one of its networks
KNOWN_SECONDS = 24 * 3600  # for which a success is stored, or up to twice as long
NOTED_SECONDS = 60  # after which a process stores a success again
NOTED = 4096  # successes that each process caches

# The headers of responses, as they are described. OpenAPI, like HTTP, ignores the case of a header's name. Some linters
# allow either `RateLimit` or `X-RateLimit-Limit`; responses have both, for clients of either.
HEADERS = texts_in(Path(__file__).with_name("headers.toml"))

Environ = dict[str, Any]  # WSGI's

_COUNTED = "restkeeper.limit"  # in the WSGI environment: the use of the quota


# The table of counters that a server's start creates for its workers. Any other process counts for itself.
shared_tables: list["CounterTable"] = []


def share() -> None:
    """Let the processes that this one forks count together."""
    shared_tables[:] = [loaded(f"{__name__}.shared:SharedTable")()]


SERVER = ServerPart(share=share)


def install(service: Service) -> Seams:
    """Count requests and failures, as configured."""
    config, now = service.config, service.clock.time
    if config.redis_url:
        require_package("REDIS_URL", "redis", "redis")
    table, slots = (shared_tables[0] if shared_tables else None), {}
    if config.harness:  # each test counts for itself
        table, slots = None, {"slots": HARNESS_SLOTS}
    counters: Any = Counters(service.app, table, config.redis_url, clock=service.clock, **slots)
    if config.quotas:
        counters = counters.opened
    if config.failure_limit != "off":
        failures = Quota("failures", config.failure_limit, counters, now=now)
        service.guard.failures = Failures(failures, counters, now=now)
    quotas = {name: Quota(name, text, counters, now=now) for name, text in config.quotas.items()}
    seams = limit_requests(quotas, is_limited=service.guard.is_limited)
    return replace(seams, describe=(Contribution(headers=HEADERS, problems=(TooManyRequests,)),))


class Counters:
    """Those of `counters.open_counters`, which are opened when they are first used.

    Many services for one machine never use them, and their libraries take a tenth of a start.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._arguments, self._options = arguments, options

    @cached_property
    def opened(self) -> Any:
        """The counters themselves."""
        return loaded(f"{__name__}.counters:open_counters")(*self._arguments, **self._options)

    def incr(self, key: str, expiry: int) -> int:
        """Add one to a key's count and return it. It expires `expiry` seconds after its first increment."""
        count: int = self.opened.incr(key, expiry)
        return count

    def get(self, key: str) -> int:
        """A key's count; 0 if it has none."""
        count: int = self.opened.get(key)
        return count


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
    """The limit of each caller in a window. `text` has the syntax of the setting.

    A caller has a counter by its first key. By a second key its whole site has one, with a quota SITE_QUOTAS times as
    large. `now` is the time of day in seconds since the epoch.
    """

    def __init__(self, name: str, text: str, counters: Any, *, now: Callable[[], float]) -> None:
        self.name = name
        self.amount, self.seconds = quota_of(text)
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


def limit_requests(quotas: Mapping[str, Quota], *, is_limited: Callable[[str | None], bool]) -> Seams:
    """Limit each caller's requests, and send its limits with every response (draft-ietf-httpapi-ratelimit-headers-11).

    `quotas` has those of the classes "read" (GET, HEAD, OPTIONS) and "write" (all other methods); a missing class has
    no limit. Requests to endpoints that are not `is_limited` do not count, and their responses have no such headers.

    Requests beyond a quota raise TooManyRequests.
    """
    if not quotas:
        return Seams()
    reading, writing = quotas.get("read"), quotas.get("write")
    policy = ", ".join(quota.policy for quota in quotas.values())

    def count(request: Request, keys: tuple[str, ...]) -> Use | None:
        quota = reading if request.method in SAFE_METHODS else writing
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
            add("X-RateLimit-Limit", str(use.quota.amount))
            add("X-RateLimit-Remaining", str(use.remaining))
            add("X-RateLimit-Reset", str(use.reset))
            add("RateLimit", f'"{use.quota.name}";r={use.remaining};t={use.wait}')

    return Seams(checking=((Stage.LIMIT, require_quota),), answered=(add_headers,))


class Failures(FailureLimit):
    """Counts the failures of each address in `quota`.

    An address over its quota is refused before its credentials are checked, unless they have succeeded from there
    before: guessing does not lock out other callers at the same address. All processes share these successes; a process
    looks them up only when the address is over its quota.
    """

    def __init__(self, quota: Quota, counters: Any, *, now: Callable[[], float]) -> None:
        self._quota = quota
        self._counters = counters
        self._now = now
        self._noted: dict[tuple[str, str], float] = {}  # until when

    def require_room(self, environ: Environ, digest: str) -> bool:
        """See `FailureLimit`. What succeeded in this process within NOTED_SECONDS needs no look-up."""
        if self._noted.get((environ.get("REMOTE_ADDR", ""), digest), 0.0) > self._now():
            return True
        use = self._quota.look(address_keys(environ))
        if not use.remaining and not any(map(self._counters.get, self._keys(environ, digest))):
            raise use.refusal("failures")
        return False

    def note_success(self, environ: Environ, digest: str) -> None:
        """Store that credentials succeeded."""
        self._counters.incr(self._keys(environ, digest)[0], 2 * KNOWN_SECONDS)
        if len(self._noted) >= NOTED:
            self._noted.clear()
        self._noted[environ.get("REMOTE_ADDR", ""), digest] = self._now() + NOTED_SECONDS

    def note_failure(self, environ: Environ) -> None:
        """See `FailureLimit`. Others of that address may have been looked up at the same time."""
        if (use := self._quota.add(address_keys(environ))).used > self._quota.amount:
            raise use.refusal("failures")

    def _keys(self, environ: Environ, digest: str) -> list[str]:
        """The keys of a success today and yesterday."""
        day = int(self._now()) // KNOWN_SECONDS
        pair = f"{address_keys(environ)[-1]}/{digest[:32]}"  # of an IPv6 site, which has many networks
        return [f"success/{number}/{pair}" for number in (day, day - 1)]

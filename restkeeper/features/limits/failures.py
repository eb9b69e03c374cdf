"""Guesses: wrong credentials and refused hosts are counted for each address, so that none can be tried without end.

An address that has used up its quota is refused before its credentials are looked at, unless those have succeeded from
there: one that guesses locks out nobody who shares its address. Where credentials succeeded is known to all processes,
for a day at least; each process asks for that only when the address is over its quota.
"""

import time
from collections.abc import Callable
from typing import Any

from restkeeper.features.limits.counters import Counters, Quota, refusal, remaining
from restkeeper.web.caller import address_keys
from restkeeper.web.guard import FailureLimit

KNOWN_SECONDS = 24 * 3600  # for which a success is known, or up to twice as long
NOTED_SECONDS = 60  # after which a process notes a success again
NOTED = 4096  # successes that each process knows by itself

Environ = dict[str, Any]  # WSGI's


class Failures(FailureLimit):
    """The failures of each address, in `quota`; with None they are not counted."""

    def __init__(self, quota: Quota | None, counters: Counters, *, now: Callable[[], float] = time.time) -> None:
        self._quota = quota
        self._counters = counters
        self._now = now
        self._noted: dict[tuple[str, str], float] = {}  # until when

    def has_succeeded(self, environ: Environ, digest: str) -> bool:
        """Whether credentials with this digest succeeded here a moment ago, so that nothing need be looked up."""
        until = self._noted.get((environ.get("REMOTE_ADDR", ""), digest), 0.0)
        return until > self._now() or self._quota is None

    def require_room(self, environ: Environ, digest: str) -> None:
        """Raises TooManyRequests when the address is over its quota and these credentials never succeeded from it."""
        if self._quota and not remaining(use := self._quota.look(address_keys(environ))):
            if not any(map(self._counters.get, self._marks(environ, digest))):
                raise refusal(use, "failures")

    def note_success(self, environ: Environ, digest: str) -> None:
        """Remember that credentials succeeded."""
        if self._quota:
            self._counters.incr(self._marks(environ, digest)[0], 2 * KNOWN_SECONDS)
            key = (environ.get("REMOTE_ADDR", ""), digest)
            self._noted.pop(key, None)  # to the end
            self._noted[key] = self._now() + NOTED_SECONDS
            if len(self._noted) > NOTED:
                self._noted.pop(next(iter(self._noted)), None)

    def note_failure(self, environ: Environ) -> None:
        """Count credentials that are not valid, or not any more."""
        if self._quota:
            self._quota.add(address_keys(environ))

    def count_refused_host(self, environ: Environ) -> None:
        """Count a refused host. Raises TooManyRequests when the address is over its quota."""
        if self._quota and (use := self._quota.add(address_keys(environ)))[1] > self._quota.amount:
            raise refusal(use, "failures")

    def _marks(self, environ: Environ, digest: str) -> list[str]:
        """The keys of a success today and yesterday."""
        day = int(self._now()) // KNOWN_SECONDS
        place = f"{address_keys(environ)[-1]}/{digest[:32]}"  # one for a site of IPv6, which has many networks
        return [f"success/{number}/{place}" for number in (day, day - 1)]

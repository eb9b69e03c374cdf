"""The limit of failures: wrong credentials and refused hosts are counted by address, against guessing.

An address over its quota is refused before its credentials are checked, unless they have succeeded from there before:
guessing does not lock out other callers at the same address. All processes share these successes, for at least a day;
a process looks them up only when the address is over its quota.
"""

import time
from collections.abc import Callable
from typing import Any

from restkeeper.features.limits.counters import Counters, Quota
from restkeeper.web.auth import FailureLimit, address_keys

KNOWN_SECONDS = 24 * 3600  # for which a success is stored, or up to twice as long
NOTED_SECONDS = 60  # after which a process stores a success again
NOTED = 4096  # successes that each process caches

Environ = dict[str, Any]  # WSGI's


class Failures(FailureLimit):
    """Counts the failures of each address in `quota`; None for no limit."""

    def __init__(self, quota: Quota | None, counters: Counters, *, now: Callable[[], float] = time.time) -> None:
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
        if self._quota and not (use := self._quota.look(address_keys(environ))).remaining:
            if not any(map(self._counters.get, self._keys(environ, digest))):
                raise use.refusal("failures")

    def note_success(self, environ: Environ, digest: str) -> None:
        """Store that credentials succeeded."""
        if self._quota:
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
        if self._quota and (use := self._quota.add(address_keys(environ))).used > self._quota.amount:
            raise use.refusal("failures")

    count_refused_host = note_failure

    def _keys(self, environ: Environ, digest: str) -> list[str]:
        """The keys of a success today and yesterday."""
        day = int(self._now()) // KNOWN_SECONDS
        pair = f"{address_keys(environ)[-1]}/{digest[:32]}"  # of an IPv6 site, which has many networks
        return [f"success/{number}/{pair}" for number in (day, day - 1)]

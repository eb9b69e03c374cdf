"""Long polling (RFC 6202, section 2): a response that is delayed until there is an event or the time is over.

A waiting request costs a greenlet and a regular check; the process serves other requests meanwhile.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import request

from restkeeper.clock import Clock
from restkeeper.errors import TooManyRequests, Unavailable

LONGEST = 30  # seconds: below the idle time-outs of the usual proxies (60)
LOOK_SECONDS = 0.1  # between two checks
SHARED_SECONDS = 0.05  # for which all requests that wait share one look at the store
MOST = 500  # requests that wait in one process at a time: half of the connections that gunicorn accepts

IS_CANCELLED = "restkeeper.is_cancelled"  # in the WSGI environment: whether the server stops or the client has left


class Waiters:
    """The requests that wait in this process: at most `most`, and at most `share` of each caller."""

    def __init__(self, share: int, most: int = MOST) -> None:
        self._share = share
        self._most = most
        self._waiting: Counter[str] = Counter()  # requests of each caller
        self._changing = threading.Lock()

    @contextmanager
    def slot(self, caller: str) -> Iterator[None]:
        """A slot for one request. Raises TooManyRequests beyond the caller's share, Unavailable if none is free."""
        with self._changing:
            if self._waiting[caller] >= self._share:
                raise TooManyRequests(
                    f"{self._share} of your requests already wait; end one, or retry without `wait`",
                    headers={"Retry-After": "1"},
                    **{"violated-policies": ["waits"]},
                )
            if self._waiting.total() >= self._most:
                raise Unavailable(f"{self._most} requests already wait; retry without `wait`")
            self._waiting[caller] += 1
        try:
            yield
        finally:
            with self._changing:
                self._waiting[caller] -= 1
                if not self._waiting[caller]:
                    del self._waiting[caller]


class Newest:
    """The id of the newest event, for requests that wait: the store is asked for it once for all of them."""

    def __init__(self, look: Callable[[], str], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._id = ""
        self._until = 0.0
        self._looking = threading.Lock()

    def __call__(self) -> str:
        """The newest event, some hundredths of a second ago at most, or when the last look that is under way began."""
        if self._clock.monotonic() >= self._until and self._looking.acquire(blocking=False):
            try:
                self._id = self._look()
                self._until = self._clock.monotonic() + SHARED_SECONDS
            finally:
                self._looking.release()
        return self._id

    def note(self, id: str) -> None:
        """Note that an event was the newest one just now."""
        self._id = id

    def wait(self, after: str, deadline: float) -> bool:
        """Wait for an event after this one until `deadline`; returns whether there is one.

        Ends early if the request is cancelled.
        """
        is_cancelled = request.environ.get(IS_CANCELLED, bool)
        while not (is_there := self() != after) and self._clock.monotonic() < deadline and not is_cancelled():
            self._clock.sleep(LOOK_SECONDS)
        return is_there

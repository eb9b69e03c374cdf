"""Long polling (RFC 6202, section 2): an answer that is held back until there is something to tell, or time is over.

Who waits costs a greenlet and a look now and then, and keeps no process from answering others.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import request

from restkeeper.clock import Clock
from restkeeper.errors import TooManyRequests, Unavailable

LONGEST = 30  # seconds: below the idle time-outs of the usual proxies (60)
LOOK_SECONDS = 0.1  # between two looks
MOST = 500  # who wait in one process at a time: half of the connections that gunicorn lets it have

IN_VAIN = "restkeeper.in_vain"  # in the WSGI environment: what tells that the server stops, or the client has gone


class Waiters:
    """The requests that wait in this process: at most `most`, and of each caller `share`."""

    def __init__(self, share: int, most: int = MOST) -> None:
        self._share = share
        self._most = most
        self._waiting: Counter[str] = Counter()  # how many of each caller
        self._changing = threading.Lock()

    @contextmanager
    def place(self, caller: str) -> Iterator[None]:
        """A place for one request. Raises TooManyRequests beyond the caller's share, Unavailable when none is free."""
        with self._changing:
            self._take(caller)
        try:
            yield
        finally:
            with self._changing:
                self._give_back(caller)

    def _take(self, caller: str) -> None:
        if self._waiting[caller] >= self._share:
            raise TooManyRequests(
                f"{self._share} requests of yours wait here already; end one, or ask again without `wait`",
                headers={"Retry-After": "1"},
                **{"violated-policies": ["waits"]},
            )
        if self._waiting.total() >= self._most:
            raise Unavailable(f"{self._most} wait already; ask again without `wait`")
        self._waiting[caller] += 1

    def _give_back(self, caller: str) -> None:
        self._waiting[caller] -= 1
        if not self._waiting[caller]:
            del self._waiting[caller]


def wait_until(is_there: Callable[[], bool], deadline: float, clock: Clock) -> bool:
    """Wait until something is there or the clock past `deadline`; whether it is. Ends early when in vain."""
    in_vain = request.environ.get(IN_VAIN, bool)
    while not (there := is_there()) and clock.monotonic() < deadline and not in_vain():
        clock.sleep(LOOK_SECONDS)
    return there

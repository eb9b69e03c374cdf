"""What a process has a limited number of, such as connections: a share of it for each caller.

The caller is the one on whose behalf the store is used in this context, which is a request's.
"""

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from restkeeper.clock import Clock
from restkeeper.storage.errors import StoreUnavailable

WAITING = 500  # uses that wait in each process
WAITING_OF_CALLER = 250  # of them, of each caller

# The caller of the present work; empty for the service's own.
worked_for: ContextVar[str] = ContextVar("restkeeper.caller", default="")


class _Waiter(NamedTuple):
    name: str
    woken: threading.Event


class Shares:
    """The uses of `what`: at most `most` at a time, and at most `share` of each caller.

    Others wait. The next one is of the caller that uses the fewest; of several, the first that arrived.
    """

    def __init__(self, what: str, most: int, share: int, clock: Clock) -> None:
        self._what = what
        self._most = most
        self._share = share
        self._clock = clock
        self._used: Counter[str] = Counter()
        self._waiting: deque[_Waiter] = deque()
        self._changing = threading.Lock()

    @contextmanager
    def use(self, deadline: float) -> Iterator[None]:
        """One use, for the caller of the present work. Raises StoreUnavailable if there is none until the deadline."""
        name = worked_for.get()
        with self._changing:
            waiter = self._take_or_queue(name)
        if waiter:
            self._wait(waiter, deadline)
        try:
            yield
        finally:
            with self._changing:
                self._release(name)

    def _has_room(self, name: str) -> bool:
        return self._used[name] < self._share and self._used.total() < self._most

    def _take_or_queue(self, name: str) -> _Waiter | None:
        if self._has_room(name):
            self._used[name] += 1
            return None
        own = sum(each.name == name for each in self._waiting)
        if len(self._waiting) >= WAITING or own >= WAITING_OF_CALLER:
            raise StoreUnavailable(f"{len(self._waiting)} requests already wait for {self._what}")
        waiter = _Waiter(name, threading.Event())
        self._waiting.append(waiter)
        return waiter

    def _wait(self, waiter: _Waiter, deadline: float) -> None:
        """Wait until it is woken. Raises StoreUnavailable at the deadline."""
        try:
            if not waiter.woken.wait(max(0.0, deadline - self._clock.monotonic())):
                is_own = self._used[waiter.name] >= self._share
                used = f"your other requests use {self._share}" if is_own else f"other requests use all {self._most}"
                raise StoreUnavailable(f"{used} {self._what}")
        except BaseException:  # also the end of a greenlet, or a time-out
            with self._changing:
                if waiter.woken.is_set():
                    self._release(waiter.name)
                else:
                    self._waiting.remove(waiter)
            raise

    def _release(self, name: str) -> None:
        """Let the next use go on that waits and may."""
        self._used[name] -= 1
        if not self._used[name]:
            del self._used[name]
        able = (each for each in self._waiting if self._has_room(each.name))
        if waiter := min(able, key=lambda each: self._used[each.name], default=None):
            self._waiting.remove(waiter)
            self._used[waiter.name] += 1
            waiter.woken.set()

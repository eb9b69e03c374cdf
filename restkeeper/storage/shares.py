"""What callers wait for in a process, such as connections, or their turn to write: a share of it for each of them.

The caller is the one on whose behalf the store is used in this context, which is a request's.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Generic, NamedTuple, TypeVar

from restkeeper.clock import YIELD_SECONDS, Clock
from restkeeper.storage.errors import StoreUnavailable

T = TypeVar("T")

WAITING = 500  # uses that wait in each process
WAITING_OF_CALLER = 250  # of them, of each caller

MOST_REMEMBERED = 1000  # callers, before those are forgotten that no longer matter

# The caller of the present work; empty for the service's own.
current_caller: ContextVar[str] = ContextVar("restkeeper.caller", default="")


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
        name = current_caller.get()
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
        waiting_of_caller = sum(waiter.name == name for waiter in self._waiting)
        if len(self._waiting) >= WAITING or waiting_of_caller >= WAITING_OF_CALLER:
            raise StoreUnavailable(f"{len(self._waiting)} requests already wait for {self._what}")
        waiter = _Waiter(name, threading.Event())
        self._waiting.append(waiter)
        return waiter

    def _wait(self, waiter: _Waiter, deadline: float) -> None:
        """Wait until it is woken. Raises StoreUnavailable at the deadline."""
        try:
            is_woken = waiter.woken.wait(max(0.0, deadline - self._clock.monotonic()))
            if not is_woken or self._clock.monotonic() > deadline:  # it may have had no processor time until then
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
        able = (waiter for waiter in self._waiting if self._has_room(waiter.name))
        if waiter := min(able, key=lambda waiter: self._used[waiter.name], default=None):
            self._waiting.remove(waiter)
            self._used[waiter.name] += 1
            waiter.woken.set()


class FairQueue(Generic[T]):
    """Works that wait to be done one after the other: each caller has a share of the time.

    The next one is of the caller that has used the least time; callers that have used the same take turns. What one
    used before others came does not count: a new caller begins with as much as the one that had the last turn had used
    before it (start-time fair queueing).
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._used: dict[str, float] = {}  # seconds
        self._now = 0.0  # what the caller that had the last turn had used before it
        self._changing = threading.Lock()

    def __len__(self) -> int:
        with self._changing:
            return sum(map(len, self._waiting.values()))

    def add(self, caller: str, work: T) -> None:
        with self._changing:
            self._waiting.setdefault(caller, deque()).append(work)
            self._used[caller] = max(self._used.get(caller, 0.0), self._now)

    def remove(self, caller: str, work: T) -> bool:
        """Remove a work. Returns False if it has had its turn."""
        with self._changing:
            if work not in (works := self._waiting.get(caller, deque())):
                return False
            works.remove(work)
            if not works:
                del self._waiting[caller]
            return True

    def first(self) -> T | None:
        """The work that is next."""
        with self._changing:
            return self._waiting[self._next()][0] if self._waiting else None

    def take(self) -> T | None:
        """Remove the work that is next, and return it."""
        with self._changing:
            if not self._waiting:
                return None
            works = self._waiting.pop(caller := self._next())
            work = works.popleft()
            if works:
                self._waiting[caller] = works  # behind the other callers
            self._now = self._used[caller]
            if len(self._used) > MOST_REMEMBERED:
                self._used = {
                    name: used for name, used in self._used.items() if used > self._now or name in self._waiting
                }
            return work

    def charge(self, caller: str, seconds: float) -> None:
        """Count the time that a caller's work has taken."""
        with self._changing:
            self._used[caller] = self._used.get(caller, self._now) + seconds

    def _next(self) -> str:
        return min(self._waiting, key=lambda caller: self._used[caller])


def one_at_a_time(what: str, clock: Clock) -> Callable[[float], AbstractContextManager[None]]:
    """Work that is done one after the other in a process, in a context that is given a deadline. `what` names it."""
    lock = threading.Lock()

    @contextmanager
    def use(deadline: float) -> Iterator[None]:
        if not lock.acquire(timeout=max(0.0, deadline - clock.monotonic())):
            raise StoreUnavailable(f"{what} of other requests take all the time")
        try:
            clock.sleep(YIELD_SECONDS)  # small requests, and the server's sockets, come before it
            yield
        finally:
            lock.release()

    return use

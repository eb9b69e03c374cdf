"""Changes that are computed before their transaction, and again if the item has changed meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from restkeeper.clock import TURN, Clock
from restkeeper.errors import Unavailable
from restkeeper.resources.changes import forget_written
from restkeeper.storage.errors import RecordChanged, ResponseStored
from restkeeper.web.ahead import forget

T = TypeVar("T")

SECONDS = 5.0  # for which a change waits for others and is retried, before it returns 503
LARGE = 16 * 1024  # bytes of an item, from which on it takes milliseconds to compute a change
LOCKS = 256  # ids share them, so that their number has a bound


class Stale(Exception):
    """The item is not the one any more that a change was computed from. Rolls back the transaction that raises it."""


def until_current(attempt: Callable[[], T], deadline: float, clock: Clock = time) -> T:
    """What `attempt` returns, called again while it raises Stale or RecordChanged, or ResponseStored, to look that up.

    Raises Unavailable after `deadline`, by `clock`.
    """
    while True:
        try:
            return attempt()
        except (Stale, RecordChanged, ResponseStored):
            forget_written()
            if clock.monotonic() >= deadline:
                raise Unavailable("others change this item at the same time; try again") from None
        clock.sleep(TURN)


class Turns:
    """Lets changes of one item in this process happen one after the other, and changes of large items as well.

    Otherwise each of many changes of one item would be computed again after each of the others, and many changes of
    large items would all run before a small request that comes after them.
    """

    def __init__(self, clock: Clock = time) -> None:
        self._clock = clock
        self._locks = [threading.Lock() for _ in range(LOCKS)]
        self._large = threading.Lock()

    def change(self, id: str, attempt: Callable[[float], T]) -> T:
        """As `until_current`, in the turn of the item with this id; `attempt` is given the deadline of all its waits.

        Raises Unavailable when the turn does not come in time.
        """
        deadline = self._clock.monotonic() + SECONDS
        lock = self._locks[hash(id) % LOCKS]
        if not lock.acquire(blocking=False):
            if not lock.acquire(timeout=SECONDS):
                raise Unavailable("others are changing this item; try again")
            forget()
        try:
            return until_current(partial(attempt, deadline), deadline, self._clock)
        finally:
            lock.release()

    @contextmanager
    def of_size(self, size: int, deadline: float) -> Iterator[None]:
        """The turn to compute a change of so many bytes: at once if it is small, else one after the other.

        Raises Unavailable when the turn does not come before the deadline.
        """
        if size < LARGE:
            yield
            return
        if not self._large.acquire(timeout=max(0.0, deadline - self._clock.monotonic())):
            raise Unavailable("others are changing large items; try again")
        try:
            yield
        finally:
            try:
                self._clock.sleep(TURN)  # with the turn, so that the server's sockets come before the next one
            finally:
                self._large.release()

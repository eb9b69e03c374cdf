"""Changes that are computed before their transaction, and again if the item has changed meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from restkeeper.clock import TURN, Clock
from restkeeper.errors import Unavailable
from restkeeper.storage.errors import RecordChanged, ResponseStored, StoreContended
from restkeeper.web import lookup

T = TypeVar("T")

SECONDS = 5.0  # for which a change waits for others and is retried, before it returns 503
CONTENDED_SECONDS = 0.05  # before it is retried if the store had to end it
LARGE = 16 * 1024  # bytes of an item, from which on it takes milliseconds to compute a change
LOCKS = 256  # ids share them, so that their number has a bound


class Stale(Exception):
    """The item is not the one any more that a change was computed from. Rolls back the transaction that raises it."""


def until_current(attempt: Callable[[float], T], deadline: float, clock: Clock = time) -> T:
    """What `attempt` returns, called again while it raises Stale, RecordChanged or StoreContended, or ResponseStored.

    It is given the deadline of all its waits. Raises Unavailable after `deadline`, by `clock`.
    """
    while True:
        try:
            return attempt(deadline)
        except (Stale, RecordChanged, ResponseStored, StoreContended) as error:
            if clock.monotonic() >= deadline:
                raise Unavailable("others change this item at the same time; try again") from None
            pause = CONTENDED_SECONDS if isinstance(error, StoreContended) else TURN
        clock.sleep(pause)


def deadline_of(clock: Clock) -> float:
    """Until when the change of the current request waits: SECONDS from now, less what its reading took."""
    return clock.monotonic() + SECONDS - lookup.seconds()


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
        """As `until_current`, in the turn of the item with this id.

        Raises Unavailable when the turn does not come in time.
        """
        deadline = deadline_of(self._clock)
        lock = self._locks[hash(id) % LOCKS]
        if not lock.acquire(blocking=False):
            if not lock.acquire(timeout=max(0.0, deadline - self._clock.monotonic())):
                raise Unavailable("others are changing this item; try again")
            lookup.forget()
        try:
            return until_current(attempt, deadline, self._clock)
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

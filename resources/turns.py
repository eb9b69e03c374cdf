"""Changes that are worked out before their transaction: begun again where the store has moved on meanwhile."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from clock import TURN
from errors import Unavailable

T = TypeVar("T")

SECONDS = 5.0  # for which a change waits for others and begins again, before it is answered 503
LOCKS = 256  # ids share them, so that their number has a bound
RETRY = {"Retry-After": "1"}


class Stale(Exception):
    """What a change was worked out from is not in the store any more. Undoes the transaction that raises it."""


def until_current(attempt: Callable[[], T], deadline: float, clock: Callable[[], float] = time.monotonic) -> T:
    """What `attempt` returns, called again while it raises Stale. Raises Unavailable after `deadline`, by `clock`."""
    while True:
        try:
            return attempt()
        except Stale:
            if clock() >= deadline:
                raise Unavailable("others change this all the time; try again", headers=RETRY) from None
        time.sleep(TURN)


class Turns:
    """Lets changes of one item in this process happen one after the other.

    Of so many at once each would else be worked out anew for each that comes before it.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    def change(self, id: str, attempt: Callable[[], T]) -> T:
        """As `until_current`, in the turn of the item with this id. Raises Unavailable when that does not come soon."""
        deadline = self._clock() + SECONDS
        lock = self._locks[hash(id) % LOCKS]
        if not lock.acquire(timeout=SECONDS):
            raise Unavailable("others are changing this item; try again", headers=RETRY)
        try:
            return until_current(attempt, deadline, self._clock)
        finally:
            lock.release()

"""The gate to a store that is not open yet: one use opens it at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

from restkeeper.clock import Clock
from restkeeper.storage.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFailing,
    StoreFull,
    StoreUnavailable,
    StoreUnopened,
)

WAIT_SECONDS = 5.0  # for which a use waits for another one that opens the store


class OpenGate:
    """Lets one use at a time open the store.

    Others wait for the first attempt. After a failure they get the same at once while another attempt is under way, and
    for as long as the failed one took, at least `pause` seconds: of a hundred requests one waits. In a process that
    does not create a store, as a worker, a failure may heal; it is a StoreUnopened, whose cause is for the log.
    """

    def __init__(self, clock: Clock, *, creates: bool, pause: float = 0.0) -> None:
        self._clock = clock
        self._creates = creates
        self._pause = pause
        self._lock = threading.Lock()  # which gevent may have replaced since this module was imported
        self._failure: StoreError | None = None  # of the last attempt, or that it takes too long
        self._until = 0.0  # by the clock: when the next attempt may begin

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the right to open the store, if it is not open yet. Raises the failure of the attempt before."""
        if not self._lock.acquire(timeout=0 if self._failure else WAIT_SECONDS):
            failure = self._failure = self._failure or StoreUnavailable("the store is still being opened")
            raise _again(failure)  # not `self._failure`: another use may have opened the store at this moment
        try:
            begin = self._clock.monotonic()
            if self._failure and begin < self._until:
                raise _again(self._failure)
            try:
                yield
                self._failure = None
            except (StoreError, OSError) as error:
                failure, now = self._shown(error), self._clock.monotonic()
                self._failure = _again(failure)
                self._until = now + min(max(now - begin, self._pause), WAIT_SECONDS)
                raise failure from failure.__cause__
        finally:
            self._lock.release()

    def _shown(self, error: StoreError | OSError) -> StoreError:
        if isinstance(error, OSError):
            error = StoreUnavailable(f"the store cannot be opened: {error.strerror}")
        if self._creates or type(error) not in (StoreUnavailable, StoreBusy, StoreFull, StoreFailing, StoreDamaged):
            return error
        failure = StoreUnopened("the store cannot be opened")
        failure.__cause__ = copy(error)  # without its traceback, which would keep connections of the attempt
        return failure


def _again(error: StoreError) -> StoreError:
    again = copy(error)
    again.__cause__ = error.__cause__
    return again

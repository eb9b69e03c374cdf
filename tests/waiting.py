"""Waits in tests, with a time limit: nothing fails by time before ten times what it needs on a quiet machine."""

import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import TypeVar

from hypothesis import HealthCheck, settings

SECONDS = 120.0  # that any wait of a test may take; on a quiet machine the longest ones take some 10

T = TypeVar("T")

ANY_TIME = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)  # of a property test


def join(*running: Thread | BaseProcess) -> None:
    """Wait for the end of threads or processes."""
    for each in running:
        each.join(SECONDS)
        assert not each.is_alive(), f"{each} has not ended"


def until(condition: Callable[[], T]) -> T:
    """Wait for a condition that others fulfil: threads, processes or the time. Returns what it is then.

    Raises TimeoutError.
    """
    end = time.monotonic() + SECONDS
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError("waited in vain")
        time.sleep(0.005)
    return value

"""Waits in tests, with a time limit."""

import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from threading import Thread

SECONDS = 30.0  # far longer than anything takes


def join(*running: Thread | BaseProcess) -> None:
    """Wait for the end of threads or processes."""
    for each in running:
        each.join(SECONDS)
        assert not each.is_alive(), f"{each} has not ended"


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that others fulfil: threads, processes or the time. Raises TimeoutError."""
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("waited in vain")
        time.sleep(0.005)

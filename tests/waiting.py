"""Waits in tests, with a time limit."""

from multiprocessing.process import BaseProcess
from threading import Thread

SECONDS = 30.0  # far longer than anything takes


def join(*running: Thread | BaseProcess) -> None:
    """Wait for the end of threads or processes."""
    for each in running:
        each.join(SECONDS)
        assert not each.is_alive(), f"{each} has not ended"

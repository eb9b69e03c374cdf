"""Waiting for the server in a process that gevent has patched.

psycopg's own way, on gevent's `select.poll`, makes several watchers and timers for each wait; a pipeline waits twice
for each statement, only to learn that it may send. Here the kernel is asked without waiting whether it takes more, and
only one watcher is made, where there is nothing but to wait.
"""

import select
from collections.abc import Generator
from typing import Any, TypeVar

from gevent import get_hub, monkey

T = TypeVar("T")

# The events of gevent's loop, which are those of psycopg's `Wait` and `Ready`, too.
READ, WRITE = 1, 2

_poll = monkey.get_original("select", "poll")


def is_patched() -> bool:
    """Whether gevent has patched this process."""
    return bool(monkey.is_module_patched("select"))


def run(generator: Generator[int, int, T], fileno: int) -> T:
    """The result of a generator of psycopg, which yields the events it waits for; other greenlets run meanwhile."""
    try:
        events = next(generator)
        while True:
            events = generator.send(_wait(fileno, events))
    except StopIteration as end:
        result: T = end.value
        return result


def _wait(fileno: int, events: int) -> int:
    """Wait for at least one of the events; returns those that have come. An error is an event, too."""
    while not (ready := _ready(fileno, events) if events & WRITE else 0):
        watcher: Any = get_hub().loop.io(fileno, events)
        try:
            get_hub().wait(watcher)
        finally:
            watcher.close()
        if events == READ:
            return READ
    return ready


def _ready(fileno: int, events: int) -> int:
    """The events that have come already."""
    poll = _poll()
    poll.register(fileno, (select.POLLIN if events & READ else 0) | (select.POLLOUT if events & WRITE else 0))
    ready = 0
    for _, found in poll.poll(0):
        ready |= WRITE if found & select.POLLOUT else 0
        ready |= READ if found & ~select.POLLOUT else 0
    return ready & events or (events if ready else 0)

"""Waiting for the server in a process that gevent has patched.

psycopg's own way, on gevent's `select.poll`, takes twice the processor time of this one for a short statement.
"""

from collections.abc import Generator
from typing import Any, TypeVar

from gevent import get_hub, monkey

T = TypeVar("T")


def is_patched() -> bool:
    """Whether gevent has patched this process."""
    return bool(monkey.is_module_patched("select"))


def run(generator: Generator[int, int, T], fileno: int) -> T:
    """The result of a generator of psycopg, which yields the events it waits for; other greenlets run meanwhile.

    psycopg and gevent's loop have the same numbers for them. It is told that all have come, when one has: psycopg then
    reads nothing, or waits again for its turn to write.
    """
    hub = get_hub()
    try:
        events = next(generator)
        while True:
            watcher: Any = hub.loop.io(fileno, events)
            try:
                hub.wait(watcher)
            finally:
                watcher.close()
            events = generator.send(events)
    except StopIteration as end:
        result: T = end.value
        return result

"""The common parts of commands that run until SIGTERM or Ctrl-C: their service, their stop, and their pauses."""

import signal
import time
from collections.abc import Callable
from types import FrameType

import click

from restkeeper.cli.common import service_of_app
from restkeeper.service import Service
from restkeeper.storage.errors import StoreUnavailable

GIVE_UP_SECONDS = 60.0  # for which the store may be missing at the start
LOOK_SECONDS = 0.1  # between two checks whether to stop


def stop_requested() -> Callable[[], bool]:
    """A function that returns whether SIGTERM or SIGINT has arrived since this call."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    return lambda: bool(received)


def service_in_time(is_stopping: Callable[[], bool], *, feature: str = "") -> Service:
    """The service, as soon as its store exists: a process that starts now may create it. Raises StoreUnavailable."""
    end, has_waited = time.monotonic() + GIVE_UP_SECONDS, False
    while True:
        try:
            return service_of_app(ends=False, feature=feature)
        except StoreUnavailable as problem:
            if is_stopping() or time.monotonic() > end:
                raise
            if not has_waited:
                click.echo(f"waiting: {problem}", err=True)
        has_waited = True
        time.sleep(LOOK_SECONDS)


def pause(seconds: float, is_stopping: Callable[[], bool]) -> None:
    """Wait for some seconds, or until `is_stopping`."""
    end = time.monotonic() + seconds
    while not is_stopping() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, LOOK_SECONDS))

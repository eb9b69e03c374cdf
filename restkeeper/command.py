"""The common parts of the commands: their service, errors of one line, progress bars, many changes, and signals."""

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import FrameType
from typing import Any, TypeVar

import click
from flask import current_app

from restkeeper.errors import Problem
from restkeeper.resources.call import CHANGE_SECONDS, of_program
from restkeeper.resources.changes import Unit
from restkeeper.service import Service, service_of
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import StoreError, StoreUnavailable
from restkeeper.web.errors import problem_of

T = TypeVar("T")
R = TypeVar("R")

MOST_FAILURES = 10  # that are listed
READ_AHEAD = 200  # entries that are read before a transaction begins
HOLD_SECONDS = 0.15  # of work in one transaction; with its commit, others wait for at most 0.25 s
PAUSE_SECONDS = 0.005  # between two transactions: other writers retry every half millisecond, and have their turn

GIVE_UP_SECONDS = 60.0  # for which the store may be missing at the start
LOOK_SECONDS = 0.1  # between two checks whether to stop


class Refused(click.ClickException):
    """The command cannot run with these arguments and this configuration."""

    exit_code = 2


class Command(click.Command):
    """A command that prints each expected error, in general as one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; raises click's own exceptions."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of the output has ended; click exits silently
        except (Problem, StoreError) as problem:
            raise click.ClickException(message_of(problem)) from None
        except OSError as error:
            message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise click.ClickException(message) from None


def service_of_app(*, creates: bool = False, ends: bool = True, indexed: bool = True) -> Service:
    """The service of a command. Raises Refused for a store that ends with its process.

    The store is opened at first use. Raises StoreUnavailable if there is none yet, unless the command `creates` it. A
    command that soon `ends` opens an existing one now, also on a full disk; `indexed` is as of `Store.open`.
    """
    service = service_of(current_app)
    if service.location.temporary:
        raise Refused(
            f"DATABASE_URL={service.location.name!r}: is deleted when the command ends; name a file, sqlite:///FILE"
        )
    if not creates:
        service.location.require()
        if ends:
            service.store.open(alone=True, indexed=indexed)
    return service


def message_of(problem: Problem | StoreError) -> str:
    """All details of a problem, in one line; of a refused conversion in one for each item."""
    if isinstance(problem, StoreUnavailable):
        return str(problem)  # with the reason, which is for the operator
    problem = problem_of(problem) if isinstance(problem, StoreError) else problem
    faults = [f"{fault['pointer']}: {fault['detail']}" for fault in problem.members.get("errors", ())]
    return "; ".join(faults) or str(problem)


def progress_bar(label: str, length: int) -> Any:
    """A progress bar, if stderr is a terminal."""
    hidden = not (length and sys.stderr.isatty())
    steps = length // 200 + 1
    return click.progressbar(length=length, label=label, hidden=hidden, file=sys.stderr, update_min_steps=steps)


def in_batches(
    service: Service,
    entries: Iterable[T],
    do: Callable[[Unit, T], R],
    ends: Callable[[R], bool] = lambda result: False,
) -> Iterator[list[R]]:
    """Call `do` with a unit and every entry, in transactions of HOLD_SECONDS; yields the results after each commit.

    A transaction also `ends` after a result for which this is true. It is done again if the store had to end it because
    of others, so `do` has no other effects. No entry is read inside of a transaction. Raises the errors of
    `Store.write`, also if others are in the way for CHANGE_SECONDS; earlier commits remain.
    """
    entries = iter(entries)
    waiting: list[T] = []

    def work(transaction: Transaction) -> list[R]:
        end, results = time.monotonic() + HOLD_SECONDS, []
        for entry in waiting:
            results.append(do(Unit(service.domain, transaction, of_program()), entry))
            if ends(results[-1]) or time.monotonic() >= end:
                break
        return results

    while waiting := list(islice(entries, READ_AHEAD)):
        while waiting:
            results = service.store.write(work, deadline=service.clock.monotonic() + CHANGE_SECONDS)
            del waiting[: len(results)]
            yield results
            time.sleep(PAUSE_SECONDS)


def stop_requested() -> Callable[[], bool]:
    """A function that returns whether SIGTERM or SIGINT has arrived since this call."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    return lambda: bool(received)


def service_in_time(is_stopping: Callable[[], bool]) -> Service:
    """The service, as soon as its store exists: a process that starts now may create it. Raises StoreUnavailable."""
    end, has_waited = time.monotonic() + GIVE_UP_SECONDS, False
    while True:
        try:
            return service_of_app(ends=False)
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
    while not is_stopping() and (remaining := end - time.monotonic()) > 0:
        time.sleep(min(remaining, LOOK_SECONDS))

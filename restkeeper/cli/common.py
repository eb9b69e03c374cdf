"""The common parts of the commands: their service, errors of one line, progress bars, and many changes in batches."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import click
from flask import current_app

from restkeeper.errors import Problem
from restkeeper.features.versions.older import OlderView
from restkeeper.resources.call import CHANGE_SECONDS, PROGRAM, of_program
from restkeeper.resources.changes import Unit
from restkeeper.resources.migration import ConversionRefused
from restkeeper.resources.views import View
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


def items_of(service: Service, name: str, version: str | None, revision: int | None = None) -> View:
    """A collection as a version of the API shows it, or in a revision; without one, as it is stored. Raises Refused."""
    served = [candidate.name for candidate in service.served]
    if name not in service.stored:
        raise Refused(f"there is no collection {name!r}; there are {', '.join(service.stored)}")
    if version not in (None, *served):
        raise Refused(f"there is no version {version!r}; there are {', '.join(served)}")
    stored = service.stored[name]
    if revision is not None and revision != stored.revision.number:
        try:
            return OlderView(stored, revision)
        except ValueError as error:
            raise Refused(f"--revision: {error}") from None
    return service.domain.views_of(stored, version).for_caller(PROGRAM) if version else stored


def service_of_app(*, creates: bool = False, ends: bool = True, indexed: bool = True, feature: str = "") -> Service:
    """The service of a command. Raises Refused if the `feature` of the command is not installed.

    Its store is opened at first use. Raises StoreUnavailable if there is none yet, unless the command `creates` it. A
    command that soon `ends` opens an existing one now, also on a full disk; `indexed` is as of `Store.open`.
    """
    service = service_of(current_app)
    if feature and feature not in service.features:
        raise Refused(f"this service has no {feature}: the feature {feature!r} is closed")
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
    if isinstance(problem, StoreUnavailable | ConversionRefused):
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

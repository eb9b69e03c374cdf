"""Many changes in short transactions with pauses, so that other writers need not wait long."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from restkeeper.storage.contract import Store, Transaction

T = TypeVar("T")
R = TypeVar("R")

READ_AHEAD = 200  # entries that are read before a transaction begins
HOLD_SECONDS = 0.15  # of work in one transaction; with its commit, others wait for at most 0.25 s
PAUSE_SECONDS = 0.005  # between two transactions: other writers retry every half millisecond, and have their turn


def in_batches(
    store: Store,
    entries: Iterable[T],
    each: Callable[[Transaction, T], R],
    *,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[list[R]]:
    """Call `each` with every entry, in transactions of HOLD_SECONDS; yields the results after each commit.

    No entry is read inside a transaction. Raises the errors of `Store.write`; earlier commits remain.
    """
    entries = iter(entries)
    waiting: deque[T] = deque()

    def work(transaction: Transaction) -> list[R]:
        end, done = now() + HOLD_SECONDS, []
        while waiting:
            done.append(each(transaction, waiting.popleft()))
            if now() >= end:
                break
        return done

    waiting.extend(islice(entries, READ_AHEAD))
    while waiting:
        yield store.write(work)
        pause(PAUSE_SECONDS)
        waiting.extend(islice(entries, READ_AHEAD - len(waiting)))

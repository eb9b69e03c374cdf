"""Many small changes without keeping others from writing: a transaction ends after a time, and the next one waits."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from restkeeper.storage.contract import Store, Transaction

T = TypeVar("T")
R = TypeVar("R")

READ_AHEAD = 200  # entries that are read before a transaction begins
HOLD_SECONDS = 0.15  # of work in one transaction; with its commit others wait for 0.25 at most
PAUSE_SECONDS = 0.005  # between two transactions: who waits asks again every half millisecond, and gets its turn


def in_batches(
    store: Store,
    entries: Iterable[T],
    each: Callable[[Transaction, T], R],
    *,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[list[R]]:
    """Do `each` with every entry, in transactions of HOLD_SECONDS; after each commit, what that returned.

    No entry is read inside a transaction. Raises what `Store.write` raises; what was committed stays.
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

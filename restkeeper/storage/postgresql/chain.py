"""Several changes as one statement, which is a transaction of its own: one round trip, planned and answered once.

Each change but the first has its rows from the one before (`WITH c0 AS (INSERT … RETURNING 1), c1 AS (INSERT … SELECT …
FROM c0 …)`). This orders them, because PostgreSQL executes the parts of a statement when their rows are needed; and if
the first finds nothing, the others change nothing. All see the moment at which the statement began, so none may depend
on what another one has written: each that writes has a table of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

Parameters = Mapping[str, Any] | Sequence[Any] | None

FROM, USING, COMMA = "/* FROM */", "/* USING */", "/* , */"  # where a change names the one before it


class Step(IntEnum):
    """The changes that one statement can make together, in their order. Their parameters are positional."""

    LIMIT = 0  # of the waits for locks
    CONDITION = 1  # that a record has this body
    LOCK = 2  # of an item, which it compares
    RESPONSE = 3
    ITEM = 4
    EVENT = 5
    COUNTER = 6


class Statement(NamedTuple):
    """A change. `done` is called with the number of its rows when that is known, and may raise an error.

    In a chain only that of the first is called, with the number of rows of the last: none has a row if one before it
    has none.
    """

    sql: str
    parameters: Parameters = None
    step: Step | None = None
    done: Callable[[int], None] | None = None


def chained(changes: Sequence[Statement]) -> Statement | None:
    """These changes as one that is its own transaction; None if that cannot be."""
    if len(changes) == 1:
        return changes[0]
    steps = [each.step for each in changes if each.step is not None]
    if not changes or len(steps) < len(changes) or steps != sorted(set(steps)):
        return None
    first = changes[steps[0] is Step.LIMIT]
    if any(each.done and each.step is not Step.RESPONSE for each in changes if each is not first):
        return None  # what was changed before it would be stored already; before a response nothing is changed
    values = [value for each in changes for value in each.parameters or ()]
    return Statement(_chain(tuple(each.sql for each in changes)), values, done=first.done)


@lru_cache(maxsize=64)  # combinations of steps: a service has about ten
def _chain(changes: tuple[str, ...]) -> str:
    *others, last = (_after(f"c{n - 1}", each) if n else each for n, each in enumerate(changes))
    named = ",\n".join(f"c{n} AS (\n{each}{_returning(each)})" for n, each in enumerate(others))
    return f"WITH\n{named}\n{last}"


def _after(before: str, change: str) -> str:
    return change.replace(FROM, f"FROM {before}").replace(USING, f"USING {before}").replace(COMMA, f", {before}")


def _returning(change: str) -> str:
    return "" if change.startswith("SELECT") else "\nRETURNING 1"

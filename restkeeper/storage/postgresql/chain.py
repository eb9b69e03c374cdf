"""Several changes as one statement: a database plans and answers it once.

Each change but the first has its row from the one before (`WITH c0 AS (INSERT … RETURNING 1), c1 AS (INSERT … SELECT …
FROM c0 …)`): this orders them, because PostgreSQL executes the parts of a statement when their rows are needed. All of
them see the moment at which the statement began, so a part must not depend on what another one has written: no two of
them are of the same kind.
"""

from collections.abc import Sequence
from functools import lru_cache

AFTER = "/* after */"  # where a change has its FROM clause; alone it has none


def can_be_chained(statements: Sequence[str]) -> bool:
    """Whether these changes can be one statement."""
    return len(set(statements)) == len(statements) > 1 and all(AFTER in each for each in statements)


@lru_cache(maxsize=64)  # combinations of changes: a create has three or four
def chained(statements: tuple[str, ...]) -> str:
    """The statement that makes these changes in order."""
    *parts, last = (each.replace(AFTER, f"FROM c{n - 1}" if n else "") for n, each in enumerate(statements))
    named = ",\n".join(f"c{n} AS (\n{part}\nRETURNING 1)" for n, part in enumerate(parts))
    return f"WITH\n{named}\n{last}"

"""Statements that wait to be sent to PostgreSQL, in the form that libpq understands."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import psycopg

from restkeeper.storage.errors import StoreError

Parameters = Mapping[str, Any] | Sequence[Any] | None

# A change that must find a row. If it finds none, the server raises an error, because what was sent after it, such as
# the COMMIT, shall not be executed. See `require_row`.
NO_ROW = "RK001"
_REQUIRED = """\
WITH changed AS (
{}
RETURNING 1)
SELECT require_row(count(*)) FROM changed"""


class Statement(NamedTuple):
    """A statement that waits to be sent. `refusal` is the error if it changes no row.

    `duplicate` makes the one of a unique value that another row has.
    """

    sql: str
    parameters: Parameters = None
    refusal: StoreError | None = None
    duplicate: Callable[[psycopg.Error], StoreError] | None = None


@lru_cache(maxsize=128)  # all that there are
def with_numbers(statement: str) -> tuple[bytes, list[str]]:
    """A statement as libpq understands it, with $1 for the first parameter, and the names of named ones in order."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        names.append(match[1])
        return f"${len(names)}"

    return re.sub(r"%%|%\((\w+)\)s|%s", number, statement).encode(), names


@lru_cache(maxsize=16)  # all that there are
def raising_without_row(statement: str) -> str:
    """See _REQUIRED. A query that locks rows has some without RETURNING."""
    required = _REQUIRED.format(statement)
    return required.replace("\nRETURNING 1", "") if statement.startswith("SELECT") else required

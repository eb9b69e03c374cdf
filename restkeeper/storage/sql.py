"""The dialect in which the modules that are written once speak to a database."""

import re
from collections.abc import Mapping
from typing import Any, Protocol

from restkeeper.storage.outbox import EventFilter

Row = tuple[Any, ...]


class Dialect:
    """Statements as a database understands them.

    `parameter` is how it writes a parameter, where they have `:name`. `parts` are what stands for the names in braces.
    """

    def __init__(self, parameter: str, **parts: str) -> None:
        self._parameter = parameter.format(r"\1")
        self._parts = parts
        self._known: dict[str, str] = {}

    def __call__(self, statement: str) -> str:
        if (known := self._known.get(statement)) is None:
            known = re.sub(r":(\w+)", self._parameter, statement).format_map(self._parts)
            self._known[statement] = known
        return known


class Database(Protocol):
    """A connection that executes statements of any dialect."""

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        """The rows of a statement. A list among the parameters is for a part of the dialect."""

    def change(self, statement: str, parameters: Mapping[str, Any]) -> None:
        """Make a change, now or before the next statement."""

    def parameters_of(self, filter: EventFilter) -> dict[str, Any]:
        """The parameters of the part `wanted`."""

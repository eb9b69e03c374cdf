"""The operations of a document."""

import re
from typing import NamedTuple

from restkeeper.contract.findings import Json, Place

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
IN_PATH = re.compile(r"\{[^{}]*\}")


class Operation(NamedTuple):
    """An operation with the item of its path, and what it is called in findings."""

    method: str
    path: str
    item: Json
    own: Json
    is_webhook: bool = False

    def place(self, part: str = "") -> Place:
        """A part of this operation."""
        return Place("webhook" if self.is_webhook else self.method.upper(), self.path, part)

    @property
    def named(self) -> tuple[str, str]:
        """What it is in findings, and its name."""
        return ("webhook", self.path) if self.is_webhook else ("operation", str(self.place()))


def operations_of(document: Json, part: str) -> dict[tuple[str, str], Operation]:
    """The operations of a part by path, without the names of its parameters, and method."""
    return {
        (IN_PATH.sub("{}", path), method): Operation(method, path, item, item[method], part == "webhooks")
        for path, item in document.get(part, {}).items()
        for method in METHODS
        if method in item
    }

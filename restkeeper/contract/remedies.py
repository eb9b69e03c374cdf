"""Remedies: how what a change is for is done without breaking a client."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from restkeeper.contract.decisions import SHARED
from restkeeper.contract.windows import DEPRECATE, Calendar, Step

WHOM = {
    "operation": "clients that call it",
    "collection": "clients that use it",
    "webhook": "endpoints that wait for it",
    "version": "all clients of the version",
}
_ARGUMENT = re.compile(r"\{(\w+)\}")


class Subject(NamedTuple):
    """What it is that changed: `name` of a `kind`, of a collection, in the component `schema` if it is in one."""

    kind: str
    name: str
    tag: str = ""
    schema: str = ""

    def __str__(self) -> str:
        of = f" of {self.schema}" if self.schema and self.kind == "field" else ""
        return f"{self.kind} {self.name}".strip() + of

    def whom(self, *, in_response: bool) -> str:
        """Which clients a change breaks."""
        reads = "clients that read it"
        sends = "clients that send it, whose requests are refused or mean something else"
        return WHOM.get(self.kind, reads if in_response else sends)


class Remedies(NamedTuple):
    """The remedies of a version, whose items are of these revisions, and which still has these operations."""

    version: str
    revisions: Mapping[str, int]
    operations: list[str]
    calendar: Calendar

    def remedy(self, subject: Subject, row: str, step: Step | None) -> str:
        """What to do instead of a change, or in the course of a deprecation."""
        if step and step.remedy != DEPRECATE:
            return step.remedy
        if step:
            days = (("since", self.calendar.today), ("sunset", self.calendar.earliest))
            dates = [f"{name}=date({day.year}, {day.month}, {day.day})" for name, day in days]
            declared = ", ".join([*self._deprecated(subject), *dates])
            return f"keep it, and deprecate it first: Deprecation({declared}); it may go after its sunset"
        if row in SHARED:
            return "leave it as it is: all versions share it, so that a new one does not help"
        kept = f"leave it as it is in {self.version}"
        if subject.kind in ("field", "schema"):
            revision = self.revisions.get(subject.tag, 1)
            shown = f"Version({self.version!r}, revisions={{{subject.tag!r}: {revision}}})"
            kept += f", and make the change in a new version: {shown} shows the items as of revision {revision}"
        return f"make it optional; or {kept}" if row.startswith("required") else kept

    def _deprecated(self, subject: Subject) -> Iterator[str]:
        """The arguments of a deprecation that say what it is of. The unversioned paths are deprecated as a whole."""
        method, _, path = subject.name.partition(" ")
        named = path if path.startswith("/api/") else f"/api/{self.version}{path}"
        if subject.kind == "operation" and named != path and f"{method} {named}" in self.operations:
            yield "version=''"
            return
        yield f"version={self.version!r}"
        if subject.kind == "operation":
            route = _ARGUMENT.sub(r"<\1>", named.removeprefix(f"/api/{self.version}"))  # as Flask has it
            stays = any(each.partition(" ")[2] == path for each in self.operations)
            yield f"path={route!r}" + (f", method={method!r}" if stays else "")
        elif subject.kind == "collection":
            yield f"path='/{subject.name}'"
        elif subject.kind == "field":
            yield f"field={f'{subject.tag}.{subject.name}'!r}"

"""Findings: what changed, whom it breaks, and how it is done without breaking a client.

A version, an operation or a field may go after its sunset, which was accepted long enough before.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import NamedTuple

from restkeeper.contract.decisions import SHARED, Severity
from restkeeper.contract.facts import Place

MOST = 3  # places, or subjects, that the text of a finding names; of the others it says how many they are
WINDOWED = {"version", "operation", "field"}
DEPRECATE = "deprecate"  # the remedy is a declaration
WHOM = {
    "operation": "clients that call it",
    "collection": "clients that use it",
    "webhook": "endpoints that wait for it",
    "version": "all clients of the version",
}
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ARGUMENT = re.compile(r"\{(\w+)\}")


class Calendar(NamedTuple):
    """The day of the check, and the fewest days from a deprecation's declaration to its sunset."""

    today: date
    window: int

    @property
    def earliest(self) -> date:
        """The earliest sunset that may be declared now."""
        return self.today + timedelta(days=self.window)


class Step(NamedTuple):
    """A step in the life of an element: what it means, what happened, and how it is done without breaking a client."""

    severity: Severity
    what: str
    remedy: str = ""


def day_of(text: str) -> date | None:
    """The day that a text such as 2027-06-01 names."""
    try:
        return date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


def removal(sunset: str | None, calendar: Calendar) -> Step:
    """The removal of an element with that accepted sunset: harmless after it. None is without a deprecation."""
    day = day_of(sunset or "")
    if not day:
        return Step(Severity.BREAKING, "removed, and it was not deprecated with a sunset", DEPRECATE)
    if day <= calendar.today:
        return Step(Severity.COMPATIBLE, f"removed after its sunset, {day}")
    days = (day - calendar.today).days
    what = f"removed {days} day{'s' * (days != 1)} before its sunset, {day}"
    return Step(Severity.BREAKING, what, f"keep it until {day}")


def marked(accepted: str | None, declared: str | None, calendar: Calendar) -> Step | None:
    """What changed in the deprecation of an element that stays."""
    later = f"declare a sunset at {calendar.earliest} or later: the window is {calendar.window} days"
    if accepted == declared:
        return None
    if declared is None:
        return Step(Severity.COMPATIBLE, "no longer deprecated")
    day, before = day_of(declared), day_of(accepted or "")
    if not day:
        return Step(Severity.BREAKING, f"deprecated without a day as its sunset: {declared!r}", later)
    if before and day < before:
        what = f"its sunset is {day} now, and {before} was accepted"
        return Step(Severity.BREAKING, what, f"leave the sunset at {before} or later")
    if before:
        return Step(Severity.COMPATIBLE, f"its sunset was moved from {before} to {day}")
    if day < calendar.earliest:
        days = (day - calendar.today).days
        what = f"its sunset {day} is {days} days away, and the window is {calendar.window}"
        return Step(Severity.BREAKING, what, later)
    return Step(Severity.COMPATIBLE, f"deprecated, with its sunset at {day}")


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


class Change(NamedTuple):
    """One change: of what, what happened to it, whom it breaks, and how it is made without that.

    `row` and `how` are those of the table of decisions. Changes of one `cause`, such as a field, are told together.
    """

    severity: Severity
    subject: Subject
    what: str
    whom: str
    remedy: str
    cause: str
    row: str
    how: str


class Finding(NamedTuple):
    """What happened to clients of a version by one cause: the first change, and others that are as severe."""

    version: str
    change: Change
    places: list[Place]
    others: list[Change]

    @property
    def severity(self) -> Severity:
        """Whether a client breaks."""
        return self.change.severity

    @property
    def headline(self) -> str:
        """What changed, in one line."""
        return f"{self.version}: {self.change.subject}: {self.change.what}"

    def paragraph(self) -> str:
        """What changed and where, whom it breaks and what to do instead."""
        lines = [
            f"{self.severity}: {self.headline}",
            *_listed("in ", [str(place) for place in self.places if any(place)]),
        ]
        also = [f"{each.subject}: {each.what}" for each in self.others if each.what != self.change.what]
        same = [str(each.subject) for each in self.others if each.what == self.change.what]
        lines += _listed("also ", [*dict.fromkeys(same), *dict.fromkeys(also)])
        if self.severity is not Severity.COMPATIBLE:
            whom = dict.fromkeys(each.whom for each in (self.change, *self.others))
            lines += [f"    breaks: {'; '.join(whom)}", f"    instead: {self.change.remedy}"]
        return "\n".join(lines)


def findings(version: str, changes: Iterable[tuple[Change, list[Place]]]) -> list[Finding]:
    """The findings, one for a cause, the most severe first."""
    places: dict[Change, dict[Place, None]] = {}
    causes: dict[str, dict[Change, None]] = {}
    for change, seen in changes:
        places.setdefault(change, {}).update(dict.fromkeys(seen))
        causes.setdefault(change.cause, {})[change] = None
    found = []
    for same in causes.values():
        worst = min(each.severity for each in same)
        worse = [each for each in same if each.severity is worst]
        first, *others = sorted(
            worse, key=lambda each: each.subject.kind == "parameter"
        )  # it changes as its field does
        found.append(Finding(version, first, sorted(places[first]), others))
    return sorted(found, key=lambda each: (each.severity, each.headline))


def _listed(word: str, texts: list[str]) -> Iterator[str]:
    """A line for each of the first texts, and one that says how many more there are."""
    yield from (f"    {word}{each}" for each in texts[:MOST])
    if more := len(texts[MOST:]):
        yield f"    {'and ' if word == 'in ' else ''}{word}{more} more"

"""Findings: changes of one cause together, as text for a person."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from restkeeper.contract.decisions import Severity
from restkeeper.contract.facts import Place
from restkeeper.contract.remedies import Subject

MOST = 3  # places, or subjects, that the text of a finding names; of the others it says how many they are


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

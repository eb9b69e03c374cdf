"""Findings: what changed, whom it breaks, and how it is done without breaking a client."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from restkeeper.contract.decisions import Severity

MOST = 3  # locations, or subjects, that the text of a finding names; of the others it says how many they are
WHOM = {
    "operation": "clients that call it",
    "collection": "clients that use it",
    "webhook": "endpoints that wait for it",
    "version": "all clients of the version",
}
READERS = "clients that read it"
SENDERS = "clients that send it, whose requests are refused or mean something else"


class Subject(NamedTuple):
    """What it is that changed: `name` of a `kind`, of a collection, in the component `schema` if it is in one."""

    kind: str
    name: str
    tag: str = ""
    schema: str = ""

    def __str__(self) -> str:
        of = f" of {self.schema}" if self.schema and self.kind == "field" else ""
        return f"{self.kind} {self.name}".strip() + of


class ContractChange(NamedTuple):
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
    change: ContractChange
    locations: list[str]
    others: list[ContractChange]

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
        lines = [f"{self.severity}: {self.headline}", *_listed("in ", self.locations)]
        also = [f"{each.subject}: {each.what}" for each in self.others if each.what != self.change.what]
        same = [str(each.subject) for each in self.others if each.what == self.change.what]
        lines += _listed("also ", [*dict.fromkeys(same), *dict.fromkeys(also)])
        if self.severity is not Severity.COMPATIBLE:
            whom = dict.fromkeys(each.whom for each in (self.change, *self.others))
            lines += [f"    breaks: {'; '.join(whom)}", f"    instead: {self.change.remedy}"]
        return "\n".join(lines)


def findings(version: str, changes: Iterable[tuple[ContractChange, str]]) -> list[Finding]:
    """The findings of changes and the locations where they are seen: one for a cause, the most severe first."""
    causes: dict[str, dict[ContractChange, set[str]]] = {}
    for change, location in changes:
        causes.setdefault(change.cause, {}).setdefault(change, set()).add(location)
    found = []
    for same in causes.values():
        worst = min(each.severity for each in same)
        worse = [each for each in same if each.severity is worst]
        first, *others = sorted(worse, key=lambda each: each.subject.kind == "parameter")  # it changes as its field
        found.append(Finding(version, first, sorted(same[first] - {""}), others))
    return sorted(found, key=lambda each: (each.severity, each.headline))


def _listed(word: str, texts: list[str]) -> Iterator[str]:
    """A line for each of the first texts, and one that says how many more there are."""
    yield from (f"    {word}{each}" for each in texts[:MOST])
    if more := len(texts[MOST:]):
        yield f"    {'and ' if word == 'in ' else ''}{word}{more} more"

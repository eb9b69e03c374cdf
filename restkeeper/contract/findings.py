"""What a comparison finds: changes of one place, and findings, which collect the places of the same change."""

from collections.abc import Iterable, Iterator
from enum import Enum, IntEnum
from typing import Any, NamedTuple

Json = dict[str, Any]

MOST = 3  # places, or subjects, that the text of a finding names; of the others it says how many they are


class Severity(IntEnum):
    """Whether a client breaks: it does, a person must decide, it does not."""

    BREAKING = 0
    JUDGE = 1
    COMPATIBLE = 2

    def __str__(self) -> str:
        return {0: "breaking", 1: "to judge", 2: "compatible"}[self.value]


class Direction(Enum):
    """Who writes what a schema describes: the client a request, the service a response."""

    REQUEST = "request"
    RESPONSE = "response"


class Effect(NamedTuple):
    """The severity of a change in each direction."""

    request: Severity
    response: Severity

    def of(self, direction: Direction) -> Severity:
        """The severity in that direction."""
        return self.request if direction is Direction.REQUEST else self.response


NARROWED = Effect(Severity.BREAKING, Severity.COMPATIBLE)  # fewer values are valid
WIDENED = Effect(Severity.COMPATIBLE, Severity.BREAKING)  # more values are valid
CHANGED = Effect(Severity.BREAKING, Severity.BREAKING)  # other values are valid
HARMLESS = Effect(Severity.COMPATIBLE, Severity.COMPATIBLE)
UNCLEAR = Effect(Severity.JUDGE, Severity.JUDGE)

NEW_VERSION = "new-version"
DEPRECATE = "deprecate"
LATER_SUNSET = "later-sunset"
OPTIONAL = "optional"
SHARED = "leave it as it is: all versions share it, so that a new one does not help"


class Change(NamedTuple):
    """One change: the rule's id in oasdiff's vocabulary, and what it is of.

    `subject` is "field", "parameter", …; `name` the field in dotted words, within the component `schema` if there is
    one. `remedy` is one of the constants above, `value` the value of an enumeration that it concerns.
    """

    id: str
    severity: Severity
    direction: Direction
    what: str
    subject: str
    name: str = ""
    schema: str = ""
    remedy: str = NEW_VERSION
    value: str = ""

    @property
    def step(self) -> str:
        """What changed, without the value that was deprecated."""
        return self.what.rpartition(": ")[2]


def change_of(id: str, effect: Effect, what: str, subject: str, name: str = "", remedy: str = NEW_VERSION) -> Change:
    """A change outside of schemas, whose effect does not depend on a direction."""
    return Change(id, effect.request, Direction.REQUEST, what, subject, name, remedy=remedy)


class Place(NamedTuple):
    """Where a change is seen: an operation and its part, such as "response 200"; or "webhook" and its event."""

    method: str = ""
    path: str = ""
    part: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, [f"{self.method} {self.path}".strip(), self.part]))


PlacedChange = tuple[Place, Change]


class Finding(NamedTuple):
    """A change with all places where it is seen, whom it breaks, and how it is done without that.

    Those of one `cause`, such as a field, are told together.
    """

    version: str
    change: Change
    places: tuple[Place, ...]
    whom: str
    remedy: str
    cause: str = ""

    @property
    def id(self) -> str:
        """The rule's id."""
        return self.change.id

    @property
    def severity(self) -> Severity:
        """Whether a client breaks."""
        return self.change.severity

    @property
    def headline(self) -> str:
        """What changed, in one line."""
        return f"{self.version}: {self.subject}: {self.change.what} ({self.id})"

    @property
    def subject(self) -> str:
        """What it is that changed."""
        change = self.change
        subject = " ".join(filter(None, [change.subject, change.name]))
        if change.schema and change.subject in ("body", "field", "value"):
            return f"{subject} of {change.schema}" if change.name else f"schema {change.schema}"
        return subject

    def lines(self) -> list[str]:
        """What changed and where, as text for a person."""
        places = [place for place in map(str, self.places) if place not in ("", self.change.name)]
        shown = [f"    in {place}" for place in places[:MOST]]
        more = len(places) - MOST
        shown += [f"    and in {more} more place{'s' * (more > 1)}"] if more > 0 else []
        return [self.headline, *shown]


def causes(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings of one cause together, a parameter last: it changes because its field does."""
    together: dict[tuple[Severity, str, str], list[Finding]] = {}
    for each in findings:
        together.setdefault((each.severity, each.version, each.cause or each.headline), []).append(each)
    return [sorted(same, key=lambda each: each.change.subject == "parameter") for same in together.values()]


def paragraphs(findings: Iterable[Finding]) -> Iterator[str]:
    """Findings as text for a person: one for each cause, with whom it breaks."""
    for same in causes(findings):
        first = same[0]
        lines = [f"{first.severity}: {first.lines()[0]}", *first.lines()[1:], *_also(first, same[1:])]
        if first.severity is not Severity.COMPATIBLE:
            whom = dict.fromkeys(each.whom for each in same)
            remedies = dict.fromkeys(each.remedy for each in same if each.change.subject == first.change.subject)
            lines += [f"    breaks: {'; '.join(whom)}", *(f"    instead: {each}" for each in remedies)]
        yield "\n".join(lines)


def _also(first: Finding, others: Iterable[Finding]) -> Iterator[str]:
    """A line for each other thing that happened, with what it happened to."""
    subjects: dict[str, dict[str, None]] = {}
    for each in others:
        what = f": {each.change.what} ({each.id})" if each.change.step != first.change.step else ""
        subjects.setdefault(what, {})[each.subject] = None
    for what, names in subjects.items():
        more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
        yield f"    also {', '.join([*names][:MOST])}{more}{what}"


def sorted_findings(findings: Iterable[Finding]) -> list[Finding]:
    """The most severe first, then in a stable order."""
    return sorted(findings, key=lambda each: (each.severity, each.version, each.places, each.change))

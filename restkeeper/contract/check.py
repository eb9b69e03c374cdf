"""The check of a version: its accepted document against the document that the service would serve.

A version, an operation or a field may go after its sunset, which was accepted long enough before.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from itertools import product
from typing import Any, NamedTuple

from restkeeper.contract.decisions import BOUNDS, OTHER, PRESENCE, SHARED, TABLE, WINDOWED, Severity
from restkeeper.contract.facts import Facts, Json, Key

UNCOUNTED = {*BOUNDS, "pattern", "multipleOf"}  # say nothing of a list of values
SAYS = {
    "never null": ("can no longer be null", "can be null"),
    "closed": ("fields that are not declared are forbidden now", "fields that are not declared are allowed now"),
    "choice": ("is one of several schemas now", "is no longer one of several schemas"),
}
DEPRECATE = "deprecate"  # the remedy is a declaration
# The name in a value: `name` in "-name", `note` in "note.created", `notes` in "notes:read" and in {"path": "/notes"}.
_HEAD = re.compile(r'(?:\{.*"/|"?-?)(\w*)')
_ARGUMENT = re.compile(r"\{(\w+)\}")
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
    """One change: its subject, what happened, which clients it breaks, and how it is made without breaking them.

    `row` and `how` are from the table of decisions. Changes of one `cause`, such as a field, are told together.
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
        also = [f"{change.subject}: {change.what}" for change in self.others if change.what != self.change.what]
        same = [str(change.subject) for change in self.others if change.what == self.change.what]
        lines += _listed("also ", [*dict.fromkeys(same), *dict.fromkeys(also)])
        if self.severity is not Severity.COMPATIBLE:
            whom = dict.fromkeys(change.whom for change in (self.change, *self.others))
            lines += [f"    breaks: {'; '.join(whom)}", f"    instead: {self.change.remedy}"]
        return "\n".join(lines)


class Judgement(NamedTuple):
    """A step in the life of an element: what it means, what happened, and how it is done without breaking a client."""

    severity: Severity
    what: str
    remedy: str = ""


def compare(
    version: str, accepted: Json | None, present: Json | None, *, today: date, window: int, moved: Iterable[str] = ()
) -> list[Finding]:
    """The findings of a version, one for each cause, the most severe first.

    `accepted` is None if it is new, `present` if the service no longer serves it. `window` is the fewest days from the
    declaration of a deprecation to its sunset. `moved` are versions that came or went. Raises ValueError for a document
    that has a reference to nothing.
    """
    if accepted is None:
        new = Subject("version", version), "added", "", "", "version", "version", "added"
        return [Finding(version, ContractChange(Severity.COMPATIBLE, *new), [], [])]
    before, after = Facts(accepted), Facts(present or accepted)
    if present is None:
        after.facts.clear()
    causes: dict[str, dict[ContractChange, set[str]]] = {}
    for change, location in _Comparison(version, before, after, today, window, {*moved}).changes():
        causes.setdefault(change.cause, {}).setdefault(change, set()).add(location)
    findings = []
    for changes in causes.values():
        worst = min(change.severity for change in changes)
        worse = [change for change in changes if change.severity is worst]
        change, *others = sorted(worse, key=lambda change: change.subject.kind == "parameter")  # fields come first
        findings.append(Finding(version, change, sorted(changes[change] - {""}), others))
    return sorted(findings, key=lambda finding: (finding.severity, finding.headline))


def _listed(word: str, texts: list[str]) -> Iterator[str]:
    """A line for each of the first texts, and one that says how many more there are."""
    yield from (f"    {word}{text}" for text in texts[:MOST])
    if more := len(texts[MOST:]):
        yield f"    {'and ' if word == 'in ' else ''}{word}{more} more"


class _Comparison:
    """The comparison of the facts of two documents of a version.

    A version, a collection or a field comes or goes with its parts, which are no changes of their own: its name in
    lists of values, the webhooks of a collection, the filters of a field.
    """

    def __init__(self, version: str, before: Facts, after: Facts, today: date, window: int, moved: set[str]) -> None:
        self._version, self._before, self._after = version, before, after
        self._today, self._window, self._earliest = today, window, today + timedelta(days=window)
        self._sides = {"removed": (before, after), "added": (after, before)}  # first the document that has the element
        self._moved = {how: moved | _only(*sides) for how, sides in self._sides.items()}

    def changes(self) -> Iterator[tuple[ContractChange, str]]:
        """All changes, each with a location. If an element came or went, there are no changes of its parts."""
        was, now = self._before.facts, self._after.facts
        keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
        keys.sort(key=lambda key: (key.component or key.holder, key))
        parts = {key.whole for key in keys if key.row in PRESENCE}
        for key in keys:
            element = key.whole if key.row in PRESENCE else None
            if not any(container in parts and container != element for container in key.above()):
                for change in self._of(key, was.get(key), now.get(key)):
                    yield change, ", ".join(filter(None, (key.holder, key.part)))

    def _of(self, key: Key, was: Any, now: Any) -> Iterator[ContractChange]:
        """The changes from a fact to another one; None for a fact that is not there."""
        row, how = key.row, "added" if was is None else "removed" if now is None else "changed"
        enums = [facts.get(key._replace(row="enum")) for facts in (self._before.facts, self._after.facts)]
        if row == "sunset":
            judged = self._marked(was, now)
            yield self._change(key, row, how, judged.what, judged)
        elif row in PRESENCE:
            yield from self._presence(key, how)
        elif row == "x-transitions":
            yield from self._values(key, *(_moves(moves, enums) for moves in (was, now)))
        elif isinstance(was, frozenset) and isinstance(now, frozenset):
            yield from self._values(key, was, now)
        elif row != "x-extensible" and not (row in UNCOUNTED and None not in enums):
            if f"{row} {how}" == "enum added" and key._replace(row="x-extensible") in self._after.facts:
                row = "enum of x-extensible"
            if how == "changed" and row in BOUNDS:
                how = "raised" if now > was else "lowered"
            yield self._change(key, row, how, _what(row, how, was, now))

    def _presence(self, key: Key, how: str) -> Iterator[ContractChange]:
        """A part was added or removed."""
        row, what, subject, judged = key.row, how, self._subject(key), None
        list_of_all = key._replace(name=key.name.rpartition("|")[0], row="x-extensible")
        if row == "component" or (row == "alternative" and key.in_response and list_of_all in self._before.facts):
            return  # what refers to the component tells it; clients ignore the alternative
        if row in ("webhook", "parameter") and _head(subject.name) in self._told(how, subject):
            return
        filtered = self._before.fields.get(subject.tag, {}) if row == "parameter" else {}
        if how == "removed" and row in WINDOWED:
            judged = self._removal(self._before.facts.get(key._replace(row="sunset")))
        elif how == "removed" and _head(subject.name) in filtered:  # with the field, which may stay as another one
            judged = self._removal(filtered[_head(subject.name)])
        elif how == "added" and key._replace(row="required") in self._after.facts and f"required {row}" in TABLE:
            row, what = f"required {row}", "added, and it is required"
        elif (
            f"{row} {how}" == "field added"
            and key._replace(name=key.name.rpartition(".")[0], row="") in self._before.open
        ):
            row, what = "field of an open object", "added, and any value was valid by this name"
        yield self._change(key, row, how, judged.what if judged else what, judged)

    def _values(self, key: Key, was: frozenset[str], now: frozenset[str]) -> Iterator[ContractChange]:
        """The values that a list no longer has, and its new ones."""
        subject = self._subject(key)
        is_open = key.row == "enum" and key._replace(row="x-extensible") in self._before.facts
        for how, side, values, says in (
            ("fewer", "removed", was - now, "no longer {}"),
            ("more", "added", now - was, "{}, too"),
        ):
            names = is_open or key.row == "then" or subject.kind == "parameter"
            told = self._told(side, subject) if names else set()
            if texts := sorted(value for value in values if _head(value) not in told):
                row = "enum of x-extensible" if is_open else key.row
                yield self._change(key, row, how, f"{key.row}: {says.format(', '.join(texts))}")

    def _told(self, how: str, subject: Subject) -> set[str]:
        """The names of versions and collections that came or went; for a parameter also names of fields."""
        one, other = (facts.fields.get(subject.tag, {}).keys() for facts in self._sides[how])
        return self._moved[how] | (one - other if subject.kind == "parameter" else set())

    def _subject(self, key: Key) -> Subject:
        """The subject of a fact, with its name in findings."""
        tag = (self._after.tags | self._before.tags).get(key.holder, "")
        words = key.part.split()
        if "parameter" in words or "header" in words:
            return Subject(words[-2], words[-1] + key.name, tag)
        if key.component:
            tag = (self._after.owners | self._before.owners)[key.component]
            return Subject("field" if key.name else "schema", key.name or key.component, tag, key.component)
        if key.row.endswith("status"):
            return Subject("status", words[1], tag)
        if words:
            return Subject("field" if key.name else "body", key.name, tag)
        if key.row == "operation" and tag in self._moved["added" if key in self._after.facts else "removed"]:
            return Subject("collection", tag, tag)
        kind = "version" if not key.holder else "webhook" if key.holder.startswith("webhook ") else "operation"
        return Subject(kind, key.holder.removeprefix("webhook ") or self._version, tag)

    def _change(self, key: Key, row: str, how: str, what: str, judged: Judgement | None = None) -> ContractChange:
        subject = self._subject(key)
        severity = judged.severity if judged else TABLE.get(row, OTHER)[how][key.in_response]
        field = re.split(r"[.\[*|]", subject.name)[0] if subject.kind in ("field", "parameter") else ""
        about = Subject("field", field, subject.tag) if judged and subject.kind == "parameter" else subject
        instead = self._remedy(about, row, judged)
        cause = f"{subject} {what}"
        if row == "sunset":
            cause = what
        elif field and (subject.kind == "field" or field in self._before.fields.get(subject.tag, ())):
            cause = f"{subject.tag}.{field}"
        elif subject.kind in ("operation", "webhook", "collection"):
            cause = f"{row} {instead if row in PRESENCE else what}"
        whom = WHOM.get(subject.kind, READERS if key.in_response else SENDERS)
        return ContractChange(severity, subject, what, whom, instead, cause, row, how)

    def _removal(self, sunset: str | None) -> Judgement:
        """The removal of an element with an accepted sunset, harmless after it; None if it was not deprecated."""
        day = _day_of(sunset)
        if not day:
            return Judgement(Severity.BREAKING, "removed, and it was not deprecated with a sunset", DEPRECATE)
        if day <= self._today:
            return Judgement(Severity.COMPATIBLE, f"removed after its sunset, {day}")
        days = (day - self._today).days
        what = f"removed {days} day{'s' * (days != 1)} before its sunset, {day}"
        return Judgement(Severity.BREAKING, what, f"keep it until {day}")

    def _marked(self, accepted: str | None, declared: str | None) -> Judgement:
        """The change in the deprecation of an element that stays."""
        later = f"declare a sunset at {self._earliest} or later: the window is {self._window} days"
        if declared is None:
            return Judgement(Severity.COMPATIBLE, "no longer deprecated")
        day, before = _day_of(declared), _day_of(accepted)
        if not day:
            return Judgement(Severity.BREAKING, f"deprecated without a day as its sunset: {declared!r}", later)
        if before and day < before:
            what = f"its sunset is {day} now, and {before} was accepted"
            return Judgement(Severity.BREAKING, what, f"leave the sunset at {before} or later")
        if before:
            return Judgement(Severity.COMPATIBLE, f"its sunset was moved from {before} to {day}")
        if day < self._earliest:
            days = (day - self._today).days
            what = f"its sunset {day} is {days} days away, and the window is {self._window}"
            return Judgement(Severity.BREAKING, what, later)
        return Judgement(Severity.COMPATIBLE, f"deprecated, with its sunset at {day}")

    def _remedy(self, subject: Subject, row: str, judged: Judgement | None) -> str:
        """What to do instead of a change, or in the course of a deprecation."""
        if judged and judged.remedy != DEPRECATE:
            return judged.remedy
        if judged:
            days = (("since", self._today), ("sunset", self._earliest))
            dates = [f"{name}=date({day.year}, {day.month}, {day.day})" for name, day in days]
            declared = ", ".join([*self._deprecated(subject), *dates])
            return f"keep it, and deprecate it first: Deprecation({declared}); it may go after its sunset"
        if row in SHARED:
            return "leave it as it is: all versions share it, so that a new one does not help"
        advice = f"leave it as it is in {self._version}"
        if subject.kind in ("field", "schema"):
            revision = (self._after.revisions | self._before.revisions).get(subject.tag, 1)
            example = f"Version({self._version!r}, revisions={{{subject.tag!r}: {revision}}})"
            advice += f", and make the change in a new version: {example} shows the items as of revision {revision}"
        return f"make it optional; or {advice}" if row.startswith("required") else advice

    def _deprecated(self, subject: Subject) -> Iterator[str]:
        """The arguments of a deprecation for its subject. The unversioned paths are deprecated as a whole."""
        method, _, path = subject.name.partition(" ")
        named = path if path.startswith("/api/") else f"/api/{self._version}{path}"
        if subject.kind == "operation" and named != path and f"{method} {named}" in self._after.tags:
            yield "version=''"
            return
        yield f"version={self._version!r}"
        if subject.kind == "operation":
            route = _ARGUMENT.sub(r"<\1>", named.removeprefix(f"/api/{self._version}"))  # as Flask has it
            stays = any(operation.partition(" ")[2] == path for operation in self._after.tags)
            yield f"path={route!r}" + (f", method={method!r}" if stays else "")
        elif subject.kind == "collection":
            yield f"path='/{subject.name}'"
        elif subject.kind == "field":
            yield f"field={f'{subject.tag}.{subject.name}'!r}"


def _only(one: Facts, other: Facts) -> set[str]:
    """The names of collections that only one document has, and the names of their items in webhooks."""
    tags = {*one.tags.values()} - {*other.tags.values()}
    parts = [key for key in one.facts if key.row == "component"]
    components = {key.component for key in parts if key.is_shown and one.tags[key.holder] in tags}
    sent = [key.holder for key in parts if key.component in components and key.holder.startswith("webhook ")]
    return tags | {_head(holder.removeprefix("webhook ")) for holder in sent}


def _day_of(sunset: str | None) -> date | None:
    """The day that a text such as 2027-06-01 names."""
    try:
        return date.fromisoformat(sunset or "")
    except ValueError:
        return None


def _moves(moves: frozenset[tuple[str, str]] | None, enums: list[Any]) -> frozenset[str]:
    """The moves of a lifecycle between the states that both documents have; without one all are possible."""
    states = (enums[0] or frozenset()) & (enums[1] or frozenset())
    possible = product(states, states) if moves is None else moves
    return frozenset(f"{old} → {new}" for old, new in possible if old != new and {old, new} <= states)


def _what(row: str, how: str, was: Any, now: Any) -> str:
    """What happened to a fact, as text for a person."""
    if row in SAYS:
        return SAYS[row][how == "removed"]
    if was is True or now is True:
        return f"is {row} now" if now else f"is no longer {row}"
    before, after = (", ".join(sorted(fact)) if isinstance(fact, frozenset) else fact for fact in (was, now))
    if how == "added":
        return f"{row} is {after} now, and there was none"
    if how == "removed":
        return f"{row} was {before}, and there is none now"
    return f"{row} changed from {before} to {after}"


def _head(value: str) -> str:
    return match[1] if (match := _HEAD.match(value)) else ""

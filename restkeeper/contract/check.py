"""The check of a version: its accepted document against the one that the service would serve."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import product
from typing import Any

from restkeeper.contract.decisions import BOUNDS, OTHER, PRESENCE, TABLE, Severity
from restkeeper.contract.facts import RESPONSE, Facts, Json, Key, Place
from restkeeper.contract.findings import (
    WINDOWED,
    Calendar,
    Change,
    Finding,
    Remedies,
    Step,
    Subject,
    findings,
    marked,
    removal,
)

UNCOUNTED = BOUNDS | {"pattern", "multipleOf"}  # say nothing of a list of values
SAYS = {
    "never null": ("can no longer be null", "can be null"),
    "closed": ("fields that are not declared are forbidden now", "fields that are not declared are allowed now"),
    "choice": ("is one of several schemas now", "is no longer one of several schemas"),
}
_HEAD = re.compile(r'"?-?(\w*)')  # of a value: of "-name" a field, of "note.created" and "notes:read" what it is of


def compare(
    version: str, accepted: Json, present: Json | None, *, today: date, window: int, moved: Iterable[str] = ()
) -> list[Finding]:
    """The findings of a version, the most severe first; `present` is None if the service no longer serves it.

    `window` is the fewest days from the declaration of a deprecation to its sunset. `moved` are versions that came or
    went. Raises ValueError for a document that has a reference to nothing.
    """
    before, after = Facts(accepted), Facts(present or accepted)
    if present is None:
        after.facts.clear()
    return findings(version, _Comparison(version, before, after, Calendar(today, window), {*moved}).changes())


def added(version: str) -> Finding:
    """The finding of a version that is served and was not accepted before."""
    change = Change(Severity.COMPATIBLE, Subject("version", version), "added", "", "", "version", "version", "added")
    return Finding(version, change, [], [])


class _Comparison:
    """The comparison of the facts of two documents of a version.

    What came or went with a version, a collection or a field is told with that: its name in lists of values, the
    webhooks of a collection, the filters of a field.
    """

    def __init__(self, version: str, before: Facts, after: Facts, calendar: Calendar, moved: set[str]) -> None:
        self._version, self._before, self._after, self._calendar = version, before, after, calendar
        self._remedies = Remedies(version, after.revisions | before.revisions, [*after.tags], calendar)
        self._tags = after.tags | before.tags
        self._moved = {how: moved | _only(*each) for how, each in _by_side(before, after).items()}
        self._fields = {
            (how, tag): one.fields.get(tag, set()) - other.fields.get(tag, set())
            for how, (one, other) in _by_side(before, after).items()
            for tag in {*self._tags.values()}
        }

    def changes(self) -> Iterator[tuple[Change, list[Place]]]:
        """All changes, each with the places where it is seen."""
        was, now = self._before.facts, self._after.facts
        keys = [key for key in sorted({**was, **now}) if was.get(key) != now.get(key)]
        parts = {key[:2] for key in keys if key.row in PRESENCE}
        for key in keys:
            above = {*key.above()} - ({key[:2]} if key.row in PRESENCE else set())
            places = [key.place]
            if key.place.is_component:  # one that only one document has is told by what refers to it
                places = self._before.places.get(key.place, []) if key.place in self._after.places else []
            if places and not parts & above:
                yield from ((change, places) for change in self._of(key, was.get(key), now.get(key), places))

    def _of(self, key: Key, was: Any, now: Any, places: list[Place]) -> Iterator[Change]:
        """The changes from a fact to another one; None is what is not there."""
        row, how = key.row, "added" if was is None else "removed" if now is None else "changed"
        tag = Counter(self._tags.get(each.holder, "") for each in places).most_common(1)[0][0]
        subject = _subject(key, places[0], tag, self._version)
        enums = [facts.get(key._replace(row="enum")) for facts in (self._before.facts, self._after.facts)]
        if row == "sunset":
            if step := marked(was, now, self._calendar):
                yield self._change(key, subject, row, how, step.what, step)
        elif row in PRESENCE:
            yield from self._presence(key, subject, how)
        elif row == "x-transitions":
            yield from self._values(key, subject, *(_moves(moves, enums) for moves in (was, now)))
        elif isinstance(was, frozenset) and isinstance(now, frozenset):
            yield from self._values(key, subject, was, now)
        elif row != "x-extensible" and not (row in UNCOUNTED and None not in enums):
            if how == "changed" and row in BOUNDS:
                how = "raised" if now > was else "lowered"
            yield self._change(key, subject, row, how, _what(row, how, was, now))

    def _presence(self, key: Key, subject: Subject, how: str) -> Iterator[Change]:
        """A part was added or removed."""
        row, what, step = key.row, how, None
        whole = key._replace(name=key.name.rpartition("|")[0], row="x-extensible")
        if row == "alternative" and key.place.direction == RESPONSE and whole in self._before.facts:
            return  # clients ignore it
        if row in ("webhook", "parameter") and _head(subject.name) in self._told(how, subject):
            return
        if row in WINDOWED and how == "removed":
            step = removal(self._before.facts.get(key._replace(row="sunset")), self._calendar)
        elif (
            row == "parameter" and how == "removed" and _head(subject.name) in self._before.fields.get(subject.tag, ())
        ):
            step = removal(self._field_sunset(subject), self._calendar)
        elif how == "added" and key._replace(row="required") in self._after.facts and f"required {row}" in TABLE:
            row, what = f"required {row}", "added, and it is required"
        if row == "operation" and subject.tag in self._moved[how]:
            subject = subject._replace(kind="collection", name=subject.tag)
        yield self._change(key, subject, row, how, step.what if step else what, step)

    def _field_sunset(self, filter: Subject) -> str | None:
        """The accepted sunset of the field of a filter: with it the filter goes, too, though the field may stay."""
        holders, name = self._before.shown.get(filter.tag, set()), _head(filter.name)
        sunsets = (
            fact
            for key, fact in self._before.facts.items()
            if (key.row, key.name) == ("sunset", name) and key.place.holder in holders
        )
        return next(sunsets, None)

    def _values(self, key: Key, subject: Subject, was: frozenset[Any], now: frozenset[Any]) -> Iterator[Change]:
        """The values of a list that are no longer in it, and those that are new."""
        is_open = key.row == "enum" and key._replace(row="x-extensible") in self._before.facts
        row = "enum of x-extensible" if is_open else key.row
        for how, side, values, says in (
            ("fewer", "removed", was - now, "no longer {}"),
            ("more", "added", now - was, "{}, too"),
        ):
            told = self._told(side, subject) if is_open or subject.kind == "parameter" else set()
            if left := [each for each in values if isinstance(each, tuple) or _head(each) not in told]:
                listed = ", ".join(sorted(" → ".join(each) if isinstance(each, tuple) else each for each in left))
                yield self._change(key, subject, row, how, f"{key.row}: {says.format(listed)}")

    def _told(self, how: str, subject: Subject) -> set[str]:
        """The names that came or went as something else: versions, collections; of a parameter also fields."""
        return self._moved[how] | (self._fields[how, subject.tag] if subject.kind == "parameter" else set())

    def _change(self, key: Key, subject: Subject, row: str, how: str, what: str, step: Step | None = None) -> Change:
        in_response = key.place.direction == RESPONSE
        severity = step.severity if step else TABLE.get(row, OTHER)[how][in_response]
        field = re.split(r"[.\[*|]", subject.name)[0] if subject.kind in ("field", "parameter") else ""
        is_filter = step and subject.kind == "parameter"
        instead = self._remedies.remedy(Subject("field", field, subject.tag) if is_filter else subject, row, step)
        cause = f"{subject} {what}"
        if row == "sunset":
            cause = what
        elif field and (subject.kind == "field" or field in self._before.fields.get(subject.tag, ())):
            cause = f"{subject.tag}.{field}"
        elif subject.kind in ("operation", "webhook", "collection"):
            cause = f"{row} {instead if row in PRESENCE else what}"
        return Change(severity, subject, what, subject.whom(in_response=in_response), instead, cause, row, how)


def _by_side(before: Facts, after: Facts) -> dict[str, tuple[Facts, Facts]]:
    """The document that has what was removed, and that which has what was added; each with the other one."""
    return {"removed": (before, after), "added": (after, before)}


def _only(one: Facts, other: Facts) -> set[str]:
    """The names of collections that only one document has, and those of their items in the names of webhooks."""
    tags = {*one.tags.values()} - {*other.tags.values()}
    shown = {name for tag in tags for name in one.shown.get(tag, ())}
    holders = {key.place.holder for key, fact in one.facts.items() if key.row == "$ref" and fact in shown}
    return tags | {_head(each.removeprefix("webhook ")) for each in holders if each.startswith("webhook ")}


def _subject(key: Key, place: Place, tag: str, version: str) -> Subject:
    """What a fact is about, as it is called in findings."""
    words = place.part.split()
    if "parameter" in words or "header" in words:
        return Subject(words[-2], words[-1] + key.name, tag)
    if key.place.is_component:
        name = key.place.holder
        return Subject("field", key.name, tag, name) if key.name else Subject("schema", name, tag, name)
    if key.row.endswith("status"):
        return Subject("status", words[1], tag)
    if words:
        return Subject("field" if key.name else "body", key.name, tag)
    kind = "version" if not place.holder else "webhook" if place.holder.startswith("webhook ") else "operation"
    return Subject(kind, place.holder.removeprefix("webhook ") or version, tag)


def _moves(moves: frozenset[tuple[str, str]] | None, enums: list[Any]) -> frozenset[tuple[str, str]]:
    """The moves of a lifecycle between the states that both documents have; without one all are possible."""
    states = (enums[0] or frozenset()) & (enums[1] or frozenset())
    possible = product(states, states) if moves is None else moves
    return frozenset((old, new) for old, new in possible if old != new and {old, new} <= states)


def _what(row: str, how: str, was: Any, now: Any) -> str:
    """What happened to a fact, as text for a person."""
    if row in SAYS:
        return SAYS[row][how == "removed"]
    if was is True or now is True:
        return f"is {row} now" if now else f"is no longer {row}"
    before, after = (", ".join(sorted(each)) if isinstance(each, frozenset) else each for each in (was, now))
    if how == "added":
        return f"{row} is {after} now, and there was none"
    return (
        f"{row} was {before}, and there is none now" if how == "removed" else f"{row} changed from {before} to {after}"
    )


def _head(value: str) -> str:
    found = _HEAD.match(value)
    return found[1] if found else ""

"""Remedies: how what a change is for is done without breaking a client."""

import re
from collections.abc import Iterator, Mapping
from os.path import commonprefix
from typing import NamedTuple

from restkeeper.contract.findings import (
    DEPRECATE,
    LATER_SUNSET,
    NEW_VERSION,
    OPTIONAL,
    Change,
    Json,
    Place,
    Severity,
)
from restkeeper.contract.windows import Calendar

_OF_FIELDS = ("fields", "sort")  # parameters whose values are names of fields
_ARGUMENT = re.compile(r"\{(\w+)\}")
_PREFIX = re.compile(r"^/api/v\d+/")


class Remedies(NamedTuple):
    """The remedies of a version, whose items have these fields and are those of these revisions, by collection.

    Of the accepted `fields` those that there still are, are `present`. What went without a deprecation is `gone`.
    """

    version: str
    fields: frozenset[str]
    present: frozenset[str]
    gone: frozenset[str]
    revisions: Mapping[str, int]
    calendar: Calendar

    def remedy(self, change: Change, places: tuple[Place, ...]) -> str:
        """How a change is made without breaking a client."""
        collection = _collection(change.schema, places)
        if all(place.part != "path parameter" for place in places):
            change = self._of_field(change)
        if change.remedy == DEPRECATE and change.subject not in ("value", "parameter"):
            declared = ", ".join([*self._deprecated(change, places, collection), *self._days()])
            return f"keep it, and deprecate it first: Deprecation({declared}); it may go after its sunset"
        if change.remedy == LATER_SUNSET:
            earliest, window = self.calendar.earliest, self.calendar.window
            return f"declare a sunset at {earliest} or later: the window is {window} days"
        kept = self._kept(change, collection)
        remedies = {NEW_VERSION: kept, DEPRECATE: kept, OPTIONAL: f"make it optional; or {kept}"}
        return remedies.get(change.remedy, change.remedy)

    def cause(self, change: Change, places: tuple[Place, ...], remedy: str) -> str:
        """What changes of one cause have in common: a field, or else how they are made without breaking a client."""
        name = change.name.partition("[")[0]
        if change.subject == "parameter" and name in _OF_FIELDS:
            name = change.value.strip('"-')
        if name in self.fields and (change.subject != "value" or change.step == change.what):
            return f"{_collection(change.schema, places)}.{name}"
        if change.severity is not Severity.COMPATIBLE:
            return remedy
        is_marked = change.step.startswith(("deprecated", "its sunset"))
        return change.step if is_marked else f"{change.subject} {change.step}"

    def _kept(self, change: Change, collection: str) -> str:
        kept = f"leave it as it is in {self.version}"
        if change.subject not in ("field", "value", "body"):
            return kept
        revision = self.revisions.get(collection, 1)
        shown = f"Version({self.version!r}, revisions={{{collection!r}: {revision}}})"
        return f"{kept}, and make the change in a new version: {shown} shows the items as of revision {revision}"

    def _of_field(self, change: Change) -> Change:
        """The change of the field itself, for one of its filters, or of its name among those to sort by or to show."""
        parameter = change.name.partition("[")[0]
        field = change.value.strip('"-') if parameter in _OF_FIELDS else parameter
        if change.subject != "parameter" or field not in self.fields or change.remedy not in (DEPRECATE, NEW_VERSION):
            return change
        is_gone = change.remedy == DEPRECATE or parameter in _OF_FIELDS
        return change._replace(subject="field", name=field, remedy=DEPRECATE if is_gone else NEW_VERSION)

    def _deprecated(self, change: Change, places: tuple[Place, ...], collection: str) -> Iterator[str]:
        """The arguments of a deprecation that say what it is of. The unversioned paths are deprecated as a whole."""
        prefix, (method, path, _) = f"/api/{self.version}/", places[0]
        if change.subject == "operation" and not path.startswith(prefix):
            path = f"{prefix[:-1]}{path}"
            if f"{method} {path}" not in self.gone:
                yield "version=''"
                return
        yield f"version={self.version!r}"
        if change.subject == "field":
            yield f"field={f'{collection}.{change.name}'!r}"
        if change.subject == "operation":
            route = _ARGUMENT.sub(r"<\1>", path.removeprefix(prefix[:-1]))  # as Flask has it
            yield f"path={route!r}" + (f", method={method!r}" if change.id.startswith("api-removed") else "")

    def _days(self) -> Iterator[str]:
        for name, day in (("since", self.calendar.today), ("sunset", self.calendar.earliest)):
            yield f"{name}=date({day.year}, {day.month}, {day.day})"


def fields_of(document: Json) -> frozenset[str]:
    """The names of the fields of all schemas."""
    schemas: Json = document.get("components", {}).get("schemas", {})
    return frozenset(name for each in schemas.values() for name in each.get("properties", {}))


def _collection(schema: str, places: tuple[Place, ...]) -> str:
    """The collection that a change concerns: of those in the paths, the one that the schema's name is most like."""
    named = [_PREFIX.sub("/", place.path).split("/")[1] for place in places if place.path.startswith("/")]
    return max(named, key=lambda each: len(commonprefix([each, schema.lower()])), default="COLLECTION")

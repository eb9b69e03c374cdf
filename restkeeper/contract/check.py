"""The check of a version: its accepted document against the one that the service would serve."""

import re
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import chain
from os.path import commonprefix

from restkeeper.contract.findings import (
    DEPRECATE,
    LATER_SUNSET,
    NEW_VERSION,
    OPTIONAL,
    Change,
    Direction,
    Finding,
    Json,
    Place,
    Severity,
    sorted_findings,
)
from restkeeper.contract.operations import Comparison
from restkeeper.contract.windows import VERSION, Calendar, Step, marks, removal

PREVIEW = "preview"
_OF_FIELDS = ("fields", "sort")  # parameters whose values are names of fields
_ARGUMENT = re.compile(r"\{(\w+)\}")
_PREFIX = re.compile(r"^/api/v\d+/")

WHOM = {
    "operation": "clients that call it",
    "webhook": "endpoints that wait for it",
    "parameter": "clients that send it",
    "header": "clients that read it",
    "security": "clients whose credentials do not meet it",
    "security scheme": "clients that authenticate by it",
    "version": "all clients of the version",
}


def compare(version: str, accepted: Json, present: Json | None, *, today: date, window: int) -> list[Finding]:
    """The findings of a version, the most severe first; `present` is None if the service no longer serves it.

    `window` is the fewest days from the declaration of a deprecation to its sunset. Nothing was promised to the
    clients of a preview. Raises ValueError for a document that has a reference to nothing.
    """
    calendar = Calendar(today, window)
    places: dict[Change, dict[Place, None]] = {}
    seen = Comparison(accepted, present, calendar).seen() if present else ()
    for place, change in chain(_of_version(version, accepted, present, calendar), seen):
        if _state(accepted).get("state") == PREVIEW:
            change = change._replace(severity=Severity.COMPATIBLE)
        places.setdefault(change, {})[place] = None
    fields = _fields(accepted)
    findings = [_finding(version, change, tuple(sorted(each)), fields, calendar) for change, each in places.items()]
    return sorted_findings(findings)


def _fields(document: Json) -> frozenset[str]:
    """The names of the fields of all schemas."""
    schemas: Json = document.get("components", {}).get("schemas", {})
    return frozenset(name for each in schemas.values() for name in each.get("properties", {}))


def _state(document: Json) -> Json:
    """The state of a version as its document has it."""
    state: Json = document.get("info", {}).get("x-version", {})
    return state


def _of_version(
    version: str, accepted: Json, present: Json | None, calendar: Calendar
) -> Iterator[tuple[Place, Change]]:
    """The steps in the life of the whole version."""

    def marked(document: Json) -> Json:
        sunset = _state(document).get("sunset") or ""
        return {"deprecated": bool(sunset), "x-sunset": sunset}

    steps: Iterable[Step] = [removal(marked(accepted), VERSION, calendar)]
    if present is not None:
        steps = marks(marked(accepted), marked(present), VERSION, calendar)
    for step in steps:
        change = Change(step.id, step.effect.request, Direction.REQUEST, step.what, "version", version)
        yield Place(), change._replace(remedy=step.remedy)


def _finding(
    version: str, change: Change, places: tuple[Place, ...], fields: frozenset[str], calendar: Calendar
) -> Finding:
    collection = _collection(change.schema, places)
    remedy = _remedy(version, _of_field(change, fields), places, collection, calendar)
    return Finding(version, change, places, _whom(change), remedy)


def _of_field(change: Change, fields: frozenset[str]) -> Change:
    """The change of the field itself, for one of its filters, or of its name among those to sort by or to show."""
    parameter = change.name.partition("[")[0]
    field = change.value.strip('"-') if parameter in _OF_FIELDS else parameter
    if change.subject != "parameter" or field not in fields or change.remedy not in (DEPRECATE, NEW_VERSION):
        return change
    is_gone = change.remedy == DEPRECATE or parameter in _OF_FIELDS
    return change._replace(subject="field", name=field, remedy=DEPRECATE if is_gone else NEW_VERSION)


def _whom(change: Change) -> str:
    if change.subject in WHOM:
        return WHOM[change.subject]
    if change.direction is Direction.RESPONSE:
        return "clients that read it"
    return "clients that send it: their requests are refused, or mean something else"


def _collection(schema: str, places: tuple[Place, ...]) -> str:
    """The collection that a change concerns: of those in the paths, the one that the schema's name is most like."""
    named = [_PREFIX.sub("/", place.path).split("/")[1] for place in places if place.path.startswith("/")]
    return max(named, key=lambda each: len(commonprefix([each, schema.lower()])), default="COLLECTION")


def _remedy(version: str, change: Change, places: tuple[Place, ...], collection: str, calendar: Calendar) -> str:
    """How it is done without breaking a client."""
    if change.remedy == DEPRECATE:
        declared = ", ".join([*_deprecated(version, change, places, collection), *_days(calendar)])
        return f"keep it, and deprecate it first: Deprecation({declared}); it may go after its sunset"
    if change.remedy == LATER_SUNSET:
        return f"declare a sunset at {calendar.earliest} or later: the window is {calendar.window} days"
    kept = f"leave it as it is in {version}"
    if change.subject in ("field", "value", "body"):
        revision = f"Version({version!r}, revisions={{{collection!r}: 1}})"
        kept += f", and make the change in a new version: {revision} shows the items as of revision 1"
    return {NEW_VERSION: kept, OPTIONAL: f"make it optional; or {kept}"}.get(change.remedy, change.remedy)


def _deprecated(version: str, change: Change, places: tuple[Place, ...], collection: str) -> Iterator[str]:
    """The arguments of a deprecation that say what it is of. The unversioned paths are deprecated as a whole."""
    prefix = f"/api/{version}/"
    if change.subject == "operation" and not places[0].path.startswith(prefix):
        yield "version=''"
        return
    yield f"version={version!r}"
    if change.subject in ("field", "value"):
        yield f"field={f'{collection}.{change.name}'!r}"
    if change.subject == "value":
        yield f"value={change.value.strip(chr(34))!r}"
    if change.subject == "parameter":
        yield f"parameter={f'{collection}.{change.name}'!r}"
    if change.subject == "operation":
        path = _ARGUMENT.sub(r"<\1>", places[0].path.removeprefix(prefix[:-1]))  # as a route has it
        yield f"path={path!r}, method={places[0].method!r}"


def _days(calendar: Calendar) -> Iterator[str]:
    for name, day in (("since", calendar.today), ("sunset", calendar.earliest)):
        yield f"{name}=date({day.year}, {day.month}, {day.day})"

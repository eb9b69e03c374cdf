"""The check of a version: its accepted document against the one that the service would serve."""

from collections.abc import Iterable, Iterator
from datetime import date
from itertools import chain

from restkeeper.contract.findings import (
    DEPRECATE,
    HARMLESS,
    Change,
    Direction,
    Finding,
    Json,
    Place,
    PlacedChange,
    change_of,
    sorted_findings,
)
from restkeeper.contract.operations import Comparison
from restkeeper.contract.remedies import Remedies, fields_of
from restkeeper.contract.windows import VERSION, Calendar, Step, marks, removal

WHOM = {
    "operation": "clients that call it",
    "webhook": "endpoints that wait for it",
    "header": "clients that read it",
    "security": "clients whose credentials do not meet it",
    "ownership of": "clients that read or change items of other callers",
    "security scheme": "clients that authenticate by it",
    "version": "all clients of the version",
    "queries": "clients of these dialects",
}


def compare(version: str, accepted: Json, present: Json | None, *, today: date, window: int) -> list[Finding]:
    """The findings of a version, the most severe first; `present` is None if the service no longer serves it.

    `window` is the fewest days from the declaration of a deprecation to its sunset. Raises ValueError for a document
    that has a reference to nothing.
    """
    calendar = Calendar(today, window)
    changes = Comparison(accepted, present, calendar).changes() if present else ()
    places: dict[Change, dict[Place, None]] = {}
    for place, change in chain(_of_version(version, accepted, present, calendar), changes):
        places.setdefault(change, {})[place] = None
    revisions = _state(present or {}).get("revisions", {}) | _state(accepted).get("revisions", {})
    gone = frozenset(change.name for change in places if change.remedy == DEPRECATE)
    remedies = Remedies(version, fields_of(accepted), fields_of(present or {}), gone, revisions, calendar)
    return sorted_findings(_finding(remedies, change, tuple(sorted(each))) for change, each in places.items())


def added(version: str) -> Finding:
    """The finding of a version that is served and was not accepted before."""
    return Finding(version, change_of("version-added", HARMLESS, "added", "version", version), (Place(),), "", "")


def _finding(remedies: Remedies, change: Change, places: tuple[Place, ...]) -> Finding:
    remedy = remedies.remedy(change, places)
    return Finding(remedies.version, change, places, _whom(change), remedy, remedies.cause(change, places, remedy))


def _state(document: Json) -> Json:
    """The state of a version as its document has it."""
    state: Json = document.get("info", {}).get("x-version", {})
    return state


def _of_version(version: str, accepted: Json, present: Json | None, calendar: Calendar) -> Iterator[PlacedChange]:
    """The steps in the life of the whole version."""

    def marked(document: Json) -> Json:
        sunset = _state(document).get("sunset") or ""
        return {"deprecated": bool(sunset), "x-sunset": sunset}

    steps: Iterable[Step] = [removal(marked(accepted), VERSION, calendar)]
    if present is not None:
        steps = marks(marked(accepted), marked(present), VERSION, calendar)
    for step in steps:
        yield Place(), step.change("version", version)


def _whom(change: Change) -> str:
    if change.subject in WHOM:
        return WHOM[change.subject]
    if change.direction is Direction.RESPONSE:
        return "clients that read it"
    return "clients that send it, whose requests are refused or mean something else"

"""Windows: an element may go after its sunset, which was accepted long enough before."""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import NamedTuple

from restkeeper.contract.findings import CHANGED, DEPRECATE, HARMLESS, LATER_SUNSET, Change, Effect, Json, change_of

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Calendar(NamedTuple):
    """The day of the check, and the fewest days from a deprecation's declaration to its sunset."""

    today: date
    window: int

    @property
    def earliest(self) -> date:
        """The earliest sunset that may be declared now."""
        return self.today + timedelta(days=self.window)

    def is_over(self, sunset: str) -> bool:
        """Whether that day has come. Raises ValueError for a text that is no day."""
        return self.today >= day_of(sunset)


def day_of(text: str) -> date:
    """The day that a text such as 2027-06-01 names. Raises ValueError for any other form."""
    if not _DAY.fullmatch(text):
        raise ValueError(f"{text!r} is no day")
    return date.fromisoformat(text)


class Rules(NamedTuple):
    """The ids of a kind of elements. `late` is of a removal after the sunset, `early` of one before it."""

    with_sunset: str
    without_sunset: str
    invalid: str
    near: str
    deleted: str
    earlier: str
    later: str
    reactivated: str
    removed: str
    early: str
    late: str


class Step(NamedTuple):
    """A step in the life of an element, as a change has it."""

    id: str
    effect: Effect
    what: str
    remedy: str

    def change(self, subject: str, name: str = "") -> Change:
        """The change of that element."""
        return change_of(self.id, self.effect, self.what, subject, name, self.remedy)


def rules_of(prefix: str, **others: str) -> Rules:
    """The ids of elements with this prefix, which follow one pattern; `others` do not."""
    usual = Rules(
        with_sunset="deprecated-with-sunset",
        without_sunset="deprecated-sunset-missing",
        invalid="deprecated-sunset-invalid",
        near="sunset-date-too-small",
        deleted="sunset-deleted",
        earlier="sunset-date-changed-too-small",
        later="sunset-date-changed",
        reactivated="reactivated",
        removed="removed",
        early="removed-before-sunset",
        late="removed-with-deprecation",
    )
    return Rules(*(f"{prefix}-{each}" for each in usual))._replace(**others)


ENDPOINT = rules_of(
    "api",
    with_sunset="endpoint-deprecated-with-sunset",
    invalid="api-deprecated-sunset-parse",
    deleted="sunset-deleted",
    reactivated="endpoint-reactivated",
    removed="api-removed-without-deprecation",
)
PATH = ENDPOINT._replace(
    removed="api-path-removed-without-deprecation",
    early="api-path-removed-before-sunset",
    late="api-path-removed-with-deprecation",
    invalid="api-path-sunset-parse",
)
PARAMETER = rules_of(
    "request-parameter", with_sunset="request-parameter-deprecated", invalid="request-parameter-sunset-parse"
)
WEBHOOK = rules_of("webhook")
VERSION = rules_of("version")


def removal(element: Json, rules: Rules, calendar: Calendar) -> Step:
    """The removal of an accepted element: harmless after its sunset."""
    sunset = str(element.get("x-sunset", ""))
    if not (element.get("deprecated") and sunset):
        return Step(rules.removed, CHANGED, "removed, and it was not deprecated with a sunset", DEPRECATE)
    try:
        over = calendar.is_over(sunset)
    except ValueError:
        return Step(rules.invalid, CHANGED, f"removed, and its sunset {sunset!r} is no day", DEPRECATE)
    if over:
        return Step(rules.late, HARMLESS, f"removed after its sunset, {sunset}", "")
    days = (day_of(sunset) - calendar.today).days
    what = f"removed {days} day{'s' * (days != 1)} before its sunset, {sunset}"
    return Step(rules.early, CHANGED, what, f"keep it until {sunset}")


def marks(before: Json, after: Json, rules: Rules, calendar: Calendar) -> Iterator[Step]:
    """What changed in the deprecation of an element that stays."""
    was, now = bool(before.get("deprecated")), bool(after.get("deprecated"))
    accepted, declared = (str(each.get("x-sunset", "")) for each in (before, after))
    if not now:
        yield from [Step(rules.reactivated, HARMLESS, "no longer deprecated", "")] if was else []
    elif was and accepted and not declared:
        yield Step(rules.deleted, CHANGED, f"still deprecated, but its sunset {accepted} is gone", LATER_SUNSET)
    elif (was, accepted) != (now, declared):
        yield _declared(accepted if was else "", declared, rules, calendar)


def _declared(accepted: str, declared: str, rules: Rules, calendar: Calendar) -> Step:
    """A sunset that is new, or another one than was accepted."""
    if not declared:
        return Step(rules.without_sunset, CHANGED, "deprecated without a sunset", LATER_SUNSET)
    try:
        day = day_of(declared)
        before = day_of(accepted) if accepted else None
    except ValueError:
        return Step(rules.invalid, CHANGED, f"deprecated with {declared!r}, which is no day", LATER_SUNSET)
    if before and day < before:
        what = f"its sunset is {declared} now, and {accepted} was accepted"
        return Step(rules.earlier, CHANGED, what, f"leave the sunset at {accepted} or later")
    if before:
        return Step(rules.later, HARMLESS, f"its sunset was moved from {accepted} to {declared}", "")
    if day < calendar.earliest:
        days = (day - calendar.today).days
        what = f"its sunset {declared} is {days} days away, and the window is {calendar.window}"
        return Step(rules.near, CHANGED, what, LATER_SUNSET)
    return Step(rules.with_sunset, HARMLESS, f"deprecated, with its sunset at {declared}", "")

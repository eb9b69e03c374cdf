"""Windows: a version, an operation or a field may go after its sunset, which was accepted long enough before."""

import re
from datetime import date, timedelta
from typing import NamedTuple

from restkeeper.contract.decisions import Severity

WINDOWED = {"version", "operation", "field"}
DEPRECATE = "deprecate"  # the remedy is a declaration
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


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

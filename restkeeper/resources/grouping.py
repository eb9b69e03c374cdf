"""The query parameters of groups of items: `count`, `aggregate[…]` and `timezone`."""

import re
from collections.abc import Collection, Sequence
from functools import lru_cache, partial
from zoneinfo import available_timezones

from restkeeper.resources.parameters import AGGREGATES, Queryable, Reader, require_once
from restkeeper.storage.interface import DATE_PARTS, Aggregate, GroupBy, Groups, Kind, field_in

SUMS = ("sum", "avg")  # of AGGREGATES, the functions of numbers alone
MOST_COUNTED = 3  # names in `count`
MOST_AGGREGATED = 3  # fields in all of AGGREGATES

_PART = re.compile(rf"({'|'.join(DATE_PARTS)})\((.*)\)")


def groups_in(reader: Reader, queryable: Queryable, parameters: Sequence[str]) -> Groups:
    """The groups that these parameters ask for."""
    zone = reader.one("timezone", _zone, "") if "timezone" in parameters else ""
    by = reader.joined("count", partial(_by, queryable=queryable, zone=zone), ()) if "count" in parameters else ()
    dated = [field_in(queryable.fields, group.field) for group in by if group.part]
    if "timezone" in parameters and not any(field and field.kind in (Kind.TIME, Kind.JSON) for field in dated):
        reader.fault("timezone", "goes with a part of a time, such as count=month(created_at)")
    aggregates = list[Aggregate]()
    for parameter, function in AGGREGATES.items():
        choices = queryable.numbers if function in SUMS else queryable.sortable
        fields = reader.joined(parameter, partial(_aggregated, choices=choices, queryable=queryable), ())
        aggregates += [Aggregate(function, field) for field in fields]
    if len({aggregate.field for aggregate in aggregates}) > MOST_AGGREGATED:
        reader.fault("aggregate", f"is limited to {MOST_AGGREGATED} fields")
    for name in ("limit", "offset", "cursor", "sort", "fields", "embed"):
        if name in reader.args:
            reader.fault(name, f"does not go with {parameters[0]}, which has no pages")
    return Groups(by, tuple(aggregates))


def _by(text: str, queryable: Queryable, zone: str) -> tuple[GroupBy, ...]:
    groups = []
    for name in text.split(","):
        part, field = parts.groups() if (parts := _PART.fullmatch(name)) else ("", name)
        around = (f"{part}(", ")") if part else ("", "")
        queryable.require(field, queryable.dated if part else queryable.sortable, *around)
        groups.append(GroupBy(field, part, zone if part else ""))
    require_once(groups)
    if len(groups) > MOST_COUNTED:
        raise ValueError(f"has at most {MOST_COUNTED} names")
    return tuple(groups)


def _aggregated(text: str, choices: Collection[str], queryable: Queryable) -> tuple[str, ...]:
    names = text.split(",")
    for name in names:
        queryable.require(name, choices)
    require_once(names)
    return tuple(names)


def _zone(text: str) -> str:
    """A time zone. Raises ValueError for another one, and for a name that can also be an abbreviation, such as CET."""
    if text == "UTC":
        return ""
    if "/" not in text or text not in _zones():
        raise ValueError("must be the name of a time zone, such as Europe/Berlin, or UTC")
    return text


_zones = lru_cache(1)(available_timezones)  # some milliseconds

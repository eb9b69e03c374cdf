"""Groups of items in a response, and as functions of a service get them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from restkeeper import exactjson
from restkeeper.errors import InvalidQuery
from restkeeper.exactjson import JsonObject
from restkeeper.resources.views import StoredView
from restkeeper.storage.interface import Group, Groups, Kind

MOST_GROUPS = 1000


def shown_groups(
    stored: StoredView, asked: Groups | None, query: Groups | None, found: Sequence[Group]
) -> list[JsonObject]:
    """The groups that were `found` by a query, with the names of fields as they were asked for.

    Raises InvalidQuery for more than MOST_GROUPS, and for a sum that is no number of JSON.
    """
    if len(found) > MOST_GROUPS:
        raise refused("count", f"is limited to {MOST_GROUPS:,} groups, and here are more: add filters")
    asked, (by, aggregates) = asked or Groups(), query or Groups()
    makes = [_make(stored, each.field) for each in by]
    if asked.is_plain:
        return [{"value": makes[0](*each.values), "count": each.items} for each in found]
    of_results = [_make(stored, each.field) for each in aggregates]
    shown = []
    for each in found:
        values = zip(asked.by, makes, each.values, strict=True)
        group: JsonObject = {"group": {str(by): make(value) for by, make, value in values}, "count": each.items}
        for aggregate, make, result in zip(asked.aggregates, of_results, each.aggregates, strict=True):
            group.setdefault(aggregate.function, {})[aggregate.field] = make(result)
        shown.append(group)
    try:
        exactjson.require_numbers(shown)
    except exactjson.EncodeError:
        raise refused("aggregate[sum]", "is beyond the range of numbers: add filters") from None
    return shown


def refused(parameter: str, detail: str) -> InvalidQuery:
    """The error for a parameter."""
    return InvalidQuery(f"{parameter} {detail}", errors=[{"parameter": parameter, "detail": detail}])


def _make(stored: StoredView, field: str) -> Callable[[Any], Any]:
    """What makes a value of a field as items show it of one of the store."""
    makes: Mapping[Kind, Callable[[Any], Any]] = {Kind.BOOLEAN: bool, Kind.SERIAL: stored.resource.public_id}
    make = makes.get(stored.collection.field(field).kind)
    return (lambda value: value if value is None else make(value)) if make else lambda value: value

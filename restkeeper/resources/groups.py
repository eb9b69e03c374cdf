"""Groups of items in a response, and as functions of a service get them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from restkeeper import exactjson
from restkeeper.exactjson import JsonObject
from restkeeper.resources.parameters import refused
from restkeeper.resources.queries import MOST_GROUPS
from restkeeper.resources.views import StoredView
from restkeeper.storage.interface import Group, Groups, Kind


def shown_groups(
    stored: StoredView, asked: Groups | None, query: Groups | None, rows: Sequence[Group]
) -> list[JsonObject]:
    """The groups of a query, by the `rows` of the store, with the names of fields as they were asked for.

    Raises InvalidQuery for more than MOST_GROUPS, and for a sum that is no number of JSON.
    """
    if len(rows) > MOST_GROUPS:
        raise refused("count", f"is limited to {MOST_GROUPS:,} groups, and here are more: add filters")
    asked, (by, aggregates) = asked or Groups(), query or Groups()
    makes = [_make(stored, group_by.field) for group_by in by]
    if asked.is_plain:
        return [{"value": makes[0](*group.values), "count": group.items} for group in rows]
    of_results = [_make(stored, aggregate.field) for aggregate in aggregates]
    groups = []
    for row in rows:
        values = zip(asked.by, makes, row.values, strict=True)
        group: JsonObject = {"group": {str(by): make(value) for by, make, value in values}, "count": row.items}
        for aggregate, make, result in zip(asked.aggregates, of_results, row.aggregates, strict=True):
            group.setdefault(aggregate.function, {})[aggregate.field] = make(result)
        groups.append(group)
    try:
        exactjson.require_numbers(groups)
    except exactjson.EncodeError:
        raise refused("aggregate[sum]", "is beyond the range of numbers: add filters") from None
    return groups


def _make(stored: StoredView, field: str) -> Callable[[Any], Any]:
    """The function that makes a value of a field, as items show it, from a value of the store."""
    makes: Mapping[Kind, Callable[[Any], Any]] = {Kind.BOOLEAN: bool, Kind.SERIAL: stored.resource.public_id}
    make = makes.get(stored.collection.field(field).kind)
    return (lambda value: value if value is None else make(value)) if make else lambda value: value

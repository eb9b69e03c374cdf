"""An item by the values of a unique index instead of its id, so that it is changed, or created if there is none."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from restkeeper.exactjson import JsonObject
from restkeeper.resources.filters import filters_of
from restkeeper.resources.parameters import Reader
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import View
from restkeeper.storage.base import Transaction
from restkeeper.storage.interface import Query, Record

Names = tuple[str, ...]


def known_unique(resource: Resource, view: View) -> list[Names]:
    """The fields of the unique indexes, as callers know them, without indexes with a field that they do not know."""
    declared = [[view.names_of(field) for field in index.fields] for index in resource.indexes if index.unique]
    fields = view.queryable.fields
    return [tuple(n for (n,) in index) for index in declared if all(len(ns) == 1 and ns[0] in fields for ns in index)]


def unique_fields(resource: Resource, view: View, fields: Iterable[str]) -> Names:
    """The unique index with these fields, as callers know them. Raises ValueError if there is none."""
    indexes = known_unique(resource, view)
    names = next((index for index in indexes if {*index} == {*fields}), None)
    if names is None:
        choices = " or ".join(map(",".join, indexes))
        raise ValueError(f"must have the fields of a unique index: {choices}" if indexes else "needs a unique index")
    return names


def query_of_unique(view: View, names: Names, sent: JsonObject) -> Query | None:
    """The query of the item that has the values in `sent` of these fields.

    It is None if one of them is missing, null, or no value of its field: then no item has them.
    """
    values: dict[str, list[Any]] = {name: [sent.get(name)] for name in names}
    if not all(isinstance(value, str | int | float | Decimal) for (value,) in values.values()):
        return None
    reader = Reader(values)
    filters = filters_of(reader, view.queryable)
    return None if reader.faults else view.query(Query(filters, limit=1))


def find_unique(transaction: Transaction, collection: str, query: Query | None) -> Record | None:
    """The item of a query by unique fields, if there is one. Nobody else changes the collection until the end."""
    if query is None:
        return None
    transaction.lock_collection(collection)
    ids = transaction.find(collection, query, 1)
    return transaction.read(collection, ids[0]) if ids else None

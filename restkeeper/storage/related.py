"""Records of several collections, found by values of their fields in one statement."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from restkeeper.storage.interface import POSITION, Collection, Query, Record, Related
from restkeeper.storage.plans import Plan
from restkeeper.storage.queries import conditions, order_of, parameters
from restkeeper.storage.sql import Database, literal, require_revision

# A row as of `Column.related_rows`, of version 0, if the items are of another revision.
_DIFFERING = """\
SELECT DISTINCT {number}, '""', '', 0, '', CAST(revision AS text), '', NULL, NULL
FROM counters WHERE collection = {collection} AND revision <> {revision}"""


def find_related(
    database: Database, collections: Mapping[str, Collection], requests: Sequence[Related], max_bytes: int
) -> list[tuple[int, str | int, Record]]:
    """See `base.Store.related`."""
    parts, values, placeholder = list[str](), dict[str, Any](), database.columns.parameter.format
    for n, request in enumerate(requests):
        kind, collection = database.columns, collections[request.collection]
        column = kind.of(collection, request.field)
        query = kind.exact(collection, Query(request.filters, owners=request.owners))
        where = conditions(collection, query, kind, Plan(frozenset(), by_owners=True), f"r{n}_")
        where += f" AND {column.condition(request.query.filters[0], column.json_value)}"
        values |= parameters(collection, query, kind, f"r{n}_")
        values[f"values{n}"] = [orjson.dumps(value).decode() for value in request.values]
        # "+": not by the index of all items
        order, source = f"+{POSITION}" if request.in_order else "id DESC", "items WHERE {}"
        if request.sort:
            keys = [(kind.of(collection, key.field).order, key.descending) for key in order_of(request.query)]
            order = ", ".join(f"{key}{' DESC' * is_down}" for key, is_down in keys)
            source = kind.unsorted_items
        terms = {"source": source.format(where), "order": order, "most": request.most}
        parts.append(column.related_rows.format(number=n, values=placeholder(f"values{n}"), **terms))
        if request.field != "id":  # by which an item shows its revision itself
            name = literal(request.collection)
            parts.append(_DIFFERING.format(number=n, collection=name, revision=collection.revision))
    records, size = list[tuple[int, str | int, Record]](), 0
    for number, value, *row in database.records("\nUNION ALL\n".join(parts), values, max_bytes):
        record = Record._make(row)
        if not record.version:
            require_revision(collections[requests[number].collection], int(record.fingerprint))
        records.append((number, orjson.loads(value), record))
        size += len(record.body) + len(record.removed_fields or b"")
        if size > max_bytes:
            break
    return records

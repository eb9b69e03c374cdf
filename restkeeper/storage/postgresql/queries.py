"""Queries in PostgreSQL.

The declared indexes are partial, so the name of the collection is a literal. Limits are literals, too: a statement is
planned once, and the plan for a page is good only if its length is known.
"""

import sys
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from restkeeper.storage.interface import Collection, Field, Filter, Kind, Op, Page, Query, Scalar, Sort
from restkeeper.storage.postgresql.dialect import clean
from restkeeper.storage.postgresql.expressions import BEGINNING, PostgresColumn, in_row, is_long, type_of
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.queries import conditions, groups, order_of, outline, page_of
from restkeeper.storage.sql import change_token, literal, select_other_fingerprints

HIGHEST = 400  # decimal exponents beyond those of any stored number

_TESTS = {Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<=", Op.STARTS: "starts with"}

_INFINITY = Decimal("Infinity")
_LONG = "x" * BEGINNING


class SortKey(NamedTuple):
    """An expression of an order, and the kind of its value."""

    expression: str
    kind: Kind
    descending: bool


def find_page(session: Session, collection: Collection, query: Query, max_bytes: int | None) -> Page:
    """See `interface.ItemStore.page`: one statement, which reads at most one row more."""
    statement, parameters = select_page(collection, query)
    found = session.rows(statement, {**parameters, "most_bytes": sys.maxsize if max_bytes is None else max_bytes})
    epoch, changes, items, others, *_ = found[0]
    total = None if query.narrows else items or 0
    page = page_of((row[4:] for row in found if row[4] is not None), query, max_bytes, _plain)
    return page._replace(change_token=change_token(epoch, changes or 0), total=total, others=others)


def _plain(key: Any) -> Any:
    """A sort key of a position. A double has all digits of the numbers in items; null is below all."""
    if not isinstance(key, Decimal):
        return key
    if not key.is_finite():
        return None
    return int(key) if key == key.to_integral_value() and abs(key) < 2**63 else float(key)


def select_page(collection: Collection, query: Query) -> tuple[str, dict[str, Any]]:
    """The statement of a page, and its parameters without `most_bytes`. It returns one row more than the limit.

    Each row has the epoch, and the collection's changes and items; the `others`; then id, fingerprint, body,
    removed, and the sort keys without the id. There is one row at least, with nulls if the page is empty. The last row
    is the first that exceeds `most_bytes`, or the second one.
    """
    keys = _sort_keys(collection, query.sort, query.backward)
    parameters = _parameters(collection, query)
    if query.offset:
        parameters["offset"] = query.offset
    for n, (key, value) in enumerate(zip(keys, query.after, strict=False)):
        if isinstance(value, str) and n < len(keys) - 1:  # another kind of store has all of a text in its positions
            value = value[:BEGINNING]
        parameters[f"a{n}"] = _comparable(key.kind, value)
    outlined = outline(query, _length, limit=query.limit, offset=min(query.offset, 1))
    return _page_statement(collection, outlined), parameters


def _length(filter: Filter) -> str | None:
    """What a statement depends on of the value of a filter."""
    return _LONG if is_long(filter) else None


@lru_cache(maxsize=64)  # combinations of filters, sort and limit
def _page_statement(collection: Collection, query: Query) -> str:
    keys = _sort_keys(collection, query.sort, query.backward)
    names = [f"k{n}" for n in range(len(keys) - 1)]
    terms = "".join(f",\n            {key.expression} AS {name}" for key, name in zip(keys, names, strict=False))
    order = ", ".join(
        f"{name}{' DESC' if key.descending else ''}" for key, name in zip(keys, [*names, "id"], strict=True)
    )
    where = conditions(collection, query, PostgresColumn) + (f" AND {_beyond(keys)}" if query.after else "")
    shown = "".join(f",\n        {name}" for name in names)
    limit = "ALL" if query.limit is None else query.limit + 1
    others = select_other_fingerprints(collection) if query.uses_fields else ""
    offset = " OFFSET %(offset)s" if query.offset else ""
    return f"""\
SELECT
    (SELECT epoch FROM store),
    state.changes,
    state.items,
    ARRAY({others or "SELECT '' WHERE false"}),
    page.*
FROM (
    SELECT sum(changes)::bigint AS changes, sum(items)::bigint AS items
    FROM counters WHERE collection = {literal(collection.name)}
) AS state LEFT JOIN LATERAL (
    SELECT
        id,
        fingerprint,
        convert_to(body, 'UTF8') AS body,
        convert_to(removed, 'UTF8') AS removed{shown}
    FROM (
        SELECT
            *,
            sum(size) OVER in_order - size AS before,
            row_number() OVER in_order AS number
        FROM (
            SELECT
                id,
                fingerprint,
                body,
                removed,
                octet_length(body) + coalesce(octet_length(removed), 0) AS size{terms}
            FROM items
            WHERE {where}
            ORDER BY {order}
            LIMIT {limit}{offset}
        ) AS chosen
        WINDOW in_order AS (ORDER BY {order} ROWS UNBOUNDED PRECEDING)
    ) AS measured
    WHERE before <= %(most_bytes)s OR number = 2
    ORDER BY {order}
) AS page ON true"""  # noqa: S608 - declared names only


def select_count(collection: Collection, query: Query) -> tuple[str, dict[str, Any]]:
    """The statement that counts the items of a query, and its parameters without `most`; null means all."""
    counted = Query(query.filters, query.search, owner=query.owner)
    return _count_statement(collection, outline(counted, _length)), _parameters(collection, query)


def select_ids(collection: Collection, query: Query) -> tuple[str, dict[str, Any]]:
    """The statement of the ids of a query, and its parameters without `limit`."""
    where = conditions(collection, outline(query, _length), PostgresColumn)
    return f"SELECT id FROM items WHERE {where} LIMIT %(limit)s", _parameters(collection, query)  # noqa: S608 - likewise


@lru_cache(maxsize=64)
def _count_statement(collection: Collection, query: Query) -> str:
    counted = f"SELECT 1 FROM items WHERE {conditions(collection, query, PostgresColumn)} LIMIT %(most)s"  # noqa: S608
    return f"SELECT count(*) FROM ({counted}) AS counted"  # noqa: S608 - likewise


def count_groups(session: Session, collection: Collection, query: Query, most: int) -> list[tuple[Any, int]]:
    """See `interface.ItemStore.groups`."""
    parameters = {**_parameters(collection, query), "most": most}
    return [(_plain(value), n) for value, n in session.rows(groups(collection, query, PostgresColumn), parameters)]


@lru_cache(maxsize=64)
def _sort_keys(collection: Collection, sort: tuple[Sort, ...], backward: bool) -> list[SortKey]:
    """The sort keys, the id last; reversed for a backward query."""
    columns = [
        (PostgresColumn.of(collection, each.field), each) for each in order_of(Query(sort=sort, backward=backward))
    ]
    return [SortKey(column.order, column.field.kind, each.descending) for column, each in columns]


def _beyond(keys: list[SortKey]) -> str:
    """The condition for rows after the position, whose values are the parameters a0, a1 …"""
    names = [f"%(a{n})s::{type_of(key.kind)}" for n, key in enumerate(keys)]
    if len({key.descending for key in keys}) == 1:
        sign = "<" if keys[0].descending else ">"
        return f"{in_row(key.expression for key in keys)} {sign} {in_row(names)}"
    condition = ""
    for key, name in reversed(list(zip(keys, names, strict=True))):
        sign = "<" if key.descending else ">"
        tied = f" OR ({key.expression} = {name} AND {condition})" if condition else ""
        condition = f"({key.expression} {sign} {name}{tied})"
    sign = "<=" if keys[0].descending else ">="
    return f"{keys[0].expression} {sign} {names[0]} AND {condition}"  # the first part is a range of the index


def _parameters(collection: Collection, query: Query) -> dict[str, Any]:
    values = {f"f{n}": _parameter(collection.field(each.field), each) for n, each in enumerate(query.filters)}
    if query.owner is not None:
        values["owner"] = clean(query.owner)
    return values | {"search": clean(query.search.casefold())} if query.search else values


def _parameter(field: Field, filter: Filter) -> Any:
    """A filter's value as a parameter."""
    kind = field.kind
    if field.is_many:
        return clean(_json_path(filter))
    if filter.op is Op.LIKE:
        return clean(str(filter.value).casefold())
    if isinstance(filter.value, tuple):
        return [_comparable(kind, each) for each in filter.value]
    return _comparable(kind, filter.value)


def _json_path(filter: Filter) -> str:
    """The test of the values of a field that can have several, as a JSON path. It does not look into their arrays."""
    given = filter.value if isinstance(filter.value, tuple) else (filter.value,)
    values = [str(each) if isinstance(each, Decimal) else orjson.dumps(each).decode() for each in given]
    if filter.op is Op.IS:
        test = "@ != null"
    elif filter.op in _TESTS:
        test = f"@ {_TESTS[filter.op]} {values[0]}"
    else:
        test = " || ".join(f"@ == {each}" for each in values) or "1 == 0"
    return f"strict $[*] ? ({test})"


def _comparable(kind: Kind, value: Scalar | float) -> str | Decimal:
    """A value as a parameter of a kind. A value of another kind, which a client made up, is below or above all."""
    if type_of(kind) == "text":
        return clean(value) if isinstance(value, str) else "" if value is None else str(value)
    if isinstance(value, str):
        return _INFINITY
    if value is None:
        return -_INFINITY
    number = value if isinstance(value, Decimal) else Decimal(repr(value) if isinstance(value, float) else int(value))
    if not number.is_finite() or not number:
        return number
    if number.adjusted() > HIGHEST:
        return _INFINITY.copy_sign(number)
    return number if number.adjusted() > -HIGHEST else Decimal((number.is_signed(), (1,), -HIGHEST))

"""Queries in PostgreSQL.

The declared indexes are partial, so the name of the collection is a literal. Limits are literals, too: a statement is
planned once, and the plan for a page is good only if its length is known.
"""

import sys
from functools import lru_cache
from typing import Any

from restkeeper.storage.interface import Collection, Filter, Page, Query, Sort
from restkeeper.storage.postgresql.expressions import BEGINNING, PostgresColumn, comparable, in_row, is_long
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.sql import (
    change_token,
    conditions,
    literal,
    order_of,
    outline,
    page_of,
    parameters,
    select_other_fingerprints,
)

_LONG = "x" * BEGINNING


def find_page(session: Session, collection: Collection, query: Query, max_bytes: int | None) -> Page:
    """See `base.Store.page`: one statement, which reads at most one row more."""
    statement, values = select_page(collection, query)
    found = session.rows(statement, {**values, "most_bytes": sys.maxsize if max_bytes is None else max_bytes})
    epoch, changes, items, others, *_ = found[0]
    total = None if query.narrows else items or 0
    page = page_of((row[4:] for row in found if row[4] is not None), query, max_bytes, PostgresColumn)
    return page._replace(change_token=change_token(epoch, changes or 0), total=total, others=others)


def select_page(collection: Collection, query: Query) -> tuple[str, dict[str, Any]]:
    """The statement of a page, and its parameters without `most_bytes`. It returns one row more than the limit.

    Each row has the epoch, and the collection's changes and items; the `others`; then id, fingerprint, body,
    removed, and the sort keys without the id. There is one row at least, with nulls if the page is empty. The last row
    is the first that exceeds `most_bytes`, or the second one.
    """
    keys = _sort_keys(collection, query.sort, query.backward)
    values = parameters(collection, query, PostgresColumn)
    if query.offset:
        values["offset"] = query.offset
    for n, ((column, _), value) in enumerate(zip(keys, query.after, strict=False)):
        if isinstance(value, str) and n < len(keys) - 1:  # another kind of store has all of a text in its positions
            value = value[:BEGINNING]
        values[f"a{n}"] = comparable(column.field.kind, value)
    outlined = outline(query, _length, limit=query.limit, offset=min(query.offset, 1))
    return _page_statement(collection, outlined), values


def _length(filter: Filter) -> str | None:
    """What a statement depends on of the value of a filter."""
    return _LONG if is_long(filter) else None


@lru_cache(maxsize=64)  # combinations of filters, sort and limit
def _page_statement(collection: Collection, query: Query) -> str:
    keys = _sort_keys(collection, query.sort, query.backward)
    names = [f"k{n}" for n in range(len(keys) - 1)]
    terms = "".join(f",\n            {column.order} AS {name}" for (column, _), name in zip(keys, names, strict=False))
    order = ", ".join(
        f"{name}{' DESC' if descending else ''}" for (_, descending), name in zip(keys, [*names, "id"], strict=True)
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


@lru_cache(maxsize=64)
def _sort_keys(collection: Collection, sort: tuple[Sort, ...], backward: bool) -> list[tuple[PostgresColumn, bool]]:
    """The columns of the order, the id last, and whether each is descending; reversed for a backward query."""
    order = order_of(Query(sort=sort, backward=backward))
    return [(PostgresColumn.of(collection, each.field), each.descending) for each in order]


def _beyond(keys: list[tuple[PostgresColumn, bool]]) -> str:
    """The condition for rows after the position, whose values are the parameters a0, a1 …"""
    terms = [
        (column.order, "<" if descending else ">", f"%(a{n})s::{column.type}")
        for n, (column, descending) in enumerate(keys)
    ]
    first, sign, position = terms[0]
    if len({sign for _, sign, _ in terms}) == 1:
        return f"{in_row(key for key, *_ in terms)} {sign} {in_row(value for *_, value in terms)}"
    condition = ""
    for key, compared, value in reversed(terms):
        tied = f" OR ({key} = {value} AND {condition})" if condition else ""
        condition = f"({key} {compared} {value}{tied})"
    return f"{first} {sign}= {position} AND {condition}"  # the first part is a range of the index

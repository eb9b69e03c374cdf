"""The statement of a page in PostgreSQL."""

from functools import lru_cache
from typing import Any

from restkeeper.storage.interface import Collection, Query, Sort
from restkeeper.storage.plans import ANY_PLAN, Plan
from restkeeper.storage.postgresql.queries import BEGINNING, PostgresColumn, comparable, in_row
from restkeeper.storage.queries import conditions, order_of, outline, parameters
from restkeeper.storage.sql import literal


def select_page(collection: Collection, query: Query, plan: Plan = ANY_PLAN) -> tuple[str, dict[str, Any]]:
    """The statement of a page, and its parameters without `most_bytes`. It returns one row more than the limit.

    Each row has the epoch, and the collection's changes, items and revision; then id, fingerprint, body, its
    `removed_fields`, owner, and the sort keys without the id. There is one row at least, with nulls if the page is
    empty. The last row is the first that exceeds `most_bytes`, or the second one.
    """
    keys = _sort_keys(collection, query.sort, query.backward)
    values = parameters(collection, query, PostgresColumn)
    if query.offset:
        values["offset"] = query.offset
    for n, ((column, _), value) in enumerate(zip(keys, query.after, strict=False)):
        if isinstance(value, str) and n < len(keys) - 1:  # another kind of store has all of a text in its positions
            value = value[:BEGINNING]
        values[f"a{n}"] = comparable(column.field.kind, value)
    outlined = outline(query, PostgresColumn.outlined, limit=query.limit, offset=min(query.offset, 1))
    return _page_statement(collection, outlined, plan), values


@lru_cache(maxsize=64)  # combinations of filters, sort and limit
def _page_statement(collection: Collection, query: Query, plan: Plan) -> str:
    keys = _sort_keys(collection, query.sort, query.backward)
    names = [f"k{n}" for n in range(len(keys) - 1)]
    terms = "".join(f",\n            {column.sorted} AS {name}" for (column, _), name in zip(keys, names, strict=False))
    order = ", ".join(
        f"{name}{' DESC' if descending else ''}" for (_, descending), name in zip(keys, [*names, "id"], strict=True)
    )
    where, source = conditions(collection, query, PostgresColumn, plan), "items"
    if not plan.is_ordered:  # all that it finds, before they are sorted: OFFSET keeps the index of the order out
        source, where = f"(SELECT * FROM items WHERE {where} OFFSET 0) AS items", "true"  # noqa: S608 - declared names only
    where += f" AND {_beyond(keys)}" if query.after else ""
    columns = "".join(f",\n        {name}" for name in names)
    limit = "ALL" if query.limit is None else query.limit + 1
    offset = " OFFSET %(offset)s" if query.offset else ""
    return f"""\
SELECT
    (SELECT epoch FROM store),
    state.changes,
    state.items,
    state.revision,
    page.*
FROM (
    SELECT sum(changes)::bigint AS changes, sum(items)::bigint AS items, max(revision) AS revision
    FROM counters WHERE collection = {literal(collection.name)}
) AS state LEFT JOIN LATERAL (
    SELECT
        id,
        fingerprint,
        convert_to(body, 'UTF8') AS body,
        convert_to(removed_fields, 'UTF8') AS removed_fields,
        owner{columns}
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
                removed_fields,
                owner,
                octet_length(body) + coalesce(octet_length(removed_fields), 0) AS size{terms}
            FROM {source}
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
    return [(PostgresColumn.by(collection, key, n), key.descending) for n, key in enumerate(order)]


def _beyond(keys: list[tuple[PostgresColumn, bool]]) -> str:
    """The condition for rows after the position, whose values are the parameters a0, a1 …"""
    terms = [
        (column.sorted, "<" if descending else ">", f"%(a{n})s::{column.type}")
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

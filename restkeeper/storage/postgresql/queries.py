"""SQL of queries. Names come from the declaration only; values are always parameters.

The declared indexes are partial, so the name of the collection is a literal. Limits are literals, too: a statement is
planned once, and the plan for a page is good only if its length is known.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from restkeeper.storage.contract import Collection, Filter, Kind, Op, Query, Scalar, Sort
from restkeeper.storage.postgresql.expressions import BEGINNING, Column, beginning, column, type_of, unique_text
from restkeeper.storage.postgresql.fields import clean
from restkeeper.storage.sql import literal, select_other_fingerprints

HIGHEST = 400  # decimal exponents beyond those of any stored number

_COMPARISON = {Op.EQ: "=", Op.NE: "<>", Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}
_INFINITY = Decimal("Infinity")
_LONG = "x" * BEGINNING


class SortKey(NamedTuple):
    """An expression of an order, and the kind of its value."""

    expression: str
    kind: Kind
    descending: bool


def select_page(collection: Collection, query: Query) -> tuple[str, dict[str, Any]]:
    """The statement of a page, and its parameters without `most_bytes`. It returns one row more than the limit.

    Each row has the epoch, and the collection's changes and items; the `others`; then id, fingerprint, body, older, and
    the sort keys without the id. There is one row at least, with nulls if the page is empty. The last row is the first
    that exceeds `most_bytes`, or the second one.
    """
    keys = _sort_keys(collection, query.sort, query.backward)
    parameters = _parameters(collection, query)
    if query.offset:
        parameters["offset"] = query.offset
    for n, (key, value) in enumerate(zip(keys, query.after, strict=False)):
        is_id = n == len(keys) - 1
        parameters[f"a{n}"] = _comparable(key.kind, value if is_id else _shortened(value))
    return _page_statement(collection, _outline(query)), parameters


def _outline(query: Query) -> Query:
    """The query without the values of its parameters: queries with the same outline have the same statement."""
    filters = tuple(Filter(each.field, each.op, _LONG if _is_long(each) else None) for each in query.filters)
    owner = None if query.owner is None else "?"
    after, offset = query.after and ("?",), min(query.offset, 1)
    return Query(filters, query.search and "?", query.sort, query.limit, offset, after, query.backward, owner)


@lru_cache(maxsize=64)  # combinations of filters, sort and limit
def _page_statement(collection: Collection, query: Query) -> str:
    keys = _sort_keys(collection, query.sort, query.backward)
    names = [f"k{n}" for n in range(len(keys) - 1)]
    terms = "".join(f",\n            {key.expression} AS {name}" for key, name in zip(keys, names, strict=False))
    order = ", ".join(
        f"{name}{' DESC' if key.descending else ''}" for key, name in zip(keys, [*names, "id"], strict=True)
    )
    conditions = [*_conditions(collection, query), *([_beyond(keys)] if query.after else [])]
    where = " AND ".join(conditions)
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
        convert_to(older, 'UTF8') AS older{shown}
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
                older,
                octet_length(body) + coalesce(octet_length(older), 0) AS size{terms}
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
    return _count_statement(collection, _outline(counted)), _parameters(collection, query)


@lru_cache(maxsize=64)
def _count_statement(collection: Collection, query: Query) -> str:
    counted = f"SELECT 1 FROM items WHERE {' AND '.join(_conditions(collection, query))} LIMIT %(most)s"  # noqa: S608
    return f"SELECT count(*) FROM ({counted}) AS counted"  # noqa: S608 - likewise


@lru_cache(maxsize=64)
def _sort_keys(collection: Collection, sort: tuple[Sort, ...], backward: bool) -> list[SortKey]:
    """The sort keys, the id last; reversed for a backward query."""
    sort = (*sort, Sort("id", bool(sort) and sort[-1].descending))
    sort = sort[: [key.field for key in sort].index("id") + 1]  # the id is unique
    columns = [column(collection, each.field) for each in sort]
    return [
        SortKey(each.order, each.field.kind, key.descending is not backward)
        for each, key in zip(columns, sort, strict=True)
    ]


def _beyond(keys: list[SortKey]) -> str:
    """The condition for rows after the position, whose values are the parameters a0, a1 …"""
    names = [f"%(a{n})s::{type_of(key.kind)}" for n, key in enumerate(keys)]
    if len({key.descending for key in keys}) == 1:
        sign = "<" if keys[0].descending else ">"
        return f"{_row(key.expression for key in keys)} {sign} {_row(names)}"
    condition = ""
    for key, name in reversed(list(zip(keys, names, strict=True))):
        sign = "<" if key.descending else ">"
        tied = f" OR ({key.expression} = {name} AND {condition})" if condition else ""
        condition = f"({key.expression} {sign} {name}{tied})"
    sign = "<=" if keys[0].descending else ">="
    return f"{keys[0].expression} {sign} {names[0]} AND {condition}"  # the first part is a range of the index


def _conditions(collection: Collection, query: Query) -> Iterator[str]:
    yield f"collection = {literal(collection.name)}"
    if query.owner is not None:
        yield "owner = %(owner)s"
    for n, each in enumerate(query.filters):
        yield _condition(column(collection, each.field), each.op, f"%(f{n})s", is_long=_is_long(each))
    if query.search:
        found = [column(collection, name).contains("%(search)s") for name in collection.search]
        yield f"({' OR '.join(found)})" if found else "false"


def _condition(compared: Column, op: Op, given: str, *, is_long: bool) -> str:
    """The condition that compares a column with the parameter `given`. Null satisfies NE only."""
    if compared.field.kind is Kind.LIST and op in (Op.EQ, Op.IN):
        contains = f"?| {given}::text[]" if op is Op.IN else f"? {given}::text"
        return f"coalesce({compared.json} {contains}, false)"
    if op is Op.LIKE:
        return compared.contains(given)
    value = "each" if op is Op.IN else f"{given}::{compared.type}"
    left, right = _sides(compared, op, value, is_long=is_long)
    if op is not Op.IN:
        term = f"{_row(left)} {_COMPARISON[op]} {_row(right)}"
    elif right == [value]:
        term = f"{_row(left)} = ANY({given}::{compared.type}[])"  # which the planner can estimate, unlike a subquery
    else:
        values = f"SELECT {', '.join(right)} FROM unnest({given}::{compared.type}[]) AS each"  # noqa: S608
        term = f"{_row(left)} IN ({values})"
    if not compared.field.nullable:
        return term
    return f"({compared.value} IS NULL OR {term})" if op is Op.NE else f"({term} AND {compared.value} IS NOT NULL)"


def _sides(compared: Column, op: Op, value: str, *, is_long: bool) -> tuple[list[str], list[str]]:
    """The expressions of the two sides of a comparison: those of an index, if there is one.

    A text that is not `is_long` is less than, equal to or greater than the beginning of another one as it is to all of
    it; a longer one is compared with the beginning and then with all.
    """
    if compared.folds:
        value = f'lower({value} COLLATE "C")'
    if compared.is_text and compared.is_unique and op in (Op.EQ, Op.IN):
        return [compared.unique], [unique_text(value)]
    if compared.is_text and compared.is_indexed and op is not Op.NE:
        if is_long:
            return [compared.order, compared.key], [beginning(value), value]
        return [compared.order], [value]
    return [compared.key], [value]


def _row(expressions: Iterable[str]) -> str:
    first, *others = expressions
    return f"({', '.join([first, *others])})" if others else first


def _is_long(filter: Filter) -> bool:
    """Whether a text of a filter may be longer than those in indexes."""
    values = filter.value if isinstance(filter.value, tuple) else (filter.value,)
    return any(isinstance(each, str) and len(each) >= BEGINNING for each in values)


def _parameters(collection: Collection, query: Query) -> dict[str, Any]:
    values = {f"f{n}": _parameter(collection.fields[each.field].kind, each) for n, each in enumerate(query.filters)}
    if query.owner is not None:
        values["owner"] = clean(query.owner)
    return values | {"search": clean(query.search.casefold())} if query.search else values


def _parameter(kind: Kind, filter: Filter) -> Any:
    """A filter's value as a parameter."""
    if filter.op is Op.LIKE:
        return clean(str(filter.value).casefold())
    if isinstance(filter.value, tuple):
        return [_comparable(kind, each) for each in filter.value]
    return _comparable(kind, filter.value)


def _comparable(kind: Kind, value: Scalar | float) -> str | Decimal:
    """A value as a parameter of a kind. A value of another kind, which a client made up, is below or above all."""
    if type_of(kind) == "text":
        return _text(value)
    if isinstance(value, str):
        return _INFINITY
    return -_INFINITY if value is None else _number(value)


def _shortened(value: Scalar | float) -> Scalar | float:
    """A value of a position, of a text its beginning: another kind of store has all of it in its positions."""
    return value[:BEGINNING] if isinstance(value, str) else value


def _text(value: Scalar | float) -> str:
    return clean(value) if isinstance(value, str) else "" if value is None else str(value)


def _number(value: int | Decimal | float) -> Decimal:
    number = value if isinstance(value, Decimal) else Decimal(repr(value) if isinstance(value, float) else int(value))
    if not number.is_finite() or not number:
        return number
    if number.adjusted() > HIGHEST:
        return _INFINITY.copy_sign(number)
    return number if number.adjusted() > -HIGHEST else Decimal((number.is_signed(), (1,), -HIGHEST))

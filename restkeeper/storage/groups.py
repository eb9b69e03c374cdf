"""Groups of the items of a query: how many items each has, and sums, averages and extremes of their fields."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

import orjson

from restkeeper.storage.interface import DATE_PARTS, Aggregate, Collection, Field, Group, GroupBy, Groups, Kind, Query
from restkeeper.storage.planning import rows_about
from restkeeper.storage.queries import Column
from restkeeper.storage.sql import EXACT, Database

MORE_PLACES = 4  # of an average than of its field

_NUMBERS = (Kind.INTEGER, Kind.NUMBER, Kind.JSON)


def groups_of(database: Database, collection: Collection, query: Query, most: int) -> list[Group]:
    """The groups of a query, at most so many, those with the most items first, and equal ones by their values."""
    kind, groups, inner = database.columns, query.groups or Groups(), dict[str, str]()

    def name(expression: str) -> str:
        """The name of an expression of the inner query, so that what is sorted by groups has no bodies."""
        return inner.setdefault(expression, f"c{len(inner)}")

    columns = [kind.of(collection, aggregate.field) for aggregate in groups.aggregates]
    selected = [name(_value(kind.of(collection, by.field), by)) for by in groups.by]
    parts = [_parts(column, aggregate, name) for column, aggregate in zip(columns, groups.aggregates, strict=True)]
    order = ["count(*) DESC"]
    for by, value in zip(groups.by, selected, strict=True):
        order += [] if by.part else [f"min({name(kind.of(collection, by.field).key)})"]
        order.append(f"{value} NULLS FIRST")
    grouping = f" GROUP BY {', '.join(selected)} ORDER BY {', '.join(order)} LIMIT {{most}}" if selected else ""
    terms = ", ".join(f"{expression} AS {name(expression)}" for expression in inner) or "1"
    chosen = f"SELECT {terms} {{items}}{kind.as_it_is}"
    outer = ", ".join([*selected, *chain.from_iterable(parts), "count(*)"])
    statement = f"SELECT {outer} FROM ({chosen}) AS chosen{grouping}"  # noqa: S608 - declared names only
    result = []
    for row in rows_about(database, statement, collection, query, most):
        cells = iter(row)
        values = tuple(_read(kind, collection.field(by.field), by, next(cells)) for by in groups.by)
        results = tuple(
            _result(aggregate, column, *(next(cells) for _ in expressions))
            for aggregate, column, expressions in zip(groups.aggregates, columns, parts, strict=True)
        )
        result.append(Group(values, next(cells), results))
    return result


def _value(column: Column, by: GroupBy) -> str:
    if not by.part:
        return column.counted
    is_time = column.field.kind is Kind.JSON or (by.zone and column.field.kind is Kind.TIME)
    return f"substr({column.local(by.zone or 'UTC') if is_time else column.value}, 1, {DATE_PARTS[by.part]})"


def _read(kind: Any, field: Field, by: GroupBy, value: Any) -> Any:
    is_json = field.kind is Kind.JSON and isinstance(value, str) and not by.part
    return kind.plain(orjson.loads(value) if is_json else value)


def _parts(column: Column, aggregate: Aggregate, name: Callable[[str], str]) -> list[str]:
    """What is selected for an aggregate; `name` returns that of an expression."""
    if aggregate.function in ("sum", "avg"):
        number = name(column.number)
        return [column.sum.format(number), *([f"count({number})"] if aggregate.function == "avg" else [])]
    is_number = column.field.kind in _NUMBERS
    values = [column.compared.format(name(column.number)) if is_number else name(column.value)]
    values += [name(column.written)] if column.field.kind is Kind.JSON else []  # numbers are before texts
    return [f"{aggregate.function}({value})" for value in values]


def _result(aggregate: Aggregate, column: Column, *values: Any) -> Any:
    """An aggregate by what was selected for it: a number has no zeros at its end."""
    value, number = values[0], 1
    if aggregate.function == "avg":
        number = values[1]
    elif len(values) > 1:
        value = next((text for text in values[:: 1 if aggregate.function == "min" else -1] if text is not None), None)
    if value is None or (isinstance(value, str) and aggregate.function in ("min", "max")):
        return value
    result = Decimal(repr(value) if isinstance(value, float) else value)
    if aggregate.function == "avg":
        result = mean(result, number, 0 if column.field.kind is Kind.INTEGER else column.field.places)
    is_integer = -(2**63) <= result < 2**63 and result == result.to_integral_value()
    return int(result) if is_integer else EXACT.normalize(result)


def mean(total: Decimal, number: int, places: int | None) -> Decimal:
    """The average of so many numbers: with MORE_PLACES than they have, half to even, or else the nearest double."""
    if places is None or not total.is_finite():
        return Decimal(repr(float(EXACT.divide(total, number))))
    digits = round(Fraction(total) / number * 10 ** (places + MORE_PLACES))
    return EXACT.scaleb(digits, -(places + MORE_PLACES))

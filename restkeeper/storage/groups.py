"""Groups of the items of a query: how many items each has, and sums, averages and extremes of their fields."""

from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import orjson

from restkeeper.storage.interface import DATE_PARTS, Aggregate, Collection, Field, Group, GroupBy, Groups, Kind, Query
from restkeeper.storage.planning import rows_about
from restkeeper.storage.sql import Column, Database

EXACT = Context(prec=1000)  # digits: as many as a sum of doubles can have
MORE_PLACES = 4  # of an average than of its field

_NUMBERS = (Kind.INTEGER, Kind.NUMBER, Kind.JSON)


def groups_of(database: Database, collection: Collection, query: Query, most: int) -> list[Group]:
    """The groups of a query, at most so many, those with the most items first, and equal ones by their values."""
    kind, groups = database.columns, query.groups or Groups()
    columns = [kind.of(collection, each.field) for each in groups.aggregates]
    selected = [_value(kind.of(collection, each.field), each) for each in groups.by]
    parts = [_parts(column, each) for column, each in zip(columns, groups.aggregates, strict=True)]
    aggregated = [part for each in parts for part in each]
    statement = f"SELECT {', '.join([*selected, *aggregated])}{', ' * bool(selected or aggregated)}count(*) {{items}}"
    if groups.by:
        places = range(1, len(selected) + 1)
        keys = (
            f"{'' if each.part else f'min({kind.of(collection, each.field).key}), '}{n} NULLS FIRST"
            for n, each in zip(places, groups.by, strict=True)
        )
        order = ", ".join([f"{len(selected) + len(aggregated) + 1} DESC", *keys])
        statement += f" GROUP BY {', '.join(map(str, places))} ORDER BY {order} LIMIT {{most}}"
    found = []
    for row in rows_about(database, statement, collection, query, most):
        left = iter(row)
        values = tuple(_read(kind, collection.field(each.field), each, next(left)) for each in groups.by)
        results = tuple(
            _result(each, column, *(next(left) for _ in part))
            for each, column, part in zip(groups.aggregates, columns, parts, strict=True)
        )
        found.append(Group(values, next(left), results))
    return found


def _value(column: Column, by: GroupBy) -> str:
    if not by.part:
        return column.counted
    is_time = column.field.kind is Kind.JSON or (by.zone and column.field.kind is Kind.TIME)
    return f"substr({column.local(by.zone or 'UTC') if is_time else column.value}, 1, {DATE_PARTS[by.part]})"


def _read(kind: Any, field: Field, by: GroupBy, value: Any) -> Any:
    is_json = field.kind is Kind.JSON and isinstance(value, str) and not by.part
    return kind.plain(orjson.loads(value) if is_json else value)


def _parts(column: Column, aggregate: Aggregate) -> list[str]:
    """What is selected for an aggregate."""
    if aggregate.function in ("sum", "avg"):
        found = column.sum.format(column.number)
        return [found] if aggregate.function == "sum" else [found, f"count({column.number})"]
    values = [column.compared.format(column.number)] if column.field.kind in _NUMBERS else [column.value]
    values += [column.written] if column.field.kind is Kind.JSON else []  # numbers are before texts
    return [f"{aggregate.function}({each})" for each in values]


def _result(aggregate: Aggregate, column: Column, *values: Any) -> Any:
    """An aggregate by what was selected for it: a number has no zeros at its end."""
    value, number = values[0], 1
    if aggregate.function == "avg":
        number = values[1]
    elif len(values) > 1:
        value = next((each for each in values[:: 1 if aggregate.function == "min" else -1] if each is not None), None)
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

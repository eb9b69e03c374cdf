"""Queries in SQLite. A field's `key` is the expression by which it is compared and sorted, and what its index has."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import orjson

from restkeeper.storage.interface import ANY, EQUALITY, Collection, Field, Filter, Kind, Op, Query
from restkeeper.storage.plans import ANY_PLAN, Plan
from restkeeper.storage.queries import Column, conditions, order_of, outline, parameters
from restkeeper.storage.sql import SORTED, literal, path_of, record_columns

AS_BYTES = "CAST({} AS BLOB)"
COLUMNS = record_columns(AS_BYTES)

_PAGE_COLUMNS = """\
    id,
    fingerprint,
    CAST(body AS BLOB),
    CAST(removed_fields AS BLOB),
    owner"""

_RELATED_ROWS = f"""\
SELECT
    {{number}},
    term,
{COLUMNS}
FROM (
    SELECT term.value AS term, related.value AS selected
    FROM json_each({{values}}) AS term CROSS JOIN json_each((
        SELECT json_group_array(selected) FROM (
            SELECT _position AS selected FROM {{source}} ORDER BY {{order}} LIMIT {{most}}
        )
    )) AS related
) CROSS JOIN items ON items.rowid = selected"""  # noqa: S608 - constant columns

LAST = "char(1114111)"  # the last character

_COMPARISON = {Op.EQ: "=", Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}

# A value of kind JSON as it is sorted. No number is infinite: a position is JSON.
_SORTED = f"""\
CASE json_type(body, {{0}})
    WHEN 'text' THEN substr(json_extract(body, {{0}}), 1, {SORTED})
    WHEN 'array' THEN NULL
    WHEN 'object' THEN NULL
    ELSE max({-sys.float_info.max!r}, min({sys.float_info.max!r}, json_extract(body, {{0}})))
END"""
_COUNTED = f"""\
CASE json_type(body, {{0}})
    WHEN 'true' THEN 'true'
    WHEN 'false' THEN 'false'
    WHEN 'text' THEN json_quote(substr(json_extract(body, {{0}}), 1, {SORTED}))
    ELSE {{1}}
END"""

# Comparisons with the nearest double instead of the number, if the double is below the number, or above it.
_IF_BELOW = {Op.LT: Op.LTE, Op.LTE: Op.LTE, Op.GT: Op.GT, Op.GTE: Op.GT}
_IF_ABOVE = {Op.LT: Op.LT, Op.LTE: Op.LT, Op.GT: Op.GTE, Op.GTE: Op.GTE}


class SqliteColumn(Column):
    """See `queries.Column`. The key of a field is what the indexes have."""

    parameter = ":{}"
    unindexed = "+({})"
    one_of = "IN (SELECT value FROM json_each({}))"
    gathered = "(SELECT json_group_array(value) FROM ({}))"
    outer_id = "+items.id"  # without its affinity, with which no index of an expression fits
    related_rows = _RELATED_ROWS
    unsorted_items = "(SELECT * FROM items WHERE {} LIMIT -1 OFFSET 0) AS items"
    lowest = {Kind.INTEGER: "-9e999", Kind.NUMBER: "-9e999", Kind.BOOLEAN: "-1", Kind.JSON: "-9e999"}
    sum = "exact_sum({})"
    compared = "CAST({} AS NUMERIC)"
    as_it_is = " LIMIT -1"

    @property
    def value(self) -> str:
        if self.field.kind is Kind.JSON:
            return _SORTED.format(self._path)
        if self.field.is_owner:
            return "owner"
        literal(self.field.name)
        return self.field.name if self.is_own else self.or_default(f"json_extract(body, '$.{self.field.name}')")

    @staticmethod
    def quoted(text: str) -> str:
        return f"CAST(x'{text.encode().hex()}' AS TEXT)"

    @property
    def counted(self) -> str:
        """See `Column`. A JSON text is quoted as in the body."""
        return _COUNTED.format(self._path, self.value) if self.field.kind is Kind.JSON else self.value

    @property
    def number(self) -> str:
        if self.is_own:
            return self.value
        number = f"CASE WHEN json_type(body, {self._path}) IN ('integer', 'real') THEN body -> {self._path} END"
        return number if self.field.default is None else f"coalesce({number}, '{+self.field.default}')"  # type: ignore[operator]

    @property
    def written(self) -> str:
        is_text = f"CASE json_type(body, {self._path}) WHEN 'text' THEN {self.value} END"
        return is_text if self.field.kind is Kind.JSON else self.value

    def local(self, zone: str) -> str:
        return f"local_time({self.written}, {self.quoted(zone)})"

    @property
    def _path(self) -> str:
        names = "".join(f'."{name}"' for name in path_of(self.field.name))
        return f"'${names}'"

    @property
    def table(self) -> str:
        """The name of the table that is the index of a field with several values: `value` and `id` of its items."""
        digest = blake2b("".join(self.values("body")).encode(), digest_size=4).hexdigest()
        return f"items.{self.collection}.{self.field.name}.{digest}"

    def values(self, body: str) -> tuple[str, str, str]:
        """Each value of the field in a body: as an expression, its type, and the tables that have them.

        True and false are texts: as numbers they would equal 1 and 0. With two paths, of which '$[0]' is null in an
        object, json_extract returns an array of JSON values.
        """
        tables, row = [], ""
        for n, name in enumerate(path_of(self.field.name)):
            path, row = f"'$.\"{name}\"'", f"each{n}"  # the digest in `table` depends on this name
            paths = f"CASE json_type({body}, {path}) WHEN 'array' THEN json_extract({body}, {path})"
            tables.append(f"json_each({paths} ELSE json_extract({body}, {path}, '$[0]') END) AS {row}")
            body = f"CASE {row}.type WHEN 'object' THEN {row}.value END"
        value = f"CASE WHEN {row}.type IN ('true', 'false') THEN {row}.type ELSE {row}.atom END"
        return value, f"{row}.type", ", ".join(tables)

    def _has(self, filter: Filter, parameter: str) -> str:
        """The condition of a filter of a field with several values."""
        value, type, tables = self.values("body")
        if filter.op is Op.IS:
            return f"{'NOT ' if filter.value else ''}EXISTS (SELECT 1 FROM {tables} WHERE {type} <> 'null')"  # noqa: S608
        is_indexed = self.is_indexed and (filter.op in EQUALITY or self.field.kind is not Kind.JSON)
        value = "value" if is_indexed else value
        parameter = (
            f"CAST({parameter} AS NUMERIC)" if self.field.kind is Kind.NUMBER and filter.op in _IF_BELOW else parameter
        )
        match filter.op:
            case Op.EQ | Op.NE | Op.IN:
                term = f"{value} IN (SELECT value FROM json_each({parameter}))"  # noqa: S608 - declared names only
            case Op.LIKE:
                term = f"{type} IN ('text', 'integer', 'real') AND instr(fold({value}), {parameter})"
            case Op.STARTS:
                term = f"{value} >= {parameter} AND {value} < {parameter} || {LAST}"
            case Op.ENDS:
                term = ends(value, parameter)
            case op if self.field.kind is Kind.JSON:
                numbers = (
                    f"{type} IN ('integer', 'real') AND {value} {_COMPARISON[op]} json_extract({parameter}, '$[1]')"
                )
                term = f"({numbers} OR {type} = 'text' AND {value} {_COMPARISON[op]} json_extract({parameter}, '$[0]'))"
            case op:
                term = f"{value} {_COMPARISON[op]} {parameter}"
        if self.field.kind is Kind.JSON and filter.op in (Op.STARTS, Op.ENDS):
            term = f"{type} = 'text' AND {term}"
        is_not = "NOT " if filter.op is Op.NE else ""
        if is_indexed:
            return f'id {is_not}IN (SELECT id FROM "{self.table}" WHERE {term})'  # noqa: S608 - likewise
        return f"{is_not}EXISTS (SELECT 1 FROM {tables} WHERE {term})"  # noqa: S608 - likewise

    @property
    def json_value(self) -> str:
        return "'[' || term.value || ']'" if self.field.is_many else "json_extract(term.value, '$')"

    def condition(self, filter: Filter, parameter: str) -> str:
        if self.field.is_many:
            return self._has(filter, parameter)
        if filter.op is Op.IS:
            return self.is_null(filter)
        is_nullable = self.field.nullable
        by_value = self.is_unique or self.by_owner(filter)
        key = self.folded if filter.op in (Op.EQ, Op.IN, Op.STARTS) and by_value else self.key
        value = (
            f"+CAST({parameter} AS NUMERIC)" if self.field.kind is Kind.NUMBER else parameter
        )  # with an affinity: no index
        value = f"lower({value})" if self.folds else value
        match filter.op:
            case Op.STARTS:
                term = f"{key} >= {value} AND {key} < {value} || {LAST}"
            case Op.ENDS:
                term = ends(key, value)
            case Op.IN:
                term = f"{key} IN (SELECT {'lower(value)' if self.folds else 'value'} FROM json_each({parameter}))"  # noqa: S608
            case Op.LIKE:
                term = f"instr(fold({self.value}), {parameter})"
            case Op.NE:
                return f"({self.value} IS NULL OR {key} <> {value})" if is_nullable else f"{key} <> {value}"
            case op:
                term = f"{key} {_COMPARISON[op]} {value}"
        if not is_nullable:
            return term
        # Of numbers the index knows which are null; of texts it has the same for null and the empty text.
        lowest = self.lowest.get(self.field.kind)
        plus = "+" if filter.op in (Op.EQ, Op.IN) else ""  # so that the index finds by the other term
        if lowest and key != self.folded:
            return f"({term} AND {plus}{self.key} > {lowest})"
        has_text = "" if key == self.folded else f"{key} <> '' OR "  # as the index shows, without the item
        return f"({term} AND ({has_text}{self.value} IS NOT NULL))"

    @property
    def outer_value(self) -> str:
        return "items.owner" if self.field.is_owner else f"json_extract(items.body, {self._path})"

    @staticmethod
    def number_of(id: str) -> str:
        is_small, is_large = (f"{text} NOT GLOB '*[^0-9]*'" for text in (id, f"substr({id}, 2)"))
        is_large = f"length({id}) = 20 AND substr({id}, 1, 1) = 'A' AND {is_large}"
        return (
            f"CASE WHEN (length({id}) = 16 AND {is_small}) OR ({is_large}) THEN CAST(ltrim({id}, 'A') AS INTEGER) END"
        )

    @staticmethod
    def id_of(number: str) -> str:
        return f"printf(CASE WHEN {number} < {10**16} THEN '%016d' ELSE 'A%019d' END, {number})"

    def has_one(self, values: Sequence[str]) -> str:
        (value, *_) = values
        parameter = f"json_array({', '.join(values)})" if self.field.is_many else value
        return self.condition(Filter(self.field.name, Op.EQ, None), parameter)

    @classmethod
    def exact(cls, collection: Collection, query: Query) -> Query:
        """See `Column`. SQLite compares numbers as doubles."""
        return query._replace(filters=tuple(_exact_filters(collection, query))) if query.filters else query

    @staticmethod
    def parameter_of(field: Field, filter: Filter) -> Any:
        """A filter's value as a parameter. Decimals are texts, which SQLite converts like the numbers in bodies."""
        value = filter.value
        values = value if isinstance(value, tuple) else (value,)
        if field.is_many and filter.op in EQUALITY:
            present = [element for element in values if element is not None]
            value = tuple(str(element).lower() if isinstance(element, bool) else element for element in present)
        elif field.kind is Kind.JSON and filter.op in _IF_BELOW:  # a text, and the number that is written so
            value = tuple(element for element in values if not isinstance(element, bool))
        if isinstance(value, tuple):
            return orjson.dumps(value, default=lambda number: orjson.Fragment(str(number))).decode()
        if filter.op is Op.LIKE:
            return str(value).casefold()
        return str(value) if isinstance(value, Decimal) else value

    @staticmethod
    def texts(texts: Sequence[str]) -> Any:
        return orjson.dumps(texts).decode()

    @staticmethod
    def plain(key: Any) -> Any:
        return None if key == -float("inf") else key

    @classmethod
    def search_condition(cls, columns: Sequence["SqliteColumn"], parameter: str) -> str:
        if any(column.field.name == ANY for column in columns):
            return f"is_inside({parameter}, body)"
        lists = "".join("01"[column.field.kind is Kind.LIST] for column in columns)
        values = ", ".join(column.searched for column in columns)
        return f"is_found({parameter}, '{lists}', {values})" if columns else "0"

    @property
    def searched(self) -> str:
        """What a search looks into: null for a list's field whose stored value is none."""
        is_list = f"json_type(body, '$.{self.field.name}') = 'array'"
        return f"CASE WHEN {is_list} THEN {self.value} END" if self.field.kind is Kind.LIST else self.value


def select_page(collection: Collection, query: Query, plan: Plan) -> tuple[list[str], dict[str, Any]]:
    """The statements of a page, and their parameters. They return at most one row more."""
    query = SqliteColumn.exact(collection, query)
    values = parameters(collection, query, SqliteColumn)
    values |= {f"a{n}": -float("inf") if value is None else value for n, value in enumerate(query.after)}
    values["offset"] = query.offset
    values["limit"] = sys.maxsize if query.limit is None else query.limit + 1  # the last shows that there are more
    return page_statements(collection, outline(query), plan), values


@lru_cache(maxsize=64)  # combinations of filters and sort; some take 100 KiB
def page_statements(collection: Collection, query: Query, plan: Plan = ANY_PLAN) -> list[str]:
    """The statements whose rows together are the page. See `page_of`.

    There is one statement, but for a page after a position there is one for each number of leading keys that are equal
    to the position's: first all keys but the id, then all but the last two, and so on. SQLite uses an index for these,
    and not for a comparison of row values.
    """
    plus = "" if plan.is_ordered else "+"
    columns = [(SqliteColumn.by(collection, key, n), key) for n, key in enumerate(order_of(query))]
    keys = [(f"{plus}{column.sorted}", key.descending) for column, key in columns]
    order = [f"{key} DESC" if descending else key for key, descending in keys]
    sorted_by = [key.name for key in query.sort if key.name != "id"]
    indexed = {index.field for index in collection.indexes if not index.unique}
    has_index = not query.narrows and (not sorted_by or (len(query.sort) == 1 and sorted_by[0] in indexed))
    where = conditions(collection, query, SqliteColumn, plan)
    extra = "".join(f",\n    {key}" for key, _ in keys[:-1])
    statements = []
    for ties, beyond in _beyond(keys, query):
        condition = f"WHERE {where}{beyond}\nORDER BY {', '.join(order[ties:])}\nLIMIT :limit OFFSET :offset"
        by_index = f"SELECT\n{_PAGE_COLUMNS}{extra}\nFROM items\n{condition}"  # noqa: S608 - declared names only
        statements.append(by_index if has_index else _select_sorted([key for key, _ in keys[:-1]], condition))
    return statements


def _select_sorted(keys: list[str], condition: str) -> str:
    """Select rows in order first, then their bodies one by one: SQLite sorts no bodies."""
    names = "".join(f",\n    k{n}" for n in range(len(keys)))
    terms = "".join(f",\n        {key} AS k{n}" for n, key in enumerate(keys))
    return (
        f"SELECT\n{_PAGE_COLUMNS}{names}\nFROM (\n"  # noqa: S608 - declared names only
        f"    SELECT\n        rowid AS selected{terms}\n    FROM items\n{condition}\n"
        f") CROSS JOIN items ON items.rowid = selected"
    )


def _beyond(keys: list[tuple[str, bool]], query: Query) -> Iterator[tuple[int, str]]:
    """The conditions for rows after `query.after`, the nearest first, each with the number of equal keys.

    A condition starts with AND or is empty.
    """
    if not query.after:
        yield 0, ""
        return
    for ties in reversed(range(len(keys))):
        same = "".join(f" AND {key} = :a{n}" for n, (key, _) in enumerate(keys[:ties]))
        key, descending = keys[ties]
        yield ties, f"{same} AND {key} {'<' if descending else '>'} :a{ties}"


def _exact_filters(collection: Collection, query: Query) -> Iterator[Filter]:
    """The filters that have the same result although SQLite compares numbers as doubles."""
    for filter in query.filters:
        if filter.join:
            inner = SqliteColumn.exact(filter.join.collection, filter.join.query)
            yield filter._replace(join=replace(filter.join, filters=inner.filters))
            continue
        values = filter.value if isinstance(filter.value, tuple) else (filter.value,)
        numbers = [value for value in values if not isinstance(value, Decimal) or _nearest(value) == value]
        if collection.field(filter.field).kind is not Kind.NUMBER or len(numbers) == len(values):
            yield filter
        elif filter.op in (Op.EQ, Op.IN):
            yield filter._replace(op=Op.IN, value=tuple(numbers))
        elif filter.op is Op.NE:  # which every item satisfies
            yield filter._replace(field="id", value="")
        else:
            number = Decimal(str(filter.value))
            nearest = _nearest(number)
            op = (_IF_BELOW if nearest < number else _IF_ABOVE)[filter.op]
            yield filter._replace(op=op, value=nearest if nearest.is_finite() else number)


def _nearest(number: Decimal) -> Decimal:
    """The nearest number that SQLite can represent: an integer of 64 bits, or a double in its decimal form.

    The numbers of items are among these: integers, decimals of up to 15 digits, and doubles.
    """
    if -(2**63) <= number < 2**63 and number == number.to_integral_value():
        return number
    return Decimal(repr(float(number)))


def ends(text: str, end: str) -> str:
    """The condition that a text ends with another one, which can be longer or empty."""
    return f"substr({text}, length({text}) - length({end}) + 1) = {end}"

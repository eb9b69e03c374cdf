"""Queries as SQLite's SQL. Field names come from the declaration alone, values are always parameters.

A field's `key` is the expression it is compared and sorted by; the declared indexes are on these very expressions, and
partial on the collection's name, which is therefore a literal here too. They begin with the (constant) collection all
the same: without statistics SQLite would else prefer the primary key, and sort.
"""

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

import orjson

from restkeeper.storage.contract import Collection, Field, Filter, Index, Kind, Op, Query, Sort

COLUMNS = """\
    id,
    version,
    updated_at,
    shape,
    CAST(body AS BLOB),
    owner"""

# Fields that have a column of their own besides their place in the body.
_OWN_COLUMN = {"id", "version", "updated_at"}

# What stands for null where order matters: below every value of its kind.
_LOWEST = {Kind.INTEGER: "-9e999", Kind.NUMBER: "-9e999", Kind.BOOLEAN: "-1"}

_COMPARISON = {Op.EQ: "=", Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}

# A number that no item has, compared by the double next to it: what is equal to that one is below it, or above.
_BELOW_IT = {Op.LT: Op.LTE, Op.LTE: Op.LTE, Op.GT: Op.GT, Op.GTE: Op.GT}
_ABOVE_IT = {Op.LT: Op.LT, Op.LTE: Op.LT, Op.GT: Op.GTE, Op.GTE: Op.GTE}


def literal(name: str) -> str:
    """A checked name as an SQL string literal."""
    if not name.replace("_", "").isalnum() or not name.isascii():
        raise ValueError(f"{name!r}: names of collections and fields are ASCII letters, digits and underscores")
    return f"'{name}'"


def value_of(field: Field) -> str:
    """The expression for a field's value as it is in the body, null where it is null."""
    literal(field.name)
    return field.name if field.name in _OWN_COLUMN else f"json_extract(body, '$.{field.name}')"


def key_of(collection: Collection, field: Field) -> str:
    """The expression that a field is compared and sorted by: never null, folded where its index folds."""
    key = _folded(collection, field)
    return f"coalesce({key}, {_LOWEST.get(field.kind, chr(39) * 2)})" if field.nullable else key


def _is_unique(collection: Collection, field: Field) -> bool:
    return any(index.field == field.name and index.unique for index in collection.indexes)


def _folded(collection: Collection, field: Field) -> str:
    """The value by which one is unique: folded where its index folds, null where it is null."""
    value = value_of(field)
    return f"lower({value})" if any(index.fold for index in collection.indexes if index.field == field.name) else value


def index_prefix(collection: Collection) -> str:
    """What the names of a collection's indexes begin with; no name of a collection or field has a dot."""
    return f"items.{collection.name}."


def field_of(index: str) -> str:
    """The field that an index of that name is on."""
    return index.split(".")[2]


def indexes_of(collection: Collection) -> dict[str, str]:
    """The declared indexes: name to CREATE statement."""
    indexes = dict(_index(collection, index) for index in collection.indexes)
    if collection.owned:
        where = f"collection = {literal(collection.name)}"
        name = f"{index_prefix(collection)}.owner"
        indexes[name] = f'CREATE INDEX "{name}" ON items (collection, owner, id) WHERE {where}'
    return indexes


def _index(collection: Collection, index: Index) -> tuple[str, str]:
    field = collection.fields[index.field]
    name = f"{index_prefix(collection)}{index.field}" + (".unique" if index.unique else "")
    where = f"collection = {literal(collection.name)}"
    terms = f"collection, {key_of(collection, field)}, id"
    if index.unique:  # on the bare value: in a unique index nulls are all different
        terms = f"collection, {_folded(collection, field)}"
        where += f" AND {value_of(field)} IS NOT NULL" if field.nullable else ""
    return name, f'CREATE {"UNIQUE INDEX" if index.unique else "INDEX"} "{name}" ON items ({terms}) WHERE {where}'


def select_page(collection: Collection, query: Query) -> tuple[list[str], dict[str, Any]]:
    """The statements whose rows, one after the other, are the page, and their parameters but for :limit.

    A row is id, shape, body, then the sort keys but the id. There is one statement, but for pages beyond a position:
    there, one for each number of leading keys that are the same as the position's, because a row value over
    expressions is not served by an index, while this is: first what ties in all keys but the id, then in all but the
    last two, …
    """
    query = _exact(collection, query)
    statements = _page_statements(collection, _outline(query))
    parameters = _parameters(collection, query)
    parameters |= {f"a{n}": -float("inf") if value is None else value for n, value in enumerate(query.after)}
    parameters["offset"] = query.offset
    return statements, parameters


def _outline(query: Query) -> Query:
    """The query less what its parameters say: queries of one outline have the same statements."""
    filters = tuple(Filter(wanted.field, wanted.op, None) for wanted in query.filters)
    owner = None if query.owner is None else "?"
    return Query(filters, query.search and "?", query.sort, None, 0, query.after and ("?",), query.backward, owner)


@lru_cache(maxsize=64)  # combinations of filters and sort; some take 100 KiB
def _page_statements(collection: Collection, query: Query) -> list[str]:
    keys = _sort_keys(collection, query)
    order = [f"{key} DESC" if descending else key for key, descending in keys]
    where = " AND ".join(_conditions(collection, query))
    select = _select_walk if _is_walk(collection, query) else _select_sorted
    return [
        select(
            [key for key, _ in keys[:-1]],
            f"WHERE {where}{beyond}\nORDER BY {', '.join(order[ties:])}\nLIMIT :limit OFFSET :offset",
        )
        for ties, beyond in _beyond(keys, query)
    ]


def _is_walk(collection: Collection, query: Query) -> bool:
    """Whether an index has the items in the order asked for, so that each is read only when it is its turn."""
    keys = [key.field for key in query.sort if key.field != "id"]
    indexed = {index.field for index in collection.indexes if not index.unique}
    return not query.narrows and (not keys or (len(query.sort) == 1 and keys[0] in indexed))


def _select_walk(keys: list[str], condition: str) -> str:
    extra = "".join(f",\n    {key}" for key in keys)
    return f"SELECT\n    id,\n    shape,\n    CAST(body AS BLOB){extra}\nFROM items\n{condition}"  # noqa: S608


def _select_sorted(keys: list[str], condition: str) -> str:
    """First which items and in which order, then their bodies one by one: SQLite sorts no bodies."""
    names = "".join(f",\n    k{n}" for n in range(len(keys)))
    terms = "".join(f",\n        {key} AS k{n}" for n, key in enumerate(keys))
    return (
        f"SELECT\n    id,\n    shape,\n    CAST(body AS BLOB){names}\nFROM (\n"  # noqa: S608 - declared names only
        f"    SELECT\n        rowid AS place{terms}\n    FROM items\n{condition}\n"
        f") CROSS JOIN items ON items.rowid = place"
    )


def select_count(collection: Collection, query: Query) -> tuple[str, dict[str, Any]]:
    """The statement that counts what the query's filters and search leave, and its parameters."""
    query = _exact(collection, query)
    where = " AND ".join(_conditions(collection, query))
    return f"SELECT count(*) FROM items WHERE {where}", _parameters(collection, query)  # noqa: S608


def _sort_keys(collection: Collection, query: Query) -> list[tuple[str, bool]]:
    """The expressions to order by with their directions, the id last, turned around for a walk backwards."""
    sort = (*query.sort, Sort("id", bool(query.sort) and query.sort[-1].descending))
    sort = sort[: [key.field for key in sort].index("id") + 1]  # nothing ties beyond the id
    return [(key_of(collection, collection.fields[key.field]), key.descending is not query.backward) for key in sort]


def _beyond(keys: list[tuple[str, bool]], query: Query) -> Iterator[tuple[int, str]]:
    """The conditions that a row lies beyond `query.after`, nearest stretch first, each with the number of tied keys.

    A condition begins with AND or is empty.
    """
    if not query.after:
        yield 0, ""
        return
    for ties in reversed(range(len(keys))):
        same = "".join(f" AND {key} = :a{n}" for n, (key, _) in enumerate(keys[:ties]))
        key, descending = keys[ties]
        yield ties, f"{same} AND {key} {'<' if descending else '>'} :a{ties}"


def _conditions(collection: Collection, query: Query) -> Iterator[str]:
    yield f"collection = {literal(collection.name)}"
    if query.owner is not None:
        yield "owner = :owner"
    for n, wanted in enumerate(query.filters):
        yield _condition(collection, wanted, f"f{n}")
    if query.search:
        searched = [collection.fields[name] for name in collection.search]
        lists = "".join("01"[field.kind is Kind.LIST] for field in searched)
        values = ", ".join(map(value_of, searched))
        yield f"instr(full_text('{lists}', {values}), :search)" if searched else "0"


def _exact(collection: Collection, query: Query) -> Query:
    """The query with filters on numbers that mean the same where numbers are compared as doubles."""
    if not any(collection.fields[wanted.field].kind is Kind.NUMBER for wanted in query.filters):
        return query
    return replace(query, filters=tuple(_exact_filters(collection, query)))


def _exact_filters(collection: Collection, query: Query) -> Iterator[Filter]:
    for wanted in query.filters:
        values = wanted.value if isinstance(wanted.value, tuple) else (wanted.value,)
        numbers = [value for value in values if not isinstance(value, Decimal) or _nearest(value) == value]
        if collection.fields[wanted.field].kind is not Kind.NUMBER or len(numbers) == len(values):
            yield wanted
        elif wanted.op in (Op.EQ, Op.IN):
            yield Filter(wanted.field, Op.IN, tuple(numbers))
        elif wanted.op is not Op.NE:  # which every item satisfies
            number = Decimal(str(wanted.value))
            nearest = _nearest(number)
            op = (_BELOW_IT if nearest < number else _ABOVE_IT)[wanted.op]
            yield Filter(wanted.field, op, nearest if nearest.is_finite() else number)


def _nearest(number: Decimal) -> Decimal:
    """Of the numbers that SQLite distinguishes, the next one: an integer of 64 bits, or a double as it is written.

    What items may have is of these: integers, decimals of up to 15 digits, and doubles.
    """
    if abs(number) < 2**63 and number == number.to_integral_value():
        return number
    return Decimal(repr(float(number)))


def _condition(collection: Collection, wanted: Filter, name: str) -> str:
    field = collection.fields[wanted.field]
    value, key = value_of(field), key_of(collection, field)
    if wanted.op in (Op.EQ, Op.IN) and _is_unique(collection, field):
        key = _folded(collection, field)
    given = f"CAST(:{name} AS NUMERIC)" if field.kind is Kind.NUMBER else f":{name}"
    given = f"lower({given})" if "lower(" in key else given
    match wanted.op, field.kind:
        case (Op.EQ, Kind.LIST):
            return f"EXISTS (SELECT 1 FROM json_each(body, '$.{field.name}') WHERE value = :{name})"  # noqa: S608
        case (Op.IN, Kind.LIST):
            some = f"SELECT value FROM json_each(:{name})"  # noqa: S608
            return f"EXISTS (SELECT 1 FROM json_each(body, '$.{field.name}') WHERE value IN ({some}))"  # noqa: S608
        case (Op.IN, _):
            each = "lower(value)" if "lower(" in key else "value"
            term = f"{key} IN (SELECT {each} FROM json_each(:{name}))"  # noqa: S608
        case (Op.LIKE, _):
            term = f"instr(fold({value}), :{name})"
        case (Op.NE, _):
            return f"({value} IS NULL OR {key} <> {given})" if field.nullable else f"{key} <> {given}"
        case (op, _):
            term = f"{key} {_COMPARISON[op]} {given}"
    return f"({term} AND {value} IS NOT NULL)" if field.nullable else term


def _parameters(collection: Collection, query: Query) -> dict[str, Any]:
    values = {f"f{n}": _bound(wanted) for n, wanted in enumerate(query.filters)}
    if query.owner is not None:
        values["owner"] = query.owner
    return values | {"search": fold(query.search)} if query.search else values


def _bound(wanted: Filter) -> Any:
    """A filter's value as SQLite takes it. Decimals go as text, to be read by the reader that read the stored ones."""
    value = wanted.value
    if isinstance(value, tuple):
        return orjson.dumps(value, default=lambda number: orjson.Fragment(str(number))).decode()
    if wanted.op is Op.LIKE:
        return fold(str(value))
    return str(value) if isinstance(value, Decimal) else value


def fold(text: str | None) -> str | None:
    """Text without its case, for containment (the SQL function `fold`)."""
    return None if text is None else str(text).casefold()


def full_text(lists: str, *values: str | None) -> str:
    """The texts of some fields without their case, a line each (the SQL function `full_text`).

    For each value `lists` has a 1 where it is a JSON array of texts, which are a line each likewise, and else a 0.
    """
    texts = (
        "\n".join(map(str, orjson.loads(value))) if is_list == "1" else str(value)
        for is_list, value in zip(lists, values, strict=True)
        if value is not None
    )
    return "\n".join(texts).casefold()

"""SQL of queries. Field names come from the declaration only; values are always parameters.

A field's `key` is the expression by which it is compared and sorted. The declared indexes are on these expressions, and
partial: their condition is the collection's name, which is therefore a literal here too. An entry of an index has at
most 2,704 bytes, so indexes have the beginnings of texts only, and items are sorted by these. Limits are literals, too:
a statement is planned once, and the plan for a page is good only if its length is known.
"""

from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from restkeeper.storage.contract import Collection, Field, Filter, Index, Kind, Op, Query, Scalar, Sort
from restkeeper.storage.postgresql.fields import clean
from restkeeper.storage.statements import literal, of_other_revision

BEGINNING = 500  # characters of a text in an index
LONGEST_NAME = 23  # characters of the names of a collection and a field in the name of an index, which has 63 bytes
HIGHEST = 400  # decimal exponents beyond those of any stored number

COLUMNS = """\
    id,
    version,
    updated_at,
    fingerprint,
    convert_to(body, 'UTF8'),
    owner,
    convert_to(older, 'UTF8')"""

_OWN_COLUMN = {"id", "version", "updated_at"}
_NUMBERS = (Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN)
_LOWEST = {Kind.INTEGER: "'-Infinity'::numeric", Kind.NUMBER: "'-Infinity'::numeric", Kind.BOOLEAN: "-1::numeric"}
_COMPARISON = {Op.EQ: "=", Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}
_INDEXED = (Op.EQ, Op.IN, Op.GT, Op.GTE, Op.LT, Op.LTE)
_INFINITY = Decimal("Infinity")
_LONG = "x" * BEGINNING


class SortKey(NamedTuple):
    """An expression of an order, and how its value in a position is made a parameter."""

    expression: str
    kind: Kind
    descending: bool


def value_of(field: Field) -> str:
    """The expression for a field's value, which is null if an older item has another kind of value there."""
    name = literal(field.name)
    if field.name in _OWN_COLUMN:
        return field.name
    if field.kind in (Kind.INTEGER, Kind.NUMBER):
        return f"CASE WHEN jsonb_typeof(fields -> {name}) = 'number' THEN (fields -> {name})::numeric END"
    if field.kind is Kind.BOOLEAN:
        return f"CASE fields -> {name} WHEN 'true'::jsonb THEN 1::numeric WHEN 'false'::jsonb THEN 0::numeric END"
    return f'((fields ->> {name}) COLLATE "C")'


def key_of(collection: Collection, field: Field) -> str:
    """The expression by which a field is compared and sorted: never null, and folded if its index folds."""
    key = _folded(collection, field)
    return key if field.name in _OWN_COLUMN else f"coalesce({key}, {_LOWEST.get(field.kind, chr(39) * 2)})"


def _folds(collection: Collection, field: Field) -> bool:
    return any(index.fold for index in collection.indexes if index.field == field.name)


def _folded(collection: Collection, field: Field) -> str:
    value = value_of(field)
    return f"lower({value})" if _folds(collection, field) else value


def _is_text(field: Field) -> bool:
    return field.kind in (Kind.TEXT, Kind.TIME)


def _beginning(field: Field, expression: str) -> str:
    """The expression for an index and an order."""
    return f"left({expression}, {BEGINNING})" if _is_text(field) and field.name != "id" else f"({expression})"


def unique_of(expression: str) -> str:
    """The expression for unique texts: the text itself, or of a long one its beginning and a digest."""
    digest = f"CASE WHEN length({expression}) > {BEGINNING} THEN md5({expression}) ELSE '' END"
    return f"(left({expression}, {BEGINNING}) || {digest})"


def index_prefix(collection: Collection) -> str:
    """The prefix of the names of a collection's indexes; names of collections and fields have no dot."""
    return f"items.{_short(collection.name)}."


def _short(name: str) -> str:
    """A name, or the beginning and a digest of a long one."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{_digest(name)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()


def indexes_of(collection: Collection) -> dict[str, str]:
    """The declared indexes: name to CREATE statement. A name has a digest of the definition, so it never changes."""
    of_collection = f"collection = {literal(collection.name)}"
    found = [_index(collection, index) for index in collection.indexes]
    if collection.owned:
        found.append(("owner", False, f"(owner, id) WHERE {of_collection}"))
    if condition := of_other_revision(collection):
        found.append(("revision", False, f"(fingerprint) WHERE {condition}"))
    return dict(_named(collection, *each) for each in found)


def _named(collection: Collection, suffix: str, is_unique: bool, definition: str) -> tuple[str, str]:
    name = f"{index_prefix(collection)}{_short(suffix)}.{_digest(definition)}"
    unique = "UNIQUE " if is_unique else ""
    return name, f'CREATE {unique}INDEX CONCURRENTLY IF NOT EXISTS "{name}" ON items {definition}'


def _index(collection: Collection, index: Index) -> tuple[str, bool, str]:
    field = collection.fields[index.field]
    where = f"collection = {literal(collection.name)}"
    if not index.unique:
        key = key_of(collection, field)
        return index.field, False, f"({_beginning(field, key)}, id) WHERE {where}"
    where += f" AND {value_of(field)} IS NOT NULL" if field.nullable else ""
    key = _folded(collection, field)
    return index.field, True, f"({unique_of(key) if _is_text(field) else f'({key})'}) WHERE {where}"


def unique_fields(collection: Collection) -> dict[str, str]:
    """The fields of the unique indexes, by the names of the indexes."""
    return {
        _named(collection, *_index(collection, index))[0]: index.field for index in collection.indexes if index.unique
    }


def field_of(index: str) -> str:
    """The field of an index that another program has declared, by its name; of a long one the beginning."""
    return index.split(".")[2]


def select_page(collection: Collection, query: Query) -> tuple[str, dict[str, Any]]:
    """The statement of a page, and its parameters without `most_bytes`. It returns one row more than the limit.

    Each row has the epoch, and the collection's changes and items; then id, fingerprint, body, older, and the sort keys
    without the id. There is one row at least, with nulls if the page is empty. The last row is the first that exceeds
    `most_bytes`, or the second one.
    """
    keys = sort_keys(collection, query)
    parameters = _parameters(collection, query)
    if query.offset:
        parameters["offset"] = query.offset
    for n, (key, value) in enumerate(zip(keys, query.after, strict=False)):
        parameters[f"a{n}"] = _comparable(key.kind, value if key.expression == "(id)" else _shortened(value))
    return _page_statement(collection, _outline(query)), parameters


def _outline(query: Query) -> Query:
    """The query without the values of its parameters: queries with the same outline have the same statement."""
    filters = tuple(Filter(each.field, each.op, _LONG if _is_long(each) else None) for each in query.filters)
    owner = None if query.owner is None else "?"
    after, offset = query.after and ("?",), min(query.offset, 1)
    return Query(filters, query.search and "?", query.sort, query.limit, offset, after, query.backward, owner)


@lru_cache(maxsize=64)  # combinations of filters, sort and limit
def _page_statement(collection: Collection, query: Query) -> str:
    keys = sort_keys(collection, query)
    names = [f"k{n}" for n in range(len(keys) - 1)]
    terms = "".join(f",\n            {key.expression} AS {name}" for key, name in zip(keys, names, strict=False))
    order = ", ".join(
        f"{name}{' DESC' if key.descending else ''}" for key, name in zip(keys, [*names, "id"], strict=True)
    )
    conditions = [*_conditions(collection, query), *([_beyond(keys)] if query.after else [])]
    where = " AND ".join(conditions)
    shown = "".join(f",\n        {name}" for name in names)
    limit = "ALL" if query.limit is None else query.limit + 1
    offset = " OFFSET %(offset)s" if query.offset else ""
    return f"""\
SELECT
    (SELECT epoch FROM store),
    state.changes,
    state.items,
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
    """The statement that counts the items of a query, and its parameters."""
    where = " AND ".join(_conditions(collection, query))
    return f"SELECT count(*) FROM items WHERE {where}", _parameters(collection, query)  # noqa: S608


def sort_keys(collection: Collection, query: Query) -> list[SortKey]:
    """The sort keys, the id last; reversed for a backward query."""
    sort = (*query.sort, Sort("id", bool(query.sort) and query.sort[-1].descending))
    sort = sort[: [key.field for key in sort].index("id") + 1]  # the id is unique
    return [_sort_key(collection, each, query.backward) for each in sort]


def _sort_key(collection: Collection, sort: Sort, backward: bool) -> SortKey:
    field = collection.fields[sort.field]
    expression = _beginning(field, key_of(collection, field))
    return SortKey(expression, field.kind, sort.descending is not backward)


def _beyond(keys: list[SortKey]) -> str:
    """The condition for rows after the position, whose values are the parameters a0, a1 …"""
    names = [f"%(a{n})s::{'numeric' if key.kind in _NUMBERS else 'text'}" for n, key in enumerate(keys)]
    if len({key.descending for key in keys}) == 1:
        sign = "<" if keys[0].descending else ">"
        return f"({', '.join(key.expression for key in keys)}) {sign} ({', '.join(names)})"
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
        yield _condition(collection, each, f"f{n}")
    if query.search:
        texts = ", ".join(_searched(collection.fields[name]) for name in collection.search)
        yield f"strpos(concat_ws(chr(10), {texts}), %(search)s) > 0" if texts else "false"


def _searched(field: Field) -> str:
    """The expression for a field's folded text, which of a list has each element on a line."""
    name = literal(field.name)
    if field.name in _OWN_COLUMN:
        return f"lower({field.name}::text)"
    if field.kind is not Kind.LIST:
        return f'coalesce(folded ->> {name}, lower((fields ->> {name}) COLLATE "C"))'
    value = f"coalesce(folded -> {name}, fields -> {name})"
    elements = f"jsonb_array_elements_text(CASE WHEN jsonb_typeof({value}) = 'array' THEN {value} END)"
    return f'(SELECT string_agg(lower(each COLLATE "C"), chr(10)) FROM {elements} AS each)'  # noqa: S608


def _condition(collection: Collection, filter: Filter, name: str) -> str:
    field = collection.fields[filter.field]
    value, key, given = value_of(field), key_of(collection, field), f"%({name})s"
    type = "numeric" if field.kind in _NUMBERS else "text"
    is_many = filter.op is Op.IN
    if field.kind is Kind.LIST and filter.op in (Op.EQ, Op.IN):
        return (
            f"coalesce(fields -> {literal(field.name)} {'?|' if is_many else '?'} {given}::text{'[]' * is_many}, false)"
        )
    if filter.op is Op.LIKE:
        return f"coalesce(strpos({_searched(field)}, {given}) > 0, false)"
    folds = _folds(collection, field)
    each = f'lower({given}::text COLLATE "C")' if folds else f"{given}::{type}"
    if filter.op in (Op.EQ, Op.IN) and _is_text(field) and _is_unique(collection, field):
        key, each = unique_of(_folded(collection, field)), unique_of(each)
    elif _has_index(collection, field) and _is_text(field) and filter.op in _INDEXED and not _is_long(filter):
        key = _beginning(field, key)  # a shorter text is less, equal or greater as it is to all of the key
    elif _has_index(collection, field) and _is_text(field) and filter.op in _INDEXED:
        key, each = f"({_beginning(field, key)}, {key})", f"({_beginning(field, each)}, {each})"
    if is_many and each == f"{given}::{type}":
        term = f"{key} = ANY({each}[])"  # which the planner can estimate, unlike a subquery
    elif is_many:
        chosen = each.replace(f"{given}::{type}", "given")
        chosen = chosen[1:-1] if chosen.startswith("(left(") and not _is_unique(collection, field) else chosen
        term = f"{key} IN (SELECT {chosen} FROM unnest({given}::{type}[]) AS given)"  # noqa: S608
    elif filter.op is Op.NE:
        return f"({value} IS NULL OR {key} <> {each})" if field.nullable else f"{key} <> {each}"
    else:
        term = f"{key} {_COMPARISON[filter.op]} {each}"
    return f"({term} AND {value} IS NOT NULL)" if field.nullable else term


def _is_long(filter: Filter) -> bool:
    """Whether a text of a filter may be longer than those in indexes."""
    values = filter.value if isinstance(filter.value, tuple) else (filter.value,)
    return any(isinstance(each, str) and len(each) >= BEGINNING for each in values)


def _has_index(collection: Collection, field: Field) -> bool:
    return any(index.field == field.name and not index.unique for index in collection.indexes)


def _is_unique(collection: Collection, field: Field) -> bool:
    return any(index.field == field.name and index.unique for index in collection.indexes)


def _parameters(collection: Collection, query: Query) -> dict[str, Any]:
    values = {f"f{n}": _given(collection.fields[each.field], each) for n, each in enumerate(query.filters)}
    if query.owner is not None:
        values["owner"] = clean(query.owner)
    return values | {"search": clean(query.search.casefold())} if query.search else values


def _given(field: Field, filter: Filter) -> Any:
    """A filter's value as a parameter."""
    if filter.op is Op.LIKE:
        return clean(str(filter.value).casefold())
    if isinstance(filter.value, tuple):
        return [_comparable(field.kind, each) for each in filter.value]
    return _comparable(field.kind, filter.value)


def _comparable(kind: Kind, value: Scalar | float) -> str | Decimal:
    """A value as a parameter of a kind. A value of another kind, which a client made up, is below or above all."""
    if kind not in _NUMBERS:
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

"""Fields as expressions of PostgreSQL, and the declared indexes, which have the expressions of queries and orders.

An entry of an index has at most 2,704 bytes, so indexes have the beginnings of texts only, and items are sorted by
these. Indexes are partial: their condition is the name of the collection, as a literal.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import orjson

from restkeeper.storage.interface import Collection, Field, Filter, Index, Kind, Op, Scalar
from restkeeper.storage.sql import Column, literal, of_other_revision, path_of

BEGINNING = 500  # characters of a text in an index
LONGEST_NAME = 23  # characters of the names of a collection and a field in the name of an index, which has 63 bytes

LAST = "E'\\U0010FFFF'"  # the last character

HIGHEST = 400  # decimal exponents beyond those of any stored number
_INFINITY = Decimal("Infinity")

_TESTS = {Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<=", Op.STARTS: "starts with"}
_OF_EACH = """\
SELECT {number} AS number, value, id, version, updated_at, fingerprint, body, owner, removed
FROM unnest({values}::text[]) AS each(value)
CROSS JOIN LATERAL (SELECT * FROM items WHERE {where} ORDER BY {order} LIMIT {most}) AS found"""

_NUMBERS = (Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN)
_COMPARISON = {Op.EQ: "=", Op.NE: "<>", Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}


class PostgresColumn(Column):
    """See `sql.Column`."""

    parameter = "%({})s"
    of_each = _OF_EACH
    lowest = {Kind.INTEGER: "'-Infinity'::numeric", Kind.NUMBER: "'-Infinity'::numeric", Kind.BOOLEAN: "-1::numeric"}

    @property
    def is_text(self) -> bool:
        return self.field.kind in (Kind.TEXT, Kind.TIME)

    @property
    def type(self) -> str:
        """The SQL type of values that are compared with it."""
        return type_of(self.field.kind)

    @property
    def json(self) -> str:
        """The JSON value."""
        return f"fields -> {literal(self.field.name)}"

    @property
    def value(self) -> str:
        """The value as its type, which is null if an older item has another kind of value there."""
        if self.is_own:
            return self.field.name if self.type == "text" else f"{self.field.name}::{self.type}"
        if self.field.kind in (Kind.INTEGER, Kind.NUMBER):
            return f"CASE WHEN jsonb_typeof({self.json}) = 'number' THEN ({self.json})::numeric END"
        if self.field.kind is Kind.BOOLEAN:
            return f"CASE {self.json} WHEN 'true'::jsonb THEN 1::numeric WHEN 'false'::jsonb THEN 0::numeric END"
        return f'((fields ->> {literal(self.field.name)}) COLLATE "C")'

    @property
    def order(self) -> str:
        """What an index and an order have: of a text the beginning."""
        return beginning(self.key) if self.is_text and self.field.name != "id" else f"({self.key})"

    @property
    def unique(self) -> str:
        """What a unique index has; null does not occur in it."""
        return unique_text(self.folded) if self.is_text else f"({self.folded})"

    @property
    def values(self) -> str:
        """The JSON values of a field that can have several, as an array. Objects are in the body only."""
        if self.field.kind is Kind.LIST and "." not in self.field.name:
            return self.json
        steps = ".".join(f'"{name}"' for name in path_of(self.field.name))
        return f"jsonb_path_query_array(body::jsonb, '$.{steps}[*]')"

    @property
    def each(self) -> str:
        return "('strict $[*] ? (@ == ' || each.value || ')')" if self.field.is_many else "(each.value::jsonb #>> '{}')"

    def condition(self, filter: Filter, given: str) -> str:
        if self.field.is_many:  # `given` is a test of its values
            has = f"{self.values} @? {given}::jsonpath"
            if self.is_indexed and filter.op in (Op.EQ, Op.IN):  # at once: the planner expects to find some soon by id
                where = f"collection = {literal(self.collection)} AND {has}"
                return f"id = ANY(ARRAY(SELECT id FROM items WHERE {where}))"  # noqa: S608 - declared names only
            is_not = filter.op is Op.NE or (filter.op is Op.IS and filter.value)
            return f"NOT coalesce({has}, false)" if is_not else f"({has})"
        if filter.op is Op.IS:
            return self.is_null(filter)
        if filter.op is Op.LIKE:
            return self.contains(given)
        value = "each" if filter.op is Op.IN else f"{given}::{self.type}"
        left, right = self._sides(filter, value)
        if filter.op is Op.STARTS:
            term = f"{left[0]} >= {right[0]} AND {left[0]} < {right[0]} || {LAST}"
        elif filter.op is not Op.IN:
            term = f"{in_row(left)} {_COMPARISON[filter.op]} {in_row(right)}"
        elif right == [value]:
            term = f"{in_row(left)} = ANY({given}::{self.type}[])"  # which the planner can estimate, unlike a subquery
        else:
            values = f"SELECT {', '.join(right)} FROM unnest({given}::{self.type}[]) AS each"  # noqa: S608
            term = f"{in_row(left)} IN ({values})"
        if not self.field.nullable:
            return term
        return f"({self.value} IS NULL OR {term})" if filter.op is Op.NE else f"({term} AND {self.value} IS NOT NULL)"

    def _sides(self, filter: Filter, value: str) -> tuple[list[str], list[str]]:
        """The expressions of the two sides of a comparison: those of an index, if there is one.

        A text that is not long is less than, equal to or greater than the beginning of another one as it is to all of
        it; a longer one is compared with the beginning and then with all.
        """
        if self.folds:
            value = f'lower({value} COLLATE "C")'
        if self.is_text and self.is_unique and filter.op in (Op.EQ, Op.IN):
            return [self.unique], [unique_text(value)]
        if self.is_text and self.is_indexed and filter.op is not Op.NE:
            if is_long(filter) and filter.op is not Op.STARTS:
                return [self.order, self.key], [beginning(value), value]
            return [self.order], [value]
        return [self.key], [value]

    @staticmethod
    def given(field: Field, filter: Filter) -> Any:
        if field.is_many:
            return clean(_json_path(filter))
        if filter.op is Op.LIKE:
            return clean(str(filter.value).casefold())
        if isinstance(filter.value, tuple):
            return [comparable(field.kind, each) for each in filter.value]
        return comparable(field.kind, filter.value)

    @staticmethod
    def text(text: str) -> str:
        return clean(text)

    @staticmethod
    def plain(key: Any) -> Any:
        """See `sql.Column`. A double has all digits of the numbers in items; null is below all."""
        if not isinstance(key, Decimal):
            return key
        if not key.is_finite():
            return None
        return int(key) if key == key.to_integral_value() and abs(key) < 2**63 else float(key)

    @classmethod
    def found(cls, columns: Sequence["PostgresColumn"], given: str) -> str:
        return f"({' OR '.join(each.contains(given) for each in columns)})" if columns else "false"

    def contains(self, given: str) -> str:
        """Whether the text, or an element of a list, contains a folded text; false for null."""
        name = literal(self.field.name)
        if self.field.kind is Kind.LIST:
            value = f"coalesce(folded -> {name}, {self.json})"
            elements = f"jsonb_array_elements_text(CASE WHEN jsonb_typeof({value}) = 'array' THEN {value} END)"
            return f'EXISTS (SELECT FROM {elements} AS each WHERE strpos(lower(each COLLATE "C"), {given}) > 0)'  # noqa: S608
        text = f'coalesce(folded ->> {name}, lower((fields ->> {name}) COLLATE "C"))'
        if self.is_own:
            text = f"lower({self.field.name}::text)"
        return f"coalesce(strpos({text}, {given}) > 0, false)"


def clean(text: str) -> str:
    """A text as it can be sent to PostgreSQL, which has no character NUL. Items have none; a query may have it."""
    return text.replace("\0", "\ufffd") if "\0" in text else text


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


def comparable(kind: Kind, value: Scalar | float) -> str | Decimal:
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


def type_of(kind: Kind) -> str:
    """The SQL type of values of a kind."""
    return "numeric" if kind in _NUMBERS else "text"


def beginning(text: str) -> str:
    """The part of a text that an index has."""
    return f"left({text}, {BEGINNING})"


def unique_text(text: str) -> str:
    """A text in a unique index: the text itself, or of a long one its beginning and a digest."""
    return f"({beginning(text)} || CASE WHEN length({text}) > {BEGINNING} THEN md5({text}) ELSE '' END)"


def in_row(expressions: Iterable[str]) -> str:
    """Some expressions as one that is compared."""
    first, *others = expressions
    return f"({', '.join([first, *others])})" if others else first


def is_long(filter: Filter) -> bool:
    """Whether a text of a filter may be longer than those in indexes."""
    values = filter.value if isinstance(filter.value, tuple) else (filter.value,)
    return any(isinstance(each, str) and len(each) >= BEGINNING for each in values)


def index_prefix(collection: Collection) -> str:
    """The prefix of the names of a collection's indexes; names of collections and fields have no dot."""
    return f"items.{_short(collection.name)}."


def indexes_of(collection: Collection) -> dict[str, str]:
    """The declared indexes: name to CREATE statement. A name has a digest of the definition, so it never changes."""
    of_collection = f"collection = {literal(collection.name)}"
    found = [_index(collection, index) for index in collection.indexes]
    if collection.owned:
        found.append(("owner", False, f"(owner, id) WHERE {of_collection}"))
    if condition := of_other_revision(collection):
        found.append(("revision", False, f"(fingerprint) WHERE {condition}"))
    return dict(_named(collection, *each) for each in found)


def unique_fields(collection: Collection) -> dict[str, str]:
    """The fields of the unique indexes, by the names of the indexes."""
    return {
        _named(collection, *_index(collection, index))[0]: index.field for index in collection.indexes if index.unique
    }


def _index(collection: Collection, index: Index) -> tuple[str, bool, str]:
    indexed = PostgresColumn.of(collection, index.field)
    where = f"collection = {literal(collection.name)}"
    if indexed.field.is_many:
        return index.field, False, f"USING gin (({indexed.values}) jsonb_path_ops) WHERE {where}"
    if not index.unique:
        return index.field, False, f"({indexed.order}, id) WHERE {where}"
    where += f" AND {indexed.value} IS NOT NULL" if indexed.field.nullable else ""
    return index.field, True, f"({indexed.unique}) WHERE {where}"


def _named(collection: Collection, suffix: str, is_unique: bool, definition: str) -> tuple[str, str]:
    name = f"{index_prefix(collection)}{_short(suffix)}.{_digest(definition)}"
    unique = "UNIQUE " if is_unique else ""
    return name, f'CREATE {unique}INDEX CONCURRENTLY IF NOT EXISTS "{name}" ON items {definition}'


def _short(name: str) -> str:
    """A name, or the beginning and a digest of a long one."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{_digest(name)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()

"""Queries in PostgreSQL: fields as expressions, which are those of the declared indexes, and pages.

An entry of an index has at most 2,704 bytes, so indexes have the beginnings of texts only, and items are sorted by
these. Indexes are partial: their condition is the name of the collection, which all queries have as a literal. Limits
are literals, too: a statement is planned once, and the plan for a page is good only if its length is known.
"""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import orjson

from restkeeper.storage.interface import ANY, Field, Filter, Kind, Op, Scalar
from restkeeper.storage.queries import Column
from restkeeper.storage.sql import DATE, DATES, SORTED, TIME, literal, path_of

BEGINNING = 500  # characters of a text in an index

LAST = "E'\\U0010FFFF'"  # the last character

HIGHEST = 400  # decimal exponents beyond those of any stored number
_INFINITY = Decimal("Infinity")

_TESTS = {Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<=", Op.STARTS: "starts with"}
_RELATED_ROWS = """\
SELECT {number} AS number, value, id, version, updated_at, fingerprint, body, owner, removed_fields
FROM unnest({values}::text[]) AS term(value)
CROSS JOIN LATERAL (SELECT * FROM {source} ORDER BY {order} LIMIT {most}) AS related"""

# A body in which all texts are folded, but for ASCII letters.
_FOLDED = "(body::jsonb || coalesce(folded, '{}'))"

# Values of kind JSON, {json} and as a {text}, as a text that sorts as they do: of a number, its double in hex digits.
_NUMBER = "round(least(greatest(({text})::numeric, -1e308), 1e308), 300)"  # no double that PostgreSQL refuses
_DIGITS = "encode(float8send(({number})::float8), 'hex')"
_SORTED = f"""\
CASE jsonb_typeof({{json}})
    WHEN 'string' THEN 't' || left({{text}}, {SORTED})
    WHEN 'boolean' THEN 'n' || {_DIGITS.format(number="({text})::boolean::int")}
    WHEN 'number' THEN CASE
        WHEN ({{text}})::numeric < 0
        THEN 'm' || translate({_DIGITS.format(number=_NUMBER)}, '0123456789abcdef', 'fedcba9876543210')
        ELSE 'n' || {_DIGITS.format(number=_NUMBER)}
    END
END COLLATE "C\""""
_COUNTED = f"""\
CASE jsonb_typeof({{json}})
    WHEN 'string' THEN to_jsonb(left({{text}}, {SORTED}))::text
    WHEN 'boolean' THEN {{text}}
    WHEN 'number' THEN trim_scale(({{text}})::numeric)::text
END COLLATE "C\""""
# Its day is an interval: what has the form of a time, and is none, raises no error.
_LOCAL = f"""\
CASE
    WHEN {{0}} ~ '^{TIME}$' AND {{0}} > '{DATES[0]}' AND {{0}} < '{DATES[1]}' THEN to_char(
        (
            (left({{0}}, 8) || '01')::timestamp + substr({{0}}, 12, 8)::interval
            + (substr({{0}}, 9, 2)::int - 1) * interval '1 day'
            - coalesce(substring({{0}} FROM '[+-][0-9:]+$')::interval, interval '0')
        ) AT TIME ZONE 'UTC' AT TIME ZONE {{1}},
        'YYYY-MM-DD'
    ) COLLATE "C"
    WHEN {{0}} ~ '^{DATE}' THEN {{0}}
END"""

_WRITTEN = """\
CASE jsonb_typeof(element)
    WHEN 'string' THEN lower((element #>> '{}') COLLATE "C")
    WHEN 'number' THEN trim_scale((element #>> '{}')::numeric)::text
END"""

_SIGN, _ESCAPED = re.compile(r"([!-/:-@\[-`{-~])"), r"\\\1"
_NUMBERS = (Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN)
_COMPARISON = {Op.EQ: "=", Op.NE: "<>", Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}


class PostgresColumn(Column):
    """See `queries.Column`."""

    parameter = "%({})s"
    unindexed = "CASE WHEN {} THEN true ELSE false END"  # the planner expects that half of the items satisfy it
    one_of = "= ANY({}::text[])"
    gathered = "ARRAY({})"
    outer_id = "items.id"
    related_rows = _RELATED_ROWS
    unsorted_items = "(SELECT * FROM items WHERE {} OFFSET 0) AS items"
    lowest = {Kind.INTEGER: "'-Infinity'::numeric", Kind.NUMBER: "'-Infinity'::numeric", Kind.BOOLEAN: "-1::numeric"}

    @property
    def is_text(self) -> bool:
        return self.field.kind in (Kind.TEXT, Kind.TIME)

    @property
    def type(self) -> str:
        """The SQL type of the values."""
        return "numeric" if self.field.kind in _NUMBERS else "text"

    @property
    def json(self) -> str:
        return f"fields -> {literal(self.field.name)}"

    @property
    def value(self) -> str:
        """The value as its type, which is null if an older item has another kind of value there."""
        if self.field.kind is Kind.JSON:
            return self._of_json(_SORTED)
        if self.field.is_owner:
            return "owner"
        if self.is_own:
            return self.field.name if self.type == "text" else f"{self.field.name}::{self.type}"
        if self.field.kind in (Kind.INTEGER, Kind.NUMBER):
            return self.or_default(f"CASE WHEN jsonb_typeof({self.json}) = 'number' THEN ({self.json})::numeric END")
        if self.field.kind is Kind.BOOLEAN:
            values = "WHEN 'true'::jsonb THEN 1::numeric WHEN 'false'::jsonb THEN 0::numeric"
            return self.or_default(f"CASE {self.json} {values} END")
        return f'({self.or_default(f"(fields ->> {literal(self.field.name)})")} COLLATE "C")'

    @staticmethod
    def quoted(text: str) -> str:
        digits = [rf"\U{ord(character):08X}" for character in text]
        return f"E'{''.join(digits)}'"

    @property
    def counted(self) -> str:
        """See `Column`. JSON has its text, so that 1 and "1" differ."""
        return self._of_json(_COUNTED) if self.field.kind is Kind.JSON else self.value

    @property
    def number(self) -> str:
        form = "CASE jsonb_typeof({json}) WHEN 'number' THEN ({text})::numeric END"
        return self._of_json(form) if self.field.kind is Kind.JSON else self.value

    @property
    def written(self) -> str:
        form = f"CASE jsonb_typeof({{json}}) WHEN 'string' THEN left({{text}}, {SORTED}) END COLLATE \"C\""
        return self._of_json(form) if self.field.kind is Kind.JSON else self.value

    def local(self, zone: str) -> str:
        return f"({_LOCAL.format(self.written, self.quoted(zone))})"

    def _of_json(self, form: str) -> str:
        names = path_of(self.field.name)
        *around, last = (f"'{name}'" for name in names)
        parent = " -> ".join(["body::jsonb" if around else "fields", *around])  # objects are in the body only
        return f"({form.format(json=f'{parent} -> {last}', text=f'{parent} ->> {last}')})"

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
        return f"jsonb_path_query_array(body::jsonb, {self._path})"

    @property
    def _path(self) -> str:
        names = ".".join(f'"{name}"' for name in path_of(self.field.name))
        return f"'$.{names}[*]'"

    @property
    def json_value(self) -> str:
        return "('strict $[*] ? (@ == ' || term.value || ')')" if self.field.is_many else "(term.value::jsonb #>> '{}')"

    def condition(self, filter: Filter, parameter: str) -> str:
        if self.field.kind is Kind.JSON and filter.op is Op.LIKE:
            texts = f"jsonb_path_query({_FOLDED}, {self._path}) AS element"
            return f"EXISTS (SELECT FROM {texts} WHERE strpos({_WRITTEN}, {parameter}) > 0)"  # noqa: S608 - declared names only
        if self.field.is_many:  # `parameter` is a test of its values
            parameter = "'strict $[*] ? (@ != null)'" if filter.op is Op.IS else parameter
            has = f"{self.values} @? {parameter}::jsonpath"
            if self.is_indexed and filter.op in (Op.EQ, Op.IN):  # at once: the planner expects to find some soon by id
                where = f"collection = {literal(self.collection)} AND {has}"
                return f"id = ANY(ARRAY(SELECT id FROM items WHERE {where}))"  # noqa: S608 - declared names only
            is_not = filter.op is Op.NE or (filter.op is Op.IS and filter.value)
            return f"NOT coalesce({has}, false)" if is_not else f"({has})"
        if filter.op is Op.IS:
            return self.is_null(filter)
        if filter.op is Op.LIKE:
            return self.contains(parameter)
        value = "element" if filter.op is Op.IN else f"{parameter}::{self.type}"
        left, right = self._sides(filter, value)
        if filter.op is Op.STARTS:
            term = f"{left[0]} >= {right[0]} AND {left[0]} < {right[0]} || {LAST}"
        elif filter.op is Op.ENDS:
            term = f"right({left[0]}, length({right[0]})) = {right[0]}"
        elif filter.op is not Op.IN:
            term = f"{in_row(left)} {_COMPARISON[filter.op]} {in_row(right)}"
        elif right == [value]:
            term = (
                f"{in_row(left)} = ANY({parameter}::{self.type}[])"  # which the planner can estimate, unlike a subquery
            )
        else:
            values = f"SELECT {', '.join(right)} FROM unnest({parameter}::{self.type}[]) AS element"  # noqa: S608
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
        by_value = self.by_owner(filter) or (self.is_unique and filter.op in (Op.EQ, Op.IN))
        if self.is_text and self.is_unique and filter.op in (Op.EQ, Op.IN):
            return [self.unique], [unique_text(value)]
        if self.is_text and self.is_part and not by_value and filter.op not in (Op.NE, Op.ENDS):
            if exceeds_index(filter) and filter.op is not Op.STARTS:
                return [self.order, self.key], [beginning(value), value]
            return [self.order], [value]
        return [self.folded if by_value else self.key], [value]

    @property
    def outer_value(self) -> str:
        name = literal(self.field.name)
        number = (
            f"CASE WHEN jsonb_typeof(items.fields -> {name}) = 'number' THEN (items.fields ->> {name})::numeric END"
        )
        text = "items.owner" if self.field.is_owner else f"(items.fields ->> {name})"
        return number if self.field.kind is Kind.INTEGER else text

    @staticmethod
    def number_of(id: str) -> str:
        return f"CASE WHEN {id} ~ '^([0-9]{{16}}|A[0-9]{{19}})$' THEN ltrim({id}, 'A')::numeric END"

    @staticmethod
    def id_of(number: str) -> str:
        small, large = (f"lpad(({number})::text, {digits}, '0')" for digits in (16, 19))
        return f"CASE WHEN {number} < 1e16 THEN {small} ELSE 'A' || {large} END"

    def has_one(self, values: Sequence[str]) -> str:
        (first, *_) = values
        if not self.field.is_many:
            return self.condition(Filter(self.field.name, Op.EQ, None), first)
        tests = ", ".join(f"'@ == ' || to_json({value})::text" for value in values)  # of null there is none
        return f"({self.values} @? ('strict $[*] ? (' || concat_ws(' || ', {tests}) || ')')::jsonpath)"

    def in_found(self, values: Sequence[str], where: str) -> str:
        """See `Column`. Values of a field that can have several are looked for by its index."""
        if not self.field.is_many:
            return super().in_found(values, where)
        # One by one, each by the index: a test of all of them would be as deep as they are many.
        selects = " UNION ALL ".join(f"SELECT {value} AS reference FROM items WHERE {where}" for value in values)  # noqa: S608 - declared names only
        mine = f"collection = {literal(self.collection)} AND {self.has_one(['reference'])}"
        ids = f"SELECT id FROM items WHERE {mine} OFFSET 0"  # noqa: S608 - likewise
        joined = f"({selects}) AS others CROSS JOIN LATERAL ({ids}) AS referring"
        return f"id = ANY(ARRAY(SELECT referring.id FROM {joined}))"  # noqa: S608 - likewise

    @staticmethod
    def parameter_of(field: Field, filter: Filter) -> Any:
        if filter.op is Op.LIKE:
            return clean(str(filter.value).casefold())
        if field.is_many:
            return clean(_json_path(filter))
        if isinstance(filter.value, tuple):
            return [comparable(field.kind, value) for value in filter.value]
        return comparable(field.kind, filter.value)

    @staticmethod
    def outlined(filter: Filter) -> Scalar:
        """See `Column`. A value that is too long for an index has another statement."""
        return _LONG if exceeds_index(filter) else None

    @staticmethod
    def text(text: str) -> str:
        """See `Column`. PostgreSQL has no NUL in texts."""
        return clean(text)

    @staticmethod
    def texts(texts: Sequence[str]) -> Any:
        return list(map(clean, texts))

    @staticmethod
    def plain(key: Any) -> Any:
        """See `queries.Column`. A double has all digits of the numbers in items; null is below all."""
        if not isinstance(key, Decimal):
            return key
        if not key.is_finite():
            return None
        is_integer = key == key.to_integral_value() and -(2**63) <= key < 2**63
        return int(key) if is_integer else float(key)

    @classmethod
    def search_condition(cls, columns: Sequence["PostgresColumn"], parameter: str) -> str:
        if any(column.field.name == ANY for column in columns):
            texts = f"jsonb_path_query({_FOLDED}, 'strict $.** ? (@.type() == \"string\")') AS element"
            return f"EXISTS (SELECT FROM {texts} WHERE strpos({_WRITTEN}, {parameter}) > 0)"  # noqa: S608 - constant texts
        return f"({' OR '.join(column.contains(parameter) for column in columns)})" if columns else "false"

    def contains(self, parameter: str) -> str:
        """Whether the text, or an element of a list, contains a folded text; false for null."""
        name = literal(self.field.name)
        if self.field.kind is Kind.LIST:
            value = f"coalesce(folded -> {name}, {self.json})"
            elements = f"jsonb_array_elements_text(CASE WHEN jsonb_typeof({value}) = 'array' THEN {value} END)"
            return f'EXISTS (SELECT FROM {elements} AS text WHERE strpos(lower(text COLLATE "C"), {parameter}) > 0)'  # noqa: S608
        text = 'lower(owner COLLATE "default")' if self.field.is_owner else f'lower((fields ->> {name}) COLLATE "C")'
        text = f"coalesce(folded ->> {name}, {self.or_default(text, str.casefold)})"
        if self.is_own:
            text = f"lower({self.field.name}::text)"
        return f"coalesce(strpos({text}, {parameter}) > 0, false)"


def clean(text: str) -> str:
    """A text as it can be sent to PostgreSQL, which has no character NUL. Items have none; a query may have it."""
    return text.replace("\0", "\ufffd") if "\0" in text else text


def _json_path(filter: Filter) -> str:
    """The test of the values of a field that can have several, as a JSON path. It does not look into their arrays."""
    present = filter.value if isinstance(filter.value, tuple) else (filter.value,)
    present = tuple(value for value in present if value is not None)
    values = [str(value) if isinstance(value, Decimal) else orjson.dumps(value).decode() for value in present]
    if filter.op is Op.ENDS:  # by a regular expression in which every sign stands for itself
        test = f"@ like_regex {orjson.dumps(_SIGN.sub(_ESCAPED, str(filter.value)) + '$').decode()}"
    elif filter.op in _TESTS:
        test = " || ".join(f"@ {_TESTS[filter.op]} {value}" for value in values if value not in ("true", "false"))
    else:
        test = " || ".join(f"@ == {value}" for value in values) or "1 == 0"
    return f"strict $[*] ? ({test})"


def comparable(kind: Kind, value: Scalar | float) -> str | Decimal:
    """A value as a parameter of a kind. A value of another kind, which a client made up, is below or above all."""
    if kind not in _NUMBERS:
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


def exceeds_index(filter: Filter) -> bool:
    """Whether a text of a filter may be longer than those in indexes."""
    values = filter.value if isinstance(filter.value, tuple) else (filter.value,)
    return any(isinstance(value, str) and len(value) >= BEGINNING for value in values)


_LONG = "x" * BEGINNING

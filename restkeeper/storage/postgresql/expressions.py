"""SQL expressions of fields: those that queries, indexes and orders are made of.

Field names come from the declaration only; values are always parameters. An entry of an index has at most 2,704 bytes,
so indexes have the beginnings of texts only, and items are sorted by these.
"""

from dataclasses import dataclass
from functools import cached_property

from restkeeper.storage.contract import Collection, Field, Kind
from restkeeper.storage.sql import literal

BEGINNING = 500  # characters of a text in an index

_OWN_COLUMN = {"id", "version", "updated_at"}
_NUMBERS = (Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN)
_LOWEST = {Kind.INTEGER: "'-Infinity'::numeric", Kind.NUMBER: "'-Infinity'::numeric", Kind.BOOLEAN: "-1::numeric"}


@dataclass(frozen=True)
class Column:
    """A field of a collection, as expressions over a row of the table of items.

    `folds` says whether texts are compared without case, `is_indexed` and `is_unique` whether there are such indexes.
    """

    field: Field
    folds: bool
    is_indexed: bool
    is_unique: bool

    @property
    def is_own(self) -> bool:
        """Whether the table has a column for it."""
        return self.field.name in _OWN_COLUMN

    @property
    def is_text(self) -> bool:
        return self.field.kind in (Kind.TEXT, Kind.TIME)

    @property
    def type(self) -> str:
        """The SQL type of values that are compared with it."""
        return type_of(self.field.kind)

    @cached_property
    def json(self) -> str:
        """The JSON value."""
        return f"fields -> {literal(self.field.name)}"

    @cached_property
    def value(self) -> str:
        """The value as its type, which is null if an older item has another kind of value there."""
        if self.is_own:
            return self.field.name
        if self.field.kind in (Kind.INTEGER, Kind.NUMBER):
            return f"CASE WHEN jsonb_typeof({self.json}) = 'number' THEN ({self.json})::numeric END"
        if self.field.kind is Kind.BOOLEAN:
            return f"CASE {self.json} WHEN 'true'::jsonb THEN 1::numeric WHEN 'false'::jsonb THEN 0::numeric END"
        return f'((fields ->> {literal(self.field.name)}) COLLATE "C")'

    @cached_property
    def folded(self) -> str:
        """The value, folded if texts are compared without case."""
        return f"lower({self.value})" if self.folds else self.value

    @cached_property
    def key(self) -> str:
        """What is compared and sorted: never null."""
        lowest = _LOWEST.get(self.field.kind, "''")
        return self.folded if self.is_own else f"coalesce({self.folded}, {lowest})"

    @cached_property
    def order(self) -> str:
        """What an index and an order have: of a text the beginning."""
        return beginning(self.key) if self.is_text and self.field.name != "id" else f"({self.key})"

    @cached_property
    def unique(self) -> str:
        """What a unique index has; null does not occur in it."""
        return unique_text(self.folded) if self.is_text else f"({self.folded})"

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


def column(collection: Collection, name: str) -> Column:
    """The column of a field."""
    of_field = [index for index in collection.indexes if index.field == name]
    return Column(
        collection.fields[name],
        folds=any(index.fold for index in of_field),
        is_indexed=any(not index.unique for index in of_field),
        is_unique=any(index.unique for index in of_field),
    )


def type_of(kind: Kind) -> str:
    """The SQL type of values of a kind."""
    return "numeric" if kind in _NUMBERS else "text"


def beginning(text: str) -> str:
    """The part of a text that an index has."""
    return f"left({text}, {BEGINNING})"


def unique_text(text: str) -> str:
    """A text in a unique index: the text itself, or of a long one its beginning and a digest."""
    return f"({beginning(text)} || CASE WHEN length({text}) > {BEGINNING} THEN md5({text}) ELSE '' END)"

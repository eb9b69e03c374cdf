"""A revision of the items of a collection: its schema, and what follows from it."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set
from copy import copy
from decimal import Decimal
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple, Self, cast

import orjson
from marshmallow import INCLUDE, Schema, ValidationError, fields, missing

from restkeeper import exactjson
from restkeeper.resources.parameters import MOST_NAMES
from restkeeper.resources.queried import queryable_fields
from restkeeper.resources.step import Members
from restkeeper.resources.stored_schema import OPEN, inside_of
from restkeeper.schemas.fields import READABLE_BY, Owner, Refers, Status, default_of, is_guarded, scopes_of
from restkeeper.schemas.item import READ_ONLY, IntegerId, ItemSchema, hidden_in, mark_of
from restkeeper.schemas.prepared import COMPUTED, fields_of, is_computed, is_optional, prepared
from restkeeper.storage.interface import ANY, Field, Kind, Scalar, root_of

_DEFAULTS = {  # what a field of a kind can have where an item does not, as queries see it
    Kind.TEXT: (str,),
    Kind.TIME: (str,),
    Kind.INTEGER: (int,),
    Kind.NUMBER: (int, Decimal),
    Kind.BOOLEAN: (bool,),
}
_LONGEST_DEFAULT = 1000  # characters, of one in a statement

Definitions = Mapping[str, fields.Field[Any]]

CALLABLE = "callable"  # in a fingerprint, for a default that a function makes: its values differ


class Revision(NamedTuple):
    """One revision of the items of a collection: its number, its schema, and what follows from them.

    The `fingerprint` has the number, if it is not 1, and 8 hex digits of the fields, their order, types and defaults
    (not the values that a function makes), and of the schemas inside them. Its end names the fields of READ_ONLY that
    stored items do not have.
    """

    number: int
    schema: type[ItemSchema]
    fingerprint: str
    definitions: Definitions  # of all fields but the server's
    always: frozenset[str]  # the fields that every item has
    described: Definitions  # the fields that the store knows: also an integer id
    guarded: Definitions  # the fields that need a scope, or an action, to be changed, perhaps only to some states
    private: Mapping[str, str]  # the fields that need a scope to be read, with this scope
    references: Mapping[str, Refers]  # by their paths, also inside nested schemas: what they refer to exists
    followed: Mapping[str, Refers | Owner]  # all fields with ids of items, which perhaps exist
    owner: str  # the field of the owner; empty if there is none
    names: tuple[str, ...]  # all fields in the order of an item, in JSON
    stored: tuple[str, ...]  # the fields of a stored item: also the hidden fields of the server
    hidden: tuple[str, ...]
    of_server: tuple[str, ...]  # the stored fields of the server; without hidden ones if other fields can have the name
    is_open: bool  # whether items also have fields that no definition names
    fields: Mapping[str, Field]  # the fields that queries can use
    texts: frozenset[str]  # the fields whose values are texts, or null
    read_only: tuple[str, ...]  # the fields that no caller sets
    computed: frozenset[str]  # the read-only fields that follow from other fields
    defaults: Mapping[str, bytes]  # the texts of the values of a new item
    filled: frozenset[str]  # fields whose value queries need in every item: no index tells missing from null
    loading: Schema  # loads an item without READ_ONLY; its other read-only fields have their stored values

    @classmethod
    def of(cls, number: int, schema: type[ItemSchema], *, undeclared: bool = False) -> Self:
        """The revision of items with this schema; queries can use what is `undeclared`, too.

        Raises ValueError for a default that is no value of its field.
        """
        ready, hidden = prepared(schema), hidden_in(schema)
        by_name, is_open = fields_of(ready), ready.unknown == INCLUDE
        definitions = {name: field for name, field in by_name.items() if name not in READ_ONLY or name in hidden}
        optional = {name for name, field in definitions.items() if is_optional(ready, field)}
        absent = hidden if is_open or not definitions.keys().isdisjoint(hidden) else ()
        of_server = tuple(name for name in READ_ONLY if name not in absent)
        leading = [name for name in of_server if name == "id"]
        stored = (*leading, *definitions, *(name for name in of_server if name not in leading))
        ordered = {name: by_name[name] for name in stored if name in by_name}
        computed = frozenset(name for name, field in definitions.items() if is_computed(field))
        required = optional | computed | {name for name, field in definitions.items() if field.required}
        defaults = {name: _checked_default(name, definitions[name]) for name in definitions if name not in required}
        queried, filled = _queried_fields(ordered, definitions, optional, defaults)
        if undeclared:  # ANY has the paths of free objects, too
            queried = {path: field for path, field in queried.items() if "*" not in path or field.read}
            queried[ANY] = Field(ANY, Kind.JSON, nullable=True, in_body=True)
        digits = _digits(ordered, defaults, definitions if is_open else None) + mark_of(absent)
        id = {name: field for name, field in by_name.items() if isinstance(field, IntegerId)}
        private = [name for name, field in definitions.items() if READABLE_BY in field.metadata]
        refers = dict(references_in(ready))
        owners = {name: field for name, field in definitions.items() if isinstance(field, Owner)}
        return cls(
            number=number,
            schema=schema,
            fingerprint=digits if number == 1 else f"{number}-{digits}",
            definitions=MappingProxyType(definitions),
            always=frozenset(definitions.keys() - optional),
            described=MappingProxyType(id | definitions),
            guarded=MappingProxyType({name: field for name, field in definitions.items() if is_guarded(field)}),
            private=MappingProxyType({name: definitions[name].metadata[READABLE_BY] for name in private}),
            references=MappingProxyType({path: field for path, field in refers.items() if field.checked}),
            followed=MappingProxyType(refers | {name: field for name, field in owners.items() if field.to}),
            owner=next(iter(owners), ""),
            names=tuple(ordered),
            stored=stored,
            hidden=hidden,
            of_server=of_server,
            is_open=is_open,
            fields=MappingProxyType(queried),
            texts=frozenset(
                name for name in ordered if name in queried and queried[name].kind in (Kind.TEXT, Kind.TIME)
            ),
            read_only=tuple(name for name, field in definitions.items() if field.dump_only),
            computed=computed,
            defaults=MappingProxyType({name: exactjson.dumps(value) for name, value in defaults.items()}),
            filled=computed | filled,
            loading=_loading_schema(schema, hidden),
        )

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that its fields and states need."""
        return tuple(scope for field in self.guarded.values() for scope in scopes_of(field))

    def with_defaults(self, members: Members) -> Members:
        """An item with exactly the stored fields, in their order: missing fields have their defaults.

        An open item has other fields, too, and its own order.
        """
        complete = {**self.defaults, **members}
        if self.is_open:
            return {**members, **complete}
        return {name: complete[name] for name in self.stored if name in complete}


def _queried_fields(
    ordered: Definitions, definitions: Definitions, optional: Set[str], defaults: Mapping[str, Any]
) -> tuple[dict[str, Field], frozenset[str]]:
    """The fields that queries can use, by path; and the fields with defaults that are `filled`, see `Revision`."""
    queried = {inner.name: inner for name, field in ordered.items() for inner in queryable_fields(name, field)}
    filled = {name for name in defaults if _is_made_anew(definitions[name])}
    for path, field in queried.items():
        root = root_of(path)
        changed = dataclasses.replace(field, nullable=field.nullable or root in optional, in_body=root in definitions)
        if root not in filled and (default := defaults.get(root)) not in (None, [], {}):
            changed = dataclasses.replace(changed, default=_compared_default(changed, default))
            filled |= {root} if changed.default is None else set()
        queried[path] = changed
    return queried, frozenset(filled)


def _digits(ordered: Definitions, defaults: Mapping[str, Any], free: Definitions | None) -> str:
    """The digits of a fingerprint; of an open schema, with these definitions, other programs need the rules."""
    parts: list[Any] = []
    for name, field in ordered.items():
        inside = inside_of(field)
        default = CALLABLE if name in defaults and callable(field.load_default) else defaults.get(name)
        parts.append((name, type(field).__name__, default, *([] if inside is None else [inside])))
    if free is not None:
        parts.append((OPEN, [name for name, field in free.items() if field.required], list(defaults)))
    return blake2b(exactjson.dumps(parts), digest_size=4).hexdigest()


def _loading_schema(schema: type[ItemSchema], hidden: Sequence[str]) -> Schema:
    """The schema that loads an item without READ_ONLY, and the other read-only fields as they are stored."""
    loading = prepared(schema, exclude=tuple(name for name in READ_ONLY if name not in hidden))
    for name, field in loading.fields.items():
        if field.dump_only and not is_computed(field):
            field.load_default = None if field.load_default is missing else field.load_default
            loading.load_fields[name] = field
    return loading


def references_in(schema: Schema, around: str = "") -> Iterator[tuple[str, Refers]]:
    """The references of a schema by their paths, also those inside nested schemas."""
    for name, field in fields_of(schema).items():
        inner: Any = field.inner if isinstance(field, fields.List) else field
        if isinstance(inner, Refers):
            yield f"{around}{name}", inner
        elif isinstance(inner, fields.Nested) and around.count(".") < MOST_NAMES - 1:  # a schema can be inside itself
            yield from references_in(inner.schema, f"{around}{name}.")


def schema_with(schema: type[ItemSchema], definitions: Mapping[str, fields.Field[Any]]) -> type[ItemSchema]:
    """A schema with the name and description of another one, and with other fields; no field is computed."""
    ids = {name: field for name, field in schema().fields.items() if name == "id"}
    copies = {name: copy(field) for name, field in {**ids, **definitions}.items()}
    for name, field in copies.items():
        if isinstance(field, COMPUTED):  # by a method that is not in this schema
            copies[name] = fields.Raw(dump_only=field.dump_only, required=field.required, metadata=field.metadata)
            copies[name].allow_none = True
        field.name = field.parent = field.root = field.data_key = field.attribute = None  # it can have another name
    hidden = hidden_in(schema)
    for name in copies.keys() & hidden:
        copies[name].data_key = name
        copies[f"own_{name}"] = copies.pop(name)
    copied = ItemSchema.from_dict(copies, name=schema.__name__)
    copied.__doc__, copied.opts.exclude = schema.__doc__, hidden
    copied.opts.unknown = INCLUDE if schema.opts.unknown == INCLUDE else copied.opts.unknown
    return cast(type[ItemSchema], copied)


def schema_without(schema: type[ItemSchema], names: Sequence[str]) -> type[ItemSchema]:
    """A schema with the same name that excludes some of its fields, too."""
    copied = schema.from_dict({}, name=schema.__name__)
    copied.__doc__, copied.opts.exclude = (
        schema.__doc__,
        {*names}.intersection(schema().fields).union(schema.opts.exclude),
    )
    return cast(type[ItemSchema], copied)


def _is_made_anew(definition: fields.Field[Any]) -> bool:
    """Whether a function makes the default of a field, so that each time it can be another one."""
    return callable(definition.load_default) and definition.load_default not in (list, dict)


def _compared_default(field: Field, default: Any) -> Scalar:
    """The default with which queries compare items that do not have a field; None if they cannot."""
    stored = orjson.loads(exactjson.dumps(default))  # a number with the digits that queries see
    stored = Decimal(repr(stored)) if isinstance(stored, float) else stored
    fits = type(stored) in _DEFAULTS.get(field.kind, ()) and len(str(stored)) <= _LONGEST_DEFAULT
    return stored if fits and not (field.nullable or field.is_many) else None


def _checked_default(name: str, field: fields.Field[Any]) -> Any:
    """As `default_of`. Raises ValueError for what is no value of the field."""
    try:
        text = exactjson.dumps(value := default_of(field))
        is_checked = not (field.dump_only or isinstance(field, Status))  # a state is compared with its lifecycle
        if is_checked and field.load_default is not missing and not callable(field.load_default):
            field.deserialize(exactjson.loads(text))  # what an item has, its reader can send back
    except ValidationError as error:
        wrong = "; ".join(map(str, error.messages))
        raise ValueError(f"{name}: load_default={field.load_default!r}: {wrong}") from None
    except Exception as error:  # of marshmallow, or of a function of the service
        raise ValueError(f"{name}: load_default: is no value of {type(field).__name__}: {error}") from error
    return value

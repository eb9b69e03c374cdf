"""The declaration of a collection, and what follows from it for each revision of its items."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar, cast

from marshmallow import Schema, fields, missing, validate

from restkeeper.resources.evolution import (
    Add,
    Chain,
    Members,
    Step,
    describe,
    differences,
    inside_of,
    steps_for,
)
from restkeeper.schemas.fields import Time, default_of
from restkeeper.schemas.item import READ_ONLY, ItemSchema
from restkeeper.storage.interface import Collection, Field, Index, Kind, StoredSchema
from restkeeper.web import exactjson

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_ACTION = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_WRITES = ("create", "update", "delete")

Function = TypeVar("Function", bound=Callable[..., Any])

_KINDS: tuple[tuple[type[fields.Field[Any]], Kind], ...] = (
    (Time, Kind.TIME),
    (fields.String, Kind.TEXT),
    (fields.Integer, Kind.INTEGER),
    (fields.Decimal, Kind.NUMBER),
    (fields.Float, Kind.NUMBER),
    (fields.Boolean, Kind.BOOLEAN),
    (fields.List, Kind.LIST),
)

_PARTS = {"name": str, "singular": str, "schema": type, "indexes": Sequence, "search": Sequence, "upgrades": Mapping}

LONGEST_KEY = 300  # characters of a value that can be sorted by


class Ownership(Enum):
    """What the owner of an item may do with it and others may not, besides the scopes for reading and writing.

    A unique field is unique for all owners together: a refused value shows that another item has it.
    """

    NONE = "nothing"
    CHANGES = "others read it, and only its owner changes it"
    ALL = "others do not even see it"


@dataclass(frozen=True)
class Action:
    """An operation of an item, or of a collection, besides reading and writing: see `Resource.action`."""

    name: str
    function: Callable[..., Any]
    body: type[Schema] | None
    scope: str
    of_item: bool


class Revision:
    """One revision of the items of a collection: its number, its schema, and what follows from them.

    `definitions` are those of the fields that a client sets, `names` all fields in the order of an item, `fields` those
    that queries can use, `texts` those whose values are texts, or null. The `fingerprint` has the number, if it is
    not the first, and 8 hex digits: they are of the fields, their order, types and defaults, and of the schemas inside
    them.
    """

    def __init__(self, number: int, schema: type[ItemSchema]) -> None:
        made = schema()
        self.number = number
        self.schema = schema
        self.definitions = {name: field for name, field in made.fields.items() if name not in READ_ONLY}
        self.names = ("id", *self.definitions, *READ_ONLY[1:])
        ordered = {name: made.fields[name] for name in self.names}
        self.fields = {name: each for name, field in ordered.items() if (each := _queried(name, field))}
        self.texts = frozenset(name for name, field in ordered.items() if isinstance(field, fields.String))
        optional = {name: field for name, field in made.load_fields.items() if not field.required}
        defaults: dict[str, Any] = made.dump({name: default_of(field) for name, field in optional.items()})
        self._defaults = {name: exactjson.dumps(value) for name, value in defaults.items()}
        parts: list[Any] = []
        for name, field in ordered.items():
            inside = inside_of(field)
            parts.append((name, type(field).__name__, defaults.get(name), *([] if inside is None else [inside])))
        digits = blake2b(exactjson.dumps(parts), digest_size=4).hexdigest()
        self.fingerprint = digits if number == 1 else f"{number}-{digits}"

    def completed(self, members: Members) -> Members:
        """An item with exactly these fields, in their order: those that are missing have their defaults."""
        had = {**self._defaults, **members}
        return {name: had[name] for name in self.names if name in had}


@dataclass(frozen=True)
class Resource:
    """A collection: its names, the schema of its items, its indexes, and the fields that full-text search covers.

    `name` is the plural as it stands in paths, of ASCII letters, digits and underscores. `ownership` binds all callers
    but admins. With `events`, every change of an item is an event. `upgrades` has the steps that lead to each revision
    of the items from the one before, as far as there are stored items or versions of older revisions; the first
    revision is 1.
    """

    name: str
    singular: str
    schema: type[ItemSchema]
    indexes: tuple[Index, ...] = ()
    search: tuple[str, ...] = ()
    ownership: Ownership = Ownership.NONE
    events: bool = True
    upgrades: Mapping[int, Sequence[Step]] = dataclasses.field(default_factory=dict)
    actions: dict[str, Action] = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)
    _own: list[tuple[str, Callable[..., Any]]] = dataclasses.field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def action(
        self, name: str, *, body: type[Schema] | None = None, scope: str = "write", of: str = "item"
    ) -> Callable[[Function], Function]:
        """Declare an action: `POST /orders/ID/pay`, or of="collection": `POST /orders/close-day`.

        The function gets the item as a dictionary, then what the `body` has, loaded by that schema, if there is one,
        and last a `Unit` to read and change other items. It returns the changed item, or None if it changes nothing.
        One of a collection gets no item, and returns the response's JSON value. Everything is one transaction, in which
        the item is locked. What it raises undoes all. It is called again if the store had to end a transaction because
        of others (a deadlock): it must have no other effects. Its docstring is in the API document.

        Raises ValueError for a name that cannot be part of a path, or is taken.
        """
        if not _ACTION.fullmatch(name) or name in self.actions:
            raise ValueError(f"{self.name}: action({name!r}): must be a new name of small letters, digits and dashes")
        if of not in ("item", "collection"):
            raise ValueError(f"{self.name}: action({name!r}, of={of!r}): must be 'item' or 'collection'")

        def declare(function: Function) -> Function:
            self.actions[name] = Action(name, function, body, scope, of == "item")
            return function

        return declare

    def before(self, *writes: str) -> Callable[[Function], Function]:
        """Declare a function that is called before each of these writes: "create", "update" or "delete".

        It gets the item as it will be and as it is, each a dictionary, or None if there is none. It may return another
        one, which is validated, or raise a problem. It may be called again for one request: it must have no other
        effects. Raises ValueError for another word.
        """
        return self._declared("before", writes)

    def after(self, *writes: str) -> Callable[[Function], Function]:
        """Declare a function that is called after each of these writes, in its transaction.

        It gets the item and the one before, as those of `before`, and a `Unit`; what it raises undoes the write. Send
        mail and call others by a webhook or the feed: a transaction may still fail. Raises ValueError as `before`.
        """
        return self._declared("after", writes)

    def own(self, moment: str) -> list[Callable[..., Any]]:
        """The functions that are declared for a moment, such as "before create"."""
        return [function for of, function in self._own if of == moment]

    def _declared(self, moment: str, writes: tuple[str, ...]) -> Callable[[Function], Function]:
        if not writes or not set(writes) <= set(_WRITES):
            raise ValueError(f"{self.name}: {moment}{writes}: must be some of {', '.join(map(repr, _WRITES))}")

        def declare(function: Function) -> Function:
            self._own.extend((f"{moment} {write}", function) for write in writes)
            return function

        return declare

    def __post_init__(self) -> None:
        """Raises ValueError for a declaration that cannot work."""
        for name, kind in _PARTS.items():
            if not isinstance(value := getattr(self, name), kind) or (kind is Sequence and isinstance(value, str)):
                raise ValueError(f"{self.name}: {name}={value!r}: must be a {kind.__name__}")
        if not issubclass(self.schema, ItemSchema):
            raise ValueError(f"{self.name}: schema={self.schema.__name__}: must be a subclass of ItemSchema")
        if wrong := [each for each in self.indexes if not isinstance(each, Index)]:
            raise ValueError(f"{self.name}: indexes has {wrong[0]!r}: write Index({wrong[0]!r})")
        for revision, steps in self.upgrades.items():
            if not isinstance(steps, Sequence) or not all(isinstance(each, Step) for each in steps):
                raise ValueError(f"{self.name}: upgrades: {revision} has {steps!r}: must be a list of steps")
        if list(self.upgrades) != list(range(self.oldest + 1, self.revision + 1)) or self.oldest < 1:
            raise ValueError(f"{self.name}: upgrades are of the revisions 2, 3 …, each once and in this order")
        for each in self.revisions.values():
            self._require_sound(each)
        known = self.newest.fields
        for name in (*(index.field for index in self.indexes), *self.search):
            if name not in known:
                raise ValueError(f"{self.name}.{name}: cannot be indexed or searched; there are: {', '.join(known)}")
        added = [step for steps in self.upgrades.values() for step in steps if isinstance(step, Add)]
        if twice := sorted(self.unique.intersection(step.after[0] for step in added if step.is_constant)):
            raise ValueError(f"{self.name}: upgrades: Add({twice[0]!r}): older items cannot all have one unique value")

    def _require_sound(self, revision: Revision) -> None:
        """Raises ValueError for a name or a field that cannot be."""
        for name in (self.name, self.singular, *revision.definitions):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{self.name}: {name!r} is no name: use ASCII letters, digits and underscores")
        for name, field in revision.schema().load_fields.items():
            if field.data_key not in (None, name):
                raise ValueError(f"{self.name}.{name}: data_key is not supported; name the field as it is to be")
            if not field.required and field.load_default is missing:
                raise ValueError(f"{self.name}.{name}: say required=True or what load_default is")

    @cached_property
    def unique(self) -> frozenset[str]:
        """The fields with unique values."""
        return frozenset(index.field for index in self.indexes if index.unique)

    @cached_property
    def kind(self) -> str:
        """The name of an item in the names of schemas, such as "Product"."""
        return self.singular.title().replace("_", "")

    @cached_property
    def revision(self) -> int:
        """The number of the newest revision of the items."""
        return max(self.upgrades, default=1)

    @cached_property
    def oldest(self) -> int:
        """The number of the oldest revision that there are steps from."""
        return min(self.upgrades, default=2) - 1

    @cached_property
    def revisions(self) -> Mapping[int, Revision]:
        """The revisions by number, from the oldest to the newest. Raises ValueError for steps that do not fit."""
        newest = Revision(self.revision, self.schema)
        older = {}
        for number in range(self.oldest, self.revision):
            try:
                definitions = Chain(self.upgrades, number, self.revision).definitions(newest.definitions)
            except ValueError as error:
                raise ValueError(f"{self.name}: upgrades: {error}") from None
            older[number] = Revision(number, schema_with(self.schema, definitions))
        return older | {self.revision: newest}

    @property
    def newest(self) -> Revision:
        """The newest revision of the items."""
        return self.revisions[self.revision]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the newest revision."""
        return self.newest.fingerprint

    @cached_property
    def converted(self) -> Mapping[int, frozenset[str]]:
        """The fields that a step converts, for each older revision: those of an older item have another form."""
        converted: dict[int, frozenset[str]] = {}
        fields: frozenset[str] = frozenset()
        for revision in sorted(self.upgrades, reverse=True):
            steps = (step for step in self.upgrades[revision] if not step.is_additive)
            converted[revision - 1] = fields = fields.union(*(step.after for step in steps))
        return converted

    @cached_property
    def collection(self) -> Collection:
        """The declaration of the collection for a store."""
        newest, oldest = self.newest, self.revision
        while oldest > self.oldest and all(step.is_additive for step in self.upgrades.get(oldest, ())):
            oldest -= 1  # code of that revision can work with the items, too
        return Collection(
            self.name,
            newest.fields,
            self.indexes,
            self.search,
            owned=self.ownership is Ownership.ALL,
            schema=StoredSchema(newest.fingerprint, self.revision, oldest, describe(newest.definitions)),
            conflict=self._conflict,
        )

    def _conflict(self, schema: StoredSchema) -> str:
        """See `interface.Collection.conflict`."""
        name, revision = self.name, schema.revision
        if revision > self.revision:
            if schema.oldest <= self.revision:
                return ""
            return f"{name}: a newer program stored items of revision {revision}; this one has revision {self.revision}"
        if revision < self.oldest:
            return f"{name}: there are items or events of revision {revision}, and upgrades begins after {self.oldest}"
        if not (found := differences(schema.fields, self.revisions[revision].definitions)):
            return ""
        lines = (f"{name.upper()} = {{{revision + 1}: {steps}}}" for steps in steps_for(found))
        reasons = "; ".join(each.reason for each in found)
        more = "" if self.upgrades else f", and upgrades={name.upper()} in resources/{name}.py"
        return f"{name}: {reasons}. Write in storage/upgrades.py what became of it: {' or '.join(lines)}{more}"


def schema_with(schema: type[ItemSchema], definitions: Mapping[str, fields.Field[Any]]) -> type[ItemSchema]:
    """A schema with the name and description of another one, and with other fields."""
    copies = {name: copy(field) for name, field in definitions.items()}
    for field in copies.values():
        field.name = field.parent = field.root = None  # it can have another name here
    made = ItemSchema.from_dict(copies, name=schema.__name__)
    made.__doc__ = schema.__doc__
    return cast(type[ItemSchema], made)


def _queried(name: str, field: fields.Field[Any]) -> Field | None:
    """A field as queries know it; None for one that they cannot use."""
    kind = next((kind for of, kind in _KINDS if isinstance(field, of)), None)
    return Field(name, kind, field.allow_none, kind is not Kind.LIST and _is_short(field)) if kind else None


def _is_short(field: fields.Field[Any]) -> bool:
    """Whether a value is short enough for a cursor, which is part of a URL."""
    if isinstance(field, fields.String) and not isinstance(field, Time) and not field.validators:
        return field.dump_only
    most = [check.max for check in field.validators if isinstance(check, validate.Length)]
    return all(length is not None and length <= LONGEST_KEY for length in most)

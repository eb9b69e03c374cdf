"""The declaration of a collection, and the values that follow from it."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property, partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from marshmallow import Schema

from restkeeper.positions import Position
from restkeeper.resources.revision import Revision, schema_with, schema_without
from restkeeper.resources.step import Step
from restkeeper.resources.stored_schema import describe
from restkeeper.schemas.item import INTEGERS, READ_ONLY, IntegerId, ItemSchema
from restkeeper.schemas.prepared import loaded, worded
from restkeeper.storage.interface import ANY, POSITION, Collection, Field, Index, Kind, Sort, StoredSchema, serial

if TYPE_CHECKING:  # most services declare no steps, and do not load them
    from restkeeper.resources.evolution import Chain

_INTEGER_ID = re.compile(r"0|[1-9][0-9]{0,18}")

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

Functions = tuple[Callable[..., Any], ...]

ALL_OWNERS = "all"  # in the scope C:all, with which C:read and C:write reach the items of all owners

_nothing = partial(MappingProxyType[Any, Any], {})  # a mapping that stays empty


class Ownership(Enum):
    """The rights of an owner that others do not have, besides the scopes for reading and writing.

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
    partial: bool = False

    @cached_property
    def schema(self) -> Schema | None:
        """The schema that loads its body, with faults in the words of the engine."""
        return worded(self.body(partial=self.partial or None)) if self.body else None

    def load(self, sent: Any) -> Any:
        """What the schema loads of a body, None without a schema. Raises ValidationFailed."""
        return loaded(self.schema, sent) if self.schema else None


@dataclass(frozen=True)
class Declaration:
    """The parts of a collection: see `Resource`."""

    name: str
    singular: str
    schema: type[ItemSchema]
    indexes: tuple[Index, ...] = ()
    search: tuple[str, ...] = ()
    ownership: Ownership = Ownership.NONE
    events: bool = True
    upgrades: Mapping[int, Sequence[Step]] = dataclasses.field(default_factory=_nothing)
    sort: str = ""
    page_limit: int | None = None
    page_bytes: int | None = None
    embed_limit: int = 10
    ids: str = "server"
    methods: Sequence[str] = METHODS
    singleton: bool = False
    undeclared: bool = False
    path: str = ""
    needs: str = ""
    position: Position = dataclasses.field(init=False, repr=False, compare=False)  # of the declaration
    actions: Mapping[str, Action] = dataclasses.field(default_factory=_nothing, repr=False, compare=False)
    # By moment, such as "before create".
    functions: Mapping[str, Functions] = dataclasses.field(default_factory=_nothing, repr=False, compare=False)

    @property
    def public_name(self) -> str:
        """What callers call the collection."""
        return self.path or self.name

    def scope(self, way: str) -> str:
        """The scope that allows to "read" or to "write" it; other characters are escaped (RFC 6749, section 3.3)."""
        return self.needs or f"{quote(self.public_name, safe='')}:{way}"

    @cached_property
    def has_integer_ids(self) -> bool:
        """Whether the ids of its items are integers."""
        return self.ids in INTEGERS

    def key(self, id: Any) -> str:
        """The id of an item as the store has it. It is empty for what can be none."""
        if not self.has_integer_ids:
            return str(id)
        return serial(int(id)) if _INTEGER_ID.fullmatch(str(id)) else ""

    def public_id(self, key: str) -> str | int:
        """The id of an item as callers know it."""
        return int(key.removeprefix("A")) if self.has_integer_ids else key

    @cached_property
    def order(self) -> tuple[Sort, ...]:
        """The sort keys of a list that no request sorts."""
        return tuple(Sort(name.removeprefix("-"), name.startswith("-")) for name in self.sort.split(",") if name)

    @cached_property
    def reading_scopes(self) -> frozenset[str]:
        """The scopes that callers need to read private fields, in any revision."""
        return frozenset(scope for revision in self.revisions.values() for scope in revision.private.values())

    @cached_property
    def unique(self) -> frozenset[str]:
        """The fields with unique values."""
        return frozenset(index.field for index in self.indexes if index.unique and len(index.fields) == 1)

    @cached_property
    def compared(self) -> frozenset[str]:
        """The fields whose values are unique, alone or together with other fields."""
        return frozenset(field for index in self.indexes if index.unique for field in index.fields)

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
        """The number of the oldest revision that has steps to the next one."""
        return min(self.upgrades, default=2) - 1

    @cached_property
    def revisions(self) -> Mapping[int, Revision]:
        """The revisions by number, from the oldest to the newest. Raises ValueError for steps that do not fit."""
        schema = self.schema
        if self.has_integer_ids:
            about = {"description": "Given by the server: each is greater than all before."}
            id: dict[str, Any] = {"id": IntegerId(*INTEGERS[self.ids], dump_only=True, metadata=about)}
            schema = cast(type[ItemSchema], schema.from_dict(id, name=schema.__name__))
        try:
            schema = schema_without(schema, READ_ONLY) if self.singleton else schema
            newest = Revision.of(self.revision, schema, undeclared=self.undeclared)
        except ValueError as error:
            raise ValueError(f"{self.name}.{error}") from error
        older = {}
        for number in range(self.oldest, self.revision):
            try:
                definitions = self.chain(number, self.revision).definitions(newest.definitions)
            except ValueError as error:
                raise ValueError(f"{self.name}: upgrades: {error}") from None
            older[number] = Revision.of(number, schema_with(newest.schema, definitions))
        return MappingProxyType(older | {self.revision: newest})

    @cached_property
    def chain(self) -> "Callable[[int, int], Chain]":
        """The steps from a revision to a later one, by their numbers. It raises ValueError as `Chain`."""
        return cache(partial(import_module("restkeeper.resources.evolution").Chain, self.upgrades))

    @property
    def newest(self) -> Revision:
        """The newest revision of the items."""
        return self.revisions[self.revision]

    @cached_property
    def collection(self) -> Collection:
        """The declaration of the collection for a store."""
        newest = self.newest
        indexed = {index.field for index in self.indexes if not index.unique and len(index.fields) == 1}
        position = {POSITION: Field(POSITION, Kind.INTEGER)} if self.sort == POSITION else {}
        return Collection(
            self.name,
            MappingProxyType({"id": Field("id", Kind.TEXT), **newest.fields, **position}),  # `id` of a singleton, too
            (*self.indexes, *(Index(name) for name in (*newest.references, *position) if name not in indexed)),
            self.search or (ANY,) * self.undeclared,
            has_owner_index=self.ownership is Ownership.ALL or bool(newest.owner),
            schema=StoredSchema(newest.fingerprint, self.revision, describe(newest.described, is_open=newest.is_open)),
            conflict=self._conflict,
        )

    def _conflict(self, schema: StoredSchema, common: bool) -> str:
        """See `interface.Collection.conflict`; what finds the reasons is loaded where the stored schema differs."""
        conflict: str = import_module("restkeeper.resources.conflict").conflict_of(self, schema, common=common)
        return conflict

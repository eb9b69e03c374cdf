"""The declaration of a collection, and what follows from it for each revision of its items."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import cache, cached_property, partial, wraps
from hashlib import blake2b
from inspect import Parameter, iscoroutinefunction, signature, unwrap
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast
from urllib.parse import quote

import orjson
from marshmallow import INCLUDE, Schema, ValidationError, fields, missing

from restkeeper import exactjson
from restkeeper.mistakes import Position, calling_line
from restkeeper.resources.call import ADMIN, KNOWN, PUBLIC, SCOPE
from restkeeper.resources.evolution import (
    OPEN,
    Add,
    Chain,
    Members,
    Step,
    describe,
    differences,
    inside_of,
    steps_for,
    was_open,
)
from restkeeper.resources.parameters import MOST_NAMES
from restkeeper.resources.queried import NAME, longest_text, queryable_fields
from restkeeper.schemas.fields import (
    READABLE_BY,
    Email,
    Owner,
    Refers,
    Status,
    WeakReference,
    default_of,
    is_guarded,
    scopes_of,
)
from restkeeper.schemas.item import IDS, INTEGERS, READ_ONLY, IntegerId, ItemSchema, absent_in, hidden_in, mark_of
from restkeeper.schemas.prepared import (
    COMPUTED,
    all_fields_in,
    fields_of,
    is_computed,
    is_optional,
    loaded,
    prepared,
    refusals,
    worded,
)
from restkeeper.storage.interface import (
    ANY,
    MOST_INDEXED,
    POSITION,
    Collection,
    Field,
    Index,
    Kind,
    Scalar,
    Sort,
    StoredSchema,
    field_in,
    root_of,
    serial,
)

_ACTION = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_TAKEN = ("list", "create", "read", "replace", "merge", "delete")
_WRITES = ("create", "update", "delete")
_DEFAULTS = {  # what a field of a kind can have where an item does not, as queries see it
    Kind.TEXT: (str,),
    Kind.TIME: (str,),
    Kind.INTEGER: (int,),
    Kind.NUMBER: (int, Decimal),
    Kind.BOOLEAN: (bool,),
}
_LONGEST_DEFAULT = 1000  # characters, of one in a statement
_INTEGER_ID = re.compile(r"0|[1-9][0-9]{0,18}")

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_OF_SINGLETON = ("GET", "PUT", "PATCH")

Function = TypeVar("Function", bound=Callable[..., Any])
Functions = tuple[Callable[..., Any], ...]
Definitions = Mapping[str, fields.Field[Any]]

CALLABLE = "callable"  # in a fingerprint, for a default that a function makes: its values differ
ALL_OWNERS = "all"  # in the scope C:all, with which C:read and C:write reach the items of all owners
LARGEST_PAGE = 10_000  # items
LONGEST_INDEXED = 600  # characters of several fields of an index: PostgreSQL has 2,704 bytes for them
LONGEST_PATH = 64  # characters


class Ownership(Enum):
    """What the owner of an item may do with it and others may not, besides the scopes for reading and writing.

    A unique field is unique for all owners together: a refused value shows that another item has it.
    """

    NONE = "nothing"
    CHANGES = "others read it, and only its owner changes it"
    ALL = "others do not even see it"


_nothing = partial(MappingProxyType[Any, Any], {})  # a mapping that stays empty
_TEXT, _SEQUENCE = (str, "a text"), (Sequence, "a tuple or a list")
_PARTS: Mapping[str, tuple[type, str]] = {
    "name": _TEXT,
    "singular": _TEXT,
    "schema": (type, "a class"),
    "indexes": _SEQUENCE,
    "search": _SEQUENCE,
    "upgrades": (Mapping, "a dictionary, such as {2: [Rename('title', 'name')]}"),
    "sort": _TEXT,
    "path": _TEXT,
    "ownership": (Ownership, "one of Ownership.NONE, Ownership.CHANGES and Ownership.ALL"),
}
_LIMITS = {"page_limit": LARGEST_PAGE, "page_bytes": 2**31, "embed_limit": LARGEST_PAGE}


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
        """What loads its body, in the words of the engine."""
        return worded(self.body(partial=self.partial or None)) if self.body else None

    def load(self, sent: Any) -> Any:
        """What the schema loads of a body, None without a schema. Raises ValidationFailed."""
        return loaded(self.schema, sent) if self.schema else None


class Revision(NamedTuple):
    """One revision of the items of a collection: its number, its schema, and what follows from them.

    The `fingerprint` has the number, if it is not the first, and 8 hex digits: they are of the fields, their order,
    types and defaults (of one that a function makes, that it does), and of the schemas inside them. Its end says which
    of READ_ONLY items are stored without.
    """

    number: int
    schema: type[ItemSchema]
    fingerprint: str
    definitions: Definitions  # of all fields but the server's
    always: frozenset[str]  # those of them that no item is without
    described: Definitions  # that the store knows: integer ids, too
    guarded: Definitions  # that need a scope, or an action, to be changed, also to some states
    private: Mapping[str, str]  # those that need a scope to be read, which the mapping has
    references: Mapping[str, Refers]  # by their paths, also those inside nested schemas
    owner: str  # the field of the owner; empty if there is none
    names: tuple[str, ...]  # of all fields in the order of an item, in JSON
    stored: tuple[str, ...]  # those with which it is stored: also those of the server that are hidden
    hidden: tuple[str, ...]
    of_server: tuple[str, ...]  # the server's that are stored; the hidden ones not if others can have such a name
    is_open: bool  # whether items also have fields that no definition names
    fields: Mapping[str, Field]  # that queries can use
    texts: frozenset[str]  # whose values are texts, or null
    read_only: tuple[str, ...]  # that no caller sets
    computed: frozenset[str]  # those of them that follow from others
    defaults: Mapping[str, bytes]  # the texts of the values of a new item
    filled: frozenset[str]  # those of which queries need the value in each item: no index tells missing from null
    loading: Schema  # loads an item without READ_ONLY, and with what is stored of the other read-only fields

    @classmethod
    def of(cls, number: int, schema: type[ItemSchema], *, undeclared: bool = False) -> Self:
        """The revision of items with this schema; queries can use what is `undeclared`, too.

        Raises ValueError for a default that is no value of its field.
        """
        known, hidden = fields_of(made := prepared(schema)), hidden_in(schema)
        definitions = {name: field for name, field in known.items() if name not in READ_ONLY or name in hidden}
        is_open, optional = made.unknown == INCLUDE, {n for n, each in definitions.items() if is_optional(made, each)}
        absent = hidden if is_open or not definitions.keys().isdisjoint(hidden) else ()
        of_server = tuple(name for name in READ_ONLY if name not in absent)
        first = ("id",) if "id" in of_server else ()
        stored = (*first, *definitions, *(name for name in of_server if name not in first))
        ordered = {name: known[name] for name in stored if name in known}
        queried = {each.name: each for name, field in ordered.items() for each in queryable_fields(name, field)}
        computed = frozenset(name for name, field in definitions.items() if is_computed(field))
        given = [name for name, field in definitions.items() if not (field.required or name in optional | computed)]
        defaults = {name: _checked_default(name, definitions[name]) for name in given}
        filled = computed | {name for name in defaults if _is_made_anew(definitions[name])}
        for path, each in queried.items():
            root = root_of(path)
            own = dataclasses.replace(each, nullable=each.nullable or root in optional, in_body=root in definitions)
            if root not in filled and (default := defaults.get(root)) not in (None, [], {}):
                own = dataclasses.replace(own, default=_compared_default(own, default))
                filled |= {root} if own.default is None else set()
            queried[path] = own
        if undeclared:  # this has the paths of free objects, too
            queried = {path: each for path, each in queried.items() if "*" not in path or each.read}
            queried[ANY] = Field(ANY, Kind.JSON, nullable=True, in_body=True)
        texts = (name for name, each in queried.items() if each.kind in (Kind.TEXT, Kind.TIME))
        parts: list[Any] = []
        for name, field in ordered.items():
            inside = inside_of(field)
            default = CALLABLE if name in defaults and callable(field.load_default) else defaults.get(name)
            parts.append((name, type(field).__name__, default, *([] if inside is None else [inside])))
        if is_open:
            parts.append((OPEN, [name for name, field in definitions.items() if field.required], given))
        loading = prepared(schema, exclude=tuple(name for name in READ_ONLY if name not in hidden))
        for name, field in loading.fields.items():
            if field.dump_only and not is_computed(field):
                field.load_default = None if field.load_default is missing else field.load_default
                loading.load_fields[name] = field
        digits = blake2b(exactjson.dumps(parts), digest_size=4).hexdigest() + mark_of(absent)
        id = {name: field for name, field in known.items() if isinstance(field, IntegerId)}
        return cls(
            number=number,
            schema=schema,
            fingerprint=digits if number == 1 else f"{number}-{digits}",
            definitions=MappingProxyType(definitions),
            always=frozenset(definitions.keys() - optional),
            described=MappingProxyType(id | definitions),
            guarded=MappingProxyType({name: field for name, field in definitions.items() if is_guarded(field)}),
            private=MappingProxyType(
                {
                    name: field.metadata[READABLE_BY]
                    for name, field in definitions.items()
                    if READABLE_BY in field.metadata
                }
            ),
            references=MappingProxyType(dict(references_in(made))),
            owner=next((name for name, field in definitions.items() if isinstance(field, Owner)), ""),
            names=tuple(ordered),
            stored=stored,
            hidden=hidden,
            of_server=of_server,
            is_open=is_open,
            fields=MappingProxyType(queried),
            texts=frozenset(name for name in texts if name == root_of(name)),
            read_only=tuple(name for name, field in definitions.items() if field.dump_only),
            computed=computed,
            defaults=MappingProxyType({name: exactjson.dumps(value) for name, value in defaults.items()}),
            filled=filled,
            loading=loading,
        )

    @property
    def followed(self) -> Mapping[str, Refers | Owner]:
        """The references, and the owner if that is one."""
        owner = self.definitions.get(self.owner)
        return {**self.references, self.owner: owner} if isinstance(owner, Owner) and owner.to else self.references

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that its fields and states need."""
        return tuple(scope for field in self.guarded.values() for scope in scopes_of(field))

    def with_defaults(self, members: Members) -> Members:
        """An item with exactly these fields, in their order: those that are missing have their defaults.

        An open one has others, too, and the order is its own.
        """
        had = {**self.defaults, **members}
        if self.is_open:
            return {**members, **had}
        return {name: had[name] for name in self.stored if name in had}


@dataclass(frozen=True)
class Resource:
    """A collection: its names, the schema of its items, its indexes, and the fields that full-text search covers.

    `name` is the plural as it stands in paths, of ASCII letters, digits and underscores. `ownership` binds all callers
    without the scope `C:all`. With `events`, every change of an item is an event. `upgrades` has the steps that lead to
    each revision of the items from the one before, as far as there are stored items or versions of older revisions; the
    first revision is 1. `sort` is the order of a list where a request has none, such as "-created_at", or "_position",
    in which items were stored. `page_limit` and `page_bytes` are the items and bytes of its pages, also if other lists
    can have less (PAGE_LIMIT_MAX, PAGE_BYTES), and `embed_limit` is the number of items that are embedded in one that
    they refer to. With ids="client" callers give the ids: a PUT creates an item if there is none, and a POST can have
    an `id`; with ids="integer" they are 1, 2, 3 …, in the order of creation. With ids="client-integer" callers can give
    integers, and the others continue after the greatest. `methods` are those that requests can use, ("GET",) for a
    collection that they only read: actions, functions of the service and imports write it all the same.

    `represented_by` is a subclass of StoredView, where that is not how items are created and changed.

    With `undeclared`, which needs an open schema (`Meta.unknown = INCLUDE`), lists are also filtered, sorted and
    counted by names that no field of the schema has, and without `search` they are searched in all texts of an item.

    A `singleton` is one item, at the path of the collection: its id is the name, and its body has its own fields only.
    Until it is stored, it has their defaults.

    `path` is what callers call the collection, if that is another text than the name: in paths and links, scopes and
    the feed, and where it is embedded. It goes before a page of the service with this path, which is then below /_/.

    `needs` is the scope that its requests need in place of `NAME:read` and `NAME:write`, such as "admin".
    """

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
    represented_by: ClassVar[type | None] = None
    # By moment, such as "before create".
    functions: Mapping[str, Functions] = dataclasses.field(default_factory=_nothing, repr=False, compare=False)

    def action(
        self,
        name: str,
        *,
        body: type[Schema] | None = None,
        partial: bool = False,
        scope: str = "write",
        of: str = "item",
    ) -> Callable[[Function], Function]:
        """Declare an action: `POST /orders/ID/pay`, or of="collection": `POST /orders/close-day`.

        The function gets the item as a dictionary, then what the `body` has, loaded by that schema, if there is one,
        and last `items`, to find and change other items. A `partial` body is what was sent alone: no field of it is
        required, and none has a default. What it refers to exists, as in an item. The function returns the changed
        item, or None, and then what it has changed in its dictionary counts. What the schema refuses of it is a 500,
        and the log says which function, field and value. One of a collection gets no item, and returns the response's
        JSON value. Everything is one transaction, in which the item is locked. What it raises undoes all. It is called
        again if the store had to end a transaction because of others: it must have no other effects. Its docstring is
        in the API document.

        Raises ValueError for a name that cannot be part of a path, or is taken, and for a function that takes others.
        """

        def declare(function: Function) -> Function:
            action = Action(name, function, body, scope, of == "item", partial)
            self._refuse(_of_action(self, action, of))
            vars(self)["actions"] = MappingProxyType({**self.actions, name: action})
            return function

        return declare

    def before(self, *writes: str) -> Callable[[Function], Function]:
        """Declare a function that is called before each of these writes: "create", "update" or "delete".

        It gets the item as it will be and as it is, each a dictionary, or None if there is none; and `items`, those of
        an action, if it has a third parameter of that name or without a default. It may change the first item in place,
        or return another one, which are validated as an action's, or raise a problem; pointers of a ValidationFailed
        are into the item. It may be called again for one request: it must have no other effects.
        Raises ValueError for another word.
        """
        return self._declared("before", writes)

    def after(self, *writes: str) -> Callable[[Function], Function]:
        """Declare a function that is called after each of these writes, in its transaction.

        It gets the item and the one before, as those of `before`, and `items`; what it raises undoes the write. Send
        mail and call others by a webhook or the feed: a transaction may still fail. Raises ValueError as `before`.
        """
        return self._declared("after", writes)

    def _declared(self, moment: str, writes: tuple[str, ...]) -> Callable[[Function], Function]:
        what = f"{moment}({', '.join(getattr(write, '__name__', repr(write)) for write in writes)})"
        if not writes or not set(writes) <= set(_WRITES):
            raise ValueError(f"{self.name}: {what}: must be some of {', '.join(map(repr, _WRITES))}")

        def declare(function: Function) -> Function:
            takes_items = moment == "after" or _takes_items(function)
            self._refuse(_of_function(what, function, ("item", "before", *["items"] * takes_items)))
            called = function if takes_items else wraps(function)(lambda item, before, items: function(item, before))
            own = {of: (*self.functions.get(of, ()), called) for of in (f"{moment} {write}" for write in writes)}
            vars(self)["functions"] = MappingProxyType({**self.functions, **own})
            return function

        return declare

    def __post_init__(self) -> None:
        """Raises ValueError for a declaration that cannot work."""
        vars(self)["position"] = calling_line()
        if self.singleton and self.methods is METHODS:
            vars(self)["methods"] = _OF_SINGLETON
        for check in _CHECKS:
            self._refuse(check(self))
        emails = [(name,) for name, field in self.newest.definitions.items() if isinstance(field, Email | fields.Email)]
        vars(self)["indexes"] = tuple(
            Index(*each.fields, unique=each.unique, fold=each.fields in emails) if each.fold is None else each
            for each in self.indexes
        )
        vars(self).update({name: tuple(getattr(self, name)) for name in ("search", "methods")})
        vars(self)["upgrades"] = MappingProxyType({number: tuple(each) for number, each in self.upgrades.items()})

    def _refuse(self, faults: "Faults") -> None:
        """Raises ValueError for the first fault: the next ones may follow from it."""
        for where, sentence in faults:
            raise ValueError(f"{self.name}{where}: {sentence}")

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

    def has_id(self, item: Mapping[str, Any]) -> bool:
        """Whether an item that is sent names its id."""
        return "id" in item

    def forms(self, key: str) -> tuple[str | int, ...]:
        """The values by which others can refer to an item."""
        return (self.public_id(key),)

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
        """The fields whose values are unique, or are together with others."""
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
        """The number of the oldest revision that there are steps from."""
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
                definitions = Chain(self.upgrades, number, self.revision).definitions(newest.definitions)
            except ValueError as error:
                raise ValueError(f"{self.name}: upgrades: {error}") from None
            older[number] = Revision.of(number, schema_with(newest.schema, definitions))
        return MappingProxyType(older | {self.revision: newest})

    @cached_property
    def chain(self) -> Callable[[int, int], Chain]:
        """The steps from a revision to a later one, by their numbers. It raises ValueError as `Chain`."""
        return cache(partial(Chain, self.upgrades))

    @property
    def newest(self) -> Revision:
        """The newest revision of the items."""
        return self.revisions[self.revision]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the newest revision."""
        return self.newest.fingerprint

    @cached_property
    def collection(self) -> Collection:
        """The declaration of the collection for a store."""
        newest = self.newest
        own = {index.field for index in self.indexes if not index.unique and len(index.fields) == 1}
        position = {POSITION: Field(POSITION, Kind.INTEGER)} if self.sort == POSITION else {}
        return Collection(
            self.name,
            MappingProxyType({"id": Field("id", Kind.TEXT), **newest.fields, **position}),  # `id` of a singleton, too
            (*self.indexes, *(Index(name) for name in (*newest.references, *position) if name not in own)),
            self.search or (ANY,) * self.undeclared,
            has_owner_index=self.ownership is Ownership.ALL or bool(newest.owner),
            schema=StoredSchema(
                newest.fingerprint,
                self.revision,
                describe(newest.described, is_open=newest.is_open),
            ),
            conflict=self._conflict,
        )

    def _conflict(self, schema: StoredSchema, common: bool) -> str:
        """See `interface.Collection.conflict`."""
        name, revision = self.name, schema.revision
        if revision > self.revision:
            return f"{name}: a newer program stored items of revision {revision}; this one has revision {self.revision}"
        if revision < self.oldest:
            return f"{name}: there are items or events of revision {revision}, and upgrades begins after {self.oldest}"
        if schema.fields.startswith('{"id":') is (not self.has_integer_ids):
            return f"{name}: ids={self.ids!r}: stored items have other ids, which never change"
        own = self.revisions[revision]
        distinct = {each for each in self.unique if own.defaults.get(each, b"null") != b"null"}
        found = differences(schema.fields, own.described, is_open=own.is_open, distinct=distinct, filled=own.filled)
        if common:
            found = [each for each in found if each.common]
        absent = [] if common else sorted(absent_in(schema.fingerprint).intersection(own.of_server))
        reasons = "; ".join(
            [*(each.reason for each in found), *(f"stored items are without {each}" for each in absent)]
        )
        if not reasons:
            return ""
        if absent or was_open(schema.fields):
            return f"{name}: {reasons}. No step converts that: export the items, and import them into another store"
        lines = (f"{name.upper()} = {{{revision + 1}: {steps}}}" for steps in steps_for(found))
        more = "" if self.upgrades else f", and upgrades={name.upper()} in resources/{name}.py"
        return f"{name}: {reasons}. Write in storage/upgrades.py what became of it: {' or '.join(lines)}{more}"


def references_in(schema: Schema, around: str = "") -> Iterator[tuple[str, Refers]]:
    """The references of a schema by their paths, also those inside nested schemas."""
    for name, field in fields_of(schema).items():
        inner: Any = field.inner if isinstance(field, fields.List) else field
        if isinstance(inner, Refers):
            yield f"{around}{name}", inner
        elif isinstance(inner, fields.Nested) and around.count(".") < MOST_NAMES - 1:  # a schema can be inside itself
            yield from references_in(inner.schema, f"{around}{name}.")


def schema_with(schema: type[ItemSchema], definitions: Mapping[str, fields.Field[Any]]) -> type[ItemSchema]:
    """A schema with the name and description of another one, and with other fields, none of which is computed."""
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
    made = ItemSchema.from_dict(copies, name=schema.__name__)
    made.__doc__, made.opts.exclude = schema.__doc__, hidden
    made.opts.unknown = INCLUDE if schema.opts.unknown == INCLUDE else made.opts.unknown
    return cast(type[ItemSchema], made)


def schema_without(schema: type[ItemSchema], names: Sequence[str]) -> type[ItemSchema]:
    """A schema with the same name that excludes some of its fields, too."""
    made = schema.from_dict({}, name=schema.__name__)
    made.__doc__, made.opts.exclude = schema.__doc__, {*names}.intersection(schema().fields).union(schema.opts.exclude)
    return cast(type[ItemSchema], made)


def _is_made_anew(definition: fields.Field[Any]) -> bool:
    """Whether a function makes the default of a field, so that each time it can be another one."""
    return callable(definition.load_default) and definition.load_default not in (list, dict)


def _compared_default(field: Field, default: Any) -> Scalar:
    """The default with which queries compare items that do not have a field; None if they cannot."""
    stored = orjson.loads(exactjson.dumps(default))  # a number with the digits that queries see
    stored = Decimal(repr(stored)) if isinstance(stored, float) else stored
    fits = type(stored) in _DEFAULTS.get(field.kind, ()) and len(str(stored)) <= _LONGEST_DEFAULT
    return stored if fits and not (field.nullable or field.is_many) else None


def _takes_items(function: Callable[..., Any]) -> bool:
    """Whether a function before a write takes the items of the transaction, as its third parameter."""
    named = (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)
    parameters = [each for each in signature(function).parameters.values() if each.kind not in named]
    return len(parameters) > 2 and (parameters[2].name == "items" or parameters[2].default is Parameter.empty)


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


# What cannot work in a declaration by itself: for each of its parts a check, with the sentences for its author. A fault
# is where it stands, after the name of the collection, and what is wrong with what to write instead. What cannot work
# among several is in a table of its own, at `require_possible`.
Faults = Iterable[tuple[str, str]]


def _parts(resource: Any) -> Faults:
    """Of the types of what is declared, which may be any."""
    for name, (kind, words) in _PARTS.items():
        value = getattr(resource, name)
        if not isinstance(value, kind) or (kind is Sequence and isinstance(value, str)):
            yield "", f"{name}={value!r}: must be {words}"
    if resource.ids not in IDS:
        yield "", f"ids={resource.ids!r}: must be {' or '.join(map(repr, IDS))}"
    if not issubclass(resource.schema, ItemSchema):
        yield "", f"schema={resource.schema.__name__}: must be a subclass of ItemSchema"
    for each in resource.indexes:
        if not isinstance(each, Index):
            yield "", f"indexes has {each!r}: write Index({each!r})"
    for name, most in _LIMITS.items():
        value = getattr(resource, name)
        if (type(value) is not int or not 0 < value <= most) and (value is not None or name == "embed_limit"):
            yield "", f"{name}={value!r}: must be a whole number from 1 to {most}"
    methods, possible = resource.methods, _OF_SINGLETON if resource.singleton else METHODS
    if isinstance(methods, str) or "GET" not in methods or not {*possible}.issuperset(methods):
        yield "", f"methods={methods!r}: must be 'GET' and some of {possible[1:]}"


def _upgrades(resource: Resource) -> Faults:
    for revision, steps in resource.upgrades.items():
        if not isinstance(steps, Sequence) or not all(isinstance(each, Step) for each in steps):
            wrong = f"a {type(steps).__name__}" if isinstance(steps, Step) else repr(steps)
            yield "", f"upgrades: {revision} has {wrong}: must be a list of steps"
    if [*resource.upgrades] != [*range(resource.oldest + 1, resource.revision + 1)] or resource.oldest < 1:
        yield "", "upgrades are of the revisions 2, 3 …, each once and in this order"
    if resource.upgrades and resource.newest.is_open:
        yield "", "upgrades: no step knows all that items of an open schema have: leave it out"
    for step in (step for steps in resource.upgrades.values() for step in steps):
        if isinstance(step, Add) and step.is_constant and step.after[0] in resource.unique:
            yield "", f"upgrades: Add({step.after[0]!r}): older items cannot all have one unique value"


def _names(resource: Resource) -> Faults:
    fields = (name for revision in resource.revisions.values() for name in revision.definitions)
    for name in (resource.name, resource.singular, *fields):
        if not NAME.fullmatch(name):
            address = f"; path={name!r} is the address" if name == resource.name and not no_path(name) else ""
            yield "", f"{name!r} is no name: use ASCII letters, digits and underscores{address}"
    if resource.path and (reason := no_path(resource.path)):
        yield "", f"path={resource.path!r}: {reason}"
    if resource.needs:
        if not re.fullmatch(f"{ADMIN}|{SCOPE}", resource.needs):
            yield "", f"needs={resource.needs!r}: must be 'admin', or a scope like 'reports:read'"
        yield from _reserved("", resource.needs)
        if resource.ownership is not Ownership.NONE:
            yield "", "needs: who has this scope reads all items, and others none: leave out the ownership"


def no_path(text: str) -> str:
    """Why a collection cannot be called so; an empty text if it can."""
    if not 0 < len(text) <= LONGEST_PATH:
        return f"must have 1 to {LONGEST_PATH} characters"
    if text in ("_", ".", "..") or "/" in text or "<" in text or not text.isprintable():
        return "must be printable, without / and <, and none of _ . and .."
    return ""


def _schemas(resource: Resource) -> Faults:
    """Of the schema of each revision."""
    for number, revision in resource.revisions.items():
        made = prepared(revision.schema)
        if "id" in revision.hidden and not resource.singleton:
            yield "", f"{resource.schema.__name__}.Meta: leaves out id: exclude only times and version"
        for name in READ_ONLY:
            own = made.declared_fields[name]
            if name not in revision.hidden and (not own.dump_only or READABLE_BY in own.metadata):
                yield f".{name}", "the server sets it: use another name"
            if not own.dump_only:
                yield f".{name}", f"Meta.exclude leaves it out: write own_{name} = …(data_key={name!r})"
        for reason in refusals(made, is_newest=number == resource.revision):
            path, _, sentence = reason.partition(": ")
            yield f".{path}", sentence
        for path, reference in revision.followed.items():
            if (name := reference.embed_as) and (name in revision.names or "." in path or not NAME.fullmatch(name)):
                why = "must be a name that no field has, of a reference that is in no other field"
                yield f".{path}", f"embed_as={name!r}: {why}"
        for path, reference in revision.references.items():
            is_null = reference.on_delete == "null" and not isinstance(reference, WeakReference)
            if is_null and not (reference.allow_none and reference in revision.definitions.values()):
                yield f".{path}", "on_delete='null' needs allow_none=True, and no field around it"
        yield from _unusable(".", made)
        for name, field in revision.guarded.items():
            for scope in scopes_of(field):
                if not re.fullmatch(f"{ADMIN}|{SCOPE}", str(scope)):
                    yield f".{name}", f"{scope!r} is no scope: write one like orders:manage"
                yield from _reserved(f".{name}", scope)
    if resource.undeclared and not resource.newest.is_open:
        yield "", "undeclared=True: items have no other fields: needs Meta.unknown = INCLUDE"


def _reserved(where: str, scope: str) -> Faults:
    if scope.endswith(f":{ALL_OWNERS}"):
        yield where, f"{scope!r} is reserved for reaching the items of all owners: choose another name"


def _unusable(where: str, schema: Schema) -> Faults:
    """The fields of a schema that do not work here, and the references in a place where no request checks them."""
    checked = [field for _, field in references_in(schema)]
    for path, field, _ in all_fields_in(schema):
        if isinstance(field, fields.Pluck):
            yield f"{where}{path}", "Pluck: use Nested, or the field of the other schema itself"
        if isinstance(field, Refers) and field not in checked:
            yield f"{where}{path}", "Reference: can be inside Nested and List(…) of these only"


def _owners(resource: Resource) -> Faults:
    for revision in resource.revisions.values():
        owners = [name for name, field in revision.definitions.items() if isinstance(field, Owner)]
        if owners and resource.ownership is Ownership.NONE:
            yield f".{owners[0]}", "Owner: items have no owners: set ownership=Ownership.ALL or Ownership.CHANGES"
        if len(owners) > 1:
            yield f".{owners[1]}", f"Owner: {owners[0]} is one already, and an item has one owner"


def _indexes(resource: Resource) -> Faults:
    known, definitions = resource.newest.fields, resource.newest.definitions
    for name in (*(name for index in resource.indexes for name in index.fields), *resource.search):
        is_known = name in known if name in resource.search else field_in(known, name)
        if not is_known or "*" in name or ("." in name and name in resource.search):
            yield f".{name}", f"cannot be indexed or searched; there are: {', '.join(known)}"
    for index in resource.indexes:
        several = len(index.fields) > 1
        for name in index.fields:
            if (field := field_in(known, name)) and field.is_many and (index.unique or index.fold or several):
                yield f".{name}", f"can have several values: write Index({name!r})"
        if several and index.fold:
            yield "", f"{index}: is of several fields: write fold=True in an Index of each text"
        if not len({*index.fields}) == len(index.fields) <= MOST_INDEXED:
            yield "", f"{index}: must be of 1 to {MOST_INDEXED} fields, each once"
        lengths = [longest_text(field) for name, field in definitions.items() if name in index.fields]
        if several and sum(lengths) > LONGEST_INDEXED:
            why = f"its texts can have more than {LONGEST_INDEXED} characters: give them a bound, as Text(1, 100)"
            yield "", f"{index}: {why}"


def _order(resource: Resource) -> Faults:
    known = resource.newest.fields
    sortable = [name for name, field in known.items() if field.sortable and name != ANY]
    for key in resource.order:
        is_free = resource.undeclared and key.field not in known
        if key.field not in sortable and not is_free and resource.sort != POSITION:
            yield "", f"sort={resource.sort!r}: {key.field!r} is none of {', '.join(sortable)}"


def _private(resource: Resource) -> Faults:
    """What would show private values to who may not read them."""
    shown = {**dict.fromkeys(resource.search, "search"), **dict.fromkeys(resource.compared, "a unique Index")}
    shown |= {key.field: "sort" for key in resource.order}
    for name in resource.newest.private:
        if use := "undeclared=True" if resource.undeclared else shown.get(name):
            yield f".{name}", f"readable_by: {use} would show its values to who may not read it"


def _singleton(resource: Resource) -> Faults:
    of_lists = (resource.indexes, resource.search, resource.sort, resource.page_limit, resource.page_bytes)
    has_more = any(of_lists) or resource.ownership is not Ownership.NONE or resource.ids != "server"
    if resource.singleton and has_more:
        more = "indexes, search, sort, page_limit, page_bytes, ownership and ids"
        yield "", f"a singleton is one item of all callers: leave out {more}"


def _of_action(resource: Resource, action: Action, of: str) -> Faults:
    """The faults of an action that is declared now."""
    what, scope, body = f"action({action.name!r})", action.scope, action.body
    if not _ACTION.fullmatch(action.name) or action.name in resource.actions:
        yield "", f"{what}: must be a new name of small letters, digits and dashes, such as mark-paid"
    if action.name in _TAKEN:
        yield "", f"{what}: is an operation of each collection: choose another name"
    scoped = f"action({action.name!r}, scope={scope!r})"
    if not re.fullmatch(f"read|write|{KNOWN}|{PUBLIC}|{ADMIN}|{SCOPE}", str(scope)):
        yield "", f"{scoped}: write one like {resource.name}:{action.name}"
    yield from _reserved(f": {scoped}", scope)
    if of not in (known := ("item",) if resource.singleton else ("item", "collection")):
        yield "", f"action({action.name!r}, of={of!r}): must be {' or '.join(map(repr, known))}"
    is_schema = isinstance(body, type) and issubclass(body, Schema)
    if not is_schema and (body is not None or action.partial):
        yield "", f"action({action.name!r}, body={body!r}): must be a schema class of marshmallow"
    given = (*["item"] * action.of_item, *["body"] * (body is not None), "items")
    yield from _of_function(what, action.function, given)
    if action.schema:
        yield from _unusable(f": {what}: ", action.schema)
    if getattr(unwrap(action.function), "is_replaced", False):
        yield "", f"{what}: @returns has problems only: its result is JSON as it is"


def _of_function(what: str, function: Callable[..., Any], given: Sequence[str]) -> Faults:
    """Why a function cannot be called with these arguments in a transaction."""
    if iscoroutinefunction(function):
        yield "", f"{what}: {function.__name__} is async: a transaction cannot wait: write def"
    try:
        signature(function).bind(*given)
    except TypeError as error:
        yield "", f"{what}: is called with ({', '.join(given)}): {error}"


_CHECKS = (_parts, _upgrades, _names, _schemas, _owners, _indexes, _order, _private, _singleton)

"""The declaration of a collection, and its items: validated once, represented once, stored as bytes."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple, cast

from marshmallow import Schema, ValidationError, fields, missing, validate

from restkeeper.clock import time_after
from restkeeper.errors import BodyTooLarge, IllegalTransition, NotConvertible
from restkeeper.resources.evolution import (
    Add,
    Chain,
    KnownSchemas,
    Members,
    Step,
    Untranslatable,
    describe,
    differences,
    inside_of,
    revision_of,
    steps_for,
)
from restkeeper.schemas.fields import Status, Time, default_of, is_exact
from restkeeper.schemas.item import READ_ONLY, ItemSchema, ServerFieldsSchema
from restkeeper.storage.contract import (
    Collection,
    Field,
    Index,
    Kind,
    Page,
    Query,
    Record,
    StoredSchema,
)
from restkeeper.web import exactjson
from restkeeper.web.exactjson import fault, faults_in, listed, merge_patch, require_none
from restkeeper.web.preconditions import digest
from restkeeper.web.queries import Queryable

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)

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

MOVING = {"updated_at", "version"}  # of the read-only fields, those that a change changes

_SERVER_FIELDS = ServerFieldsSchema()

LONGEST_KEY = 300  # characters of a value that can be sorted by

_ITEM = b'{"id":"%b",%b"created_at":"%b","updated_at":"%b","version":%d}'  # none of these values needs an escape

JsonObject = dict[str, Any]


class ItemLimits(NamedTuple):
    """The largest size of an item: in bytes of its JSON, and in values (objects, arrays and their members)."""

    size: int
    values: int

    def require(self, body: bytes) -> None:
        """Raises BodyTooLarge for the JSON of an item that is larger."""
        if len(body) > self.size:
            raise BodyTooLarge(f"the item would have {len(body)} bytes; it can have {self.size} (MAX_ITEM, MAX_BODY)")
        if len(body) > self.values and exactjson.count_values(body) > self.values:  # a value takes a byte
            raise BodyTooLarge(f"the item would have more than {self.values} values")


NO_LIMITS = ItemLimits(2**63, 2**63)


class Ownership(Enum):
    """What the owner of an item may do with it and others may not, besides the scopes for reading and writing.

    A unique field is unique for all owners together: a refused value shows that another item has it.
    """

    NONE = "nothing"
    CHANGES = "others read it, and only its owner changes it"
    ALL = "others do not even see it"


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
        for name in (self.name, self.singular, *self._schema.fields):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{self.name}: {name!r} is no name: use ASCII letters, digits and underscores")
        for name, field in self._schema.load_fields.items():
            if field.data_key not in (None, name):
                raise ValueError(f"{self.name}.{name}: data_key is not supported; name the field as it is to be")
            if not field.required and field.load_default is missing:
                raise ValueError(f"{self.name}.{name}: say required=True or what load_default is")
        known = self.collection.fields
        for name in (*(index.field for index in self.indexes), *self.search):
            if name not in known:
                raise ValueError(f"{self.name}.{name}: cannot be indexed or searched; there are: {', '.join(known)}")
        if list(self.upgrades) != list(range(self.oldest + 1, self.revision + 1)) or self.oldest < 1:
            raise ValueError(f"{self.name}: upgrades are of the revisions 2, 3 …, each once and in this order")
        for revision in range(self.oldest, self.revision):
            self.at(revision)
        constant = {step.after[0] for steps in self.upgrades.values() for step in steps if _is_constant(step)}
        if twice := sorted(constant & self.unique):
            raise ValueError(f"{self.name}: upgrades: Add({twice[0]!r}): older items cannot all have one unique value")

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
        """The newest revision of the items."""
        return max(self.upgrades, default=1)

    @cached_property
    def oldest(self) -> int:
        """The oldest revision that there are steps from."""
        return min(self.upgrades, default=2) - 1

    @cached_property
    def _older(self) -> dict[int, "OlderRevision"]:
        return {}

    def at(self, revision: int) -> "OlderRevision":
        """An older revision. Raises ValueError for one that there are no steps from, and for steps that do not fit."""
        if revision not in self._older:
            self._older[revision] = self._at(revision)
        return self._older[revision]

    def _at(self, revision: int) -> "OlderRevision":
        if not self.oldest <= revision < self.revision:
            raise ValueError(f"{self.name}: upgrades has no steps from revision {revision}")
        own = {name: each for name, each in self._schema.fields.items() if name not in READ_ONLY}
        try:
            chain = Chain(self.upgrades, revision)
            definitions = chain.definitions(own)
        except ValueError as error:
            raise ValueError(f"{self.name}: upgrades: {error}") from None
        schema = schema_with(self.schema, definitions)
        earlier = {number: steps for number, steps in self.upgrades.items() if number <= revision}
        if revision > 1:
            earlier.setdefault(revision, ())  # the steps to there may be gone
        older = replace(self, schema=schema, indexes=(), search=(), upgrades=earlier)
        return OlderRevision(older, chain)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The fields of an item in the order of its representation."""
        own = [name for name in self._schema.fields if name not in READ_ONLY]
        return ("id", *own, *READ_ONLY[1:])

    @cached_property
    def _own(self) -> frozenset[str]:
        """The fields that a client sets."""
        return frozenset(self.names) - frozenset(READ_ONLY)

    @cached_property
    def collection(self) -> Collection:
        """The declaration of the collection for a store."""
        known = ((name, self._schema.fields[name]) for name in self.names)
        typed = {
            name: Field(name, kind, field.allow_none, kind is not Kind.LIST and _is_short(field))
            for name, field in known
            if (kind := next((kind for of, kind in _KINDS if isinstance(field, of)), None))
        }
        return Collection(
            self.name,
            typed,
            self.indexes,
            self.search,
            owned=self.ownership is Ownership.ALL,
            schema=self._stored_schema,
            conflict=self._conflict,
            learn=self.known.learn,
        )

    @cached_property
    def _stored_schema(self) -> StoredSchema:
        oldest = self.revision
        while oldest > self.oldest and all(step.is_additive for step in self.upgrades.get(oldest, ())):
            oldest -= 1
        return StoredSchema(self.fingerprint, self.revision, oldest, describe(self._own_fields))

    @cached_property
    def known(self) -> KnownSchemas:
        """The newer schemas in the store."""
        return KnownSchemas(self._stored_schema)

    @cached_property
    def _own_fields(self) -> dict[str, fields.Field[Any]]:
        """The definitions of the fields that a client sets."""
        return {name: field for name, field in self._schema.fields.items() if name in self._own}

    def _conflict(self, schema: StoredSchema) -> str:
        """See `contract.Collection.conflict`."""
        name, revision = self.name, schema.revision
        if revision > self.revision:
            if schema.oldest <= self.revision:
                return ""
            return f"{name}: a newer program stored items of revision {revision}; this one has revision {self.revision}"
        if revision < self.oldest:
            return f"{name}: there are items or events of revision {revision}, and upgrades begins after {self.oldest}"
        present = self if revision == self.revision else self.at(revision).resource
        if not (found := differences(schema.fields, present._own_fields)):
            return ""
        lines = (f"{name.upper()} = {{{revision + 1}: {steps}}}" for steps in steps_for(found))
        reasons = "; ".join(each.reason for each in found)
        more = "" if self.upgrades else f", and upgrades={name.upper()} in resources/{name}.py"
        return f"{name}: {reasons}. Write in storage/upgrades.py what became of it: {' or '.join(lines)}{more}"

    @cached_property
    def texts(self) -> frozenset[str]:
        """The fields whose values are texts, or null."""
        return frozenset(name for name, field in self._schema.fields.items() if isinstance(field, fields.String | Time))

    @property
    def changed_at(self) -> str:
        """When this form last changed by the clock: never."""
        return ""

    @cached_property
    def queryable(self) -> Queryable:
        """What the queries of its lists can use."""
        return Queryable(self.collection.fields, self.names)

    def query(self, query: Query) -> Query:
        """A query of callers as the store has it: the same."""
        return query

    def name_of(self, field: str) -> str:
        """The name for callers of a stored field: the same."""
        return field

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the schema: the revision, if it is not the first, and 8 hex digits.

        They are of the fields, their order, types and defaults, and of the schemas inside them.
        """
        parts: list[Any] = []
        for name in self.names:
            field = self._schema.fields[name]
            inside = inside_of(field)
            parts.append((name, type(field).__name__, self._defaults.get(name), *([] if inside is None else [inside])))
        digits = blake2b(exactjson.dumps(parts), digest_size=4).hexdigest()
        return digits if self.revision == 1 else f"{self.revision}-{digits}"

    def create(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """A new item from a request's body. Raises ValidationFailed with its faults, and BodyTooLarge."""
        faults = [fault([name], "is set by the server") for name in READ_ONLY if name in sent]
        text, more = self._load(sent)
        require_none(faults + more)
        return self._record(text, id=id, created_at=now, now=now, version=1, limits=limits)

    def restore(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """An exported item: the server's fields are those in `sent`, and new ones where they are missing.

        Raises as `create`.
        """
        made: JsonObject = {"id": id, "updated_at": now, "version": 1}
        faults: list[JsonObject] = []
        try:
            made |= _SERVER_FIELDS.load({name: sent[name] for name in READ_ONLY if name in sent})
        except ValidationError as error:
            faults = listed(faults_in(error.messages))
        text, more = self._load(sent)
        require_none(faults + more)
        made.setdefault("created_at", made["updated_at"])
        made["now"] = made.pop("updated_at")
        return self._record(text, **made, limits=limits)

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """The item with the content `sent` instead of its own; the same record if that changes nothing.

        Raises as `create`, and IllegalTransition when its status cannot move so.
        """
        try:
            present = self.upgraded(record)
        except NotConvertible as error:
            present = error.rest  # the whole item is replaced, so that the value is not needed
        current = exactjson.cut(present.body)
        unknown = {name: exactjson.stored(text) for name, text in current.items() if name not in self.names}
        if unknown:  # the item is of a newer program, whose clients send them back
            sent = {name: value for name, value in sent.items() if name not in unknown or value != unknown[name]}
        own = {name: exactjson.stored(current[name]) for name in READ_ONLY}
        differing = [name for name in READ_ONLY if name in sent and not _is(sent[name], own[name])]
        faults = [fault([name], f"is read-only; it is {exactjson.dumps(own[name]).decode()}") for name in differing]
        text, more = self._load(sent)
        members = exactjson.cut(text) if text else {}
        if (
            text
            and all(name in current and exactjson.equal(value, current[name]) for name, value in members.items())
            and all(_is_past(name, sent, own) for name in differing)
        ):
            return record  # also for the second of two equal requests: the first has moved the version since
        require_none(faults + more)
        self._require_transition(current, members)
        return self._next(present, current, text, now=now, limits=limits)

    def touched(self, record: Record, *, now: str) -> Record:
        """The item as it is, as another version of it."""
        members = exactjson.cut(record.body)
        text = exactjson.joined({name: text for name, text in members.items() if name in self._own})
        return self._next(record, members, text, now=now, limits=NO_LIMITS)

    def _next(self, record: Record, current: Members, text: bytes, *, now: str, limits: ItemLimits) -> Record:
        """The next version of an item, given its members and its own fields. It keeps what is not in this schema."""
        created_at, version = exactjson.stored(current["created_at"]), record.version + 1
        now = time_after(record.updated_at, now)
        made = self._record(text, id=record.id, created_at=created_at, now=now, version=version, limits=limits)
        made = made._replace(owner=record.owner, older=record.older)
        if not self.known.is_newer(record.fingerprint):
            return made
        body = exactjson.joined({**current, **exactjson.cut(made.body)})
        limits.require(body)
        return made._replace(fingerprint=record.fingerprint, body=body)

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """The item with a JSON Merge Patch applied (RFC 7396). Returns and raises as `replace`.

        A null for a field that is unknown or the server's would delete nothing; it is a fault like any other value.
        What the patch does not name is not made into values before it is clear that all of it together is no larger
        than an item may be.
        """
        current = {name: text for name, text in exactjson.cut(self.body(record)).items() if name in self._own}
        refused = {name: None for name in patch if patch[name] is None and name not in self._own}
        try:
            merged = exactjson.dumps(merge_patch(current, patch) | refused)
        except exactjson.EncodeError:
            require_none(listed(exactjson.faults_in_values(patch)))
            raise
        try:
            limits.require(merged)
        except BodyTooLarge:
            if merged == exactjson.dumps(current):
                return record  # stored under other limits
            raise
        return self.replace(record, exactjson.stored(merged), now=now, limits=limits)

    def body(self, record: Record) -> bytes:
        """The representation of a record by the present schema."""
        return record.body if record.fingerprint == self.fingerprint else self.upgraded(record).body

    def bodies(self, page: Page) -> list[bytes]:
        """The representations of the items of a page, without those that are NotConvertible."""
        if all(fingerprint == self.fingerprint for fingerprint in page.fingerprints):
            return page.bodies
        return represented(page, self.body)

    def upgraded(self, record: Record) -> Record:
        """The record in the form of the present schema: with the steps from its revision, and with new fields.

        One of a newer schema is returned as it is. Raises Unavailable if this program cannot work with it, and
        NotConvertible if a step fails.
        """
        if not self.is_older(record.fingerprint):
            self.known.require_readable(record.fingerprint)
            return record
        members, older, failure = exactjson.cut(record.body), record.older, None
        if self.oldest <= (revision := revision_of(record.fingerprint)) < self.revision:
            before = self.at(revision)
            stored = before.resource.completed(members)
            own = {name: text for name, text in members.items() if name in READ_ONLY}
            try:
                members, older = before.chain.up(stored, older, None)
            except Untranslatable as error:
                failure, (members, older) = error, error.others
            members = {**members, **own}
        completed = self.completed(members)
        if failure is None:
            return record._replace(fingerprint=self.fingerprint, body=exactjson.joined(completed), older=older)
        body = exactjson.joined({name: text for name, text in completed.items() if name not in failure.lost})
        rest = record._replace(fingerprint=self.fingerprint, body=body, older=older)
        raise self._not_convertible(stored, digest(record.body), revision, rest, failure)

    def _not_convertible(
        self, stored: Members, tag: str, revision: int, rest: Record, failure: Untranslatable
    ) -> NotConvertible:
        id = exactjson.stored(stored["id"])
        chain = self.at(revision).chain
        names, before = chain.origins(failure.step), chain.revisions[chain.steps.index(failure.step)]
        return NotConvertible(
            f"{self.name}: the item {id} of revision {revision} cannot be converted: {', '.join(names)} "
            f"{failure.reason}",
            collection=self.name,
            id=id,
            rest=rest,
            revisions=range(revision, before),
            headers={"ETag": f'"{tag}"'},
            errors=[fault([name], failure.reason) | {"value": exactjson.stored(stored[name])} for name in names],
        )

    def is_older(self, fingerprint: str) -> bool:
        """Whether records with this fingerprint are of an older schema."""
        return fingerprint != self.fingerprint and not self.known.is_newer(fingerprint)

    @cached_property
    def converted(self) -> dict[int, frozenset[str]]:
        """The fields that a step converts, for each older revision: those of an older item have another form."""
        converted: dict[int, frozenset[str]] = {}
        fields: frozenset[str] = frozenset()
        for revision in sorted(self.upgrades, reverse=True):
            steps = (step for step in self.upgrades[revision] if not step.is_additive)
            converted[revision - 1] = fields = fields.union(*(step.after for step in steps))
        return converted

    def completed(self, members: Members) -> Members:
        """An item with exactly the fields of the schema, in their order: those that are missing have their defaults."""
        had = {**self._default_texts, **members}
        return {name: had[name] for name in self.names if name in had}

    def show(self, body: bytes, names: Iterable[str]) -> bytes:
        """A representation reduced to these fields."""
        members = exactjson.cut(body)
        return exactjson.joined({name: members.get(name, b"null") for name in names})

    @cached_property
    def _schema(self) -> Schema:
        return self.schema()

    @cached_property
    def _is_exact(self) -> bool:
        return all(map(is_exact, self._schema.fields.values()))

    @cached_property
    def _defaults(self) -> JsonObject:
        """The JSON values of optional fields that are left out."""
        optional = {name: field for name, field in self._schema.load_fields.items() if not field.required}
        values = {name: default_of(field) for name, field in optional.items()}
        dumped: JsonObject = self._schema.dump(values)
        return dumped

    @cached_property
    def _default_texts(self) -> Members:
        return {name: exactjson.dumps(value) for name, value in self._defaults.items()}

    def _load(self, sent: JsonObject) -> tuple[bytes, list[JsonObject]]:
        """The JSON object of an item's fields and no faults, or an empty text and the faults."""
        own = {name: value for name, value in sent.items() if name not in READ_ONLY}
        try:
            values = self._schema.dump(self._schema.load(own))
        except ValidationError as error:
            return b"", listed(chain(exactjson.faults_in_values(own), faults_in(error.messages)))
        if not self._is_exact and (faults := listed(exactjson.faults_in_values(values))):
            return b"", faults
        try:
            text = exactjson.dumps(values)
        except exactjson.EncodeError:
            if faults := listed(exactjson.faults_in_values(own)):
                return b"", faults
            raise
        if exactjson.NUL in text and (faults := listed(exactjson.faults_in_values(own))):
            return b"", faults
        return text, []

    def _record(self, text: bytes, *, id: str, created_at: str, now: str, version: int, limits: ItemLimits) -> Record:
        fields = text.removeprefix(b"{").removesuffix(b"}") + b"," if text != b"{}" else b""
        body = _ITEM % (id.encode(), fields, created_at.encode(), now.encode(), version)
        limits.require(body)
        return Record(id, version, now, self.fingerprint, body)

    def _require_transition(self, current: Members, members: Members) -> None:
        for name, field in self._schema.fields.items():
            if not isinstance(field, Status) or name not in current:
                continue
            old, new = exactjson.stored(current[name]), exactjson.stored(members[name])
            moves = field.lifecycle.moves.get(old)
            if moves is not None and not field.lifecycle.allows(old, new):  # from a state that is gone, all are allowed
                summary = (
                    f"{name} cannot go from {old} to {new}; from {old} it can go to {', '.join(moves) or 'nothing'}"
                )
                raise IllegalTransition(summary, field=name, **{"from": old, "to": new, "allowed": list(moves)})


class OlderRevision(NamedTuple):
    """An older revision of a collection: its declaration, and the steps from there to the newest revision."""

    resource: Resource
    chain: Chain


def represented(page: Page, body_of: Callable[[Record], bytes]) -> list[bytes]:
    """The representations of the items of a page, without those that are NotConvertible."""
    found: list[bytes] = []
    for body, fingerprint, older in zip(page.bodies, page.fingerprints, page.older, strict=True):
        with suppress(NotConvertible):
            found.append(body_of(Record("", 0, "", fingerprint, body, older=older)))
    return found


def schema_with(schema: type[ItemSchema], definitions: Mapping[str, fields.Field[Any]]) -> type[ItemSchema]:
    """A schema with the name and description of another one, and with other fields."""
    made = ItemSchema.from_dict({name: _unbound(each) for name, each in definitions.items()}, name=schema.__name__)
    made.__doc__ = schema.__doc__
    return cast(type[ItemSchema], made)


def _unbound(field: fields.Field[Any]) -> fields.Field[Any]:
    """A copy of a field for another schema, where it can have another name."""
    field = copy(field)
    field.name = field.parent = field.root = None
    return field


def _is_constant(step: Step) -> bool:
    return isinstance(step, Add) and step.is_constant


def _is_short(field: fields.Field[Any]) -> bool:
    """Whether a value is short enough for a cursor, which is part of a URL."""
    if isinstance(field, fields.String) and not isinstance(field, Time) and not field.validators:
        return field.dump_only
    most = [check.max for check in field.validators if isinstance(check, validate.Length)]
    return all(length is not None and length <= LONGEST_KEY for length in most)


def _is(one: Any, other: Any) -> bool:
    """Whether two values that are no arrays or objects are equal in JSON."""
    return type(one) is type(other) and bool(one == other)


def _is_past(name: str, sent: JsonObject, current: JsonObject) -> bool:
    """Whether a read-only field may have had this value before the item last changed."""
    return name in MOVING and type(sent[name]) is type(current[name]) and sent[name] < current[name]

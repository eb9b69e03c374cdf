"""What a collection is declared by, and what its items are: validated once, represented once, kept as bytes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from hashlib import blake2b
from typing import Any

from marshmallow import Schema, ValidationError, fields, missing, validate

from errors import IllegalTransition, ValidationFailed
from schemas.fields import Status, Time
from schemas.item import READ_ONLY, ItemSchema, KeptSchema
from storage.contract import Collection, Field, Index, Kind, Record
from web import exactjson

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

MOVING = {"updated_at", "version"}  # of the read-only fields, those that a change changes

_KEPT = KeptSchema()

MOST_FAULTS = 100  # that one answer lists
LONGEST_KEY = 300  # characters of a value that can be sorted by

JsonObject = dict[str, Any]


class Ownership(Enum):
    """What it means to have made an item, besides the scopes that reading and writing need anyhow.

    A unique field is unique for all owners together: that a value is taken tells that somebody has it.
    """

    NONE = "nothing"
    CHANGES = "others read it, and only its owner changes it"
    ALL = "others do not even see it"


@dataclass(frozen=True)
class Resource:
    """A collection: its names, the schema of its items, what is found fast and what full text looks through.

    `name` is the plural as it stands in paths, of ASCII letters, digits and underscores. `ownership` binds all callers
    but admins. With `events`, every change of an item is told to whoever follows.
    """

    name: str
    singular: str
    schema: type[ItemSchema]
    indexes: tuple[Index, ...] = ()
    search: tuple[str, ...] = ()
    ownership: Ownership = Ownership.NONE
    events: bool = True

    def __post_init__(self) -> None:
        """Raises ValueError for a declaration that could not be kept to."""
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
        """What a store has to know."""
        known = ((name, self._schema.fields[name]) for name in self.names)
        typed = {
            name: Field(name, kind, field.allow_none, kind is not Kind.LIST and _is_short(field))
            for name, field in known
            if (kind := next((kind for of, kind in _KINDS if isinstance(field, of)), None))
        }
        return Collection(self.name, typed, self.indexes, self.search, owned=self.ownership is Ownership.ALL)

    @cached_property
    def shape(self) -> str:
        """Fingerprint of the representation: differs when fields, their order, types or defaults do. 8 hex digits."""
        parts = [(name, type(self._schema.fields[name]).__name__, self._defaults.get(name)) for name in self.names]
        return blake2b(exactjson.dumps(parts), digest_size=4).hexdigest()

    def create(self, sent: JsonObject, *, id: str, now: str) -> Record:
        """A new item of what was sent. Raises ValidationFailed with every fault."""
        faults = [_fault(f"#/{name}", "is set by the server") for name in READ_ONLY if name in sent]
        values, more = self._load(sent)
        require_none(faults + more)
        return self._record(values, id=id, created_at=now, now=now, version=1)

    def restore(self, sent: JsonObject, *, id: str, now: str) -> Record:
        """An item as it was exported: what the server sets is kept where it was sent, and made where not.

        Raises ValidationFailed with every fault.
        """
        made: JsonObject = {"id": id, "updated_at": now, "version": 1}
        faults: list[JsonObject] = []
        try:
            made |= _KEPT.load({name: sent[name] for name in READ_ONLY if name in sent})
        except ValidationError as error:
            faults = _faults(error.messages, "#")
        values, more = self._load(sent)
        require_none(faults + more)
        made.setdefault("created_at", made["updated_at"])
        made["now"] = made.pop("updated_at")
        return self._record(values, **made)

    def replace(self, record: Record, sent: JsonObject, *, now: str) -> Record:
        """The item with `sent` in the place of all it had; the same record where that changes nothing.

        Raises ValidationFailed, and IllegalTransition when its status cannot move so.
        """
        current = exactjson.loads(self.body(record))
        differing = [name for name in READ_ONLY if name in sent and not _is(sent[name], current[name])]
        faults = [
            _fault(f"#/{name}", f"is read-only; it is {exactjson.dumps(current[name]).decode()}") for name in differing
        ]
        values, more = self._load(sent)
        if (
            values
            and _same(values, {name: current[name] for name in values if name in current})
            and all(_is_past(name, sent, current) for name in differing)
        ):
            return record  # also for the second of two equal requests: the first has moved the version since
        require_none(faults + more)
        self._require_transition(current, values)
        created_at = current["created_at"]
        changed = self._record(values, id=record.id, created_at=created_at, now=now, version=record.version + 1)
        return changed._replace(owner=record.owner)

    def merge(self, record: Record, patch: JsonObject, *, now: str) -> Record:
        """The item with a JSON Merge Patch applied (RFC 7396). Returns and raises as `replace`.

        A null for a field that is unknown or the server's would delete nothing; it is a fault like any other value.
        """
        merged = merge_patch(exactjson.loads(self.body(record)), patch)
        refused = {name: None for name in patch if name not in merged and name not in self._own}
        return self.replace(record, merged | refused, now=now)

    def body(self, record: Record) -> bytes:
        """The representation of a record in the schema's present shape."""
        return record.body if record.shape == self.shape else self.reshape(record.body)

    def reshape(self, body: bytes) -> bytes:
        """A representation of another shape in the present one: what is gone left out, what is new with its default."""
        had = self._defaults | exactjson.loads(body)
        return exactjson.dumps({name: had[name] for name in self.names if name in had})

    def show(self, body: bytes, names: Iterable[str]) -> bytes:
        """A representation with only these of its fields."""
        item = exactjson.loads(body)
        return exactjson.dumps({name: item.get(name) for name in names})

    @cached_property
    def _schema(self) -> Schema:
        return self.schema()

    @cached_property
    def _defaults(self) -> JsonObject:
        """What optional fields are when they are left out, in JSON's terms."""
        optional = {name: field.load_default for name, field in self._schema.load_fields.items() if not field.required}
        values = {name: default() if callable(default) else default for name, default in optional.items()}
        dumped: JsonObject = self._schema.dump(values)
        return dumped

    def _load(self, sent: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
        """The fields of a valid item in JSON's terms, or nothing and every fault."""
        own = {name: value for name, value in sent.items() if name not in READ_ONLY}
        faults = exactjson.faults_of_text(own)
        try:
            values = self._schema.load(own)
        except ValidationError as error:
            faults += _faults(error.messages, "#")
        return ({}, faults) if faults else (self._schema.dump(values), [])

    def _record(self, values: JsonObject, *, id: str, created_at: str, now: str, version: int) -> Record:
        item = {"id": id, **values, "created_at": created_at, "updated_at": now, "version": version}
        return Record(id, version, now, self.shape, exactjson.dumps(item))

    def _require_transition(self, current: JsonObject, values: JsonObject) -> None:
        for name, field in self._schema.fields.items():
            if not isinstance(field, Status) or name not in current:
                continue
            old, new, moves = current[name], values[name], field.lifecycle.moves.get(current[name], ())
            if not field.lifecycle.allows(old, new):
                told = f"{name} cannot go from {old} to {new}; from {old} it can go to {', '.join(moves) or 'nothing'}"
                raise IllegalTransition(told, **{"from": old, "to": new, "allowed": list(moves)})


def _is_short(field: fields.Field[Any]) -> bool:
    """Whether a value has room in a cursor, which goes into an address."""
    if isinstance(field, fields.String) and not isinstance(field, Time) and not field.validators:
        return field.dump_only
    most = [check.max for check in field.validators if isinstance(check, validate.Length)]
    return all(length is not None and length <= LONGEST_KEY for length in most)


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2: null deletes, objects recurse, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _same(one: Any, other: Any) -> bool:
    """Whether two values are one in JSON, where true is not 1 and the order of an object's names is nothing."""
    return exactjson.dumps(one, sort=True) == exactjson.dumps(other, sort=True)


def _is(one: Any, other: Any) -> bool:
    """Whether two plain values are one in JSON."""
    return type(one) is type(other) and bool(one == other)


def _is_past(name: str, sent: JsonObject, current: JsonObject) -> bool:
    """Whether a read-only field may have had this value before the item last changed."""
    return name in MOVING and type(sent[name]) is type(current[name]) and sent[name] < current[name]


def require_none(faults: list[JsonObject]) -> None:
    """Raises ValidationFailed for any: the first of them in words, and all of them with pointers."""
    if faults:
        raise ValidationFailed(_told(faults), errors=faults[:MOST_FAULTS])


def _fault(pointer: str, detail: str) -> JsonObject:
    return {"pointer": pointer, "detail": detail}


def _faults(messages: Mapping[Any, Any] | list[Any], pointer: str) -> list[JsonObject]:
    """marshmallow's nested messages as a flat list."""
    if isinstance(messages, list):
        return [_fault(pointer, message) for message in messages]
    found = []
    for name, inner in messages.items():
        found += _faults(inner, pointer if name == "_schema" else exactjson.step(pointer, name))
    return found


def _told(faults: list[JsonObject]) -> str:
    told = [f"{fault['pointer'].removeprefix('#/') or 'the body'} {fault['detail']}" for fault in faults[:3]]
    return "; ".join(told) + (f"; and {len(faults) - 3} more" if len(faults) > 3 else "")

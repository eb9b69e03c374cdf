"""The schemas of stored items: how the store has them described, whether another one fits them, and which is newer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from marshmallow import Schema, fields

from restkeeper.errors import Unavailable
from restkeeper.schemas.fields import Time
from restkeeper.storage.contract import MOST_SCHEMAS, StoredSchema

_TYPES: tuple[tuple[type[fields.Field[Any]], str], ...] = (
    (Time, "time"),
    (fields.String, "string"),
    (fields.Integer, "integer"),
    (fields.Number, "number"),
    (fields.Boolean, "boolean"),
    (fields.Mapping, "object"),
    (fields.Nested, "object"),
    (fields.Raw, "any value"),
)

_ARRAY = "array of "
DEEPEST = 10  # schemas inside one another that are described

# Types whose values are also values of another one.
_WIDER = {("integer", "number"), ("time", "string"), ("array of integer", "array of number")}


class StoredField(NamedTuple):
    """A field as a schema in the store describes it.

    `inside` has the fields of the objects that it holds, as far as they have a schema; the values of a dictionary are
    those of one field, `*`.
    """

    type: str
    required: bool
    nullable: bool
    inside: Mapping[str, Sequence[Any]] | None = None


class KnownSchemas:
    """The registered schemas of a collection that are newer than the one of this program, `own`.

    The order is that of revisions, and for equal ones that of their registration. An item of a newer schema stays as
    it is, with the fields that this program does not know.
    """

    def __init__(self, own: StoredSchema) -> None:
        self._own = own
        self._newer: dict[str, StoredSchema] = {}

    def learn(self, schemas: Sequence[StoredSchema]) -> None:
        """See `contract.Collection`."""
        order = {each.fingerprint: (each.revision, place) for place, each in enumerate(schemas)}
        own = order.get(self._own.fingerprint, (self._own.revision, -1))
        newer = {each.fingerprint: each for each in schemas if order[each.fingerprint] > own}
        others = {each.fingerprint: each for each in self._newer.values() if each.fingerprint not in order}
        self._newer = (others if len(others) < MOST_SCHEMAS else {}) | newer  # others: of another store

    def is_newer(self, fingerprint: str) -> bool:
        """Whether a schema is newer than the present one."""
        return fingerprint in self._newer or revision_of(fingerprint) > self._own.revision

    def require_readable(self, fingerprint: str) -> None:
        """Raises Unavailable for a newer schema whose items this program cannot work with."""
        newer = self._newer.get(fingerprint)
        if (newer.oldest if newer else revision_of(fingerprint)) > self._own.revision:
            raise Unavailable(
                f"a newer program stored items (revision {revision_of(fingerprint)}; this one has revision "
                f"{self._own.revision}): update this instance"
            )


def revision_of(fingerprint: str) -> int:
    """The revision in a fingerprint."""
    number, dash, _ = fingerprint.partition("-")
    return int(number) if dash else 1


def describe(definitions: Mapping[str, fields.Field[Any]]) -> str:
    """The description of these fields in a `StoredSchema`: a JSON object."""
    return orjson.dumps({name: _listed(_described(field)) for name, field in definitions.items()}).decode()


class Difference(NamedTuple):
    """Why items of a schema do not fit another one, and the steps that may be missing, in Python, by preference."""

    reason: str
    steps: tuple[str, ...]


def differences(stored: str, definitions: Mapping[str, fields.Field[Any]]) -> list[Difference]:
    """What does not fit a schema with these fields in items of a `stored` one, which is given by its description."""
    before = {name: StoredField(*each) for name, each in orjson.loads(stored).items()}
    return list(_compared(before, {name: _described(field) for name, field in definitions.items()}))


def _compared(before: Mapping[str, StoredField], after: Mapping[str, StoredField]) -> list[Difference]:
    added = [name for name in after if name not in before]
    found: list[Difference] = []
    for name, field in before.items():
        if name in after:
            found += _changed(name, field, after[name])
            continue
        renamed = next((each for each in added if after[each].type == field.type), "")
        found.append(_removed(name, field, renamed))
        added = [each for each in added if each != renamed] if renamed else added
        if renamed and after[renamed].required:
            found.append(_added(renamed, f'Rename("{name}", "{renamed}")'))
    return found + [_added(name) for name in added if after[name].required]


def steps_for(found: Sequence[Difference]) -> list[str]:
    """The steps for these differences as lists in Python: with fields that have another name, and without."""
    lists = ([each.steps[place] for each in found] for place in (0, -1))
    return list(dict.fromkeys(f"[{', '.join(dict.fromkeys(steps))}]" for steps in lists))


def _removed(name: str, field: StoredField, renamed: str) -> Difference:
    reason = f'stored items have "{name}" ({field.type}), and the schema does not'
    step = f'Remove("{name}", …)'
    return Difference(reason, (f'Rename("{name}", "{renamed}")', step) if renamed else (step,))


def _added(name: str, *rename: str) -> Difference:
    return Difference(f'"{name}" is required, and stored items do not have it', (*rename, f'Add("{name}", …)'))


def _changed(name: str, before: StoredField, after: StoredField) -> Iterator[Difference]:
    steps = (f'Convert({{"{name}": …}}, ["{name}"], up=…, down=…)',)
    if not _fits(before.type, after.type):
        yield Difference(f'"{name}" is of type {after.type}, and in stored items of type {before.type}', steps)
    elif before.nullable and not after.nullable:
        yield Difference(f'"{name}" must not be null, and in stored items it can be', steps)
    elif before.inside is not None and after.inside is not None:
        inner = [{key: StoredField(*each) for key, each in field.items()} for field in (before.inside, after.inside)]
        for each in _compared(*inner):
            yield Difference(f'in "{name}", {each.reason}', steps)


def _fits(before: str, after: str) -> bool:
    return before == after or (before, after) in _WIDER or after == "any value"


def _described(field: fields.Field[Any], above: tuple[type[Schema], ...] = ()) -> StoredField:
    return StoredField(_type_of(field), field.required, field.allow_none, inside=inside_of(field, above))


def _listed(field: StoredField) -> list[Any]:
    return list(field[:3] if field.inside is None else field)


def inside_of(field: fields.Field[Any], above: tuple[type[Schema], ...] = ()) -> dict[str, list[Any]] | None:
    """See `StoredField.inside`. Of a schema that is inside itself, `above`, the second one is not described."""
    if isinstance(field, fields.List):
        return inside_of(field.inner, above)
    if isinstance(field, fields.Mapping) and field.value_field:
        return {"*": _listed(_described(field.value_field, above))}
    if not isinstance(field, fields.Nested) or isinstance(field, fields.Pluck) or len(above) == DEEPEST:
        return None
    schema = field.schema
    if type(schema) in above:
        return None
    inner = {each.data_key or name: each for name, each in schema.load_fields.items()}
    return {name: _listed(_described(each, (*above, type(schema)))) for name, each in inner.items()}


def _type_of(field: fields.Field[Any]) -> str:
    if isinstance(field, fields.List):
        return f"{_ARRAY}{_type_of(field.inner)}"
    name = next((name for of, name in _TYPES if isinstance(field, of)), type(field).__name__)
    return f"{_ARRAY}{name}" if isinstance(field, fields.Nested) and field.many else name

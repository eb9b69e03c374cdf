"""The schema of stored items: its description, and the differences from another schema, with steps for them."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import orjson
from marshmallow import Schema, fields

from restkeeper.resources.evolution import Fields
from restkeeper.schemas.fields import Owner, Time

_ANY = "any value"
_TYPES: tuple[tuple[type[fields.Field[Any]], str], ...] = (
    (Time, "time"),
    (Owner, "owner"),  # a string that is stored already would not be it
    (fields.String, "string"),
    (fields.Integer, "integer"),
    (fields.Number, "number"),
    (fields.Boolean, "boolean"),
    (fields.Mapping, "object"),
    (fields.Nested, "object"),
    (fields.Raw, _ANY),
)
_ARRAY = "array of "
OPEN = "*"  # in the description of a schema whose items can have other fields
DEEPEST = 10  # levels of schemas inside one another that are described

# Types whose values are also values of another one.
_WIDER = {("integer", "number"), ("time", "string"), ("array of integer", "array of number")}


class StoredField(NamedTuple):
    """A field as a schema in the store describes it.

    `inside` has the fields of the objects in it, as far as they have a schema; the values of a dictionary are described
    as one field, `*`.
    """

    type: str
    required: bool
    nullable: bool
    inside: Mapping[str, Sequence[Any]] | None = None


def describe(definitions: Fields, *, is_open: bool = False) -> str:
    """The description of a schema in a `StoredSchema`, a JSON object of its fields."""
    described: dict[str, Any] = {name: _described(field) for name, field in definitions.items()}
    return orjson.dumps(described | ({OPEN: [_ANY, False, True]} if is_open else {})).decode()


def was_open(stored: str) -> bool:
    """Whether items of a schema have fields that its description does not name."""
    return OPEN in orjson.loads(stored)


def _described(field: fields.Field[Any], above: tuple[type[Schema], ...] = ()) -> list[Any]:
    """The values of a `StoredField`, without `inside` if there is none."""
    inside = inside_of(field, above)
    return [_type_of(field), field.required, field.allow_none, *([] if inside is None else [inside])]


def inside_of(field: fields.Field[Any], above: tuple[type[Schema], ...] = ()) -> dict[str, list[Any]] | None:
    """See `StoredField.inside`. A schema that is inside itself, so that it is `above`, is described once."""
    if isinstance(field, fields.List):
        return inside_of(field.inner, above)
    if isinstance(field, fields.Mapping) and field.value_field:
        return {"*": _described(field.value_field, above)}
    if not isinstance(field, fields.Nested) or len(above) == DEEPEST:
        return None
    schema = field.schema
    if type(schema) in above:
        return None
    inner = {inner_field.data_key or name: inner_field for name, inner_field in schema.load_fields.items()}
    return {name: _described(inner_field, (*above, type(schema))) for name, inner_field in inner.items()}


def _type_of(field: fields.Field[Any]) -> str:
    if isinstance(field, fields.List):
        return f"{_ARRAY}{_type_of(field.inner)}"
    name = next((name for of, name in _TYPES if isinstance(field, of)), type(field).__name__)
    return f"{_ARRAY}{name}" if isinstance(field, fields.Nested) and field.many else name


class Difference(NamedTuple):
    """The reason why items of a schema do not fit another one, and the steps that may be missing, as Python code.

    It is `common` if both schemas have the field, and no value can be of both types.
    """

    reason: str
    steps: tuple[str, ...]
    common: bool = False


def differences(
    stored: str,
    definitions: Fields,
    *,
    is_open: bool = False,
    distinct: Set[str] = frozenset(),
    filled: Set[str] = frozenset(),
) -> list[Difference]:
    """The differences of items of a `stored` schema, a description, from a schema with these fields.

    Fields in `distinct` are unique, and have a default that is not null; an item stores the values of fields in
    `filled`, see `Revision`.
    """
    before, after = orjson.loads(stored), {name: _described(field) for name, field in definitions.items()}
    has_others = before.pop(OPEN, None) is not None
    compared = {name: field for name, field in before.items() if name in after or not is_open}
    mismatches = list(_compared(compared, after))
    for name in (name for name in definitions if name not in before):
        if name in distinct:
            mismatches.append(Difference(f'"{name}" is unique, and its default is not null', (f'Add("{name}", …)',)))
        elif name in filled:
            mismatches.append(Difference(f'"{name}" is new, and stored items need its value', (f'Add("{name}")',)))
    for name, (type, required, *_) in after.items() if has_others else ():
        if name not in before and type != _ANY:
            mismatches.append(Difference(f'stored items can have any value as "{name}"', ()))
        elif name in before and required and not before[name][1]:
            mismatches.append(Difference(f'"{name}" is required, and stored items can be without it', ()))
    if has_others and not is_open:
        mismatches.append(Difference("stored items can have fields that the schema does not name", ()))
    return mismatches


def steps_for(mismatches: Sequence[Difference]) -> list[str]:
    """The steps for these differences as lists in Python: with fields that have another name now, and without."""
    lists = ([mismatch.steps[choice] for mismatch in mismatches] for choice in (0, -1))
    return list(dict.fromkeys(f"[{', '.join(dict.fromkeys(steps))}]" for steps in lists))


def _compared(before: Mapping[str, Sequence[Any]], after: Mapping[str, Sequence[Any]]) -> Iterator[Difference]:
    new = {name: StoredField(*description) for name, description in after.items()}
    added = [name for name in new if name not in before]
    for name, description in before.items():
        field = StoredField(*description)
        if name in new:
            yield from _changed(name, field, new[name])
            continue
        reason = f'stored items have "{name}" ({field.type}), and the schema does not'
        remove = f'Remove("{name}", …)'
        if renamed := next((candidate for candidate in added if new[candidate].type == field.type), ""):
            added.remove(renamed)
            rename = f'Rename("{name}", "{renamed}")'
            yield Difference(reason, (rename, remove))
            if new[renamed].required:
                yield _added(renamed, rename)
        else:
            yield Difference(reason, (remove,))
    yield from (_added(name) for name in added if new[name].required)


def _added(name: str, *rename: str) -> Difference:
    return Difference(f'"{name}" is required, and stored items do not have it', (*rename, f'Add("{name}", …)'))


def _changed(name: str, before: StoredField, after: StoredField) -> Iterator[Difference]:
    steps = (f'Convert({{"{name}": …}}, ["{name}"], up=…, down=…)',)
    if before.type != after.type and (before.type, after.type) not in _WIDER and after.type != _ANY:
        common = (after.type, before.type) not in _WIDER and before.type != _ANY
        yield Difference(f'"{name}" is of type {after.type}, and in stored items of type {before.type}', steps, common)
    elif before.nullable and not after.nullable:
        yield Difference(f'"{name}" must not be null, and in stored items it can be', steps)
    elif before.inside is not None and after.inside is not None:
        for mismatch in _compared(before.inside, after.inside):
            yield Difference(f'in "{name}", {mismatch.reason}', steps, mismatch.common)

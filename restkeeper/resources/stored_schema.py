"""The description of the schema of stored items; `conflict` finds the differences from another one."""

from typing import Any

import orjson
from marshmallow import Schema, fields

from restkeeper.resources.step import Fields
from restkeeper.schemas.fields import Owner, Time

ANY_VALUE = "any value"
_TYPES: tuple[tuple[type[fields.Field[Any]], str], ...] = (
    (Time, "time"),
    (Owner, "owner"),  # a string that is stored already would not be it
    (fields.String, "string"),
    (fields.Integer, "integer"),
    (fields.Number, "number"),
    (fields.Boolean, "boolean"),
    (fields.Mapping, "object"),
    (fields.Nested, "object"),
    (fields.Raw, ANY_VALUE),
)
_ARRAY = "array of "
OPEN = "*"  # in the description of a schema whose items can have other fields
DEEPEST = 10  # levels of schemas inside one another that are described


def describe(definitions: Fields, *, is_open: bool = False) -> str:
    """The description of a schema in a `StoredSchema`, a JSON object of its fields."""
    described: dict[str, Any] = {name: described_field(field) for name, field in definitions.items()}
    return orjson.dumps(described | ({OPEN: [ANY_VALUE, False, True]} if is_open else {})).decode()


def described_field(field: fields.Field[Any], above: tuple[type[Schema], ...] = ()) -> list[Any]:
    """The values of a `conflict.StoredField`, without `inside` if there is none."""
    inside = inside_of(field, above)
    return [_type_of(field), field.required, field.allow_none, *([] if inside is None else [inside])]


def inside_of(field: fields.Field[Any], above: tuple[type[Schema], ...] = ()) -> dict[str, list[Any]] | None:
    """See `conflict.StoredField.inside`. A schema that is inside itself, so that it is `above`, is described once."""
    if isinstance(field, fields.List):
        return inside_of(field.inner, above)
    if isinstance(field, fields.Mapping) and field.value_field:
        return {"*": described_field(field.value_field, above)}
    if not isinstance(field, fields.Nested) or len(above) == DEEPEST:
        return None
    schema = field.schema
    if type(schema) in above:
        return None
    inner = {inner_field.data_key or name: inner_field for name, inner_field in schema.load_fields.items()}
    return {name: described_field(inner_field, (*above, type(schema))) for name, inner_field in inner.items()}


def _type_of(field: fields.Field[Any]) -> str:
    if isinstance(field, fields.List):
        return f"{_ARRAY}{_type_of(field.inner)}"
    name = next((name for of, name in _TYPES if isinstance(field, of)), type(field).__name__)
    return f"{_ARRAY}{name}" if isinstance(field, fields.Nested) and field.many else name

"""Bounds for all schemas of the OpenAPI document: if a schema has none, they follow from the limits of the service."""

from typing import Any

from restkeeper.config import Config
from restkeeper.web.operations import JsonSchema

FIELD_BYTES = 8190  # of a header field with its name: gunicorn's `limit_request_field_size`
_VALUES = ("const", "default", "enum", "example", "examples")  # values that are never schemas


def bounded(part: Any, most: int, config: Config) -> Any:
    """A part of the document in which every schema has bounds, and every integer its format.

    `most` is the default `maxLength` of a string. A parameter is limited by the URL or the header field that it is sent
    in. An array has half as many items: each takes a character and a comma. An object allows other members, unless its
    schema forbids them.
    """
    if isinstance(part, list):
        return [bounded(each, most, config) for each in part]
    if not isinstance(part, dict):
        return part
    if isinstance(part.get("in"), str) and "name" in part:
        most = config.max_url if part["in"] != "header" else FIELD_BYTES - len(f"{part['name']}: \r\n")
    inner = {name: value if name in _VALUES else bounded(value, most, config) for name, value in part.items()}
    if isinstance(members := part.get("properties"), dict):
        inner["properties"] = {name: bounded(member, most, config) for name, member in members.items()}
    kinds = part.get("type", ())
    for kind in (kinds,) if isinstance(kinds, str) else kinds if isinstance(kinds, list) else ():
        inner |= {name: value for name, value in _missing(kind, inner, most).items() if name not in inner}
    return inner


def _missing(kind: str, schema: JsonSchema, most: int) -> JsonSchema:
    match kind:
        case "string" if "enum" not in schema and "const" not in schema:
            return {"maxLength": most}
        case "integer":
            low, high = schema.get("minimum", -(2**63)), schema.get("maximum", 2**63 - 1)
            form = "int32" if -(2**31) <= low and high < 2**31 else "int64"
            return {"format": form, "minimum": low, "maximum": high}
        case "array":
            return {"maxItems": most // 2}
        case "object":
            return {"additionalProperties": True}
    return {}

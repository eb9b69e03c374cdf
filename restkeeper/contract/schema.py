"""What one schema says: its types, whether null is valid, its constraints; all without its prose."""

import json
from typing import Any

from restkeeper.contract.findings import Json

PROSE = {"title", "description", "example", "examples", "deprecated", "externalDocs", "$comment"}
NAMES = {"properties", "patternProperties", "dependentSchemas", "$defs"}  # whose keys are no keywords

# Keywords that say what a value is.
TYPE_KEYWORDS = {"type", "properties", "items", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"}


def text(value: Any) -> str:
    """A value as JSON, in a form that equal values share."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def bare(part: Any, *, has_names: bool = False) -> Any:
    """A schema without prose."""
    if isinstance(part, list):
        return [bare(each) for each in part]
    if not isinstance(part, dict):
        return part
    kept = (key for key in part if has_names or key not in PROSE)
    return {key: bare(part[key], has_names=key in NAMES and not has_names) for key in kept}


def types_of(schema: Json) -> frozenset[str]:
    """The types that a schema names, without null if there are others; none if it names none."""
    named = schema.get("type", ())
    types = frozenset([named] if isinstance(named, str) else named)
    return types - {"null"} or types


def is_nullable(schema: Json) -> bool | None:
    """Whether null is valid; None if neither a type nor a list of values says so. `nullable` is that of `plain`."""
    named, values = schema.get("type"), schema.get("enum", [schema["const"]] if "const" in schema else None)
    if schema.get("nullable"):
        return True
    if values is not None and None not in values:
        return False
    if named is None and values is None:
        return False if {"anyOf", "oneOf", "allOf"} & schema.keys() else None  # those with null in them are plain
    if named is None:
        return True
    return "null" in ([named] if isinstance(named, str) else named)


def says_type(schema: Json) -> bool:
    """Whether a schema says what its values are."""
    return bool(TYPE_KEYWORDS & schema.keys())


def is_choice(schema: Json, keyword: str) -> bool:
    """Whether a schema is the alternatives of that keyword, and no more."""
    return keyword in schema and constraints(schema) <= {keyword, "nullable", "discriminator"}


def without_null(schema: Json) -> Json:
    """A schema without the mark that null is valid, too."""
    return {key: value for key, value in schema.items() if key != "nullable"}


def constraints(schema: Json) -> set[str]:
    """The keywords of a schema that say which values are valid."""
    return {key for key in schema.keys() - PROSE - {"default"} if not key.startswith("x-")}

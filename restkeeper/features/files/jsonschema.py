"""JSON Schema: what values have in common, and fields that accept what a schema accepts, stored as it is sent.

What fields cannot check is accepted, and a sentence says so: `notes` gets one for each such place.
"""

import keyword
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import unquote

from marshmallow import Schema, ValidationError, fields, validate

from restkeeper.exactjson import LARGEST_INTEGER, SMALLEST_INTEGER
from restkeeper.features.files import fields as file_fields
from restkeeper.features.files.items import WeakReference
from restkeeper.resources.queried import NAME
from restkeeper.schemas import fields as service_fields
from restkeeper.schemas.fields import MOST
from restkeeper.schemas.item import READ_ONLY

JsonSchema = dict[str, Any]

MOST_NAMES = 200  # of the members of an object; one with more is a dictionary of any names
MOST_SHAPES = 2_000  # of one collection: further values are any JSON
LONGEST_NAME = 100  # characters
DEEPEST = 10  # levels
MOST_PARTS = 5_000  # schemas inside the schema of a collection: further ones are any JSON
_TYPES = {str: "string", int: "integer", Decimal: "number", bool: "boolean", dict: "object", list: "array"}
_TYPES[type(None)] = "null"
_SERVICE = "Email IntegerReference JsonObject ListOf Pattern Reference Text Url Whole"
SERVICE_CLASSES = [getattr(service_fields, name) for name in _SERVICE.split()]
FILE_CLASSES = [
    kind for kind in vars(file_fields).values() if isinstance(kind, type) and kind.__module__ == file_fields.__name__
]
_NAMES = SimpleNamespace(
    fields=fields,
    validate=validate,
    **{kind.__name__: kind for kind in (*SERVICE_CLASSES, *FILE_CLASSES, WeakReference)},
)
TAKEN = {"Meta", "others", "require_known", *READ_ONLY, *vars(_NAMES)}  # of the attributes of a schema
_DATE = r"[0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|[12][0-9])|(0[13-9]|1[0-2])-30|(0[13578]|1[02])-31)"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"  # RFC 3339
_PATTERNS = {
    "date": (_DATE, "must be a date like 2026-01-31"),
    "date-time": (f"{_DATE}[Tt ]{_TIME}", "must be a time like 2026-01-31T12:00:00Z"),
    "uuid": ("[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", "must be a UUID"),
}
_SIMPLE = {"integer": "Whole", "number": "Number", "boolean": "TrueOrFalse", "object": "JsonObject"}
_EXCLUSIVE = {"min_inclusive": False, "max_inclusive": False}
_UNCHECKED = (
    "oneOf anyOf not if patternProperties propertyNames dependentRequired dependentSchemas multipleOf uniqueItems"
    " contains prefixItems minProperties maxProperties"
).split()


class Call(NamedTuple):
    """A call that builds a field or a validator; its text is the call in Python."""

    name: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}

    def build(self) -> Any:
        """The field or the validator. Raises what the called function raises."""
        options = {name: _build(value) for name, value in self.options.items()}
        return attrgetter(self.name)(_NAMES)(*map(_build, self.args), **options)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments())})"

    def arguments(self) -> list[str]:
        """The texts of the arguments."""
        return [*map(text_of, self.args), *(f"{name}={text_of(value)}" for name, value in self.options.items())]


class Class(NamedTuple):
    """The class of a schema; its text is its name."""

    name: str
    base: str
    about: str
    fields: Mapping[str, Call]
    others: frozenset[str] | None = None

    def build(self) -> type[Schema]:
        """The class."""
        base: type[Schema] = getattr(_NAMES, self.base)
        schema = base.from_dict({name: call.build() for name, call in self.fields.items()}, name=self.name)
        schema.__doc__ = self.about
        if file_fields.FileItem in schema.__mro__:  # issubclass asks all subclasses of FileItem, where it is none
            schema.others, schema.declared_as = self.others, self  # type: ignore[attr-defined]
        return schema

    def __str__(self) -> str:
        return self.name


FORMATS = {"email": Call("Email"), "uri": Call("Url")} | {
    name: Call("Text", (1, 64), {"validate": [Call("Pattern", (f"^{pattern}$",), {"error": words})]})
    for name, (pattern, words) in _PATTERNS.items()
}


def _build(value: Any) -> Any:
    if isinstance(value, list):
        return [_build(item) for item in value]
    return value.build() if isinstance(value, Call | Class) else value


def text_of(value: Any) -> str:
    """A value in Python, with double quotation marks as far as they need no escape."""
    match value:
        case list():
            return f"[{', '.join(map(text_of, value))}]"
        case dict():
            return f"{{{', '.join(f'{text_of(key)}: {text_of(item)}' for key, item in value.items())}}}"
        case str() if '"' not in value and "'" not in value:
            return f'"{repr(value)[1:-1]}"'
    return str(value) if isinstance(value, Call | Class) else repr(value)


class Maker:
    """Makes calls for the fields of JSON Schemas without references."""

    def __init__(self, kind: str, strict: bool, notes: list[str]) -> None:
        self._kinds = Counter([kind])
        self._strict = strict
        self._notes = notes

    def members(self, kind: str, path: str, parts: JsonSchema, required: Collection[str]) -> dict[str, Call]:
        """The fields of an object. Fields that only a server sets are not required."""
        calls = {}
        for name, member in parts.items():
            options: dict[str, Any] = {"required": True} if name in required and not member.get("readOnly") else {}
            attribute = name
            if name in TAKEN or keyword.iskeyword(name) or not NAME.fullmatch(name):
                attribute = "own_" + re.sub(r"\W", "_", name, flags=re.ASCII)
            while attribute in calls:  # of two names in other letters
                attribute += "_"
            options |= {"data_key": name} if attribute != name else {}
            inside = kind + re.sub("[^A-Za-z0-9]", "", name.title())
            calls[attribute] = self.field(inside, f"{path}.{name}", member, options)
        return calls

    def field(self, kind: str, path: str, schema: JsonSchema, options: dict[str, Any]) -> Call:
        """The field of a value. Raises ValueError if the schema is no JSON Schema."""
        if unchecked := [key for key in _UNCHECKED if key in schema]:
            self._notes.append(f"{path}: {', '.join(unchecked)}: not checked")
        kinds = [kind for kind in types_of(schema) if kind != "null"]
        if not kinds or "null" in types_of(schema):
            options["allow_none"] = True
        if about := {key: schema[key] for key in ("description", "examples") if key in schema}:
            options["metadata"] = about
        if len(kinds) > 1:
            self._notes.append(f"{path}: {' or '.join(kinds)}: not checked")
        try:
            if checks := list(_checks(schema)):
                options["validate"] = checks
            call = self._typed(kind, path, schema, kinds, options)
            field = call.build()
            if "default" in schema and "required" not in options:
                default = {"load_default": field.deserialize(schema["default"])}
                call = call._replace(options={**call.options, **default})
        except (AttributeError, TypeError, ValidationError, re.error) as error:
            raise ValueError(f"{path}: the schema is not understood: {error}") from None
        return call

    def _typed(self, kind: str, path: str, schema: JsonSchema, kinds: list[str], options: dict[str, Any]) -> Call:
        match kinds:
            case ["string"]:
                low, high, named = schema.get("minLength", 0), schema.get("maxLength", MOST), str(schema.get("format"))
                if "enum" in schema or "const" in schema or not (low or high < MOST or named in FORMATS):
                    return Call("AnyText", (), options)
                call = FORMATS.get(named, Call("Text", (low, high)))
                checks = [*call.options.get("validate", ()), *options.pop("validate", ())]
                about = {"metadata": {"format": named, **options.pop("metadata", {})}} if named in _PATTERNS else {}
                return Call(call.name, call.args, ({"validate": checks} if checks else {}) | about | options)
            case ["array"]:
                inner = self.field(kind, f"{path}[]", schema.get("items") or {}, {})
                low, high = schema.get("minItems", 0), schema.get("maxItems", MOST)
                if not low and high == MOST:
                    return Call("AnyList", (inner,), options)
                return Call("ListOf", (inner, high), options | ({"low": low} if low else {}))
            case ["object"] if members_in(schema):
                is_closed = self._strict or schema.get("additionalProperties") is False
                self._kinds[kind] += 1
                name = f"{kind}{self._kinds[kind] if self._kinds[kind] > 1 else ''}Schema"
                base = "ClosedMembers" if is_closed else "Members"
                members = self.members(kind, path, members_in(schema), schema.get("required", ()))
                return Call("AsSent", (Class(name, base, f"What {path} has.", members),), options)
            case [("integer" | "number" | "boolean" | "object") as simple]:
                return Call(_SIMPLE[simple], (), options)
        return Call("Raw", (), options)


def members_in(schema: JsonSchema) -> JsonSchema:
    """The schemas of the members of an object; a member that is only required can be any JSON."""
    required = schema["required"] if isinstance(schema.get("required"), list) else []
    return {**{name: {} for name in required}, **schema.get("properties", {})}


def _checks(schema: JsonSchema) -> Iterator[Call]:
    """The validators of a value; its length has others."""
    if "enum" in schema or "const" in schema:
        choices = [value for value in schema.get("enum", [schema.get("const")]) if value is not None]
        yield Call("validate.OneOf", (choices,), {"error": "must be one of: {choices}"})
    if "pattern" in schema:
        yield Call("Search", (schema["pattern"],))
    for low, high, words, is_in in (
        ("minimum", "maximum", ("at least {min}", "at most {max}"), {}),
        ("exclusiveMinimum", "exclusiveMaximum", ("more than {min}", "less than {max}"), _EXCLUSIVE),
    ):
        if said := [wording for limit, wording in zip((low, high), words, strict=True) if limit in schema]:
            options = {**is_in, "error": f"must be {' and '.join(said)}"}
            yield Call("validate.Range", (schema.get(low), schema.get(high)), options)


def types_of(schema: JsonSchema) -> list[str]:
    """The types that a schema names, or to which its other keywords belong."""
    if kinds := schema.get("type"):
        return kinds if isinstance(kinds, list) else [kinds]
    enum = schema.get("enum", ())
    values = [schema["const"]] if "const" in schema else [value for value in enum if value is not None]
    if values and all(isinstance(value, str) for value in values):
        return ["string", *["null"] * (None in enum)]
    return ["object"] if "properties" in schema else ["array"] if "items" in schema else []


def inlined(schema: Any, document: Any, path: str, notes: list[str]) -> JsonSchema:
    """A schema without $ref and allOf: the schemas of the document to which these lead are a part of it.

    A schema inside itself, or beyond MOST_PARTS, is any JSON. Raises ValueError, AttributeError or TypeError for what
    is no JSON Schema.
    """
    remaining = [MOST_PARTS]

    def walk(schema: Any, path: str, above: tuple[str, ...]) -> JsonSchema:
        remaining[0] -= 1
        if remaining[0] <= 0 or isinstance(schema, bool):
            notes.extend([f"{path}: the schema is too large: any JSON is accepted from here on"] * (remaining[0] == 0))
            return {}
        if wrong := [kind for kind in types_of(schema) if kind not in _TYPES.values()]:
            raise ValueError(f"{path}: type: {wrong[0]!r} is none of {', '.join(_TYPES.values())}")
        keywords = {key: value for key, value in schema.items() if key not in ("$ref", "$schema", "$defs", "allOf")}
        inner = [walk(base, path, above) for base in schema.get("allOf", ())]
        if (ref := schema.get("$ref")) in above:
            notes.append(f"{path}: is inside itself: any JSON is accepted")
        elif ref:
            inner.append(walk(target(document, ref, path), path, (*above, ref)))
        is_nullable = False
        for key in ("anyOf", "oneOf"):
            others = [choice for choice in keywords.get(key, ()) if choice != {"type": "null"}]
            if len(others) == 1:
                is_nullable |= len(keywords.pop(key)) > 1
                inner.append(walk(others[0], path, above))
        for limit in ("exclusiveMinimum", "exclusiveMaximum"):
            if isinstance(keywords.get(limit), bool):
                raise ValueError(f"{path}: {limit}: must be a number")
        if "properties" in keywords:
            members = keywords["properties"].items()
            keywords["properties"] = {name: walk(member, f"{path}.{name}", above) for name, member in members}
        if "items" in keywords:
            keywords["items"] = walk(keywords["items"], f"{path}[]", above)
        merged: JsonSchema = {}
        for base in (*inner, keywords):
            both = {key: merged[key] | base[key] for key in ("properties",) if key in merged and key in base}
            both |= {key: [*merged[key], *base[key]] for key in ("required",) if key in merged and key in base}
            merged |= base | both
        if is_nullable and (kinds := types_of(merged)) and "null" not in kinds:
            merged["type"] = [*kinds, "null"]
        return merged

    return walk(schema, path, ())


def target(document: Any, ref: str, path: str) -> Any:
    """The value to which a reference within a document leads (RFC 6901). Raises ValueError."""
    file, _, pointer = ref.partition("#")
    value = document
    try:
        for step in unquote(pointer).split("/")[1:]:
            value = value[step.replace("~1", "/").replace("~0", "~")]
    except (LookupError, TypeError):
        file = ref
    if file:
        raise ValueError(f"{path}: $ref: {ref!r} is not in this document")
    return value


_FIELDS = {name: call.build() for name, call in FORMATS.items()}


class Shape:
    """What the values so far have in common.

    `depth` is the number of levels around them, `remaining` how many shapes there can still be inside.
    """

    def __init__(self, depth: int = 0, remaining: list[int] | None = None) -> None:
        self._depth = depth
        self._remaining = [MOST_SHAPES] if remaining is None else remaining
        self._types = Counter[str]()
        self._formats = list(_FIELDS)
        self._members: dict[str, Shape] | None = {}
        self._elements: Shape | None = None

    def add(self, value: Any) -> None:
        """Take a value of `exactjson.decoded` into account."""
        kind = _TYPES[type(value)]
        if kind == "integer" and not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            kind = "number"
        self._types[kind] += 1
        if kind == "string":
            self._formats = [format for format in self._formats if _accepts(_FIELDS[format], value)]
        elif kind == "object":
            self._add_members(value)
        elif kind == "array" and value and (elements := self._elements or self._inside()):
            self._elements = elements
            for element in value:
                elements.add(element)

    def schema(self) -> JsonSchema:
        """The schema that all values have; without a type if they have several, or null only.

        A member is required if each object has it, and a text has a format if each has it.
        """
        kinds = [kind for kind in self._types if kind != "null"]
        if set(kinds) == {"integer", "number"}:
            kinds = ["number"]
        if len(kinds) != 1:
            return {}
        schema: JsonSchema = {"type": [*kinds, "null"] if self._types["null"] else kinds[0]}
        if kinds == ["string"] and self._formats:
            schema["format"] = self._formats[0]
        elif kinds == ["object"] and self._members:
            every = self._types["object"]
            required = [name for name, member in self._members.items() if member._types.total() == every]
            schema["properties"] = {name: member.schema() for name, member in self._members.items()}
            schema |= {"required": required} if required else {}
        elif kinds == ["array"] and self._elements:
            schema["items"] = self._elements.schema()
        return schema

    def _add_members(self, value: dict[str, Any]) -> None:
        for name, element in value.items():
            if self._members is None:
                return
            if (member := self._members.get(name)) is None and len(name) <= LONGEST_NAME:
                member = None if len(self._members) == MOST_NAMES else self._inside()
                if member is None:
                    self._members = None
                    return
                self._members[name] = member
            if member:
                member.add(element)

    def _inside(self) -> "Shape | None":
        """A shape of values inside these; None beyond the bounds."""
        if self._depth == DEEPEST or not self._remaining[0]:
            return None
        self._remaining[0] -= 1
        return Shape(self._depth + 1, self._remaining)


def _accepts(field: Any, text: str) -> bool:
    try:
        field.deserialize(text)
    except ValidationError:
        return False
    return True

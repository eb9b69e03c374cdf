"""JSON Schema -> marshmallow: a collection whose items are accepted as the schema says, and stored as they are sent.

What fields cannot check is accepted, and a sentence says so: `notes` gets one for each such place.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast
from urllib.parse import unquote

from marshmallow import EXCLUDE, INCLUDE, RAISE, Schema, ValidationError, fields, validate, validates_schema

from restkeeper.resources.resource import METHODS, Resource
from restkeeper.schemas.fields import (
    TEXT_ERRORS,
    Email,
    IntegerReference,
    JsonObject,
    ListOf,
    Reference,
    Text,
    Time,
    Url,
    Whole,
)
from restkeeper.schemas.item import ItemSchema

JsonSchema = dict[str, Any]
Field = fields.Field[Any]

MOST = 2**31 - 1  # of characters and elements where a schema has no bound: an item has its own
MOST_PARTS = 5_000  # of one collection's schema, with what it refers to; what is beyond is any JSON
TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
_NAME = re.compile(r"(?!Meta$)[A-Za-z][A-Za-z0-9_]*", re.ASCII)  # of a field of ours
_UNCHECKED = (
    "oneOf anyOf not if patternProperties propertyNames dependentRequired dependentSchemas multipleOf uniqueItems"
    " contains prefixItems minProperties maxProperties"
).split()


class AnyText(fields.String):
    """A text of any length that an item can have; lists can be sorted by it."""

    default_error_messages = TEXT_ERRORS

    def __init__(self, **options: Any) -> None:
        super().__init__(validate=lambda _: None, **options)  # a text that has only Length is too long to sort by


class Number(fields.Decimal):
    """An exact number."""

    default_error_messages = {**TEXT_ERRORS, "invalid": "must be a number"}

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> Decimal:
        if type(value) not in (int, Decimal):
            raise self.make_error("invalid")
        return Decimal(value)


class TrueOrFalse(fields.Boolean):
    """true or false, and nothing that stands for them."""

    default_error_messages = {**TEXT_ERRORS, "invalid": "must be true or false"}

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            raise self.make_error("invalid")
        return value


class AsSent(fields.Nested):
    """An object that a schema accepts, stored as it was sent: also what the schema does not name."""

    default_error_messages = {**TEXT_ERRORS, "type": "must be an object"}

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, *_: Any, **kwargs: Any) -> Any:
        super()._deserialize(value, attr, data)
        return value

    def _serialize(self, nested_obj: Any, *_: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return nested_obj


class Members(Schema):
    """Base of the schemas of objects inside an item."""

    error_messages = {"unknown": "is not a field here", "type": "must be an object"}


class FileItem(ItemSchema):
    """Base of the items of a file: they have what the file has, and nothing of the server's but the id."""

    others: frozenset[str] | None = None  # the names that an item can have besides its fields; None for any name

    class Meta:
        unknown = INCLUDE
        exclude = ("created_at", "updated_at", "version")

    @validates_schema
    def require_known(self, data: Mapping[str, Any], **_: Any) -> None:
        """Raises ValidationError for names that an item cannot have."""
        if self.others is not None and (unknown := data.keys() - self.fields.keys() - self.others):
            raise ValidationError({name: [self.error_messages["unknown"]] for name in sorted(unknown)})


def _time(**options: Any) -> Field:
    options["metadata"] = {"format": "date-time", **options.get("metadata", {})}
    check: Any = Time().deserialize  # a Time itself would be stored in UTC
    return Text(1, 64, validate=(check,), **options)


# The formats that are checked, and the fields that do it.
FORMATS: Mapping[str, Callable[..., Field]] = {
    "date-time": _time,
    "date": fields.Date,
    "uuid": fields.UUID,
    "email": Email,
    "uri": Url,
}


def singular_of(name: str) -> str:
    """The name of one item of a collection, by the simplest rules of English; the same name if none fits."""
    for plural, singular in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("s", "")):
        if name.endswith(plural) and not name.endswith(("ss", "us", "is")) and len(name) > len(plural) + 1:
            return name.removesuffix(plural) + singular
    return name


def resource_of(
    name: str,
    schema: JsonSchema,
    *,
    ids: str = "client",
    singleton: bool = False,
    references: Mapping[str, str] | None = None,
    strict: bool = False,
    methods: Sequence[str] = METHODS,
    notes: list[str] | None = None,
) -> Resource:
    """The collection, or the singleton, whose items are as a JSON Schema says.

    The fields of `references` refer to items of these collections. Unknown fields are stored as they are sent, unless
    `strict`. Raises ValueError for what is no JSON Schema, with the place.
    """
    declared = schema_of(name, schema, references or {}, strict, [] if notes is None else notes)
    inner = {each: getattr(field, "inner", field) for each, field in declared().fields.items() if each != "id"}
    return Resource(
        name=name,
        singular=singular_of(name),
        schema=declared,
        search=() if singleton else tuple(each for each, field in inner.items() if isinstance(field, fields.String)),
        ids="server" if singleton else ids,
        singleton=singleton,
        methods=methods,
    )


def schema_of(
    name: str, schema: JsonSchema, references: Mapping[str, str], strict: bool, notes: list[str]
) -> type[FileItem]:
    """The schema of the items of a collection: see `resource_of`."""
    schema = inlined(schema, schema, name, notes)
    kind = singular_of(name).title().replace("_", "")
    members = {each: part for each, part in schema.get("properties", {}).items() if each != "id"}
    others = frozenset(each for each in members if not _NAME.fullmatch(each))
    for each in sorted(others):
        notes.append(f"{name}.{each}: has other characters than ASCII letters, digits and _: any JSON is accepted")
    fit = {each: part for each, part in members.items() if each not in others}
    maker = _Maker(kind, strict, notes)
    made = maker.members(name, fit, schema.get("required", []))
    for each, to in references.items():
        refers = IntegerReference if isinstance(made[each], Whole) else Reference
        target = re.sub(r"_?[iI]d$", "", each)
        beside = {"embed_as": target} if target and target not in members else {}
        made[each] = refers(to, on_delete="null", allow_none=True, required=made[each].required, **beside)
    found = cast(type[FileItem], FileItem.from_dict(made, name=f"{kind}Schema"))
    found.__doc__ = str(schema.get("description") or schema.get("title") or f"An item of {name}.")
    found.others = others if strict or schema.get("additionalProperties") is False else None
    return found


class _Maker:
    """Makes fields from JSON Schemas without references, for the item `kind`."""

    def __init__(self, kind: str, strict: bool, notes: list[str]) -> None:
        self._kind = kind
        self._strict = strict
        self._notes = notes

    def members(self, path: str, parts: Mapping[str, JsonSchema], required: Iterable[str]) -> dict[str, Field]:
        """The fields of an object. Those that only a server sets are not required."""
        needed = {name for name in required if not parts.get(name, {}).get("readOnly")}
        return {name: self.field(f"{path}.{name}", part, name in needed) for name, part in parts.items()}

    def field(self, path: str, part: JsonSchema, required: bool = False) -> Field:
        """The field of a value. Raises ValueError for what is no JSON Schema."""
        if unchecked := [key for key in _UNCHECKED if key in part]:
            self._notes.append(f"{path}: {', '.join(unchecked)}: not checked")
        kinds = types_of(part)
        options: dict[str, Any] = {"required": required, "allow_none": not kinds or "null" in kinds}
        options["metadata"] = {key: part[key] for key in ("description", "examples") if key in part}
        try:
            made = self._typed(path, part, [kind for kind in kinds if kind != "null"], options)
            made.validators = [*made.validators, *_checks(part)]
            if "default" in part and not required:
                made.load_default = made.deserialize(part["default"])
        except (AttributeError, TypeError, ValidationError, re.error) as error:
            raise ValueError(f"{path}: the schema is not understood: {error}") from None
        return made

    def _typed(self, path: str, part: JsonSchema, kinds: list[str], options: dict[str, Any]) -> Field:
        match kinds:
            case ["string"]:
                low, high = part.get("minLength", 0), part.get("maxLength", MOST)
                if "enum" in part or "const" in part:
                    return fields.String(error_messages=TEXT_ERRORS, **options)
                if make := FORMATS.get(part.get("format", "")):
                    return make(**options)
                return Text(low, high, **options) if low or high < MOST else AnyText(**options)
            case ["array"]:
                inner = self.field(f"{path}[]", part.get("items") or {})
                return ListOf(inner, part.get("maxItems", MOST), low=part.get("minItems", 0), **options)
            case ["object"] if part.get("properties"):
                inside = self.members(path, part["properties"], part.get("required", ()))
                is_closed = self._strict or part.get("additionalProperties") is False
                name = self._kind + re.sub(r"^\w+|[^\w.]", "", path, flags=re.ASCII)
                schema = Members.from_dict(inside, name=f"{name}Schema")
                return AsSent(schema, unknown=RAISE if is_closed else EXCLUDE, **options)
            case [("integer" | "number" | "boolean" | "object") as kind]:
                simple: dict[str, Callable[..., Field]] = {"integer": Whole, "number": Number, "boolean": TrueOrFalse}
                return simple.get(kind, JsonObject)(**options)
        if kinds:
            self._notes.append(f"{path}: {' or '.join(kinds)}: not checked")
        return fields.Raw(**options)


def _checks(part: JsonSchema) -> Iterator[Callable[[Any], Any]]:
    """The validators of a value, besides those of its length. Raises re.error."""
    if "enum" in part or "const" in part:
        choices = [each for each in part.get("enum", [part.get("const")]) if each is not None]
        yield validate.OneOf(choices, error="must be one of: {choices}")
    if "pattern" in part:
        yield _Search(part["pattern"])
    for low, high, is_in in (("minimum", "maximum", True), ("exclusiveMinimum", "exclusiveMaximum", False)):
        if low in part or high in part:
            yield validate.Range(part.get(low), part.get(high), min_inclusive=is_in, max_inclusive=is_in)


class _Search(validate.Regexp):
    """A regular expression that is found anywhere in a text, as in JSON Schema."""

    def __call__(self, value: str) -> str:  # type: ignore[override]
        if not re.search(pattern := str(self.regex.pattern), value):
            raise ValidationError(f"must match {pattern}")
        return value


def types_of(part: JsonSchema) -> list[str]:
    """The types that a schema names, or that its other keywords are of."""
    if kinds := part.get("type"):
        return kinds if isinstance(kinds, list) else [kinds]
    values = [part["const"]] if "const" in part else [each for each in part.get("enum", ()) if each is not None]
    if values and all(isinstance(each, str) for each in values):
        return ["string", *["null"] * (None in part.get("enum", ()))]
    return ["object"] if "properties" in part else ["array"] if "items" in part else []


def inlined(schema: Any, document: Any, path: str, notes: list[str]) -> JsonSchema:
    """A schema with what it refers to in its document in its place, and without allOf and the words of OpenAPI 3.0.

    What is inside itself, or beyond MOST_PARTS, is any JSON. Raises ValueError for what is no JSON Schema.
    """
    left = [MOST_PARTS]

    def walk(part: Any, path: str, above: tuple[str, ...]) -> JsonSchema:
        left[0] -= 1
        if left[0] <= 0 or isinstance(part, bool):
            notes.extend([f"{path}: the schema is too large: any JSON is accepted from here on"] * (left[0] == 0))
            return {}
        if wrong := [each for each in types_of(part) if each not in TYPES]:
            raise ValueError(f"{path}: type: {wrong[0]!r} is none of {', '.join(TYPES)}")
        own = {
            key: value for key, value in part.items() if key not in ("$ref", "$schema", "$defs", "allOf", "nullable")
        }
        inner = [walk(each, path, above) for each in part.get("allOf", ())]
        if (ref := part.get("$ref")) in above:
            notes.append(f"{path}: is inside itself: any JSON is accepted")
        elif ref:
            inner.append(walk(_target(document, ref, path), path, (*above, ref)))
        is_nullable = part.get("nullable") is True
        for key in ("anyOf", "oneOf"):
            others = [each for each in own.get(key, ()) if each != {"type": "null"}]
            if len(others) == 1:
                is_nullable |= len(own.pop(key)) > 1
                inner.append(walk(others[0], path, above))
        for limit in ("minimum", "maximum"):
            if own.get(exclusive := f"exclusive{limit.title()}") is True:
                own[exclusive] = own.pop(limit)
            elif own.get(exclusive) is False:
                del own[exclusive]
        if "properties" in own:
            own["properties"] = {name: walk(each, f"{path}.{name}", above) for name, each in own["properties"].items()}
        if "items" in own:
            own["items"] = walk(own["items"], f"{path}[]", above)
        made: JsonSchema = {}
        for each in (*inner, own):
            both = {key: made[key] | each[key] for key in ("properties",) if key in made and key in each}
            both |= {key: [*made[key], *each[key]] for key in ("required",) if key in made and key in each}
            made |= each | both
        if is_nullable and (kinds := types_of(made)) and "null" not in kinds:
            made["type"] = [*kinds, "null"]
        return made

    try:
        return walk(schema, path, ())
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{path}: the schema is not understood: {error}") from None


def _target(document: Any, ref: str, path: str) -> Any:
    """What a reference within its document refers to (RFC 6901). Raises ValueError."""
    file, _, pointer = ref.partition("#")
    found = document
    try:
        for step in unquote(pointer).split("/")[1:]:
            found = found[step.replace("~1", "/").replace("~0", "~")]
    except (LookupError, TypeError):
        file = ref
    if file:
        raise ValueError(f"{path}: $ref: {ref!r} is not in this document")
    return found

"""JSON Schema -> marshmallow: a collection whose items are accepted as the schema says, and stored as they are sent.

What fields cannot check is accepted, and a sentence says so: `notes` gets one for each such place.
"""

import keyword
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import chain, count
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unicodedata import normalize
from urllib.parse import unquote

from marshmallow import Schema, ValidationError, fields, validate

from restkeeper.exactjson import LARGEST_INTEGER, SMALLEST_INTEGER
from restkeeper.features.files import fields as theirs
from restkeeper.features.files.items import LONGEST_ID, FileResource
from restkeeper.resources.checks import LARGEST_PAGE, RESERVED, RESERVED_KINDS
from restkeeper.resources.declaration import METHODS
from restkeeper.resources.resource import Resource
from restkeeper.schemas.fields import (
    MOST,
    Email,
    IntegerReference,
    JsonObject,
    ListOf,
    Pattern,
    Reference,
    Text,
    Url,
    WeakReference,
    Whole,
)
from restkeeper.schemas.item import ID_PATTERN, READ_ONLY
from restkeeper.schemas.prepared import fields_of
from restkeeper.storage.interface import POSITION

JsonSchema = dict[str, Any]
Names = dict[str, tuple[str, str]]  # of collections, and of their items, by path

LISTS: Any = {"sort": POSITION, "page_limit": LARGEST_PAGE, "page_bytes": 4 * 1024 * 1024}  # all items, as in the file
EMBED_LIMIT = 1_000  # items that are embedded in one that they refer to
MOST_SEARCHED = 100  # fields: a function of SQLite has at most 127 arguments
MOST_PARTS = 5_000  # of one collection's schema, with what it refers to; what is beyond is any JSON
TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
OURS = (Email, IntegerReference, JsonObject, ListOf, Pattern, Reference, Text, Url, WeakReference, Whole)
THEIRS = [each for each in vars(theirs).values() if isinstance(each, type) and each.__module__ == theirs.__name__]
_NAMES = SimpleNamespace(fields=fields, validate=validate, **{each.__name__: each for each in (*OURS, *THEIRS)})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)  # of a field of ours, and of a collection
_TAKEN = {"Meta", "others", "require_known", *READ_ONLY, *vars(_NAMES)}  # of the attributes of a schema
_DATE = r"[0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|[12][0-9])|(0[13-9]|1[0-2])-30|(0[13578]|1[02])-31)"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"  # RFC 3339
_PATTERNS = {
    "date": (_DATE, "must be a date like 2026-01-31"),
    "date-time": (f"{_DATE}[Tt ]{_TIME}", "must be a time like 2026-01-31T12:00:00Z"),
    "uuid": ("[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", "must be a UUID"),
}
_SIMPLE = {"integer": "Whole", "number": "Number", "boolean": "TrueOrFalse", "object": "JsonObject"}
_TEXTS, _NUMBERS = ("text", "plain"), ("number", "whole", "index")  # kinds of ids, the widest first
_IDS: Mapping[str, JsonSchema] = {
    "text": {"type": "string", "minLength": 1, "maxLength": LONGEST_ID},
    "plain": {"type": "string", "minLength": 1, "maxLength": 64, "pattern": ID_PATTERN},
    "number": {"type": "number"},
    "whole": {"type": "integer", "minimum": SMALLEST_INTEGER, "maximum": LARGEST_INTEGER},
    "index": {"type": "integer", "minimum": 0, "maximum": LARGEST_INTEGER},
}
_ENDS = ("_embedded", "_event", "_field", "_input", "_part", "_patch", "_replacement")  # in the document, after a name
_EXCLUSIVE = {"min_inclusive": False, "max_inclusive": False}
_UNCHECKED = (
    "oneOf anyOf not if patternProperties propertyNames dependentRequired dependentSchemas multipleOf uniqueItems"
    " contains prefixItems minProperties maxProperties"
).split()


class Call(NamedTuple):
    """A call that makes a field or a validator; its text is the same in Python."""

    name: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}

    def made(self) -> Any:
        """What it returns. Raises what the function raises."""
        options = {name: _made(value) for name, value in self.options.items()}
        return attrgetter(self.name)(_NAMES)(*map(_made, self.args), **options)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.parts())})"

    def parts(self) -> list[str]:
        """The texts of its arguments."""
        return [*map(text_of, self.args), *(f"{name}={text_of(value)}" for name, value in self.options.items())]


class Class(NamedTuple):
    """The class of a schema; its text is its name."""

    name: str
    base: str
    about: str
    fields: Mapping[str, Call]
    others: frozenset[str] | None = None

    def made(self) -> type[Schema]:
        """The class."""
        base: type[Schema] = getattr(_NAMES, self.base)
        made = base.from_dict({name: call.made() for name, call in self.fields.items()}, name=self.name)
        made.__doc__ = self.about
        if theirs.FileItem in made.__mro__:  # issubclass asks all subclasses of FileItem, where it is none
            made.others, made.declared_as = self.others, self  # type: ignore[attr-defined]
        return made

    def __str__(self) -> str:
        return self.name


FORMATS = {"email": Call("Email"), "uri": Call("Url")} | {
    name: Call("Text", (1, 64), {"validate": [Call("Pattern", (f"^{pattern}$",), {"error": words})]})
    for name, (pattern, words) in _PATTERNS.items()
}


def _made(value: Any) -> Any:
    if isinstance(value, list):
        return [_made(each) for each in value]
    return value.made() if isinstance(value, Call | Class) else value


def text_of(value: Any) -> str:
    """A value in Python, with double quotation marks as far as they need no escape."""
    match value:
        case list():
            return f"[{', '.join(map(text_of, value))}]"
        case dict():
            return f"{{{', '.join(f'{text_of(key)}: {text_of(each)}' for key, each in value.items())}}}"
        case str() if '"' not in value and "'" not in value:
            return f'"{repr(value)[1:-1]}"'
    return str(value) if isinstance(value, Call | Class) else repr(value)


def singular_of(name: str) -> str:
    """The name of one item of a collection, by the simplest rules of English; the same name if none fits."""
    for plural, singular in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("s", "")):
        if name.endswith(plural) and not name.endswith(("ss", "us", "is")) and len(name) > len(plural) + 1:
            return name.removesuffix(plural) + singular
    return name


def names_of(paths: Iterable[str]) -> Names:
    """The name of each collection with these paths, and of its items: identifiers, each unlike all others.

    They are the path and its singular where they can be.
    """
    taken, found = {*map(_alike, RESERVED | RESERVED_KINDS)}, Names()
    for path in sorted(paths, key=lambda each: not _NAME.fullmatch(each)):
        plain = normalize("NFKD", path).encode("ascii", "ignore").decode()  # `u` of `ü`
        plain = re.sub(r"\W+", "_", plain).strip("_") if not _NAME.fullmatch(path) else path
        plain = plain if plain[:1].isalpha() else f"items_{plain}".strip("_")
        numbered = chain([plain], (f"{plain}_{number}" for number in count(2)))
        name = next(each for each in numbered if _alike(each) not in taken and not each.lower().endswith(_ENDS))
        taken.add(_alike(name))
        found[path] = name, name
    for path, (name, _) in found.items():
        singular = singular_of(name)
        if _alike(singular) not in taken and not singular.lower().endswith(_ENDS):
            taken.add(_alike(singular))
            found[path] = name, singular
    return found


def _alike(name: str) -> str:
    """What two names have in common whose components in the document would be one."""
    return name.lower().replace("_", "")


class Declared(NamedTuple):
    """What a collection, or a singleton, is declared by.

    Its `kind` says which ids it has, "client" or "client-integer", or is "singleton". The fields of `references` refer
    to items of these collections, and are named by their kind and a `suffix`, else by Id, id or _id. The ids are in
    `id_name`, and `ids` are their kinds, see `reading.id_kind`. If it `is_open`, items are accepted as they are sent;
    items of the file are to be checked if the schema was not inferred of them. The file has `names` in its items.
    """

    schema: JsonSchema
    kind: str = "client"
    references: Mapping[str, str] = {}
    is_open: bool = False
    is_checked: bool = False
    suffix: str = ""
    id_name: str = "id"
    ids: Set[str] = frozenset()
    names: Set[str] = frozenset()

    @property
    def id_schema(self) -> JsonSchema | None:
        """The schema of its ids, with texts first; None if they are those of every collection of its kind."""
        if self.ids <= {"plain" if self.kind == "client" else "index"}:
            return None
        ordered = [[kind for kind in kinds if kind in self.ids] for kinds in (_TEXTS, _NUMBERS)]
        parts = [_IDS[kinds[0]] for kinds in ordered if kinds]
        return parts[0] if len(parts) == 1 else {"anyOf": parts}


def resources_of(
    declared: Mapping[str, Declared], notes: list[str], *, strict: bool = False, read_only: bool = False
) -> list[Resource]:
    """The collections and singletons, whose items are as their JSON Schemas say. Raises ValueError, with the place.

    Unknown fields are stored as they are sent, unless `strict`. `notes` get what fields cannot check.
    """
    names, resources = names_of(declared), []
    for name in declared:
        try:
            resources.append(_resource_of(name, names, declared, notes, strict, read_only))
        except (AttributeError, TypeError) as error:  # such as of a `required` that is a number
            raise ValueError(f"{name}: the schema is not understood: {error}") from None
    return resources


def _resource_of(
    name: str, names: Names, declared: Mapping[str, Declared], notes: list[str], strict: bool, read_only: bool
) -> Resource:
    own = declared[name]
    strict = strict and not own.is_open
    schema, is_single = own.schema, own.kind == "singleton"
    schema = inlined(schema, schema, name, notes)
    internal, singular = names[name]
    class_name = singular.title().replace("_", "")
    members = _members(schema)
    fit = {each: part for each, part in members.items() if _NAME.fullmatch(each) and each not in ("id", own.id_name)}
    for each in [each for each in members if each not in fit and each != own.id_name]:
        why = f"is beside {own.id_name}" if each == "id" else "has other characters than ASCII letters, digits and _"
        notes.append(f"{name}.{each}: {why}: any JSON is accepted")
    made = _Maker(class_name, strict, notes).members(class_name, name, fit, schema.get("required", ()))
    taken = {*members}
    for each, to in own.references.items():
        beside = each.removesuffix(own.suffix) if own.suffix else re.sub(r"_?[iI]d$", "", each)
        embed_as = {"embed_as": beside} if beside and beside not in taken and _NAME.fullmatch(beside) else {}
        if own.is_open and _NAME.fullmatch(each) and each not in _TAKEN:
            kinds = [kind for kind in types_of(members.get(each, {})) if kind != "null"]
            typed = {"metadata": {"type": kinds[0]}} if len(kinds) == 1 else {}
            made[each] = Call("WeakReference", (names[to][0],), embed_as | typed)
            taken.add(beside)
        elif each in made:
            options = {"on_delete": "null", "allow_none": True} | embed_as
            options |= {k: v for k, v in made[each].options.items() if k in ("required", "data_key", "metadata")}
            taken.add(beside)
            is_integer = declared[to].kind == "client-integer"
            refers, bounds = ("IntegerReference", (0, LARGEST_INTEGER)) if is_integer else ("Reference", ())
            made[each] = Call(refers, (names[to][0], *bounds), options)
    about = str(schema.get("description") or schema.get("title") or f"An item of {name}.")
    is_closed = strict or schema.get("additionalProperties") is False
    others = frozenset(members.keys() - fit.keys() - {own.id_name}) if is_closed else None
    item = cast(type[theirs.FileItem], Class(f"{class_name}Schema", "FileItem", about, made, others).made())
    item.id_name, item.id_schema, item.known_others = own.id_name, own.id_schema, frozenset(own.names) - made.keys()
    inner = {each: getattr(field, "inner", field) for each, field in fields_of(item()).items() if each != "id"}
    texts = [each for each, field in inner.items() if isinstance(field, fields.String) and not is_single]
    if len(texts) > MOST_SEARCHED:
        notes.append(f"{name}: q searches the first {MOST_SEARCHED} of its {len(texts)} text fields")
    return FileResource(
        name=internal,
        singular=singular,
        path=name if name != internal else "",
        schema=item,
        search=tuple(texts[:MOST_SEARCHED]),
        ids="server" if is_single else own.kind,
        singleton=is_single,
        methods=("GET",) if read_only else METHODS,
        embed_limit=EMBED_LIMIT,
        undeclared=own.is_open and not is_single,
        **({} if is_single else LISTS),
    )


class _Maker:
    """Makes fields from JSON Schemas without references."""

    def __init__(self, kind: str, strict: bool, notes: list[str]) -> None:
        self._kinds = Counter([kind])
        self._strict = strict
        self._notes = notes

    def members(self, kind: str, path: str, parts: JsonSchema, required: Collection[str]) -> dict[str, Call]:
        """The fields of an object. Those that only a server sets are not required."""
        made = {}
        for name, each in parts.items():
            options: dict[str, Any] = {"required": True} if name in required and not each.get("readOnly") else {}
            attribute = name
            if name in _TAKEN or keyword.iskeyword(name) or not _NAME.fullmatch(name):
                attribute, options["data_key"] = "own_" + re.sub(r"\W", "_", name, flags=re.ASCII), name
            inside = kind + re.sub("[^A-Za-z0-9]", "", name.title())
            made[attribute] = self.field(inside, f"{path}.{name}", each, options)
        return made

    def field(self, kind: str, path: str, part: JsonSchema, options: dict[str, Any]) -> Call:
        """The field of a value. Raises ValueError for what is no JSON Schema."""
        if unchecked := [key for key in _UNCHECKED if key in part]:
            self._notes.append(f"{path}: {', '.join(unchecked)}: not checked")
        kinds = [each for each in types_of(part) if each != "null"]
        if not kinds or "null" in types_of(part):
            options["allow_none"] = True
        if about := {key: part[key] for key in ("description", "examples") if key in part}:
            options["metadata"] = about
        if len(kinds) > 1:
            self._notes.append(f"{path}: {' or '.join(kinds)}: not checked")
        try:
            if checks := list(_checks(part)):
                options["validate"] = checks
            call = self._typed(kind, path, part, kinds, options)
            made = call.made()
            if "default" in part and "required" not in options:
                default = {"load_default": made.deserialize(part["default"])}
                call = call._replace(options={**call.options, **default})
        except (AttributeError, TypeError, ValidationError, re.error) as error:
            raise ValueError(f"{path}: the schema is not understood: {error}") from None
        return call

    def _typed(self, kind: str, path: str, part: JsonSchema, kinds: list[str], options: dict[str, Any]) -> Call:
        match kinds:
            case ["string"]:
                low, high, named = part.get("minLength", 0), part.get("maxLength", MOST), str(part.get("format"))
                if "enum" in part or "const" in part or not (low or high < MOST or named in FORMATS):
                    return Call("AnyText", (), options)
                call = FORMATS.get(named, Call("Text", (low, high)))
                checks = [*call.options.get("validate", ()), *options.pop("validate", ())]
                about = {"metadata": {"format": named, **options.pop("metadata", {})}} if named in _PATTERNS else {}
                return Call(call.name, call.args, ({"validate": checks} if checks else {}) | about | options)
            case ["array"]:
                inner = self.field(kind, f"{path}[]", part.get("items") or {}, {})
                low, high = part.get("minItems", 0), part.get("maxItems", MOST)
                if not low and high == MOST:
                    return Call("AnyList", (inner,), options)
                return Call("ListOf", (inner, high), options | ({"low": low} if low else {}))
            case ["object"] if _members(part):
                is_closed = self._strict or part.get("additionalProperties") is False
                self._kinds[kind] += 1
                name = f"{kind}{self._kinds[kind] if self._kinds[kind] > 1 else ''}Schema"
                base = "ClosedMembers" if is_closed else "Members"
                members = self.members(kind, path, _members(part), part.get("required", ()))
                return Call("AsSent", (Class(name, base, f"What {path} has.", members),), options)
            case [("integer" | "number" | "boolean" | "object") as simple]:
                return Call(_SIMPLE[simple], (), options)
        return Call("Raw", (), options)


def _members(part: JsonSchema) -> JsonSchema:
    """The schemas of the members of an object; of one that is only required, any JSON."""
    required = part["required"] if isinstance(part.get("required"), list) else []
    return {**{name: {} for name in required}, **part.get("properties", {})}


def _checks(part: JsonSchema) -> Iterator[Call]:
    """The validators of a value, besides those of its length."""
    if "enum" in part or "const" in part:
        choices = [each for each in part.get("enum", [part.get("const")]) if each is not None]
        yield Call("validate.OneOf", (choices,), {"error": "must be one of: {choices}"})
    if "pattern" in part:
        yield Call("Search", (part["pattern"],))
    for low, high, words, is_in in (
        ("minimum", "maximum", ("at least {min}", "at most {max}"), {}),
        ("exclusiveMinimum", "exclusiveMaximum", ("more than {min}", "less than {max}"), _EXCLUSIVE),
    ):
        if said := [word for limit, word in zip((low, high), words, strict=True) if limit in part]:
            options = {**is_in, "error": f"must be {' and '.join(said)}"}
            yield Call("validate.Range", (part.get(low), part.get(high)), options)


def types_of(part: JsonSchema) -> list[str]:
    """The types that a schema names, or that its other keywords are of."""
    if kinds := part.get("type"):
        return kinds if isinstance(kinds, list) else [kinds]
    values = [part["const"]] if "const" in part else [each for each in part.get("enum", ()) if each is not None]
    if values and all(isinstance(each, str) for each in values):
        return ["string", *["null"] * (None in part.get("enum", ()))]
    return ["object"] if "properties" in part else ["array"] if "items" in part else []


def inlined(schema: Any, document: Any, path: str, notes: list[str]) -> JsonSchema:
    """A schema with what it refers to in its document in its place, and without allOf.

    What is inside itself, or beyond MOST_PARTS, is any JSON. Raises ValueError, AttributeError or TypeError for what is
    no JSON Schema.
    """
    left = [MOST_PARTS]

    def walk(part: Any, path: str, above: tuple[str, ...]) -> JsonSchema:
        left[0] -= 1
        if left[0] <= 0 or isinstance(part, bool):
            notes.extend([f"{path}: the schema is too large: any JSON is accepted from here on"] * (left[0] == 0))
            return {}
        if wrong := [each for each in types_of(part) if each not in TYPES]:
            raise ValueError(f"{path}: type: {wrong[0]!r} is none of {', '.join(TYPES)}")
        own = {key: value for key, value in part.items() if key not in ("$ref", "$schema", "$defs", "allOf")}
        inner = [walk(each, path, above) for each in part.get("allOf", ())]
        if (ref := part.get("$ref")) in above:
            notes.append(f"{path}: is inside itself: any JSON is accepted")
        elif ref:
            inner.append(walk(target(document, ref, path), path, (*above, ref)))
        is_nullable = False
        for key in ("anyOf", "oneOf"):
            others = [each for each in own.get(key, ()) if each != {"type": "null"}]
            if len(others) == 1:
                is_nullable |= len(own.pop(key)) > 1
                inner.append(walk(others[0], path, above))
        if wrong := [each for each in ("exclusiveMinimum", "exclusiveMaximum") if isinstance(own.get(each), bool)]:
            raise ValueError(f"{path}: {wrong[0]}: must be a number")
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

    return walk(schema, path, ())


def target(document: Any, ref: str, path: str) -> Any:
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

"""What a file declares: its collections and singletons, by the schema beside it or by its values."""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Set
from itertools import chain, count
from typing import Any, NamedTuple, cast
from unicodedata import normalize

from marshmallow import fields

from restkeeper import exactjson
from restkeeper.clock import YIELD_SECONDS
from restkeeper.exactjson import LARGEST_INTEGER, SMALLEST_INTEGER, JsonObject
from restkeeper.features.files.content import Content, FileError, Texts, id_kind, key_of, load_json
from restkeeper.features.files.fields import FileItem
from restkeeper.features.files.file import File
from restkeeper.features.files.items import LONGEST_ID, FileResource
from restkeeper.features.files.jsonschema import TAKEN, Call, Class, Maker, Shape, inlined, members_in, types_of
from restkeeper.resources.checks import LARGEST_PAGE, RESERVED, RESERVED_KINDS
from restkeeper.resources.declaration import METHODS
from restkeeper.resources.queried import NAME
from restkeeper.resources.resource import Resource
from restkeeper.schemas.item import ID_PATTERN
from restkeeper.schemas.prepared import fields_of
from restkeeper.storage.interface import POSITION, Index

Names = dict[str, tuple[str, str]]  # of collections, and of their items, by path
# All items, as in the file; and so many of those that refer to an item are embedded in it.
LISTS: Any = {"sort": POSITION, "page_limit": LARGEST_PAGE, "page_bytes": 4 * 1024 * 1024, "embed_limit": 1_000}
MOST_SEARCHED = 100  # fields: a function of SQLite has at most 127 arguments
_TEXTS, _NUMBERS = ("text", "plain"), ("number", "whole", "index")  # kinds of ids, the widest first
_IDS: Mapping[str, JsonObject] = {
    "text": {"type": "string", "minLength": 1, "maxLength": LONGEST_ID},
    "plain": {"type": "string", "minLength": 1, "maxLength": 64, "pattern": ID_PATTERN},
    "number": {"type": "number"},
    "whole": {"type": "integer", "minimum": SMALLEST_INTEGER, "maximum": LARGEST_INTEGER},
    "index": {"type": "integer", "minimum": 0, "maximum": LARGEST_INTEGER},
}
_ENDS = ("_embedded", "_event", "_field", "_input", "_part", "_patch", "_replacement")  # in the document, after a name
_IRREGULAR = {"people": "person", "children": "child", "men": "man", "women": "woman"}

FEW = 1000  # items: a collection with fewer of them can have references that no item has yet
MOST_ASSUMED = 12  # collections with such references to each other: a reference costs an index and some routes
MOST_REFERENCES = 100  # fields of a collection


class Declared(NamedTuple):
    """The declaration of a collection or singleton.

    The `kind` is "singleton", or the kind of ids, "client" or "client-integer". `references` has the names of fields
    that refer to items, and the collection of these. Such a name is the singular of the collection with a `suffix`, or
    else with Id or _id. The ids are in the field `id_name`, and `ids` has their kinds, see `content.id_kind`. If the
    collection `is_open`, items are accepted as they are sent. If it `is_checked`, by the schema beside the file, the
    items of the file are checked, too. `names` has the names of all fields in the file.
    """

    schema: JsonObject
    kind: str = "client"
    references: Mapping[str, str] = {}
    is_open: bool = False
    is_checked: bool = False
    suffix: str = ""
    id_name: str = "id"
    ids: Set[str] = frozenset()
    names: Set[str] = frozenset()

    @property
    def id_schema(self) -> JsonObject | None:
        """The schema of the ids, with texts first; None if all collections of this kind have such ids."""
        if self.ids <= {"plain" if self.kind == "client" else "index"}:
            return None
        ordered = [[kind for kind in kinds if kind in self.ids] for kinds in (_TEXTS, _NUMBERS)]
        parts = [_IDS[kinds[0]] for kinds in ordered if kinds]
        return parts[0] if len(parts) == 1 else {"anyOf": parts}


def declare(file: File, suffix: str = "", *, infers: bool = True) -> tuple[Mapping[str, Declared], list[str]]:
    """The declarations of the collections, by the schema beside the file or by the values; and lines about them.

    Names of fields that refer to other collections end in `suffix`, or else in Id or _id. Unless it `infers` schemas
    from values, items without a schema are accepted as they are sent. Raises FileError.
    """
    schemas, more = _schemas_beside(file)
    lines = [*file.content.unserved, *more]
    content, declared = file.content, dict[str, Declared]()
    for name, kind in content.kinds.items():
        if name in schemas:
            is_array = kind != "singleton" and "items" in schemas[name]
            declared[name] = Declared(schemas[name]["items"] if is_array else schemas[name], kind, is_checked=True)
        else:
            declared[name] = Declared(_inferred(content, name) if infers else {}, kind, is_open=not infers)
    collections = content.collections
    singles = {name: _singles(name) for name in collections}
    for name, texts in collections.items():
        references, names = dict[str, str](), set[str]()
        for field, values in _fields_of_ids(content, texts, suffix, names).items():
            single = field[: -len(suffix or "Id")].rstrip("_")
            if not (alike := [target for target in collections if single in singles[target]]):
                continue
            target = min(alike, key=single.__eq__)  # `posts`, also beside `post`
            keys = [key_of(id) if type(id := json.loads(text)) in (str, int) else "" for text in values - {b"null"}]
            missing = sum(key not in collections[target] for key in keys)
            if missing and not declared[name].is_open:
                lines.append(f"{name}.{field}: {missing} of {len(keys)} values are no ids of {target}: no relation")
                continue
            references[field] = target
            lines.append(f"{name}.{field} → {target}")
        is_small = len(texts) < FEW and len(collections) <= MOST_ASSUMED
        if declared[name].is_open and is_small:  # its next items can refer to others, too
            others = [target for target in collections if target not in references.values()]
            assumed = {f"{singular_of(target)}{suffix or 'Id'}": target for target in others}
            references |= {field: to for field, to in assumed.items() if field != content.id_name}
        declared[name] = declared[name]._replace(
            references=references, suffix=suffix, id_name=content.id_name, ids=content.ids[name], names=names
        )
    return declared, lines


def describe(declared: Mapping[str, Declared], bodies: Callable[[str], Iterable[bytes]]) -> Mapping[str, Declared]:
    """The declarations with schemas for collections whose items are accepted as they are sent.

    A schema is inferred from some items, which `bodies` returns. Nothing is required, and everything can be null.
    """
    described = dict(declared)
    for name, declaration in declared.items():
        if declaration.is_open:
            shape, ids = Shape(), {*declaration.ids}
            for body in bodies(name):
                shape.add(exactjson.decoded(body))
                if declaration.kind != "singleton":
                    ids.add(id_kind(bytes(exactjson.cut(body)[declaration.id_name])))
            schema = loosened(shape.schema())
            members = schema.get("properties", ())
            references = {field: to for field, to in declaration.references.items() if field in members}
            described[name] = declaration._replace(schema=schema, references=references, ids=ids)
    return described


def loosened(schema: Any) -> Any:
    """A schema in which nothing is required, and everything can be null."""
    if not isinstance(schema, dict):
        return schema
    loose = {key: loosened(value) for key, value in schema.items() if key not in ("required", "properties")}
    if "properties" in schema:
        loose["properties"] = {name: loosened(member) for name, member in schema["properties"].items()}
    if isinstance(kind := schema.get("type"), str):
        loose["type"] = [kind, "null"]
    return loose


def _inferred(content: Content, name: str) -> JsonObject:
    """The schema of the values of a collection or singleton."""
    shape = Shape()
    for number, (_, text) in enumerate(content.items(name)):
        shape.add(exactjson.decoded(text))
        if number % 1000 == 0:
            time.sleep(YIELD_SECONDS)
    return shape.schema()


def _fields_of_ids(content: Content, texts: Texts, suffix: str, names: set[str]) -> dict[str, set[bytes]]:
    """The fields with names of references, and the texts of their values. `names` get the names of all fields."""
    suffixes, values = (suffix,) if suffix else ("Id", "_id"), dict[str, set[bytes]]()
    for text in texts.values():
        members = exactjson.cut(text)
        names.update(members)
        for name, value in members.items():
            if name.endswith(suffixes) and name != content.id_name and len(values) < MOST_REFERENCES:
                values.setdefault(name, set()).add(bytes(value))
    return values


def _schemas_beside(file: File) -> tuple[dict[str, JsonObject], list[str]]:
    """The schemas in the file beside, by name, if there is one; and lines about them. Raises FileError."""
    lines, name = list[str](), file.schema.name
    if not file.schema_source:  # a shell makes it before `restkeeper schema` writes to it
        return {}, lines
    document = load_json(name, file.schema_source)
    try:
        schemas = document["properties"].items()
        return {collection: inlined(schema, document, collection, lines) for collection, schema in schemas}, lines
    except (AttributeError, KeyError, TypeError) as error:
        raise FileError(f"{name}: no JSON Schema of an object with properties: {error}") from None
    except ValueError as error:
        raise FileError(f"{name}: {error}") from None


def _singles(name: str) -> set[str]:
    """The names that one item of a collection can have."""
    return {name, name.removesuffix("s"), name.removesuffix("es"), singular_of(name), _IRREGULAR.get(name, name)}


def resources_of(
    declared: Mapping[str, Declared], notes: list[str], *, strict: bool = False, read_only: bool = False
) -> list[Resource]:
    """The collections and singletons, whose items follow their JSON Schemas. Raises ValueError, with the place.

    Unknown fields are stored as they are sent, unless `strict`. `notes` get a sentence for what fields cannot check.
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
    declaration = declared[name]
    id_name, is_single = declaration.id_name, declaration.kind == "singleton"
    strict = strict and not declaration.is_open
    schema = inlined(declaration.schema, declaration.schema, name, notes)
    internal, singular = names[name]
    class_name = singular.title().replace("_", "")
    members = members_in(schema)
    usable = {field: members[field] for field in members if NAME.fullmatch(field) and field not in ("id", id_name)}
    for field in [field for field in members if field not in usable and field != id_name]:
        why = f"is beside {id_name}" if field == "id" else "has other characters than ASCII letters, digits and _"
        notes.append(f"{name}.{field}: {why}: any JSON is accepted")
    calls = Maker(class_name, strict, notes).members(class_name, name, usable, schema.get("required", ()))
    _add_references(calls, members, name, names, declared)
    about = str(schema.get("description") or schema.get("title") or f"An item of {name}.")
    is_closed = strict or schema.get("additionalProperties") is False
    others = frozenset(members.keys() - usable.keys() - {id_name}) if is_closed else None
    item = cast(type[FileItem], Class(f"{class_name}Schema", "FileItem", about, calls, others).build())
    item.id_name, item.id_schema = id_name, declaration.id_schema
    inner = {name: getattr(field, "inner", field) for name, field in fields_of(item()).items() if name != "id"}
    texts = [name for name, field in inner.items() if isinstance(field, fields.String) and not is_single]
    if len(texts) > MOST_SEARCHED:
        notes.append(f"{name}: q searches the first {MOST_SEARCHED} of its {len(texts)} text fields")
    indexes = tuple(Index(name) for name, call in calls.items() if call.name == "WeakReference")
    more: Any = {"singleton": True} if is_single else {"ids": declaration.kind, **LISTS}
    return FileResource(
        *(internal, singular, item, indexes, tuple(texts[:MOST_SEARCHED])),
        path=name if name != internal else "",
        methods=("GET",) if read_only else METHODS,
        undeclared=declaration.is_open,
        checked=declaration.is_checked,
        known=frozenset(declaration.names) - calls.keys(),
        **more,
    )


def _add_references(
    calls: dict[str, Call], members: JsonObject, name: str, names: Names, declared: Mapping[str, Declared]
) -> None:
    """Replace the fields that refer to other collections by references."""
    declaration, embedded = declared[name], {*members}
    for field, target in declaration.references.items():
        to, is_integer = names[target][0], declared[target].kind == "client-integer"
        beside = field.removesuffix(declaration.suffix) if declaration.suffix else re.sub(r"_?[iI]d$", "", field)
        if beside in declared and field not in declaration.names:  # embed=children has the items that refer to this one
            beside = ""
        embed_as = {"embed_as": beside} if beside and beside not in embedded and NAME.fullmatch(beside) else {}
        if declaration.is_open and NAME.fullmatch(field) and field not in TAKEN:
            kinds = [kind for kind in types_of(members.get(field, {})) if kind != "null"]
            typed = {"metadata": {"type": kinds[0]}} if len(kinds) == 1 else {}
            calls[field] = Call("WeakReference", (to,), embed_as | typed)
        elif field in calls:
            options = {"on_delete": "null", "allow_none": True} | embed_as
            options |= {k: v for k, v in calls[field].options.items() if k in ("required", "data_key", "metadata")}
            kind, bounds = ("IntegerReference", (0, LARGEST_INTEGER)) if is_integer else ("Reference", ())
            calls[field] = Call(kind, (to, *bounds), options)
        else:
            continue
        embedded.add(beside)


def singular_of(name: str) -> str:
    """The name of one item of a collection, by the simplest rules of English; the same name if none fits."""
    for plural, singular in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("s", "")):
        if name.endswith(plural) and not name.endswith(("ss", "us", "is")) and len(name) > len(plural) + 1:
            return name.removesuffix(plural) + singular
    return name


def names_of(paths: Iterable[str]) -> Names:
    """The names of the collections with these paths, and of their items: identifiers that are all different.

    They are the path and its singular where that is possible.
    """
    reserved, names = {*map(_folded, RESERVED | RESERVED_KINDS)}, Names()
    for path in sorted(paths, key=lambda path: not NAME.fullmatch(path)):
        plain = normalize("NFKD", path).encode("ascii", "ignore").decode()  # `u` of `ü`
        plain = re.sub(r"\W+", "_", plain).strip("_") if not NAME.fullmatch(path) else path
        plain = plain if plain[:1].isalpha() else f"items_{plain}".strip("_")
        numbered = chain([plain], (f"{plain}_{number}" for number in count(2)))
        name = next(name for name in numbered if _folded(name) not in reserved and not name.lower().endswith(_ENDS))
        reserved.add(_folded(name))
        names[path] = name, name
    for path, (name, _) in names.items():
        singular = singular_of(name)
        if _folded(singular) not in reserved and not singular.lower().endswith(_ENDS):
            reserved.add(_folded(singular))
            names[path] = name, singular
    return names


def _folded(name: str) -> str:
    """A form of a name: two names with the same form would have the same component in the document."""
    return name.lower().replace("_", "")

"""A JSON file as it was read, and what its collections are declared by."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from restkeeper import exactjson
from restkeeper.clock import YIELD_SECONDS
from restkeeper.features.files.declaring import Declared, JsonSchema, inlined, singular_of
from restkeeper.features.files.inference import Shape
from restkeeper.features.files.reading import (
    Content,
    FileError,
    Stamp,
    Texts,
    id_kind,
    key_of,
    load_json,
    parse,
    stamp_of,
)

SCHEMA = ".schema.json"  # what may be beside a JSON file
EDITED = ".edited"  # what a write has kept beside it
_IRREGULAR = {"people": "person", "children": "child", "men": "man", "women": "woman"}

FEW = 1000  # items of a collection that can have references which none of them has yet
MOST_ASSUMED = 12  # collections that can refer to each other so: each reference is an index, and some routes
MOST_REFERENCES = 100  # fields of a collection

Look = tuple[Stamp, Stamp]  # of the data, and of the schema


class File(NamedTuple):
    """What was read after a `look` at two files: the `data`, and its `schema`."""

    data: Path
    schema: Path
    look: Look
    schema_source: bytes
    content: Content


def read_file(path: Path, id_name: str = "id") -> File:
    """The file, and the schema beside it. Raises FileError and OSError."""
    if not id_name or not id_name.isprintable() or {'"', "\\"} & {*id_name}:
        raise FileError(f'--id {id_name!r}: must be a name of printable characters, without " and \\')
    schema = path.with_suffix(SCHEMA)
    look = stamp_of(path), stamp_of(schema)
    source = schema.read_bytes() if schema.is_file() else b""
    return File(path, schema, look, source, parse(path.read_bytes(), path.name, id_name))


def declare(file: File, suffix: str = "", *, infers: bool = True) -> tuple[Mapping[str, Declared], list[str]]:
    """What the collections are declared by: the schema beside, or else the values; and lines about it.

    Names of fields that refer to other collections end in `suffix`, or else in Id or _id. Unless it `infers` schemas of
    values, items without a schema are accepted as they are sent. Raises FileError.
    """
    parts, more = _schemas_beside(file)
    lines = [*file.content.left, *more]
    content, declared = file.content, dict[str, Declared]()
    for name, kind in content.kinds.items():
        if name in parts:
            is_array = kind != "singleton" and "items" in parts[name]
            declared[name] = Declared(parts[name]["items"] if is_array else parts[name], kind, is_checked=True)
        else:
            declared[name] = Declared(_inferred(content, name) if infers else {}, kind, is_open=not infers)
    collections = content.collections
    singles = {name: _singles(name) for name in collections}
    for name, texts in collections.items():
        references, names = dict[str, str](), set[str]()
        for field, values in _fields_of_ids(content, texts, suffix, names).items():
            single = field[: -len(suffix or "Id")].rstrip("_")
            if not (alike := [each for each in collections if single in singles[each]]):
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
            others = [each for each in collections if each not in references.values()]
            assumed = {f"{singular_of(each)}{suffix or 'Id'}": each for each in others}
            references |= {field: to for field, to in assumed.items() if field != content.id_name}
        declared[name] = declared[name]._replace(
            references=references, suffix=suffix, id_name=content.id_name, ids=content.ids[name], names=names
        )
    return declared, lines


def describe(declared: Mapping[str, Declared], bodies: Callable[[str], Iterable[bytes]]) -> Mapping[str, Declared]:
    """What describes collections whose items are accepted as they are sent: the schema that most of them have.

    Nothing is required, and everything can be null. `bodies` returns some items of a collection.
    """
    found = dict(declared)
    for name, each in declared.items():
        if each.is_open:
            shape, ids = Shape(), {*each.ids}
            for body in bodies(name):
                shape.add(exactjson.decoded(body))
                if each.kind != "singleton":
                    ids.add(id_kind(bytes(exactjson.cut(body)[each.id_name])))
            schema = loosened(shape.schema())
            known = {field: to for field, to in each.references.items() if field in schema.get("properties", ())}
            found[name] = each._replace(schema=schema, references=known, ids=ids)
    return found


def loosened(schema: Any) -> Any:
    """A schema in which nothing is required, and everything can be null."""
    if not isinstance(schema, dict):
        return schema
    loose = {key: loosened(value) for key, value in schema.items() if key not in ("required", "properties")}
    if "properties" in schema:
        loose["properties"] = {name: loosened(part) for name, part in schema["properties"].items()}
    if isinstance(kind := schema.get("type"), str):
        loose["type"] = [kind, "null"]
    return loose


def _inferred(content: Content, name: str) -> JsonSchema:
    """The schema of the values of a collection or singleton."""
    shape = Shape()
    for number, (_, text) in enumerate(content.items(name)):
        shape.add(exactjson.decoded(text))
        if number % 1000 == 0:
            time.sleep(YIELD_SECONDS)
    return shape.schema()


def _fields_of_ids(content: Content, texts: Texts, suffix: str, names: set[str]) -> dict[str, set[bytes]]:
    """The fields whose names are those of ids of others, with the texts of their values. `names` get those of all."""
    suffixes, found = (suffix,) if suffix else ("Id", "_id"), dict[str, set[bytes]]()
    for text in texts.values():
        members = exactjson.cut(text)
        names.update(members)
        for name, value in members.items():
            if name.endswith(suffixes) and name != content.id_name and len(found) < MOST_REFERENCES:
                found.setdefault(name, set()).add(bytes(value))
    return found


def _schemas_beside(file: File) -> tuple[dict[str, JsonSchema], list[str]]:
    """The schemas in the file beside, by name, if there is one; and lines about them. Raises FileError."""
    lines, name = list[str](), file.schema.name
    if not file.schema_source:  # a shell makes it before `restkeeper schema` writes to it
        return {}, lines
    document = load_json(name, file.schema_source)
    try:
        found = document["properties"].items()
        return {each: inlined(part, document, each, lines) for each, part in found}, lines
    except (AttributeError, KeyError, TypeError) as error:
        raise FileError(f"{name}: no JSON Schema of an object with properties: {error}") from None
    except ValueError as error:
        raise FileError(f"{name}: {error}") from None


def _singles(name: str) -> set[str]:
    """What one item of a collection can be called."""
    return {name, name.removesuffix("s"), name.removesuffix("es"), singular_of(name), _IRREGULAR.get(name, name)}

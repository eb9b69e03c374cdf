"""A JSON file, or an OpenAPI document with its data, as it was read; and what its collections are declared by."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from restkeeper.clock import YIELD_SECONDS
from restkeeper.errors import InvalidJson
from restkeeper.features.files.declaring import Declared, JsonSchema, inlined, singular_of
from restkeeper.features.files.inference import Shape
from restkeeper.features.files.openapi import collections_of, load
from restkeeper.features.files.reading import (
    Content,
    FileError,
    Stamp,
    load_json,
    parse,
    progress,
    read,
    stamp_of,
    value_of,
)

SCHEMA, DATA = ".schema.json", ".data.json"  # what may be beside a JSON file, and beside an OpenAPI document
_IRREGULAR = {"people": "person", "children": "child", "men": "man", "women": "woman"}

Look = tuple[Stamp, Stamp]  # of the data, and of the schema


class File(NamedTuple):
    """What was read after a `look` at two files: the `data`, and its `schema`, which is the OpenAPI document if any.

    Such a document has `declared` the collections, and `lines` are what it does not say, or is not served.
    """

    data: Path
    schema: Path
    look: Look
    schema_source: bytes
    content: Content
    declared: Mapping[str, Declared]
    lines: list[str]


def read_file(path: Path) -> File:
    """The file, or the document and the file beside it. Raises FileError and OSError."""
    stamps = {each: stamp_of(each) for each in (path, path.with_suffix(SCHEMA), path.with_suffix(DATA))}
    declared, lines = dict[str, Declared](), list[str]()
    data, schema = path, path.with_suffix(SCHEMA)
    try:
        if (document := load(path, path.read_bytes())) is not None:
            data, schema = path.with_suffix(DATA), path
            declared = collections_of(document, lines)
    except ValueError as error:
        raise FileError(f"{path.name}: {error}") from None
    source = schema.read_bytes() if schema.is_file() else b""
    content = read_data(data, {name: each.kind for name, each in declared.items()})
    for name, texts in content.collections.items():
        if declared and texts and name not in declared:
            lines.append(f"{name}: not described, so its {len(texts)} items stay in {data.name}")
    return File(data, schema, (stamps[data], stamps[schema]), source, content, declared, lines)


def read_data(data: Path, kinds: Mapping[str, str]) -> Content:
    """What a file has; of a document, whose collections are of these kinds, it may be missing. Raises FileError."""
    content = read(data) if data.exists() or not kinds else parse(b"{\n}\n", data.name)
    if missing := [name for name in kinds if name not in content.members]:
        content = parse(content.with_arrays(missing), data.name)
    found = dict(content.kinds())
    for name, kind in kinds.items():
        if content.members[name] and found[name] != kind:
            wanted = "texts" if kind == "client" else "integers"
            raise FileError(f"{data.name}: {name!r} must be an array of items whose ids are {wanted}")
    return content


def declare(file: File) -> tuple[Mapping[str, Declared], list[str]]:
    """What the collections are declared by: the document, or the schema beside, or else the values; and lines about it.

    Raises FileError.
    """
    if file.declared:
        return file.declared, file.lines
    parts, lines = _schemas_beside(file)
    content, declared = file.content, dict[str, Declared]()
    referring = dict[tuple[str, str], set[Any]]()  # the values of fields that may refer to others
    with progress("reading", sum(map(len, content.collections.values()))) as bar:
        for name, kind in content.kinds():
            if name[0] == "$":
                continue
            member, shape = content.members[name], Shape()
            texts: Mapping[Any, Any] = member if isinstance(member, dict) else {name: member}
            for number, (id, text) in enumerate(texts.items(), start=1):
                try:
                    value = value_of(text)
                except InvalidJson as problem:
                    raise content.fault(name, id, problem.detail) from None
                if name not in parts:
                    shape.add(value)
                for key in value if isinstance(member, dict) else ():
                    if key.endswith(("Id", "_id")):
                        ids, other = referring.setdefault((name, key), set()), value[key]
                        ids.update([] if other is None else [other if type(other) in (str, int) else None])
                if number % 1000 == 0:
                    bar.update(1000)
                    time.sleep(YIELD_SECONDS)
            schema = parts.get(name) or shape.schema()
            schema = schema.get("items", {}) if name in parts and isinstance(member, dict) else schema
            declared[name] = Declared(schema, kind)
    for (name, field), ids in referring.items():
        single = field[:-2].rstrip("_")
        if alike := [each for each in content.collections if single in _singles(each)]:
            target = min(alike, key=single.__eq__)  # `posts`, also beside `post`
            if missing := sum(id not in content.collections[target] for id in ids):
                lines.append(f"{name}.{field}: {missing} of {len(ids)} values are no ids of {target}: no relation")
            else:
                former = declared[name]
                declared[name] = former._replace(references={**former.references, field: target})
                lines.append(f"{name}.{field} → {target}")
    return declared, lines


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

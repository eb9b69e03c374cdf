"""The collections that an OpenAPI document describes, by paths such as `/things` and `/things/{id}`."""

import json
import re
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import orjson

from restkeeper.features.files.declaring import Declared, JsonSchema, inlined, target, types_of
from restkeeper.features.files.reading import FileError, fault_at, unserved
from restkeeper.resources.resource import METHODS
from restkeeper.web import exactjson

YAML = (".yaml", ".yml")
MOST_ALIASED = 1_000_000  # characters that the aliases of YAML stand for
MOST_DEEP = 200  # levels, as `exactjson.loads`
_OPERATIONS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_SERVED = ("", "/api/v1")  # the paths that collections are below
_THINGS = re.compile(r"((?:/[^/{}]+)*)/([^/{}]+)")  # what is before it, and the name


def load(file: Path, data: bytes) -> Any:
    """The value of an OpenAPI document, in YAML or JSON; None for the data of another JSON file. Raises FileError."""
    if file.suffix.lower() in YAML:
        data = _as_json(file.name, data)
    else:
        try:
            if bytes(exactjson.cut(data).get("openapi", b""))[:1] != b'"':
                return None
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None  # no object
    return json.loads(data, parse_float=Decimal)


def _as_json(name: str, data: bytes) -> bytes:
    """The text of YAML in JSON. Raises FileError, also for what is too deep, or too much with its aliases."""
    if not find_spec("yaml"):
        raise FileError(f"{name}: YAML needs another package: pip install 'restkeeper[yaml]'")
    yaml = import_module("yaml")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    sizes, around, aliased = dict[str | None, int](), [0], 0  # of what has an anchor, and of what is around; characters
    anchors, wrong = list[str | None](), ""
    try:
        for event in yaml.parse(data, Loader=loader):
            anchor, size = getattr(event, "anchor", None), 1 + len(getattr(event, "value", ""))
            if isinstance(event, yaml.CollectionStartEvent):
                anchors.append(anchor)
                around.append(1)
                wrong = f"nesting is deeper than {MOST_DEEP} levels" if len(around) > MOST_DEEP else ""
            elif isinstance(event, yaml.CollectionEndEvent | yaml.NodeEvent):
                if isinstance(event, yaml.CollectionEndEvent):
                    anchor, size = anchors.pop(), around.pop()
                elif isinstance(event, yaml.AliasEvent):
                    size = sizes.get(anchor, 0)
                    aliased += size
                    wrong = f"aliases stand for more than {MOST_ALIASED} characters" if aliased > MOST_ALIASED else ""
                    wrong = f"*{anchor} is inside what it stands for" if anchor in anchors else wrong
                sizes[anchor] = size
                around[-1] += size
            if wrong:
                raise yaml.MarkedYAMLError(problem=wrong, problem_mark=event.start_mark)
        return orjson.dumps(yaml.load(data, Loader=loader), option=orjson.OPT_NON_STR_KEYS)  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise FileError(f"{name}:{mark.line + 1}:{mark.column + 1}: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        raise fault_at(data, name, error.position, error.reason) from None
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # such as of "!!bool x", and of 2026-13-01
        raise FileError(f"{name}: {' '.join(str(error).split())}") from None


def collections_of(document: Any, notes: list[str]) -> dict[str, Declared]:
    """The collections of a document, by name; `notes` gets a sentence for each operation that is not served.

    Raises ValueError for a document that has none, or is none of OpenAPI 3.
    """
    if not isinstance(document, dict) or not str(document.get("openapi")).startswith("3"):
        raise ValueError("is no document of OpenAPI 3")
    try:
        found = _found(document, notes)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"is no document of OpenAPI 3: {error}") from None
    if not found:
        raise ValueError("describes no collection: paths such as /things and /things/{id}, with their schemas")
    return found


def _found(document: Any, notes: list[str]) -> dict[str, Declared]:
    paths: dict[str, Any] = document.get("paths", {})
    found: dict[str, Declared] = {}
    served: set[tuple[str, str]] = set()
    for path, many in paths.items():
        named = _THINGS.fullmatch(path)
        one = next((each for each in paths if re.fullmatch(rf"{re.escape(path)}/{{[^/]+}}", each)), "")
        if not named or not one or unserved(named[2]):
            continue
        if named[2] not in found:
            prefix = named[1] if named[1] not in _SERVED else ""
            found[named[2]] = _described(document, named[2], many, paths[one], notes)._replace(prefix=prefix)
        elif named[1] not in _SERVED:
            continue
        served |= {(path, "get"), (path, "post"), *((one, method.lower()) for method in METHODS if method != "POST")}
    for path, item in paths.items():
        left = [method.upper() for method in _OPERATIONS if method in item and (path, method) not in served]
        if left and path != "/":
            notes.append(f"{', '.join(left)} {path}: not served")
    return found


def _described(document: Any, name: str, many: Any, one: Any, notes: list[str]) -> Declared:
    """A collection by the operations of its two paths."""
    sent = _schema(document, many.get("post", {}).get("requestBody", {}))
    listed = inlined(_schema(document, _success(many.get("get", {}))), document, name, [])
    answers = [_success(item.get(method, {})) for item, method in ((one, "get"), (many, "post"), (one, "put"))]
    whole = [_schema(document, each) for each in answers]
    found = (each for each in whole if "properties" in inlined(each, document, name, []))
    schema = inlined({"allOf": [next(found, listed.get("items", {})), sent]}, document, name, notes)
    if sent:  # what only answers have is nothing that must be sent
        schema |= {"required": inlined(sent, document, name, []).get("required", [])}
    if listed and "array" not in types_of(listed):
        notes.append(f"{name}: a list is an array of items here, and none in the document")
    id = schema.get("properties", {}).get("id")
    if id is None:
        notes.append(f"{name}: items have an id here, and none in the document")
    is_integer = "integer" in types_of(inlined(id or {}, document, name, []))
    methods = {method for method in METHODS if method.lower() in (many if method == "POST" else one)} | {"GET"}
    kind = "client-integer" if is_integer else "client"
    return Declared(schema, kind, methods=[each for each in METHODS if each in methods], is_checked=True)


def _success(operation: Any) -> Any:
    """The first successful response of an operation."""
    return next((each for status, each in operation.get("responses", {}).items() if status.startswith("2")), {})


def _schema(document: Any, content: Any) -> JsonSchema:
    """The schema of a request's body, or of a response, in JSON; an empty one if there is none."""
    if "$ref" in content:
        content = target(document, content["$ref"], "paths")
    types = content.get("content", {})
    return next((each["schema"] for name, each in types.items() if "json" in name and "schema" in each), {})

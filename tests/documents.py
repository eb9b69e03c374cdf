"""An OpenAPI document of the service in the form that validators of single responses need."""

from typing import Any

from restkeeper.web.operations import JsonSchema


def unfolded(document: JsonSchema) -> Any:
    """The document with each operation at each of its addresses, and with what parameters make of its responses.

    A response by default is there for each status that it has.
    """
    paths: JsonSchema = {}
    for path, item in document["paths"].items():
        for server in item.get("servers", document["servers"]):
            at = server["url"].rstrip("/")
            paths[at + path] = {
                name: _with_variants(part, document) for name, part in item.items() if name != "servers"
            }
    return {**document, "servers": [{"url": "/"}], "paths": paths}


def _with_variants(operation: Any, document: JsonSchema) -> Any:
    if "responses" not in operation:  # the parameters of a path
        return operation
    own = {status: each for status, each in operation["responses"].items() if status != "default"}
    others = _unfolded_default(resolved(document, operation["responses"]["default"]))
    is_partial = "fields" in parameters(document, operation)
    responses = {
        status: {
            **each,
            "content": {of: _media(part, document, is_partial) for of, part in each["content"].items()}
            | each.get("x-content", {}),
        }
        for status, each in own.items()
        if "content" in each  # else it is a reference, or has no body
    }
    return {**operation, "responses": others | own | responses}


def _unfolded_default(response: Any) -> dict[str, Any]:
    """A response for each status of the problems in one that stands for several."""
    ((media_type, part),) = response["content"].items()
    found: dict[str, Any] = {}
    for name, each in part["examples"].items():
        found.setdefault(str(each["value"]["status"]), {})[name] = each
    return {
        status: {**response, "content": {media_type: {**part, "examples": examples}}}
        for status, examples in found.items()
    }


def _media(part: JsonSchema, document: JsonSchema, is_partial: bool) -> JsonSchema:
    schema, variants = part["schema"], part.get("x-with", {})
    if not is_partial:
        return part
    item = schema.get("items", schema)
    whole = resolved(document, item)
    embedded = resolved(document, variants.get("embed", {})).get("properties", {})
    some = {**whole, "properties": {**whole["properties"], **embedded}, "required": []}
    any_of = {"anyOf": [item, some, *(variants[name] for name in variants if name != "embed")]}
    return {**part, "schema": {**schema, "items": any_of} if "items" in schema else any_of}


def resolved(document: JsonSchema, part: Any) -> Any:
    """What a part or a reference is."""
    _, section, name = part["$ref"].rsplit("/", 2) if "$ref" in part else ("", "", "")
    return document["components"][section][name] if name else part


def parameters(document: JsonSchema, operation: Any) -> dict[str, Any]:
    """The parameters of an operation, by name."""
    return {each["name"]: each for each in (resolved(document, part) for part in operation["parameters"])}

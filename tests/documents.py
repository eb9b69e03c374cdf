"""An OpenAPI document of the service in the form that validators of single responses need."""

from typing import Any

from restkeeper.web.operations import JsonSchema


def unfolded(document: JsonSchema) -> Any:
    """The document with each operation at each of its addresses, and with what parameters make of its responses."""
    paths: JsonSchema = {}
    for path, item in document["paths"].items():
        for server in item.get("servers", document["servers"]):
            at = server["url"].rstrip("/")
            paths[at + path] = {name: _with_variants(part) for name, part in item.items() if name != "servers"}
    return {**document, "servers": [{"url": "/"}], "paths": paths}


def _with_variants(operation: Any) -> Any:
    if "responses" not in operation:  # the parameters of a path
        return operation
    responses = {
        status: {**each, "content": {of: _media(part) for of, part in each["content"].items()}}
        for status, each in operation["responses"].items()
        if "content" in each  # else it is a reference, or has no body
    }
    return {**operation, "responses": operation["responses"] | responses}


def _media(part: JsonSchema) -> JsonSchema:
    schema, variants = part["schema"], list(part.get("x-with", {}).values())
    if not variants:
        return part
    if "items" in schema:
        return {**part, "schema": {**schema, "items": {"anyOf": [schema["items"], *variants]}}}
    return {**part, "schema": {"anyOf": [schema, *variants]}}

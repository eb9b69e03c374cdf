"""An OpenAPI document of the service in the form that validators of single responses need."""

from typing import Any

from restkeeper.web.operations import JsonSchema


def unfolded(document: JsonSchema) -> Any:
    """The document with each operation at each of its addresses, and with what parameters make of its responses."""
    paths: JsonSchema = {}
    for path, item in document["paths"].items():
        for server in item.get("servers", document["servers"]):
            at = server["url"].rstrip("/")
            paths[at + path] = {name: part for name, part in item.items() if name != "servers"}
    responses = {name: _with_variants(each) for name, each in document["components"]["responses"].items()}
    return {
        **document,
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {**document["components"], "responses": responses},
    }


def _with_variants(response: JsonSchema) -> JsonSchema:
    return (
        {**response, "content": {of: _media(part) for of, part in response["content"].items()}}
        if "content" in response
        else response
    )


def _media(part: JsonSchema) -> JsonSchema:
    schema, variants = part["schema"], list(part.get("x-with", {}).values())
    if not variants:
        return part
    if "items" in schema:
        return {**part, "schema": {**schema, "items": {"anyOf": [schema["items"], *variants]}}}
    return {**part, "schema": {"anyOf": [schema, *variants]}}

"""Files as people have them: each starts, and its lists have what stands in it."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest

from tests.json_file import client_of
from tests.json_server.shapes import SHAPES


def is_collection(member: Any) -> bool:
    """Whether it is an array of objects alone."""
    return isinstance(member, list) and all(isinstance(item, dict) for item in member)


def content_of(text: str | bytes) -> dict[str, Any]:
    """What a file has, by names; of items with the same id the first, and no value that is none of an item."""
    content = {name: each for name, each in json.loads(text).items() if name[0] != "$"}
    for name, member in content.items():
        if is_collection(member):
            ids = [str(item.get("id", f"none {number}")) for number, item in enumerate(member)]
            content[name] = [item for number, item in enumerate(member) if ids.index(ids[number]) == number]
        elif not isinstance(member, dict | list):
            content[name] = None
    return {name: member for name, member in content.items() if member is not None}


def test_every_shape_is_served(tmp_path: Path) -> None:
    """With its items in their order; those without an id get one."""
    assert len(SHAPES) >= 38
    for shape, text in SHAPES.items():
        client, content = client_of(tmp_path, text), content_of(text)
        for name, member in content.items():
            response = client.get(f"/{quote(name)}")
            assert response.status_code == 200, (shape, name)
            found = response.get_json()
            if is_collection(member):
                member = [{"id": item["id"], **own} for item, own in zip(found, member, strict=True)]
            assert found == member, (shape, name)


IDS = {
    "[1, 2]": {"type": "integer", "minimum": 0},
    '["a-1", "b"]': {"type": "string", "maxLength": 64},
    "[-1, 2]": {"type": "integer"},
    "[1.5, 2]": {"type": "number"},
    '["a b", "x@y.z"]': {"type": "string", "maxLength": 2000},
    '["a b", "x@y.z", 1.5, -1]': {"anyOf": [{"type": "string"}, {"type": "number"}]},
    '[1, "a"]': {"anyOf": [{"type": "string"}, {"type": "integer"}]},
}


@pytest.mark.parametrize("ids", IDS)
def test_the_document_describes_the_ids(tmp_path: Path, ids: str) -> None:
    """Those that the file has, also in paths, and one of another kind that was created."""
    client = client_of(tmp_path, json.dumps({"cars": [{"id": id} for id in json.loads(ids)]}))
    components = client.get("/openapi.json").json["components"]
    described = components["schemas"]["Car"]["properties"]["id"]
    parts = IDS[ids].get("anyOf", [IDS[ids]])
    for part, expected in zip(described.get("anyOf", [described]), parts, strict=True):
        assert part | expected == part
    assert components["parameters"]["CarId"]["schema"]["type"] == parts[0]["type"]
    created = client.post("/cars", json={"id": "c/d"} if parts[0]["type"] != "string" else {"id": -7}).json
    created_schema = client.get("/openapi.json").json["components"]["schemas"]["Car"]
    jsonschema.validate(created, created_schema)
    assert jsonschema.Draft202012Validator(components["schemas"]["Car"]).is_valid(created) is (
        "number" in str(parts[1:])
    )


def test_the_document_describes_every_shape(tmp_path: Path) -> None:
    """Its schemas accept what is served, its parameters the ids in paths, and its examples fit.

    No operation has a parameter twice, also where a field is called as one, and no component is unused.
    """
    for shape, text in SHAPES.items():
        client = client_of(tmp_path, text)
        document = client.get("/_/openapi.json").json
        require_sound(document, shape)
        for name, path in [(name, document["paths"][f"/{quote(name)}"]) for name in content_of(text)]:
            schema = path["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            whole = {**schema, "components": document["components"]}
            jsonschema.validate(served := client.get(f"/{quote(name)}").json, whole)
            if isinstance(served, list) and not is_collection(served):
                continue
            item = document["components"]["schemas"][schema.get("items", schema)["$ref"].rpartition("/")[2]]
            for example in item.get("examples", []):
                jsonschema.validate(example, {**item, "components": document["components"]})
            if isinstance(served, list):
                one = document["paths"][f"/{quote(name)}/{{id}}"]["parameters"][0]
                one = document["components"]["parameters"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one
                for item in served:
                    id = item["id"] if one["schema"]["type"] != "string" else str(item["id"])
                    jsonschema.validate(id, one["schema"])


def require_sound(document: Any, shape: str) -> None:
    components, whole = document["components"], json.dumps(document)
    for section in ("schemas", "parameters", "responses", "headers"):
        unused = [name for name in components[section] if f'"#/components/{section}/{name}"' not in whole]
        assert not unused, (shape, unused)
    for path, item in document["paths"].items():
        for method in {"get", "post", "put", "patch", "delete"} & item.keys():
            given = [*item.get("parameters", []), *item[method]["parameters"]]
            found = [components["parameters"].get(each.get("$ref", "").rpartition("/")[2], each) for each in given]
            names = [(each["in"], each["name"]) for each in found]
            assert len(names) == len({*names}), (shape, path, method)

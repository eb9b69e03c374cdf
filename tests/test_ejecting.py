"""A file's collections become the modules of a service; an OpenAPI document becomes collections."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from restkeeper import LiveServer
from restkeeper.cli.main import main
from restkeeper.cli.new import write_service
from restkeeper.features.files.declaring import resource_of
from restkeeper.features.files.eject import eject
from restkeeper.features.files.inference import Shape
from restkeeper.features.files.openapi import collections_of, load
from restkeeper.web import exactjson
from tests.live import ROOT

DB: dict[str, Any] = {
    "posts": [
        {"id": 2, "title": "Other", "views": 1.50, "class": "x", "author": {"zip-code": "1", "at": {"x": 1}}},
        {"id": 9007199254740993, "version": 3, "title": "One", "tags": ["a"], "Meta": None, "first-name": "Ada"},
    ],
    "comments": [
        {"id": "a1", "postId": 2, "body": "x" * 20_000, "made": "2026-01-31T12:00:00Z"},
        {
            "id": "b",
            "postId": 9007199254740993,
            "body": "y",
            "fields": {"text": True, "__v": 1},
            "a_b": {"c": 1},
            "aB": {"c": "x"},
            "made": "2026-01-31T12:00:00Z",
        },
    ],
    "profile": {"name": "typicode", "site": "https://example.org", "mail": "a@example.org", "day": "2026-01-31"},
}
REFERENCES = {"comments": {"postId": "posts"}}


def shape_of(items: list[Any]) -> Shape:
    """The shape of some items."""
    shape = Shape()
    for each in items:
        shape.add(exactjson.loads(json.dumps(each)))
    return shape


def test_the_service_of_a_file_returns_what_the_file_has(tmp_path: Path) -> None:
    """Its tests pass, which are about that."""
    items = {name: each if isinstance(each, list) else [each] for name, each in DB.items()}
    resources = [
        resource_of(
            name,
            shape_of(each).schema(),
            ids="client-integer" if isinstance(each[0].get("id"), int) else "client",
            singleton=isinstance(DB[name], dict),
            references=REFERENCES.get(name),
            strict=name == "profile",
        )
        for name, each in items.items()
    ]
    texts = {name: [json.dumps(each).encode() for each in found] for name, found in items.items()}
    write_service(tmp_path / "blog", None, lambda folder: eject(folder, resources, texts))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "restkeeper.pytest_plugin", "-p", "no:cacheprovider"],
        cwd=tmp_path / "blog",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


PETS: dict[str, Any] = {
    "openapi": "3.0.3",
    "paths": {
        "/v2/pets": {
            "get": {"responses": {"200": {"content": {"application/json": {"schema": {"type": "array"}}}}}},
            "post": {
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/NewPet"}}}},
                "responses": {"201": {"$ref": "#/components/responses/Pet"}},
            },
        },
        "/v2/pets/{petId}": {
            "get": {"responses": {"200": {"$ref": "#/components/responses/Pet"}}},
            "delete": {"responses": {"204": {}}},
        },
        "/v2/pets/{petId}/image": {"post": {"responses": {"200": {}}}},
        "/login": {"get": {"responses": {"200": {}}}, "post": {}},
    },
    "components": {
        "responses": {"Pet": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}},
        "schemas": {
            "NewPet": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 20},
                    "tag": {"type": "string", "nullable": True},
                },
                "required": ["name"],
            },
            "Pet": {
                "allOf": [
                    {"$ref": "#/components/schemas/NewPet"},
                    {
                        "properties": {
                            "id": {"type": "integer"},
                            "parent": {"$ref": "#/components/schemas/Pet"},
                            "born": {"type": "string", "format": "date"},
                        }
                    },
                ],
                "required": ["id", "born"],
            },
        },
    },
}


def test_the_collections_of_an_openapi_document() -> None:
    """Their schemas without references, what must be sent, and their methods; the rest is named."""
    notes: list[str] = []
    ((name, pets),) = collections_of(PETS, notes).items()
    assert (name, pets.ids, pets.methods) == ("pets", "client-integer", ("GET", "POST", "DELETE"))
    assert pets.schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "tag": {"type": ["string", "null"]},
            "id": {"type": "integer"},
            "parent": {},
            "born": {"type": "string", "format": "date"},
        },
        "required": ["name"],
    }
    assert notes == [
        "pets.parent: is inside itself: any JSON is accepted",
        "/v2/pets: is at /pets",
        "POST /v2/pets/{petId}/image: not served",
        "GET, POST /login: not served",
    ]


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"swagger": "2.0"}, "is no document of OpenAPI 3"),
        ({"openapi": "3.1.0", "paths": {"/a": [], "/a/{id}": []}}, "is no document of OpenAPI 3: "),
        ({"openapi": "3.1.0", "paths": {"/things": {}}}, "describes no collection"),
    ],
)
def test_a_document_without_collections_is_refused(document: Any, error: str) -> None:
    """With what it needs."""
    with pytest.raises(ValueError, match=error):
        collections_of(document, [])


def test_yaml_is_read_as_json(tmp_path: Path) -> None:
    """Numbers as names are texts, as in JSON."""
    file = tmp_path / "api.yaml"
    file.write_text('openapi: 3.0.3\npaths:\n  /a:\n    get: {responses: {200: {description: "x", at: 2026-01-31}}}\n')
    responses = {"200": {"description": "x", "at": "2026-01-31"}}
    assert load(file, file.read_bytes()) == {"openapi": "3.0.3", "paths": {"/a": {"get": {"responses": responses}}}}
    file.write_text("a: [")
    with pytest.raises(ValueError, match="api.yaml: "):
        load(file, file.read_bytes())
    other = tmp_path / "db.json"
    for text, value in (('{"a": [], "openapi": "3.1"}', {"a": [], "openapi": "3.1"}), ('{"a": []}', None), ("[", None)):
        other.write_text(text)
        assert load(other, other.read_bytes()) == value


def test_the_schema_beside_a_file_can_refer_to_its_parts(tmp_path: Path) -> None:
    """Of the items of a collection, too; what is no schema is named with its file."""
    (tmp_path / "db.json").write_text(json.dumps({"posts": [{"id": 1}]}))
    beside = tmp_path / "db.schema.json"
    document: Any = {"properties": {"posts": {"type": "array", "items": {"$ref": "#/$defs/post"}}}}
    document["$defs"] = {"post": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}}
    beside.write_text(json.dumps(document))
    with LiveServer(tmp_path / "db.json", in_process=True) as server, server.space() as space:
        assert space.client.put("/posts/1", json={"name": "long"}).status_code == 422
    document["$defs"] = {}
    beside.write_text(json.dumps(document))
    run = CliRunner().invoke(main, ["eject", str(tmp_path / "db.json"), str(tmp_path / "shop")])
    assert (run.exit_code, run.output) == (
        1,
        "Error: db.schema.json: posts[]: $ref: '#/$defs/post' is not in this document\n",
    )

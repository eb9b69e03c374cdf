"""Files as people have them: each starts, and its lists have what stands in it."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flask.testing import FlaskClient

from restkeeper import Config, create_app
from restkeeper.features.files import FileOptions, application_of
from tests.json_server.shapes import SHAPES


def client_of(folder: Path, text: str | bytes) -> FlaskClient:
    """The service of a file with this text."""
    (file := folder / "db.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    return application_of(create_app, file, FileOptions(), config=Config()).test_client()


def content_of(text: str | bytes) -> dict[str, Any]:
    """What a file has, by names; of items with the same id the first, and no value that is none of an item."""
    content = {name: each for name, each in json.loads(text).items() if name[0] != "$"}
    for name, member in content.items():
        if isinstance(member, list) and all(isinstance(item, dict) for item in member):
            ids = [str(item.get("id", f"none {number}")) for number, item in enumerate(member)]
            content[name] = [item for number, item in enumerate(member) if ids.index(ids[number]) == number]
        elif not isinstance(member, dict):
            content[name] = None
    return {name: member for name, member in content.items() if member is not None}


def test_every_shape_is_served(tmp_path: Path) -> None:
    """With its items in their order; those without an id get one."""
    assert len(SHAPES) >= 40
    for shape, text in SHAPES.items():
        client, content = client_of(tmp_path, text), content_of(text)
        for name, member in content.items():
            response = client.get(f"/{quote(name)}")
            assert response.status_code == 200, (shape, name)
            found = response.get_json()
            if isinstance(member, list):
                member = [{"id": item["id"], **own} for item, own in zip(found, member, strict=True)]
            assert found == member, (shape, name)

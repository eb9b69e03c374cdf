"""The service of a JSON file, in the process of a test."""

import json
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient

from restkeeper import Config, create_app
from restkeeper.features.files import FileOptions, application_of

BLOG: dict[str, Any] = {
    "posts": [{"id": 1, "title": "Hello", "views": 100}, {"id": 2, "title": "World", "views": 200}],
    "comments": [{"id": "a1", "text": "Nice", "postId": 1}],
    "profile": {"name": "typicode"},
}


def client_of(folder: Path, data: Any, config: Config | None = None, **options: Any) -> FlaskClient:
    """The service of db.json in this folder, with this data or text, and with options of the command."""
    text = data if isinstance(data, str | bytes) else json.dumps(data)
    (file := folder / "db.json").write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogateescape"))
    return application_of(create_app, file, FileOptions(**options), config=config or Config()).test_client()

"""The service of a JSON file, in the process of a test or in one of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flask.testing import FlaskClient

from restkeeper import Config, create_app
from restkeeper.features.files import FileOptions, application_of
from tests.live import ROOT, HttpResponse, send
from tests.ports import free_ports
from tests.waiting import SECONDS, until

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


class Server:
    """`restkeeper FILE`, or another program, in a process of its own; `lines` is what it has printed."""

    def __init__(
        self,
        file: Path,
        *options: str,
        program: Sequence[str] = (sys.executable, "-P", "-m", "restkeeper"),
        environ: Mapping[str, str] = MappingProxyType({"PYTHONPATH": str(ROOT)}),
    ) -> None:
        (self.port,) = free_ports(1)
        self.log = file.with_suffix(".log")
        # With NODE_ENV, json-server 1 does not watch the file.
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*program, str(file), "--port", str(self.port), "--host", "127.0.0.1", *options],
                cwd=file.parent,
                env={"PATH": os.environ["PATH"], "NODE_ENV": "production", **environ},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: 0 < self.status("/") < 500 or self.process.poll() is not None)

    @property
    def lines(self) -> str:
        return self.log.read_text()

    def send(self, method: str, path: str, body: Any = None) -> HttpResponse:
        return send(self.port, method, path, body)

    def status(self, path: str) -> int:
        """The status of a read, or 0: a worker that ends may close a new connection."""
        with suppress(OSError, HTTPException):
            return self.send("GET", path).status
        return 0

    def has(self, path: str) -> bool:
        return self.status(path) == 200

    def end(self, number: int = signal.SIGTERM) -> None:
        os.killpg(self.process.pid, number)
        self.process.wait(timeout=SECONDS)


@contextmanager
def running(file: Path, *options: str, **given: Any) -> Iterator[Server]:
    """A server that ends with the block. Raises RuntimeError if it does not start."""
    server = Server(file, *options, **given)
    try:
        if server.process.poll() is not None:
            raise RuntimeError(server.lines)
        yield server
    finally:
        if server.process.poll() is None:
            server.end()

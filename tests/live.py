"""A real gunicorn for tests: with its own port and folder, and stopped at the end."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from tests import stores
from tests.processes import children, kill
from tests.shop import BOUNDS, CLOSE
from tests.waiting import SECONDS, until

ROOT = Path(__file__).parent.parent


class HttpResponse(NamedTuple):
    """A complete HTTP response. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def response_of(connection: HTTPConnection) -> HttpResponse:
    """The response to the request that was sent on a connection."""
    response = connection.getresponse()
    return HttpResponse(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def send(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = SECONDS,
) -> HttpResponse:
    """Send one request on a new connection. A dict or list is sent as JSON. Raises OSError when refused."""
    sent = dict(headers or {})
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
        sent.setdefault("Content-Type", "application/json")
    with closing(HTTPConnection("127.0.0.1", port, timeout=timeout)) as connection:
        connection.request(method, path, body, sent)
        return response_of(connection)


def loopback() -> list[str]:
    """The addresses of this machine for itself, as in URLs: a container can be without IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return ["127.0.0.1"]
    return ["127.0.0.1", "[::1]"]


def read_all(connection: socket.socket) -> bytes:
    """All that arrives until the other end closes the connection."""
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


class Gunicorn:
    """gunicorn with the project's configuration, in `folder`; `settings` become environment variables.

    An empty setting means its default; `bounds` are fields of Config that are no settings. AUTH is open by default.
    `root` is the checkout whose code runs, `app` is the application; if it is empty, that of the configuration. Without
    `configured` gunicorn has its own defaults. It has a free port if `port` is 0.

    The listening socket is created here and inherited, so that no other process can take the port before the start.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        workers: int = 2,
        start_new_session: bool = False,
        root: Path = ROOT,
        app: str = "tests.shop:create_app()",
        configured: bool = True,
        port: int = 0,
        bounds: dict[str, Any] | None = None,
        python: str | Path = sys.executable,
        **settings: str,
    ) -> None:
        self.log = folder / "log.txt"
        listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port: int = listener.getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        environ = {
            "PATH": os.environ["PATH"],
            "DATABASE_URL": f"sqlite:///{folder}/restkeeper.db",
            "WEB_CONCURRENCY": str(workers),
            "AUTH": "open",
            CLOSE: os.environ.get(CLOSE, ""),
            BOUNDS: json.dumps(bounds or {}),
            **settings,
        }
        self._database_url = environ["DATABASE_URL"] = stores.url(environ["DATABASE_URL"])
        configuration = ["-c", str(root / "gunicorn.conf.py")] if configured else ["-c", os.devnull]
        command = [python, "-m", "gunicorn", *configuration, *arguments]
        with self.log.open("wb") as log, listener:
            self.process = subprocess.Popen(
                [*command, "--bind", f"fd://{listener.fileno()}", *([app] if app else [])],
                cwd=root,
                env={name: value for name, value in environ.items() if value},
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
                start_new_session=start_new_session,
            )

    def __enter__(self) -> "Gunicorn":
        try:
            self.get("/healthz", timeout=SECONDS)  # waits in the listening socket's queue until a worker is up
        except OSError:
            self.process.kill()
            self.process.wait()  # else a later test fails with a warning of Python's
            raise RuntimeError(f"gunicorn did not start:\n{self.log.read_text()}") from None
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=SECONDS)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """A connection, from an address of this machine."""
        return socket.create_connection(("127.0.0.1", self.port), SECONDS, source_address=(source, 0))

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float = SECONDS,
    ) -> HttpResponse:
        """Send one request, as `send`."""
        return send(self.port, method, path, body, headers, timeout)

    def get(self, path: str, headers: dict[str, str] | None = None, timeout: float = SECONDS) -> HttpResponse:
        return self.request("GET", path, None, headers, timeout)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> HttpResponse:
        return self.request("POST", path, body, headers)

    def lines(self) -> list[str]:
        """The lines that it has printed and logged; the first says what is served."""
        return self.log.read_text().splitlines()

    def worker_pids(self) -> list[int]:
        """The running processes whose parent is gunicorn's arbiter."""
        return children(self.process.pid)

    def kill_worker(self, chance: random.Random) -> None:
        """Kill one running worker with SIGKILL; gunicorn starts another one. Waits until there is one to kill."""

        def kill_one() -> bool:
            pids = self.worker_pids()
            return bool(pids) and kill(chance.choice(pids))

        until(kill_one)

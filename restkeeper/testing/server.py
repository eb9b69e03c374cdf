"""A running service for tests, in Python or in any language that has HTTP."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from restkeeper import exactjson
from restkeeper.app import create_app
from restkeeper.cli.loading import is_file, load_application, python_path
from restkeeper.cli.misspelt import misspelt_settings
from restkeeper.config import Config
from restkeeper.features.harness.spaces import ROOT
from restkeeper.resources.resource import Resource
from restkeeper.testing.space import Space, data_of, declared
from restkeeper.web.application import Application

__tracebackhide__ = True  # a failure is shown at the line of the test
START_SECONDS = 30.0
STOP_SECONDS = 30.0
LOG_BYTES = 64 * 1024
MEMORY = "memory://"


class LiveServer(Space):
    """A service for tests, with a new store in memory: a context manager, and a `Space` at its `url`.

    It serves the service of a folder, or a JSON file, in another process, on a free port of this machine. With
    `in_process` there is no server: the service is imported here. With `resources` it is a service of these, here.

    `settings` are environment variables, such as `AUTH="required"`; by default every caller may do everything, and
    there are no rate limits. The server ends with the process that started it, also if that is killed. Raises
    ValueError for a misspelt setting; if the server does not start, entering raises RuntimeError with its output.
    """

    def __init__(
        self,
        folder: Path | str = ".",
        *,
        resources: Sequence[Resource] | None = None,
        in_process: bool = False,
        **settings: str | int,
    ) -> None:
        super().__init__(self, id=ROOT, url="", control="")  # before its start
        lower = [f"{name}: a setting has capitals" for name in settings if name.islower()]
        if wrong := misspelt_settings(settings, all_ours=True) + lower:
            raise ValueError(wrong[0])
        self._folder = Path(folder).resolve()
        self._command = [str(self._folder)] if is_file(str(folder)) else ["serve", "--no-reload", str(self._folder)]
        self._resources = resources
        self._in_process = in_process or resources is not None
        self._app: Application | None = None  # if it is in this process
        self._settings = {"DATABASE_URL": MEMORY, "HOST": "127.0.0.1", "RATE_LIMIT": "off"}
        self._settings |= {name: str(value) for name, value in settings.items()}
        if self._settings["DATABASE_URL"] == MEMORY:
            self._settings = {"HARNESS": "1", "WEBHOOK_ALLOW_PRIVATE": "1"} | self._settings
        self._running = ExitStack()
        self._output: int | None = None  # a file
        self._log, self._logged = "", 0

    def space(self, *, seed: Any = None, random: int | None = None, **options: str) -> Space:
        """A new `Space` in this server, for one test, with the items of `seed`, as of `Space.seed`.

        With a number `random`, ids and faults are the same in each run. With `webhooks="at once"`, webhooks are sent
        without a `wait`. Raises ValueError for an option that cannot be, and RuntimeError without a server.
        """
        wanted = {"seed": data_of(seed or {}), "random": random, **options}
        return Space(self, **self._call("POST", "/__harness__/spaces", wanted))

    @property
    def log(self) -> str:
        """What the server has printed and logged, or the last 64 KiB of it; also after its end."""
        return self._log if self._output is None else self._read_log(0)

    def new_log(self) -> str:
        """What it has printed and logged since this was called last, or the last 64 KiB of it; empty after its end."""
        start, self._logged = self._logged, os.fstat(self._output).st_size if self._output else 0
        return self._read_log(start) if self._output else ""

    def _read_log(self, start: int) -> str:
        output: Any = self._output
        start = max(start, os.fstat(output).st_size - LOG_BYTES)
        return os.pread(output, LOG_BYTES, start).decode(errors="replace")  # `seek` would move where the server writes

    def __enter__(self) -> "LiveServer":
        if self._in_process:
            self._create()
        else:
            self._start()
        self.control = f"{self.url}/__harness__/spaces/{self.id}"
        return self

    def _create(self) -> None:
        config = Config.from_env({"LOG_LEVEL": "error"} | self._settings)
        try:
            if self._resources is not None:
                self._app = create_app(config, self._resources)
            elif len(self._command) == 1:
                files = import_module("restkeeper.features.files")  # which imports gevent: other tests need none
                self._app = files.application_of(create_app, self._folder, files.FileOptions(), config=config)
            else:
                self._app = load_application(self._folder, lambda create: create(config))
        except SystemExit as end:  # the commands end so; a program of tests goes on
            raise RuntimeError(f"the service did not start: {end}") from None
        self.url = "http://localhost"

    def _call(self, method: str, path: str, value: Any) -> Any:
        """The JSON value of a response. Raises ValueError for a problem, and RuntimeError without a harness."""
        if not self.url:
            raise RuntimeError("the server is not running: use `with LiveServer(…) as server:`")
        if self._settings["DATABASE_URL"] != MEMORY:
            raise RuntimeError("a server with a DATABASE_URL of its own has no spaces")
        for fault in exactjson.faults_in_values(value):  # some would be sent as null
            raise ValueError(f"{fault['pointer']}: {fault['detail']}")
        body, fields = exactjson.dumps(value), {"Content-Type": "application/json"}
        if self._app:
            reply = self._app.test_client().open(path, self.url, method=method, data=body, headers=fields)
            status, text = reply.status_code, reply.get_data()
        else:
            with closing(HTTPConnection(urlsplit(self.url).netloc, timeout=START_SECONDS + STOP_SECONDS)) as connection:
                connection.request(method, path, body, fields)
                response = connection.getresponse()
                status, text = response.status, response.read()
        found = json.loads(text)
        if status >= 400:
            wrong = [f"{one.get('pointer') or one['parameter']}: {one['detail']}" for one in found.get("errors", ())]
            raise ValueError("; ".join(wrong) or f"{found['title']}: {found.get('detail', '')}")
        return found

    def _start(self) -> None:
        environ = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        environ |= {"PYTHONPATH": python_path(), "WEB_CONCURRENCY": "1", "PORT": "0", "LOG_FORMAT": "text"}
        environ |= self._settings
        with ExitStack() as starting:
            log = starting.enter_context(tempfile.TemporaryFile())
            self._output = log.fileno()
            starting.callback(self._end_log)
            lifeline, own_lifeline = os.pipe()
            starting.callback(os.close, own_lifeline)
            own_ready, ready = os.pipe()
            reading = starting.enter_context(os.fdopen(own_ready))
            try:
                process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-P", "-m", "restkeeper", *self._command],
                    env=environ | {"RESTKEEPER_LIFELINE": str(lifeline), "RESTKEEPER_READY": str(ready)},
                    stdout=log,
                    stderr=log,
                    pass_fds=[lifeline, ready],
                    start_new_session=True,  # `_kill` ends its group
                )
            finally:
                os.close(lifeline)
                os.close(ready)
            starting.callback(_kill, process, own_lifeline)
            is_ready, _, _ = select.select([reading], [], [], START_SECONDS)
            self.url = reading.readline().strip() if is_ready else ""
            if not self.url:
                starting.close()
                raise RuntimeError(f"the service did not start: {self.log.strip()}")
            starting.callback(_wait_until_refused, self.url)
            end = _kill if environ["DATABASE_URL"] == MEMORY else _stop
            starting.callback(end, process, own_lifeline)
            self._running = starting.pop_all()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server: at once, as its store ends too, or with a `DATABASE_URL` after the requests under way."""
        for space in [each for each in declared if each._server is self]:
            with suppress(ValueError, OSError):  # it was killed
                space.reset()  # which notes the faults that were unmet
        self._running.close()

    drop = close

    def _end_log(self) -> None:
        self._log, self._output = self.log, None


def _stop(process: "subprocess.Popen[bytes]", lifeline: int) -> None:
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=STOP_SECONDS)
    _kill(process, lifeline)


def _kill(process: "subprocess.Popen[bytes]", lifeline: int) -> None:
    """Kill all of its processes, and wait until none is left: each has the other end of the lifeline."""
    if process.returncode is None:  # else its number may be that of another one
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    ended = select.poll()
    ended.register(lifeline, select.POLLERR)
    ended.poll(STOP_SECONDS * 1000)


def _wait_until_refused(url: str) -> None:
    """A process that ends closes its files in any order."""
    address = urlsplit(url)
    with suppress(OSError):
        for _ in range(100):
            socket.create_connection((address.hostname, address.port), timeout=1).close()
            time.sleep(0.001)

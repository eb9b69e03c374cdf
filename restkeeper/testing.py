"""A running service for tests, in Python or in any language that has HTTP."""

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from restkeeper.cli.main import python_path

START_SECONDS = 30.0
STOP_SECONDS = 30.0
LOG_BYTES = 64 * 1024
MEMORY = "memory://"


class LiveServer:
    """The service of a folder under gunicorn, on a free port of this machine, with a new store in memory.

    A context manager. `url` is its address. `settings` are environment variables (docs/configuration.md), such as
    `AUTH="required"`; by default it is open and has no rate limits. It ends with the process that started it, also if
    that is killed. If the server does not start, entering raises RuntimeError with its output.
    """

    url: str

    def __init__(self, folder: Path | str = ".", **settings: str) -> None:
        self._folder = Path(folder).resolve()
        self._settings = settings
        self._running = ExitStack()
        self._output: int | None = None  # a file
        self._log = ""

    @property
    def log(self) -> str:
        """What the server has printed and logged, or the last 64 KiB of it; also after its end."""
        if self._output is not None:  # by `pread`: `seek` would move where the server writes
            start = max(0, os.fstat(self._output).st_size - LOG_BYTES)
            self._log = os.pread(self._output, LOG_BYTES, start).decode(errors="replace")
        return self._log

    def __enter__(self) -> "LiveServer":
        environ = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        environ |= {"PYTHONPATH": python_path(), "DATABASE_URL": MEMORY, "WEB_CONCURRENCY": "1", "PORT": "0"}
        environ |= {"RATE_LIMIT": "off"} | self._settings
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
                    [sys.executable, "-P", "-m", "restkeeper", "serve", str(self._folder)],
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
            starting.callback(shutil.rmtree, reading.readline().strip(), ignore_errors=True)  # a killed one cannot
            end = _kill if environ["DATABASE_URL"] == MEMORY else _stop
            starting.callback(end, process, own_lifeline)
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server: at once, as its store ends too, or with a `DATABASE_URL` after the requests under way."""
        self._running.close()

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

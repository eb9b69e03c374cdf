"""A running service for tests, in Python or in any language that has HTTP."""

import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from restkeeper.cli.main import python_path

START_SECONDS = 30.0
STOP_SECONDS = 30.0


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

    def __enter__(self) -> "LiveServer":
        environ = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        environ |= {"PYTHONPATH": python_path(), "DATABASE_URL": "memory://", "WEB_CONCURRENCY": "1", "PORT": "0"}
        environ |= {"RATE_LIMIT": "off"} | self._settings
        with ExitStack() as starting:
            log = starting.enter_context(tempfile.TemporaryFile("w+"))
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
                    start_new_session=True,  # `_kill` ends all of its processes
                )
            finally:
                os.close(lifeline)
                os.close(ready)
            starting.callback(_stop, process)
            is_ready, _, _ = select.select([reading], [], [], START_SECONDS)
            self.url = reading.readline().strip() if is_ready else ""
            if not self.url:
                _kill(process)
                log.seek(0)
                raise RuntimeError(f"the service did not start: {log.read().strip()}")
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server after the requests that it has received."""
        self._running.close()


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        _kill(process)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

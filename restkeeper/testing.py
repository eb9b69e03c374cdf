"""A running service for tests, of Python or of whatever speaks HTTP."""

import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from restkeeper.cli.loading import python_path

START_SECONDS = 30.0
STOP_SECONDS = 30.0


class LiveServer:
    """The service of a folder under gunicorn, on a free port of this machine, with a store of its own in memory.

    A context manager. `url` is where it serves. `settings` are those of the environment (docs/configuration.md), such
    as `AUTH="required"`; it is open and has no rate limits unless they say else. It ends with the process that started
    it, however that ends. Entering raises RuntimeError with the server's output when it does not start.
    """

    url: str

    def __init__(self, folder: Path | str = ".", **settings: str) -> None:
        self._folder = Path(folder).resolve()
        self._settings = settings
        self._running = ExitStack()

    def __enter__(self) -> "LiveServer":
        with ExitStack() as starting:
            log = starting.enter_context(tempfile.TemporaryFile("w+"))
            held, lifeline = os.pipe()
            starting.callback(os.close, lifeline)
            ready, told = os.pipe()
            reading = starting.enter_context(os.fdopen(ready))
            try:
                process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-P", "-m", "restkeeper", "serve", str(self._folder)],
                    env=self._environ() | {"RESTKEEPER_LIFELINE": str(held), "RESTKEEPER_READY": str(told)},
                    stdout=log,
                    stderr=log,
                    pass_fds=[held, told],
                    start_new_session=True,  # so that all of its processes can be ended together
                )
            finally:
                os.close(held)
                os.close(told)
            starting.callback(_stop, process)
            is_told, _, _ = select.select([reading], [], [], START_SECONDS)
            self.url = reading.readline().strip() if is_told else ""
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
        """Stop the server. Requests in flight are finished."""
        self._running.close()

    def _environ(self) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        defaults = {"DATABASE_URL": "memory://", "WEB_CONCURRENCY": "1", "PORT": "0", "RATE_LIMIT": "off"}
        return inherited | {"PYTHONPATH": python_path()} | defaults | self._settings


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

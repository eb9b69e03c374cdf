"""A running service for tests, of Python or of whatever speaks HTTP."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType

import restkeeper

START_SECONDS = 30.0
STOP_SECONDS = 30.0


class LiveServer:
    """The service of a folder under gunicorn, on a free port of this machine, with a store of its own in memory.

    A context manager. `url` is where it serves. `settings` are those of the environment (docs, "Configuration"), such
    as `AUTH="required"`; it is open and has no rate limits unless they say else. It ends with the process that started
    it, however that ends. Entering raises RuntimeError with the server's output when it does not start.
    """

    url: str

    def __init__(self, folder: Path | str = ".", **settings: str) -> None:
        self._folder = Path(folder).resolve()
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "LiveServer":
        reading, self._lifeline = os.pipe()
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end
        engine = str(Path(restkeeper.__file__).parent.parent)
        environ = {
            **{name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ},
            "PYTHONPATH": engine,  # in a checkout it is not installed
            "DATABASE_URL": "memory://",
            "WEB_CONCURRENCY": "1",
            "PORT": "0",
            "RATE_LIMIT": "off",
            "RESTKEEPER_LIFELINE": str(reading),
            **self._settings,
        }
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", "-m", "restkeeper", "serve", str(self._folder)],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=self._log,
                pass_fds=[reading],
                text=True,
            )
        finally:
            os.close(reading)
        self.url = self._address(self._process)
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server. Requests in flight are finished."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        finally:
            os.close(self._lifeline)
            self._log.close()
            if process.stdout:
                process.stdout.close()

    def _address(self, process: "subprocess.Popen[str]") -> str:
        """Where it serves, as its first line says."""
        assert process.stdout  # noqa: S101 - it is a pipe
        stop = threading.Timer(START_SECONDS, process.kill)  # then what is read from it ends
        stop.start()
        line = process.stdout.readline()
        stop.cancel()
        if found := re.search(r" at (http://\S+), ", line):
            return found[1]
        process.kill()
        process.wait()
        self._log.seek(0)
        told = self._log.read()
        self.close()
        raise RuntimeError(f"the service did not start: {told.strip() or line}")

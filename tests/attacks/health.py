"""How long `/healthz` takes while a service is busy."""

import threading
import time
from http.client import HTTPConnection
from types import TracebackType

from tests.live import Gunicorn
from tests.waiting import join

PAUSE = 0.005  # seconds between two requests


class Health:
    """Requests `/healthz` repeatedly on each of `connections` connections, while its block runs.

    `worst` is the longest response time in seconds; `count` is the number of responses.
    """

    def __init__(self, server: Gunicorn, connections: int = 4) -> None:
        self._server = server
        self._connections = connections
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._times: list[float] = []
        self._failure: BaseException | None = None

    def __enter__(self) -> "Health":
        self._threads = [threading.Thread(target=self._probe) for _ in range(self._connections)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        join(*self._threads)
        if self._failure and not error:
            raise self._failure

    @property
    def worst(self) -> float:
        return max(self._times)

    @property
    def count(self) -> int:
        return len(self._times)

    def _probe(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._server.port, timeout=60)
        try:
            while not self._over.wait(PAUSE):
                began = time.perf_counter()
                connection.request("GET", "/healthz")
                response = connection.getresponse()
                response.read()
                if response.status != 200:
                    raise RuntimeError(f"/healthz: {response.status}")
                self._times.append(time.perf_counter() - began)
        except BaseException as error:
            self._failure = error
        finally:
            connection.close()

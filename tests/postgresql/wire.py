"""A proxy in front of PostgreSQL that counts round trips: the times that the server is ready for the next query."""

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from psycopg.conninfo import conninfo_to_dict

from tests.waiting import SECONDS, until

READY = ord("Z")  # ReadyForQuery, with which the server ends its response to one round trip
COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"  # CommandComplete of a COMMIT
ENDED = b"SFATAL\x00C57P01\x00Mterminating connection due to administrator command\x00\x00"  # of an ErrorResponse
HEADER = 5  # bytes before the content of a message: its type and its length


class Wire:
    """The URL of a database, by way of the proxy; `count` is the number of round trips of all connections.

    While it `ends_commits`, a connection ends after the result of a COMMIT, as if an operator had ended it there.
    """

    def __init__(self, folder: Path, url: str) -> None:
        given = conninfo_to_dict(url)
        port = given.get("port") or 5432
        host = str(given["host"])
        is_path = host.startswith("/")
        self._server: str | tuple[str, int] = f"{host}/.s.PGSQL.{port}" if is_path else (host, int(port))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/.s.PGSQL.{port}")
        self._listener.listen()
        self._lock = threading.Lock()
        self.count = 0
        self.ends_commits = False
        user = urlsplit(url).netloc.rpartition("@")[0]
        self.url = urlsplit(url)._replace(netloc=f"{user}@", query=urlencode({"host": folder, "port": port})).geturl()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def close(self) -> None:
        """Close it when its clients have closed their connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(SECONDS)

    def trips(self) -> int:
        """The round trips since the last call."""
        with self._lock:
            count, self.count = self.count, 0
        return count

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET)
                server.connect(self._server)
                self._start(_forward, client, server)
                self._start(self._count, server, client)

    def _count(self, server: socket.socket, client: socket.socket) -> None:
        """Forward whole messages of the server. One is counted before it is forwarded."""
        received = bytearray()
        for data in _received(server):
            received += data
            end, ready = 0, 0
            while len(received) - end >= HEADER:
                size = 1 + int.from_bytes(received[end + 1 : end + HEADER])
                if len(received) - end < size:
                    break
                ready += received[end] == READY
                end += size
            with self._lock:
                self.count += ready
            if self.ends_commits and (committed := received.find(COMMITTED)) >= 0:
                error = b"E" + (len(ENDED) + 4).to_bytes(4) + ENDED
                client.sendall(received[: committed + len(COMMITTED)] + error)
                break
            with suppress(OSError):
                client.sendall(received[:end])
            del received[:end]
        for each in (server, client):
            each.close()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        for data in _received(source):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _received(source: socket.socket) -> Iterator[bytes]:
    with suppress(OSError):
        while data := source.recv(65536):
            yield data


@contextmanager
def counted(url: str) -> Iterator[Wire]:
    """A proxy for a database. pytest's folders have names that are too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="wire-") as folder:
        wire = Wire(Path(folder), url)
        yield wire
        wire.close()


def filled(store: Any) -> None:
    """Wait until a store's pool has all its connections, which takes round trips, too."""
    pool = store._opened._pool
    until(lambda: pool.get_stats()["pool_available"] == pool.get_stats()["pool_size"])

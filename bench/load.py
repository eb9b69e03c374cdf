"""A small load generator: keep-alive connections, each with one request at a time, in one process."""

import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import NamedTuple


class Load(NamedTuple):
    """The result of a period of load: requests a second, and the median and 99 % response times in milliseconds.

    `reads_p99` is that of the GET requests alone, where there are any.
    """

    rate: float
    p50: float
    p99: float
    requests: int
    reads_p99: float


Requests = Sequence[bytes] | Iterator[bytes]


def run(
    ports: Sequence[int], requests: Requests, *, connections: int, seconds: float, expect: bytes = b"HTTP/1.1 200"
) -> Load:
    """Send `requests` in turn, repeatedly; those of an iterator once each. The connections are to these ports in turn.

    Raises RuntimeError for a response that does not begin as expected.
    """
    selector = selectors.DefaultSelector()
    turn = requests if isinstance(requests, Iterator) else cycle(requests)
    for number in range(connections):
        connection = socket.create_connection(("127.0.0.1", ports[number % len(ports)]), timeout=30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ, _Exchange(connection, turn))
    reads: list[float] = []
    writes: list[float] = []
    begin = time.perf_counter()
    end = begin + seconds
    for key in selector.get_map().values():
        key.data.send()
    while (now := time.perf_counter()) < end:
        for key, _ in selector.select(timeout=1):
            if (taken := key.data.receive(expect)) is not None:
                (reads if key.data.is_read else writes).append(taken)
                key.data.send()
    for key in list(selector.get_map().values()):
        key.data.connection.close()
    selector.close()
    times = reads + writes
    return Load(len(times) / (now - begin), _at(times, 0.5), _at(times, 0.99), len(times), _at(reads or writes, 0.99))


def _at(times: list[float], part: float) -> float:
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * part))] * 1000 if times else float("nan")


class _Exchange:
    """One connection: it sends a request and reads the whole response."""

    def __init__(self, connection: socket.socket, requests: Iterator[bytes]) -> None:
        self.connection = connection
        self._requests = requests
        self._got = b""
        self._missing = -1
        self._sent = 0.0
        self.is_read = True

    def send(self) -> None:
        request = next(self._requests)
        self._got, self._missing = b"", -1
        self.is_read = request.startswith(b"GET ")
        self._sent = time.perf_counter()
        self.connection.sendall(request)

    def receive(self, expect: bytes) -> float | None:
        """Read the available bytes; return the response time in seconds when the response is complete."""
        data = self.connection.recv(262_144)
        if not data:
            raise RuntimeError("the server closed a connection")
        if self._missing < 0:
            self._got += data
            head, end, body = self._got.partition(b"\r\n\r\n")
            if not end:
                return None
            if not head.startswith(expect):
                raise RuntimeError(f"unexpected answer: {head[:200]!r}")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._missing = int(length) - len(body)
        else:
            self._missing -= len(data)
        return time.perf_counter() - self._sent if self._missing == 0 else None

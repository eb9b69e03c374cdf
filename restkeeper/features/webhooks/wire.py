"""Connections to places that strangers chose: only to public addresses, and no longer or larger than is allowed.

A name is resolved once for each connection, and the very address that was checked is the one that is connected to:
between the two nobody can put another (DNS rebinding).
"""

import errno
import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from http.client import HTTPException, HTTPResponse
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection

from restkeeper.net import is_public

MOST_BYTES = 128 * 1024  # of an answer that are read, head and all: more ends the connection


class Refused(OSError):
    """It is not to be called."""


class Bounds:
    """What is left of one send: time in all, and bytes of the answer."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self.received = 0

    @property
    def over(self) -> bool:
        """Whether there is no time left."""
        return time.monotonic() >= self._until

    def left(self) -> float:
        """Seconds, more than 0. Raises TimeoutError when there are none."""
        if (left := self._until - time.monotonic()) <= 0:
            raise TimeoutError
        return left

    def count(self, received: int) -> int:
        """So many bytes more. Raises HTTPException when that is too many."""
        self.received += received
        if self.received > MOST_BYTES:
            raise HTTPException("it is too long")
        return received


class _Reader(io.RawIOBase):
    """What comes from a socket, each piece waited for no longer than what is left: to drip wins no time."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, bounds: Bounds) -> None:
        self._raw, self._sock, self._bounds = raw, sock, bounds

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        self._sock.settimeout(self._bounds.left())
        return self._bounds.count(self._raw.readinto(into) or 0)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    """A final answer: interim ones are passed over (RFC 9110, section 15.2), where http.client knows only the 100."""

    def __init__(self, sock: socket.socket, method: str | None, bounds: Bounds) -> None:
        super().__init__(sock, method=method)
        self.fp = io.BufferedReader(_Reader(self.fp.detach(), sock, bounds))

    def begin(self) -> None:
        super().begin()
        while self.status < 200:
            self.headers = self.msg = None  # type: ignore[assignment]  # begin() sees by it whether it has been called
            super().begin()


class Connection(HTTPConnection):
    """A connection to one place, checked when it is made; `bounds` are those of the send that it is used for.

    It raises OSError for what is wrong with the network, among them Refused, and HTTPException for what is no answer.
    """

    place: tuple[str, str, int]  # scheme, host, port
    allow_private: bool
    bounds: Bounds
    _gathered = b""

    def in_time(self) -> AbstractContextManager[None]:
        """Within this, all waits together are bounded: those of plain sockets each are, by what is left."""
        return nullcontext()

    def answer(self) -> HTTPResponse:
        """The answer to a request. Its content is not decoded."""
        # Not urllib3's own, which writes into the log whatever odd header an endpoint thinks of.
        return super(HTTPConnection, self).getresponse()

    def send(self, data: Any) -> None:
        """Gather what http.client writes: head and content leave together."""
        self._gathered += bytes(data)

    def flush(self) -> None:
        """Send what was gathered, in what is left of the time: a timeout is one for a whole sendall, over TLS too."""
        data, self._gathered = self._gathered, b""
        self.sock.settimeout(self.bounds.left())
        self.sock.sendall(data)

    def response_class(self, sock: socket.socket, method: str | None = None) -> HTTPResponse:  # type: ignore[override]
        """What http.client makes of the socket when the request is sent."""
        return _Response(sock, method, self.bounds)

    def _new_conn(self) -> socket.socket:
        found = _resolved(self._dns_host, self.port, self.bounds.left())
        allowed = [each for each in found if self.allow_private or is_public(str(each[4][0]))]
        if found and not allowed:
            raise Refused(f"refused: {found[0][4][0]} is not a public address (WEBHOOK_ALLOW_PRIVATE)")
        fault: OSError = socket.gaierror(socket.EAI_NONAME, "no address")
        for tried, (family, kind, protocol, _, address) in enumerate(allowed):
            try:  # an address that is dead leaves the others their share of the time
                return self._connected(family, kind, protocol, address, self.bounds.left() / (len(allowed) - tried))
            except OSError as error:
                fault = error
        raise fault

    def _connected(self, family: int, kind: int, protocol: int, address: Any, seconds: float) -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(seconds)
            sock.connect(address)
            sock.settimeout(self.bounds.left())  # for all of the TLS handshake
        except BaseException:
            sock.close()
            raise
        return sock


class TlsConnection(Connection, HTTPSConnection):
    """The same over TLS, where to drip within a handshake or a record could win time: gevent gives each wait all."""

    _twin: socket.socket | None = None  # of the socket, which TLS takes for itself

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        self._twin = sock.dup()
        return sock

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """Whatever is done with the connection, it ends with the time of the send."""
        timer = threading.Timer(self.bounds.left(), self._end)
        timer.daemon = True
        _start(timer)
        try:
            yield
        finally:
            timer.cancel()

    def _end(self) -> None:
        if twin := self._twin:
            with suppress(OSError):  # it may have ended by itself
                twin.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it, with its twin."""
        super().close()
        twin, self._twin = self._twin, None
        if twin:
            twin.close()


def _start(thread: threading.Thread) -> None:
    """Start a thread. Raises OSError where the system has none left, as for all else that it may lack."""
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, "no thread is left") from error


def _resolved(host: str, port: int, seconds: float) -> list[Any]:
    """The addresses of a name. Raises gaierror, and TimeoutError: nothing else bounds how long the system looks."""
    found: list[Any] = []
    faults: list[OSError] = []

    def resolve() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except UnicodeError:  # a label that is empty or too long
            pass
        except OSError as error:
            faults.append(error)

    resolving = threading.Thread(target=resolve, daemon=True)  # a name that is slow must not hold up the end either
    _start(resolving)
    resolving.join(seconds)
    if resolving.is_alive():
        raise TimeoutError
    if faults:
        raise faults[0]
    return found

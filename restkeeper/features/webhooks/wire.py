"""Connections to untrusted hosts: only to public addresses, with limits of time and bytes.

A name is resolved once for each connection, and the connection uses the checked address: a second look-up could return
another address (DNS rebinding).
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

MOST_BYTES = 128 * 1024  # of a response with its head; more ends the connection


class Refused(OSError):
    """The URL or address is not allowed."""


class Bounds:
    """The limits of one send: total time, and bytes of the response."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self.received = 0

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._until

    def left(self) -> float:
        """The seconds that are left. Raises TimeoutError if there are none."""
        if (left := self._until - time.monotonic()) <= 0:
            raise TimeoutError
        return left

    def count(self, received: int) -> int:
        """Add received bytes and return their number. Raises HTTPException beyond the limit."""
        self.received += received
        if self.received > MOST_BYTES:
            raise HTTPException("the response is too long")
        return received


class _Reader(io.RawIOBase):
    """Reads from a socket. Each wait is limited by the time left, so slow senders gain no time."""

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
    """A final response: all interim ones are skipped (RFC 9110, section 15.2); http.client skips only 100."""

    def __init__(self, sock: socket.socket, method: str | None, bounds: Bounds) -> None:
        super().__init__(sock, method=method)
        self.fp = io.BufferedReader(_Reader(self.fp.detach(), sock, bounds))

    def begin(self) -> None:
        super().begin()
        while self.status < 200:
            self.headers = self.msg = None  # type: ignore[assignment]  # else begin() returns at once
            super().begin()


class Connection(HTTPConnection):
    """A connection to one host; its address is checked on connecting. `bounds` are those of the current send.

    It raises OSError for errors of the network and Refused, and HTTPException for an invalid response.
    """

    place: tuple[str, str, int]  # scheme, host, port
    allow_private: bool
    bounds: Bounds
    _unsent = b""

    def limited(self) -> AbstractContextManager[None]:
        """A context that limits the total time. Plain sockets need none: each wait is limited by the time left."""
        return nullcontext()

    def receive(self) -> HTTPResponse:
        """The response to a request. Its content is not decoded."""
        # Not urllib3's method, which logs malformed headers of an endpoint.
        return super(HTTPConnection, self).getresponse()

    def send(self, data: Any) -> None:
        """Collect what http.client writes, to send head and content together."""
        self._unsent += bytes(data)

    def flush(self) -> None:
        """Send the collected data in the time left: the timeout of a socket limits a whole sendall, over TLS too."""
        data, self._unsent = self._unsent, b""
        self.sock.settimeout(self.bounds.left())
        self.sock.sendall(data)

    def response_class(self, sock: socket.socket, method: str | None = None) -> HTTPResponse:  # type: ignore[override]
        """The response that http.client reads after the request was sent."""
        return _Response(sock, method, self.bounds)

    def _new_conn(self) -> socket.socket:
        found = _resolved(self._dns_host, self.port, self.bounds.left())
        allowed = [each for each in found if self.allow_private or is_public(str(each[4][0]))]
        if found and not allowed:
            raise Refused(f"refused: {found[0][4][0]} is not a public address (WEBHOOK_ALLOW_PRIVATE)")
        fault: OSError = socket.gaierror(socket.EAI_NONAME, "no address")
        for index, (family, kind, protocol, _, address) in enumerate(allowed):
            try:  # each address has a share of the time: a dead one does not use up all
                return self._connected(family, kind, protocol, address, self.bounds.left() / (len(allowed) - index))
            except OSError as error:
                fault = error
        raise fault

    def _connected(self, family: int, kind: int, protocol: int, address: Any, seconds: float) -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(seconds)
            sock.connect(address)
            sock.settimeout(self.bounds.left())  # for the whole TLS handshake
        except BaseException:
            sock.close()
            raise
        return sock


class TlsConnection(Connection, HTTPSConnection):
    """A connection over TLS. It needs a timer: with gevent, each wait within a TLS record has the full timeout."""

    _duplicate: socket.socket | None = None  # of the socket, which the TLS socket detaches

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        self._duplicate = sock.dup()
        return sock

    @contextmanager
    def limited(self) -> Iterator[None]:
        """A context at whose time limit the connection is shut down."""
        timer = threading.Timer(self.bounds.left(), self._end)
        timer.daemon = True
        _start(timer)
        try:
            yield
        finally:
            timer.cancel()

    def _end(self) -> None:
        if duplicate := self._duplicate:
            with suppress(OSError):  # the connection may be closed
                duplicate.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket and its duplicate."""
        super().close()
        duplicate, self._duplicate = self._duplicate, None
        if duplicate:
            duplicate.close()


def _start(thread: threading.Thread) -> None:
    """Start a thread. Raises OSError if the system has none left."""
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, "no thread is left") from error


def _resolved(host: str, port: int, seconds: float) -> list[Any]:
    """The addresses of a name. Raises gaierror, and TimeoutError: the system's resolver has no limit of its own."""
    found: list[Any] = []
    faults: list[OSError] = []

    def resolve() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except UnicodeError:  # a label that is empty or too long
            pass
        except OSError as error:
            faults.append(error)

    resolving = threading.Thread(target=resolve, daemon=True)  # a slow look-up must not delay the exit of the process
    _start(resolving)
    resolving.join(seconds)
    if resolving.is_alive():
        raise TimeoutError
    if faults:
        raise faults[0]
    return found

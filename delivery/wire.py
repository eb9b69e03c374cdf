"""Connections to places that strangers chose: only to public addresses, and no longer or larger than is allowed.

A name is resolved once for each connection, and the very address that was checked is the one that is connected to:
between the two nobody can put another (DNS rebinding). All waits are ordinary ones of sockets.
"""

import io
import socket
import time
from http.client import HTTPException, HTTPResponse
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection

from addresses import is_public

MOST_BYTES = 128 * 1024  # of an answer that are read, head and all: more ends the connection


class Refused(OSError):
    """It is not to be called."""


class Bounds:
    """What is left of one send: time in all, and bytes of the answer."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self.received = 0

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

    def answer(self) -> HTTPResponse:
        """The answer to a request. Its content is not decoded."""
        # Not urllib3's own, which writes into the log whatever odd header an endpoint thinks of.
        return super(HTTPConnection, self).getresponse()

    def send(self, data: Any) -> None:
        """Send all of it in what is left of the time: a socket's timeout is one for a whole sendall, over TLS too."""
        self.sock.settimeout(self.bounds.left())
        super().send(data)

    def response_class(self, sock: socket.socket, method: str | None = None) -> HTTPResponse:  # type: ignore[override]
        """What http.client makes of the socket when the request is sent."""
        return _Response(sock, method, self.bounds)

    def _new_conn(self) -> socket.socket:
        try:
            found = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        except UnicodeError:  # a label that is empty or too long
            found = []
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
    """The same over TLS."""

"""Requests that the service itself sends: each has one deadline, wherever the other side delays it.

A name is resolved once for each connection, and the connection uses the checked address: a second look-up could return
another address (DNS rebinding). Sockets never block: each wait is limited by the time left, so that nobody gains time
by being slow, not even within a record of TLS under gevent. No proxy of the environment is used.
"""

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from os import strerror
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import h11

from restkeeper.clock import YIELD_SECONDS

ERRORS = (OSError, h11.RemoteProtocolError)  # for which there is no response: see `reason`


class AddressNotAllowed(OSError):
    """The URL or address is not allowed."""


class Origin(NamedTuple):
    """Where a connection leads to (RFC 6454)."""

    is_tls: bool
    host: str
    port: int


class RequestTarget(NamedTuple):
    """Where a URL leads to."""

    origin: Origin
    path: str  # with the query
    authority: str  # for the header Host


class Response(NamedTuple):
    """A response; its content is the beginning, unless it `is_complete`."""

    status: int
    headers: dict[bytes, bytes]
    content: bytes
    is_complete: bool


class Connection:
    """A connection to an origin, for responses of at most `most` bytes with their heads.

    `allowed` returns the addresses that may be used. Raises ERRORS, as its methods do.
    """

    def __init__(
        self,
        origin: Origin,
        until: float,
        tls: ssl.SSLContext,
        most: int,
        allowed: Callable[[list[str]], list[str]] = lambda addresses: addresses,
    ) -> None:
        self.origin = origin
        self.received = 0  # bytes of the current response
        self.idle_since = 0.0  # by time.monotonic; of a user that keeps it
        self._until, self._most = until, most
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=most)
        self._sock = _connected(origin, until, allowed)
        if origin.is_tls:
            name = origin.host.rstrip(".")
            try:
                self._sock = wrapped = tls.wrap_socket(self._sock, server_hostname=name, do_handshake_on_connect=False)
                self._finish(wrapped.do_handshake, select.POLLIN)
            except BaseException:
                self.close()
                raise

    def exchange(self, request: h11.Request, body: bytes, until: float, most: int) -> Response:
        """Send a request and read the response, at least its head; the rest may be too long or break off.

        Of its content so many bytes are kept.
        """
        self._until, self.received = until, 0
        protocol, response, content, is_complete = self._protocol, None, b"", False
        parts = protocol.send(request), protocol.send(h11.Data(body)), protocol.send(h11.EndOfMessage())
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have responded without reading all
                rest = memoryview(b"".join(chunk or b"" for chunk in parts))
                while rest:
                    rest = rest[self._finish(lambda: self._sock.send(rest), select.POLLOUT) :]  # noqa: B023 - at once
            while not is_complete:
                event = self._next_event()
                if isinstance(event, h11.Response):
                    response = event
                elif isinstance(event, h11.Data):
                    content += event.data[: most - len(content)]
                is_complete = isinstance(event, h11.EndOfMessage)
        except ERRORS:
            if response is None:
                raise
        assert response is not None  # noqa: S101 - no content comes before it
        return Response(response.status_code, dict(response.headers), content, is_complete)

    def is_reusable(self) -> bool:
        """Whether another request can be sent: the connection is open, and nothing came that was not requested."""
        protocol = self._protocol
        if protocol.our_state is h11.DONE and protocol.their_state is h11.DONE:
            protocol.start_next_cycle()
        return protocol.our_state is h11.IDLE and not protocol.trailing_data[0] and not self._poll(0)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def _next_event(self) -> Any:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            if self.received:
                time.sleep(YIELD_SECONDS)  # many small parts take time: other requests continue between two reads
            data = self._finish(lambda: self._sock.recv(16384), select.POLLIN)
            self.received += len(data)
            if not self.received:
                raise ConnectionResetError
            if self.received > self._most:
                raise h11.RemoteProtocolError("the response is too long")
            self._protocol.receive_data(data)
        return event

    def _finish(self, operation: Callable[[], Any], event: int) -> Any:
        """What an operation of the socket returns when it does not have to wait any more, mostly for this event."""
        while True:
            if time.monotonic() >= self._until:
                raise TimeoutError
            try:
                return operation()
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            except BlockingIOError:
                pass
            self._poll(max(0.0, self._until - time.monotonic()), event)

    def _poll(self, seconds: float, event: int = select.POLLIN) -> bool:
        poll = select.poll()
        poll.register(self._sock, event)
        return bool(poll.poll(seconds * 1000))


def target_of(url: str) -> RequestTarget:
    """Where an http or https URL leads to. Raises AddressNotAllowed."""
    try:
        parts = urlsplit(url)
        is_tls, host, port = parts.scheme == "https", parts.hostname or "", parts.port
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError
    except ValueError:
        raise AddressNotAllowed("refused: the URL is malformed") from None
    if parts.username is not None or not host:
        raise AddressNotAllowed("refused: the URL has a user name, or no host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    origin = Origin(is_tls, host, port if port is not None else 443 if is_tls else 80)
    return RequestTarget(origin, path, parts.netloc)


def request_of(method: str, target: RequestTarget, fields: Mapping[str, str]) -> h11.Request:
    """A request with these header fields and those of all requests. Raises LocalProtocolError for an invalid one."""
    defaults = {"Host": target.authority, "Accept-Encoding": "identity", "User-Agent": "Restkeeper"}
    return h11.Request(method=method, target=target.path, headers=list((defaults | dict(fields)).items()))


def reason(error: Exception, seconds: float) -> str:
    """Why there was no response, without text from the other side and without internal details."""
    match error:
        case AddressNotAllowed():
            return str(error)
        case TimeoutError():
            return f"timed out after {seconds:g} s"
        case socket.gaierror():
            return "the name cannot be resolved now" if error.errno == socket.EAI_AGAIN else "no such host"
        case ssl.SSLCertVerificationError():
            return f"certificate verify failed: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {(error.reason or 'unknown').replace('_', ' ').lower()}"
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionError():
            return "connection closed without a response"
        case OSError():
            return strerror(error.errno).lower() if error.errno else "the network failed"
    return "not a valid HTTP response"


def _connected(origin: Origin, until: float, allowed: Callable[[list[str]], list[str]]) -> socket.socket:
    addresses = _resolved(origin.host, origin.port, until)
    usable = allowed([str(info[4][0]) for info in addresses])
    addresses = [info for info in addresses if str(info[4][0]) in usable]
    fault: OSError = socket.gaierror(socket.EAI_NONAME, "no address")
    for index, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = socket.socket(family, kind, protocol)
        try:  # each address has a share of the time: a dead one does not use up all
            sock.settimeout(max(0.001, until - time.monotonic()) / (len(addresses) - index))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            return sock
        except OSError as error:
            sock.close()
            fault = error
    raise fault


def _resolved(host: str, port: int, until: float) -> list[Any]:
    """The addresses of a name. Raises gaierror, and TimeoutError: the system's resolver has no limit of its own."""
    addresses: list[Any] = []
    faults: list[OSError] = []

    def resolve() -> None:
        try:
            addresses.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except UnicodeError:  # a label that is empty or too long
            pass
        except OSError as error:
            faults.append(error)

    resolving = threading.Thread(target=resolve, daemon=True)  # a slow look-up must not delay the exit of the process
    try:
        resolving.start()
    except RuntimeError:
        raise OSError("no thread is left") from None
    resolving.join(max(0.0, until - time.monotonic()))
    if resolving.is_alive():
        raise TimeoutError
    if faults:
        raise faults[0]
    return addresses

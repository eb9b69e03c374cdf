"""Sending webhooks: one POST to an untrusted URL; any response or failure is a DeliveryResult.

A name is resolved once for each connection, and the connection uses the checked address: a second look-up could return
another address (DNS rebinding). Sockets never block: each wait is limited by the time left, so that an endpoint gains
no time by being slow, not even within a record of TLS under gevent.
"""

import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from os import strerror
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import h11

from restkeeper.net import is_public

EXCERPT = 1024  # bytes of a response's content that are stored
MOST_BYTES = 128 * 1024  # of a response with its head; more ends the connection
MAX_IDLE = 128  # idle connections for reuse, to all hosts together
IDLE_SECONDS = 30.0  # for which one may be idle: what is between forgets connections silently, and addresses change


class DeliveryResult(NamedTuple):
    """The result of a send: a status and the beginning of the content, or None and why there was no response.

    `retry_after` is in seconds, never negative; None if absent or malformed (RFC 9110, section 10.2.3).
    """

    status: int | None
    excerpt: str
    retry_after: float | None


class Refused(OSError):
    """The URL or address is not allowed."""


class _Origin(NamedTuple):
    """Where a URL leads to (RFC 6454): a connection is for one."""

    is_tls: bool
    host: str
    port: int


class _Connection:
    """A connection to an origin, with the protocol spoken on it. `until` is the deadline of the current send."""

    def __init__(self, origin: _Origin, sock: socket.socket, until: float) -> None:
        self.origin = origin
        self.protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_BYTES)
        self.received = 0  # bytes of the current response
        self.until = until
        self.idle_since = 0.0  # by time.monotonic
        self._sock = sock

    def begin_tls(self, context: ssl.SSLContext) -> None:
        """Verify the endpoint and encrypt from now on. Raises as `send`, with the connection closed."""
        name = self.origin.host.rstrip(".")
        try:
            self._sock = tls = context.wrap_socket(self._sock, server_hostname=name, do_handshake_on_connect=False)
            self._finish(tls.do_handshake, select.POLLIN)
        except BaseException:
            self.close()
            raise

    def send(self, data: bytes) -> None:
        """Send all. Raises OSError; TimeoutError at the deadline."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._finish(lambda: self._sock.send(rest), select.POLLOUT) :]  # noqa: B023 - called at once

    def next_event(self) -> Any:
        """The next event of the response. Raises as `send`, and RemoteProtocolError if it is invalid or too long."""
        while (event := self.protocol.next_event()) is h11.NEED_DATA:
            data = self._finish(lambda: self._sock.recv(16384), select.POLLIN)
            self.received += len(data)
            if not self.received:
                raise ConnectionResetError
            if self.received > MOST_BYTES:
                raise h11.RemoteProtocolError("the response is too long")
            self.protocol.receive_data(data)
        return event

    def is_reusable(self) -> bool:
        """Whether another request can be sent: the connection is open, and nothing came that was not requested."""
        if self.protocol.our_state is h11.DONE and self.protocol.their_state is h11.DONE:
            self.protocol.start_next_cycle()
        return self.protocol.our_state is h11.IDLE and not self.protocol.trailing_data[0] and not self._poll(0)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def _finish(self, operation: Callable[[], Any], event: int) -> Any:
        """What an operation of the socket returns when it does not have to wait any more, mostly for this event."""
        while True:
            if time.monotonic() >= self.until:
                raise TimeoutError
            try:
                return operation()
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            except BlockingIOError:
                pass
            self._poll(max(0.0, self.until - time.monotonic()), event)

    def _poll(self, seconds: float, event: int = select.POLLIN) -> bool:
        poll = select.poll()
        poll.register(self._sock, event)
        return bool(poll.poll(seconds * 1000))


class Sender:
    """Sends from any number of threads: call it.

    A send takes little more than `timeout` seconds. With `allow_private`, http and all addresses are allowed.
    """

    def __init__(self, *, allow_private: bool = False, timeout: float = 15.0) -> None:
        self._allow_private, self._timeout = allow_private, timeout
        self._tls = ssl.create_default_context()  # verifies names and certificates, by the system's authorities
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []  # the last used one at the end

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> DeliveryResult:
        """POST a JSON body with these headers. A redirect is not followed.

        Errors of the URL, the network or the endpoint are results. Raises LocalProtocolError for an invalid header.
        """
        until = time.monotonic() + self._timeout
        try:
            origin, target, host = self._checked(url)
            fields = {
                "Host": host,
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                "Accept-Encoding": "identity",
                "User-Agent": "Restkeeper",
                **headers,
            }
            request = h11.Request(method="POST", target=target, headers=list(fields.items()))
            if idle := self._take(origin):
                try:
                    return self._exchange(idle, request, body, until)
                except ConnectionError:  # the endpoint may have closed it, but not if a response began
                    if idle.received:
                        raise
            connection = _Connection(origin, self._connected(origin, until), until)
            if origin.is_tls:
                connection.begin_tls(self._tls)
            return self._exchange(connection, request, body, until)
        except (OSError, h11.RemoteProtocolError) as error:
            error = TimeoutError() if time.monotonic() >= until else error
            return DeliveryResult(None, _reason(error, self._timeout), None)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _checked(self, url: str) -> tuple[_Origin, str, str]:
        """Where a URL leads to, the target of the request, and its Host. Raises Refused."""
        try:
            parts = urlsplit(url)
            is_tls, host, port = parts.scheme == "https", parts.hostname or "", parts.port
            if not url.isascii() or not url.isprintable() or " " in url:
                raise ValueError
        except ValueError:
            raise Refused("refused: the URL is malformed") from None
        if not is_tls and not (self._allow_private and parts.scheme == "http"):
            raise Refused("refused: only https is allowed (WEBHOOK_ALLOW_PRIVATE)")
        if parts.username is not None or not host:
            raise Refused("refused: the URL has a user name, or no host")
        origin = _Origin(is_tls, host, port if port is not None else 443 if is_tls else 80)
        return origin, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), parts.netloc

    def _connected(self, origin: _Origin, until: float) -> socket.socket:
        """A connection to an allowed address of an origin. Raises OSError."""
        found = _resolved(origin.host, origin.port, until)
        allowed = [each for each in found if self._allow_private or is_public(str(each[4][0]))]
        if found and not allowed:
            raise Refused(f"refused: {found[0][4][0]} is not a public address (WEBHOOK_ALLOW_PRIVATE)")
        fault: OSError = socket.gaierror(socket.EAI_NONAME, "no address")
        for index, (family, kind, protocol, _, address) in enumerate(allowed):
            sock = socket.socket(family, kind, protocol)
            try:  # each address has a share of the time: a dead one does not use up all
                sock.settimeout(max(0.001, until - time.monotonic()) / (len(allowed) - index))
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setblocking(False)
                return sock
            except OSError as error:
                sock.close()
                fault = error
        raise fault

    def _take(self, origin: _Origin) -> _Connection | None:
        """An idle connection to an origin, if there is one that can be used."""
        while True:
            with self._lock:
                found = next((each for each in reversed(self._idle) if each.origin == origin), None)
                if found:
                    self._idle.remove(found)
            if found is None or (found.is_reusable() and time.monotonic() - found.idle_since < IDLE_SECONDS):
                return found
            found.close()

    def _exchange(self, connection: _Connection, request: h11.Request, body: bytes, until: float) -> DeliveryResult:
        """Send a request and read the response, at least its head; the rest may be too long or break off."""
        connection.until, connection.received = until, 0
        protocol, response, content, is_whole = connection.protocol, None, b"", False
        parts = protocol.send(request), protocol.send(h11.Data(body)), protocol.send(h11.EndOfMessage())
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have responded without reading all
                connection.send(b"".join(each or b"" for each in parts))
            while not is_whole:
                event = connection.next_event()
                if isinstance(event, h11.Response):
                    response = event
                elif isinstance(event, h11.Data):
                    content += event.data[: EXCERPT - len(content)]
                is_whole = isinstance(event, h11.EndOfMessage)
        except (OSError, h11.RemoteProtocolError):
            if response is None:
                raise
        finally:
            surplus: _Connection | None = connection
            if is_whole and connection.is_reusable():
                connection.idle_since = time.monotonic()
                with self._lock:
                    self._idle.append(connection)
                    surplus = self._idle.pop(0) if len(self._idle) > MAX_IDLE else None
            if surplus:
                surplus.close()
        assert response is not None  # noqa: S101 - no content comes before it
        retry_after = dict(response.headers).get(b"retry-after", b"").decode("latin-1")
        return DeliveryResult(response.status_code, _plain(content), _seconds(retry_after))


def _resolved(host: str, port: int, until: float) -> list[Any]:
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
    try:
        resolving.start()
    except RuntimeError:
        raise OSError("no thread is left") from None
    resolving.join(max(0.0, until - time.monotonic()))
    if resolving.is_alive():
        raise TimeoutError
    if faults:
        raise faults[0]
    return found


def _plain(content: bytes) -> str:
    """Text without control characters, safe to display."""
    text = content.decode("utf-8", "replace").replace("\r\n", "\n")
    return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in text)


def _seconds(field: str) -> float | None:
    if re.fullmatch("[0-9]{1,10}", field):
        return float(field)
    try:
        date = parsedate_to_datetime(field).replace(tzinfo=UTC)  # always UTC (RFC 9110, section 5.6.7)
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _reason(error: Exception, timeout: float) -> str:
    """Why there was no response, without text from the endpoint and without internal details."""
    match error:
        case Refused():
            return str(error)
        case TimeoutError():
            return f"timed out after {timeout:g} s"
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

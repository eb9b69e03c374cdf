"""Sending webhooks: one POST to an untrusted URL; any response or failure is a DeliveryResult."""

import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from os import strerror
from typing import NamedTuple

from urllib3.exceptions import LocationValueError
from urllib3.util import Url, parse_url

from restkeeper.features.webhooks.wire import Bounds, Connection, Refused, TlsConnection

EXCERPT = 1024  # bytes of a response's content that are stored
MAX_IDLE = 128  # idle connections for reuse, to all hosts together


class DeliveryResult(NamedTuple):
    """The result of a send: a status and the beginning of the content, or None and why there was no response.

    `retry_after` is in seconds, never negative; None if absent or malformed (RFC 9110, section 10.2.3).
    """

    status: int | None
    excerpt: str
    retry_after: float | None


class Sender:
    """Sends from any number of threads: call it; `close` it at the end.

    A send takes little more than `timeout` seconds. With `allow_private`, http and all addresses are allowed.
    """

    def __init__(self, *, allow_private: bool = False, timeout: float = 15.0) -> None:
        self._allow_private, self._timeout = allow_private, timeout
        self._tls = ssl.create_default_context()  # verifies names and certificates, by the system's authorities
        self._lock = threading.Lock()
        self._idle: list[Connection] = []  # the last used one at the end
        self._closed = False

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> DeliveryResult:
        """POST a JSON body with these headers. A redirect is not followed.

        Errors of the URL, the network or the endpoint are results. Raises ValueError for an invalid header.
        """
        bounds = Bounds(self._timeout)
        headers = {"Content-Type": "application/json", "User-Agent": "Restkeeper", **headers}
        try:
            parts = self._checked(url)
            port = parts.port if parts.port is not None else 443 if parts.scheme == "https" else 80
            place = (str(parts.scheme), str(parts.host).strip("[]"), port)
            if idle := self._take(place):
                try:
                    return self._exchange(idle, bounds, parts.request_uri, headers, body)
                except OSError as error:  # the endpoint may have closed it, but not if a response began
                    if isinstance(error, TimeoutError) or bounds.received:
                        raise
            return self._exchange(self._new(place), bounds, parts.request_uri, headers, body)
        except (OSError, HTTPException) as error:
            return DeliveryResult(None, _reason(TimeoutError() if bounds.over else error, self._timeout), None)

    def close(self) -> None:
        """Close idle connections at once, and others after their use."""
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for connection in idle:
            connection.close()

    def _checked(self, url: str) -> Url:
        try:
            parts = parse_url(url)
        except (LocationValueError, UnicodeError):
            raise Refused("refused: the URL is malformed") from None
        if parts.scheme != "https" and not (self._allow_private and parts.scheme == "http"):
            raise Refused("refused: only https is allowed (WEBHOOK_ALLOW_PRIVATE)")
        if parts.auth is not None or not parts.host:
            raise Refused("refused: the URL has a user name, or no host")
        return parts

    def _new(self, place: tuple[str, str, int]) -> Connection:
        scheme, host, port = place
        connection = TlsConnection(host, port, ssl_context=self._tls) if scheme == "https" else Connection(host, port)
        connection.place, connection.allow_private = place, self._allow_private
        return connection

    def _take(self, place: tuple[str, str, int]) -> Connection | None:
        while True:
            with self._lock:
                found = next((each for each in reversed(self._idle) if each.place == place), None)
                if found:
                    self._idle.remove(found)
            if found is None or found.is_connected:
                return found
            found.close()

    def _put_back(self, connection: Connection) -> None:
        with self._lock:
            self._idle.append(connection)
            surplus = self._idle.pop(0) if self._closed or len(self._idle) > MAX_IDLE else None
        if surplus:
            surplus.close()

    def _exchange(
        self, connection: Connection, bounds: Bounds, target: str, headers: Mapping[str, str], body: bytes
    ) -> DeliveryResult:
        connection.bounds, is_reusable = bounds, False
        try:
            with connection.limited():
                if connection.is_closed:
                    connection.connect()
                connection.request("POST", target, body, headers)
                with suppress(BrokenPipeError, ConnectionResetError):  # it may have responded without reading all
                    connection.flush()
                with connection.receive() as response:
                    content, whole = _read(response)
            is_reusable = whole and not response.will_close
            return DeliveryResult(response.status, _plain(content), _seconds(response.headers.get("Retry-After", "")))
        finally:
            if is_reusable:
                self._put_back(connection)
            else:
                connection.close()


def _read(response: HTTPResponse) -> tuple[bytes, bool]:
    """The received beginning of the content, and whether the whole content has been read."""
    content = b""
    try:
        while piece := response.read1(16384):
            content += piece[: EXCERPT - len(content)]
    except (OSError, HTTPException):  # the status is known, which is enough
        return content, False
    return content, True


def _plain(content: bytes) -> str:
    """Text without control characters, safe to display."""
    text = content.decode("utf-8", "replace").replace("\r\n", "\n")
    return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in text)


def _seconds(field: str) -> float | None:
    field = field.strip(" \t")
    if re.fullmatch("[0-9]{1,10}", field):
        return float(field)
    try:
        date = parsedate_to_datetime(field).replace(tzinfo=UTC)  # always UTC (RFC 9110, section 5.6.7)
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _reason(error: OSError | HTTPException, timeout: float) -> str:
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

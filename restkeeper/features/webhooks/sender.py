"""Sending webhooks: one POST to an untrusted URL; any response or failure is a DeliveryResult."""

import re
import ssl
import threading
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import h11

from restkeeper.net import is_public
from restkeeper.web.client import ERRORS, AddressNotAllowed, Connection, Origin, reason, request_of, target_of

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


class Sender:
    """Sends from any number of threads: call it.

    A send takes little more than `timeout` seconds. With `allow_private`, http and all addresses are allowed.
    """

    def __init__(self, *, allow_private: bool = False, timeout: float = 15.0) -> None:
        self._allow_private, self._timeout = allow_private, timeout
        self._tls = ssl.create_default_context()  # verifies names and certificates, by the system's authorities
        self._lock = threading.Lock()
        self._idle: list[Connection] = []  # the last used one at the end

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> DeliveryResult:
        """POST a JSON body with these headers. A redirect is not followed.

        Errors of the URL, the network or the endpoint are results. Raises LocalProtocolError for an invalid header.
        """
        until = time.monotonic() + self._timeout
        try:
            if not url.lower().startswith(("https:", "http:") if self._allow_private else "https:"):
                raise AddressNotAllowed("refused: only https is allowed (WEBHOOK_ALLOW_PRIVATE)")
            target = target_of(url)
            fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
            request = request_of("POST", target, fields)
            if idle := self._take(target.origin):
                try:
                    return self._exchange(idle, request, body, until)
                except ConnectionError:  # the endpoint may have closed it, but not if a response began
                    if idle.received:
                        raise
            connection = Connection(target.origin, until, self._tls, MOST_BYTES, self._allowed)
            return self._exchange(connection, request, body, until)
        except ERRORS as error:
            error = TimeoutError() if time.monotonic() >= until else error
            return DeliveryResult(None, reason(error, self._timeout), None)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _allowed(self, addresses: list[str]) -> list[str]:
        allowed = [each for each in addresses if self._allow_private or is_public(each)]
        if addresses and not allowed:
            raise AddressNotAllowed(f"refused: {addresses[0]} is not a public address (WEBHOOK_ALLOW_PRIVATE)")
        return allowed

    def _take(self, origin: Origin) -> Connection | None:
        """An idle connection to an origin, if there is one that can be used."""
        while True:
            with self._lock:
                found = next((each for each in reversed(self._idle) if each.origin == origin), None)
                if found:
                    self._idle.remove(found)
            if found is None or (found.is_reusable() and time.monotonic() - found.idle_since < IDLE_SECONDS):
                return found
            found.close()

    def _exchange(self, connection: Connection, request: h11.Request, body: bytes, until: float) -> DeliveryResult:
        """Send a request and read the response; then the connection is idle or closed."""
        surplus: Connection | None = connection
        try:
            response = connection.exchange(request, body, until, EXCERPT)
            if response.is_whole and connection.is_reusable():
                connection.idle_since = time.monotonic()
                with self._lock:
                    self._idle.append(connection)
                    surplus = self._idle.pop(0) if len(self._idle) > MAX_IDLE else None
        finally:
            if surplus:
                surplus.close()
        retry_after = response.headers.get(b"retry-after", b"").decode("latin-1")
        return DeliveryResult(response.status, _plain(response.content), _seconds(retry_after))


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

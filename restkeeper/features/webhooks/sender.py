"""Sending webhooks: one POST to an untrusted URL; any response or failure is a DeliveryResult.

How the message is signed, and what the response means, is of Standard Webhooks 1.0.0:
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import hmac
import logging
import re
import ssl
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import h11

from restkeeper.features.webhooks.addresses import is_public
from restkeeper.storage.deliveries import LONGEST_PAUSE, Attempt, Delivery
from restkeeper.web.client import ERRORS, AddressNotAllowed, Connection, Origin, reason, request_of, target_of

EXCERPT = 1024  # bytes of a response's content that are stored
MOST_BYTES = 128 * 1024  # of a response with its head; more ends the connection
MAX_IDLE = 128  # idle connections for reuse, to all hosts together
IDLE_SECONDS = 30.0  # for which one may be idle: what is between forgets connections silently, and addresses change

PREFIX = "whsec_"
JITTER = 0.2  # of a delay, at most, is added at random: simultaneous failures are not retried simultaneously
GONE = 410  # the endpoint wants no more messages

_log = logging.getLogger("restkeeper")


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
        allowed = [address for address in addresses if self._allow_private or is_public(address)]
        if addresses and not allowed:
            raise AddressNotAllowed(f"refused: {addresses[0]} is not a public address (WEBHOOK_ALLOW_PRIVATE)")
        return allowed

    def _take(self, origin: Origin) -> Connection | None:
        """An idle connection to an origin, if there is one that can be used."""
        while True:
            with self._lock:
                idle = next((idle for idle in reversed(self._idle) if idle.origin == origin), None)
                if idle:
                    self._idle.remove(idle)
            if idle is None or (idle.is_reusable() and time.monotonic() - idle.idle_since < IDLE_SECONDS):
                return idle
            idle.close()

    def _exchange(self, connection: Connection, request: h11.Request, body: bytes, until: float) -> DeliveryResult:
        """Send a request and read the response; then the connection is idle or closed."""
        surplus: Connection | None = connection
        try:
            response = connection.exchange(request, body, until, EXCERPT)
            if response.is_complete and connection.is_reusable():
                connection.idle_since = time.monotonic()
                with self._lock:
                    self._idle.append(connection)
                    surplus = self._idle.pop(0) if len(self._idle) > MAX_IDLE else None
        finally:
            if surplus:
                surplus.close()
        retry_after = response.headers.get(b"retry-after", b"").decode("latin-1")
        text = response.content.decode("utf-8", "replace").replace("\r\n", "\n")
        excerpt = "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
        return DeliveryResult(response.status, excerpt, _seconds(retry_after))


def _seconds(field: str) -> float | None:
    if re.fullmatch("[0-9]{1,10}", field):
        return float(field)
    try:
        date = parsedate_to_datetime(field).replace(tzinfo=UTC)  # always UTC (RFC 9110, section 5.6.7)
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def signed(id: str, body: bytes, secrets: Sequence[str], *, now: float) -> dict[str, str]:
    """The headers with a message's id, the time of sending (`now`, in Unix seconds) and the signatures.

    There is one signature for each secret: after a rotation the receiver can change to the new one at any time. An id
    must not contain the separator, a full stop. Raises ValueError for a secret that is not base64.
    """
    timestamp = str(int(now))
    content = b".".join((id.encode(), timestamp.encode(), body))
    keys = (b64decode(secret.removeprefix(PREFIX), validate=True) for secret in secrets)
    signatures = (f"v1,{b64encode(hmac.digest(key, content, 'sha256')).decode()}" for key in keys)
    return {"webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": " ".join(signatures)}


def attempt_of(
    delivery: Delivery, result: DeliveryResult, *, began: float, at: float, retries: Sequence[float], chance: float
) -> Attempt:
    """The attempt with this result, which lasted from `began` to `at`, in seconds since 1970.

    `retries` are the seconds from each failure to the next attempt, `chance` is from 0 to 1. A delivery on request has
    one attempt. Nothing is sent to an endpoint before its `Retry-After` (RFC 9110, section 10.2.3) is over.
    """
    status, excerpt, retry_after = result
    if status is not None and 200 <= status < 300:
        return Attempt(delivery, at, True, status, at - began, excerpt)
    if status is not None and 300 <= status < 400:
        excerpt = excerpt or "redirects are not followed"
    attempt = f"attempt {delivery.attempts + 1}: {status or excerpt}"
    _log.info("webhook %s: %s: %s", delivery.webhook, delivery.event.id, attempt)
    pause = min(retry_after or 0.0, LONGEST_PAUSE)
    next = None
    if not delivery.manual and status != GONE and delivery.attempts < len(retries):
        next = at + max(retries[delivery.attempts] * (1 + JITTER * chance), pause)
    return Attempt(delivery, at, False, status, at - began, excerpt, next, hold=at + pause if pause else 0.0)


def must_disable(attempt: Attempt) -> bool:
    """Whether to disable the webhook: its endpoint is gone, or all attempts have failed."""
    return attempt.is_final and (attempt.status == GONE or not attempt.delivery.manual)


def reason_of(attempt: Attempt) -> str:
    """The reason for disabling, in words."""
    if attempt.status == GONE:
        return "410 Gone"
    attempts, event = attempt.delivery.attempts + 1, attempt.delivery.event.id
    return f"{attempts} attempts at {event} failed, the last with: {attempt.status or attempt.excerpt}"

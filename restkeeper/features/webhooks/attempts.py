"""An attempt at a delivery as Standard Webhooks 1.0.0 has it: how the message is signed, and what the response means.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import hmac
import logging
from base64 import b64decode, b64encode
from collections.abc import Sequence

from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.storage.outbox import LONGEST_PAUSE, Attempt, Delivery

PREFIX = "whsec_"
JITTER = 0.2  # of a delay, at most, is added at random: simultaneous failures are not retried simultaneously
GONE = 410  # the endpoint wants no more messages

_log = logging.getLogger("restkeeper")


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

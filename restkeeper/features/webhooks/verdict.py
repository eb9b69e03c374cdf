"""The meaning of an endpoint's response: success, retry, or disable the webhook (Standard Webhooks 1.0.0)."""

import logging
from collections.abc import Sequence

from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.storage.outbox import LONGEST_PAUSE, Attempt, Delivery

JITTER = 0.2  # of a delay, at most, is added at random: simultaneous failures are not retried simultaneously
GONE = 410  # the endpoint wants no more messages

_log = logging.getLogger("restkeeper")


def verdict(
    delivery: Delivery, result: DeliveryResult, *, began: float, at: float, retries: Sequence[float], chance: float
) -> Attempt:
    """The attempt with this result, which lasted from `began` to `at`, in seconds since 1970.

    `retries` are the seconds from each failure to the next attempt, `chance` is from 0 to 1. A delivery on request has
    one attempt. Nothing is sent to an endpoint before its `Retry-After` (RFC 9110, section 10.2.3) is over.
    """
    seconds = at - began
    if result.status is not None and 200 <= result.status < 300:
        return Attempt(delivery, at, True, result.status, seconds, result.excerpt)
    excerpt = result.excerpt
    if result.status is not None and 300 <= result.status < 400:
        excerpt = excerpt or "redirects are not followed"
    text = result.status or excerpt
    _log.info("webhook %s: %s: attempt %d: %s", delivery.webhook, delivery.event.id, delivery.attempts + 1, text)
    pause = min(result.retry_after or 0.0, LONGEST_PAUSE)
    next = None
    if not delivery.manual and result.status != GONE and delivery.attempts < len(retries):
        next = at + max(retries[delivery.attempts] * (1 + JITTER * chance), pause)
    return Attempt(delivery, at, False, result.status, seconds, excerpt, next, hold=at + pause if pause else 0.0)


def must_disable(attempt: Attempt) -> bool:
    """Whether to disable the webhook: its endpoint is gone, or all attempts have failed."""
    return attempt.is_final and (attempt.status == GONE or not attempt.delivery.manual)


def reason_of(attempt: Attempt) -> str:
    """The reason for disabling, in words."""
    if attempt.status == GONE:
        return "410 Gone"
    attempts, event = attempt.delivery.attempts + 1, attempt.delivery.event.id
    return f"{attempts} attempts at {event} failed, the last with: {attempt.status or attempt.excerpt}"

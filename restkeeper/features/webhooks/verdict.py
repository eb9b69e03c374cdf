"""What an endpoint's answer means: success, another try, or the end (Standard Webhooks 1.0.0)."""

import logging
from collections.abc import Sequence

from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.storage.outbox import LONGEST_PAUSE, Attempt, Delivery

JITTER = 0.2  # of a delay, at most, is added by chance: who failed together does not come back together
GONE = 410  # send no more

_log = logging.getLogger("restkeeper")


def verdict(
    delivery: Delivery, answer: DeliveryResult, *, began: float, at: float, retries: Sequence[float], chance: float
) -> Attempt:
    """What came of a try that lasted from one time to another, in seconds since 1970.

    `retries` are the seconds from each failure to the next try, `chance` is from 0 to 1. What was asked for by hand is
    tried once. An endpoint that says when to come again (RFC 9110, section 10.2.3) is sent nothing before.
    """
    took = at - began
    if answer.status is not None and 200 <= answer.status < 300:
        return Attempt(delivery, at, True, answer.status, took, answer.excerpt)
    excerpt = answer.excerpt
    if answer.status is not None and 300 <= answer.status < 400:
        excerpt = excerpt or "redirects are not followed"
    told = answer.status or excerpt
    _log.info("webhook %s: %s: try %d: %s", delivery.webhook, delivery.event.id, delivery.attempts + 1, told)
    pause = min(answer.retry_after or 0.0, LONGEST_PAUSE)
    next = None
    if not delivery.asked and answer.status != GONE and delivery.attempts < len(retries):
        next = at + max(retries[delivery.attempts] * (1 + JITTER * chance), pause)
    return Attempt(delivery, at, False, answer.status, took, excerpt, next, hold=at + pause if pause else 0.0)


def is_the_end(tried: Attempt) -> bool:
    """Whether nothing more is to be sent there: it is gone, or failed to the end of the schedule."""
    return tried.is_final and (tried.status == GONE or not tried.delivery.asked)


def reason_of(tried: Attempt) -> str:
    """Why it is the end, in words."""
    if tried.status == GONE:
        return "410 Gone"
    attempts, event = tried.delivery.attempts + 1, tried.delivery.event.id
    return f"{attempts} attempts at {event} failed, the last with: {tried.status or tried.excerpt}"

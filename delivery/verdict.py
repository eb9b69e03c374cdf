"""What an endpoint's answer means: success, another try, or the end (Standard Webhooks 1.0.0)."""

import logging
from collections.abc import Sequence

import orjson

from clock import rfc3339
from delivery.sender import Answer
from errors import NotFound
from storage.contract import Transaction
from storage.outbox import Delivery, Event, Try

JITTER = 0.2  # of a delay, at most, is added by chance: who failed together does not come back together
LONGEST_PAUSE = 86_400.0  # seconds that an endpoint may ask for (Retry-After)
GONE = 410  # send no more

WEBHOOKS = "webhooks"

_log = logging.getLogger("restkeeper")


def verdict(
    delivery: Delivery, answer: Answer, *, began: float, at: float, retries: Sequence[float], chance: float
) -> Try:
    """What came of a try that lasted from one time to another, in seconds since 1970.

    `retries` are the seconds from each failure to the next try, `chance` is from 0 to 1. What was asked for by hand is
    tried once. An endpoint that says when to come again (RFC 9110, section 10.2.3) is sent nothing before.
    """
    took = at - began
    if answer.status is not None and 200 <= answer.status < 300:
        return Try(delivery, at, True, answer.status, took, answer.excerpt)
    told = answer.status or answer.excerpt
    _log.info("webhook %s: %s: try %d: %s", delivery.webhook, delivery.event.id, delivery.tries + 1, told)
    pause = min(answer.retry_after or 0.0, LONGEST_PAUSE)
    next = None
    if not delivery.asked and answer.status != GONE and delivery.tries < len(retries):
        next = at + max(retries[delivery.tries] * (1 + JITTER * chance), pause)
    return Try(delivery, at, False, answer.status, took, answer.excerpt, next, hold=at + pause if pause else 0.0)


def is_the_end(tried: Try) -> bool:
    """Whether nothing more is to be sent there: it is gone, or failed to the end of the schedule."""
    return tried.is_final and (tried.status == GONE or not tried.delivery.asked)


def disable(transaction: Transaction, tried: Try, now: float) -> None:
    """Send nothing more to the endpoint of a try, and record that as an event."""
    at, id = rfc3339(now), tried.delivery.webhook
    try:
        record = transaction.read(WEBHOOKS, id)
    except NotFound:
        return
    webhook = orjson.loads(record.body)
    if webhook["status"] != "active":
        return
    webhook |= {"status": "disabled", "updated_at": at, "version": record.version + 1}
    transaction.update(WEBHOOKS, record._replace(version=record.version + 1, updated_at=at, body=orjson.dumps(webhook)))
    reason = _reason(tried)
    transaction.record(Event("webhook.disabled", WEBHOOKS, id, at, orjson.dumps(webhook | {"reason": reason})))
    _log.warning("webhook %s is disabled: %s", id, reason)


def _reason(tried: Try) -> str:
    if tried.status == GONE:
        return "410 Gone"
    return f"{tried.delivery.tries + 1} tries of {tried.delivery.event.id} failed"

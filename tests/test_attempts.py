"""An attempt: signed so that the library of Standard Webhooks verifies it, and what a response to it means."""

import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from restkeeper.features.webhooks.handlers import new_secret
from restkeeper.features.webhooks.sender import DeliveryResult, attempt_of, must_disable, reason_of, signed
from restkeeper.storage.deliveries import Attempt, Delivery
from restkeeper.storage.feed import StoredEvent

BODY = '{"word": "größer"}'.encode()
SECRET = new_secret()
BEGAN, AT = 1_000.0, 1_002.5
RETRIES = (10.0, 100.0, 1_000.0)
DAY = 86_400.0
EVENT = StoredEvent("e1", "product.created", "2026-01-01T00:00:00.000000Z", b"{}")


def attempt(
    status: int | None = 503,
    *,
    attempts: int = 0,
    manual: bool = False,
    retry_after: float | None = None,
    chance: float = 0.0,
    excerpt: str = "busy",
) -> Attempt:
    """The attempt with this response, after this number of earlier ones."""
    delivery = Delivery(1, 2, "w1", manual, attempts, EVENT)
    result = DeliveryResult(status, excerpt, retry_after)
    return attempt_of(delivery, result, began=BEGAN, at=AT, retries=RETRIES, chance=chance)


def test_a_changed_or_old_message_is_refused() -> None:
    """The signature covers the body, the id and the time, which is the given one."""
    now = time.time()
    headers = signed("msg_1", BODY, [SECRET], now=now)
    changes = {"webhook-id": "msg_2", "webhook-timestamp": str(int(now) - 60)}
    for body, changed in [(BODY + b" ", headers), *((BODY, headers | {name: changes[name]}) for name in changes)]:
        with pytest.raises(WebhookVerificationError, match="No matching"):
            Webhook(SECRET).verify(body, changed)
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(SECRET).verify(BODY, signed("msg_1", BODY, [SECRET], now=now - 600))


def test_headers_follow_the_specification() -> None:
    """The expected values were computed elsewhere (openssl dgst -sha256 -mac HMAC)."""
    assert signed("msg_1", b"{}", ["whsec_" + "A" * 43 + "="], now=1700000000.9) == {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": "v1,LzeNxZHo3O8fwpFJpLh/0B99ugILNFJw+/9lTgx0APs=",
    }


def test_every_2xx_is_success() -> None:
    """The delivery is done, and nothing waits; the excerpt is stored."""
    for status in (200, 204, 299):
        tried = attempt(status, manual=status == 204, attempts=3, retry_after=60)
        assert tried == Attempt(tried.delivery, AT, True, status, AT - BEGAN, "busy", None, 0.0)
        assert not must_disable(tried)


def test_all_other_statuses_are_retried() -> None:
    """No status but 410 ends a delivery before its schedule does; a redirect without content is explained."""
    for status in (None, 100, 199, 300, 304, 399, 400, 404, 409, 411, 429, 500, 599):
        tried = attempt(status)
        assert (tried.succeeded, tried.next, tried.is_final, must_disable(tried)) == (False, AT + 10, False, False)
        assert (tried.status, tried.at, tried.seconds) == (status, AT, 2.5)
        is_redirect = status is not None and 300 <= status < 400
        assert attempt(status, excerpt="").excerpt == ("redirects are not followed" if is_redirect else "")
    assert attempt(302, excerpt="moved").excerpt == "moved"


def test_retry_after_is_limited_to_a_day() -> None:
    """The next attempt is not before that time, and no other delivery goes there until then, also after the last.

    A random fifth, at most, is added to the delay of the schedule.
    """
    for retry_after, after, hold in (
        (None, 12.0, 0.0),
        (0.0, 12.0, 0.0),
        (1.0, 12.0, 1.0),  # the schedule is later
        (12.5, 12.5, 12.5),
        (DAY, DAY, DAY),
        (DAY + 1, DAY, DAY),  # a longer wait is not possible
    ):
        tried = attempt(retry_after=retry_after, chance=1.0)
        assert tried.next == pytest.approx(AT + after), retry_after
        assert tried.hold == attempt(attempts=3, retry_after=retry_after).hold == (AT + hold if hold else 0.0)


def test_the_last_failure_disables_the_webhook() -> None:
    """The reason has the number of attempts and the last result. 410 is never retried."""
    for attempts in (3, 4):
        for status, last in ((503, "503"), (None, "no address")):
            tried = attempt(status, attempts=attempts, excerpt="no address")
            assert (tried.next, must_disable(tried)) == (None, True)
            assert reason_of(tried) == f"{attempts + 1} attempts at e1 failed, the last with: {last}"
    for manual in (False, True):
        tried = attempt(410, manual=manual)
        assert (tried.next, tried.is_final, must_disable(tried)) == (None, True, True)
        assert reason_of(tried) == "410 Gone"


def test_a_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With its webhook, its event, the number of the attempt, and the result."""
    with caplog.at_level("INFO", "restkeeper"):
        attempt(503, attempts=1)
        attempt(None, excerpt="no address")
        attempt(204)
    assert caplog.messages == ["webhook w1: e1: attempt 2: 503", "webhook w1: e1: attempt 1: no address"]

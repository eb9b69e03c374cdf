"""The verdict on an endpoint's response: success, another attempt at a time, or the end."""

import pytest

from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.features.webhooks.verdict import must_disable, reason_of, verdict
from restkeeper.storage.outbox import Attempt, Delivery, StoredEvent

BEGAN, AT = 1_000.0, 1_002.5
RETRIES = (10.0, 100.0, 1_000.0)
DAY = 86_400.0
EVENT = StoredEvent("e1", "product.created", "2026-01-01T00:00:00.000000Z", b"{}")


def verdict_of(
    status: int | None = 503,
    *,
    attempts: int = 0,
    manual: bool = False,
    retry_after: float | None = None,
    chance: float = 0.0,
    excerpt: str = "busy",
) -> Attempt:
    """The verdict on this response, after this number of earlier attempts."""
    delivery = Delivery(1, 2, "w1", manual, attempts, EVENT)
    return verdict(
        delivery, DeliveryResult(status, excerpt, retry_after), began=BEGAN, at=AT, retries=RETRIES, chance=chance
    )


@pytest.mark.parametrize("status", [200, 204, 299])
@pytest.mark.parametrize("manual", [False, True])
def test_every_2xx_is_success(status: int, manual: bool) -> None:
    """The delivery is done, and nothing waits; the excerpt is stored."""
    tried = verdict_of(status, manual=manual, attempts=3, retry_after=60)
    assert tried == Attempt(tried.delivery, AT, True, status, AT - BEGAN, "busy", None, 0.0)
    assert not must_disable(tried)


@pytest.mark.parametrize("status", [None, 100, 199, 300, 304, 399, 400, 404, 409, 411, 429, 500, 599])
def test_all_other_statuses_are_retried(status: int | None) -> None:
    """No status but 410 ends a delivery before its schedule does."""
    tried = verdict_of(status)
    assert (tried.succeeded, tried.next, tried.is_final, must_disable(tried)) == (False, AT + 10, False, False)
    assert (tried.status, tried.at, tried.seconds) == (status, AT, 2.5)


@pytest.mark.parametrize(("attempts", "after"), [(0, 10.0), (1, 100.0), (2, 1_000.0), (3, None), (4, None)])
def test_each_failure_has_its_delay(attempts: int, after: float | None) -> None:
    """The delays of the schedule are counted from the end of each attempt; after the last attempt there is none."""
    tried = verdict_of(attempts=attempts)
    assert tried.next == (None if after is None else AT + after)
    assert must_disable(tried) is (after is None)


@pytest.mark.parametrize(("chance", "after"), [(0.0, 100.0), (0.5, 110.0), (1.0, 120.0)])
def test_jitter_adds_up_to_a_fifth(chance: float, after: float) -> None:
    """It spreads deliveries that failed together: never earlier than the schedule, at most a fifth later."""
    assert verdict_of(attempts=1, chance=chance).next == pytest.approx(AT + after)


@pytest.mark.parametrize(
    ("retry_after", "after", "hold"),
    [
        (None, 12.0, 0.0),
        (0.0, 12.0, 0.0),
        (1.0, 12.0, 1.0),  # the schedule is later
        (12.5, 12.5, 12.5),
        (3_600.0, 3_600.0, 3_600.0),
        (DAY, DAY, DAY),
        (DAY + 1, DAY, DAY),  # a longer wait is not possible
        (1e12, DAY, DAY),
    ],
)
def test_retry_after_is_limited_to_a_day(retry_after: float | None, after: float, hold: float) -> None:
    """The next attempt is not before that time, and no other delivery goes there until then."""
    tried = verdict_of(retry_after=retry_after, chance=1.0)
    assert tried.next == pytest.approx(AT + after)
    assert tried.hold == (AT + hold if hold else 0.0)


def test_retry_after_counts_also_for_the_last_attempt() -> None:
    """The endpoint's other deliveries wait for it."""
    tried = verdict_of(attempts=3, retry_after=60)
    assert (tried.next, tried.hold) == (None, AT + 60)


@pytest.mark.parametrize("manual", [False, True])
def test_410_disables_the_webhook(manual: bool) -> None:
    """It is never retried, also for a manual delivery."""
    tried = verdict_of(410, manual=manual)
    assert (tried.next, tried.is_final, must_disable(tried)) == (None, True, True)
    assert reason_of(tried) == "410 Gone"


def test_a_manual_delivery_is_not_retried() -> None:
    """Its failure does not disable the webhook."""
    tried = verdict_of(manual=True)
    assert (tried.next, tried.is_final, must_disable(tried)) == (None, True, False)


@pytest.mark.parametrize(
    ("status", "excerpt", "stored_excerpt"),
    [
        (302, "", "redirects are not followed"),
        (302, "moved", "moved"),
        (300, "", "redirects are not followed"),
        (399, "", "redirects are not followed"),
        (400, "", ""),
        (None, "no address", "no address"),
    ],
)
def test_a_redirect_is_explained(status: int | None, excerpt: str, stored_excerpt: str) -> None:
    """Without content, the stored excerpt says why it failed; otherwise it is the content."""
    assert verdict_of(status, excerpt=excerpt).excerpt == stored_excerpt


@pytest.mark.parametrize(("status", "last"), [(503, "503"), (None, "no address")])
def test_the_end_has_its_reason(status: int | None, last: str) -> None:
    """The number of attempts and the last result."""
    tried = verdict_of(status, attempts=3, excerpt="no address")
    assert must_disable(tried) and reason_of(tried) == f"4 attempts at e1 failed, the last with: {last}"


def test_a_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With its webhook, its event, the number of the attempt, and the result."""
    with caplog.at_level("INFO", "restkeeper"):
        verdict_of(503, attempts=1)
        verdict_of(None, excerpt="no address")
        verdict_of(204)
    assert caplog.messages == ["webhook w1: e1: attempt 2: 503", "webhook w1: e1: attempt 1: no address"]

"""What an endpoint's answer leads to: when the next try is, and until when nothing is sent."""

import pytest

from delivery.sender import Answer
from delivery.verdict import JITTER, LONGEST_PAUSE, verdict
from storage.outbox import Attempt, Delivery, Recorded

AT = 1_000_000.0
RETRIES = (10.0, 100.0)


def tried(answer: Answer, *, attempts: int = 0, chance: float = 0.0) -> Attempt:
    event = Recorded("evt_00000000_1", "product.created", "2001-01-01T00:00:00.000000Z", b"{}")
    delivery = Delivery(1, 1, "webhook", asked=False, attempts=attempts, event=event)
    return verdict(delivery, answer, began=AT - 1, at=AT, retries=RETRIES, chance=chance)


@pytest.mark.parametrize(("asked", "pause"), [(50.0, 50.0), (LONGEST_PAUSE, LONGEST_PAUSE), (1e9, LONGEST_PAUSE)])
def test_an_endpoint_may_ask_for_a_day_at_most(asked: float, pause: float) -> None:
    """Retry-After puts off the next try and all others, but no longer than a day."""
    attempt = tried(Answer(503, "", asked))
    assert (attempt.next, attempt.hold) == (AT + pause, AT + pause)


def test_what_is_asked_for_makes_no_try_earlier() -> None:
    """The schedule holds where it is the later one."""
    attempt = tried(Answer(503, "", 5.0))
    assert (attempt.next, attempt.hold) == (AT + 10.0, AT + 5.0)


@pytest.mark.parametrize(("attempts", "delay"), [(0, 10.0), (1, 100.0)])
def test_chance_spreads_the_next_tries(attempts: int, delay: float) -> None:
    """To each delay of the schedule up to a fifth is added, by chance, and nothing is taken from it."""
    found = [tried(Answer(500, "", None), attempts=attempts, chance=chance).next for chance in (0.0, 0.5, 1.0)]
    assert found == pytest.approx([AT + delay, AT + 1.1 * delay, AT + 1.2 * delay])
    assert JITTER == 0.2


def test_after_the_schedule_there_is_no_next_try() -> None:
    """The last failure is the end, whatever the endpoint asks for."""
    assert tried(Answer(500, "", 5.0), attempts=len(RETRIES)).next is None

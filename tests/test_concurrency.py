"""The limit of concurrent deliveries, in total and to each endpoint."""

from restkeeper.features.webhooks.concurrency import (
    AT_ONCE,
    ENDPOINT_AT_ONCE,
    SLOW_AT_ONCE,
    SLOW_SECONDS,
    ConcurrencyLimit,
)

MOST = 10_000


def occupied(*webhooks: str, since: float = 0.0) -> ConcurrencyLimit:
    """A limit with one running delivery to each of these webhooks, started at `since`."""
    limit = ConcurrencyLimit()
    for n, webhook in enumerate(webhooks):
        limit.begin((n, 1), webhook, since)
    return limit


def successful(webhook: str) -> ConcurrencyLimit:
    """A limit with many quick successes of one webhook."""
    limit = ConcurrencyLimit()
    for n in range(ENDPOINT_AT_ONCE):
        limit.begin((n, 1), webhook, 0.0)
        limit.end((n, 1), succeeded=True, seconds=0.01)
    return limit


def test_an_endpoint_begins_with_one() -> None:
    """Before its first result, an endpoint gets one delivery at a time."""
    assert ConcurrencyLimit().free(["a"], 0.0, MOST) == {"a": 1}
    assert occupied("a").free(["a"], 0.0, MOST) == {}


def test_success_raises_the_limit_up_to_a_maximum() -> None:
    """Each success allows one more concurrent delivery."""
    limit = ConcurrencyLimit()
    free = []
    for n in range(ENDPOINT_AT_ONCE + 2):
        limit.begin((n, 1), "a", 0.0)
        limit.end((n, 1), succeeded=True, seconds=0.01)
        free.append(limit.free(["a"], 0.0, MOST)["a"])
    assert free == [2, 3, 4, 5, 6, 7, 8, 8, 8, 8]


def test_a_failure_resets_the_limit_to_one() -> None:
    """The failing endpoint gets one delivery at a time again."""
    limit = successful("a")
    limit.begin((99, 1), "a", 0.0)
    limit.end((99, 1), succeeded=False, seconds=0.01)
    limit.end((99, 1), succeeded=True, seconds=0.01)
    assert limit.free(["a"], 0.0, MOST) == {"a": 1} and limit.under_way == 0, "a second end has no effect"


def test_slow_endpoints_leave_room_for_others() -> None:
    """They use only a part of the total, however many they are."""
    slow = [f"slow{n}" for n in range(2 * AT_ONCE)]
    limit = occupied(*slow[:SLOW_AT_ONCE])
    late = SLOW_SECONDS + 0.1
    limit.begin((-1, 1), "failed", 0.0)
    limit.end((-1, 1), succeeded=False, seconds=0.01)
    assert limit.free(["failed"], late, MOST) == {}, "failed and slow endpoints share one part"
    free = limit.free(slow[SLOW_AT_ONCE:], late, MOST)
    assert sum(free.values()) == AT_ONCE - SLOW_AT_ONCE, "they are not known to be slow"
    assert occupied(*slow[:SLOW_AT_ONCE]).free(["a", "b"], late, MOST) == {"a": 1, "b": 1}


def test_a_quick_success_ends_being_slow() -> None:
    """After a quick success an endpoint is not slow any more."""
    limit = occupied(*(f"slow{n}" for n in range(SLOW_AT_ONCE - 1)))
    limit.begin((-1, 1), "a", 0.0)
    limit.end((-1, 1), succeeded=True, seconds=SLOW_SECONDS)
    late = SLOW_SECONDS + 0.1
    assert limit.free(["a"], late, MOST) == {"a": 1}, "the last place for slow endpoints"
    limit.begin((-2, 1), "a", 0.0)
    limit.end((-2, 1), succeeded=True, seconds=0.1)
    assert limit.free(["a"], late, MOST) == {"a": 3}


def test_slow_means_longer_than_slow_seconds() -> None:
    """A delivery that has run for exactly SLOW_SECONDS is not yet slow."""
    slow = occupied(*(f"slow{n}" for n in range(SLOW_AT_ONCE)), since=50.0)
    slow.begin((-1, 1), "failed", 50.0)
    slow.end((-1, 1), succeeded=False, seconds=0.01)
    assert slow.free(["failed"], 50.0 + SLOW_SECONDS, MOST) == {"failed": 1}
    assert slow.free(["failed"], 50.0 + SLOW_SECONDS * 1.01, MOST) == {}


def test_a_slow_place_is_counted_once() -> None:
    """Each place for a slow endpoint reduces the part of the slow ones, and the total only once."""
    limit = occupied(*(f"slow{n}" for n in range(SLOW_AT_ONCE - 2)))
    for n, webhook in enumerate(["one", "two", "three"]):
        limit.begin((-n, 2), webhook, 0.0)
        limit.end((-n, 2), succeeded=False, seconds=0.01)
    late = SLOW_SECONDS + 0.1
    assert limit.free(["one", "new", "two", "three", "newer"], late, MOST) == {"one": 1, "new": 1, "two": 1, "newer": 1}
    assert limit.free(["new", "one", "two"], late, 2) == {"new": 1, "one": 1}


def test_one_transaction_leases_a_limited_number() -> None:
    """Places are given in the order of the webhooks."""
    assert successful("a").free(["b", "a", "c"], 0.0, 4) == {"b": 1, "a": 3}

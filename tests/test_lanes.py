"""How many deliveries go to whom at a time."""

from restkeeper.features.webhooks.lanes import AT_ONCE, LANES, SLOW_AT_ONCE, SLOW_SECONDS, Lanes

MOST = 10_000


def occupied(*webhooks: str, since: float = 0.0) -> Lanes:
    """Lanes with a delivery under way to each of these."""
    lanes = Lanes()
    for n, webhook in enumerate(webhooks):
        lanes.begin((n, 1), webhook, since)
    return lanes


def proven(webhook: str) -> Lanes:
    """Lanes of one endpoint that has taken many quickly."""
    lanes = Lanes()
    for n in range(LANES):
        lanes.begin((n, 1), webhook, 0.0)
        lanes.end((n, 1), succeeded=True, seconds=0.01)
    return lanes


def test_an_endpoint_begins_with_one() -> None:
    """Nobody knows yet what it is like."""
    assert Lanes().free(["a"], 0.0, MOST) == {"a": 1}
    assert occupied("a").free(["a"], 0.0, MOST) == {}


def test_success_opens_lanes_up_to_a_bound() -> None:
    """One more each time."""
    lanes = Lanes()
    free = []
    for n in range(LANES + 2):
        lanes.begin((n, 1), "a", 0.0)
        lanes.end((n, 1), succeeded=True, seconds=0.01)
        free.append(lanes.free(["a"], 0.0, MOST)["a"])
    assert free == [2, 3, 4, 5, 6, 7, 8, 8, 8, 8]


def test_a_failure_leaves_one() -> None:
    """However many there were."""
    lanes = proven("a")
    lanes.begin((99, 1), "a", 0.0)
    lanes.end((99, 1), succeeded=False, seconds=0.01)
    lanes.end((99, 1), succeeded=True, seconds=0.01)
    assert lanes.free(["a"], 0.0, MOST) == {"a": 1} and lanes.under_way == 0, "an end that is told twice is one"


def test_slow_ones_leave_room_for_others() -> None:
    """As many as there are, those under way for long take a part of all there is."""
    slow = [f"slow{n}" for n in range(2 * AT_ONCE)]
    lanes = occupied(*slow[:SLOW_AT_ONCE])
    late = SLOW_SECONDS + 0.1
    lanes.begin((-1, 1), "failed", 0.0)
    lanes.end((-1, 1), succeeded=False, seconds=0.01)
    assert lanes.free(["failed"], late, MOST) == {}, "what failed shares with what is slow"
    free = lanes.free(slow[SLOW_AT_ONCE:], late, MOST)
    assert sum(free.values()) == AT_ONCE - SLOW_AT_ONCE, "nobody knows yet that they are slow"
    assert occupied(*slow[:SLOW_AT_ONCE]).free(["a", "b"], late, MOST) == {"a": 1, "b": 1}


def test_one_that_was_slow_is_quick_again_when_it_is() -> None:
    """A quick success takes it out of those that share."""
    lanes = occupied(*(f"slow{n}" for n in range(SLOW_AT_ONCE - 1)))
    lanes.begin((-1, 1), "a", 0.0)
    lanes.end((-1, 1), succeeded=True, seconds=SLOW_SECONDS)
    late = SLOW_SECONDS + 0.1
    assert lanes.free(["a"], late, MOST) == {"a": 1}, "the last place of those that share"
    lanes.begin((-2, 1), "a", 0.0)
    lanes.end((-2, 1), succeeded=True, seconds=0.1)
    assert lanes.free(["a"], late, MOST) == {"a": 3}


def test_late_is_longer_than_so_long() -> None:
    """One that is under way for exactly the bound is not yet slow, whenever it set off."""
    slow = occupied(*(f"slow{n}" for n in range(SLOW_AT_ONCE)), since=50.0)
    slow.begin((-1, 1), "failed", 50.0)
    slow.end((-1, 1), succeeded=False, seconds=0.01)
    assert slow.free(["failed"], 50.0 + SLOW_SECONDS, MOST) == {"failed": 1}
    assert slow.free(["failed"], 50.0 + SLOW_SECONDS * 1.01, MOST) == {}


def test_what_slow_ones_share_is_shared_once() -> None:
    """Each that is given a place leaves less for the next of them, and takes nothing of it for others."""
    lanes = occupied(*(f"slow{n}" for n in range(SLOW_AT_ONCE - 2)))
    for n, webhook in enumerate(["one", "two", "three"]):
        lanes.begin((-n, 2), webhook, 0.0)
        lanes.end((-n, 2), succeeded=False, seconds=0.01)
    late = SLOW_SECONDS + 0.1
    assert lanes.free(["one", "new", "two", "three", "newer"], late, MOST) == {"one": 1, "new": 1, "two": 1, "newer": 1}
    assert lanes.free(["new", "one", "two"], late, 2) == {"new": 1, "one": 1}


def test_one_transaction_takes_a_bounded_number() -> None:
    """Who comes first is served first."""
    assert proven("a").free(["b", "a", "c"], 0.0, 4) == {"b": 1, "a": 3}

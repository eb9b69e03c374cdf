"""Deliveries in PostgreSQL: workers at the same time neither repeat nor lose a delivery, nor block each other."""

import pytest

from restkeeper.storage.deliveries import Attempt, Deliveries, Delivery, read_deliveries
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.feed import last_event, sweep_events
from tests.outbox import LONG, THINGS, all_of, lease, queue, settle, subscribe
from tests.postgresql.helpers import Held, Parallel


@pytest.fixture(autouse=True)
def subscribed(outbox: Held) -> None:
    subscribe(outbox)


def record(outbox: Held, *items: str, at: str = "2026-01-01") -> None:
    """Record events, which can be queued at once."""
    outbox.record(*items, at=at)
    last_event(outbox)


def attempt(delivery: Delivery, ok: bool = True, excerpt: str = "said") -> Attempt:
    return Attempt(delivery, 10.0, ok, 200 if ok else 500, 0.25, excerpt, None if ok else 1.0)


def sweep(outbox: Held) -> int:
    return outbox.write(lambda transaction: sweep_events(transaction, "2027", 5))


def test_one_worker_queues(outbox: Held) -> None:
    record(outbox, "a", "b")
    with outbox.transaction() as first, outbox.transaction() as second:
        assert Deliveries(first).queue("w", THINGS, 1.0, 1) == 1
        assert Deliveries(second).queue("w", THINGS, 1.0, 1) == 0
    assert outbox.write(lambda transaction: Deliveries(transaction).queue("w", THINGS, 1.0, 10)) == 1
    assert len(lease(outbox)) == 2


def test_a_queued_delivery_is_not_missed_by_a_settling_one(outbox: Held) -> None:
    """A worker that settles waits for one that queues the next delivery of the item, and releases it."""
    record(outbox, "a", "a")
    outbox.write(lambda transaction: Deliveries(transaction).queue("w", THINGS, 1.0, 1))
    (first,) = lease(outbox)
    parallel = Parallel()
    with outbox.transaction() as transaction:
        assert Deliveries(transaction).queue("w", THINGS, 1.0, 1) == 1
        parallel.start(outbox.write, lambda other: Deliveries(other).settle(attempt(first)))
        outbox.wait_until_blocked()
    parallel.join()
    assert [each.event.id for each in lease(outbox)] == all_of(outbox)[1:]


def test_a_settled_delivery_is_not_missed_by_a_queued_one(outbox: Held) -> None:
    record(outbox, "a", "a")
    outbox.write(lambda transaction: Deliveries(transaction).queue("w", THINGS, 1.0, 1))
    (first,) = lease(outbox)
    with outbox.transaction() as transaction:
        assert Deliveries(transaction).settle(attempt(first))
        assert outbox.write(lambda other: Deliveries(other).queue("w", THINGS, 1.0, 1)) == 0
    queue(outbox)
    assert [each.event.id for each in lease(outbox)] == all_of(outbox)[1:]


def test_a_delivery_is_leased_once(outbox: Held) -> None:
    record(outbox, *"abcd")
    queue(outbox)
    with outbox.transaction() as first, outbox.transaction() as second:
        leased = Deliveries(first).lease("w", 10.0, 40.0, 2) + Deliveries(second).lease("w", 10.0, 40.0, 10)
    assert [each.event.id for each in leased] == all_of(outbox)


def test_a_wrong_time_is_repaired_beside_others(outbox: Held) -> None:
    """A lease without end is ended by whoever leases next, without waiting for one who has the delivery."""
    record(outbox, "a", "b")
    queue(outbox)
    first, second = lease(outbox, until=LONG)
    with outbox.transaction() as transaction:
        assert Deliveries(transaction).settle(attempt(first))
        assert [each.id for each in lease(outbox)] == [second.id]
    assert not settle(outbox, second, ok=True)


def test_a_sweep_waits_for_a_worker_that_queues(outbox: Held) -> None:
    """It deletes the deliveries that were queued meanwhile, and releases the ones after them."""
    record(outbox, "a")
    record(outbox, "a", at="2028")
    parallel = Parallel()
    with outbox.transaction() as transaction:
        assert Deliveries(transaction).queue("w", THINGS, 1.0, 10) == 2
        swept = parallel.start(sweep, outbox)
        outbox.wait_until_blocked()
    parallel.join()
    assert swept.result() == 1
    assert [each.event.at for each in lease(outbox)] == ["2028"]


def test_a_sweep_ends_before_a_manual_delivery_of_its_events(outbox: Held) -> None:
    record(outbox, "a", "b")
    (first, _) = all_of(outbox)
    parallel = Parallel()
    with outbox.transaction() as transaction:
        assert sweep_events(transaction, "2027", 10) == 1
        asked = parallel.start(outbox.write, lambda other: Deliveries(other).queue_manually("w", first))
        outbox.wait_until_blocked()
    with pytest.raises(RecordNotFound):
        parallel.join()
    assert isinstance(asked.exception(), RecordNotFound)


def test_any_text_of_an_endpoint_is_stored(outbox: Held) -> None:
    """Also one that PostgreSQL refuses; and an unknown webhook may have any id."""
    record(outbox, "a")
    queue(outbox)
    (delivery,) = lease(outbox)
    assert outbox.write(lambda transaction: Deliveries(transaction).settle(attempt(delivery, excerpt="a\0\u00e9")))
    assert read_deliveries(outbox, "w", None, 10)[0].excerpt == "a\ufffd\u00e9"
    assert read_deliveries(outbox, "\0", None, 10) == [] and lease(outbox, "\0") == []
    assert outbox.write(lambda transaction: Deliveries(transaction).queue("\0", THINGS, 1.0, 10)) == 0

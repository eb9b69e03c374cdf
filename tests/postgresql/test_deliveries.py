"""Deliveries in PostgreSQL: workers at the same time neither repeat nor lose a delivery, nor block each other."""

import random
import threading
from collections import Counter

import pytest

from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.outbox import Attempt, Delivery
from tests.outbox import LONG, THINGS, all_of, event, lease, queue, settle, subscribe
from tests.postgresql.helpers import OutboxOnly, Parallel

WEBHOOKS = ("u", "v", "w")
EVENTS = 120

# An earlier delivery of the item of this one that is still pending.
EARLIER = """\
SELECT 1
FROM deliveries JOIN deliveries AS earlier USING (webhook, item)
WHERE deliveries.id = %s AND earlier.id < deliveries.id AND earlier.state = 'pending'"""

# Deliveries of an item that have another order than its events.
INVERTED = """\
SELECT 1
FROM deliveries JOIN deliveries AS other USING (webhook, item)
WHERE deliveries.id < other.id AND deliveries.event >= other.event"""


@pytest.fixture(autouse=True)
def subscribed(outbox: OutboxOnly) -> None:
    subscribe(outbox)  # type: ignore[arg-type]


def record(outbox: OutboxOnly, *items: str, at: str = "2026-01-01") -> None:
    """Record events, which can be queued at once."""
    outbox.record(*items, at=at)
    outbox.last_event()


def attempt(delivery: Delivery, ok: bool = True, excerpt: str = "said") -> Attempt:
    return Attempt(delivery, 10.0, ok, 200 if ok else 500, 0.25, excerpt, None if ok else 1.0)


class Deliverer:
    """A worker like that of webhooks: in each turn it settles, queues and leases in one transaction."""

    def __init__(self, outbox: OutboxOnly, seed: int) -> None:
        self._outbox = outbox
        self._chance = random.Random(seed)  # noqa: S311 - not a secret
        self._tried: list[Attempt] = []
        self.leased: list[tuple[int, int]] = []
        self.settled: list[bool] = []
        self.inverted: list[int] = []

    def run(self, is_end: threading.Event) -> None:
        while not is_end.is_set() or self._tried or self._outbox.subscriptions(WEBHOOKS, 10.0):
            self._turn()

    def _turn(self) -> None:
        waiting = self._outbox.subscriptions(WEBHOOKS, 10.0)
        self._chance.shuffle(waiting)
        with self._outbox.transaction() as transaction:
            for each in sorted(self._tried, key=lambda tried: tried.delivery.webhook):
                self.settled.append(transaction.settle(each))
            for subscription in waiting:
                if subscription.behind:
                    transaction.queue(subscription.webhook, THINGS, 10.0, 7)
            leased = [each for found in waiting for each in transaction.lease(found.webhook, 10.0, 40.0, 3)]
            self.inverted += [each.id for each in leased if transaction._session.row(EARLIER, (each.id,))]
        self.leased += [(each.id, each.lease) for each in leased]
        self._tried = [attempt(each, ok=self._chance.random() < 0.8) for each in leased]


def write(outbox: OutboxOnly, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - not a secret
    for _ in range(EVENTS // 2):
        record(outbox, chance.choice("abc"), chance.choice("abc"))


def sweep(outbox: OutboxOnly) -> int:
    return outbox.write(lambda transaction: transaction.sweep_events("2027", 5))


def sweep_until(outbox: OutboxOnly, is_end: threading.Event) -> None:
    while not is_end.is_set():
        sweep(outbox)


def run_all(outbox: OutboxOnly, *, sweeps: int) -> list[Deliverer]:
    """Two writers, three deliverers and some sweeps at the same time, until all is delivered."""
    for webhook in WEBHOOKS[:2]:
        subscribe(outbox, webhook)  # type: ignore[arg-type]
    is_written, is_delivered = threading.Event(), threading.Event()
    writers, workers, others = Parallel(), Parallel(), Parallel()
    deliverers = [Deliverer(outbox, seed) for seed in range(3)]
    try:
        for _ in range(sweeps):
            others.start(sweep_until, outbox, is_delivered)
        for each in deliverers:
            workers.start(each.run, is_written)
        for seed in range(2):
            writers.start(write, outbox, seed)
        writers.join()
    finally:
        is_written.set()
        workers.join()
        is_delivered.set()
        others.join()
    return deliverers


def test_deliverers_share_the_work(outbox: OutboxOnly) -> None:
    """One at a time has each delivery, in the order of its item; every event is delivered, and nothing is left."""
    deliverers = run_all(outbox, sweeps=0)
    leases = Counter(each for deliverer in deliverers for each in deliverer.leased)
    assert max(leases.values()) == 1
    assert [deliverer.settled.count(False) for deliverer in deliverers] == [0, 0, 0]
    assert [deliverer.inverted for deliverer in deliverers] == [[], [], []]
    counts = "SELECT webhook, state, count(*), count(DISTINCT event) FROM deliveries GROUP BY 1, 2 ORDER BY 1"
    assert outbox.rows(counts) == [(webhook, "delivered", 2 * EVENTS, 2 * EVENTS) for webhook in WEBHOOKS]
    assert outbox.rows(INVERTED) == []


def test_sweeps_run_beside_deliverers(outbox: OutboxOnly) -> None:
    """Nobody blocks another, deliveries of deleted events are never leased, and no delivery waits for one."""
    deliverers = run_all(outbox, sweeps=2)
    assert sum(len(deliverer.leased) for deliverer in deliverers) > 0
    assert [deliverer.inverted for deliverer in deliverers] == [[], [], []]
    sweep(outbox)
    assert len(all_of(outbox)) < 2 * EVENTS  # type: ignore[arg-type]
    assert outbox.rows("SELECT id FROM deliveries WHERE state = 'pending'") == []


def test_one_worker_queues(outbox: OutboxOnly) -> None:
    """Another one examines nothing meanwhile, and then continues after it."""
    record(outbox, "a", "b")
    with outbox.transaction() as first, outbox.transaction() as second:
        assert first.queue("w", THINGS, 1.0, 1) == 1
        assert second.queue("w", THINGS, 1.0, 1) == 0
    assert outbox.write(lambda transaction: transaction.queue("w", THINGS, 1.0, 10)) == 1
    assert len(lease(outbox)) == 2  # type: ignore[arg-type]


def test_a_queued_delivery_is_not_missed_by_a_settling_one(outbox: OutboxOnly) -> None:
    """A worker that settles waits for one that queues the next delivery of the item, and releases it."""
    record(outbox, "a", "a")
    outbox.write(lambda transaction: transaction.queue("w", THINGS, 1.0, 1))
    (first,) = lease(outbox)  # type: ignore[arg-type]
    parallel = Parallel()
    with outbox.transaction() as transaction:
        assert transaction.queue("w", THINGS, 1.0, 1) == 1
        parallel.start(outbox.write, lambda other: other.settle(attempt(first)))
        outbox.wait_until_blocked()
    parallel.join()
    assert [each.event.id for each in lease(outbox)] == all_of(outbox)[1:]  # type: ignore[arg-type]


def test_a_settled_delivery_is_not_missed_by_a_queued_one(outbox: OutboxOnly) -> None:
    """While one is settled nothing is queued, so that the next one does not wait for it for ever."""
    record(outbox, "a", "a")
    outbox.write(lambda transaction: transaction.queue("w", THINGS, 1.0, 1))
    (first,) = lease(outbox)  # type: ignore[arg-type]
    with outbox.transaction() as transaction:
        assert transaction.settle(attempt(first))
        assert outbox.write(lambda other: other.queue("w", THINGS, 1.0, 1)) == 0
    queue(outbox)  # type: ignore[arg-type]
    assert [each.event.id for each in lease(outbox)] == all_of(outbox)[1:]  # type: ignore[arg-type]


def test_a_delivery_is_leased_once(outbox: OutboxOnly) -> None:
    """A worker skips what another one leases at the same moment, and does not wait."""
    record(outbox, *"abcd")
    queue(outbox)  # type: ignore[arg-type]
    with outbox.transaction() as first, outbox.transaction() as second:
        leased = first.lease("w", 10.0, 40.0, 2) + second.lease("w", 10.0, 40.0, 10)
    assert [each.event.id for each in leased] == all_of(outbox)  # type: ignore[arg-type]


def test_a_wrong_time_is_repaired_beside_others(outbox: OutboxOnly) -> None:
    """A lease without end is ended by whoever leases next, without waiting for one who has the delivery."""
    record(outbox, "a", "b")
    queue(outbox)  # type: ignore[arg-type]
    first, second = lease(outbox, until=LONG)  # type: ignore[arg-type]
    with outbox.transaction() as transaction:
        assert transaction.settle(attempt(first))
        assert [each.id for each in lease(outbox)] == [second.id]  # type: ignore[arg-type]
    assert not settle(outbox, second, ok=True)  # type: ignore[arg-type]


def test_a_sweep_waits_for_a_worker_that_queues(outbox: OutboxOnly) -> None:
    """It deletes the deliveries that were queued meanwhile, and releases the ones after them."""
    record(outbox, "a")
    record(outbox, "a", at="2028")
    parallel = Parallel()
    with outbox.transaction() as transaction:
        assert transaction.queue("w", THINGS, 1.0, 10) == 2
        swept = parallel.start(sweep, outbox)
        outbox.wait_until_blocked()
    parallel.join()
    assert swept.result() == 1
    assert [each.event.at for each in lease(outbox)] == ["2028"]  # type: ignore[arg-type]


def test_a_sweep_ends_before_a_manual_delivery_of_its_events(outbox: OutboxOnly) -> None:
    """The event is not found then."""
    record(outbox, "a", "b")
    (first, _) = all_of(outbox)  # type: ignore[arg-type]
    parallel = Parallel()
    with outbox.transaction() as transaction:
        assert transaction.sweep_events("2027", 10) == 1
        asked = parallel.start(outbox.write, lambda other: other.queue_manually("w", first))
        outbox.wait_until_blocked()
    with pytest.raises(RecordNotFound):
        parallel.join()
    assert isinstance(asked.exception(), RecordNotFound)


def test_a_new_event_can_be_delivered_at_once(outbox: OutboxOnly) -> None:
    """It has its id in the same transaction, and comes after the earlier events of its item."""
    with outbox.transaction() as transaction:
        transaction.record(event("a"))
        transaction.record(event("b"))
        id = transaction.queue_manually("w", event("a"))
        entry = transaction.find_delivery("w", id)
    ids = all_of(outbox)  # type: ignore[arg-type]
    assert entry.event == ids[1] and len(ids) == 3
    assert outbox.rows("SELECT item FROM events ORDER BY position") == [("a",), ("a",), ("b",)]
    assert [each.id for each in lease(outbox)] == [id]  # type: ignore[arg-type]


def test_any_text_of_an_endpoint_is_stored(outbox: OutboxOnly) -> None:
    """Also one that PostgreSQL refuses; and an unknown webhook may have any id."""
    record(outbox, "a")
    queue(outbox)  # type: ignore[arg-type]
    (delivery,) = lease(outbox)  # type: ignore[arg-type]
    assert outbox.write(lambda transaction: transaction.settle(attempt(delivery, excerpt="a\0\u00e9")))
    assert outbox.deliveries("w", None, 10)[0].excerpt == "a\ufffd\u00e9"
    assert outbox.deliveries("\0", None, 10) == [] and lease(outbox, "\0") == []  # type: ignore[arg-type]
    assert outbox.write(lambda transaction: transaction.queue("\0", THINGS, 1.0, 10)) == 0

"""Deliveries: events are queued for each webhook, and leased to one worker at a time."""

import pytest

from restkeeper.storage.base import Store
from restkeeper.storage.deliveries import Deliveries, find_subscriptions, read_deliveries
from restkeeper.storage.feed import sweep_events
from tests.outbox import LONG, SECRETS, THINGS, all_of, event, lease, queue, record, settle, subscribe


@pytest.fixture(autouse=True)
def subscribed(outbox: Store) -> None:
    record(outbox, event("before"))
    subscribe(outbox)


def test_new_events_are_queued_once(outbox: Store) -> None:
    """Each matching event gets one delivery, in any number of steps."""
    record(outbox, event("a"), event("b"), event("c", collection="others"), event("d"))
    for _ in range(4):
        queue(outbox, limit=2)
    assert [each.event.id for each in lease(outbox)] == [all_of(outbox)[n] for n in (1, 2, 3)]


def test_a_lease_belongs_to_one_worker(outbox: Store) -> None:
    """After the lease ends another worker can lease the delivery, and the first one cannot settle it any more."""
    record(outbox, event())
    queue(outbox)
    (first,) = lease(outbox, now=10.0, until=40.0)
    assert lease(outbox, now=39.0) == []
    (second,) = lease(outbox, now=40.0, until=70.0)
    assert second.event == first.event and second.id == first.id
    assert not settle(outbox, first, ok=True)
    assert settle(outbox, second, ok=True) and not settle(outbox, second, ok=True)
    assert lease(outbox, now=LONG) == []


def test_the_events_of_an_item_are_delivered_in_order(outbox: Store) -> None:
    """The next one is due when the one before it is delivered or failed, and not while that waits for a retry."""
    one, two, three, other = record(outbox, event("a"), event("a"), event("a"), event("b"))
    queue(outbox, limit=2)
    queue(outbox)
    first, fourth = lease(outbox, until=LONG)
    assert [first.event.id, fourth.event.id] == [one, other]
    settle(outbox, fourth, ok=True)
    settle(outbox, first, next=50.0)
    assert lease(outbox, now=49.0) == [], "a retry keeps its place"
    (again,) = lease(outbox, now=50.0, until=80.0)
    assert again.event.id == one and again.attempts == 1
    settle(outbox, again, ok=True)
    (second,) = lease(outbox, now=LONG)
    assert second.event.id == two
    settle(outbox, second)
    assert [each.event.id for each in lease(outbox, now=LONG)] == [three]


def test_a_pause_can_be_cancelled(outbox: Store) -> None:
    """Deliveries that waited for a retry become due, but not leased ones, and not those that wait for their order."""
    record(outbox, event("a"), event("a"), event("b"))
    queue(outbox)
    first, third = lease(outbox, until=40.0)
    settle(outbox, first, next=5000.0, hold=9000.0)
    outbox.write(lambda transaction: Deliveries(transaction).resume("w", 20.0))
    assert find_subscriptions(outbox, ["w"], 20.0)[0].due
    assert [each.event.id for each in lease(outbox, now=20.0)] == [first.event.id]
    assert settle(outbox, third, ok=True)


def test_a_manual_delivery_is_sent_at_once(outbox: Store) -> None:
    """It is sent also to an inactive webhook, before all others; if a worker dies, another one leases it."""
    ids = record(outbox, event("a"), event("a"))
    queue(outbox)
    manual_id = outbox.write(lambda transaction: Deliveries(transaction).queue_manually("w", ids[1]))
    assert find_subscriptions(outbox, [], 5.0) == [("w", SECRETS, False, True, False)]
    lease(outbox, now=5.0, until=25.0, manual_only=True)
    assert find_subscriptions(outbox, [], 24.0) == []
    assert find_subscriptions(outbox, [], 25.0)[0].due
    (delivery,) = lease(outbox, now=25.0, manual_only=True)
    assert (delivery.id, delivery.manual, delivery.event.id, delivery.lease) == (manual_id, True, ids[1], 2)
    settle(outbox, delivery)
    assert find_subscriptions(outbox, [], LONG) == []
    assert outbox.write(lambda transaction: Deliveries(transaction).find_delivery("w", manual_id)).state == "failed"


def test_swept_events_are_not_examined(outbox: Store) -> None:
    """A webhook that is behind skips swept events, and the number of examined events does not count them."""
    record(outbox, *(event(str(n)) for n in range(8)), event("kept", at="2027"), event("last", at="2028"))
    outbox.write(lambda transaction: sweep_events(transaction, "2027", 100))
    examined = [
        outbox.write(lambda transaction, limit=limit: Deliveries(transaction).queue("w", THINGS, 1.0, limit))
        for limit in (0, 1, 10, 10)
    ]
    assert examined == [0, 1, 1, 0]
    assert [each.event.at for each in lease(outbox)] == ["2027", "2028"]


def test_a_swept_event_blocks_no_delivery(outbox: Store) -> None:
    """A delivery behind a swept event is due; one behind a stored event still waits."""
    record(
        outbox, event("a"), event("b", at="2027"), event("a", at="2027"), event("a", at="2027"), event("b", at="2028")
    )
    queue(outbox)
    (first, _) = lease(outbox)
    settle(outbox, first, next=5000.0)
    assert outbox.write(lambda transaction: sweep_events(transaction, "2027", 10)) == 2
    (second,) = lease(outbox)
    assert (second.event.at, second.id) == ("2027", first.id + 2)


def test_a_deleted_webhook_leaves_nothing(outbox: Store) -> None:
    """Nothing more is delivered, and its log is deleted with the events; leased deliveries can be settled."""
    record(outbox, event("a"), event("b"))
    queue(outbox, limit=1)
    (delivery,) = lease(outbox)
    outbox.write(lambda transaction: Deliveries(transaction).unsubscribe("w"))
    assert find_subscriptions(outbox, ["w"], LONG) == []
    settle(outbox, delivery, ok=True)
    queue(outbox)
    assert len(read_deliveries(outbox, "w", None, 10)) == 1, "nothing is queued any more"
    record(outbox, event("later", at="2028"))
    outbox.write(lambda transaction: sweep_events(transaction, "2027", 10))
    assert read_deliveries(outbox, "w", None, 10) == []

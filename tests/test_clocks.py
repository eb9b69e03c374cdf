"""Times from a clock that was ahead are limited to possible values, so that they block nothing."""

import pytest

from restkeeper.clock import rfc3339
from restkeeper.storage import Store, open_store
from restkeeper.storage.deliveries import (
    LONGEST_DELAY,
    LONGEST_LEASE,
    LONGEST_PAUSE,
    Deliveries,
    find_subscriptions,
    read_deliveries,
)
from restkeeper.storage.feed import sweep_events
from restkeeper.storage.interface import Collection
from restkeeper.storage.transactions import Event
from tests import outbox
from tests.outbox import lease, settle

NOW = 1_800_000_000.0
AHEAD = NOW + 400 * 86_400.0


@pytest.fixture
def store() -> Store:
    opened = open_store("memory://", [Collection("things", {})])
    outbox.subscribe(opened)
    return opened


def record_events(store: Store, *items: str) -> None:
    outbox.record(store, *(outbox.event(item, at=rfc3339(NOW)) for item in items))
    outbox.queue(store, now=NOW)


def is_ready(store: Store, now: float) -> bool:
    return bool(find_subscriptions(store, ["w"], now))


def test_events_behind_one_from_the_future_expire(store: Store) -> None:
    """An event that is dated ahead by more than EVENTS_TTL is deleted with its neighbours."""
    days = [1, 400, 2, 3, 9]
    events = [Event("thing.created", "things", "a", rfc3339(NOW + day * 86_400), b"{}") for day in days]
    store.write(lambda transaction: [transaction.add_event(event) for event in events])
    before, latest = rfc3339(NOW + 4 * 86_400), rfc3339(NOW + 18 * 86_400)
    assert store.write(lambda transaction: sweep_events(transaction, before, 10, latest=latest)) == 4


def test_an_impossible_lease_is_ignored(store: Store) -> None:
    """A worker with the right time replaces it, and only it can settle the delivery. One up to LONGEST_LEASE holds."""
    record_events(store, "a")
    (stuck,) = lease(store, "w", AHEAD, AHEAD + 25)
    assert is_ready(store, NOW)
    (again,) = lease(store, "w", NOW, NOW + LONGEST_LEASE)
    assert again.id == stuck.id and not settle(store, stuck, AHEAD, AHEAD + 60)
    assert not is_ready(store, NOW) and lease(store, "w", NOW + 24, NOW + 49) == []


def test_resume_frees_an_impossible_lease(store: Store) -> None:
    record_events(store, "a", "b")
    lease(store, "w", AHEAD, AHEAD + 25)
    store.write(lambda transaction: Deliveries(transaction).resume("w", NOW))
    assert [each.due for each in read_deliveries(store, "w", None, 10)] == [NOW, NOW]
    assert len(lease(store, "w", NOW, NOW + 25)) == 2
    store.write(lambda transaction: Deliveries(transaction).resume("w", NOW))
    assert lease(store, "w", NOW, NOW + 25) == []


def test_an_impossible_pause_is_ignored(store: Store) -> None:
    """Retry-After is a day at most. A later response replaces such a pause; of two possible ones the longer counts."""
    record_events(store, "a", "b", "c")
    first, second, third = lease(store, "w", NOW, NOW + 25)
    settle(store, first, NOW, NOW + 1, hold=AHEAD)
    assert is_ready(store, NOW + 2)
    settle(store, second, NOW, NOW + 1, hold=NOW + LONGEST_PAUSE)
    settle(store, third, NOW, NOW + 1, hold=NOW + 60)
    assert not is_ready(store, NOW + LONGEST_PAUSE - 1) and is_ready(store, NOW + LONGEST_PAUSE)


def test_an_impossible_retry_is_due(store: Store) -> None:
    """The longest delay that can be configured is a week and a fifth of it."""
    record_events(store, "a", "b")
    first, second = lease(store, "w", NOW, NOW + 25)
    settle(store, first, NOW, AHEAD)
    settle(store, second, NOW, NOW + LONGEST_DELAY)
    assert is_ready(store, NOW)
    assert [each.id for each in lease(store, "w", NOW, NOW + 25)] == [first.id]

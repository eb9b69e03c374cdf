"""Common operations of tests on events and deliveries."""

from restkeeper.storage.base import Store
from restkeeper.storage.deliveries import Attempt, Deliveries, Delivery, Secret
from restkeeper.storage.feed import EventFilter, find_events, last_event
from restkeeper.storage.transactions import Event

THINGS = EventFilter(("things",))
SECRETS = (Secret("whsec_a"), Secret("whsec_b", 5.0))
LONG = 1e12  # a time beyond all others


def event(item: str = "a", type: str = "thing.created", at: str = "2026-01-01", **more: str) -> Event:
    return Event(**{"collection": "things", "owner": None, "data": b"{}", **more}, type=type, item=item, at=at)  # type: ignore[arg-type]


def record(store: Store, *events: Event) -> list[str]:
    """Record events in one transaction, and return their ids."""
    before, collections = last_event(store), tuple({each.collection for each in events})
    store.write(lambda transaction: [transaction.add_event(each) for each in events])
    return all_of(store, EventFilter(collections), 1000, after=before)


def subscribe(store: Store, webhook: str = "w") -> None:
    store.write(lambda transaction: Deliveries(transaction).subscribe(webhook, SECRETS))


def queue(
    store: Store, webhook: str = "w", event_filter: EventFilter = THINGS, now: float = 1.0, limit: int = 100
) -> None:
    store.write(lambda transaction: Deliveries(transaction).queue(webhook, event_filter, now, limit))


def lease(
    store: Store, webhook: str = "w", now: float = 10.0, until: float = 40.0, manual_only: bool = False
) -> list[Delivery]:
    return store.write(
        lambda transaction: Deliveries(transaction).lease(webhook, now, until, 100, manual_only=manual_only)
    )


def settle(
    store: Store, delivery: Delivery, at: float = 11.0, next: float | None = None, ok: bool = False, hold: float = 0.0
) -> bool:
    tried = Attempt(delivery, at, ok, 200 if ok else 500, 0.25, "said", next, hold)
    return store.write(lambda transaction: Deliveries(transaction).settle(tried))


def all_of(store: Store, event_filter: EventFilter = THINGS, limit: int = 3, after: str = "") -> list[str]:
    """The ids of all events after one, read in pages."""
    found, more = [], True
    while more:
        events, after, more = find_events(store, after, event_filter, limit)
        found += [each.id for each in events]
    return found

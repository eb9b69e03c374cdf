"""Times from a clock that was ahead are limited to possible values, so that they block nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from restkeeper.clock import rfc3339
from restkeeper.config import Config
from restkeeper.features.idempotency import Idempotency
from restkeeper.storage import Store, open_store
from restkeeper.storage.contract import Collection, StoredResponse
from restkeeper.storage.outbox import (
    LONGEST_DELAY,
    LONGEST_LEASE,
    LONGEST_PAUSE,
    Attempt,
    Delivery,
    Event,
    EventFilter,
    Secret,
)
from restkeeper.web.application import Application
from tests.shop import create_app

NOW = 1_800_000_000.0
AHEAD = NOW + 400 * 86_400.0
WANTED = EventFilter(("things",))


@pytest.fixture
def store() -> Store:
    opened = open_store("memory://", [Collection("things", {})])
    opened.write(lambda transaction: transaction.subscribe("w", [Secret("whsec_a")]))
    return opened


def record_events(store: Store, *items: str) -> None:
    for item in items:
        event = Event("thing.created", "things", item, rfc3339(NOW), b"{}")
        store.write(lambda transaction, event=event: transaction.record(event))  # type: ignore[misc]
    store.write(lambda transaction: transaction.queue("w", WANTED, NOW, 100))


def lease(store: Store, now: float, until: float) -> list[Delivery]:
    return store.write(lambda transaction: transaction.lease("w", now, until, 100))


def is_ready(store: Store, now: float) -> bool:
    return bool(store.subscriptions(["w"], now))


def settle(store: Store, delivery: Delivery, at: float, next: float, hold: float = 0.0) -> bool:
    tried = Attempt(delivery, at, False, 503, 0.1, "", next, hold)
    return store.write(lambda transaction: transaction.settle(tried))


def test_responses_behind_one_from_the_future_expire(store: Store) -> None:
    """Any number of them is deleted in time or at once."""
    idempotency = Idempotency(3600, now=lambda: NOW)

    def store_responses(count: int, given: float) -> None:
        ids = [b"%d %f" % (number, given) for number in range(count)]
        store.write(
            lambda transaction: [
                transaction.store_response(id, StoredResponse(given, b""), expired_before=0.0) for id in ids
            ]
        )

    store_responses(50, AHEAD)
    store_responses(5, NOW - 3601)
    store_responses(1, NOW - 1)
    store_responses(1, NOW + 60)  # a clock that is a little ahead
    swept = [store.write(lambda transaction: idempotency.sweep(transaction, 32)) for _ in range(4)]
    assert swept == [32, 23, 0, 0]


def test_events_behind_one_from_the_future_expire(store: Store) -> None:
    """An event that is dated ahead by more than EVENTS_TTL is deleted with its neighbours."""
    days = [1, 400, 2, 3, 9]
    events = [Event("thing.created", "things", "a", rfc3339(NOW + day * 86_400), b"{}") for day in days]
    store.write(lambda transaction: [transaction.record(event) for event in events])
    before, latest = rfc3339(NOW + 4 * 86_400), rfc3339(NOW + 18 * 86_400)
    assert store.write(lambda transaction: transaction.sweep_events(before, 10, latest=latest)) == 4


def test_an_impossible_lease_is_ignored(store: Store) -> None:
    """A worker with the right time replaces a lease of a clock that was ahead, and only it can settle the delivery."""
    record_events(store, "a")
    (stuck,) = lease(store, AHEAD, AHEAD + 25)
    assert is_ready(store, NOW)
    (again,) = lease(store, NOW, NOW + 25)
    assert again.id == stuck.id and not settle(store, stuck, AHEAD, AHEAD + 60)
    assert not is_ready(store, NOW + 24) and lease(store, NOW + 24, NOW + 49) == []


def test_a_possible_lease_is_respected(store: Store) -> None:
    """A lease up to LONGEST_LEASE is respected."""
    record_events(store, "a")
    lease(store, NOW, NOW + LONGEST_LEASE)
    assert not is_ready(store, NOW) and lease(store, NOW, NOW + 25) == []


def test_resume_frees_an_impossible_lease(store: Store) -> None:
    """Other leases are not changed."""
    record_events(store, "a", "b")
    lease(store, AHEAD, AHEAD + 25)
    store.write(lambda transaction: transaction.resume("w", NOW))
    assert [each.due for each in store.deliveries("w", None, 10)] == [NOW, NOW]
    assert len(lease(store, NOW, NOW + 25)) == 2
    store.write(lambda transaction: transaction.resume("w", NOW))
    assert lease(store, NOW, NOW + 25) == []


def test_an_impossible_pause_is_ignored(store: Store) -> None:
    """Retry-After is a day at most; a later response replaces a pause that a wrong clock set too late."""
    record_events(store, "a", "b")
    first, second = lease(store, NOW, NOW + 25)
    settle(store, first, NOW, NOW + 1, hold=AHEAD)
    assert is_ready(store, NOW + 2)
    settle(store, second, NOW, NOW + 1, hold=NOW + LONGEST_PAUSE)
    assert not is_ready(store, NOW + 2)
    assert is_ready(store, NOW + LONGEST_PAUSE)


def test_the_longer_of_two_pauses_counts(store: Store) -> None:
    """This is true for possible pauses."""
    record_events(store, "a", "b")
    first, second = lease(store, NOW, NOW + 25)
    settle(store, first, NOW, NOW + 1, hold=NOW + 600)
    settle(store, second, NOW, NOW + 1, hold=NOW + 60)
    assert not is_ready(store, NOW + 599) and is_ready(store, NOW + 600)


def test_an_impossible_retry_is_due(store: Store) -> None:
    """The longest delay that can be configured is a week and a fifth of it."""
    record_events(store, "a", "b")
    first, second = lease(store, NOW, NOW + 25)
    settle(store, first, NOW, AHEAD)
    settle(store, second, NOW, NOW + LONGEST_DELAY)
    assert is_ready(store, NOW)
    assert [each.id for each in lease(store, NOW, NOW + 25)] == [first.id]


@pytest.mark.needs("events", "idempotency")
def test_reap_deletes_entries_dated_ahead(tmp_path: Path) -> None:
    """Responses and events, whatever their place."""
    app: Application = create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db"))
    happened = [Event("product.created", "products", "x", rfc3339(at), b"{}") for at in (9e9, 0.0, 9e9, 0.0)]

    def store_responses(transaction: object) -> None:
        for number, event in enumerate(happened):
            transaction.record(event)  # type: ignore[attr-defined]
            transaction.store_response(b"%d" % number, StoredResponse(9e9, b""), expired_before=0.0)  # type: ignore[attr-defined]

    app.extensions["restkeeper"].store.write(store_responses)
    run: Callable[..., Result] = app.test_cli_runner().invoke
    assert run(args=["reap"]).stdout == "deleted 4 expired responses and 3 expired events\n"

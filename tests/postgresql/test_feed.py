"""The feed in PostgreSQL: no event is skipped or repeated, and those of an item are in order, whoever commits when."""

import random
import threading
from collections import defaultdict

import pytest

from restkeeper.storage.deliveries import Deliveries, find_subscriptions
from restkeeper.storage.feed import EventFilter, find_events, last_event, sweep_events
from restkeeper.storage.postgresql import feed
from restkeeper.storage.postgresql.items import PostgresTransaction
from tests.outbox import SECRETS, THINGS, all_of, event, lease
from tests.postgresql.helpers import Held, Parallel

WRITERS, CHANGES, ITEMS = 8, 60, 3


def items_of(outbox: Held) -> list[str]:
    """The items of all events in the order of the feed."""
    last_event(outbox)
    return [item for (item,) in outbox.rows("SELECT item FROM events WHERE position IS NOT NULL ORDER BY position")]


def write(outbox: Held, number: int) -> None:
    """Change items, each change with an event that has the item's version. Every fifth transaction is rolled back."""
    chance = random.Random(number)  # noqa: S311 - not a secret
    for _ in range(CHANGES):
        with outbox.session() as session:
            session.begin()
            transaction = PostgresTransaction(session, {}, {})
            for item in sorted(chance.sample("abc"[:ITEMS], chance.randint(1, 2))):
                ((version,),) = session.fetch(
                    "UPDATE versions SET version = version + 1 WHERE item = %s RETURNING version", (item,)
                )
                transaction.add_event(event(item, data=str(version).encode()))
            session.flush()
            if chance.random() < 0.2:
                session.roll_back_if_open()
            else:
                session.commit()


def follow(outbox: Held, after: str, is_end: threading.Event) -> list[tuple[str, bytes]]:
    """What a client that polls the feed from a cursor on has read when all is written."""
    read = []
    while True:
        was_end = is_end.is_set()
        page = find_events(outbox, after, THINGS, 20)
        read += [(each.id, each.data) for each in page.events]
        after = page.last
        if was_end and not page.more:
            return read


def number_until(outbox: Held, is_end: threading.Event) -> None:
    while not is_end.is_set():
        with outbox.session() as session:
            feed.sequence(session, limit=3)


def test_nothing_is_skipped_or_inverted(outbox: Held) -> None:
    """Two readers that poll beside many writers, rollbacks and rival sequencers read every event once, in order."""
    with outbox.session() as session:
        session.apply("CREATE TABLE versions (item text PRIMARY KEY, version bigint NOT NULL)")
        session.apply("INSERT INTO versions SELECT item, 0 FROM unnest(ARRAY['a', 'b', 'c']) AS item")
    is_end, helpers, writers = threading.Event(), Parallel(), Parallel()
    try:
        start = last_event(outbox)  # before the writers: a thread can begin late
        readers = [helpers.start(follow, outbox, start, is_end) for _ in range(2)]
        for _ in range(3):
            helpers.start(number_until, outbox, is_end)
        for number in range(WRITERS):
            writers.start(write, outbox, number)
        writers.join()
    finally:
        is_end.set()
        helpers.join()
    stored = outbox.rows("SELECT item, data FROM events ORDER BY position")
    versions = defaultdict(list)
    for item, data in stored:
        versions[item].append(int(data))
    assert {item: len(each) for item, each in versions.items()} == dict(outbox.rows("SELECT * FROM versions"))
    assert all(each == list(range(1, len(each) + 1)) for each in versions.values()), "in the order of the versions"
    for reader in readers:
        assert reader.result() == [
            (f"evt_{outbox.epoch}_{position:x}", data.encode()) for position, (_, data) in enumerate(stored, start=1)
        ]


@pytest.mark.parametrize(("is_read", "order"), [(False, ["a1", "b1", "a2"]), (True, ["a1", "a2", "b1"])])
def test_transactions_at_the_same_time_can_be_mixed(outbox: Held, is_read: bool, order: list[str]) -> None:
    """The events of each are in its order, and all there as soon as one is; those of another can stand between them."""
    with outbox.transaction() as second:
        with outbox.transaction() as first:
            for transaction, item in ((first, "a1"), (second, "b1"), (first, "a2")):
                transaction.add_event(event(item))
                transaction.database.flush()
        if is_read:
            assert items_of(outbox) == ["a1", "a2"]
    assert items_of(outbox) == order


def test_an_open_transaction_delays_its_own_events_only(outbox: Held) -> None:
    """The events of others are read meanwhile; its own are read after its commit, after the others."""
    with outbox.transaction() as late:
        late.add_event(event("late"))
        late.database.flush()
        outbox.record("a", "b")
        assert items_of(outbox) == ["a", "b"]
        last = last_event(outbox)
        assert find_events(outbox, last, THINGS, 10).events == []
    assert items_of(outbox) == ["a", "b", "late"]
    assert len(find_events(outbox, last, THINGS, 10).events) == 1


def test_an_open_transaction_outlives_a_sweep(outbox: Held) -> None:
    """Its old event is not deleted with others of its time, also if they have a higher number."""
    with outbox.transaction() as late:
        late.add_event(event("late"))
        late.database.flush()
        outbox.record("a", "b")
        last = last_event(outbox)
        assert outbox.write(lambda transaction: sweep_events(transaction, "2027", 10)) == 1
    assert items_of(outbox) == ["b", "late"]
    assert [each.id for each in find_events(outbox, last, THINGS, 10).events] == all_of(outbox)[1:]


def test_an_event_without_a_position_is_not_swept(outbox: Held) -> None:
    outbox.record("a", "b", "c")
    sweep = lambda: outbox.write(lambda transaction: sweep_events(transaction, "2027", 10))  # noqa: E731
    assert sweep() == 0 and items_of(outbox) == ["a", "b", "c"]
    assert sweep() == 2 and items_of(outbox) == ["c"]


def test_the_sequencer_works_in_pieces(outbox: Held) -> None:
    """Each run numbers a limited number of events, the oldest first, until all are numbered."""
    outbox.record(*"abcde")
    with outbox.session() as session:
        assert feed.sequence(session, limit=2) == 2
        feed.PostgresFeed(session).number(limit=2)
        assert feed.sequence(session, limit=2) == 0
    assert items_of(outbox) == list("abcde")


def test_ids_have_the_epoch_of_their_moment(outbox: Held) -> None:
    """Another epoch changes the ids of new events alone, and an older cursor is still valid."""
    outbox.record("a")
    first = last_event(outbox)
    assert first == f"evt_{outbox.epoch}_1"
    outbox.rows("UPDATE store SET epoch = 'fedcba98' RETURNING epoch")
    outbox.record("b")
    assert all_of(outbox) == [first, "evt_fedcba98_2"] == [first, last_event(outbox)]
    assert [each.id for each in find_events(outbox, first, THINGS, 10).events] == ["evt_fedcba98_2"]


def test_a_subscription_begins_with_its_commit(outbox: Held) -> None:
    """What was committed before is not delivered, numbered or not; what was open then is delivered."""
    with outbox.transaction() as late:
        late.add_event(event("late"))
        late.database.flush()
        outbox.record("before")
        outbox.write(lambda transaction: Deliveries(transaction).subscribe("w", SECRETS))
    outbox.record("after")
    assert find_subscriptions(outbox, ["w"], 1.0) == [("w", SECRETS, True, False, True)]
    outbox.write(lambda transaction: Deliveries(transaction).queue("w", THINGS, 1.0, 10))
    assert [each.event.id for each in lease(outbox)] == all_of(outbox)[1:]


@pytest.mark.parametrize("type", ["thing_created", "thing%", "thing\\*", "\0*", "thing.creat", "THING.*", "[t]hing.*"])
def test_a_star_is_the_only_wildcard(outbox: Held, type: str) -> None:
    """Characters that are special in LIKE or cannot be stored match no event."""
    outbox.record("a")
    assert find_events(outbox, "", EventFilter(("things",), (type,)), 10).events == []
    assert len(find_events(outbox, "", EventFilter(("things", "\0"), ("*.created",), ("\0",), "\0"), 10).events) == 1

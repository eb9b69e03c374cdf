"""The contract of restkeeper/storage/outbox.py, on every store there is."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from restkeeper.storage import open_store
from restkeeper.storage.contract import Collection, Store, Transaction
from restkeeper.storage.errors import EventsExpired, RecordNotFound
from restkeeper.storage.outbox import Attempt, Delivery, Event, EventFilter, Secret
from restkeeper.storage.sqlite.events import LOOKED_AT, PAGE_BYTES
from tests.waiting import join

THINGS = EventFilter(("things",))
SECRETS = (Secret("whsec_a"), Secret("whsec_b", 5.0))
LONG = 1e12  # a time beyond all others


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url, [Collection("things", {})])
    yield opened
    opened.close()


def event(item: str = "a", type: str = "thing.created", at: str = "2026-01-01", **more: str) -> Event:
    return Event(**{"collection": "things", "owner": None, "data": b"{}", **more}, type=type, item=item, at=at)  # type: ignore[arg-type]


def record(store: Store, *events: Event) -> list[str]:
    return store.write(lambda transaction: [transaction.record(each) for each in events])


def subscribe(store: Store, webhook: str = "w") -> None:
    store.write(lambda transaction: transaction.subscribe(webhook, SECRETS))


def queue(store: Store, webhook: str = "w", wanted: EventFilter = THINGS, now: float = 1.0, limit: int = 100) -> None:
    store.write(lambda transaction: transaction.queue(webhook, wanted, now, limit))


def lease(
    store: Store, webhook: str = "w", now: float = 10.0, until: float = 40.0, asked_only: bool = False
) -> list[Delivery]:
    return store.write(lambda transaction: transaction.lease(webhook, now, until, 100, asked_only=asked_only))


def settle(
    store: Store, delivery: Delivery, at: float = 11.0, next: float | None = None, ok: bool = False, hold: float = 0.0
) -> bool:
    tried = Attempt(delivery, at, ok, 200 if ok else 500, 0.25, "said", next, hold)
    return store.write(lambda transaction: transaction.settle(tried))


def all_of(store: Store, wanted: EventFilter = THINGS, limit: int = 3) -> list[str]:
    """The ids of all events, read in steps."""
    found, after, more = [], "", True
    while more:
        events, after, more = store.events(after, wanted, limit)
        found += [each.id for each in events]
    return found


class TestEvents:
    def test_they_are_read_in_the_order_of_their_commits(self, store: Store) -> None:
        """Step by step, each event is there once, behind the one before it."""
        ids = record(store, *(event(str(n)) for n in range(7)))
        ids += record(store, event("7"))
        assert all_of(store) == ids and len(set(ids)) == 8

    def test_what_was_recorded_is_what_is_read(self, store: Store) -> None:
        """Type, time and data come back, the data byte for byte."""
        (id,) = record(store, event(type="thing.updated", at="2026-01-02", data=b'{"name":"\xc3\xa9"}'))  # type: ignore[arg-type]
        (read,), _, _ = store.events("", THINGS, 10)
        assert read == (id, "thing.updated", "2026-01-02", b'{"name":"\xc3\xa9"}')

    def test_a_transaction_that_fails_leaves_none(self, store: Store) -> None:
        """An event is there with its change, or not at all."""

        def work(transaction: Transaction) -> None:
            transaction.record(event())
            raise ValueError

        with pytest.raises(ValueError):
            store.write(work)
        assert all_of(store) == [] and record(store, event()) == all_of(store)

    def test_the_last_one_is_known(self, store: Store) -> None:
        """`last_event` moves with each, also one that another thread records."""
        begin = store.last_event()
        assert store.events(begin, THINGS, 10) == ([], begin, False)
        thread = threading.Thread(target=lambda: record(store, event()))
        thread.start()
        join(thread)
        assert store.last_event() == all_of(store)[-1] != begin
        assert [each.id for each in store.events(begin, THINGS, 10).events] == all_of(store)

    @pytest.mark.parametrize(
        ("wanted", "items"),
        [
            (EventFilter(("things",)), "acd"),
            (EventFilter(("things", "others")), "abcd"),
            (EventFilter(("things",), ("thing.updated",)), "c"),
            (EventFilter(("things", "others"), ("thing.*", "other.deleted")), "abcd"),
            (EventFilter(("things",), ("thing.c*", "no.such")), "ad"),
            (EventFilter((), own=("things",), owner="me"), "d"),
            (EventFilter(("others",), own=("things",), owner="me"), "bd"),
            (EventFilter((), own=("things",)), ""),
            (EventFilter(()), ""),
        ],
    )
    def test_only_what_is_wanted_is_read(self, store: Store, wanted: EventFilter, items: str) -> None:
        """By collection, by type with `*`, and by owner."""
        ids = record(
            store,
            event("a"),
            event("b", "other.deleted", collection="others"),
            event("c", "thing.updated"),
            event("d", owner="me"),
        )
        assert all_of(store, wanted) == [ids["abcd".index(each)] for each in items]

    def test_one_search_is_bounded(self, store: Store) -> None:
        """Where nothing is wanted, a search ends after so many, and the next goes on from there."""
        record(store, *(event("x", collection="others") for _ in range(LOOKED_AT)))
        (id,) = record(store, event("y"))
        events, last, more = store.events("", THINGS, 10)
        assert events == [] and more
        assert [each.id for each in store.events(last, THINGS, 10).events] == [id]

    def test_those_that_expired_are_swept(self, store: Store) -> None:
        """The oldest go first, so many at a time, and never the newest."""
        ids = record(store, *(event(at=f"2026-01-0{day}") for day in range(1, 6)))
        sweep = lambda before, limit: store.write(lambda transaction: transaction.sweep_events(before, limit))  # noqa: E731
        assert sweep("2026-01-04", 2) == 2 and all_of(store) == ids[2:]
        assert sweep("2026-01-04", 10) == 1 and sweep("2026-01-04", 10) == 0
        assert sweep("2027", 10) == 1 and all_of(store) == ids[4:]
        assert record(store, event()) == all_of(store)[1:]

    def test_what_is_left_has_no_holes(self, store: Store) -> None:
        """An event that is dated ahead of those around it keeps those behind it, until it expires itself."""
        ids = record(store, *(event(at=at) for at in ("2026-01-01", "2026-01-09", "2026-01-02", "2026-01-10")))
        assert store.write(lambda transaction: transaction.sweep_events("2026-01-05", 10)) == 1
        assert all_of(store) == ids[1:]

    def test_a_page_of_large_events_is_short(self, store: Store) -> None:
        """Some megabytes end it; the rest is in the next, and nothing is lost."""
        large = b'"' + b"x" * PAGE_BYTES + b'"'
        ids = record(store, *(event(str(n), data=large) for n in range(3)))  # type: ignore[arg-type]
        events, last, more = store.events("", THINGS, 10)
        assert ([each.id for each in events], last, more) == (ids[:1], ids[0], True)
        assert all_of(store, limit=10) == ids

    def test_a_cursor_that_expired_is_told_where_to_go_on(self, store: Store) -> None:
        """What is not known to be complete is refused; from the cursor that is told, it is."""
        ids = record(store, *(event(at=f"2026-01-0{day}") for day in range(1, 6)))
        store.write(lambda transaction: transaction.sweep_events("2026-01-04", 10))
        with pytest.raises(EventsExpired) as raised:
            store.events(ids[1], THINGS, 10)
        assert [each.id for each in store.events(raised.value.resume, THINGS, 10).events] == ids[3:]
        assert [each.id for each in store.events(ids[2], THINGS, 10).events] == ids[3:], "nothing after it is missing"

    @pytest.mark.parametrize("cursor", ["x", "evt_00000000_2", "evt_00000000_ffff", "evt_00000000_-1", "evt_00000000_"])
    def test_a_cursor_of_another_store_is_refused(self, store: Store, cursor: str) -> None:
        """Wherever it points."""
        record(store, event(), event(), event())
        with pytest.raises(EventsExpired):
            store.events(cursor, THINGS, 10)

    def test_each_copy_has_the_history_of_its_original_and_a_future_of_its_own(self, tmp_path: Path) -> None:
        """A cursor from before the backup is good everywhere; one from after it, just where it was given."""
        things = [Collection("things", {})]
        original = open_store(f"sqlite:///{tmp_path}/a.db", things)
        before = record(original, event("a"), event("b"))
        original.backup(tmp_path / "b.db")
        (tmp_path / "c.db").write_bytes((tmp_path / "b.db").read_bytes())
        stores = [original, *(open_store(f"sqlite:///{tmp_path}/{name}.db", things) for name in "bc")]
        after = [record(store, event("c"), event("d")) for store in stores]
        assert len({id for ids in after for id in ids}) == 6
        for store, own in zip(stores, after, strict=True):
            assert all_of(store) == before + own
            assert len(store.events(before[-1], THINGS, 10).events) == 2
            for other in (ids for ids in after if ids is not own):
                for id in other:
                    with pytest.raises(EventsExpired):
                        store.events(id, THINGS, 10)
            record(store, event("e", at="2028"))
            store.write(lambda transaction: transaction.sweep_events("2027", 10))
            with pytest.raises(EventsExpired):  # it stands where this store's last one did that is gone
                store.events(next(ids for ids in after if ids is not own)[-1], THINGS, 10)
            assert len(store.events(own[-1], THINGS, 10).events) == 1
            store.close()


class TestDeliveries:
    @pytest.fixture(autouse=True)
    def subscribed(self, store: Store) -> None:
        record(store, event("before"))
        subscribe(store)

    def test_what_happened_since_is_queued_once(self, store: Store) -> None:
        """Of each event that is wanted there is one delivery, in however many steps."""
        record(store, event("a"), event("b"), event("c", collection="others"), event("d"))
        for _ in range(4):
            queue(store, limit=2)
        assert [each.event.id for each in lease(store)] == [all_of(store)[n] for n in (1, 2, 3)]

    def test_who_has_something_to_do_is_known(self, store: Store) -> None:
        """First to queue, then to send, with the secrets; then no more."""
        assert store.subscriptions(["w"], 1.0) == []
        record(store, event())
        assert store.subscriptions(["w"], 1.0) == [("w", SECRETS, True, False, True)]
        assert store.subscriptions(["other"], 1.0) == [], "of one that is not active nothing"
        queue(store)
        assert store.subscriptions(["w"], 1.0) == [("w", SECRETS, False, True, True)]
        assert store.subscriptions(["w"], 0.5) == [], "nothing is due yet"
        lease(store)
        assert store.subscriptions(["w"], 30.0) == []

    def test_nobody_else_has_what_is_leased(self, store: Store) -> None:
        """Until the lease ends; then somebody else may, and the first cannot settle it any more."""
        record(store, event())
        queue(store)
        (first,) = lease(store, now=10.0, until=40.0)
        assert lease(store, now=39.0) == []
        (second,) = lease(store, now=40.0, until=70.0)
        assert second.event == first.event and second.id == first.id
        assert not settle(store, first, ok=True)
        assert settle(store, second, ok=True) and not settle(store, second, ok=True)
        assert lease(store, now=LONG) == []

    def test_the_events_of_an_item_go_one_after_the_other(self, store: Store) -> None:
        """The next is due once the one before it is delivered or given up, and not while that is tried again."""
        one, two, three, other = record(store, event("a"), event("a"), event("a"), event("b"))
        queue(store, limit=2)
        queue(store)
        first, fourth = lease(store, until=LONG)
        assert [first.event.id, fourth.event.id] == [one, other]
        settle(store, fourth, ok=True)
        settle(store, first, next=50.0)
        assert lease(store, now=49.0) == [], "a retry keeps its place"
        (again,) = lease(store, now=50.0, until=80.0)
        assert again.event.id == one and again.attempts == 1
        settle(store, again, ok=True)
        (second,) = lease(store, now=LONG)
        assert second.event.id == two
        settle(store, second)
        assert [each.event.id for each in lease(store, now=LONG)] == [three]

    def test_webhooks_do_not_wait_for_each_other(self, store: Store) -> None:
        """Each has its own deliveries of an event."""
        subscribe(store, "v")
        record(store, event("a"), event("a"))
        queue(store)
        queue(store, "v", EventFilter(("things",), ("no.such",)))
        assert len(lease(store)) == 1 and lease(store, "v") == []

    def test_an_endpoint_can_ask_for_a_pause(self, store: Store) -> None:
        """Nothing is due meanwhile, of whatever item."""
        record(store, event("a"), event("b"))
        queue(store)
        first, second = lease(store, until=20.0)
        settle(store, first, next=20.0, hold=60.0)
        settle(store, second, next=20.0)
        assert store.subscriptions(["w"], 59.0) == []
        assert store.subscriptions(["w"], 60.0) == [("w", SECRETS, False, True, True)]

    def test_a_pause_can_be_forgotten(self, store: Store) -> None:
        """Then what waited for another try is due, but not what somebody has, nor what has to keep its order."""
        record(store, event("a"), event("a"), event("b"))
        queue(store)
        first, third = lease(store, until=40.0)
        settle(store, first, next=5000.0, hold=9000.0)
        store.write(lambda transaction: transaction.resume("w", 20.0))
        assert store.subscriptions(["w"], 20.0)[0].due
        assert [each.event.id for each in lease(store, now=20.0)] == [first.event.id]
        assert settle(store, third, ok=True)

    def test_what_is_asked_for_goes_at_once_and_alone(self, store: Store) -> None:
        """Also to a webhook that is not active, whatever waits; another worker takes it up when the first dies."""
        ids = record(store, event("a"), event("a"))
        queue(store)
        asked = store.write(lambda transaction: transaction.ask("w", ids[1]))
        assert store.subscriptions([], 5.0) == [("w", SECRETS, False, True, False)]
        lease(store, now=5.0, until=25.0, asked_only=True)
        assert store.subscriptions([], 24.0) == []
        assert store.subscriptions([], 25.0)[0].due
        (delivery,) = lease(store, now=25.0, asked_only=True)
        assert (delivery.id, delivery.asked, delivery.event.id, delivery.lease) == (asked, True, ids[1], 2)
        settle(store, delivery)
        assert store.subscriptions([], LONG) == []
        assert store.write(lambda transaction: transaction.logged("w", asked)).state == "failed"

    def test_what_was_swept_is_not_looked_at(self, store: Store) -> None:
        """A webhook that is behind passes over it, and what it looked at is what there was."""
        record(store, *(event(str(n)) for n in range(8)), event("kept", at="2027"), event("last", at="2028"))
        store.write(lambda transaction: transaction.sweep_events("2027", 100))
        looked = [
            store.write(lambda transaction, limit=limit: transaction.queue("w", THINGS, 1.0, limit))
            for limit in (0, 1, 10, 10)
        ]
        assert looked == [0, 1, 1, 0]
        assert [each.event.at for each in lease(store)] == ["2027", "2028"]

    def test_what_is_swept_holds_up_nothing(self, store: Store) -> None:
        """A delivery that waited for one whose event is swept is due; what waits for one that is kept still waits."""
        record(
            store,
            event("a"),
            event("b", at="2027"),
            event("a", at="2027"),
            event("a", at="2027"),
            event("b", at="2028"),
        )
        queue(store)
        (first, _) = lease(store)
        settle(store, first, next=5000.0)
        assert store.write(lambda transaction: transaction.sweep_events("2027", 10)) == 2
        (second,) = lease(store)
        assert (second.event.at, second.id) == ("2027", first.id + 2)

    def test_what_is_not_there_cannot_be_asked_for(self, store: Store) -> None:
        """An event that is not, a delivery of another webhook, the secrets of none."""
        for unknown in ("x", "evt_00000000_1", "evt_00000000_99"):
            with pytest.raises(RecordNotFound):
                store.write(lambda transaction, id=unknown: transaction.ask("w", id))
        asked = store.write(lambda transaction: transaction.ask("w", all_of(store)[0]))
        with pytest.raises(RecordNotFound):
            store.write(lambda transaction: transaction.logged("v", asked))
        with pytest.raises(RecordNotFound):
            store.write(lambda transaction: transaction.secrets("v"))

    def test_the_log_has_the_newest_first(self, store: Store) -> None:
        """With how the last try went, in steps, and by state."""
        ids = record(store, event("a"), event("a"), event("b"))
        queue(store)
        first, third = lease(store)
        settle(store, first, ok=True)
        settle(store, third, next=77.0)
        log = store.deliveries("w", None, 10)
        assert [(each.event, each.state, each.due) for each in log] == [
            (ids[2], "pending", 77.0),
            (ids[1], "pending", 11.0),
            (ids[0], "delivered", None),
        ]
        assert log[2][4:] == (1, None, 11.0, 200, 0.25, "said") and log[1].attempts == 0
        assert store.deliveries("w", log[0].id, 1) == log[1:2]
        assert store.deliveries("w", None, 10, "delivered") == log[2:]
        assert store.deliveries("v", None, 10) == []

    def test_deliveries_go_with_their_events(self, store: Store) -> None:
        """What is swept is not delivered, and a webhook that is behind goes on with what is kept."""
        record(store, event("a"), event("b", at="2027"), event("c", at="2027"))
        queue(store, limit=1)
        store.write(lambda transaction: transaction.sweep_events("2027", 10))
        queue(store)
        assert [each.event.at for each in lease(store)] == ["2027", "2027"]

    def test_a_webhook_that_is_gone_leaves_nothing(self, store: Store) -> None:
        """Nothing more is delivered, and its log goes with the events; who has one of its deliveries may settle it."""
        record(store, event("a"), event("b"))
        queue(store, limit=1)
        (delivery,) = lease(store)
        store.write(lambda transaction: transaction.unsubscribe("w"))
        assert store.subscriptions(["w"], LONG) == []
        settle(store, delivery, ok=True)
        queue(store)
        assert len(store.deliveries("w", None, 10)) == 1, "nothing is queued any more"
        record(store, event("later", at="2028"))
        store.write(lambda transaction: transaction.sweep_events("2027", 10))
        assert store.deliveries("w", None, 10) == []

    def test_secrets_can_change(self, store: Store) -> None:
        """What is kept is what is read."""
        store.write(lambda transaction: transaction.set_secrets("w", [Secret("whsec_c")]))
        assert store.write(lambda transaction: transaction.secrets("w")) == (Secret("whsec_c"),)

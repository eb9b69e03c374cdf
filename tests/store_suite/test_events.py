"""Events: read in the order of their commits, each exactly once, as long as they are stored."""

import threading
from dataclasses import replace

import pytest

from restkeeper.storage.base import Store
from restkeeper.storage.errors import EventsExpired
from restkeeper.storage.interface import MOST_EXAMINED, PAGE_BYTES, EventFilter
from tests.outbox import THINGS, all_of, event, lease, queue, record, subscribe
from tests.waiting import join


def test_an_event_is_read_as_it_was_recorded(outbox: Store) -> None:
    """Each of its fields is unchanged, the data byte for byte; also in the delivery of a webhook."""
    subscribe(outbox)
    recorded = event(type="thing.updated", at="2026-01-02", data=b'{"name":"\xc3\xa9"}')  # type: ignore[arg-type]
    ids = record(
        outbox, recorded, recorded._replace(item="b", fingerprint="2-0123abcd", removed=b'{"2.a":1}', former="")
    )
    read = outbox.events("", THINGS, 10).events
    assert read == [
        (ids[0], "thing.updated", "2026-01-02", b'{"name":"\xc3\xa9"}', "things", "", None, None, None),
        (ids[1], "thing.updated", "2026-01-02", b'{"name":"\xc3\xa9"}', "things", "2-0123abcd", b'{"2.a":1}', None, ""),
    ]
    queue(outbox)
    assert [each.event for each in lease(outbox)] == read


def test_the_last_event_is_known(outbox: Store) -> None:
    begin = outbox.last_event()
    assert outbox.events(begin, THINGS, 10) == ([], begin, False)
    thread = threading.Thread(target=lambda: record(outbox, event()))
    thread.start()
    join(thread)
    assert outbox.last_event() == all_of(outbox)[-1] != begin
    assert [each.id for each in outbox.events(begin, THINGS, 10).events] == all_of(outbox)


def test_events_can_be_filtered(outbox: Store) -> None:
    """By collection, by type with `*`, and by owners."""
    ids = record(
        outbox,
        event("a"),
        event("b", "other.deleted", collection="others"),
        event("c", "thing.updated"),
        event("d", owner="me"),
    )
    expected = {
        EventFilter(("things",)): "acd",
        EventFilter(("things", "others")): "abcd",
        EventFilter(("things",), ("thing.updated",)): "c",
        EventFilter(("things", "others"), item="c"): "c",
        EventFilter(("things", "others"), ("thing.*", "other.deleted")): "abcd",
        EventFilter(("things",), ("thing.c*", "no.such")): "ad",
        EventFilter((), own=("things",), owners=("me",)): "d",
        EventFilter(("others",), own=("things",), owners=("me",)): "bd",
        EventFilter((), own=("things",), owners=("x", "me")): "d",
        EventFilter((), own=("things",), owners=("x", "y")): "",
        EventFilter((), own=("things",)): "",
        EventFilter(()): "",
    }
    found = {each: "".join("abcd"[ids.index(id)] for id in all_of(outbox, each)) for each in expected}
    assert found == expected


def test_an_event_that_gives_an_item_to_another_owner(outbox: Store) -> None:
    """Readers of one of the two owners alone see another type, and filter by that; all others see its own."""
    ids = record(
        outbox,
        event("a", "thing.updated", owner="new", former="old"),
        event("b", "thing.updated", owner="new", former=""),
        event("c", "thing.updated", former="old"),
        event("d", "thing.updated", owner="new"),
    )
    types = {"thing.created": "+", "thing.updated": ".", "thing.deleted": "-"}
    for filter, wanted in {
        EventFilter(("things",)): "a.b.c.d.",
        EventFilter(("things",), own=("others",), owners=("new",)): "a.b.c.d.",
        EventFilter((), own=("things",), owners=("new",)): "a+b+d.",
        EventFilter((), own=("things",), owners=("old",)): "a-c-",
        EventFilter((), own=("things",), owners=("old", "new")): "a.b+c-d.",
        EventFilter((), own=("things",), owners=("x",)): "",
        EventFilter((), own=("things",), owners=()): "",
    }.items():
        found = outbox.events("", filter, 10).events
        assert "".join("abcd"[ids.index(each.id)] + types[each.type] for each in found) == wanted, filter
        for type, sign in types.items():
            of_type = outbox.events("", replace(filter, types=(type,)), 10).events
            assert [each.id for each in of_type] == [each.id for each in found if types[each.type] == sign], filter
        assert all(each.is_for_former_owner is each.type.endswith("deleted") for each in found)


def test_one_search_is_limited(outbox: Store) -> None:
    """Without a match a search ends after a number of events, and the next one continues there."""
    record(outbox, *(event("x", collection="others") for _ in range(MOST_EXAMINED)))
    (id,) = record(outbox, event("y"))
    events, last, more = outbox.events("", THINGS, 10)
    assert events == [] and more
    assert [each.id for each in outbox.events(last, THINGS, 10).events] == [id]


def test_expired_events_are_swept(outbox: Store) -> None:
    """The oldest are deleted first, a limited number in each call, and never the newest."""
    ids = record(outbox, *(event(at=f"2026-01-0{day}") for day in range(1, 6)))
    sweep = lambda before, limit: outbox.write(lambda transaction: transaction.sweep_events(before, limit))  # noqa: E731
    assert sweep("2026-01-04", 2) == 2 and all_of(outbox) == ids[2:]
    assert sweep("2026-01-04", 10) == 1 and sweep("2026-01-04", 10) == 0
    assert sweep("2027", 10) == 1 and all_of(outbox) == ids[4:]
    assert record(outbox, event()) == all_of(outbox)[1:]


def test_sweeping_leaves_no_gaps(outbox: Store) -> None:
    """If an event has a later date than its neighbours, the events after it stay until it expires."""
    ids = record(outbox, *(event(at=at) for at in ("2026-01-01", "2026-01-09", "2026-01-02", "2026-01-10")))
    assert outbox.write(lambda transaction: transaction.sweep_events("2026-01-05", 10)) == 1
    assert all_of(outbox) == ids[1:]


def test_a_page_of_large_events_is_short(outbox: Store) -> None:
    """A page ends by its bytes; the next page has the rest, and nothing is lost."""
    large = b'"' + b"x" * PAGE_BYTES + b'"'
    ids = record(outbox, *(event(str(n), data=large) for n in range(3)))  # type: ignore[arg-type]
    events, last, more = outbox.events("", THINGS, 10)
    assert ([each.id for each in events], last, more) == (ids[:1], ids[0], True)
    assert all_of(outbox, limit=10) == ids


def test_an_expired_cursor_gets_a_cursor_to_resume(outbox: Store) -> None:
    """A cursor after which events may be missing is refused; no event is missing after the cursor `resume`."""
    ids = record(outbox, *(event(at=f"2026-01-0{day}") for day in range(1, 6)))
    outbox.write(lambda transaction: transaction.sweep_events("2026-01-04", 10))
    with pytest.raises(EventsExpired) as raised:
        outbox.events(ids[1], THINGS, 10)
    assert [each.id for each in outbox.events(raised.value.resume, THINGS, 10).events] == ids[3:]
    assert [each.id for each in outbox.events(ids[2], THINGS, 10).events] == ids[3:], "nothing after it is missing"


def test_a_cursor_of_another_store_is_refused(outbox: Store) -> None:
    record(outbox, event(), event(), event())
    for cursor in ("x", "evt_00000000_2", "evt_00000000_ffff", "evt_00000000_-1", "evt_00000000_"):
        with pytest.raises(EventsExpired):
            outbox.events(cursor, THINGS, 10)

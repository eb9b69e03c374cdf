"""Events: read in the order of their commits, each exactly once, as long as they are stored."""

from restkeeper.storage.base import Store
from restkeeper.storage.feed import PAGE_BYTES, find_events, sweep_events
from tests.outbox import THINGS, all_of, event, lease, queue, record, subscribe


def test_an_event_is_read_as_it_was_recorded(outbox: Store) -> None:
    """Each of its fields is unchanged, the data byte for byte; also in the delivery of a webhook."""
    subscribe(outbox)
    recorded = event(type="thing.updated", at="2026-01-02", data=b'{"name":"\xc3\xa9"}')  # type: ignore[arg-type]
    ids = record(
        outbox, recorded, recorded._replace(item="b", fingerprint="2-0123abcd", removed_fields=b'{"2.a":1}', former="")
    )
    read = find_events(outbox, "", THINGS, 10).events
    assert read == [
        (ids[0], "thing.updated", "2026-01-02", b'{"name":"\xc3\xa9"}', "things", "", None, None, None),
        (ids[1], "thing.updated", "2026-01-02", b'{"name":"\xc3\xa9"}', "things", "2-0123abcd", b'{"2.a":1}', None, ""),
    ]
    queue(outbox)
    assert [each.event for each in lease(outbox)] == read


def test_expired_events_are_swept(outbox: Store) -> None:
    """The oldest are deleted first, a limited number in each call, and never the newest."""
    ids = record(outbox, *(event(at=f"2026-01-0{day}") for day in range(1, 6)))
    sweep = lambda before, limit: outbox.write(lambda transaction: sweep_events(transaction, before, limit))  # noqa: E731
    assert sweep("2026-01-04", 2) == 2 and all_of(outbox) == ids[2:]
    assert sweep("2026-01-04", 10) == 1 and sweep("2026-01-04", 10) == 0
    assert sweep("2027", 10) == 1 and all_of(outbox) == ids[4:]
    assert record(outbox, event()) == all_of(outbox)[1:]


def test_sweeping_leaves_no_gaps(outbox: Store) -> None:
    """If an event has a later date than its neighbours, the events after it stay until it expires."""
    ids = record(outbox, *(event(at=at) for at in ("2026-01-01", "2026-01-09", "2026-01-02", "2026-01-10")))
    assert outbox.write(lambda transaction: sweep_events(transaction, "2026-01-05", 10)) == 1
    assert all_of(outbox) == ids[1:]


def test_a_page_of_large_events_is_short(outbox: Store) -> None:
    """A page ends by its bytes; the next page has the rest, and nothing is lost."""
    large = b'"' + b"x" * PAGE_BYTES + b'"'
    ids = record(outbox, *(event(str(n), data=large) for n in range(3)))  # type: ignore[arg-type]
    events, last, more = find_events(outbox, "", THINGS, 10)
    assert ([each.id for each in events], last, more) == (ids[:1], ids[0], True)
    assert all_of(outbox, limit=10) == ids

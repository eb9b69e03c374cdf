"""Values that no client can send, and a file can have: numbers beyond a double, NUL, deep arrays."""

from decimal import Decimal

from restkeeper.storage.interface import Aggregate, Filter, Groups, Op, Page, Query, Record, Sort
from tests.store_suite.test_pages import walk
from tests.store_suite.test_undeclared import OPEN, counted_by
from tests.things import close_all, insert, open_store

BODIES = {
    "a": b'{"id":"a","x":1e400}',
    "b": b'{"id":"b","x":-1e400}',
    "c": b'{"id":"c","x":123456789012345678901234567890}',
    "d": rb'{"id":"d","x":"k\u0000z"}',
    "e": b'{"id":"e","x":%b"deep"%b}' % (b"[" * 500, b"]" * 500),
    "f": b'{"id":"f","x":5}',
}


def ids(*pages: Page) -> str:
    return "".join(body[7:8].decode() for page in pages for body in page.bodies)


def test_odd_values_end_no_query() -> None:
    """They are sorted by what is near them, and each is on one page."""
    store = open_store("memory://", [OPEN])
    try:
        insert(store, *(Record(id, 1, "2026-01-01T00:00:00.000000Z", "", body) for id, body in BODIES.items()))
        assert ids(*walk(store, Query(sort=(Sort("x"),), limit=1))) == "ebfcad"
        assert len(store.groups("things", counted_by("x"), 10)) == len(BODIES)
        aggregates = Groups((), tuple(Aggregate(each, "x") for each in ("sum", "avg", "min", "max")))
        ((_, _, found),) = store.groups("things", Query(groups=aggregates), 1)
        assert found[0] == 123456789012345678901234567895
        assert tuple(map(float, found[1:3])) == (123456789012345678901234567895 / 4, float("-inf"))
        assert ids(store.page("things", Query(search=("deep",)))) == "e"
        assert ids(store.page("things", Query(search=("Z",)))) == "d"
        assert ids(store.page("things", Query((Filter("x", Op.LIKE, "K"),)))) == "d"
        assert ids(store.page("things", Query((Filter("x", Op.GT, ("5", Decimal(5))),)))) == "acd"
        insert(store, Record("g", 1, "2026-01-01T00:00:00.000000Z", "", b'{"id":"g","x":1e99999999999999999999}'))
        ((_, _, found),) = store.groups("things", Query(groups=aggregates), 1)
        assert set(found[:3]) == {Decimal("Infinity"), Decimal("-Infinity")}
    finally:
        close_all()

"""Values that no client can send, and a file can have: numbers beyond a double, NUL, deep arrays."""

from decimal import Decimal

from restkeeper.storage.interface import Filter, Op, Page, Query, Record, Sort
from tests.store_suite.test_pages import walk
from tests.store_suite.test_undeclared import OPEN
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
        assert len(store.groups("things", Query(sort=(Sort("x"),)), 10)) == len(BODIES)
        assert ids(store.page("things", Query(search=("deep",)))) == "e"
        assert ids(store.page("things", Query(search=("Z",)))) == "d"
        assert ids(store.page("things", Query((Filter("x", Op.LIKE, "K"),)))) == "d"
        assert ids(store.page("things", Query((Filter("x", Op.GT, ("5", Decimal(5))),)))) == "acd"
    finally:
        close_all()

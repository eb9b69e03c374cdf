"""Pages in PostgreSQL."""

import sys
from decimal import Decimal
from typing import Any

from restkeeper.storage.contract import Collection, Page, Query
from restkeeper.storage.postgresql.counters import revision
from restkeeper.storage.postgresql.queries import select_page
from restkeeper.storage.postgresql.session import Row, Session


def find_page(session: Session, collection: Collection, query: Query, max_bytes: int | None) -> Page:
    """See `contract.ItemStore.page`: one statement, which reads at most one row more."""
    statement, parameters = select_page(collection, query)
    most_bytes = sys.maxsize if max_bytes is None else max_bytes
    found = session.rows(statement, {**parameters, "most_bytes": most_bytes})
    epoch, changes, items, others, *_ = found[0]
    total = None if query.narrows else items or 0
    rows, more, cut = _fitting([row[4:] for row in found if row[4] is not None], query.limit, most_bytes)
    if query.backward:
        rows.reverse()
    page = Page([], [], [])
    if rows:
        _, fingerprints, bodies, older, *_ = zip(*rows, strict=True)
        page = Page(list(bodies), list(fingerprints), list(older), more, _position(rows[0]), _position(rows[-1]), cut)
    return page._replace(revision=revision(epoch, changes or 0), total=total, others=others)


def _fitting(rows: list[Row], limit: int | None, most_bytes: int) -> tuple[list[Row], bool, bool]:
    """The rows of the page, whether there are more, and whether the bytes ended it. One row more shows that."""
    size = 0
    for number, row in enumerate(rows):
        size += len(row[2]) + len(row[3] or b"")
        if number == limit:
            return rows[:number], True, False
        if size > most_bytes and number:
            return rows[:number], True, True
    return rows, False, False


def _position(row: Row) -> tuple[Any, ...]:
    """The position of a row: its sort keys and its id, as they are in JSON."""
    id, _, _, _, *keys = row
    return (*(_plain(key) if isinstance(key, Decimal) else key for key in keys), id)


def _plain(number: Decimal) -> int | float | None:
    """A number of a position. A double has all digits of the numbers in items; null is below all."""
    if not number.is_finite():
        return None
    return int(number) if number == number.to_integral_value() and abs(number) < 2**63 else float(number)

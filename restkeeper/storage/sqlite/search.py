"""Reading lists in SQLite: bounded in bytes, and so that others work meanwhile."""

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from restkeeper.clock import TURN, Clock
from restkeeper.storage.contract import Collection, Page, Query
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.sqlite import sql

READ_SECONDS = 5.0  # how long one list may be looked for
YIELD_SECONDS = 0.005  # for which a search works before it lets others work
STEPS = 20  # of SQLite's machine, from look to look at the clock: with large items a single step takes milliseconds


@contextmanager
def within(
    seconds: float,
    connection: sqlite3.Connection,
    clock: Clock,
    turn: threading.Lock,
    is_in_the_way: Callable[[], bool],
) -> Iterator[None]:
    """End a search that takes longer, and let others work every few milliseconds (a cooperative server's sleep does).

    It ends too once it `is_in_the_way` of those who write.

    That is while SQLite seeks and sorts, and from row to row. Searches have the `turn` one after the other, so that
    what else the process does waits for one of them and not for all.
    """
    turn.acquire()
    monotonic = clock.monotonic
    deadline, end = monotonic() + seconds, monotonic() + YIELD_SECONDS
    has_turn = True
    detail, failure = "", None

    def must_end() -> bool:  # called some hundred times for a page, so that what it mostly does is all in one call
        nonlocal failure
        if (now := monotonic()) < end:
            return False
        try:
            return pause(now)
        except BaseException as error:  # SQLite would only say that it was interrupted
            failure = error
            return True

    def pause(now: float) -> bool:
        nonlocal deadline, end, has_turn, detail
        if now > deadline:
            detail = f"the search took more than {seconds:g} s; narrow it by a field with an index"
        elif is_in_the_way():
            detail = "too much was written during the search; try again, or narrow it by a field with an index"
        clock.sleep(TURN)  # with the turn, so that no other search comes before the server's sockets
        turn.release()
        has_turn = False
        clock.sleep(0)
        has_turn = turn.acquire()
        after = monotonic()
        deadline += after - now  # what others took is not this search's time
        end = after + YIELD_SECONDS
        return bool(detail)

    connection.set_progress_handler(must_end, STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        raise failure or StoreUnavailable(detail) from error
    finally:
        connection.set_progress_handler(None, STEPS)
        if has_turn:
            turn.release()


def find_page(connection: sqlite3.Connection, collection: Collection, query: Query, max_bytes: int | None) -> Page:
    """The page that the query asks for, without its revision. No more is read than it holds, and one row."""
    rows, cut = _rows(connection, collection, query, max_bytes)
    more = cut or (query.limit is not None and len(rows) > query.limit)
    if more and not cut:
        rows.pop()
    if query.backward:
        rows.reverse()
    if not rows:
        return Page([])
    bodies, fingerprints = [row[2] for row in rows], frozenset([row[1] for row in rows])
    return Page(bodies, fingerprints, more, _position(rows[0]), _position(rows[-1]), cut)


def _rows(
    connection: sqlite3.Connection, collection: Collection, query: Query, max_bytes: int | None
) -> tuple[list[Any], bool]:
    """Rows of `sql.select_page`, one more than the limit if there are, and whether the bytes ended them before."""
    statements, parameters = sql.select_page(collection, query)
    wanted = sys.maxsize if query.limit is None else query.limit + 1  # one more says whether there are more
    most = sys.maxsize if max_bytes is None else max_bytes
    rows: list[Any] = []
    size = 0
    for statement in statements:
        parameters["limit"] = wanted - len(rows)
        for row in connection.execute(statement, parameters):
            size += len(row[2])
            if size > most and rows and len(rows) + 1 < wanted:
                return rows, True
            rows.append(row)
        if len(rows) == wanted:
            break
    return rows, False


def _position(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The place of a row of `select_page` in the order asked for: its sort keys, and its id if it is not among them."""
    id, _, _, *keys = row
    return (*(None if key == -float("inf") else key for key in keys), id)

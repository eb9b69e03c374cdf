"""Events in PostgreSQL: the sequencer, which gives each committed event its position, and reading the feed.

Transactions commit in another order than the one in which they recorded their events. So an event has no position until
its transaction has committed. The sequencer locks the row of `feed`, and its next statement, which sees all that was
committed before, numbers the events without a position in the order of `seq`. Readers use positions alone: they see no
gap, and nothing is inserted before what they have read. A transaction that stays open delays its own events only.
"""

from collections.abc import Callable
from typing import Any

from restkeeper.storage.errors import EventsExpired
from restkeeper.storage.eventid import id_of, parse_id
from restkeeper.storage.outbox import MOST_EXAMINED, PAGE_BYTES, EventFilter, Events
from restkeeper.storage.postgresql.fields import clean
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.rows import stored_event

NUMBERED = 2000  # events that one run of the sequencer numbers, in some 100 milliseconds
MOST_RUNS = 20  # for one reader

_WAIT_FOR_NOBODY = "SET LOCAL lock_timeout = 1"  # millisecond; 0 would be for ever
LOCK_FEED = "SELECT newest FROM feed FOR UPDATE"

# It must be a statement after LOCK_FEED, so that its snapshot has what the sequencer before committed.
_NUMBER = """\
WITH
unnumbered AS (
    SELECT
        seq,
        row_number() OVER (ORDER BY seq) AS number
    FROM (SELECT seq FROM events WHERE position IS NULL {} ORDER BY seq LIMIT %(limit)s) AS oldest
),
advanced AS (
    UPDATE feed SET newest = newest + (SELECT count(*) FROM unnumbered)
    WHERE EXISTS (SELECT 1 FROM unnumbered)
)
UPDATE events SET
    position = newest + number,
    origin = epoch
FROM unnumbered, feed, store
WHERE events.seq = unnumbered.seq"""
NUMBER = _NUMBER.format("")
NUMBER_ITEM = _NUMBER.format("AND collection = %(collection)s AND item = %(item)s")

IS_UNNUMBERED = "EXISTS (SELECT 1 FROM events WHERE position IS NULL)"

# The events that match a filter.
WANTED = """\
(collection = ANY(%(collections)s::text[]) OR (owner = %(owner)s AND collection = ANY(%(own)s::text[])))
    AND type LIKE ANY(%(types)s::text[])"""

# Those between the two positions of the row `search`. A join would not use the index for both.
_MATCHES = f"""\
position > (SELECT start FROM search) AND position <= (SELECT until FROM search)
    AND {WANTED}"""  # noqa: S608 - constant conditions

# The columns of a stored event, for `stored_event`.
STORED = """\
position,
    origin,
    events.type,
    at,
    convert_to(data, 'UTF8'),
    collection,
    fingerprint,
    convert_to(older, 'UTF8')"""

_OLDEST = "coalesce((SELECT min(position) FROM events), 1)"

# The bounds of the feed and of the search, in each row, and the matching events, or nulls.
_SELECT = f"""\
WITH
bounds AS (SELECT {_OLDEST} AS oldest, newest, epoch FROM feed, store),
search AS (
    SELECT
        oldest,
        newest,
        epoch,
        coalesce(%(after)s::bigint, oldest - 1) AS start,
        least(coalesce(%(after)s::bigint, oldest - 1) + %(most)s, newest) AS until
    FROM bounds
),
matching AS (
    SELECT
        first.*,
        sum(octet_length(data) + coalesce(octet_length(older), 0)) OVER (ORDER BY position) AS bytes
    FROM (SELECT * FROM events WHERE {_MATCHES} ORDER BY position LIMIT %(limit)s) AS first
),
page AS (
    SELECT
        {STORED},
        bytes
    FROM matching AS events
    WHERE bytes - octet_length(data) - coalesce(octet_length(older), 0) <= %(bytes)s
)
SELECT
    {IS_UNNUMBERED},
    oldest,
    newest,
    epoch,
    until,
    (SELECT origin FROM events WHERE position = start),
    (SELECT origin FROM events WHERE position = until),
    page.*
FROM search LEFT JOIN page ON true
ORDER BY position"""  # noqa: S608 - constant expressions

_SELECT_NEWEST = f"""\
SELECT
    {IS_UNNUMBERED},
    newest,
    coalesce((SELECT origin FROM events WHERE position = newest), epoch)
FROM feed, store"""  # noqa: S608 - a constant expression


def sequence(session: Session, limit: int = NUMBERED, *, waits: bool = True) -> tuple[int, int]:
    """Number the oldest committed events without a position, at most `limit`.

    Returns how many, and the highest position. Unless it `waits`, it raises LockNotAvailable where others have a lock.
    """
    session.begin()
    try:
        if not waits:
            session.queue(_WAIT_FOR_NOBODY)
        ((newest,),) = session.rows(LOCK_FEED)
        numbered = session.change(NUMBER, {"limit": limit})
        session.commit()
    finally:
        session.undo()
    return numbered, newest + numbered


def sequence_inside(session: Session) -> None:
    """Number all events that are committed now, inside a transaction: nobody else numbers any until its end."""
    session.rows(LOCK_FEED)
    while session.change(NUMBER, {"limit": NUMBERED}) == NUMBERED:
        pass


def sequence_all(session: Session, limit: int = NUMBERED) -> None:
    """Number all events that are committed now, or as many as MOST_RUNS runs can."""
    for _ in range(MOST_RUNS):
        if sequence(session, limit)[0] < limit:
            return


def sequenced_rows(session: Session, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    """The rows of a query without the first column, IS_UNNUMBERED: if it is true, the sequencer runs before."""
    rows = session.rows(statement, parameters)
    if rows and rows[0][0]:
        sequence_all(session)
        rows = session.rows(statement, parameters)
    return [row[1:] for row in rows]


def newest_id(session: Session) -> str:
    """See `outbox.OutboxStore.last_event`."""
    ((newest, origin),) = sequenced_rows(session, _SELECT_NEWEST)
    return id_of(newest, origin)


def find_events(
    session: Session, after: str, filter: EventFilter, limit: int, learn_of: Callable[[str, str], None]
) -> Events:
    """See `outbox.OutboxStore.events`. `learn_of` is called with the collection and the fingerprint of each event."""
    position, origin = parse_id(after)
    parameters = parameters_of(filter) | {"limit": limit, "most": MOST_EXAMINED, "bytes": PAGE_BYTES}
    rows = sequenced_rows(session, _SELECT, parameters | {"after": position if after else None})
    oldest, newest, epoch, end, start_origin, end_origin = rows[0][:6]
    swept = position == oldest - 1 and (origin == epoch or not position)  # or it is 0
    if after and not swept and (not oldest <= position <= newest or start_origin != origin):
        raise EventsExpired(
            "the events after this cursor are deleted, or it is of another service", resume=id_of(oldest - 1, epoch)
        )
    found = [stored_event(*row[6:-1]) for row in rows if row[6] is not None]
    for event in found:
        learn_of(event.collection, event.fingerprint)
    if found and (len(found) == limit or rows[-1][-1] > PAGE_BYTES):
        end, end_origin = rows[-1][6:8]
    return Events(found, id_of(end, end_origin or epoch), end < newest)


def parameters_of(filter: EventFilter) -> dict[str, Any]:
    """The parameters of WANTED."""
    return {
        "collections": [clean(each) for each in filter.collections],
        "own": [clean(each) for each in filter.own],
        "owner": None if filter.owner is None else clean(filter.owner),
        "types": [_like(clean(each)) for each in filter.types],
    }


def _like(pattern: str) -> str:
    """The pattern of LIKE for one in which `*` stands for any text."""
    for special in "\\%_":
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace("*", "%")

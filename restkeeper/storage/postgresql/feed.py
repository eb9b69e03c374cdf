"""The feed of events in PostgreSQL: the sequencer, which gives each committed event its position, and reading.

What it has in all databases is in `storage/feed.py`.

Transactions commit in another order than the one in which they recorded their events. So an event has no position until
its transaction has committed. The sequencer locks the row of `feed`, and its next statement, which sees all that was
committed before, numbers the events without a position in the order of `seq`. Readers use positions alone: they see no
gap, and nothing is inserted before what they have read. A transaction that stays open delays its own events only.
"""

from restkeeper.storage.feed import MOST_EXAMINED, PAGE_BYTES, EventFilter, Events, Feed, events_of, parse_id
from restkeeper.storage.postgresql.session import Session

NUMBERED = 2000  # events that one run of the sequencer numbers, in some 100 milliseconds
MOST_RUNS = 20  # for one reader

_WAIT_FOR_NOBODY = "SET LOCAL lock_timeout = 1"  # millisecond; 0 would be for ever
_LOCK_FEED = "SELECT 1 FROM feed FOR UPDATE"

# It must be a statement after _LOCK_FEED, so that its snapshot has what the sequencer before committed.
_NUMBER = """\
WITH
unnumbered AS (
    SELECT seq, row_number() OVER (ORDER BY seq) AS number
    FROM (SELECT seq FROM events WHERE position IS NULL ORDER BY seq LIMIT %(limit)s) AS oldest
),
advanced AS (
    UPDATE feed SET newest = newest + (SELECT count(*) FROM unnumbered)
    WHERE EXISTS (SELECT 1 FROM unnumbered)
)
UPDATE events SET position = newest + number, origin = epoch
FROM unnumbered, feed, store
WHERE events.seq = unnumbered.seq"""

# The bounds of the feed and of the search, in each row, and the matching events, or nulls. A join with `search`
# would not use the index for both positions.
_SELECT = """\
WITH
bounds AS (
    SELECT
        coalesce((SELECT min(position) FROM events), 1) AS oldest,
        newest,
        epoch
    FROM feed, store
),
search AS (
    SELECT
        oldest,
        newest,
        epoch,
        coalesce(:after::bigint, oldest - 1) AS start,
        least(coalesce(:after::bigint, oldest - 1) + :most, newest) AS until
    FROM bounds
),
matching AS (
    SELECT
        first.*,
        sum(octet_length(data) + coalesce(octet_length(removed_fields), 0)) OVER (ORDER BY position) AS bytes
    FROM (
        SELECT * FROM events
        WHERE position > (SELECT start FROM search) AND position <= (SELECT until FROM search) AND {wanted}
        ORDER BY position
        LIMIT :limit
    ) AS first
),
page AS (
    SELECT {event_for_readers}, bytes
    FROM matching AS events
    WHERE bytes - octet_length(data) - coalesce(octet_length(removed_fields), 0) <= :bytes
)
SELECT
    {is_unnumbered},
    oldest,
    newest,
    epoch,
    (SELECT origin FROM events WHERE position = start),
    until,
    (SELECT origin FROM events WHERE position = until),
    page.*
FROM search LEFT JOIN page ON true
ORDER BY position"""


def sequence(session: Session, limit: int = NUMBERED, *, waits: bool = True) -> int:
    """Number the oldest committed events without a position, at most `limit`, and return how many.

    Unless it `waits`, it raises LockNotAvailable where others have a lock.
    """
    session.begin()
    try:
        if not waits:
            session.queue(_WAIT_FOR_NOBODY)
        session.fetch(_LOCK_FEED)
        numbered = session.apply(_NUMBER, {"limit": limit})
        session.commit()
    finally:
        session.roll_back_if_open()
    return numbered


class PostgresFeed(Feed):
    """See `feed.Feed`."""

    database: Session

    def pattern(self, type: str) -> str:
        for special in "\\%_":
            type = type.replace(special, f"\\{special}")
        return type.replace("*", "%")

    def number(self, limit: int = NUMBERED) -> None:
        """Numbers at most as many events as MOST_RUNS runs can."""
        for _ in range(MOST_RUNS):
            if sequence(self.database, limit) < limit:
                return

    def number_inside(self) -> None:
        """Nobody else numbers any until the end of the transaction."""
        self.database.fetch(_LOCK_FEED)
        while self.database.apply(_NUMBER, {"limit": NUMBERED}) == NUMBERED:
            pass

    def find(self, after: str, filter: EventFilter, limit: int) -> Events:
        position, _ = parse_id(after)
        values = {"after": position if after else None, "most": MOST_EXAMINED, "limit": limit, "bytes": PAGE_BYTES}
        values |= self.parameters(filter)
        rows = self.database.rows(_SELECT, values)
        if rows[0][0]:
            self.number()
            rows = self.database.rows(_SELECT, values)
        _, *bounds = rows[0][:5]
        events = [row[7:-1] for row in rows if row[7] is not None]
        if events and (len(events) == limit or rows[-1][-1] > PAGE_BYTES):
            return events_of(bounds, after, events)
        return events_of(bounds, after, events, *rows[0][5:7])

"""Events and deliveries in PostgreSQL: the writing half of `outbox`, and the subscriptions and the log.

Several workers deliver at the same time. Queuing, settling and sweeping lock the row of the subscription, so that each
of them sees what the others did. A transaction locks these rows in the order of the webhooks, and before it leases;
queuing and leasing never wait for a lock. So no two workers wait for each other. An event has its position before a
delivery of it is queued.
"""

from collections.abc import Callable, Sequence

from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.eventid import parse_id
from restkeeper.storage.outbox import (
    LONGEST_DELAY,
    LONGEST_LEASE,
    LONGEST_PAUSE,
    Attempt,
    Delivery,
    Event,
    EventFilter,
    LogEntry,
    Secret,
    Subscription,
)
from restkeeper.storage.postgresql.chain import FROM, Step
from restkeeper.storage.postgresql.events import (
    IS_UNNUMBERED,
    LOCK_FEED,
    MATCHES,
    NUMBER_ITEM,
    OLDEST,
    STORED,
    parameters_of,
    sequence_inside,
    sequenced_rows,
)
from restkeeper.storage.postgresql.fields import clean
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.rows import delivery, dump_secrets, load_secrets, log_entry, state_after

_RECORD = f"""\
INSERT INTO events
    (type, collection, item, at, data, owner, fingerprint, older)
SELECT %s, %s, %s, %s, %s, %s, %s, %s {FROM}"""  # noqa: S608 - a constant

# The oldest events up to the first that is not expired, so that the rest has no gaps.
_EXPIRED = """\
WITH oldest AS (
    SELECT
        position,
        at
    FROM events
    WHERE position IS NOT NULL
    ORDER BY position
    LIMIT %(limit)s
)
SELECT max(position)
FROM oldest
WHERE position < (SELECT max(position) FROM events) AND position < coalesce(
    (SELECT min(position) FROM oldest WHERE at >= %(before)s AND at <= %(latest)s),
    9223372036854775807
)"""

# The subscriptions whose deliveries a sweep changes, and those that could queue a swept event.
_LOCK_SWEPT = """\
SELECT 1
FROM subscriptions
WHERE position < %(last)s
    OR webhook IN (SELECT webhook FROM deliveries WHERE event <= %(last)s AND state = 'pending')
ORDER BY webhook
FOR UPDATE"""

_UNDELIVERED = """\
SELECT DISTINCT
    webhook,
    item
FROM deliveries
WHERE event <= %s AND state = 'pending' AND item IS NOT NULL"""

_SWEEP = """\
WITH swept AS (SELECT seq FROM events WHERE position <= %s ORDER BY position FOR UPDATE)
DELETE FROM events USING swept
WHERE events.seq = swept.seq"""

# The next delivery of each item, which waited for one that is deleted.
_RELEASE = """\
UPDATE deliveries SET due = 0
WHERE due IS NULL AND id IN (
    SELECT (
        SELECT min(id)
        FROM deliveries
        WHERE deliveries.webhook = waiting.webhook AND deliveries.item = waiting.item AND state = 'pending'
    )
    FROM unnest(%s::text[], %s::text[]) AS waiting (webhook, item)
)"""

_SUBSCRIBE = """\
INSERT INTO subscriptions (webhook, position, secrets)
SELECT
    %s,
    newest,
    %s
FROM feed"""

_LOCK = "SELECT 1 FROM subscriptions WHERE webhook = %s FOR UPDATE"
_TRY_LOCK = f"{_LOCK} SKIP LOCKED"

# It skips events that were swept, and counts what it has examined.
_QUEUE = f"""\
WITH
oldest AS (SELECT {OLDEST} AS oldest),
search AS (
    SELECT
        greatest(position, oldest - 1) AS start,
        least(greatest(position, oldest - 1) + %(limit)s, newest) AS until
    FROM subscriptions, feed, oldest
    WHERE webhook = %(webhook)s
),
matching AS (
    SELECT
        position,
        collection || '/' || item AS key
    FROM events
    WHERE {MATCHES}
),
queued AS (
    INSERT INTO deliveries (webhook, event, item, due)
    SELECT
        %(webhook)s,
        position,
        key,
        CASE WHEN row_number() OVER (PARTITION BY key ORDER BY position) = 1 AND NOT EXISTS (
            SELECT 1 FROM deliveries WHERE webhook = %(webhook)s AND deliveries.item = key AND state = 'pending'
        ) THEN %(now)s END
    FROM matching
    ORDER BY position
)
UPDATE subscriptions SET position = until
FROM search
WHERE webhook = %(webhook)s
RETURNING until - start"""  # noqa: S608 - constant expressions

_LEASE = f"""\
WITH free AS (
    SELECT id
    FROM deliveries
    WHERE webhook = %(webhook)s AND due <= %(now)s {{}}
    ORDER BY due, id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE deliveries SET
    due = %(until)s,
    lease = lease + 1,
    leased = true
FROM free, events
WHERE deliveries.id = free.id AND position = event
RETURNING
    deliveries.id,
    lease,
    webhook,
    deliveries.item IS NULL,
    attempts,
    {STORED}"""  # noqa: S608 - constant expressions
_LEASE_ALL, _LEASE_MANUAL = _LEASE.format(""), _LEASE.format("AND item IS NULL")

# Times that only a wrong clock can have written.
_STUCK = ("leased AND due > %(now)s + %(longest_lease)s", "due > %(now)s + %(longest_delay)s")
_FREE = """\
UPDATE deliveries SET
    due = %(now)s,
    leased = false
WHERE id IN (SELECT id FROM deliveries WHERE webhook = %(webhook)s AND ({}) FOR UPDATE SKIP LOCKED)"""
_FREE_ALL = _FREE.format(" OR ".join(_STUCK))

# The next delivery of the item, which waited for this one, is due when this one has ended.
_SETTLE = """\
WITH
settled AS (
    UPDATE deliveries SET
        state = %(state)s,
        due = %(next)s,
        leased = false,
        attempts = attempts + 1,
        attempted = %(at)s,
        status = %(status)s,
        seconds = %(seconds)s,
        excerpt = %(excerpt)s
    WHERE id = %(id)s AND lease = %(lease)s AND leased AND state = 'pending'
    RETURNING
        id,
        webhook,
        item
),
next AS (
    SELECT min(deliveries.id) AS id
    FROM deliveries JOIN settled USING (webhook, item)
    WHERE state = 'pending' AND deliveries.id <> settled.id
),
released AS (
    UPDATE deliveries SET due = %(at)s
    WHERE %(state)s <> 'pending' AND id = (SELECT id FROM next) AND due IS NULL
),
held AS (
    UPDATE subscriptions SET held = CASE WHEN held BETWEEN %(hold)s AND %(latest)s THEN held ELSE %(hold)s END
    WHERE %(hold)s > 0 AND webhook IN (SELECT webhook FROM settled)
)
SELECT id FROM settled"""

_RESUME = """\
UPDATE deliveries SET due = %(now)s
WHERE webhook = %(webhook)s AND due > %(now)s AND NOT leased"""

# A sweep that deletes the event is waited for.
_QUEUE_STORED = """\
INSERT INTO deliveries (webhook, event, due)
SELECT
    %s,
    position,
    0
FROM events
WHERE position = %s AND origin = %s
FOR KEY SHARE
RETURNING id"""

_QUEUE_NEW = """\
INSERT INTO deliveries (webhook, event, due)
SELECT
    %s,
    position,
    0
FROM events
WHERE seq = %s
RETURNING id"""

_SUBSCRIPTIONS = f"""\
WITH
known AS (
    SELECT
        webhook,
        secrets,
        webhook = ANY(%(active)s::text[]) AND position < newest AS behind,
        webhook = ANY(%(active)s::text[]) AND (held <= %(now)s OR held > %(now)s + %(longest_pause)s) AS open
    FROM subscriptions, feed
),
checked AS (
    SELECT
        webhook,
        secrets,
        behind,
        EXISTS (
            SELECT 1 FROM deliveries WHERE deliveries.webhook = known.webhook AND due <= %(now)s AND item IS NULL
        ) OR (open AND EXISTS (
            SELECT 1 FROM deliveries WHERE deliveries.webhook = known.webhook AND due <= %(now)s
        )) OR EXISTS (
            SELECT 1 FROM deliveries WHERE deliveries.webhook = known.webhook AND {_STUCK[0]}
        ) OR EXISTS (
            SELECT 1 FROM deliveries WHERE deliveries.webhook = known.webhook AND {_STUCK[1]}
        ) AS ready,
        open
    FROM known
)
SELECT
    is_unnumbered,
    checked.*
FROM (SELECT {IS_UNNUMBERED} AS is_unnumbered) AS feed LEFT JOIN checked ON behind OR ready"""  # noqa: S608 - likewise

_LOG = """\
SELECT
    id,
    event,
    origin,
    events.type,
    state,
    attempts,
    CASE WHEN NOT leased THEN due END,
    attempted,
    status,
    seconds,
    excerpt
FROM deliveries JOIN events ON position = event
WHERE webhook = %(webhook)s"""

_LONGEST = {"longest_lease": LONGEST_LEASE, "longest_pause": LONGEST_PAUSE, "longest_delay": LONGEST_DELAY}

# A partial index is used only if the query repeats its condition.
_OF_STATE = {None: "", "delivered": " AND state = %(state)s"}
_OF_STATE |= dict.fromkeys(("pending", "failed"), " AND state = %(state)s AND state <> 'delivered'")


class Outbox:
    """See `outbox.OutboxTransaction`."""

    def __init__(self, session: Session, learn_of: Callable[[str, str], None]) -> None:
        self._session = session
        self._learn_of = learn_of

    def record(self, event: Event) -> None:
        self._session.queue(_RECORD, _row(event), step=Step.EVENT)

    def sweep_events(self, before: str, limit: int, *, latest: str = "9999") -> int:
        bounds = {"before": before, "latest": latest, "limit": limit}
        ((last,),) = self._session.rows(_EXPIRED, bounds)
        if last is None:
            return 0
        self._session.queue(_LOCK_SWEPT, {"last": last})
        undelivered = self._session.rows(_UNDELIVERED, (last,))
        swept = self._session.change(_SWEEP, (last,))
        self._session.queue(_RELEASE, ([row[0] for row in undelivered], [row[1] for row in undelivered]))
        return swept

    def subscribe(self, webhook: str, secrets: Sequence[Secret]) -> None:
        """See `outbox.OutboxTransaction`. What is committed before gets its position before."""
        sequence_inside(self._session)
        self._session.queue(_SUBSCRIBE, (clean(webhook), dump_secrets(secrets)))

    def set_secrets(self, webhook: str, secrets: Sequence[Secret]) -> None:
        statement = "UPDATE subscriptions SET secrets = %s WHERE webhook = %s"
        self._session.queue(statement, (dump_secrets(secrets), clean(webhook)))

    def secrets(self, webhook: str) -> tuple[Secret, ...]:
        row = self._session.row("SELECT secrets FROM subscriptions WHERE webhook = %s", (clean(webhook),))
        if row is None:
            raise RecordNotFound("there is no such webhook")
        return load_secrets(row[0])

    def resume(self, webhook: str, now: float) -> None:
        parameters = {"webhook": clean(webhook), "now": now, **_LONGEST}
        self._session.queue("UPDATE subscriptions SET held = 0 WHERE webhook = %(webhook)s", parameters)
        self._session.queue(_FREE_ALL, parameters)
        self._session.queue(_RESUME, parameters)

    def unsubscribe(self, webhook: str) -> None:
        self._session.queue("DELETE FROM subscriptions WHERE webhook = %s", (clean(webhook),))

    def queue(self, webhook: str, filter: EventFilter, now: float, limit: int) -> int:
        """See `outbox.OutboxTransaction`. While another worker queues or settles, it examines nothing."""
        webhook = clean(webhook)
        if self._session.row(_TRY_LOCK, (webhook,)) is None:
            return 0  # or it was deleted meanwhile
        parameters = parameters_of(filter) | {"webhook": webhook, "now": now, "limit": limit}
        ((examined,),) = self._session.rows(_QUEUE, parameters)
        return int(examined)

    def lease(self, webhook: str, now: float, until: float, limit: int, *, manual_only: bool = False) -> list[Delivery]:
        parameters = {"webhook": clean(webhook), "now": now, "until": until, "limit": limit, **_LONGEST}
        self._session.queue(_FREE_ALL, parameters)
        rows = sorted(self._session.rows(_LEASE_MANUAL if manual_only else _LEASE_ALL, parameters))
        leased = [delivery(*row) for row in rows]
        for each in leased:
            self._learn_of(each.event.collection, each.event.fingerprint)
        return leased

    def settle(self, attempt: Attempt) -> bool:
        """See `outbox.OutboxTransaction`. It waits for a worker that queues, which could miss what it releases."""
        settled = attempt.delivery
        row = {**attempt._asdict(), "id": settled.id, "lease": settled.lease, "state": state_after(attempt)}
        row |= {"excerpt": clean(attempt.excerpt), "latest": attempt.at + LONGEST_PAUSE}
        del row["delivery"]
        self._session.queue(_LOCK, (clean(settled.webhook),))
        return bool(self._session.rows(_SETTLE, row))

    def queue_manually(self, webhook: str, event: str | Event) -> int:
        webhook = clean(webhook)
        if isinstance(event, Event):
            rows = self._session.rows(_QUEUE_NEW, (webhook, self._record_numbered(event)))
        else:
            rows = self._session.rows(_QUEUE_STORED, (webhook, *parse_id(event)))
        if not rows:
            raise RecordNotFound("there is no such event (any more)")
        return int(rows[0][0])

    def _record_numbered(self, event: Event) -> int:
        """Record an event that has its position at once, after the earlier ones of its item; return its `seq`.

        Until the end of the transaction the sequencer waits.
        """
        ((seq,),) = self._session.rows(f"{_RECORD} RETURNING seq", _row(event))
        self._session.queue(LOCK_FEED)
        self._session.queue(NUMBER_ITEM, {"collection": event.collection, "item": event.item, "limit": None})
        return int(seq)

    def find_delivery(self, webhook: str, id: int) -> LogEntry:
        row = self._session.row(f"{_LOG} AND id = %(id)s", {"webhook": clean(webhook), "id": id})
        if row is None:
            raise RecordNotFound("there is no such delivery")
        return log_entry(*row)


def find_subscriptions(session: Session, active: Sequence[str], now: float) -> list[Subscription]:
    """See `outbox.OutboxStore.subscriptions`."""
    parameters = {"active": [clean(each) for each in active], "now": now, **_LONGEST}
    rows = sequenced_rows(session, _SUBSCRIPTIONS, parameters)
    return [
        Subscription(webhook, load_secrets(secrets), *rest) for webhook, secrets, *rest in rows if webhook is not None
    ]


def read_log(session: Session, webhook: str, before: int | None, limit: int, state: str | None) -> list[LogEntry]:
    """See `outbox.OutboxStore.deliveries`."""
    statement = f"{_LOG}{' AND id < %(before)s' if before else ''}{_OF_STATE[state]} ORDER BY id DESC LIMIT %(limit)s"
    parameters = {"webhook": clean(webhook), "before": before, "state": state, "limit": limit}
    return [log_entry(*row) for row in session.rows(statement, parameters)]


def _row(event: Event) -> tuple[str | None, ...]:
    """The parameters of _RECORD."""
    type, collection, item, at, data, owner, fingerprint, older = event
    return type, collection, item, at, data.decode(), owner, fingerprint, None if older is None else older.decode()

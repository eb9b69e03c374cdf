"""Events and deliveries in SQLite: the writing half of `outbox`, and the subscriptions and the log."""

import sqlite3
from collections.abc import Sequence

import orjson

from restkeeper.storage.errors import RecordNotFound, StoreError
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
from restkeeper.storage.rows import delivery, dump_secrets, load_secrets, log_entry, state_after
from restkeeper.storage.sqlite.events import (
    MATCHES,
    newest_of,
    oldest_of,
    origin_of,
    parameters_of,
)
from restkeeper.storage.sqlite.schemas import SqliteRegistry

_RECORD = """\
INSERT INTO events
    (origin, type, collection, item, owner, at, data, fingerprint, older)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""

# The oldest events up to the first that is not expired, so that the rest has no gaps.
_EXPIRED = """\
WITH oldest AS (SELECT position, at FROM events ORDER BY position LIMIT :limit)
SELECT max(position) FROM oldest
WHERE position < (SELECT max(position) FROM events)
    AND position < coalesce((SELECT min(position) FROM oldest WHERE at >= :before AND at <= :latest), 9e18)"""

_UNDELIVERED = """\
SELECT DISTINCT
    webhook,
    item
FROM deliveries INDEXED BY deliveries_event
WHERE event <= ? AND state = 'pending' AND item IS NOT NULL"""

_SELECT_ITEMS = f"""\
SELECT
    position,
    collection || '/' || item
FROM events
WHERE {MATCHES}
ORDER BY position"""  # noqa: S608 - constant conditions

_QUEUE = """\
INSERT INTO deliveries (webhook, event, item, due)
SELECT
    :webhook,
    :event,
    :item,
    CASE WHEN EXISTS (
        SELECT 1 FROM deliveries WHERE webhook = :webhook AND item = :item AND state = 'pending'
    ) THEN NULL ELSE :now END"""

_LEASE = """\
UPDATE deliveries SET
    due = :until,
    lease = lease + 1,
    leased = 1
WHERE id IN (SELECT id FROM deliveries WHERE webhook = :webhook AND due <= :now{} ORDER BY due, id LIMIT :limit)
RETURNING id"""
_LEASE_ALL, _LEASE_MANUAL = _LEASE.format(""), _LEASE.format(" AND item IS NULL")

# Times that only a wrong clock can have written.
_FREE = """\
UPDATE deliveries SET
    due = :now,
    leased = 0
WHERE webhook = :webhook AND {}"""
_STUCK = ("leased = 1 AND due > :now + :longest_lease", "due > :now + :longest_delay")
_FREE_ALL = tuple(_FREE.format(stuck) for stuck in _STUCK)

_LEASED = """\
SELECT
    deliveries.id,
    lease,
    webhook,
    deliveries.item IS NULL,
    attempts,
    position,
    origin,
    type,
    at,
    CAST(data AS BLOB),
    collection,
    fingerprint,
    CAST(older AS BLOB)
FROM deliveries JOIN events ON position = event
WHERE deliveries.id = ?"""

_SETTLE = """\
UPDATE deliveries SET
    state = :state,
    due = :next,
    leased = 0,
    attempts = attempts + 1,
    attempted = :at,
    status = :status,
    seconds = :seconds,
    excerpt = :excerpt
WHERE id = :id AND lease = :lease AND state = 'pending'
RETURNING item"""

# The next delivery of the item, which waited for one that is settled or deleted.
_RELEASE = """\
UPDATE deliveries SET due = :now
WHERE id = (SELECT min(id) FROM deliveries WHERE webhook = :webhook AND item = :item AND state = 'pending')
    AND due IS NULL"""

_HOLD = """\
UPDATE subscriptions SET held = CASE WHEN held BETWEEN :hold AND :latest THEN held ELSE :hold END
WHERE webhook = :webhook"""

_RESUME = """\
UPDATE deliveries SET due = :now
WHERE webhook = :webhook AND due > :now AND leased = 0"""

_SUBSCRIPTIONS = f"""\
WITH
active AS (SELECT value AS webhook FROM json_each(:active)),
newest AS (SELECT coalesce(max(position), 0) AS position FROM events),
known AS (
    SELECT
        webhook,
        secrets,
        webhook IN active AND subscriptions.position < newest.position AS behind,
        webhook IN active AND (held <= :now OR held > :now + :longest_pause) AS open
    FROM subscriptions, newest
)
SELECT
    webhook,
    secrets,
    behind,
    EXISTS (
        SELECT 1 FROM deliveries WHERE deliveries.webhook = known.webhook AND due <= :now AND item IS NULL
    ) OR (open AND EXISTS (
        SELECT 1 FROM deliveries WHERE deliveries.webhook = known.webhook AND due <= :now
    )) OR EXISTS (
        SELECT 1 FROM deliveries WHERE deliveries.webhook = known.webhook AND {_STUCK[0]}
    ) OR EXISTS (
        SELECT 1 FROM deliveries WHERE deliveries.webhook = known.webhook AND {_STUCK[1]}
    ) AS ready,
    open
FROM known
WHERE behind OR ready"""  # noqa: S608 - constant conditions

_LOG = """\
SELECT
    id,
    event,
    origin,
    type,
    state,
    attempts,
    CASE WHEN leased THEN NULL ELSE due END,
    attempted,
    status,
    seconds,
    excerpt
FROM deliveries JOIN events ON position = event
WHERE webhook = :webhook"""

_LONGEST = {"longest_lease": LONGEST_LEASE, "longest_pause": LONGEST_PAUSE, "longest_delay": LONGEST_DELAY}

# SQLite uses a partial index only if the query repeats its condition.
_OF_STATE = {None: "", "delivered": " AND state = :state"}
_OF_STATE |= dict.fromkeys(("pending", "failed"), " AND state = :state AND state <> 'delivered'")


class Outbox:
    """See `outbox.OutboxTransaction`."""

    def __init__(self, connection: sqlite3.Connection, epoch: str, registry: SqliteRegistry) -> None:
        self._connection = connection
        self._epoch = epoch
        self._registry = registry
        self._failure: StoreError | None = None

    def require_success(self) -> None:
        """Raises the exception of a change that has ended the transaction, or the innermost savepoint."""
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: StoreError) -> StoreError:
        """The exception of a change, to be raised."""
        self._failure = error
        return error

    def record(self, event: Event) -> None:
        self._record(event)

    def _record(self, event: Event) -> int:
        """Record an event, and return its position."""
        type, collection, item, at, data, owner, fingerprint, older = event
        texts = data.decode(), fingerprint, None if older is None else older.decode()
        row = (self._epoch, type, collection, item, owner, at, *texts)
        return self._connection.execute(_RECORD, row).lastrowid or 0

    def sweep_events(self, before: str, limit: int, *, latest: str = "9999") -> int:
        bounds = {"before": before, "latest": latest, "limit": limit}
        (last,) = self._connection.execute(_EXPIRED, bounds).fetchone()
        if last is None:
            return 0
        undelivered = self._connection.execute(_UNDELIVERED, (last,)).fetchall()
        swept = self._connection.execute("DELETE FROM events WHERE position <= ?", (last,)).rowcount
        released = [{"webhook": webhook, "item": item, "now": 0.0} for webhook, item in undelivered]
        self._connection.executemany(_RELEASE, released)
        return swept

    def subscribe(self, webhook: str, secrets: Sequence[Secret]) -> None:
        statement = "INSERT INTO subscriptions (webhook, position, secrets) VALUES (?, ?, ?)"
        self._connection.execute(statement, (webhook, newest_of(self._connection), dump_secrets(secrets)))

    def set_secrets(self, webhook: str, secrets: Sequence[Secret]) -> None:
        statement = "UPDATE subscriptions SET secrets = ? WHERE webhook = ?"
        self._connection.execute(statement, (dump_secrets(secrets), webhook))

    def secrets(self, webhook: str) -> tuple[Secret, ...]:
        row = self._connection.execute("SELECT secrets FROM subscriptions WHERE webhook = ?", (webhook,)).fetchone()
        if row is None:
            raise RecordNotFound("there is no such webhook")
        return load_secrets(row[0])

    def resume(self, webhook: str, now: float) -> None:
        self._connection.execute("UPDATE subscriptions SET held = 0 WHERE webhook = ?", (webhook,))
        self._free(webhook, now)
        self._connection.execute(_RESUME, {"webhook": webhook, "now": now})

    def unsubscribe(self, webhook: str) -> None:
        self._connection.execute("DELETE FROM subscriptions WHERE webhook = ?", (webhook,))

    def queue(self, webhook: str, filter: EventFilter, now: float, limit: int) -> int:
        row = self._connection.execute("SELECT position FROM subscriptions WHERE webhook = ?", (webhook,)).fetchone()
        if row is None:
            return 0  # it was deleted meanwhile
        start = max(row[0], oldest_of(self._connection) - 1)  # skips the events that were swept meanwhile
        end = min(start + limit, newest_of(self._connection))
        rows = self._connection.execute(_SELECT_ITEMS, parameters_of(start, end, filter)).fetchall()
        queued = [{"webhook": webhook, "event": event, "item": item, "now": now} for event, item in rows]
        self._connection.executemany(_QUEUE, queued)
        self._connection.execute("UPDATE subscriptions SET position = ? WHERE webhook = ?", (end, webhook))
        return int(end - start)

    def lease(self, webhook: str, now: float, until: float, limit: int, *, manual_only: bool = False) -> list[Delivery]:
        self._free(webhook, now)
        parameters = {"webhook": webhook, "now": now, "until": until, "limit": limit}
        statement = _LEASE_MANUAL if manual_only else _LEASE_ALL
        ids = sorted(self._connection.execute(statement, parameters).fetchall())
        leased = [delivery(*self._connection.execute(_LEASED, id).fetchone()) for id in ids]
        for each in leased:
            self._registry.learn(self._connection, each.event.collection, each.event.fingerprint)
        return leased

    def _free(self, webhook: str, now: float) -> None:
        for statement in _FREE_ALL:
            self._connection.execute(statement, {"webhook": webhook, "now": now, **_LONGEST})

    def settle(self, attempt: Attempt) -> bool:
        id, lease, webhook, *_ = attempt.delivery
        state = state_after(attempt)
        row = {**attempt._asdict(), "id": id, "lease": lease, "state": state}
        del row["delivery"]
        settled = self._connection.execute(_SETTLE, row).fetchone()
        if settled is None:
            return False
        if state != "pending":
            self._connection.execute(_RELEASE, {"webhook": webhook, "item": settled[0], "now": attempt.at})
        if attempt.hold:
            hold = {"webhook": webhook, "hold": attempt.hold, "latest": attempt.at + LONGEST_PAUSE}
            self._connection.execute(_HOLD, hold)
        return True

    def queue_manually(self, webhook: str, event: str | Event) -> int:
        position = self._find(event) if isinstance(event, str) else self._record(event)
        statement = "INSERT INTO deliveries (webhook, event, due) VALUES (?, ?, 0)"
        return self._connection.execute(statement, (webhook, position)).lastrowid or 0

    def _find(self, event: str) -> int:
        """The position of a stored event. Raises RecordNotFound."""
        position, origin = parse_id(event)
        if origin_of(self._connection, position) != origin:
            raise self._failed(RecordNotFound("there is no such event (any more)"))
        return position

    def find_delivery(self, webhook: str, id: int) -> LogEntry:
        row = self._connection.execute(f"{_LOG} AND id = :id", {"webhook": webhook, "id": id}).fetchone()
        if row is None:
            raise RecordNotFound("there is no such delivery")
        return log_entry(*row)


def find_subscriptions(connection: sqlite3.Connection, active: Sequence[str], now: float) -> list[Subscription]:
    """See `outbox.OutboxStore.subscriptions`."""
    parameters = {"active": orjson.dumps(active).decode(), "now": now, **_LONGEST}
    rows = connection.execute(_SUBSCRIPTIONS, parameters).fetchall()
    return [Subscription(webhook, load_secrets(secrets), *map(bool, rest)) for webhook, secrets, *rest in rows]


def read_log(
    connection: sqlite3.Connection, webhook: str, before: int | None, limit: int, state: str | None
) -> list[LogEntry]:
    """See `outbox.OutboxStore.deliveries`."""
    statement = f"{_LOG}{' AND id < :before' if before else ''}{_OF_STATE[state]} ORDER BY id DESC LIMIT :limit"
    parameters = {"webhook": webhook, "before": before, "state": state, "limit": limit}
    return [log_entry(*row) for row in connection.execute(statement, parameters).fetchall()]

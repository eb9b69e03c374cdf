"""The feed of events, their deliveries to webhooks, and the log of these, in both stores.

Readers of the feed continue after the last event that they have seen. Several workers deliver at the same time. In
PostgreSQL, who queues, settles or sweeps locks the row of the subscription, and so sees what the others did; SQLite has
one writer at a time. A transaction locks these rows in the order of the webhooks, and before it leases; queuing and
leasing never wait for a lock. So no two workers wait for each other. An event has its position before a delivery of it
is queued.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from restkeeper.storage.errors import EpochMissing, EventsExpired, RecordNotFound
from restkeeper.storage.interface import (
    LONGEST_DELAY,
    LONGEST_LEASE,
    LONGEST_PAUSE,
    Attempt,
    Delivery,
    Event,
    EventFilter,
    Events,
    LogEntry,
    Secret,
    StoredEvent,
    Subscription,
    id_of,
    parse_id,
)
from restkeeper.storage.sql import Database, Row

_SELECT_NEWEST = """\
SELECT
    {is_unnumbered},
    {epoch},
    {newest},
    (SELECT origin FROM events WHERE position = {newest})
FROM {store}"""

_LOCK = "SELECT 1 FROM subscriptions WHERE webhook = :webhook {for_update}"
_TRY_LOCK = "SELECT 1 FROM subscriptions WHERE webhook = :webhook {for_update_of_free}"

_SUBSCRIBE = "INSERT INTO subscriptions (webhook, position, secrets) SELECT :webhook, {newest}, :secrets"

_STRETCH = """\
SELECT
    position,
    (SELECT coalesce(min(position), 1) FROM events),
    {newest}
FROM subscriptions
WHERE webhook = :webhook"""

# Of each item the first delivery is due, if none is pending.
_QUEUE = """\
INSERT INTO deliveries (webhook, event, item, due)
SELECT
    :webhook,
    position,
    item_key,
    CASE WHEN row_number() OVER (PARTITION BY item_key ORDER BY position) = 1 AND NOT EXISTS (
        SELECT 1 FROM deliveries
        WHERE deliveries.webhook = :webhook AND deliveries.item = item_key AND state = 'pending'
    ) THEN :now END
FROM (
    SELECT position, collection || '/' || item AS item_key
    FROM events
    WHERE position > :after AND position <= :until AND {wanted}
) AS matching
ORDER BY position"""

_ADVANCE = "UPDATE subscriptions SET position = :until WHERE webhook = :webhook"

# A sweep that deletes the event is waited for.
_QUEUE_MANUALLY = """\
INSERT INTO deliveries (webhook, event, due)
SELECT :webhook, position, 0
FROM events
WHERE position = :position AND origin = :origin {for_key_share}
RETURNING id"""

_LEASE = """\
WITH free AS (
    SELECT id FROM deliveries
    WHERE webhook = :webhook AND due <= :now AND {{which}}
    ORDER BY due, id
    LIMIT :limit {for_update_of_free}
)
UPDATE deliveries SET due = :until, lease = lease + 1, leased = true
WHERE id IN (SELECT id FROM free)
RETURNING id"""
_LEASE_ALL, _LEASE_MANUAL = (_LEASE.replace("{{which}}", which) for which in ("due IS NOT NULL", "item IS NULL"))

_LEASED = """\
SELECT
    deliveries.id,
    lease,
    deliveries.item IS NULL,
    attempts,
    {event}
FROM deliveries JOIN events ON position = event
WHERE {is_chosen}
ORDER BY deliveries.id"""

# Times that only a wrong clock can have written.
_STUCK = ("{is_leased} AND due > :now + :longest_lease", "due > :now + :longest_delay")
_FREE = tuple(
    f"""\
UPDATE deliveries SET due = :now, leased = false
WHERE id IN (SELECT id FROM deliveries WHERE webhook = :webhook AND {stuck} {{for_update_of_free}})"""  # noqa: S608
    for stuck in _STUCK
)

_SETTLE = """\
UPDATE deliveries SET
    state = :state,
    due = :next,
    leased = false,
    attempts = attempts + 1,
    attempted = :at,
    status = :status,
    seconds = :seconds,
    excerpt = :excerpt
WHERE id = :id AND lease = :lease AND leased AND state = 'pending'
RETURNING item"""

# The next delivery of the item, which waited for the one that is settled.
_RELEASE = """\
UPDATE deliveries SET due = :at
WHERE due IS NULL
    AND id = (SELECT min(id) FROM deliveries WHERE webhook = :webhook AND item = :item AND state = 'pending')"""

_HOLD = """\
UPDATE subscriptions
SET paused_until = CASE WHEN paused_until BETWEEN :hold AND :latest THEN paused_until ELSE :hold END
WHERE webhook = :webhook"""

_END_PAUSE = "UPDATE subscriptions SET paused_until = 0 WHERE webhook = :webhook"

_RESUME = "UPDATE deliveries SET due = :now WHERE webhook = :webhook AND due > :now AND NOT leased"

# The oldest events up to the first that is not expired, so that the rest has no gaps.
_EXPIRED = """\
WITH oldest AS (SELECT position, at FROM events WHERE position IS NOT NULL ORDER BY position LIMIT :limit)
SELECT max(position) FROM oldest
WHERE position < (SELECT max(position) FROM events) AND position < coalesce(
    (SELECT min(position) FROM oldest WHERE at >= :before AND at <= :latest),
    9223372036854775807
)"""

# The subscriptions whose deliveries a sweep changes, and those that could queue a swept event.
_LOCK_SWEPT = """\
SELECT 1 FROM subscriptions
WHERE position < :last OR webhook IN (SELECT webhook FROM deliveries WHERE event <= :last AND state = 'pending')
ORDER BY webhook {for_update}"""

# The next delivery of each item that waits for one that will be deleted.
_RELEASE_SWEPT = """\
UPDATE deliveries SET due = 0
WHERE due IS NULL AND id IN (
    SELECT (
        SELECT min(later.id) FROM deliveries AS later
        WHERE later.webhook = swept.webhook AND later.item = swept.item AND later.state = 'pending'
            AND later.event > :last
    )
    FROM (
        SELECT DISTINCT webhook, item FROM deliveries {by_event}
        WHERE event <= :last AND state = 'pending' AND item IS NOT NULL
    ) AS swept
)"""

_SWEEP = """\
DELETE FROM events
WHERE position IN (SELECT position FROM events WHERE position <= :last ORDER BY position {for_update})
RETURNING 1"""

_SUBSCRIPTIONS = f"""\
WITH known AS (
    SELECT
        webhook,
        secrets,
        {{is_active}} AND position < {{newest}} AS behind,
        {{is_active}} AND (paused_until <= :now OR paused_until > :now + :longest_pause) AS open
    FROM subscriptions
),
checked AS (
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
)
SELECT * FROM checked
WHERE behind OR ready"""  # noqa: S608 - constant conditions

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
WHERE webhook = :webhook"""
_FIND = f"{_LOG} AND id = :id"

# A partial index is used only if the query repeats its condition.
_UNDELIVERED = " AND state = :state AND state <> 'delivered'"
_OF_STATE = {None: "", "delivered": " AND state = :state", "pending": _UNDELIVERED, "failed": _UNDELIVERED}

_LONGEST = {"longest_lease": LONGEST_LEASE, "longest_pause": LONGEST_PAUSE, "longest_delay": LONGEST_DELAY}


def newest_id(database: Database, number: Callable[[Any], None] | None = None) -> str:
    """See `base.Store.last_event`. `number` gives committed events that have no position theirs."""
    ((is_unnumbered, epoch, newest, origin),) = database.rows(_SELECT_NEWEST, {})
    if is_unnumbered and number:
        number(database)
        ((_, epoch, newest, origin),) = database.rows(_SELECT_NEWEST, {})
    if not epoch:
        raise EpochMissing
    return id_of(newest, origin or epoch)


def events_of(
    bounds: Sequence[Any], after: str, rows: Sequence[Row], end: int | None = None, end_origin: str | None = None
) -> Events:
    """See `base.Store.events`. The `rows` are those of a `stored_event`, of a search that ended with the last of them.

    Or it ended with the position `end`, of the event with that origin. `bounds` are the oldest and newest position of
    the feed at that moment, the epoch of the store, and the origin of the event to start after.
    """
    position, origin = parse_id(after)
    oldest, newest, epoch, start_origin = bounds
    if not epoch:
        raise EpochMissing
    swept = position == oldest - 1 and (origin == epoch or not position)  # or it is 0
    if after and not swept and (not oldest <= position <= newest or start_origin != origin):
        raise EventsExpired(
            "the events after this cursor are deleted, or it is of another service", resume=id_of(oldest - 1, epoch)
        )
    if end is None:
        end, end_origin, *_ = rows[-1]
    return Events([stored_event(*row) for row in rows], id_of(end, end_origin or epoch), end < newest)


def parameters_of(database: Database, filter: EventFilter) -> dict[str, Any]:
    """The parameters of the part `wanted` of a dialect."""
    lists = {"collections": [*filter.collections], "own": [*filter.owned_collections], "owners": [*filter.owners]}
    return {**lists, "types": [database.pattern(pattern) for pattern in filter.types], "item": filter.item}


def stored_event(position: int, origin: str, *rest: Any) -> StoredEvent:
    """The event of a row: its position, its origin, and the rest of a StoredEvent."""
    return StoredEvent(id_of(position, origin), *rest)


class Deliveries(ABC):
    """The part of a `base.Transaction` with events and deliveries."""

    _database: Database

    @abstractmethod
    def _record_now(self, event: Event) -> tuple[int, str]:
        """Record an event after all others, and return its position and its origin."""

    @abstractmethod
    def _number_all(self) -> None:
        """Give all committed events their positions."""

    def sweep_events(self, before: str, limit: int, *, latest: str = "9999") -> int:
        """Delete at most `limit` events from before a time, with their deliveries; return how many.

        The oldest are deleted, up to the first that is not expired; the newest event is always left. An event from
        after the time `latest` counts as expired: a clock was wrong.
        """
        expired = {"before": before, "latest": latest, "limit": limit}
        ((last,),) = self._database.rows(_EXPIRED, expired)
        if last is None:
            return 0
        self._database.change(_LOCK_SWEPT, {"last": last})
        self._database.change(_RELEASE_SWEPT, {"last": last})
        return len(self._database.rows(_SWEEP, {"last": last}))

    def subscribe(self, webhook: str, secrets: Sequence[Secret]) -> None:
        """Subscribe a webhook to all events from now on."""
        self._number_all()  # what is committed before is not sent
        self._database.change(_SUBSCRIBE, {"webhook": webhook, "secrets": _dump_secrets(secrets)})

    def set_secrets(self, webhook: str, secrets: Sequence[Secret]) -> None:
        """Set the secrets that deliveries are signed with."""
        statement = "UPDATE subscriptions SET secrets = :secrets WHERE webhook = :webhook"
        self._database.change(statement, {"webhook": webhook, "secrets": _dump_secrets(secrets)})

    def secrets(self, webhook: str) -> tuple[Secret, ...]:
        """Return the secrets that deliveries are signed with. Raises RecordNotFound."""
        statement = "SELECT secrets FROM subscriptions WHERE webhook = :webhook"
        for (secrets,) in self._database.rows(statement, {"webhook": webhook}):
            return _load_secrets(secrets)
        raise RecordNotFound("there is no such webhook")

    def resume(self, webhook: str, now: float) -> None:
        """End the pause of the endpoint: all deliveries that wait for another attempt are due now.

        Those that are leased stay leased, for LONGEST_LEASE at most.
        """
        self._database.change(_END_PAUSE, {"webhook": webhook})
        self._free(webhook, now)
        self._database.change(_RESUME, {"webhook": webhook, "now": now})

    def unsubscribe(self, webhook: str) -> None:
        """Delete the subscription of a webhook. Its log is deleted with the events."""
        self._database.change("DELETE FROM subscriptions WHERE webhook = :webhook", {"webhook": webhook})

    def queue(self, webhook: str, filter: EventFilter, now: float, limit: int) -> int:
        """Examine at most `limit` further events, and queue those that match; return how many were examined.

        The events of one item are delivered in order. While another worker queues or settles, it examines nothing.
        """
        if not self._database.rows(_TRY_LOCK, {"webhook": webhook}):
            return 0  # or it was deleted meanwhile
        ((position, oldest, newest),) = self._database.rows(_STRETCH, {"webhook": webhook})
        start = max(position, oldest - 1)  # skips the events that were swept meanwhile
        end = min(start + limit, newest)
        stretch = {"webhook": webhook, "after": start, "until": end}
        self._database.change(_QUEUE, {**stretch, "now": now, **parameters_of(self._database, filter)})
        self._database.change(_ADVANCE, {"webhook": webhook, "until": end})
        return int(end - start)

    def lease(self, webhook: str, now: float, until: float, limit: int, *, manual_only: bool = False) -> list[Delivery]:
        """Lease at most `limit` deliveries that are due, the earliest first, until a time; at most one of each item.

        A delivery whose time is beyond LONGEST_LEASE or LONGEST_DELAY from now is due too: a clock was wrong.
        """
        self._free(webhook, now)
        values = {"webhook": webhook, "now": now, "until": until, "limit": limit}
        ids = [id for (id,) in self._database.rows(_LEASE_MANUAL if manual_only else _LEASE_ALL, values)]
        return [
            Delivery(id, number, webhook, bool(is_manual), attempts, stored_event(*row))
            for id, number, is_manual, attempts, *row in (self._database.rows(_LEASED, {"ids": ids}) if ids else ())
        ]

    def _free(self, webhook: str, now: float) -> None:
        for statement in _FREE:
            self._database.change(statement, {"webhook": webhook, "now": now, **_LONGEST})

    def settle(self, attempt: Attempt) -> bool:
        """Store the result of an attempt. Returns False if the lease had ended, and stores nothing.

        It waits for a worker that queues, which could miss what it releases.
        """
        id, lease, webhook, *_ = attempt.delivery
        state = "delivered" if attempt.succeeded else "failed" if attempt.is_final else "pending"
        row = {**attempt._asdict(), "id": id, "lease": lease, "webhook": webhook, "state": state}
        del row["delivery"]
        self._database.change(_LOCK, {"webhook": webhook})
        settled = self._database.rows(_SETTLE, row)
        if not settled:
            return False
        if state != "pending":
            self._database.change(_RELEASE, {"webhook": webhook, "item": settled[0][0], "at": attempt.at})
        if attempt.hold:
            hold = {"webhook": webhook, "hold": attempt.hold, "latest": attempt.at + LONGEST_PAUSE}
            self._database.change(_HOLD, hold)
        return True

    def queue_manually(self, webhook: str, event: str | Event) -> int:
        """Queue one event for one attempt now; return the delivery's id.

        It is a stored one by its id, or a new one, which is recorded. Raises RecordNotFound.
        """
        position, origin = self._record_now(event) if isinstance(event, Event) else parse_id(event)
        queued = {"webhook": webhook, "position": position, "origin": origin}
        for (id,) in self._database.rows(_QUEUE_MANUALLY, queued):
            return int(id)
        raise RecordNotFound("there is no such event (any more)")

    def find_delivery(self, webhook: str, id: int) -> LogEntry:
        """Return a delivery of this webhook. Raises RecordNotFound."""
        for row in self._database.rows(_FIND, {"webhook": webhook, "id": id}):
            return _log_entry(*row)
        raise RecordNotFound("there is no such delivery")

    @abstractmethod
    def add_event(self, event: Event) -> None:
        """Store an event after all others."""


def find_subscriptions(database: Database, active: Sequence[str], now: float) -> list[Subscription]:
    """See `base.Store.subscriptions`."""
    rows = database.rows(_SUBSCRIPTIONS, {"active": list(active), "now": now, **_LONGEST})
    return [Subscription(webhook, _load_secrets(secrets), *map(bool, rest)) for webhook, secrets, *rest in rows]


def read_log(database: Database, webhook: str, before: int | None, limit: int, state: str | None) -> list[LogEntry]:
    """See `base.Store.deliveries`."""
    statement = f"{_LOG}{' AND id < :before' if before else ''}{_OF_STATE[state]} ORDER BY id DESC LIMIT :limit"
    rows = database.rows(statement, {"webhook": webhook, "before": before, "state": state, "limit": limit})
    return [_log_entry(*row) for row in rows]


def _log_entry(id: int, position: int, origin: str, *rest: Any) -> LogEntry:
    return LogEntry(id, id_of(position, origin), *rest)


def _dump_secrets(secrets: Sequence[Secret]) -> str:
    return orjson.dumps([list(secret) for secret in secrets]).decode()


def _load_secrets(text: str) -> tuple[Secret, ...]:
    return tuple(Secret(*secret) for secret in orjson.loads(text))

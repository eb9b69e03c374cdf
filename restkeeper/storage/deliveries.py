"""The deliveries of events to webhooks, and their log, in both stores. Only features load this module.

Events are queued for each webhook that subscribes to them, and each delivery is leased to one worker at a time. Several
workers deliver at the same time. In PostgreSQL, who queues, settles or sweeps locks the row of the subscription, and so
sees what the others did; SQLite has one writer at a time. A transaction locks these rows in the order of the webhooks,
and before it leases; queuing and leasing never wait for a lock. So no two workers wait for each other. An event has its
position before a delivery of it is queued.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from restkeeper.storage.base import Store
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.feed import EventFilter, StoredEvent, feed_of, id_of, last_event, parse_id, stored_event
from restkeeper.storage.transactions import Event, Transaction

# The longest times from now, in seconds, in any configuration. A later time was written by a wrong clock.
LONGEST_LEASE = 3600.0  # an attempt takes at most a minute
LONGEST_PAUSE = 86_400.0  # that an endpoint can request (Retry-After)
LONGEST_DELAY = 10 * 86_400.0  # to the next attempt: a week, and a random fifth of it

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
WHERE {{which}} {for_key_share}
RETURNING id"""
_QUEUE_STORED = _QUEUE_MANUALLY.replace("{{which}}", "position = :position AND origin = :origin")
_QUEUE_NEW = _QUEUE_MANUALLY.replace("{{which}}", "{is_new}")

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


class Secret(NamedTuple):
    """A secret for signatures. It is valid until a time in seconds since 1970, or without limit."""

    value: str
    until: float | None = None


class Subscription(NamedTuple):
    """A webhook that has work: events to queue (it is `behind`), or deliveries that are `due`.

    If it is not `open`, because it or its endpoint is paused, only manual deliveries are sent.
    """

    webhook: str
    secrets: tuple[Secret, ...]
    behind: bool
    due: bool
    open: bool


class Delivery(NamedTuple):
    """A leased delivery. A `manual` one, which a user requested, is attempted once and outside of the order."""

    id: int
    lease: int
    webhook: str
    manual: bool
    attempts: int  # before this one
    event: StoredEvent


class Attempt(NamedTuple):
    """The result of an attempt. It ended at the time `at` and took `seconds`; without a response `status` is None.

    After a failure, `next` is the time of the next attempt, or None if it was the last one. Until the time `hold`
    nothing else is sent to the endpoint. All times are in seconds since 1970.
    """

    delivery: Delivery
    at: float
    succeeded: bool
    status: int | None
    seconds: float
    excerpt: str
    next: float | None = None
    hold: float = 0.0

    @property
    def is_final(self) -> bool:
        """Whether it failed and is not repeated."""
        return not self.succeeded and self.next is None


class LogEntry(NamedTuple):
    """An entry of the delivery log. `state` is pending, delivered or failed. The last fields are of the last attempt.

    `due` is the time of the next attempt. It is None while the delivery is leased or waits for another one of the same
    item, and at the end.
    """

    id: int
    event: str
    type: str
    state: str
    attempts: int
    due: float | None
    attempted: float | None
    status: int | None
    seconds: float | None
    excerpt: str | None


class Deliveries:
    """What a transaction can do with subscriptions and deliveries."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._database = transaction.database
        self._feed = feed_of(transaction, transaction.database)

    def subscribe(self, webhook: str, secrets: Sequence[Secret]) -> None:
        """Subscribe a webhook to all events from now on."""
        self._feed.number_inside()  # what is committed before is not sent
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
        self._database.change(_QUEUE, {**stretch, "now": now, **self._feed.parameters(filter)})
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
        values: dict[str, str | int] = {"webhook": webhook}
        if isinstance(event, Event):
            self._transaction.add_event(event)
            self._feed.number_inside()
            statement = _QUEUE_NEW
        else:
            values["position"], values["origin"] = parse_id(event)
            statement = _QUEUE_STORED
        for (id,) in self._database.rows(statement, values):
            return int(id)
        raise RecordNotFound("there is no such event (any more)")

    def find_delivery(self, webhook: str, id: int) -> LogEntry:
        """Return a delivery of this webhook. Raises RecordNotFound."""
        for row in self._database.rows(_FIND, {"webhook": webhook, "id": id}):
            return _log_entry(*row)
        raise RecordNotFound("there is no such delivery")


def find_subscriptions(store: Store, active: Sequence[str], now: float) -> list[Subscription]:
    """Return the subscriptions that have work; of webhooks that are not `active`, manual deliveries only.

    A pause that an endpoint requested ends after LONGEST_PAUSE at most. Raises StoreUnavailable also if the store's
    file was replaced.
    """
    store.require_file()
    last_event(store)  # events without a position are not delivered
    values = {"active": list(active), "now": now, **_LONGEST}
    rows = store.read_with(lambda database: database.rows(_SUBSCRIPTIONS, values))
    return [Subscription(webhook, _load_secrets(secrets), *map(bool, rest)) for webhook, secrets, *rest in rows]


def read_deliveries(
    store: Store, webhook: str, before: int | None, limit: int, state: str | None = None
) -> list[LogEntry]:
    """Return the log of a webhook, the newest first, from before the delivery with that id."""
    statement = f"{_LOG}{' AND id < :before' if before else ''}{_OF_STATE[state]} ORDER BY id DESC LIMIT :limit"
    values = {"webhook": webhook, "before": before, "state": state, "limit": limit}
    return [_log_entry(*row) for row in store.read_with(lambda database: database.rows(statement, values))]


def _log_entry(id: int, position: int, origin: str, *rest: Any) -> LogEntry:
    return LogEntry(id, id_of(position, origin), *rest)


def _dump_secrets(secrets: Sequence[Secret]) -> str:
    return orjson.dumps([list(secret) for secret in secrets]).decode()


def _load_secrets(text: str) -> tuple[Secret, ...]:
    return tuple(Secret(*secret) for secret in orjson.loads(text))

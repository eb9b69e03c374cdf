"""The webhook worker: it sends the deliveries that are due and stores the results.

One thread uses the store: each of its turns settles attempts, queues new events and leases due deliveries, in one
transaction. Threads of a pool send, so that a slow endpoint does not delay the others.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Event as Flag
from typing import NamedTuple

import orjson

from restkeeper.features.events.envelope import enveloped
from restkeeper.features.webhooks.concurrency import AT_ONCE, ConcurrencyLimit, Key
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.features.webhooks.signature import signed
from restkeeper.features.webhooks.verdict import must_disable, reason_of, verdict
from restkeeper.storage.contract import Record, Store, Transaction
from restkeeper.storage.errors import RecordNotFound, StoreGone, StoreUnavailable
from restkeeper.storage.outbox import Attempt, Delivery, EventFilter, StoredEvent, Subscription

LEASED = 64  # deliveries leased in one transaction, and
QUEUED = 500  # events read: both limit how long other writes wait
LEASE_SECONDS = 10.0  # beyond the longest attempt: the time to store its result
LOOK_SECONDS = 0.1  # between two checks while there is nothing to do
GIVE_UP_SECONDS = 60.0  # for which the store's file may be missing
LARGEST = 20_000  # bytes of a payload; of a larger one, webhooks get the fields to fetch it

WEBHOOKS = "webhooks"  # the collection

Send = Callable[[str, Mapping[str, str], bytes], DeliveryResult]
Disable = Callable[[Transaction, str, str, float], None]

RETRY_SECONDS = 1.0  # after an unexpected error

_log = logging.getLogger("restkeeper")


class _Endpoint(NamedTuple):
    url: str
    types: tuple[str, ...]
    active: bool
    version: str  # of the API: the form of the events


class _Job(NamedTuple):
    """A leased delivery, the end of its lease, its endpoint, and the secrets to send it with."""

    delivery: Delivery
    until: float
    endpoint: _Endpoint
    secrets: tuple[str, ...]

    @property
    def key(self) -> Key:
        """Identifies the job; another lease of the same delivery has another key."""
        return self.delivery.id, self.delivery.lease


class _Turn(NamedTuple):
    """What a turn did: attempts settled, events read, deliveries started."""

    settled: int
    queued: int
    sent: int


class _Outage:
    """The time for which the store has been unavailable; its begin and its end are logged."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._since: float | None = None
        self._gone_since: float | None = None

    def note(self, error: StoreUnavailable) -> None:
        """Note a failure. Raises the error if the file has been missing for too long."""
        now = self._elapsed()
        if self._since is None:
            self._since = now
            _log.warning("deliveries wait: %s", error.detail)
        if not isinstance(error, StoreGone):
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        elif now - self._gone_since > GIVE_UP_SECONDS:
            raise error

    def end(self) -> None:
        """Note that the store is available."""
        if self._since is not None:
            _log.warning("deliveries continue after %.0f s", self._elapsed() - self._since)
        self._since = self._gone_since = None


class Deliverer:
    """Sends events with `send`, which takes up to `timeout` seconds for each attempt.

    `collections` are those that the type `*` includes. `retries` are the seconds from each failure of a delivery to its
    next attempt; after the last one, or 410, `disable` is called with the transaction, webhook, reason and time. Many
    deliverers may use one store, in any processes. `convert` is given an event and the version of the API that the
    webhook has pinned. Not safe for threads.
    """

    def __init__(
        self,
        store: Store,
        send: Send,
        collections: Sequence[str],
        disable: Disable,
        *,
        timeout: float,
        retries: Sequence[float],
        convert: Callable[[StoredEvent, str], StoredEvent] = lambda event, version: event,
        now: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._send = send
        self._collections = tuple(collections)
        self._disable = disable
        self._timeout = timeout
        self._retries = retries
        self._convert = convert
        self._now = now
        self._elapsed = elapsed
        self._chance = chance
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="deliver")
        self._limit = ConcurrencyLimit()
        self._returned: deque[tuple[_Job, Attempt | None]] = deque()  # by the threads
        self._tried: list[Attempt] = []  # not yet settled
        self._news = Flag()  # set after each attempt
        self._active: list[str] = []
        self._revision = ""  # of the webhooks, for `_active`

    def deliver_once(self) -> int:
        """Send one batch of due deliveries, store the results, and return their number.

        Raises StoreUnavailable.
        """
        turn = self._turn()
        while turn.queued and not turn.sent:
            turn = self._turn()  # no webhook has the types of these events
        self._settle_all()
        return turn.sent

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Send due deliveries until `is_stopping`; deliveries under way are then finished.

        It waits while the store is unavailable, as during a long write of another program. Raises StoreGone after the
        store's file was missing or replaced for GIVE_UP_SECONDS.
        """
        outage = _Outage(self._elapsed)
        while not is_stopping():
            self._news.clear()
            try:
                busy = any(self._turn())
                outage.end()
            except StoreUnavailable as error:
                busy = False
                outage.note(error)
            if not busy:
                self._news.wait(LOOK_SECONDS)
        try:
            self._settle_all()
        except StoreUnavailable as error:
            _log.warning("some deliveries will be repeated: %s", error.detail)

    def close(self) -> None:
        """Stop the threads when they are idle."""
        self._pool.shutdown()

    def _settle_all(self) -> None:
        while self._limit.under_way or self._tried:
            self._news.wait(LOOK_SECONDS)
            self._news.clear()
            self._turn(settle_only=True)

    def _turn(self, *, settle_only: bool = False) -> _Turn:
        """Settle attempts, queue new events, and start due deliveries."""
        self._collect()
        now, tried = self._now(), self._tried
        waiting = [] if settle_only else self._waiting(now)
        if not (tried or waiting):
            return _Turn(0, 0, 0)
        run = partial(self._work, tried=tried, waiting=waiting, now=now)
        jobs, queued = self._store.write(run, use_reserve=True)  # deliveries must work on a full disk
        self._tried = []
        for job in jobs:
            self._start(job, now)
        return _Turn(len(tried), queued, len(jobs))

    def _collect(self) -> None:
        """Collect the results of the threads."""
        while self._returned:
            job, tried = self._returned.popleft()
            self._limit.end(job.key, succeeded=bool(tried and tried.succeeded), seconds=tried.seconds if tried else 0.0)
            if tried:
                self._tried.append(tried)

    def _waiting(self, now: float) -> list[tuple[Subscription, int]]:
        """The subscriptions with work, and the free places of each; in random order, to be fair."""
        found = {each.webhook: each for each in self._store.subscriptions(self._known_active(), now)}
        free = self._limit.free(sorted(found, key=lambda _: self._chance()), now, LEASED)
        return [(found[webhook], room) for webhook, room in free.items()]

    def _known_active(self) -> list[str]:
        """The active webhooks, read again when one has changed."""
        if (revision := self._store.revision(WEBHOOKS)) != self._revision:
            self._active = [record.id for record in self._store.scan(WEBHOOKS) if _endpoint(record).active]
            self._revision = revision
        return self._active

    def _work(
        self,
        transaction: Transaction,
        tried: list[Attempt],
        waiting: list[tuple[Subscription, int]],
        now: float,
    ) -> tuple[list[_Job], int]:
        """The transaction of a turn; returns the deliveries to start, and the number of events read."""
        # No deadlock: all lock webhooks before their subscriptions, and in one order.
        tried = sorted(tried, key=lambda each: each.delivery.webhook)
        for webhook in dict.fromkeys(each.delivery.webhook for each in tried if must_disable(each)):
            with suppress(RecordNotFound):  # it was deleted
                transaction.read(WEBHOOKS, webhook)
        for each in tried:
            if transaction.settle(each) and must_disable(each):
                self._disable(transaction, each.delivery.webhook, reason_of(each), now)
        jobs: list[_Job] = []
        queued = 0
        for subscription, room in waiting:
            try:
                endpoint = _endpoint(transaction.read(WEBHOOKS, subscription.webhook, lock=False))  # as it is now
            except RecordNotFound:
                continue
            if endpoint.active and subscription.behind and not subscription.due:
                queued += self._queue(transaction, subscription.webhook, endpoint, now, QUEUED - queued)
            jobs += self._lease(transaction, subscription, endpoint, room, now)
        return jobs, queued

    def _queue(self, transaction: Transaction, webhook: str, endpoint: _Endpoint, now: float, limit: int) -> int:
        own = (WEBHOOKS,) if any(type.startswith("webhook.") for type in endpoint.types) else ()
        return transaction.queue(webhook, EventFilter((*self._collections, *own), endpoint.types), now, limit)

    def _lease(
        self, transaction: Transaction, subscription: Subscription, endpoint: _Endpoint, room: int, now: float
    ) -> list[_Job]:
        until = now + self._timeout + LEASE_SECONDS
        secrets = tuple(each.value for each in subscription.secrets if each.until is None or each.until > now)
        manual_only = not (endpoint.active and subscription.open)
        leased = transaction.lease(subscription.webhook, now, until, room, manual_only=manual_only)
        return [_Job(each, until, endpoint, secrets) for each in leased]

    def _start(self, job: _Job, now: float) -> None:
        try:
            event = self._convert(job.delivery.event, job.endpoint.version)
        except Exception:  # such as the event of a newer program, which another process can send
            _log.exception("webhook %s: delivery %d", job.delivery.webhook, job.delivery.id)  # the lease will expire
            return
        self._limit.begin(job.key, job.delivery.webhook, now)
        light = job.delivery._replace(event=reduced(event))  # deliveries under way need little memory
        try:
            self._pool.submit(self._run, job._replace(delivery=light))
        except RuntimeError as error:  # the system has no thread left: the lease will expire
            _log.warning("webhook %s: delivery %d: %s", job.delivery.webhook, job.delivery.id, error)
            self._returned.append((job, None))

    def _run(self, job: _Job) -> None:
        """Attempt a delivery and pass the result to the next turn. Runs in a thread of the pool."""
        tried = None
        try:
            tried = self._try(job)
        except Exception:
            _log.exception("webhook %s: delivery %d", job.delivery.webhook, job.delivery.id)  # the lease will expire
        finally:
            self._returned.append((job, tried))
            self._news.set()

    def _try(self, job: _Job) -> Attempt | None:
        """Send a delivery; None if it is too late."""
        began, delivery = self._now(), job.delivery
        if began > job.until - self._timeout:
            return None  # this process was suspended: another one may have leased the delivery
        body = enveloped(delivery.event)
        result = self._send(job.endpoint.url, signed(delivery.event.id, body, job.secrets, now=began), body)
        at, chance = self._now(), self._chance()
        return verdict(delivery, result, began=began, at=at, retries=self._retries, chance=chance)


def _endpoint(record: Record) -> _Endpoint:
    webhook = orjson.loads(record.body)
    active, version = webhook["status"] == "active", webhook["api_version"]
    return _Endpoint(webhook["url"], tuple(webhook["types"]), active, version)


def reduced(event: StoredEvent) -> StoredEvent:
    """An event as it is sent: complete, or if its payload is too large, only the fields to fetch the item."""
    event = event._replace(older=None)
    if len(enveloped(event)) <= LARGEST:
        return event
    item = orjson.loads(event.data)
    known = {name: item[name] for name in ("id", "version", "updated_at") if name in item}
    return event._replace(data=orjson.dumps(known))


def keep_delivering(deliverer: Deliverer, is_stopping: Callable[[], bool]) -> None:
    """Deliver until `is_stopping`, despite all errors: no supervisor would restart this thread."""
    while not is_stopping():
        try:
            deliverer.run(is_stopping)
        except StoreUnavailable:
            _log.error("deliveries still wait; see /readyz")
        except Exception:
            _log.exception("deliveries continue in %s s", RETRY_SECONDS)
            time.sleep(RETRY_SECONDS)

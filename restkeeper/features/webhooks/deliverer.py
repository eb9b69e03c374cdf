"""The webhook worker: what is due is sent, and what came of it is kept.

One thread talks to the store: a turn of it settles what has been tried, queues what has happened and leases what is
due, all in one transaction. Threads of a pool do the sending, so that who is slow delays nobody else.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event as Flag
from typing import NamedTuple

import orjson

from restkeeper.features.events.envelope import enveloped
from restkeeper.features.webhooks.lanes import AT_ONCE, Key, Lanes
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.features.webhooks.signature import signed
from restkeeper.features.webhooks.verdict import is_the_end, reason_of, verdict
from restkeeper.storage.contract import Record, Store, Transaction
from restkeeper.storage.errors import RecordNotFound, StoreGone, StoreUnavailable
from restkeeper.storage.outbox import Attempt, Delivery, EventFilter, StoredEvent, Subscription

LEASED = 64  # deliveries that are taken in one transaction, and
QUEUED = 500  # events that are looked at: bounds how long others wait to write
LEASE_SECONDS = 10.0  # beyond the longest try: as long as it may take to keep what came of it
LOOK_SECONDS = 0.1  # between two looks while there is nothing to do
GIVE_UP_SECONDS = 60.0  # for which the store's file may be away
LARGEST = 20_000  # bytes of a payload; of what is larger, receivers get what it takes to fetch it

WEBHOOKS = "webhooks"  # the collection that has the endpoints: where, what, and whether

Send = Callable[[str, Mapping[str, str], bytes], DeliveryResult]
Disable = Callable[[Transaction, str, str, float], None]

AGAIN_SECONDS = 1.0  # after an error that nobody foresaw

_log = logging.getLogger("restkeeper")


class _Endpoint(NamedTuple):
    url: str
    types: tuple[str, ...]
    active: bool


class _Job(NamedTuple):
    """A delivery that was leased until a time, and how it is to be sent."""

    delivery: Delivery
    until: float
    url: str
    secrets: tuple[str, ...]

    @property
    def key(self) -> Key:
        """What tells it from all others, also of the same delivery."""
        return self.delivery.id, self.delivery.lease


class _Turn(NamedTuple):
    """How much a turn did: attempts settled, events looked at, deliveries set off."""

    settled: int
    queued: int
    sent: int


class _Waiting:
    """How long the store has been out of reach: one line in the log when that begins, and one when it ends."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._since: float | None = None
        self._gone_since: float | None = None

    def go_on(self, error: StoreUnavailable) -> None:
        """It is still out of reach. Raises the error when the file has been gone for too long."""
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
        """It can be had."""
        if self._since is not None:
            _log.warning("deliveries go on after %.0f s", self._elapsed() - self._since)
        self._since = self._gone_since = None


class Deliverer:
    """Sends events by `send`, giving each try up to `timeout` seconds.

    `collections` are those whose events go to who wants all. `retries` are the seconds from each failure of a delivery
    to its next try; after the last, or 410, `disable` is told in which transaction, which webhook, why and when. Any
    number of these may work on one store, in any processes. Not safe for threads.
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
        self._now = now
        self._elapsed = elapsed
        self._chance = chance
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="deliver")
        self._lanes = Lanes()
        self._returned: deque[tuple[_Job, Attempt | None]] = deque()  # from the threads
        self._tried: list[Attempt] = []  # what is still to be settled
        self._news = Flag()  # that something was tried
        self._active: list[str] = []
        self._revision = ""  # of the webhooks that those are of

    def deliver_once(self) -> int:
        """Send what is due, as much as is sent at a time, and keep what came of it; how many there were.

        Raises StoreUnavailable.
        """
        turn = self._turn()
        while turn.queued and not turn.sent:
            turn = self._turn()  # what was looked at was not wanted
        self._settle_all()
        return turn.sent

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Send what is due for as long as nobody says stop; what is on its way then is seen to its end.

        While the store cannot be had, because another program writes for long, it waits. Raises StoreGone once the
        store's file has been away, or another, for GIVE_UP_SECONDS.
        """
        waiting = _Waiting(self._elapsed)
        while not is_stopping():
            self._news.clear()
            try:
                busy = any(self._turn())
                waiting.end()
            except StoreUnavailable as error:
                busy = False
                waiting.go_on(error)
            if not busy:
                self._news.wait(LOOK_SECONDS)
        try:
            self._settle_all()
        except StoreUnavailable as error:
            _log.warning("some deliveries will be repeated: %s", error.detail)

    def close(self) -> None:
        """End the threads, once they have nothing to do."""
        self._pool.shutdown()

    def _settle_all(self) -> None:
        while self._lanes.under_way or self._tried:
            self._news.wait(LOOK_SECONDS)
            self._news.clear()
            self._turn(settle_only=True)

    def _turn(self, *, settle_only: bool = False) -> _Turn:
        """Settle what was tried, queue what has happened, and set off what is due."""
        self._collect()
        now, tried = self._now(), self._tried
        waiting = [] if settle_only else self._waiting(now)
        if not (tried or waiting):
            return _Turn(0, 0, 0)
        run = partial(self._work, tried=tried, waiting=waiting, now=now)
        jobs, queued = self._store.write(run, use_reserve=True)  # what the service depends on
        self._tried = []
        for job in jobs:
            self._set_off(job, now)
        return _Turn(len(tried), queued, len(jobs))

    def _collect(self) -> None:
        """Take what the threads have done."""
        while self._returned:
            job, tried = self._returned.popleft()
            self._lanes.end(job.key, succeeded=bool(tried and tried.succeeded), seconds=tried.seconds if tried else 0.0)
            if tried:
                self._tried.append(tried)

    def _waiting(self, now: float) -> list[tuple[Subscription, int]]:
        """Who has something to do, and how many deliveries there is room for; by chance, so that all come first."""
        found = {each.webhook: each for each in self._store.subscriptions(self._known_active(), now)}
        free = self._lanes.free(sorted(found, key=lambda _: self._chance()), now, LEASED)
        return [(found[webhook], room) for webhook, room in free.items()]

    def _known_active(self) -> list[str]:
        """The webhooks that are active, read anew when one has changed."""
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
        """What a turn does in its transaction: the deliveries to set off, and how many events were looked at."""
        for each in tried:
            if transaction.settle(each) and is_the_end(each):
                self._disable(transaction, each.delivery.webhook, reason_of(each), now)
        jobs: list[_Job] = []
        queued = 0
        for subscription, room in waiting:
            try:
                endpoint = _endpoint(transaction.read(WEBHOOKS, subscription.webhook))  # as it is now
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
        asked_only = not (endpoint.active and subscription.open)
        leased = transaction.lease(subscription.webhook, now, until, room, asked_only=asked_only)
        return [_Job(each, until, endpoint.url, secrets) for each in leased]

    def _set_off(self, job: _Job, now: float) -> None:
        self._lanes.begin(job.key, job.delivery.webhook, now)
        light = job.delivery._replace(event=lightened(job.delivery.event))  # what is on its way takes little memory
        try:
            self._pool.submit(self._run, job._replace(delivery=light))
        except RuntimeError as error:  # the system has no thread for it: the lease will end
            _log.warning("webhook %s: delivery %d: %s", job.delivery.webhook, job.delivery.id, error)
            self._returned.append((job, None))

    def _run(self, job: _Job) -> None:
        """Attempt a delivery, and put what came of it where the next turn finds it. Runs in a thread of the pool."""
        tried = None
        try:
            tried = self._try(job)
        except Exception:
            _log.exception("webhook %s: delivery %d", job.delivery.webhook, job.delivery.id)  # the lease will end
        finally:
            self._returned.append((job, tried))
            self._news.set()

    def _try(self, job: _Job) -> Attempt | None:
        """Send a delivery; None where that is too late."""
        began, delivery = self._now(), job.delivery
        if began > job.until - self._timeout:
            return None  # this process stood still for so long that the delivery may be another's by now
        body = enveloped(delivery.event)
        answer = self._send(job.url, signed(delivery.event.id, body, job.secrets, now=began), body)
        at, chance = self._now(), self._chance()
        return verdict(delivery, answer, began=began, at=at, retries=self._retries, chance=chance)


def _endpoint(record: Record) -> _Endpoint:
    webhook = orjson.loads(record.body)
    return _Endpoint(webhook["url"], tuple(webhook["types"]), webhook["status"] == "active")


def lightened(event: StoredEvent) -> StoredEvent:
    """An event as it is sent: all of it, or of one whose payload is too large, what it takes to fetch the item."""
    if len(enveloped(event)) <= LARGEST:
        return event
    item = orjson.loads(event.data)
    known = {name: item[name] for name in ("id", "version", "updated_at") if name in item}
    return event._replace(data=orjson.dumps(known))


def keep_delivering(deliverer: Deliverer, is_stopping: Callable[[], bool]) -> None:
    """Deliver until it is time to stop, whatever happens meanwhile, for no supervisor would start this anew."""
    while not is_stopping():
        try:
            deliverer.run(is_stopping)
        except StoreUnavailable:
            _log.error("deliveries still wait; /readyz tells why")
        except Exception:
            _log.exception("deliveries go on in %s s", AGAIN_SECONDS)
            time.sleep(AGAIN_SECONDS)

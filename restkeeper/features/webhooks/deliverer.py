"""The webhook worker: it sends the deliveries that are due and stores the results.

One thread uses the store: each of its rounds settles attempts, queues new events and leases due deliveries, in one
transaction. Threads of a pool send, at most ENDPOINT_AT_ONCE to one endpoint, so that a slow one does not delay the
others.
"""

import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from threading import Event as Flag
from typing import Any, NamedTuple

import orjson

from restkeeper.feature import ServerPart
from restkeeper.features.events.types import EventViews, enveloped, event_collections, unshown
from restkeeper.features.webhooks.handlers import WEBHOOKS, disable_webhook
from restkeeper.features.webhooks.sender import DeliveryResult, Sender, attempt_of, must_disable, reason_of, signed
from restkeeper.resources.call import Caller
from restkeeper.resources.views import StoredView
from restkeeper.service import Service
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.deliveries import Attempt, Deliveries, Delivery, Subscription, find_subscriptions
from restkeeper.storage.errors import RecordNotFound, RevisionDiffers, StoreGone, StoreUnavailable
from restkeeper.storage.feed import EventFilter, StoredEvent

AT_ONCE = 1024  # concurrent deliveries of one process, each in a thread
ENDPOINT_AT_ONCE = 8  # of these to one endpoint
LEASED = 64  # deliveries leased in one transaction, and
QUEUED = 500  # events read: both limit how long other writes wait
LEASE_SECONDS = 10.0  # beyond the longest attempt: the time to store its result
LOOK_SECONDS = 0.1  # between two checks while there is nothing to do
GIVE_UP_SECONDS = 60.0  # for which the store's file may be missing
RETRY_SECONDS = 1.0  # after an unexpected error
LARGEST = 20_000  # bytes of a payload; of a larger one, webhooks get the fields to fetch it

Send = Callable[[str, Mapping[str, str], bytes], DeliveryResult]

_log = logging.getLogger("restkeeper")


class _Job(NamedTuple):
    """A leased delivery, the end of its lease, its webhook's URL, version of the API and scopes, and its secrets."""

    delivery: Delivery
    until: float
    url: str
    version: str
    scopes: frozenset[str]  # to read private fields
    secrets: tuple[str, ...]

    @property
    def key(self) -> tuple[int, int]:
        """Identifies the job; another lease of the same delivery has another key."""
        return self.delivery.id, self.delivery.lease


@dataclass(eq=False)
class Deliverer:
    """Sends events with `send`, `at_once` at most, which takes up to `timeout` seconds for each attempt.

    `webhooks` are the items of the store, `collections` those that the type `*` includes. `retries` are the seconds
    from each failure of a delivery to its next attempt; after the last one, or 410, the webhook is disabled. Many
    deliverers may use one store, in any processes. `convert` is given an event, the version of the API that the
    webhook has pinned, and the caller that it stands for. Not safe for threads.
    """

    store: Store
    webhooks: StoredView
    send: Send
    collections: Sequence[str]
    _: KW_ONLY
    timeout: float
    retries: Sequence[float]
    at_once: int = AT_ONCE
    convert: Callable[[StoredEvent, str, Caller], StoredEvent] = lambda event, version, caller: event
    now: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.at_once, thread_name_prefix="deliver")
        self._under_way: dict[tuple[int, int], str] = {}  # the webhook of each job
        self._returned: deque[tuple[_Job, Attempt | None]] = deque()  # by the threads
        self._tried: list[Attempt] = []  # not yet settled
        self._news = Flag()  # set after each attempt
        self._active: list[str] = []
        self._is_former = False  # whether an event was of a later revision than this program's
        self._change_token = ""  # of the webhooks, for `_active`

    def deliver_once(self) -> int:
        """Send one batch of due deliveries, store the results, and return their number.

        Raises StoreUnavailable.
        """
        _, queued, sent = self._round()
        while queued and not sent:
            _, queued, sent = self._round()  # no webhook has the types of these events
        self._settle_all()
        return sent

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Send due deliveries until `is_stopping`; deliveries under way are then finished.

        It waits while the store is unavailable, as during a long write of another program; the beginning and the end of
        that are logged. Raises StoreGone after the store's file was missing or replaced for GIVE_UP_SECONDS.
        """
        away_since = gone_since = None
        while not is_stopping():
            self._news.clear()
            busy = False
            try:
                busy = any(self._round())
                if away_since is not None:
                    _log.warning("deliveries continue after %.0f s", self.elapsed() - away_since)
                away_since = gone_since = None
            except StoreUnavailable as error:
                now = self.elapsed()
                if away_since is None:
                    away_since = now
                    _log.warning("deliveries wait: %s", error.detail)
                gone_since = (now if gone_since is None else gone_since) if isinstance(error, StoreGone) else None
                if gone_since is not None and now - gone_since > GIVE_UP_SECONDS:
                    raise
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
        while self._under_way or self._tried:
            self._news.wait(LOOK_SECONDS)
            self._news.clear()
            self._round(settle_only=True)

    def _round(self, *, settle_only: bool = False) -> tuple[int, int, int]:
        """Settle attempts, queue new events, and start due deliveries; returns how many of each."""
        while self._returned:
            job, attempt = self._returned.popleft()
            self._under_way.pop(job.key, None)
            if attempt:
                self._tried.append(attempt)
        now, tried = self.now(), self._tried
        self._is_former = self._is_former and bool(self.store.differing())
        waiting = [] if settle_only or self._is_former else self._waiting(now)
        if not (tried or waiting):
            return 0, 0, 0

        def work(transaction: Transaction) -> tuple[list[_Job], int]:
            self._settle(transaction, tried, now)
            return self._lease(transaction, waiting, now)

        jobs, queued = self.store.write(work, use_reserve=True)  # deliveries must work on a full disk
        self._tried = []
        for job in jobs:
            self._start(job)
        return len(tried), queued, len(jobs)

    def _waiting(self, now: float) -> list[tuple[Subscription, int]]:
        """The subscriptions with work, and how many deliveries of each may start; in random order, to be fair."""
        if (change_token := self.store.change_token(WEBHOOKS.name)) != self._change_token:
            webhooks = [(record.id, orjson.loads(record.body)) for record in self.store.scan(WEBHOOKS.name)]
            self._active = [id for id, webhook in webhooks if webhook["status"] == "active"]
            self._change_token = change_token
        subscriptions = find_subscriptions(self.store, self._active, now)
        under_way = Counter(self._under_way.values())
        free = min(LEASED, self.at_once - under_way.total())
        waiting = []
        for subscription in sorted(subscriptions, key=lambda _: self.chance()):
            room = min(ENDPOINT_AT_ONCE - under_way[subscription.webhook], free)
            if room > 0:
                waiting.append((subscription, room))
                free -= room
        return waiting

    def _settle(self, transaction: Transaction, tried: list[Attempt], now: float) -> None:
        """Store the results, and disable the webhooks that fail."""
        # No deadlock: all lock webhooks before their subscriptions, and in one order.
        tried = sorted(tried, key=lambda attempt: attempt.delivery.webhook)
        for webhook in dict.fromkeys(attempt.delivery.webhook for attempt in tried if must_disable(attempt)):
            with suppress(RecordNotFound):  # it was deleted
                transaction.read(WEBHOOKS.name, webhook)
        deliveries = Deliveries(transaction)
        for attempt in tried:
            if deliveries.settle(attempt) and must_disable(attempt):
                disable_webhook(self.webhooks, transaction, attempt.delivery.webhook, reason_of(attempt), now)

    def _lease(
        self, transaction: Transaction, waiting: list[tuple[Subscription, int]], now: float
    ) -> tuple[list[_Job], int]:
        """Queue events and lease deliveries; returns those to start, and the number of events read."""
        deliveries, jobs = Deliveries(transaction), list[_Job]()
        queued, until = 0, now + self.timeout + LEASE_SECONDS
        for (id, signing, is_behind, is_due, is_open), room in waiting:
            try:
                webhook = orjson.loads(transaction.read(WEBHOOKS.name, id, lock=False).body)  # as it is now
            except RecordNotFound:
                continue
            is_active, types = webhook["status"] == "active", tuple(webhook["types"])
            if is_active and is_behind and not is_due:
                more = (WEBHOOKS.name,) if any(type.startswith("webhook.") for type in types) else ()
                queued += deliveries.queue(id, EventFilter((*self.collections, *more), types), now, QUEUED - queued)
            secrets = tuple(secret.value for secret in signing if secret.until is None or secret.until > now)
            leased = deliveries.lease(id, now, until, room, manual_only=not (is_active and is_open))
            url, version, scopes = webhook["url"], webhook["api_version"], frozenset(webhook["scopes"])
            jobs += [_Job(delivery, until, url, version, scopes, secrets) for delivery in leased]
        return jobs, queued

    def _start(self, job: _Job) -> None:
        """Start a delivery in a thread; if that cannot be, its lease will expire."""
        delivery = job.delivery
        try:
            caller = Caller(delivery.webhook, job.scopes, (delivery.webhook,))
            event = reduced(self.convert(delivery.event, job.version, caller))
        except RevisionDiffers as error:  # the lease will expire, and another process can send it
            self._stop(error)
            return
        except Exception:
            _log.exception("webhook %s: delivery %d", delivery.webhook, delivery.id)
            return
        self._under_way[job.key] = delivery.webhook
        try:
            self._pool.submit(self._run, job._replace(delivery=delivery._replace(event=event)))
        except RuntimeError as error:  # the system has no thread left
            _log.warning("webhook %s: delivery %d: %s", delivery.webhook, delivery.id, error)
            self._returned.append((job, None))

    def _stop(self, error: RevisionDiffers) -> None:
        self._is_former = True
        _log.warning("this program delivers nothing as long as that is so: %s", error.detail)

    def _run(self, job: _Job) -> None:
        """Send a delivery if it is not too late; the next round gets the result. Runs in a thread of the pool."""
        began, delivery, attempt = self.now(), job.delivery, None
        try:
            if began <= job.until - self.timeout:  # else this process was suspended: another one may have leased it
                body = enveloped(delivery.event)
                headers = signed(delivery.event.id, body, job.secrets, now=began)
                result = self.send(job.url, headers, body)
                at, chance = self.now(), self.chance()
                attempt = attempt_of(delivery, result, began=began, at=at, retries=self.retries, chance=chance)
        except Exception:
            _log.exception("webhook %s: delivery %d", delivery.webhook, delivery.id)  # the lease will expire
        finally:
            self._returned.append((job, attempt))
            self._news.set()


def deliverer_of(service: Service, send: Send | None = None, **options: Any) -> Deliverer:
    """The deliverer of a service, as configured, and with `options`; it sends over the network, or by `send`."""
    config, clock = service.config, service.clock
    timeout = float(config.webhook_timeout)
    send = send or Sender(allow_private=config.webhook_allow_private, timeout=timeout)
    views = {version.name: EventViews(service, version.name) for version in service.served}

    def convert(event: StoredEvent, version: str, caller: Caller) -> StoredEvent:
        """The event as a webhook of this version receives it; after its sunset, as one of the successor does."""
        view = views.get(service.versions.replacement_for(version, clock.time()))
        return view.converted(event, caller) if view else unshown(event)

    return Deliverer(
        service.store,
        service.of_features[WEBHOOKS.name],
        send,
        event_collections(service.resources),
        timeout=timeout,
        retries=config.webhook_retries,
        **options,
        convert=convert,
        now=clock.time,
        elapsed=clock.monotonic,
    )


def reduced(event: StoredEvent) -> StoredEvent:
    """An event as it is sent: complete, or if its payload is too large, only the fields to fetch the item.

    Deliveries under way need little memory then.
    """
    event = event._replace(removed_fields=None)
    if len(enveloped(event)) <= LARGEST:
        return event
    item = orjson.loads(event.data)
    members = {name: item[name] for name in ("id", "version", "updated_at") if name in item}
    return event._replace(data=orjson.dumps(members))


def deliver_inside(service: Service, is_stopping: Callable[[], bool]) -> threading.Thread | None:
    """Deliver in this process until `is_stopping`, if the configuration says so."""
    if service.config.webhook_worker != "inside" or service.config.harness:
        return None
    # `threading.Thread`, which gevent has patched by now: a class that was imported before makes no greenlet.
    arguments = (deliverer_of(service), is_stopping)
    delivering = threading.Thread(target=keep_delivering, args=arguments, name="deliver", daemon=True)
    delivering.start()
    return delivering


SERVER = ServerPart(run=deliver_inside)


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

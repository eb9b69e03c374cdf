"""The webhook worker: what is due is sent, and what came of it is kept.

One thread talks to the store: a turn of it settles what has been tried, queues what has happened and leases what is
due, all in one transaction. Threads of a pool do the sending, so that who is slow delays nobody else.
"""

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event as Flag
from typing import NamedTuple

import orjson

from delivery.sender import Answer
from delivery.signature import signed
from delivery.verdict import WEBHOOKS, disable, is_the_end, verdict
from errors import Unavailable
from storage.contract import Store, Transaction
from storage.outbox import Delivery, Recorded, Subscription, Try, Wanted

RETRIES = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)  # seconds from a failure to the next try

AT_ONCE = 512  # deliveries on their way from one process; of these to endpoints that failed last time,
FAILING_AT_ONCE = 256
LANES = 8  # to one endpoint; to one that failed last time,
FAILING_LANES = 1
LEASE_SECONDS = 10.0  # beyond the longest try: as long as it may take to keep what came of it
QUEUED = 500  # events that are looked at in one transaction
LOOK_SECONDS = 0.1  # between two looks while there is nothing to do
LARGEST = 20_000  # bytes of a payload; of what is larger, receivers get what it takes to fetch it

Send = Callable[[str, Mapping[str, str], bytes], Answer]

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
    failing: bool  # the endpoint was, when it was leased

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from all others, also of the same delivery."""
        return self.delivery.id, self.delivery.lease


class Deliverer:
    """Sends the events of `collections` by `send`, giving each try up to `timeout` seconds.

    Any number of them may work on one store, in any processes. `retries` are the seconds from each failure of a
    delivery to its next try. Not safe for threads.
    """

    def __init__(
        self,
        store: Store,
        send: Send,
        collections: Sequence[str],
        *,
        timeout: float = 15.0,
        retries: Sequence[float] = RETRIES,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._send = send
        self._collections = (*collections, WEBHOOKS)
        self._timeout = timeout
        self._retries = retries
        self._now = now
        self._chance = chance
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="deliver")
        self._under_way: dict[tuple[int, int], _Job] = {}  # by delivery and lease
        self._tried: deque[tuple[_Job, Try | None]] = deque()  # what is still to be settled
        self._news = Flag()  # that something was tried
        self._endpoints: dict[str, _Endpoint] = {}
        self._revision = ""  # of the webhooks that those are

    def deliver_once(self) -> int:
        """Send what is due, each once, and keep what came of it; how many there were. Raises Unavailable."""
        _, sent = self._turn()
        self._settle_all()
        return sent

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Send what is due for as long as nobody says stop; what is on its way then is seen to its end."""
        while not is_stopping():
            self._news.clear()
            try:
                busy = any(self._turn())
            except Unavailable as problem:
                _log.warning("deliveries wait: %s", problem.detail)
                busy = False
            if not busy:
                self._news.wait(LOOK_SECONDS)
        try:
            self._settle_all()
        except Unavailable as problem:
            _log.warning("some deliveries will be repeated: %s", problem.detail)

    def close(self) -> None:
        """End the threads, once they have nothing to do."""
        self._pool.shutdown()

    def _settle_all(self) -> None:
        while self._under_way:
            self._news.wait()
            self._news.clear()
            self._turn(settle_only=True)

    def _turn(self, *, settle_only: bool = False) -> tuple[int, int]:
        """Settle what was tried, and set off what is due; how many of both."""
        tried, now = list(self._tried), self._now()
        waiting = [] if settle_only else self._waiting(now, {job.key for job, _ in tried})
        if not (tried or waiting):
            return 0, 0
        jobs = self._store.write(lambda transaction: self._work(transaction, tried, waiting, now))
        for job, _ in tried:
            del self._under_way[job.key]
            self._tried.popleft()
        for job in jobs:
            self._under_way[job.key] = job
            self._pool.submit(self._run, job)
        return len(tried), len(jobs)

    def _waiting(self, now: float, done: set[tuple[int, int]]) -> list[tuple[Subscription, int]]:
        """Who has something to do, and how many deliveries there is room for; by chance, so that all come first."""
        endpoints = self._known_endpoints()
        active = [id for id, endpoint in endpoints.items() if endpoint.active]
        found = [each for each in self._store.subscriptions(active, now) if each.webhook in endpoints]
        jobs = [job for key, job in self._under_way.items() if key not in done]
        under_way = Counter(job.delivery.webhook for job in jobs)
        free = AT_ONCE - len(jobs)
        free_for_failing = min(free, FAILING_AT_ONCE - sum(job.failing for job in jobs))
        waiting = []
        for each in sorted(found, key=lambda _: self._chance()):
            lanes = FAILING_LANES if each.failures else LANES
            room = min(lanes - under_way[each.webhook], free_for_failing if each.failures else free)
            if room > 0:
                waiting.append((each, room))
                free -= room
                free_for_failing -= room if each.failures else 0
        return waiting

    def _known_endpoints(self) -> dict[str, _Endpoint]:
        """All webhooks, read anew when one has changed."""
        if (revision := self._store.revision(WEBHOOKS)) != self._revision:
            webhooks = {record.id: orjson.loads(record.body) for record in self._store.scan(WEBHOOKS)}
            self._endpoints = {
                id: _Endpoint(webhook["url"], tuple(webhook["types"]), webhook["status"] == "active")
                for id, webhook in webhooks.items()
            }
            self._revision = revision
        return self._endpoints

    def _work(
        self,
        transaction: Transaction,
        tried: list[tuple[_Job, Try | None]],
        waiting: list[tuple[Subscription, int]],
        now: float,
    ) -> list[_Job]:
        ended = set()
        for _, each in tried:
            if each and transaction.settle(each) and is_the_end(each):
                disable(transaction, each, now)
                ended.add(each.delivery.webhook)
        going_on = [each for each in waiting if each[0].webhook not in ended]
        return [job for subscription, room in going_on for job in self._lease(transaction, subscription, room, now)]

    def _lease(self, transaction: Transaction, subscription: Subscription, room: int, now: float) -> list[_Job]:
        webhook, endpoint = subscription.webhook, self._endpoints[subscription.webhook]
        if subscription.behind and not subscription.due:
            transaction.queue(webhook, Wanted(self._collections, endpoint.types), now, QUEUED)
        until = now + self._timeout + LEASE_SECONDS
        secrets = tuple(each.value for each in subscription.secrets if each.until is None or each.until > now)
        leased = transaction.lease(webhook, subscription.horizon, until, room)
        light = (each._replace(event=lightened(each.event)) for each in leased)  # what waits takes little memory
        return [_Job(each, until, endpoint.url, secrets, subscription.failures > 0) for each in light]

    def _run(self, job: _Job) -> None:
        """Try a delivery, and put what came of it where the next turn finds it. Runs in a thread of the pool."""
        tried = None
        try:
            tried = self._try(job)
        except Exception:
            _log.exception("webhook %s: delivery %d", job.delivery.webhook, job.delivery.id)  # the lease will end
        finally:
            self._tried.append((job, tried))
            self._news.set()

    def _try(self, job: _Job) -> Try | None:
        """Send a delivery; None where that is too late."""
        began, delivery = self._now(), job.delivery
        if began > job.until - self._timeout:
            return None  # this process stood still for so long that the delivery may be another's by now
        body = delivery.event.payload
        answer = self._send(job.url, signed(delivery.event.id, body, job.secrets, now=began), body)
        at, chance = self._now(), self._chance()
        return verdict(delivery, answer, began=began, at=at, retries=self._retries, chance=chance)


def lightened(event: Recorded) -> Recorded:
    """An event as it is sent: all of it, or of one whose payload is too large, what it takes to fetch the item."""
    if len(event.payload) <= LARGEST:
        return event
    item = orjson.loads(event.data)
    known = {name: item[name] for name in ("id", "version", "updated_at") if name in item}
    return event._replace(data=orjson.dumps(known))

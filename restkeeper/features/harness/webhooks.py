"""The webhooks of a space: deliveries of the service are caught, and their signatures are verified."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import chain, count
from math import inf
from typing import Any
from urllib.parse import urlsplit

from restkeeper import exactjson
from restkeeper.clock import uuid7
from restkeeper.errors import Conflict
from restkeeper.features.harness.faults import Declared, Faults
from restkeeper.features.harness.matching import is_like
from restkeeper.features.webhooks.deliverer import deliverer_of
from restkeeper.features.webhooks.handlers import WEBHOOKS, new_secret
from restkeeper.features.webhooks.sender import DeliveryResult, Sender, signed
from restkeeper.net import is_loopback
from restkeeper.resources.changes import Unit
from restkeeper.service import Service
from restkeeper.storage.deliveries import Deliveries, Secret, read_deliveries
from restkeeper.storage.feed import EventFilter, find_events, last_event
from restkeeper.storage.interface import Query

CATCHER = "https://webhooks.test/"  # of the webhook that a space has for a test that waits without one
MOST_CAUGHT = 1000
MOST_WEBHOOKS = 100
MOST_PENDING = 100  # deliveries of a webhook whose next attempts are known
MOST_EVENTS = 1000  # before the first wait, that are sent
LONGEST_SECONDS = 20.0  # that one move of the clock, or one wait, sends
LOOK_SECONDS = 0.02


class Catcher:
    """Catches the deliveries of a space. An endpoint on this machine gets them, too, unless `faults` have a response.

    They are sent when a test waits for them or moves the clock: nothing runs beside a test, unless it wants them at
    once. Those that an endpoint gets have the real time in their signature, as it verifies that.
    """

    def __init__(self, service: Service, faults: Faults) -> None:
        self._service, self._faults = service, faults
        self._lock = threading.Lock()
        self._is_open = "webhooks" in service.features
        self._caught: deque[dict[str, Any]] = deque(maxlen=MOST_CAUGHT)
        self.since = last_event(service.store)  # events up to this one were there before the test acted
        self._numbers = count(1)

    def wait(
        self, *, type: str, within: float, times: int, after: int, is_over: Callable[[], bool]
    ) -> list[dict[str, Any]]:
        """All deliveries of a type of event (a pattern with `*`) after a number, as soon as there are so many.

        There may be fewer after so many seconds, or when it `is_over`.
        """
        self._catch_all()
        until = time.monotonic() + within
        while True:
            self.deliver()
            deliveries = [sent for sent in self._caught if sent["number"] > after and is_like(sent["type"], type)]
            if len(deliveries) >= times or time.monotonic() >= until or is_over():
                return deliveries
            time.sleep(LOOK_SECONDS)

    def respond(self, statuses: list[int]) -> Declared:
        """Respond so to the next deliveries, in place of the endpoints."""
        self._catch_all()
        return self._faults.set_responses(statuses)

    def deliver(self) -> None:
        """Send the deliveries that are due."""
        if not self._is_open or not self._service.store.count(WEBHOOKS.name):
            return
        with self._lock, closing(deliverer_of(self._service, self._send, at_once=1, chance=lambda: 0.0)) as deliverer:
            until = time.monotonic() + LONGEST_SECONDS
            while deliverer.deliver_once() and time.monotonic() < until:
                pass

    def move_clock(self, moment: float, *, frozen: bool | None = None) -> None:
        """Set the space's clock. What is due before is sent at its time, one attempt after another."""
        clock: Any = self._service.clock
        due, until = -inf, time.monotonic() + LONGEST_SECONDS
        self.deliver()
        while (due := self._next_due(due)) <= moment and time.monotonic() < until:
            clock.set(max(due, clock.time()))
            self.deliver()
        clock.set(moment, frozen=frozen)
        self.deliver()

    def _next_due(self, after: float) -> float:
        """The time of the next attempt after a time. A paused webhook is not waited for: its attempts stay."""
        webhooks = self._webhooks() if self._is_open else []
        pending = [read_deliveries(self._service.store, webhook, None, MOST_PENDING, "pending") for webhook in webhooks]
        times = (delivery.due for delivery in chain(*pending))
        return min((due for due in times if due is not None and due > after), default=inf)

    def _webhooks(self) -> list[str]:
        page = self._service.store.page(WEBHOOKS.name, Query(limit=MOST_WEBHOOKS))
        return [exactjson.decoded(body)["id"] for body in self._service.of_features[WEBHOOKS.name].bodies(page)]

    def _catch_all(self) -> None:
        """Create a webhook for all events, also past events, unless the test has its own."""
        service = self._service
        if not self._is_open:
            raise Conflict("the service has no webhooks: that feature is closed")
        if service.store.count(WEBHOOKS.name):
            return
        names = tuple(resource.name for resource in service.resources if resource.events)
        past = find_events(service.store, self.since, EventFilter(names), MOST_EVENTS).events

        def subscribe(unit: Unit) -> None:
            stored = service.of_features[WEBHOOKS.name]
            record = stored.new_record({"url": CATCHER}, id=uuid7(), now=unit.now())
            unit.write(stored, None, record)
            deliveries = Deliveries(unit.transaction)
            deliveries.subscribe(record.id, [Secret(new_secret())])
            for event in past:
                deliveries.queue_manually(record.id, event.id)

        service.write(subscribe)

    def _send(self, url: str, headers: Mapping[str, str], body: bytes) -> DeliveryResult:
        status = self._faults.next_status()
        if status is None and is_loopback(urlsplit(url).hostname or ""):
            signers = self._signers(headers, body)
            headers = {**headers, **signed(headers["webhook-id"], body, signers, now=time.time())}
            with closing(Sender(allow_private=True, timeout=float(self._service.config.webhook_timeout))) as send:
                result = send(url, headers, body)
        else:
            result = DeliveryResult(status or 200, "", None)
        caught = {"url": url, "headers": dict(headers), "body": exactjson.loads(body), "status": result.status}
        caught |= {"number": next(self._numbers), "type": caught["body"]["type"]}
        self._caught.append(caught)
        return result

    def _signers(self, headers: Mapping[str, str], body: bytes) -> list[str]:
        """The secrets of webhooks of the space that have signed a message."""
        id, at, signatures = (headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        webhooks, genuine = self._webhooks(), signatures.split()
        stored = self._service.store.write(lambda transaction: [*map(Deliveries(transaction).secrets, webhooks)])
        values = [secret.value for secret in chain(*stored)]
        return [value for value in values if signed(id, body, [value], now=float(at))["webhook-signature"] in genuine]

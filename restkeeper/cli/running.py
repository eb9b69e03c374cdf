"""`restkeeper deliver` and `reap`: commands that run until SIGTERM or Ctrl-C."""

import signal
import time
from collections.abc import Callable
from types import FrameType

import click
from flask.cli import with_appcontext

from restkeeper.cli.common import Command, service_of_app
from restkeeper.clock import rfc3339
from restkeeper.features.webhooks.deliverer import deliverer_of
from restkeeper.service import Service
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import StoreGone, StoreUnavailable
from restkeeper.storage.feed import last_event, sweep_events
from restkeeper.web.observe import configure_logging

GIVE_UP_SECONDS = 60.0  # for which the store may be missing at the start
LOOK_SECONDS = 0.1  # between two checks whether to stop
BATCH = 500  # records per transaction: limits how long other writes wait
LONGEST_PAUSE = 24 * 3600  # seconds between two runs of `restkeeper reap`


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="Send until nothing more is due, then end.")
@with_appcontext
def deliver(once: bool) -> None:
    """Send the deliveries of webhooks, until SIGTERM or Ctrl-C.

    Deliveries under way are then finished. Any number of these can run beside the service, on the same store. While
    another program locks the store, it waits; when the store's file is missing for a minute, it ends.
    """
    is_stopping = (lambda: False) if once else stop_requested()
    service = service_of_app(feature="webhooks") if once else service_in_time(is_stopping, feature="webhooks")
    configure_logging(service.config.log_format, service.config.log_level)
    last_event(service.store)  # opens it, so that an error ends the command now
    deliverer = deliverer_of(service)
    if once:
        click.echo(f"tried {sum(iter(deliverer.deliver_once, 0))}")
    else:
        click.echo(f"delivering from {service.location.name}", err=True)
        deliverer.run(is_stopping)
    deliverer.close()


@click.command(cls=Command)
@click.option(
    "--every",
    type=click.IntRange(1, LONGEST_PAUSE),
    metavar="SECONDS",
    help="Repeat it after so many seconds (a day at most), until SIGTERM or Ctrl-C.",
)
@with_appcontext
def reap(every: int | None) -> None:
    """Delete what has expired. Run it once a day or more often.

    That is responses stored for idempotency keys (IDEMPOTENCY_TTL), and events with their deliveries (EVENTS_TTL).
    """
    if every is None:
        _reap(service_of_app(), lambda: False)
        return
    is_stopping = stop_requested()
    service = service_in_time(is_stopping)
    while not is_stopping():
        try:
            _reap(service, is_stopping)
        except StoreGone:
            raise
        except StoreUnavailable as error:
            click.echo(f"nothing deleted, next attempt in {every} s: {error.detail}", err=True)
        pause(every, is_stopping)


def _reap(service: Service, is_stopping: Callable[[], bool]) -> None:
    """Delete what has expired, and print how much. It ends early if `is_stopping`."""
    config, now = service.config, service.clock.time()
    ttl = config.idempotency_ttl
    before, latest = rfc3339(now - config.events_ttl), rfc3339(now + config.events_ttl)

    def sweep_all(sweep: Callable[[Transaction], int]) -> int:
        total = 0
        while not is_stopping() and (count := service.store.write(sweep, use_reserve=True)):
            total += count
        return total

    responses = events = 0
    if "idempotency" in service.features:
        responses = sweep_all(lambda transaction: transaction.sweep_responses(now - ttl, BATCH, latest=now + ttl))
    if "events" in service.features:
        last_event(service.store)  # it gives all events an id, without which PostgreSQL sweeps none
        events = sweep_all(lambda transaction: sweep_events(transaction, before, BATCH, latest=latest))
    click.echo(f"deleted {responses} expired responses and {events} expired events")


def stop_requested() -> Callable[[], bool]:
    """A function that returns whether SIGTERM or SIGINT has arrived since this call."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    return lambda: bool(received)


def service_in_time(is_stopping: Callable[[], bool], *, feature: str = "") -> Service:
    """The service, as soon as its store exists: a process that starts now may create it. Raises StoreUnavailable."""
    end, has_waited = time.monotonic() + GIVE_UP_SECONDS, False
    while True:
        try:
            return service_of_app(ends=False, feature=feature)
        except StoreUnavailable as problem:
            if is_stopping() or time.monotonic() > end:
                raise
            if not has_waited:
                click.echo(f"waiting: {problem}", err=True)
        has_waited = True
        time.sleep(LOOK_SECONDS)


def pause(seconds: float, is_stopping: Callable[[], bool]) -> None:
    """Wait for some seconds, or until `is_stopping`."""
    end = time.monotonic() + seconds
    while not is_stopping() and (remaining := end - time.monotonic()) > 0:
        time.sleep(min(remaining, LOOK_SECONDS))

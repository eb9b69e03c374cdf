"""`restkeeper reap`: it deletes what has expired, once or until SIGTERM or Ctrl-C."""

from collections.abc import Callable

import click
from flask.cli import with_appcontext

from restkeeper.clock import rfc3339
from restkeeper.command import Command, pause, service_in_time, service_of_app, stop_requested
from restkeeper.service import Service
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import StoreGone, StoreUnavailable
from restkeeper.storage.feed import last_event, sweep_events

BATCH = 500  # records per transaction: limits how long other writes wait
LONGEST_PAUSE = 24 * 3600  # seconds between two runs of `restkeeper reap`


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

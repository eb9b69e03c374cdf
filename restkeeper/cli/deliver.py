"""`restkeeper deliver`: the webhook worker."""

import signal
import time
from collections.abc import Callable
from types import FrameType

import click
from flask.cli import with_appcontext

from restkeeper.cli.common import Command, service_of_app
from restkeeper.features.webhooks import deliverer_of
from restkeeper.features.webhooks.deliverer import GIVE_UP_SECONDS, LOOK_SECONDS, Deliverer
from restkeeper.service import Service
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.web.observe import configure_logging


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="Send until nothing more is due, then end.")
@with_appcontext
def deliver(once: bool) -> None:
    """Send the deliveries of webhooks, until SIGTERM or Ctrl-C.

    Deliveries under way are then finished. Any number of these can run beside the service, on the same store. While
    another program locks the store, it waits; when the store's file is missing for a minute, it ends.
    """
    is_stopping = (lambda: False) if once else _stop_requested()
    service = service_of_app(feature="webhooks") if once else _service_in_time(is_stopping)
    configure_logging(service.config.log_format, service.config.log_level)
    service.store.last_event()  # opens it, so that an error ends the command now
    deliverer = deliverer_of(service)
    if once:
        click.echo(f"tried {_deliver_all(deliverer)}")
    else:
        click.echo(f"delivering from {service.location.name}", err=True)
        deliverer.run(is_stopping)
    deliverer.close()


def _service_in_time(is_stopping: Callable[[], bool]) -> Service:
    """The service, as soon as its store exists: a process that starts now may create it. Raises StoreUnavailable."""
    end, has_waited = time.monotonic() + GIVE_UP_SECONDS, False
    while True:
        try:
            return service_of_app(feature="webhooks")
        except StoreUnavailable as problem:
            if is_stopping() or time.monotonic() > end:
                raise
            if not has_waited:
                click.echo(f"waiting: {problem}", err=True)
        has_waited = True
        time.sleep(LOOK_SECONDS)


def _deliver_all(deliverer: Deliverer) -> int:
    """Send until nothing more is due; returns the number of attempts."""
    total = 0
    while tried := deliverer.deliver_once():
        total += tried
    return total


def _stop_requested() -> Callable[[], bool]:
    """A function that returns whether SIGTERM or SIGINT has arrived since this call."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    return lambda: bool(received)

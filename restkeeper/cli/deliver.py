"""`restkeeper deliver`: the webhook worker."""

import click
from flask.cli import with_appcontext

from restkeeper.cli.common import Command, service_of_app
from restkeeper.cli.running import service_in_time, stop_requested
from restkeeper.features.webhooks import deliverer_of
from restkeeper.features.webhooks.deliverer import Deliverer
from restkeeper.web.observe import configure_logging


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
    service.store.last_event()  # opens it, so that an error ends the command now
    deliverer = deliverer_of(service)
    if once:
        click.echo(f"tried {_deliver_all(deliverer)}")
    else:
        click.echo(f"delivering from {service.location.name}", err=True)
        deliverer.run(is_stopping)
    deliverer.close()


def _deliver_all(deliverer: Deliverer) -> int:
    """Send until nothing more is due; returns the number of attempts."""
    total = 0
    while tried := deliverer.deliver_once():
        total += tried
    return total

"""`restkeeper deliver`: it sends webhooks until SIGTERM or Ctrl-C."""

import click
from flask.cli import with_appcontext

from restkeeper.command import Command, service_in_time, service_of_app, stop_requested
from restkeeper.features.webhooks.deliverer import deliverer_of
from restkeeper.storage.feed import last_event
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
    service = service_of_app() if once else service_in_time(is_stopping)
    configure_logging(service.config.log_format, service.config.log_level)
    last_event(service.store)  # opens it, so that an error ends the command now
    deliverer = deliverer_of(service)
    if once:
        click.echo(f"tried {sum(iter(deliverer.deliver_once, 0))}")
    else:
        click.echo(f"delivering from {service.location.name}", err=True)
        deliverer.run(is_stopping)
    deliverer.close()

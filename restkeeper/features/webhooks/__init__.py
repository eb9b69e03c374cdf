"""Webhooks: the endpoints that receive events, and the deliveries."""

from restkeeper.features.events.types import event_collections
from restkeeper.features.webhooks.deliverer import Deliverer
from restkeeper.features.webhooks.handlers import WEBHOOKS, WebhookHandlers, disable_webhook
from restkeeper.features.webhooks.sender import Sender
from restkeeper.service import Service
from restkeeper.web.application import Application
from restkeeper.web.operation import Contribution

COLLECTIONS = (WEBHOOKS.collection,)
ABOUT = 'To receive the events, create a webhook: the messages under "Webhooks" are sent to it.'


def install(app: Application, service: Service) -> None:
    """Serve /api/v1/webhooks. A deliverer sends the events, in this process or in another one."""
    app.register_blueprint(WebhookHandlers(service).blueprint(), url_prefix="/api/v1/webhooks")
    service.contributions.append(Contribution(about=ABOUT))


def deliverer_of(service: Service) -> Deliverer:
    """The deliverer of a service, as configured."""
    config, clock = service.config, service.clock
    timeout = float(config.webhook_timeout)
    send = Sender(allow_private=config.webhook_allow_private, timeout=timeout)
    return Deliverer(
        service.store,
        send,
        event_collections(service.resources),
        disable_webhook,
        timeout=timeout,
        retries=config.webhook_retries,
        now=clock.time,
        elapsed=clock.monotonic,
    )

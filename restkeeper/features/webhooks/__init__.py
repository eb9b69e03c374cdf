"""Webhooks: the endpoints that receive events, and the deliveries."""

from restkeeper.features.events.types import EventRepresentations, event_collections
from restkeeper.features.webhooks.deliverer import Deliverer
from restkeeper.features.webhooks.description import contribution_of
from restkeeper.features.webhooks.handlers import WEBHOOKS, WebhookHandlers
from restkeeper.features.webhooks.sender import Sender
from restkeeper.service import Service, mount
from restkeeper.storage.outbox import StoredEvent
from restkeeper.web.application import Application

COLLECTIONS = (WEBHOOKS.collection,)


def install(app: Application, service: Service) -> None:
    """Serve /api/VERSION/webhooks. A deliverer sends the events, in this process or in another one."""
    mount(app, service, lambda version: WebhookHandlers(service, version).blueprint())
    service.contributions.append(contribution_of(service))


def deliverer_of(service: Service) -> Deliverer:
    """The deliverer of a service, as configured."""
    config, clock = service.config, service.clock
    timeout = float(config.webhook_timeout)
    send = Sender(allow_private=config.webhook_allow_private, timeout=timeout)
    representations = {each.name: EventRepresentations(service, each.name) for each in service.served}
    previews = {each.name for each in service.served if each.preview}

    def convert(event: StoredEvent, version: str) -> StoredEvent:
        """The event as a webhook of this version receives it; after its sunset, as one of the successor does."""
        shown = version if version in previews else service.versions.replacement_for(version, clock.time())
        representation = representations.get(shown)
        return representation.converted(event) if representation else event

    return Deliverer(
        service.store,
        send,
        event_collections(service.resources),
        timeout=timeout,
        retries=config.webhook_retries,
        convert=convert,
        now=clock.time,
        elapsed=clock.monotonic,
    )

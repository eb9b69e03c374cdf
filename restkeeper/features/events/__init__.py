"""The feed of events: one for each change, written in the transaction of the change."""

from restkeeper.features.events.handlers import EventHandlers
from restkeeper.features.events.types import contribution_of
from restkeeper.resources.changes import Change
from restkeeper.service import Service, mount
from restkeeper.storage.base import Transaction
from restkeeper.storage.outbox import Event
from restkeeper.web.application import Application


def install(app: Application, service: Service) -> None:
    """Record an event for each change, and serve /api/VERSION/events."""
    service.hooks.on_change.append(record_event)
    mount(app, service, lambda version: EventHandlers(service, version).blueprint())
    service.contributions.append(contribution_of(service))


def record_event(transaction: Transaction, change: Change) -> None:
    """Record the event of a change, if its collection has events."""
    resource, record = change.representation.resource, change.record
    if not resource.events:
        return
    type, of = f"{resource.singular}.{change.kind}", (record.owner, record.fingerprint, record.removed)
    transaction.record(Event(type, resource.name, record.id, change.at, record.body, *of))

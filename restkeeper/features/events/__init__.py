"""The feed of events: one for each change, written in the transaction of the change."""

from restkeeper.features.events.handlers import EventHandlers
from restkeeper.resources.changes import Change, add_written
from restkeeper.service import Service
from restkeeper.storage.contract import Transaction
from restkeeper.storage.outbox import Event
from restkeeper.web.application import Application


def install(app: Application, service: Service) -> None:
    """Record an event for each change, and serve /api/v1/events."""
    service.hooks.on_change.append(record_event)
    app.register_blueprint(EventHandlers(service).blueprint(), url_prefix="/api/v1/events")


def record_event(transaction: Transaction, change: Change) -> None:
    """Record the event of a change, if its collection has events."""
    resource, record = change.resource, change.record
    if resource.events:
        body = resource.body(record)
        add_written(len(body))
        type = f"{resource.singular}.{change.kind}"
        transaction.record(Event(type, resource.name, record.id, change.at, body, record.owner))

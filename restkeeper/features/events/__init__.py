"""The feed of events: one for each change, written in the transaction of the change."""

from restkeeper.features.events.handlers import EventHandlers
from restkeeper.resources.changes import Change
from restkeeper.service import Service
from restkeeper.storage.contract import Transaction
from restkeeper.storage.outbox import Event
from restkeeper.web.application import Application
from restkeeper.web.operation import Contribution

ABOUT = "Every change of an item is an event: follow `/api/v1/events`."


def install(app: Application, service: Service) -> None:
    """Record an event for each change, and serve /api/v1/events."""
    service.hooks.on_change.append(record_event)
    app.register_blueprint(EventHandlers(service).blueprint(), url_prefix="/api/v1/events")
    service.contributions.append(Contribution(about=ABOUT))


def record_event(transaction: Transaction, change: Change) -> int:
    """Record the event of a change, if its collection has events; return its bytes."""
    resource, record = change.resource, change.record
    if not resource.events:
        return 0
    body = resource.body(record)
    type = f"{resource.singular}.{change.kind}"
    transaction.record(Event(type, resource.name, record.id, change.at, body, record.owner, resource.fingerprint))
    return len(body)

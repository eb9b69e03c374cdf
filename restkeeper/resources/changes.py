"""A change of an item and the event that tells of it: both are kept in one transaction, or neither.

Whoever changes items does it through here. What only brings a record into another shape, or notes something beside it,
is no change: its version stays.
"""

from collections.abc import Iterable

from restkeeper.features.limits.requests import add_written
from restkeeper.resources.resource import Resource
from restkeeper.storage.contract import Record, Transaction
from restkeeper.storage.outbox import Event

DONE = ("created", "updated", "deleted")
OF_SERVICE = "webhooks"  # the collection that the service's own events are of: for admins, and who names their type
DISABLED = "webhook.disabled"


def known_types(resources: Iterable[Resource]) -> tuple[str, ...]:
    """What events can be asked for by: types, all of one kind of item, and all of the collections."""
    kinds = [(each.singular, DONE) for each in resources if each.events]
    return ("*", *(f"{kind}.{done}" for kind, all_done in kinds for done in ("*", *all_done)), "webhook.*", DISABLED)


def event_collections(resources: Iterable[Resource]) -> tuple[str, ...]:
    """The collections whose changes are events."""
    return tuple(each.name for each in resources if each.events)


def feed_collections(resources: Iterable[Resource]) -> tuple[str, ...]:
    """The collections that the feed can be asked for."""
    return (*event_collections(resources), OF_SERVICE)


def insert_item(transaction: Transaction, resource: Resource, record: Record, *, now: str) -> None:
    """Keep a new item. Raises Duplicate."""
    transaction.insert(resource.name, record)
    add_written(len(record.body))
    _record(transaction, resource, "created", record, now)


def update_item(transaction: Transaction, resource: Resource, record: Record, *, now: str) -> None:
    """Put an item in the place of the one with its id. Raises Duplicate and NotFound."""
    transaction.update(resource.name, record)
    add_written(len(record.body))
    _record(transaction, resource, "updated", record, now)


def delete_item(transaction: Transaction, resource: Resource, record: Record, *, now: str) -> None:
    """Remove an item; the event has it as it last was. Raises NotFound."""
    transaction.delete(resource.name, record.id)
    _record(transaction, resource, "deleted", record, now)


def _record(transaction: Transaction, resource: Resource, done: str, record: Record, now: str) -> None:
    if resource.events:
        type, body = f"{resource.singular}.{done}", resource.body(record)
        add_written(len(body))
        transaction.record(Event(type, resource.name, record.id, now, body, record.owner))

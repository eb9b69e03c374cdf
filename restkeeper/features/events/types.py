"""The types of events, the collections with events, and an event as clients and webhooks receive it."""

from collections.abc import Iterable

from restkeeper.errors import NotConvertible
from restkeeper.resources.changes import KINDS
from restkeeper.resources.resource import Resource
from restkeeper.service import Service
from restkeeper.storage.interface import Record
from restkeeper.storage.outbox import StoredEvent
from restkeeper.web import exactjson

OF_SERVICE = "webhooks"  # the collection of the service's own events: for admins, and for webhooks that name their type
DISABLED = "webhook.disabled"


def known_types(resources: Iterable[Resource], *, of_service: bool = True) -> tuple[str, ...]:
    """The values of the filter `type`: each type, all of one kind of item, and all (`*`)."""
    names = [each.singular for each in resources if each.events]
    own = ("webhook.*", DISABLED) if of_service else ()
    return ("*", *(f"{name}.{done}" for name in names for done in ("*", *KINDS)), *own)


def event_collections(resources: Iterable[Resource]) -> tuple[str, ...]:
    """The collections whose changes are events."""
    return tuple(each.name for each in resources if each.events)


def feed_collections(resources: Iterable[Resource], *, of_service: bool = True) -> tuple[str, ...]:
    """The values of the filter `collection`."""
    return (*event_collections(resources), *([OF_SERVICE] if of_service else ()))


def enveloped(event: StoredEvent) -> bytes:
    """The JSON text of an event, in the form of Standard Webhooks 1.0.0 with the id added."""
    head = f'{{"id":"{event.id}","type":"{event.type}","timestamp":"{event.at}","data":'
    return head.encode() + event.data + b"}"


class EventRepresentations:
    """The data of events as a version of the API has them: an event is stored in the form of its time."""

    def __init__(self, service: Service, version: str) -> None:
        stored = [each for each in service.representations.values() if each.resource.events]
        self._representations = {each.name: service.hooks.represent(each, version) for each in stored}

    @property
    def fingerprint(self) -> str:
        """A text that changes with the representation of any of them."""
        return ",".join([representation.fingerprint for representation in self._representations.values()])

    def converted(self, event: StoredEvent) -> StoredEvent:
        """The event with its data in this form: without the fields whose values have no equivalent in it."""
        representation = self._representations.get(event.collection)
        if representation is None or representation.fingerprint == event.fingerprint:  # an older one matches no item
            return event
        record = Record("", 0, event.at, event.fingerprint, event.data, removed=event.removed)
        try:
            return event._replace(data=representation.body(record))
        except NotConvertible as error:
            members = exactjson.cut(error.rest.body)
            kept = {name: members[name] for name in representation.names if name in members}
            return event._replace(data=exactjson.joined(kept))

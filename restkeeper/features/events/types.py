"""Events: their types, one as clients and webhooks receive it, and both in the OpenAPI document.

The document has a schema for the events of each collection, and one for all.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from restkeeper import exactjson
from restkeeper.resources.call import Caller
from restkeeper.resources.changes import KINDS
from restkeeper.resources.declaration import Ownership
from restkeeper.resources.former import former_body
from restkeeper.resources.resource import Resource
from restkeeper.resources.step import Untranslatable, revision_of
from restkeeper.schemas.item import READ_ONLY
from restkeeper.service import Service
from restkeeper.storage.feed import EVENT_ID, StoredEvent
from restkeeper.storage.interface import Record
from restkeeper.web.descriptions import filled, texts_in
from restkeeper.web.operations import Contribution, Description, JsonSchema, returned

OF_SERVICE = "webhooks"  # the collection of the service's own events: for admins, and for webhooks that name their type
DISABLED = "webhook.disabled"

_TEXTS = texts_in(Path(__file__).with_suffix(".toml"), event_id=EVENT_ID)


def known_types(resources: Iterable[Resource], *, of_service: bool = True) -> tuple[str, ...]:
    """The values of the filter `type`: each type, all of one kind of item, and all (`*`)."""
    names = [resource.singular for resource in resources if resource.events]
    of_webhooks = ("webhook.*", DISABLED) if of_service else ()
    return ("*", *(f"{name}.{done}" for name in names for done in ("*", *KINDS)), *of_webhooks)


def event_collections(resources: Iterable[Resource]) -> tuple[str, ...]:
    """The collections whose changes are events."""
    return tuple(resource.name for resource in resources if resource.events)


def enveloped(event: StoredEvent) -> bytes:
    """The JSON text of an event, in the form of Standard Webhooks 1.0.0 with the id added."""
    head = f'{{"id":"{event.id}","type":"{event.type}","timestamp":"{event.at}","data":'
    return head.encode() + event.data + b"}"


class EventViews:
    """The data of events as a version of the API has them: an event is stored in the form of its time."""

    def __init__(self, service: Service, version: str) -> None:
        stored = [view for view in service.stored.values() if view.resource.events]
        self._views = {view.name: service.domain.views_of(view, version) for view in stored}
        self._oldest = {view.name: view.resource.oldest for view in stored}  # the steps from earlier ones are gone

    def fingerprint(self, caller: Caller) -> str:
        """A text that changes with the view of any of them."""
        return ",".join([views.for_caller(caller).fingerprint for views in self._views.values()])

    def owners(self, collection: str, caller: Caller) -> tuple[str, ...] | None:
        """The owners of whose items alone the caller sees the events; None if it sees everybody's."""
        views = self._views.get(collection)
        return views.for_caller(caller).access.owners(caller) if views else None

    def converted(self, event: StoredEvent, caller: Caller) -> StoredEvent:
        """The event with its data in this form, as the caller sees it.

        If this has no equivalent of it, it is with the server's fields only.

        The former owner of the item gets its id. Raises RevisionDiffers for one of a later revision.
        """
        if (views := self._views.get(event.collection)) is None:
            return unshown(event)
        view = views.for_caller(caller)
        if event.is_for_former_owner:
            return event._replace(data=view.show(event.data, (view.schema.id_name,)))
        with suppress(Untranslatable):
            if revision_of(event.fingerprint) >= self._oldest[event.collection]:
                record = Record("", 0, event.at, event.fingerprint, event.data, event.owner, event.removed_fields)
                return event._replace(data=former_body(view, record))
        return event._replace(data=view.show(event.data, {*READ_ONLY}.intersection(view.names)))


def unshown(event: StoredEvent) -> StoredEvent:
    """An event that no view shows. Of an item it has the id alone: nobody knows which fields are private.

    Those of the service itself have their data.
    """
    if event.collection == OF_SERVICE or event.collection.startswith("_"):
        return event
    members = exactjson.cut(event.data)
    return event._replace(data=exactjson.joined({name: members[name] for name in ("id",) if name in members}))


class EventType(NamedTuple):
    """A type of event, with the names of the schemas of its `data` and of the event in the feed."""

    name: str
    data: str
    event: str


def contribution_of(service: Service) -> Contribution:
    """What the feed adds to the document."""
    lost = [resource for resource in service.resources if resource.ownership is Ownership.ALL and resource.newest.owner]
    types, feed = event_types(service), filled(_TEXTS["list_events"], events_ttl=service.config.events_ttl)
    return Contribution(
        about=_TEXTS["about"],
        tags={"events": _TEXTS["tag"]},
        operations={"list_events": feed},
        parameters=_TEXTS["parameters"],
        build=lambda description: _add_events(description, types, lost),
    )


def event_types(service: Service) -> list[EventType]:
    """The types of events in the feed. The data of the service's own are described where webhooks are."""
    kinds = [(resource.singular, resource.kind) for resource in service.resources if resource.events]
    types = [EventType(f"{name}.{change}", kind, f"{kind}Event") for name, kind in kinds for change in KINDS]
    of_webhooks = [EventType(DISABLED, "DisabledWebhook", "WebhookEvent")] if "webhooks" in service.features else []
    return [*types, *of_webhooks]


def event_schema(description: Description, types: Sequence[str], data: JsonSchema) -> JsonSchema:
    """The schema of an event of one of these types."""
    type = {"type": "string", "enum": list(types)}
    id, timestamp = map(description.schema, _TEXTS["members"])
    return returned({"id": id, "type": type, "timestamp": timestamp, "data": data})


def _add_events(description: Description, types: Sequence[EventType], lost: Iterable[Resource]) -> None:
    """Add their schemas. Of items that can be `lost` to other owners, there is one for the former owner, too."""
    for name, member in _TEXTS["members"].items():
        description.components.schema(name, member, lazy=True)
    events = {type.event: type.data for type in types}
    for event, data in events.items():
        names = [type.name for type in types if type.event == event]
        description.components.schema(event, event_schema(description, names, description.schema(data)), lazy=True)
    for resource in (resource for resource in lost if resource.events):
        id = returned({"id": {"type": "integer" if resource.has_integer_ids else "string"}})
        events |= {(name := f"{resource.kind}LostEvent"): ""}
        schema = event_schema(description, [f"{resource.singular}.deleted"], id) | {"description": _TEXTS["lost"]}
        description.components.schema(name, schema, lazy=True)
    mapping = {type.name: f"#/components/schemas/{type.event}" for type in types}
    union = {
        **_TEXTS["union"],
        "oneOf": [description.schema(event) for event in events],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }
    description.components.schema("Event", union, lazy=True)

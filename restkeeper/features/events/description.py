"""The events in the OpenAPI document: a schema for the events of each collection, and one for all."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from restkeeper.features.events.types import DISABLED
from restkeeper.resources.changes import KINDS
from restkeeper.service import Service
from restkeeper.storage.outbox import EVENT_ID
from restkeeper.web.operations import EXAMPLE_TIME, Contribution, Description, JsonSchema, filled, returned, texts_in

_TEXTS = texts_in(Path(__file__).with_suffix(".toml"), event_id=EVENT_ID)


class EventType(NamedTuple):
    """A type of event, with the names of the schemas of its `data` and of the event in the feed."""

    name: str
    data: str
    event: str


def contribution_of(service: Service) -> Contribution:
    """What the feed adds to the document."""
    types, feed = event_types(service), filled(_TEXTS["list_events"], events_ttl=service.config.events_ttl)
    return Contribution(
        about=_TEXTS["about"],
        tags={"events": _TEXTS["tag"]},
        operations={"list_events": feed},
        build=lambda description: _add_events(description, types),
    )


def event_types(service: Service) -> list[EventType]:
    """The types of events in the feed. The data of the service's own are described where webhooks are."""
    kinds = [(each.singular, each.kind) for each in service.resources if each.events]
    types = [EventType(f"{name}.{change}", kind, f"{kind}Event") for name, kind in kinds for change in KINDS]
    own = [EventType(DISABLED, "DisabledWebhook", "WebhookEvent")] if "webhooks" in service.features else []
    return [*types, *own]


def event_schema(types: Sequence[str], data: JsonSchema) -> JsonSchema:
    """The schema of an event of one of these types."""
    type = {"type": "string", "enum": list(types)}
    return returned({"id": _TEXTS["id"], "type": type, "timestamp": _TEXTS["timestamp"], "data": data})


def event_example(description: Description, type: EventType) -> JsonSchema | None:
    """An example of an event of this type; None if its data have none."""
    data = description.examples.get(type.data)
    return {"id": "evt_5f0c9a3e_2a", "type": type.name, "timestamp": EXAMPLE_TIME, "data": data} if data else None


def _add_events(description: Description, types: Sequence[EventType]) -> None:
    events = {each.event: each.data for each in types}
    for event, data in events.items():
        names = [each.name for each in types if each.event == event]
        description.components.schema(event, event_schema(names, description.schema(data)), lazy=True)
    mapping = {each.name: f"#/components/schemas/{each.event}" for each in types}
    union = {
        **_TEXTS["union"],
        "oneOf": [description.schema(event) for event in events],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }
    description.components.schema("Event", union, lazy=True)
    description.examples["Event"] = event_example(description, types[0]) if types else None

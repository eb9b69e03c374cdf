"""Webhooks in the OpenAPI document: their schemas, and the messages that are sent to them."""

from functools import partial
from pathlib import Path
from typing import Any

from restkeeper.features.events.description import EventType, event_example, event_schema, event_types
from restkeeper.features.webhooks.handlers import PING, WEBHOOKS
from restkeeper.features.webhooks.schema import WebhookDeliverySchema
from restkeeper.service import Service
from restkeeper.storage.outbox import EVENT_ID
from restkeeper.web.exactjson import JSON
from restkeeper.web.operations import Contribution, Description, JsonSchema, media, returned, texts_in

_TEXTS = Path(__file__).with_suffix(".toml")


def contribution_of(service: Service) -> Contribution:
    """What webhooks add to the document."""
    config = service.config
    delays = ", ".join(map(str, config.webhook_retries))
    texts = texts_in(_TEXTS, event_id=EVENT_ID, delays=delays, webhook_timeout=config.webhook_timeout)
    tags = {WEBHOOKS.name: texts["tag"]}
    return Contribution(about=texts["about"], tags=tags, build=partial(_build, service, texts))


def _build(service: Service, texts: dict[str, Any], description: Description) -> None:
    """Add the schemas of a new webhook, a disabled one, a delivery, and an item that is too large; and the messages."""
    components, examples = description.components, description.examples
    for name, part in texts["parameters"].items():
        components.parameter(name, part["in"], part, lazy=True)
    known = components.schemas_lazy
    disabled = known["Webhook"]["properties"] | {"reason": texts["schemas"]["reason"]}
    components.schema("DisabledWebhook", returned(disabled), lazy=True)
    own = known["WebhookInput"]["properties"]
    at_first = own["status"] | {"enum": [state for state in own["status"]["enum"] if state != "disabled"]}
    new = known["WebhookInput"] | {"properties": own | {"status": at_first}}
    components.schema("NewWebhook", new, lazy=True)
    delivery = description.marshmallow("WebhookDelivery", WebhookDeliverySchema)
    components.schema("WebhookDelivery", returned(delivery["properties"]), lazy=True)
    components.schema("ItemReference", texts["schemas"]["ItemReference"], lazy=True)
    examples["NewWebhook"] = examples["WebhookInput"]
    examples["DisabledWebhook"] = examples["Webhook"] | {"status": "disabled", "reason": "410 Gone"}
    sent = (*event_types(service), EventType(PING, "Webhook", ""))
    description.options["webhooks"] = {each.name: {"post": _message(description, each, texts)} for each in sent}


def _message(description: Description, type: EventType, texts: dict[str, Any]) -> JsonSchema:
    """The request that the service makes for a type of event."""
    data = {"anyOf": [description.schema(type.data), description.schema("ItemReference")]}
    body = media(event_schema([type.name], data), "event", event_example(description, type))
    return {
        "operationId": f"on_{type.name.replace('.', '_')}",
        "summary": f"Send {type.name}",
        "description": texts["message"] + (f"\n\n{texts['ping']}" if type.name == PING else ""),
        "tags": [WEBHOOKS.name],
        "parameters": [description.components.get_ref("parameter", name) for name in texts["parameters"]],
        "requestBody": {"required": True, "content": {JSON: body}},
        "responses": texts["responses"],
        "security": [],
    }

"""Webhooks: the endpoints that receive events, the deliveries, and both in the OpenAPI document."""

from functools import partial
from pathlib import Path
from typing import Any

from restkeeper.feature import Seams
from restkeeper.features.events.types import EventType, event_schema, event_types
from restkeeper.features.webhooks.handlers import PING, WEBHOOKS, WebhookHandlers
from restkeeper.service import Service
from restkeeper.storage.feed import EVENT_ID
from restkeeper.web.bodies import JSON
from restkeeper.web.descriptions import texts_in
from restkeeper.web.operations import Contribution, Description, JsonSchema, returned


def install(service: Service) -> Seams:
    """Serve /api/VERSION/webhooks. A deliverer sends the events, in this process or in another one."""
    config = service.config
    delays = ", ".join(map(str, config.webhook_retries))
    path = Path(__file__).with_name("description.toml")
    texts = texts_in(path, event_id=EVENT_ID, delays=delays, webhook_timeout=config.webhook_timeout)
    tags = {WEBHOOKS.name: texts["tag"]}
    build = partial(_build, service, texts)
    return Seams(
        routes=(lambda version: WebhookHandlers(service, version).blueprint(),),
        describe=(Contribution(about=texts["about"], tags=tags, build=build),),
    )


def _build(service: Service, texts: dict[str, Any], description: Description) -> None:
    """Add the schemas of a new webhook, a disabled one, a delivery, and an item that is too large; and the messages."""
    components = description.components
    for name, parameter in texts["parameters"].items():
        components.parameter(name, parameter["in"], parameter, lazy=True)
    for name, response in texts["responses"].items():
        components.response(name, response, lazy=True)
    schemas = components.schemas_lazy
    disabled = schemas["Webhook"]["properties"] | {"reason": texts["schemas"]["reason"]}
    components.schema("DisabledWebhook", returned(disabled), lazy=True)
    properties = schemas["WebhookInput"]["properties"]
    at_first = properties["status"] | {"enum": [state for state in properties["status"]["enum"] if state != "disabled"]}
    new = schemas["WebhookInput"] | {"properties": properties | {"status": at_first}}
    components.schema("NewWebhook", new, lazy=True)
    components.schema("WebhookDelivery", returned(texts["delivery"]), lazy=True)
    revisions = [stored.revision for stored in service.stored.values()]
    hidden = {name for revision in revisions for name in revision.hidden}
    reference = texts["schemas"]["ItemReference"]
    reference["properties"] |= {name: {} for revision in revisions for name in hidden.difference(revision.of_server)}
    required = [name for name in reference["required"] if name not in hidden]
    if any(resource.has_integer_ids for resource in service.resources):
        reference["properties"]["id"]["type"] = ["string", "integer"]
    components.schema("ItemReference", reference | {"required": required}, lazy=True)
    sent = (*event_types(service), EventType(PING, "Webhook", ""))
    description.options["webhooks"] = {type.name: {"post": _message(description, type, texts)} for type in sent}


def _message(description: Description, type: EventType, texts: dict[str, Any]) -> JsonSchema:
    """The request that the service makes for a type of event."""
    data = {"anyOf": [description.schema(type.data), description.schema("ItemReference")]}
    references = description.components.get_ref
    return {
        "operationId": f"on_{type.name.replace('.', '_')}",
        "summary": f"Send {type.name}",
        "description": texts["ping" if type.name == PING else "message"],
        "tags": [WEBHOOKS.name],
        "parameters": [references("parameter", name) for name in texts["parameters"]],
        "requestBody": {"required": True, "content": {JSON: {"schema": event_schema(description, [type.name], data)}}},
        "responses": {status: references("response", name) for status, name in texts["statuses"].items()},
        "security": [],
    }

"""The OpenAPI document's part on webhooks: those that are kept, and the log of their deliveries."""

from collections.abc import Sequence

from restkeeper import errors
from restkeeper.config import Config
from restkeeper.features.openapi.collection import Handler, Problems, SecretPaths, with_members
from restkeeper.features.openapi.events import ID
from restkeeper.features.openapi.parts import (
    TIME,
    Part,
    ProblemResponses,
    answer,
    guarded_operation,
    in_path,
    operation_id,
    query,
    ref,
    refs,
    text,
)
from restkeeper.features.webhooks.handlers import STATES, WEBHOOKS, WebhookHandlers
from restkeeper.web.content import JSON

_TIME: Part = TIME | {"type": ["string", "null"]}
_DELIVERY: Part = {
    "id": {"type": "integer", "minimum": 1, "description": "Counts all deliveries up."},
    "event": ID,
    "type": {"type": "string", "description": "Type of the event."},
    "state": {
        "type": "string",
        "enum": list(STATES),
        "description": "Whether it arrived, was given up, or is still to be tried.",
    },
    "attempts": {"type": "integer", "minimum": 0, "description": "How often it was tried."},
    "next_attempt_at": _TIME
    | {"description": "When to try next; null while on its way or in its turn, and at the end."},
    "attempted_at": _TIME | {"description": "When it was tried last."},
    "response_status": {"type": ["integer", "null"], "minimum": 100, "maximum": 999}
    | {"description": "What it was answered last; null where that was nothing."},
    "latency_ms": {"type": ["number", "null"], "description": "How long the last attempt took."},
    "response_excerpt": {
        "type": ["string", "null"],
        "description": "How the last answer began, or why there was none.",
    },
}
_ITEM = ref("schemas", "WebhookDelivery")
_READ, _REDELIVER = "read_webhook_delivery", "redeliver_to_webhook"


def _whole(most: int) -> Part:
    return {"type": "integer", "minimum": 1, "maximum": most}


_ASKED = (
    query("state", "Only deliveries in this state.", {"type": "string", "enum": list(STATES)}),
    *refs("Limit"),
    query("cursor", "Where to go on: from a Link header.", _whole(2**63 - 1)),
)


class WebhookPaths(SecretPaths):
    """Webhooks, for events of `types`, and what came of their deliveries."""

    handlers: type[WebhookHandlers] = WebhookHandlers
    secret = text(
        50, description="What deliveries are signed with. Shown this once.", pattern="^whsec_[A-Za-z0-9+/]{43}=$"
    )

    def __init__(self, schema: Part, types: Sequence[str], config: Config, problems: ProblemResponses) -> None:
        schema["properties"]["types"]["items"] = {"type": "string", "enum": list(types)}
        super().__init__(WEBHOOKS, schema, config, problems)

    def components(self) -> Part:
        """As of all that bears a secret, with what a webhook can be when it is new and when it is disabled."""
        parts = super().components()
        schemas = parts["schemas"]
        reason = {"type": "string", "description": "Why nothing more is sent."}
        schemas["DisabledWebhook"] = with_members(schemas["Webhook"], {"reason": reason})
        own = schemas["WebhookInput"]["properties"]
        begins = own["status"] | {"enum": [state for state in own["status"]["enum"] if state != "disabled"]}
        schemas["NewWebhook"] = schemas["WebhookInput"] | {"properties": own | {"status": begins}}
        parts["requestBodies"]["NewWebhook"] = self._body("NewWebhook", JSON)
        closed = {"type": "object", "additionalProperties": False}
        schemas["WebhookDelivery"] = closed | {"properties": _DELIVERY, "required": list(_DELIVERY)}
        parts["responses"] |= self._delivery_responses()
        return parts

    def _delivery_responses(self) -> Part:
        page = {"type": "array", "items": _ITEM, "maxItems": self._config.page_limit_max}
        return {
            "WebhookDeliveries": answer("The page.", ("Link", "Cache-Control"), {JSON: {"schema": page}}),
            "WebhookDelivery": answer("The delivery.", ("Cache-Control",), {JSON: {"schema": _ITEM}}),
        }

    def paths(self, prefix: str) -> Part:
        """The operations on the list, on a webhook of it, and on the deliveries of that."""
        base = f"{prefix}/{WEBHOOKS.name}"
        paths = super().paths(prefix)
        paths[base]["post"]["requestBody"] = ref("requestBodies", "NewWebhook")
        return paths | self._delivery_paths(prefix, f"{base}/{{id}}")

    def _delivery_paths(self, prefix: str, one: str) -> Part:
        handlers, queued, lost = self.handlers, _queued(prefix), (errors.NotFound,)
        once = (*lost, errors.IdempotencyKeyInvalid, errors.InsufficientStorage, *self._once)

        def operation(id: str, handler: Handler, done: Part, problems: Problems, *parameters: Part) -> Part:
            about = f"{handler.__doc__}\n\nWho shows credentials needs the scope `admin`."
            responses = {"200": done, **self._problems(*problems)}
            return guarded_operation(id, prefix, WEBHOOKS.name, about, self._config, list(parameters), responses)

        several, single = (ref("responses", name) for name in ("WebhookDeliveries", "WebhookDelivery"))
        wrong, key = (*lost, errors.InvalidQuery), refs("IdempotencyKey")
        ping = operation("ping_webhook", handlers.ping_item, queued, once, *key)
        found = operation("list_webhook_deliveries", handlers.list_deliveries, several, wrong, *_ASKED)
        read = operation(_READ, handlers.read_delivery, single, lost)
        again = operation(_REDELIVER, handlers.redeliver, queued, once, *key)
        of_one = refs("WebhookId")
        of_delivery = [*of_one, in_path("delivery", "Id of the delivery.", _whole(10**18 - 1))]
        return {
            f"{one}/ping": {"parameters": of_one, "post": ping},
            f"{one}/deliveries": {"parameters": of_one, "get": found},
            f"{one}/deliveries/{{delivery}}": {"parameters": of_delivery, "get": read},
            f"{one}/deliveries/{{delivery}}/redeliver": {"parameters": of_delivery, "post": again},
        }


def _queued(prefix: str) -> Part:
    """The answer with a delivery that was asked for, and what can be done with that."""
    place = {"id": "$request.path.id", "delivery": "$response.body#/id"}
    done = answer(
        "The delivery, to be tried once.", ("Cache-Control", "Idempotent-Replayed"), {JSON: {"schema": _ITEM}}
    )
    return done | {
        "links": {id: {"operationId": operation_id(id, prefix), "parameters": place} for id in (_READ, _REDELIVER)}
    }

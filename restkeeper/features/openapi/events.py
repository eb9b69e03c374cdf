"""The OpenAPI document's part on events: the feed, and what is sent to webhooks."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from restkeeper import errors
from restkeeper.config import Config
from restkeeper.features.events.handlers import LATEST, EventHandlers
from restkeeper.features.events.longpoll import LONGEST
from restkeeper.features.events.types import DISABLED, feed_collections, known_types
from restkeeper.features.openapi.collection import example_of, examples, part_name
from restkeeper.features.openapi.parts import (
    TIME,
    Part,
    ProblemResponses,
    answer,
    guarded_operation,
    query,
    query_list,
    ref,
    refs,
    text,
)
from restkeeper.features.webhooks.handlers import PING, WEBHOOKS
from restkeeper.resources.changes import KINDS as DONE
from restkeeper.resources.resource import Resource
from restkeeper.storage.outbox import EVENT_ID
from restkeeper.web.content import JSON

ID = text(28, pattern=f"^{EVENT_ID}$", description="Tells the event from all others.")
_TIME: Part = TIME | {"description": "When it happened, in UTC."}

_FEED = """

Any credentials will do: it shows the collections whose `:read` scope the caller has, of items that others do not see \
those of one's own, and to admins what the service does with `webhooks` by itself.

The id of an event is a cursor: `after` it comes what was committed next. Follow `next` in `Link`, also from the last \
page, where it leads to what is still to come. `wait` holds back an answer that would be empty until there is an event \
or the time is over. Events are kept for {} seconds; a cursor from before is answered 410, with the cursor before the \
oldest event that is kept as `resume`: read the items anew, and go on from there."""

_SENT = """\
What a webhook is sent whose `types` have this one (Standard Webhooks 1.0.0). Verify the signature of the body as it \
came, and answer before you work on it. What happened to one item comes in its order, at least once: `webhook-id` \
tells what came before. Of a payload larger than 20,000 bytes `data` has only `id`, `version` and `updated_at`: fetch \
the rest. No redirect is followed."""

_HEADERS = {
    "webhook-id": ("Id of the event, the same at every try.", ID["pattern"]),
    "webhook-timestamp": ("When this try began, in seconds since 1970. Refuse one that is long ago.", "^[0-9]+$"),
    "webhook-signature": (
        "Shows that the message is whole and from here: `v1,` and in base64 the HMAC-SHA256 of id, timestamp and body, "
        "with full stops between them. Its key is the webhook's secret without `whsec_`, decoded from base64. For a "
        "day after a secret was rotated there is one by the former, too, after a space; one that fits is enough.",
        "^v1,[A-Za-z0-9+/]{43}=( v1,[A-Za-z0-9+/]{43}=)*$",
    ),
}
_REFERENCE: Part = {
    "type": "object",
    "description": "What it takes to fetch an item that is too large to be sent.",
    "additionalProperties": False,
    "required": ["id", "version", "updated_at"],
    "properties": {
        "id": text(64),
        "version": {"type": "integer", "minimum": 1},
        "updated_at": TIME,
    },
}


class _Told(NamedTuple):
    """A type of event: the schema of its `data`, that of such events in the feed, and an example of one."""

    type: str
    data: str
    event: str
    example: Part | None


def _told(resources: Sequence[Resource]) -> Iterator[_Told]:
    """All that the feed tells of."""
    for each in resources:
        if each.events:
            name, data = part_name(each), example_of(each, whole=True)
            for type in (f"{each.singular}.{done}" for done in DONE):
                yield _Told(type, name, f"{name}Event", _example(type, data))
    disabled = (example_of(WEBHOOKS, whole=True) or {}) | {"status": "disabled", "reason": "410 Gone"}
    for type in (DISABLED,):
        yield _Told(type, "DisabledWebhook", "WebhookEvent", _example(type, disabled))


def _example(type: str, data: Part | None) -> Part | None:
    head = {"id": "evt_5f0c9a3e_2a", "type": type, "timestamp": "2026-01-31T12:00:00.000000Z"}
    return head | {"data": data} if data else None


def _event(types: Sequence[str], data: Part) -> Part:
    properties = {"id": ID, "type": {"type": "string", "enum": list(types)}, "timestamp": _TIME, "data": data}
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(properties)}


class EventPaths:
    """The feed of the events of `resources`: the components that it adds, and its path."""

    def __init__(self, resources: Sequence[Resource], config: Config, problems: ProblemResponses) -> None:
        self._resources = resources
        self._config = config
        self._problems = problems

    def components(self) -> Part:
        """A schema for the events of each collection and one for all; the answers; what webhooks are sent beside."""
        told = list(_told(self._resources))
        schemas = {
            name: _event([each.type for each in told if each.event == name], ref("schemas", data))
            for name, data in dict.fromkeys((each.event, each.data) for each in told)
        }
        mapping = {each.type: f"#/components/schemas/{each.event}" for each in told}
        union = {
            "description": "Something that happened. `data` is the item as it then was, in the form of then.",
            "oneOf": [ref("schemas", name) for name in schemas],
            "discriminator": {"propertyName": "type", "mapping": mapping},
        }
        page = {"type": "array", "items": ref("schemas", "Event"), "maxItems": self._config.page_limit_max}
        shown = examples("events", [each.example for each in told[:1] if each.example])
        headers = ("ETag", "Link", "Cache-Control")
        return {
            "schemas": schemas | {"Event": union, "ItemReference": _REFERENCE},
            "parameters": {name: _header(name, about, form) for name, (about, form) in _HEADERS.items()},
            "responses": {
                "EventPage": answer(
                    "The events, in the order of their commits.", headers, {JSON: {"schema": page} | shown}
                ),
                "EventsNotModified": answer("Nothing has changed.", headers),
            },
        }

    def paths(self, prefix: str) -> Part:
        """The operation on the feed."""
        about = f"{EventHandlers.list_events.__doc__}{_FEED.format(self._config.events_ttl)}"
        problems = self._problems(errors.InvalidQuery, errors.CursorExpired, errors.PreconditionFailed)
        responses = {"200": ref("responses", "EventPage"), "304": ref("responses", "EventsNotModified"), **problems}
        parameters = [*self._parameters(), *refs("IfMatch", "IfNoneMatch")]
        feed = guarded_operation("list_events", prefix, "events", about, self._config, parameters, responses)
        return {f"{prefix}/events": {"get": feed}}

    def _parameters(self) -> list[Part]:
        most = self._config.page_limit_max
        cursor = text(28, pattern=f"^({LATEST}|{EVENT_ID})$")
        types, names = ({"type": "string", "enum": list(of(self._resources))} for of in (known_types, feed_collections))
        size = {"type": "integer", "minimum": 1, "maximum": most, "default": most}
        seconds = {"type": "integer", "minimum": 0, "maximum": LONGEST, "default": 0}
        return [
            query("after", f"Id of the last event that is known, or `{LATEST}`: only what is to come.", cursor),
            query_list("type", "Only these: `*`, all of a kind (`product.*`), or types.", types),
            query_list("collection", "Only what happened in these.", names),
            query("limit", "Events a page.", size),
            query("wait", "For how many seconds, at most, an answer without events is held back.", seconds),
        ]


def _header(name: str, about: str, form: str) -> Part:
    schema = {"type": "string", "pattern": form}
    return {"name": name, "in": "header", "required": True, "description": about, "schema": schema}


def sent_to_webhooks(resources: Sequence[Resource], config: Config) -> Part:
    """The requests that the service makes, by type of event: the document's `webhooks`."""
    responses = _answers(config)
    ping = _Told(PING, "Webhook", "", _example(PING, example_of(WEBHOOKS, whole=True)))
    return {each.type: {"post": _message(each, responses)} for each in (*_told(resources), ping)}


def _message(told: _Told, responses: Part) -> Part:
    data = {"anyOf": [ref("schemas", told.data), ref("schemas", "ItemReference")]}
    content = {"schema": _event([told.type], data)} | examples("event", told.example)
    return {
        "operationId": f"on_{told.type.replace('.', '_')}",
        "summary": f"Tell of {told.type}",
        "description": _SENT
        if told.type != PING
        else f"{_SENT}\n\nThis one is sent when it is asked for, whatever `types` are.",
        "tags": [WEBHOOKS.name],
        "parameters": refs(*_HEADERS),
        "requestBody": {"required": True, "content": {JSON: content}},
        "responses": responses,
        "security": [],
    }


def _answers(config: Config) -> Part:
    """What an endpoint can answer, and what is made of it."""
    waits = {"headers": {"Retry-After": ref("headers", "Retry-After")}}
    delays = ", ".join(map(str, config.webhook_retries))
    again = (
        f"It is tried again, {delays} seconds after each failure and a little more, and then the webhook is disabled. "
        "Nothing is sent before `Retry-After` is over, which is a day at most."
    )
    return {
        "2XX": {"description": "It is received."},
        "410": {"description": "Send no more: the webhook is disabled."},
        "429": {"description": f"Not now. {again}"} | waits,
        "503": {"description": f"Not now. {again}"} | waits,
        "default": {"description": f"{again} Likewise without an answer in {config.webhook_timeout} seconds."} | waits,
    }
